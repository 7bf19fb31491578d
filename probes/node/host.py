"""The host's fast gauges: load, CPU, memory, pressure, kernel tables, uninterruptible sleepers.

All of it is read from ROOT/proc, so that nothing has to be installed on the node. What changes
slowly is in host_slow, who sleeps and why in tasks.
"""

import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from probes.node.context import Context

    Values = dict[str, object]

NAME = "host"
INTERVAL = "fast"
COUNTERS = True  # a pass needs two answers for cpu_percent
METRICS = {
    "load1": ("", "gauge", "runnable and uninterruptible tasks, one-minute average"),
    "load5": ("", "gauge", "the same, five-minute average"),
    "cpu_count": ("", "info", "CPUs online"),
    "cpu_percent": ("%", "gauge", "busy time of all CPUs since the last answer"),
    "steal_percent": ("%", "gauge", "time the hypervisor gave to others since the last answer"),
    "mem_total_bytes": ("B", "info", "memory"),
    "mem_available_bytes": ("B", "gauge", "memory available without swapping"),
    "mem_committed_bytes": ("B", "gauge", "memory promised to processes (Committed_AS)"),
    "mem_corrupted_bytes": ("B", "gauge", "pages taken out of use after memory errors"),
    "swap_total_bytes": ("B", "info", "swap space"),
    "swap_used_bytes": ("B", "gauge", "swap space in use"),
    "files_open": ("", "gauge", "open file handles of the whole host"),
    "files_max": ("", "info", "most file handles the kernel gives (fs.file-max)"),
    "tasks": ("", "gauge", "processes and threads"),
    "tasks_max": ("", "info", "most of them: the smaller of pid_max and threads-max"),
    "conntrack": ("", "gauge", "connections the firewall tracks"),
    "conntrack_max": ("", "info", "most connections it can track"),
    "uptime_s": ("s", "gauge", "time since boot"),
    "dstate_count": ("", "gauge", "processes in uninterruptible sleep"),
    "dstate_nvidia": ("", "gauge", "those of them that wait inside the NVIDIA driver"),
    "hostname": ("", "info", "the kernel's host name"),
    "pressure_io_percent": ("%", "gauge", "time some task waited for I/O, 10 s average"),
    "pressure_io_full_percent": ("%", "gauge", "time all tasks waited for I/O, 60 s average"),
    "pressure_cpu_percent": ("%", "gauge", "time some task waited for a CPU, 10 s average"),
    "pressure_memory_percent": ("%", "gauge", "time some task waited for memory, 10 s average"),
    "pressure_memory_full_percent": (
        "%", "gauge", "time all tasks waited for memory, 60 s average",
    ),
}  # fmt: skip

SCAN_EVERY_S = 14.0
"""Walking all of /proc costs 10 ms per 1,000 processes: not at every fast tick, but anew for every
slow one (15 s)."""

WCHAN_LIMIT = 64
"""How many uninterruptible processes are looked at for the driver's name."""

LOCKS = ("rwsem_", "down", "__down", "mutex_", "__mutex", "schedule")
"""Wait channels of locks that anybody may hold."""

SCAN_LIMIT = 100000
"""Processes looked at in one walk; a host with more has a fault of its own (`tasks`)."""

KERNEL_THREAD = 0x00200000
"""PF_KTHREAD, include/linux/sched.h: the ninth field of /proc/PID/stat."""

UNLIMITED = 1 << 62
"""Larger limits are none: fs.file-max is 2^63 - 1 since Linux 5.10 with systemd."""

MEMORY = {
    "MemTotal": "mem_total_bytes", "MemAvailable": "mem_available_bytes",
    "Committed_AS": "mem_committed_bytes", "HardwareCorrupted": "mem_corrupted_bytes",
    "SwapTotal": "swap_total_bytes",
}  # fmt: skip

PRESSURE = (
    ("io", "some", "avg10", "pressure_io_percent"),
    ("io", "full", "avg60", "pressure_io_full_percent"),
    ("cpu", "some", "avg10", "pressure_cpu_percent"),
    ("memory", "some", "avg10", "pressure_memory_percent"),
    ("memory", "full", "avg60", "pressure_memory_full_percent"),
)


