"""Kernel lines about processes: hung inside the kernel, killed for memory, crashed in a library.

Mostly the job's own business; a file server that does not answer and a killed daemon are not.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from probes.checks import kernel_events
from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Severity
from probes.kernel_lines import KernelEvent

HUNG = Rule(
    id="host.hung_task",
    title="A process hung inside the kernel",
    severity=Severity.WARN,
    reads="'blocked for more than' lines",
    cause="most often a file server that does not answer; else a disk or a driver",
    action=Action.WATCH,
    next_step="look for NFS, Lustre or disk lines of the same time; ps -eo pid,stat,wchan,comm",
    source="Linux hung task detector [lx]",
    others="gpud, PRI, EKS",
    example="INFO: task python3:3301 blocked for more than 120 seconds.",
)
OOM = Rule(
    id="host.oom",
    title="The kernel killed a process for memory",
    severity=Severity.INFO,
    reads="'Out of memory: Killed process' and 'oom-kill:' lines, of the host and of cgroups; a "
    "warning where the victim serves the node",
    cause="the job wanted more memory than the host or its own limit has",
    action=Action.NONE,
    next_step="tell the job's owner; not a fault of the node",
    source="Linux out-of-memory killer [lx]",
    others="gpud, EKS",
    example="Out of memory: Killed process 4711 (python3) total-vm:812345678kB",
)
SEGFAULT = Rule(
    id="host.library_crash",
    title="A program crashed inside a GPU or network library",
    severity=Severity.INFO,
    reads="segfault lines in libnccl, libcuda, libnvidia, libibverbs and libmlx5",
    cause="most often the program; else a library that does not fit the driver",
    action=Action.NONE,
    next_step="tell the job's owner; compare the library's version with the driver's",
    source="kernel log patterns of gpud [gpud]",
    others="gpud",
    example="python3[4711]: segfault at 0 ip 00007f00 sp 00007ffd error 4 in "
    "libnccl.so.2.21.5[7f00+1000]",
)
RULES = (HUNG, OOM, SEGFAULT)

DAEMONS = frozenset({
    "slurmd", "slurmstepd", "munged", "kubelet", "containerd", "dockerd", "crio", "sshd",
    "nvidia-persiste", "nv-fabricmanage", "nv-hostengine", "dcgm-exporter", "systemd",
    "systemd-journal", "chronyd", "sssd",
})  # fmt: skip
"""What a node does not work without; names as the kernel cuts them, at 15 characters."""


def check(look: Look) -> Iterator[Finding]:
    """Each kind by itself."""
    if not look.facts.kernel:
        return
    kinds = kernel_events.by_kind(look)
    yield from _hung(look, kinds.get("hung_task", []))
    yield from _killed(look, kinds.get("oom", []))
    yield from _crashed(look, kinds.get("segfault", []))


def _of(look: Look, rule: Rule, say: str, same: list[KernelEvent]) -> Finding:
    finding = rule.finding(look, say + kernel_events.ago(look, same[-1]), kernel_events.texts(same))
    return kernel_events.aged(look, structs.replace(finding, count=len(same)), same[-1])


GPU_TOOLS = frozenset({
    "nvidia-smi", "nvidia-persiste", "nv-hostengine", "dcgmi", "dcgm-exporter", "nv-fabricmanage",
    "nvidia-bug-repo", "nvidia-device-p", "nvidia_gpu_expo",
})  # fmt: skip
"""Programs that wait for the driver only; names as the kernel cuts them, at 15 characters."""


def _hung(look: Look, events: list[KernelEvent]) -> Iterator[Finding]:
    """One finding, however many processes wait for the same disk; tools of the GPU by themselves.

    A tool that only asks the driver and hangs for minutes says that the driver does.
    """
    for of_gpu in (True, False):
        same = [e for e in events if (e.facts.get("comm") in GPU_TOOLS) is of_gpu]
        if same:
            yield _hung_task(look, same, of_gpu=of_gpu)


def _hung_task(look: Look, same: list[KernelEvent], *, of_gpu: bool) -> Finding:
    worst = max(same, key=lambda event: int(event.facts.get("seconds", 0)))
    others = {event.pid for event in same} - {worst.pid}
    say = f"{worst.facts.get('comm')} (pid {worst.pid}) hung for {worst.facts.get('seconds')} s"
    more = f" and {len(others)} other processes" if others else ""
    if not of_gpu:
        return _of(look, HUNG, f"{say}{more}", same)
    finding = _of(look, HUNG, f"{say}{more}: the GPU driver does not answer", same)
    old = kernel_events.old(look, same[-1])
    return structs.replace(
        finding,
        severity=finding.severity if old else Severity.CRITICAL,
        action=Action.DRAIN,
        cause="the NVIDIA driver or the GPU's own firmware (GSP) hangs",
        next_step="start no more nvidia-smi; look for Xid 119, 120 or 79; drain, save the kernel "
        "log, reboot: such processes cannot be killed",
    )


def victims(same: list[KernelEvent]) -> list[dict[str, object]]:
    """Each killed process once, with what its two lines say together: comm, cgroup, memory."""
    found: dict[tuple[int, int | None], dict[str, object]] = {}
    for event in same:
        victim = found.setdefault((event.boot, event.pid), {"pid": event.pid})
        victim.update(event.facts)
    return list(found.values())


def _killed(look: Look, same: list[KernelEvent]) -> Iterator[Finding]:
    if not same:
        return
    killed = victims(same)
    last = killed[-1]
    group = last.get("cgroup")
    limited = group is not None or last.get("cgroup_limit") is True
    where = f" at the limit of its cgroup{f' {group}' if group else ''}" if limited else ""
    rss = last.get("rss_kb")
    held = f", it held {rss / 1048576:.1f} GiB" if isinstance(rss, int) else ""
    say = f"killed for memory{where}: {last.get('comm')} (pid {last.get('pid')}){held}"
    more = f" and {len(killed) - 1} before it" if len(killed) > 1 else ""
    finding = structs.replace(_of(look, OOM, say + more, same), count=len(killed))
    served = [str(v["comm"]) for v in killed if str(v.get("comm")) in DAEMONS]
    if served and not kernel_events.old(look, same[-1]):
        finding = structs.replace(
            finding, severity=Severity.WARN, action=Action.RESTART_SERVICE,
            next_step=f"see whether {', '.join(dict.fromkeys(served))} runs again; give jobs a "
            "memory limit below the host's",
        )  # fmt: skip
    yield finding


def _crashed(look: Look, same: list[KernelEvent]) -> Iterator[Finding]:
    if same:
        last = same[-1]
        say = f"{last.facts.get('comm')} (pid {last.pid}) crashed in {last.facts.get('library')}"
        yield _of(look, SEGFAULT, f"{say}{kernel_events.times(same)}", same)
