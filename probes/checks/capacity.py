"""What a host runs out of: memory, kernel tables, CPU time, locked memory, /dev/shm."""

from __future__ import annotations

from collections.abc import Iterator

from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Severity
from probes.ports import COMPUTE, ports
from probes.reading import number, whole

TABLE = Rule(
    id="host.table_full",
    title="A table of the kernel is nearly full",
    severity=Severity.WARN,
    reads="open files, tasks and tracked connections against their maximum",
    cause="a program that leaks files, processes or connections, or a limit that is too small",
    action=Action.FIX_CONFIG,
    next_step="find who holds them (lsof, ps, conntrack -L); raise fs.file-max, kernel.pid_max or "
    "nf_conntrack_max",
    source="gpud warns at 80 % and fails at 95 %: from there on the kernel refuses new ones",
    others="gpud 80 and 95 %; CCH 10 and 50 % of pid_max; EKS",
    example="tracked connections 250000 of 262144",
    limits=("host.table_warn_percent", "host.table_critical_percent"),
)
LOW = Rule(
    id="host.memory_low",
    title="The host is nearly out of memory",
    severity=Severity.WARN,
    reads="MemAvailable of /proc/meminfo",
    cause="jobs use all of it, or left-overs in /dev/shm and page tables",
    action=Action.WATCH,
    next_step="see who holds it (ps, du /dev/shm); the kernel will kill a process next",
    source="gpud warns below 100 MiB; the share is our estimate, not measured",
    others="gpud 100 MiB; SOP after a job",
    example="612 MB of 2113 GB available",
    limits=("host.mem_available_share", "host.mem_available_bytes"),
)
SWAP = Rule(
    id="host.swap_storm",
    title="The host reads memory back from swap all the time",
    severity=Severity.WARN,
    reads="rise of pswpin",
    cause="more memory in use than there is",
    action=Action.WATCH,
    next_step="see which job holds the memory; compute nodes are better off without swap",
    source="our estimate, not measured",
    others="-",
    example="5200 pages/s read from swap, 61 GB of swap in use",
    limits=("host.swap_in_per_s",),
)
LOAD = Rule(
    id="host.load",
    title="Far more tasks want to run than there are CPUs",
    severity=Severity.WARN,
    reads="five-minute load average over CPUs online",
    cause="too many data loader workers, a runaway program, or tasks that wait for a file system",
    action=Action.WATCH,
    next_step="ps -eLo stat,comm | sort | uniq -c: R is CPU, D is storage or driver",
    source="our estimate, not measured",
    others="-",
    example="load 812 on 112 CPUs",
    limits=("host.load_per_cpu", "host.load_excess"),
)
STEAL = Rule(
    id="host.steal",
    title="The hypervisor takes CPU time away",
    severity=Severity.WARN,
    reads="steal time of /proc/stat",
    cause="the physical host is shared and overbooked",
    action=Action.WATCH,
    next_step="move the virtual machine, or ask for dedicated CPUs",
    source="our estimate, not measured",
    others="-",
    example="steal 34 %",
    limits=("host.steal_percent",),
)
MEMLOCK = Rule(
    id="host.memlock",
    title="Jobs may lock too little memory for RDMA",
    severity=Severity.WARN,
    reads="Max locked memory of slurmd (or pbs_mom, containerd), with RDMA ports for jobs",
    cause="LimitMEMLOCK of the service is not infinity",
    action=Action.FIX_CONFIG,
    next_step="LimitMEMLOCK=infinity in the service's unit, then restart it when the node is idle",
    source="PRI: unlimited or at least 32 GiB",
    others="PRI 32 GiB",
    example="slurmd: 67108864 bytes",
    limits=("host.memlock_bytes",),
)
NOFILE = Rule(
    id="host.nofile",
    title="Jobs may open few files",
    severity=Severity.INFO,
    reads="Max open files of slurmd (or pbs_mom, containerd)",
    cause="LimitNOFILE of the service is low",
    action=Action.FIX_CONFIG,
    next_step="LimitNOFILE=1048576 in the service's unit, then restart it when the node is idle",
    source="our estimate, not measured",
    others="-",
    example="slurmd: 1024 files",
    limits=("host.nofile",),
)
SHM = Rule(
    id="host.shm_small",
    title="/dev/shm is small",
    severity=Severity.WARN,
    reads="size of /dev/shm on nodes with GPUs",
    cause="a size= option of the mount, or a container's default of 64 MB",
    action=Action.FIX_CONFIG,
    next_step="remount with size=50% of memory; containers: --shm-size or --ipc=host",
    source="PRI: at least 8 GiB",
    others="PRI 8 GiB",
    example="/dev/shm has 64 MB",
    limits=("host.shm_bytes",),
)
SHM_FULL = Rule(
    id="host.shm_full",
    title="/dev/shm is nearly full",
    severity=Severity.WARN,
    reads="use of /dev/shm",
    cause="segments that dead jobs left behind",
    action=Action.WATCH,
    next_step="ls -l /dev/shm; remove what no running job owns: it is memory",
    source="our estimate, not measured",
    others="-",
    example="/dev/shm 98 % used",
    limits=("host.shm_used_percent",),
)
FRAGMENTED = Rule(
    id="host.fragmented",
    title="Hardly any free memory in one piece",
    severity=Severity.INFO,
    reads="/proc/buddyinfo, blocks of order 8 and above",
    cause="page cache and long uptime",
    action=Action.NONE,
    next_step="only when hugepages cannot be had: drop caches, or reboot between jobs",
    source="GCM: at least 10 free blocks of order 8",
    others="GCM 10 blocks",
    example="3 free blocks of 1 MiB",
    limits=("host.free_order8",),
)
IO_PRESSURE = Rule(
    id="host.io_pressure",
    title="Tasks spend their time waiting for storage",
    severity=Severity.INFO,
    reads="pressure stall information, io full, 60 s average",
    cause="data loading, checkpoints, or a slow disk or file server",
    action=Action.WATCH,
    next_step="compare with peers of the same job: alone it is this node, together the server",
    source="our estimate, not measured",
    others="EKS: IO delay",
    example="all tasks waited for I/O 62 % of the time",
    limits=("host.io_pressure_percent",),
)
RULES = (
    TABLE, LOW, SWAP, LOAD, STEAL, MEMLOCK, NOFILE, SHM, SHM_FULL, FRAGMENTED, IO_PRESSURE,
)  # fmt: skip

