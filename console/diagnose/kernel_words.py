"""What a kernel log's report says in words: the sentence, whether to drain, what stays unknown."""

from __future__ import annotations

from collections import Counter
from typing import Any

from console.diagnose.kernel_merge import Timeline
from console.diagnose.kernel_stream import Log
from console.diagnose.report import AFTER_JOBS, NO, NOW, drain_advice
from probes.checks.kernel_events import lasting
from probes.checks.kernel_storage import AWAY
from probes.event import Finding, Severity
from probes.kernel_lines import KernelEvent
from probes.rules import load_rules

AFTER = frozenset({
    "pcie.aer_corrected", "pcie.slot_down", "kernel_log.mlx5", "kernel_log.efa", "kernel_log.nic",
    "host.corrected_errors", "host.kernel_bug", "storage.nvme", "storage.disk",
    "storage.filesystem", "sxid", "nvlink.rx_detect",
})  # fmt: skip
"""Rules whose warnings want hands on the hardware once the jobs are over."""
DETAILS = frozenset({"uuid", "aer_notice", "aer_bit", "aer_recovery", "suppressed"})
"""Kinds that only tell more about another event."""
SAID = 3
"""Findings that the sentence names."""


def counted(events: list[KernelEvent]) -> int:
    """Events, without the lines that only tell more about one."""
    return sum(event.kind not in DETAILS for event in events)


def xid_counts(events: list[KernelEvent]) -> dict[str, int]:
    """How often each Xid occurs on all hosts."""
    counts = Counter(e.code for e in events if e.kind == "xid" and e.code is not None)
    return {str(code): number for code, number in sorted(counts.items())}


def programs(events: list[KernelEvent], timelines: dict[str, Timeline]) -> dict[str, Any]:
    """The program of all application errors, where it is one on several hosts."""
    xids = load_rules().xids
    per_host = [
        {e.process for e in line.events if e.kind == "xid" and _app(e, xids)}
        for line in timelines.values()
    ]  # fmt: skip
    everywhere = set.union(*per_host) if per_host else set()
    if len(timelines) < 2 or len(everywhere) != 1 or None in everywhere:
        return {}
    (process,) = everywhere
    return {"process": process, "same_process_everywhere": all(process in h for h in per_host)}


def _app(event: KernelEvent, xids: dict[int, Any]) -> bool:
    meaning = xids.get(event.code or 0)
    return meaning is not None and meaning.kind == "app"


def drain(findings: list[Finding]) -> str:
    """Now for lost hardware, after running jobs for what wears out or wants a reset."""
    advice = drain_advice(findings)
    if advice == NO and any(_hands_on(finding) for finding in findings):
        return AFTER_JOBS
    if advice == NO and len({f.node for f in findings if _served(f)}) == 1:
        return f"{NO}, if other nodes show it too; {AFTER_JOBS}, if only this node does"
    if advice == NOW:
        nodes = list(dict.fromkeys(
            f.node for f in findings if f.node and drain_advice([f]) == NOW
        ))  # fmt: skip
        others = {f.node for f in findings if f.node} - set(nodes)
        if nodes and others:
            return f"{NOW}: {', '.join(nodes[:8])}"
        return _by_gpu(findings)
    return advice


def _by_gpu(findings: list[Finding]) -> str:
    """Now, and for which GPU where others of the node can wait."""
    now = {f.label: None for f in findings if drain_advice([f]) == NOW and f.device}
    after = {
        f.label: None for f in findings
        if f.label and f.label not in now and f.severity is Severity.WARN and _hands_on(f)
    }  # fmt: skip
    everything = all(f.device for f in findings if drain_advice([f]) == NOW)
    if not (now and after and everything):
        return NOW
    return f"{NOW} for {', '.join([*now][:4])}; {', '.join([*after][:4])}: {AFTER_JOBS}"


def _served(finding: Finding) -> bool:
    """A file server that does not answer: the node is to blame only where it is alone."""
    grave = finding.severity is Severity.CRITICAL
    return grave and finding.rule in ("storage.nfs", "storage.lustre")


def _hands_on(finding: Finding) -> bool:
    if finding.severity.rank < Severity.WARN.rank:
        return False
    if finding.rule in AFTER:
        return True
    if finding.rule.startswith("xid."):
        meaning = load_rules().xids.get(int(finding.rule.partition(".")[2]))
        return meaning is not None and meaning.kind in ("hw", "fabric", "app")
    return False


