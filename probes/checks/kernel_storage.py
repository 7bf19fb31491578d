"""Kernel lines about file servers, disks and file systems.

What a file server says is judged by its last word: it may have come back, which is told with how
long it was away. One that comes and goes is not well.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from probes.checks import kernel_events
from probes.checks.kernel_events import by_fact
from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Severity
from probes.kernel_lines import KernelEvent

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
    limits=("storage.outages",),
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
    limits=("storage.outages",),
)
NVME = Rule(
    id="storage.nvme",
    title="A local NVMe disk does not answer as it should",
    severity=Severity.WARN,
    reads="nvme time-out, reset and I/O error lines; critical once the kernel gave the disk up",
    cause="disk, its firmware or its PCIe slot",
    action=Action.WATCH,
    next_step="nvme smart-log on the node; exchange the disk if it repeats",
    source="kernel log patterns of gpud [gpud]",
    others="gpud",
    example="nvme nvme0: I/O 23 QID 4 timeout, aborting",
)
DISK = Rule(
    id="storage.disk",
    title="A local disk reports errors",
    severity=Severity.WARN,
    reads="'I/O error, dev', 'critical medium error' and 'Disk failure' lines",
    cause="the disk, its cable or its controller",
    action=Action.WATCH,
    next_step="smartctl on the node; exchange the disk if it repeats or left its array",
    source="Linux block layer and md [lx]; kernel log patterns of gpud [gpud]",
    others="gpud, EKS",
    example="blk_update_request: I/O error, dev sda, sector 2048 op 0x0:(READ)",
)
FILE_SYSTEM = Rule(
    id="storage.filesystem",
    title="A local file system is damaged or read-only",
    severity=Severity.WARN,
    reads="EXT4-fs error, XFS shutdown and 'Remounting filesystem read-only' lines; critical once "
    "nothing can be written",
    cause="disk errors or a broken file system; jobs fail where they write",
    action=Action.WATCH,
    next_step="drain; check the disk, then the file system",
    source="kernel log patterns of gpud [gpud]",
    others="gpud, EKS",
    example="EXT4-fs (nvme0n1p2): Remounting filesystem read-only",
)
RULES = (NFS, LUSTRE, NVME, DISK, FILE_SYSTEM)

AWAY = frozenset({"not responding", "lost"})
BACK = frozenset({"OK", "restored"})
HURT = frozenset({"error", "evicted", "locks lost"})
"""Words that cost a job something whether or not the server is there."""


def check(look: Look) -> Iterator[Finding]:
    """Each server and disk by itself."""
    if not look.facts.kernel:
        return
    kinds = kernel_events.by_kind(look)
    for server, same in by_fact("server", kinds.get("nfs", [])):
        yield from _server(look, NFS, f"NFS server {server}", same)
    for target, same in by_fact("target", kinds.get("lustre", [])):
        yield from _server(look, LUSTRE, f"Lustre target {target}", same)
    for rule, kind in ((NVME, "nvme"), (DISK, "disk"), (FILE_SYSTEM, "fs")):
        for disk, same in by_fact("dev", kinds.get(kind, [])):
            yield _disk(look, rule, disk, same)


def _disk(look: Look, rule: Rule, disk: str, same: list[KernelEvent]) -> Finding:
    """Worse where the kernel gave the disk up or nothing can be written any more."""
    dead = any(event.facts.get("what") == "dead" for event in same)
    closed = any(event.facts.get("read_only") is True for event in same)
    say = rule.title[0].lower() + rule.title[1:]
    if dead:
        say = "the kernel gave this NVMe disk up"
    elif closed:
        say = "nothing can be written to this file system any more"
    grave = (dead or closed) and not disk.startswith("loop")  # the image of some container
    finding = rule.finding(
        look, f"{disk}: {say}{kernel_events.times(same)}{kernel_events.ago(look, same[-1])}",
        kernel_events.texts(same), device=disk, label=disk,
        severity=Severity.CRITICAL if grave else None, action=Action.DRAIN if grave else None,
    )  # fmt: skip
    return kernel_events.aged(look, structs.replace(finding, count=len(same)), same[-1])


def outages(events: list[KernelEvent]) -> list[tuple[KernelEvent, KernelEvent | None]]:
    """(first word of silence, word of return or None while it lasts) of one server, by time."""
    found: list[tuple[KernelEvent, KernelEvent | None]] = []
    for event in events:
        what = event.facts.get("what")
        open_now = bool(found) and found[-1][1] is None
        if what in AWAY and not (open_now and found[-1][0].boot == event.boot):
            found.append((event, None))
        elif what in BACK and open_now:
            found[-1] = (found[-1][0], event)
    return found


def _server(look: Look, rule: Rule, server: str, same: list[KernelEvent]) -> Iterator[Finding]:
    """By the last word that says whether it is there; errors alone warn."""
    told = [event for event in same if event.facts.get("what") != "note"]
    away = outages(told)
    if away and away[-1][1] is None:
        yield _of(look, rule, f"{server} does not answer{_since(look, away)}", told, server)
    elif away:
        yield _returned(look, rule, server, away, told)
    elif hurt := [event for event in told if event.facts.get("what") in HURT]:
        word = "evicted this node" if hurt[-1].facts["what"] == "evicted" else "errors"
        finding = _of(
            look, rule, f"{server}: {word}{kernel_events.times(hurt)}", hurt, server
        )  # fmt: skip
        yield _at_most(finding, Severity.WARN)


def _since(look: Look, away: list[tuple[KernelEvent, KernelEvent | None]]) -> str:
    before = len(away) - 1
    return f"; it was away {before} times before" if before else ""


def _returned(
    look: Look, rule: Rule, server: str, away: list[tuple[KernelEvent, KernelEvent | None]],
    told: list[KernelEvent],
) -> Finding:  # fmt: skip
    """Information; a warning where it happened often, or cost a job its files."""
    first, back = away[-1]
    gone_s = 0.0 if back is None else back.at - first.at
    hurt = [event for event in told if event.facts.get("what") in HURT]
    gave_up = any(event.facts.get("gave_up") is True for event in told)
    often = len(away) >= look.rules.limit("storage.outages").value
    lasted = f" for {kernel_events.lasting(gone_s)}" if gone_s > 0 else ""
    times = f", {len(away)} times in this log" if len(away) > 1 else ""
    cost = "; calls failed meanwhile" if hurt or gave_up else ""
    say = f"{server} was out of reach{lasted} and is back{times}{cost}"
    finding = _of(look, rule, say, told, server)
    return _at_most(finding, Severity.WARN if often or hurt else Severity.INFO)


def _at_most(finding: Finding, severity: Severity) -> Finding:
    lower = min(severity, finding.severity, key=lambda s: s.rank)
    return structs.replace(finding, severity=lower)


def _of(look: Look, rule: Rule, say: str, same: list[KernelEvent], device: str) -> Finding:
    finding = rule.finding(
        look, say + kernel_events.ago(look, same[-1]), kernel_events.texts(same),
        device=device, label=device,
    )  # fmt: skip
    return kernel_events.aged(look, structs.replace(finding, count=len(same)), same[-1])