_walking = threading.Lock()
"""Four probes want the list when they start: one of them walks. /proc/PID/stat waits for nobody."""


class Task:
    """One process as /proc/PID/stat tells it."""

    __slots__ = ("comm", "kernel", "pid", "ppid", "start", "state")

    def __init__(
        self, pid: "str", comm: "str", state: "str", ppid: "str", kernel: "bool", start: "str"
    ) -> "None":
        self.pid = pid
        self.comm = comm
        self.state = state
        self.ppid = ppid
        self.kernel = kernel
        """Whether it is a kernel thread; those may sleep uninterruptibly by design."""
        self.start = start
        """Clock ticks after boot; tells a pid from an earlier process of the same number."""


def collect(ctx: "Context") -> "tuple[dict[str, Values], list[Values]]":
    """One device "". What this kernel does not show is missing."""
    values: "Values" = {}
    for part in (_load, _cpu, _memory, _pressure, _tables, _dstate):
        values.update(part(ctx))
    hostname = ctx.read("proc/sys/kernel/hostname")
    if hostname:
        values["hostname"] = hostname[:255]
    return {"": values}, []


def _load(ctx: "Context") -> "Values":
    found: "Values" = {}
    loads = (ctx.read("proc/loadavg") or "").split()
    uptime = (ctx.read("proc/uptime") or "").split()
    for metric, words, field in (("load1", loads, 0), ("load5", loads, 1), ("uptime_s", uptime, 0)):
        try:
            found[metric] = float(words[field])
        except (IndexError, ValueError):
            continue
    total = loads[3].partition("/")[2] if len(loads) > 3 else ""
    if total.isdigit():
        found["tasks"] = int(total)
    return found


def _cpu(ctx: "Context") -> "Values":
    """CPU count now, busy share since the last answer. Guest time is part of user time already."""
    lines = (ctx.read("proc/stat") or "").splitlines()
    cpus = [line for line in lines if line.startswith("cpu") and line[3:4].isdigit()]
    found: "Values" = {"cpu_count": len(cpus)} if cpus else {}
    if not lines or not lines[0].startswith("cpu "):
        return found
    ticks = [int(field) for field in lines[0].split()[1:9] if field.isdigit()]
    total, idle, steal = sum(ticks), sum(ticks[3:5]), sum(ticks[7:8])
    memory = ctx.memory(NAME)
    before = memory.get("cpu")
    memory["cpu"] = (total, idle, steal)
    if isinstance(before, tuple) and total > before[0]:
        passed = float(total - before[0])
        found["cpu_percent"] = _percent(1.0 - (idle - before[1]) / passed)
        if len(ticks) > 7:
            found["steal_percent"] = _percent((steal - before[2]) / passed)
    return found


def _percent(share: "float") -> "float":
    return round(100.0 * min(1.0, max(0.0, share)), 1)


def _memory(ctx: "Context") -> "Values":
    found: "Values" = {}
    free = None
    for line in (ctx.read("proc/meminfo") or "").splitlines():
        key, _, rest = line.partition(":")
        number = rest.split()[:1]
        if not number or not number[0].isdigit():
            continue
        if key in MEMORY:
            found[MEMORY[key]] = int(number[0]) * 1024
        elif key == "SwapFree":
            free = int(number[0]) * 1024
    total = found.get("swap_total_bytes")
    if isinstance(total, int) and free is not None and total >= free:
        found["swap_used_bytes"] = total - free
    return found


def _pressure(ctx: "Context") -> "Values":
    """Averages of PSI; absent before Linux 4.20, with psi=0, and "full" of what has none."""
    found: "Values" = {}
    lines = {}
    for what in ("io", "cpu", "memory"):
        for line in (ctx.read("proc/pressure", what) or "").splitlines():
            kind, _, rest = line.partition(" ")
            lines[what, kind] = dict(word.partition("=")[::2] for word in rest.split())
    for what, kind, average, metric in PRESSURE:
        try:
            found[metric] = float(lines[what, kind][average])
        except (KeyError, ValueError):
            continue
    return found