TABLES = (
    ("open files", "files_open", "files_max"),
    ("tasks", "tasks", "tasks_max"),
    ("tracked connections", "conntrack", "conntrack_max"),
)


def check(look: Look) -> Iterator[Finding]:
    """Everything of the host probe, then of the slow one."""
    yield from _tables(look)
    yield from _memory(look)
    yield from _busy(look)
    yield from _limits(look)
    yield from _shm(look)


def _fast(look: Look, metric: str) -> float | None:
    return number(look.facts.value("host", "", metric))


def _slow(look: Look, metric: str) -> float | None:
    return number(look.facts.value("host_slow", "", metric))


def _tables(look: Look) -> Iterator[Finding]:
    limits = [look.rules.limit(name) for name in TABLE.limits]
    for what, used, most in TABLES:
        have, top = _fast(look, used), _fast(look, most)
        if have is None or not top:
            continue
        percent = 100 * have / top
        reached = [limit for limit in limits if percent >= limit.value]
        if reached:
            grave = reached[-1] is limits[1]
            yield TABLE.finding(
                look, f"{what}: {have:.0f} of {top:.0f} ({percent:.0f} %)",
                (f"{what} {have:.0f} of {top:.0f}",), device=what, label=what,
                value=round(percent, 1), limit=reached[-1],
                severity=Severity.CRITICAL if grave else None,
            )  # fmt: skip