def say(log: Log, timelines: dict[str, Timeline], findings: list[Finding]) -> str:
    """The worst findings, what explains the rest, and what the clocks are worth."""
    if log.denied and not log.lines:
        return "the kernel log was not read: run dmesg as root, or set kernel.dmesg_restrict=0"
    grave = [f for f in findings if f.severity.rank >= Severity.WARN.rank]
    parts = _told(grave or findings, several=len(log.hosts) > 1)
    if grave:
        parts += _besides(findings, several=len(log.hosts) > 1)
    events = [event for line in timelines.values() for event in line.events]
    travels = programs(events, timelines)
    if travels.get("same_process_everywhere") and len(log.hosts) > 1 and not grave:
        codes = "/".join(xid_counts(events))
        parts = [
            f"Xid {codes} from the same program {travels['process']!r} on {len(log.hosts)} nodes: "
            "an application error that travels with the job; no node is to blame"
        ]  # fmt: skip
    parts += _asides(timelines, events)
    if not parts:
        where = f" of {len(log.hosts)} hosts" if len(log.hosts) > 1 else ""
        number = counted(events)
        plural = "" if number == 1 else "s"
        return f"no fault in this kernel log{where}: {number} event{plural}, none that matters"
    return "; ".join(parts)


def _told(findings: list[Finding], *, several: bool) -> list[str]:
    ordered = sorted(findings, key=lambda f: -f.severity.rank)
    shown = [f"{f.node}: {f.say}" if several and f.node else f.say for f in ordered[:SAID]]
    if len(ordered) > SAID:
        shown.append(f"and {len(ordered) - SAID} more")
    return shown


BESIDES = ("kernel_log.mlx5", "kernel_log.nic", "storage.nfs", "storage.lustre",
           "pcie.aer_corrected", "xid.13", "xid.31", "xid.43", "xid.45", "xid.63")  # fmt: skip
"""Information that belongs into the sentence beside a fault: what is not to be blamed, or over."""


def _besides(findings: list[Finding], *, several: bool) -> list[str]:
    infos = [f for f in findings if f.severity is Severity.INFO and f.rule in BESIDES]
    return [f"{f.node}: {f.say} (info)" if several and f.node else f"{f.say} (info)"
            for f in infos[:SAID]]  # fmt: skip


def _asides(timelines: dict[str, Timeline], events: list[KernelEvent]) -> list[str]:
    """Noise, consequences and clocks."""
    parts = []
    if any(e.facts.get("what") == "access_reg" for e in events):
        parts.append("ACCESS_REG lines are caused by readers of counters, not by a fault")
    if any(e.kind == "sxid" for e in events) and any(e.code == 79 for e in events):
        parts.append("NVSwitch lines of the same time are consequences")
    for server, hosts in sorted(_shared_outages(timelines).items()):
        parts.append(f"{server} was away from {hosts} hosts: look at the server, not at the nodes")
    for line in timelines.values():
        if line.skew_s is not None:
            way = "behind" if line.skew_s > 0 else "ahead"
            parts.append(f"times of dmesg -T on this host are {lasting(abs(line.skew_s))} {way}")
    return parts


def _shared_outages(timelines: dict[str, Timeline]) -> dict[str, int]:
    """File servers that several hosts lost, and how many did."""
    lost: Counter[str] = Counter()
    for line in timelines.values():
        servers = {
            str(e.facts.get("server", e.facts.get("target")))
            for e in line.events
            if e.kind in ("nfs", "lustre") and e.facts.get("what") in AWAY
        }
        lost.update(servers)
    return {server: hosts for server, hosts in lost.items() if hosts > 1}


def unknown(log: Log, timelines: dict[str, Timeline], findings: list[Finding]) -> list[str]:
    """What the log cannot tell, how its stamps were read, and what would tell."""
    notes = []
    if any(f.rule.startswith(("xid", "gpu.", "driver.init")) for f in findings):
        notes.append("whether the GPU answers now: nvidia-smi -q, or a pass of gpuconsole")
    if log.now is None and log.lines:
        notes.append("how old the lines are: the input holds no `date`")
    if log.yearless:
        notes.append("stamps have no year: the latest one that is not in the future was taken")
    if log.unzoned:
        notes.append("stamps have no time zone: read as UTC")
    if log.stepped_back:
        notes.append("stamps start again from a small number: read as a reboot in between")
    if any(e.boot < 0 for line in timelines.values() for e in line.events):
        notes.append("events before the last boot are history; whether they returned: the newest "
                     "boot's log")  # fmt: skip
    if any(e.kind == "suppressed" for line in timelines.values() for e in line.events):
        notes.append("the kernel left lines out (callbacks suppressed): counts are lower bounds")
    left_out = sum(host.left_out for host in log.hosts.values()) + log.hosts_left_out
    if left_out:
        notes.append(f"{left_out} events of further kinds, devices or hosts were only counted")
    return notes
