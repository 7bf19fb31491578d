"""Kernel logs of any reader: dmesg, journalctl, syslog files, /dev/kmsg, container logs, tickets.

The console's own checks judge; this module only brings the lines onto one clock, host by host.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import structs

from console.diagnose import kernel_facts, kernel_words
from console.diagnose.kernel_merge import Timeline, merged
from console.diagnose.kernel_records import WANTED, Frame, records
from console.diagnose.kernel_stream import Host, Log
from console.diagnose.offline import Offline
from console.diagnose.report import Report, found
from console.diagnose.text import Line, Text
from probes.checks import xid
from probes.event import Finding, Row, Sample, Severity
from probes.kernel_lines import event_of
from probes.kernel_prefix import split
from probes.kernel_ring import KernelRing

KIND = "kernel-log"
TITLE = "dmesg, journalctl -k (text, JSON, export), kern.log, /dev/kmsg"
STREAMS = True

SNIFFED = 400
"""Lines of a beginning that are looked at."""
ROWS = 20_000
"""More than a host ever keeps: the ring of a live node would forget what a flood pushes out."""
_STAMPED = ("dmesg", "ctime", "dmesg-iso", "kmsg", "journal")


def sniff(head: str) -> int:
    """By how many lines have the kernel's stamps or tag, and how many hold an event."""
    lines = [line for line in head.split("\n") if line.strip()][:SNIFFED]
    if not lines:
        return 0
    stamped = events = 0
    for line in lines:
        stamp = split(line[:1000], 2000)
        of_kernel = stamp.program == "kernel" or (stamp.program == "" and stamp.form in _STAMPED)
        stamped += of_kernel
        if WANTED.search(line):
            event = event_of(stamp)
            events += event is not None and (of_kernel or event.kind in _TELLING)
    if '"_TRANSPORT"' in head or "_TRANSPORT=kernel" in head or '"dmesg": [' in head:
        numbered = (Line(n, line) for n, line in enumerate(head.split("\n"), 1))
        inside = any(not isinstance(r, Frame) and not r.dates_only for r in records(numbered, 2000))
        return 90 if inside else 55
    if "dmesg: read kernel buffer failed" in head:
        return 60 if len(lines) < 5 else 25
    if stamped:
        return min(98, 35 + int(55 * stamped / len(lines)) + min(30, 10 * events))
    return min(85, 20 + int(50 * events / len(lines)) + 15 * min(events, 2)) if events else 0


_TELLING = frozenset({
    "xid", "sxid", "off_bus", "rminit", "mismatch", "aer", "aer_notice", "mlx5", "mce", "lockup",
    "hard_lockup", "hung_task", "oom", "panic", "lustre", "nfs", "iommu", "rcu_stall",
    "fabric_manager",
})  # fmt: skip
"""Events whose words no other program prints, so that they count without a stamp."""


def read(text: Text) -> Report:
    """Facts and findings of every host that the log names."""
    log = Log(text.host, text.command)
    others: set[str] = set()
    log.read(_watched(text, others))
    _claim_unnamed(log)
    timelines = {key: merged(host, log.now, log.uptime) for key, host in log.hosts.items()}
    report = Report(kind=KIND, facts=_facts(log, timelines))
    judged = {
        key: _judged(host, timelines[key], log.now) for key, host in log.hosts.items()
    }  # fmt: skip
    report.findings = [finding for same in judged.values() for finding in same]
    report.facts["events_after_grouping"] = len(report.findings)
    if log.denied and not log.lines:
        report.findings.append(found(
            xid.UNREADABLE, "the kernel log was not read: no right to", log.denied,
            severity=Severity.UNKNOWN,
        ))  # fmt: skip
        report.measured = False
    if not log.lines and not log.stamped:
        report.measured = False
    report.drain = kernel_words.drain(report.findings)
    report.unknown = kernel_words.unknown(log, timelines, report.findings)
    if not log.lines and not log.stamped:
        report.unknown.append("whether this is a kernel log at all: no line has its stamp or words")
    report.unknown += [
        f"what the lines of {driver} mean: only NVIDIA GPUs are judged" for driver in sorted(others)
    ]
    report.say = kernel_words.say(log, timelines, report.findings)
    return report


OTHER_DRIVERS = ("amdgpu", "habanalabs", "i915", "xe 0000:")
"""Drivers of other accelerators: their faults must not pass for a quiet log."""