def _tables(ctx: "Context") -> "Values":
    """How full the kernel's tables of files, tasks and connections are."""
    found: "Values" = {}
    files = (ctx.read("proc/sys/fs/file-nr") or "").split()
    if len(files) == 3 and all(word.isdigit() for word in files):
        found["files_open"] = int(files[0])
        if int(files[2]) < UNLIMITED:
            found["files_max"] = int(files[2])
    limits = [ctx.read_int("proc/sys/kernel", name) for name in ("pid_max", "threads-max")]
    known = [limit for limit in limits if limit is not None and limit > 0]
    if known:
        found["tasks_max"] = min(known)
    for metric, name in (("conntrack", "count"), ("conntrack_max", "max")):
        number = ctx.read_int("proc/sys/net/netfilter/nf_conntrack_" + name)
        if number is not None:
            found[metric] = number
    return found


# ---------------------------------------------------------------------- processes


def _dstate(ctx: "Context") -> "Values":
    """Counted in every walk and repeated between. {} where /proc cannot be listed."""
    tasks = scan(ctx)
    memory = ctx.memory(NAME)
    before = memory.get("dstate")
    if isinstance(before, tuple) and before[0] is tasks:
        return dict(before[1])
    waiting = [task for task in tasks if task.state == "D"]
    nvidia = sum(1 for task in waiting[:WCHAN_LIMIT] if in_driver(ctx, task.pid))
    found: "Values" = {"dstate_count": len(waiting), "dstate_nvidia": nvidia} if tasks else {}
    memory["dstate"] = (tasks, found)
    return dict(found)


def uptime_s(ctx: "Context") -> "float":
    """Seconds since boot as the root says: how long something lasts on that node."""
    try:
        return float((ctx.read("proc/uptime") or "").split()[0])
    except (IndexError, ValueError):
        return ctx.mono()


def scan(ctx: "Context") -> "list[Task]":
    """All processes, walked every SCAN_EVERY_S and shared by the probes that ask; [] without."""
    with _walking:
        memory = ctx.memory(NAME)
        before, now = memory.get("scan"), (uptime_s(ctx), ctx.mono())
        if isinstance(before, tuple):
            at, tasks = before
            if all(later - earlier < SCAN_EVERY_S for later, earlier in zip(now, at)):
                kept: "list[Task]" = tasks
                return kept
        names = [name for name in ctx.listdir("proc") if name.isdigit()]
        read = (read_task(ctx, name) for name in names[:SCAN_LIMIT])
        found = [task for task in read if task is not None]
        memory["scan"] = (now, found)
        return found


def read_task(ctx: "Context", pid: "str") -> "Task | None":
    """A process, or None when it has gone. Its name may hold spaces and parentheses."""
    stat = ctx.read("proc", pid, "stat")
    if stat is None:
        return None
    head, _, rest = stat.rpartition(")")
    fields = rest.split()
    if not fields:
        return None
    flags = fields[6] if len(fields) > 6 and fields[6].isdigit() else "0"
    ppid = fields[1] if len(fields) > 1 else ""
    return Task(
        pid, head.partition("(")[2][:64], fields[0], ppid,
        bool(int(flags) & KERNEL_THREAD), fields[19] if len(fields) > 19 else "",
    )  # fmt: skip


def state(ctx: "Context", pid: "str") -> "str | None":
    """The state letter of a process, or None when it has gone."""
    task = read_task(ctx, pid)
    return None if task is None else task.state[:1]


def in_driver(ctx: "Context", pid: "str") -> "bool":
    """Whether a sleeper waits in the driver: by kernel stack (root only) or wait channel.

    Its name counts where neither tells: nvidia-smi may wait for a file server too.
    """
    stack = (ctx.read("proc", pid, "stack") or "").strip()
    if stack:
        return _names_driver(stack)
    wchan = (ctx.read("proc", pid, "wchan") or "").strip()
    if wchan.strip("0") and not wchan.startswith(LOCKS):
        return _names_driver(wchan)
    return _names_driver(ctx.read("proc", pid, "comm") or "")


def _names_driver(text: "str") -> "bool":
    text = text.lower()
    return any(word in text for word in ("nvidia", "os_acquire", "rm_ioctl"))