def _memory(look: Look) -> Iterator[Finding]:
    total, free = _fast(look, "mem_total_bytes"), _fast(look, "mem_available_bytes")
    share = look.rules.limit("host.mem_available_share")
    least = look.rules.limit("host.mem_available_bytes")
    if total and free is not None and free < min(share.value * total, least.value):
        say = f"{free / 1e6:.0f} MB of {total / 1e9:.0f} GB of memory available"
        yield LOW.finding(look, say, (say,), value=free, limit=least)
    rates = look.facts.rates.get(("host_slow", ""))
    pages = None if rates is None else rates.per_s("swap_in_pages")
    storm = look.rules.limit("host.swap_in_per_s")
    if pages is not None and pages > storm.value:
        used = _fast(look, "swap_used_bytes") or 0.0
        say = f"{pages:.0f} pages/s read from swap, {used / 1e9:.0f} GB of swap in use"
        yield SWAP.finding(look, say, (say,), value=round(pages), limit=storm)


def _busy(look: Look) -> Iterator[Finding]:
    load, cpus = _fast(look, "load5"), _fast(look, "cpu_count")
    limit = look.rules.limit("host.load_per_cpu")
    if load is not None and cpus and load / cpus > limit.value:
        say = f"load {load:.0f} on {cpus:.0f} CPUs"
        many = load - cpus > look.rules.limit("host.load_excess").value
        yield LOAD.finding(
            look, say, (say,), value=round(load / cpus, 1), limit=limit,
            severity=None if many else Severity.INFO,
        )  # fmt: skip
    for rule, metric, what in (
        (STEAL, "steal_percent", "{:.0f} % of CPU time went to other machines of the host"),
        (IO_PRESSURE, "pressure_io_full_percent", "all tasks waited for I/O {:.0f} % of the time"),
    ):
        value, most = _fast(look, metric), look.rules.limit(rule.limits[0])
        if value is not None and value > most.value:
            say = what.format(value)
            yield rule.finding(look, say, (say,), value=value, limit=most)
    blocks, few = _slow(look, "free_order8"), look.rules.limit("host.free_order8")
    if blocks is not None and blocks < few.value:
        say = f"{blocks:.0f} free blocks of 1 MiB or more"
        yield FRAGMENTED.finding(look, say, (say,), value=blocks, limit=few)


def _limits(look: Look) -> Iterator[Finding]:
    daemon = look.facts.value("host_slow", "", "daemon")
    rdma = any(role == COMPUTE for _, _, role in ports(look.facts))
    for rule, metric, unit in ((MEMLOCK, "memlock_bytes", "bytes"), (NOFILE, "nofile", "files")):
        value, limit = _slow(look, metric), look.rules.limit(rule.limits[0])
        if value is None or value < 0 or value >= limit.value or (rule is MEMLOCK and not rdma):
            continue
        say = f"{daemon} gives its jobs {value:.0f} {unit}"
        locked = " of locked memory" if rule is MEMLOCK else ""
        yield rule.finding(
            look, say + locked, (f"{daemon}: {value:.0f} {unit}",), value=value, limit=limit
        )


def _shm(look: Look) -> Iterator[Finding]:
    """Not of a container: its /dev/shm is its own, not that of the node's jobs."""
    total, used = _slow(look, "shm_total_bytes"), _slow(look, "shm_used_bytes")
    if not total or look.facts.value("inventory", "", "confined") == "a container":
        return
    gpus = whole(look.facts.value("inventory", "", "pci_gpu_count")) or 0
    least, most = look.rules.limit("host.shm_bytes"), look.rules.limit("host.shm_used_percent")
    memory = _fast(look, "mem_total_bytes") or 0.0
    if gpus and total < least.value and memory > 4 * least.value:
        say = f"/dev/shm has {total / 1e6:.0f} MB"
        yield SHM.finding(look, say, (say,), value=total, limit=least)
    if used is not None and 100 * used / total > most.value:
        say = f"/dev/shm {100 * used / total:.0f} % used"
        yield SHM_FULL.finding(look, say, (say,), value=round(100 * used / total, 1), limit=most)