def _watched(lines: Iterable[Line], seen: set[str]) -> Iterator[Line]:
    """The same lines; `seen` gains the drivers that complain in them."""
    for line in lines:
        for driver in OTHER_DRIVERS:
            if driver in line.text and _COMPLAINS.search(line.text):
                seen.add(driver.partition(" ")[0])
        yield line


_COMPLAINS = re.compile(r"error|fail|fault|timeout|hang|reset|lost", re.IGNORECASE)


def _claim_unnamed(log: Log) -> None:
    """Lines without a host belong to the one host that others name; with several, to nobody."""
    unnamed = log.hosts.get("")
    named = [host for key, host in log.hosts.items() if key]
    if unnamed is None or len(named) != 1:
        return
    (host,) = named
    for key, ring in unnamed.rings.items():
        mine = host.rings.get(key)
        if mine is None:
            host.rings[key] = ring
            continue
        mine.seen += ring.seen
        mine.first += list(ring.events())
    host.boots.update(unnamed.boots)
    host.newest_wall = max(host.newest_wall or 0.0, unnamed.newest_wall or 0.0) or None
    host.left_out += unnamed.left_out
    del log.hosts[""]


def _judged(host: Host, timeline: Timeline, now: float | None) -> list[Finding]:
    """What the console would say of a node with this log; counts are of the whole input."""
    offline = Offline(host.name)
    offline.facts.kernel = KernelRing(ROWS)
    rows: list[Row] = [_row(event) for event in timeline.events]
    offline.put("kernel_log", rows=rows, source="text", readable=True)
    if now is not None and timeline.boot_at is not None:
        offline.facts.apply(Sample(
            node=host.name, probe="host", at=offline.now, clock=now - timeline.boot_at,
        ))  # fmt: skip
    cut = {
        str(where) for (_, where, *_), ring in host.rings.items()
        if where and ring.seen > len(ring.first) + len(ring.newest)
    }  # fmt: skip
    seen = {where: _seen(host, where) for where in cut}
    return [_counted(finding, seen) for finding in offline.judge()]


def _row(event: Any) -> Row:
    row: Row = {"text": event.text, "line": event.line}
    for name, value in (("at", event.mono), ("wall", event.wall), ("boot", event.boot)):
        if value is not None and value != 0:
            row[name] = value
    return row


def _seen(host: Host, where: str) -> int:
    """Most lines of one kind about a device, kept or not."""
    return max(ring.seen for (_, at, *_), ring in host.rings.items() if str(at) == where)


def _counted(finding: Finding, seen: dict[str, int]) -> Finding:
    """With the number of lines of the input where only some of them were kept."""
    device = finding.device.partition(" ")[0]
    number = max((seen[w] for w in seen if device in (w, f"{w}.0")), default=0)
    if number <= finding.count:
        return finding
    note = f"{number} lines of this kind in the input"
    say = re.sub(rf"\b{finding.count}(?= (?:times|lines)\b)", str(number), finding.say)
    evidence = (*finding.evidence[:7], note)
    return structs.replace(finding, count=number, evidence=evidence, say=say)


def _facts(log: Log, timelines: dict[str, Timeline]) -> dict[str, Any]:
    """Of the whole input; a single host's facts stand at the top."""
    events = [event for timeline in timelines.values() for event in timeline.events]
    facts: dict[str, Any] = {
        "lines_with_events": log.lines,
        "events": kernel_words.counted(events),
        "hosts": sorted(host.name for key, host in log.hosts.items() if key),
        "copies_by_other_readers": sum(timeline.copies for timeline in timelines.values()),
        "not_xids": log.not_xids,
        "forms": dict(log.forms),
        **kernel_words.programs(events, timelines),
    }
    per_host = {
        log.hosts[key].name: kernel_facts.of_host(timeline.events, timeline.boot_at, log.now)
        for key, timeline in timelines.items()
    }
    if len(per_host) == 1:
        facts.update(next(iter(per_host.values())))
    else:
        facts["by_host"] = {name: held for name, held in per_host.items() if held}
        facts["xid_counts"] = kernel_words.xid_counts(events)
    skews = [timeline.skew_s for timeline in timelines.values() if timeline.skew_s is not None]
    if skews:
        facts["clock_skew_s"] = skews[0]
    return {name: value for name, value in facts.items() if value or name == "events"}
