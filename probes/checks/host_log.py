"""Kernel lines about the host: machine checks, hangs, memory, file systems.

None of them is a fault of a GPU, though jobs die or hang by them. A line older than xid.old_h is
history. What a file server says is judged by its last word: it may have come back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import structs

from probes.checks import kernel_events
from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Severity
from probes.kernel_lines import KernelEvent

UNCORRECTED = Rule(
    id="host.hardware_error",
    title="The host's hardware reports an error that it could not correct",
    severity=Severity.CRITICAL,
    reads="machine check, EDAC UE and firmware error lines",
    cause="host memory, CPU or a PCIe device",
    action=Action.DRAIN,
    next_step="drain; read the BMC's event log and EDAC for the DIMM or device; replace it",
    source="Linux MCE and EDAC [lx]: bank status bit 61, UE, or severity recoverable or fatal",
    others="gpud, EKS: kernel log lines",
    example="EDAC MC1: 1 UE memory read error on CPU_SrcID#1_MC#0_Chan#0_DIMM#0",
    hard=True,
)
CORRECTED = Rule(
    id="host.corrected_errors",
    title="The host's hardware corrects errors",
    severity=Severity.WARN,
    reads="machine check, EDAC CE and firmware error lines of a day; few of them are info",
    cause="a DIMM or a link wears out; nothing is lost so far",
    action=Action.WATCH,
    next_step="read EDAC and the BMC's event log for the DIMM; exchange it at the next service",
    source="Linux MCE and EDAC [lx]; the limit is our estimate, not measured",
    others="gpud, EKS: kernel log lines",
    example="EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0",
    limits=("host.corrected_errors",),
)
LOCKUP = Rule(
    id="host.lockup",
    title="A CPU was stuck in the kernel",
    severity=Severity.WARN,
    reads="soft lockup lines",
    cause="a driver that loops or waits, an overloaded host, or firmware that stops all CPUs",
    action=Action.WATCH,
    next_step="look at what the named program does; drain and save the kernel log if it repeats",
    source="Linux soft lockup detector [lx]",
    others="gpud, PRI, EKS",
    example="watchdog: BUG: soft lockup - CPU#12 stuck for 22s! [python3:3301]",
)
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
    reads="'Out of memory: Killed process' lines, of the host and of cgroups",
    cause="the job wanted more memory than the host or its own limit has",
    action=Action.NONE,
    next_step="tell the job's owner; not a fault of the node",
    source="Linux out-of-memory killer [lx]",
    others="gpud, EKS",
    example="Out of memory: Killed process 4711 (python3) total-vm:812345678kB",
)
NFS = Rule(
    id="storage.nfs",
    title="An NFS server does not answer",
    severity=Severity.CRITICAL,
    reads="'nfs: server' lines, the last word of each server",
    cause="storage server or its network; not the node unless other nodes are fine",
    action=Action.WATCH,
    next_step="compare other nodes: if all show it, it is the server; hold new jobs",
    source="Linux NFS client [lx]; field case: aws/aws-parallelcluster issue 1150",
    others="gpud",
    example="nfs: server 192.0.2.40 not responding, still trying",
)
LUSTRE = Rule(
    id="storage.lustre",
    title="A Lustre target is out of reach",
    severity=Severity.CRITICAL,
    reads="Lustre and LNet lines, the last word about each target",
    cause="storage server or its network; not the node unless other nodes are fine",
    action=Action.WATCH,
    next_step="compare other nodes: if all show it, it is the server; hold new jobs",
    source="our estimate, not measured; the line's form is that of a field case",
    others="-",
    example="Lustre: scratch-OST0003-osc-ffff: Connection to scratch-OST0003 (at 192.0.2.51@tcp) "
    "was lost",
)
NVME = Rule(
    id="storage.nvme",
    title="A local NVMe disk does not answer as it should",
    severity=Severity.WARN,
    reads="nvme time-out, reset and I/O error lines",
    cause="disk, its firmware or its PCIe slot",
    action=Action.WATCH,
    next_step="nvme smart-log on the node; exchange the disk if it repeats",
    source="kernel log patterns of gpud [gpud]",
    others="gpud",
    example="nvme nvme0: I/O 23 QID 4 timeout, aborting",
)
FILE_SYSTEM = Rule(
    id="storage.filesystem",
    title="A local file system is damaged or read-only",
    severity=Severity.WARN,
    reads="EXT4-fs error, XFS shutdown and 'Remounting filesystem read-only' lines",
    cause="disk errors or a broken file system; jobs fail where they write",
    action=Action.WATCH,
    next_step="drain; check the disk, then the file system",
    source="kernel log patterns of gpud [gpud]",
    others="gpud, EKS",
    example="EXT4-fs (nvme0n1p2): Remounting filesystem read-only",
)
RULES = (UNCORRECTED, CORRECTED, LOCKUP, HUNG, OOM, NFS, LUSTRE, NVME, FILE_SYSTEM)

SAME_ERROR_S = 1.0
"""Lines of one machine check follow each other within this time (our estimate)."""


def check(look: Look) -> Iterator[Finding]:
    """Each kind by itself."""
    if not look.facts.kernel:
        return
    kinds: dict[str, list[KernelEvent]] = {}
    for event in kernel_events.read(look):
        kinds.setdefault(event.kind, []).append(event)
    yield from _machine(look, kinds.get("mce", []))
    yield from _lockups(look, kinds.get("lockup", []))
    yield from _hung(look, kinds.get("hung_task", []))
    yield from _killed(look, kinds.get("oom", []))
    for server, same in _by("server", kinds.get("nfs", [])):
        yield from _server(look, NFS, f"NFS server {server}", same)
    for target, same in _by("target", kinds.get("lustre", [])):
        yield from _server(look, LUSTRE, f"Lustre target {target}", same)
    for rule, kind in ((NVME, "nvme"), (FILE_SYSTEM, "fs")):
        for disk, same in _by("dev", kinds.get(kind, [])):
            yield _of(look, rule, f"{disk}: {rule.title.lower()}{_times(same)}", same, disk)


def _of(look: Look, rule: Rule, say: str, same: list[KernelEvent], device: str = "") -> Finding:
    finding = rule.finding(
        look, say + kernel_events.ago(look, same[-1]), kernel_events.texts(same),
        device=device, label=device,
    )  # fmt: skip
    return kernel_events.aged(look, structs.replace(finding, count=len(same)), same[-1])


def _by(name: str, events: Iterable[KernelEvent]) -> list[tuple[str, list[KernelEvent]]]:
    """Events by one of their facts."""
    found: dict[str, list[KernelEvent]] = {}
    for event in events:
        found.setdefault(str(event.facts.get(name, "?")), []).append(event)
    return sorted(found.items())


def _times(same: list[KernelEvent]) -> str:
    return f", {len(same)} lines" if len(same) > 1 else ""


def _machine(look: Look, events: list[KernelEvent]) -> Iterator[Finding]:
    """Lines close together are one error; without a class it counts as corrected."""
    errors: list[list[KernelEvent]] = []
    for event in events:
        last = errors[-1][-1].mono if errors else None
        near = last is not None and event.mono is not None and event.mono - last <= SAME_ERROR_S
        if near:
            errors[-1].append(event)
        else:
            errors.append([event])
    bad = [e for e in errors if any(line.facts.get("corrected") is False for line in e)]
    good = [e for e in errors if e not in bad]
    if bad:
        lines = [line for error in bad for line in error]
        yield _of(look, UNCORRECTED, "uncorrected hardware error of the host", lines)
    recent = [e for e in good if not kernel_events.old(look, e[-1])] or good[-1:]
    if recent:
        yield _few_or_many(look, recent)


def _few_or_many(look: Look, errors: list[list[KernelEvent]]) -> Finding:
    lines = [line for error in errors for line in error]
    stated = [int(line.facts["number"]) for line in lines if "number" in line.facts]
    number = sum(stated) if stated else len(errors)
    limit = look.rules.limit("host.corrected_errors")
    finding = _of(look, CORRECTED, f"{number} corrected hardware errors of the host", lines)
    grave = number > limit.value and finding.severity is Severity.WARN
    return structs.replace(
        finding, count=number, value=number, limit=limit.value, unit=limit.unit,
        severity=Severity.WARN if grave else Severity.INFO,
    )  # fmt: skip


def _lockups(look: Look, same: list[KernelEvent]) -> Iterator[Finding]:
    if not same:
        return
    worst = max(same, key=lambda event: int(event.facts.get("seconds", 0)))
    comm = f" in {worst.facts['comm']}" if "comm" in worst.facts else ""
    say = f"CPU {worst.facts.get('cpu')} was stuck for {worst.facts.get('seconds')} s{comm}"
    yield _of(look, LOCKUP, say + _times(same), same)


def _hung(look: Look, same: list[KernelEvent]) -> Iterator[Finding]:
    """One finding, however many processes wait for the same disk."""
    if not same:
        return
    worst = max(same, key=lambda event: int(event.facts.get("seconds", 0)))
    others = {event.pid for event in same} - {worst.pid}
    say = f"{worst.facts.get('comm')} (pid {worst.pid}) hung for {worst.facts.get('seconds')} s"
    more = f" and {len(others)} other processes" if others else ""
    yield _of(look, HUNG, f"{say}{more}", same)


def _killed(look: Look, same: list[KernelEvent]) -> Iterator[Finding]:
    if same:
        last = same[-1]
        say = f"killed for memory: {last.facts.get('comm')} (pid {last.pid})"
        more = f" and {len(same) - 1} before it" if len(same) > 1 else ""
        yield _of(look, OOM, say + more, same)


def _server(look: Look, rule: Rule, server: str, same: list[KernelEvent]) -> Iterator[Finding]:
    """By the last word that says whether it is there; errors alone warn."""
    told = [event for event in same if event.facts.get("what") != "note"]
    words = [str(event.facts.get("what")) for event in told if event.facts.get("what") != "error"]
    if not told:
        return
    if not words:
        finding = _of(look, rule, f"{server}: errors{_times(told)}", told, server)
        severity = Severity.WARN
    elif words[-1] in ("OK", "restored"):
        if not {"not responding", "lost"} & set(words):
            return
        finding = _of(look, rule, f"{server} was out of reach and is back", told, server)
        severity = Severity.INFO
    else:
        yield _of(look, rule, f"{server} does not answer", told, server)
        return
    yield structs.replace(finding, severity=min(severity, finding.severity, key=lambda s: s.rank))
