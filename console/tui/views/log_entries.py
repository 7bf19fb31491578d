"""What happened, as lines of the log: from findings, acts, the scheduler, tests, the past. Pure."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from console import units
from console.audit import AuditLine, Who
from console.fleet import WORKING
from console.memory.told import Happening
from console.plan_notes import timeless
from console.tui.summary import brief
from console.tui.text import plain
from console.tui.words import t
from inventory.errors import UsageError
from inventory.expressions import expand
from inventory.scheduler import Allocation, Step
from probes.event import Finding, Severity

if TYPE_CHECKING:
    from console.tui.bench import Entry as Tested

FINAL = ("done", "failed", "refused")
"""Phases of a Step that say how an act ended (as console.act)."""
_XID = re.compile(r"\bxid[.: ]+(\d+)", re.IGNORECASE)
NODES_MOST = 4096
"""Of a test whose nodes are named."""


class Entry(Struct, frozen=True, kw_only=True):
    """One line of the log. Strings are plain."""

    key: str
    at: float
    """Epoch seconds."""
    kind: str
    """found, over, ack, drain, resume, act, sched, evidence, test, boot, start."""
    severity: Severity
    text: str
    node: str = ""
    nodes: tuple[str, ...] = ()
    who: str = ""
    """Who did it and from where, e.g. mara@192.0.2.7."""
    source: str = "live"
    """live, audit, memory, scheduler, tests."""
    rule: str = ""
    device: str = ""
    why: str = ""
    """What the line below the table says of it."""
    past: bool = False
    """From before this console was started."""

    @property
    def about(self) -> tuple[str, ...]:
        """Nodes it concerns."""
        return (self.node,) if self.node else self.nodes

    @property
    def xids(self) -> tuple[str, ...]:
        """Xid numbers it names."""
        return tuple(_XID.findall(f"{self.rule} {self.text}"))

    @property
    def lower(self) -> str:
        """What words of a filter are looked for in."""
        parts = (*self.about, self.kind, self.rule, self.text, self.who, self.severity.value)
        return " ".join(parts).lower()


def kind_word(kind: str) -> str:
    """The kind as the table names it, at most eight cells in English."""
    return {
        "found": t("found"), "over": t("over"), "ack": t("ack"), "drain": t("drain"),
        "resume": t("resume"), "act": t("act"), "sched": t("sched"), "evidence": t("evidence"),
        "test": t("test"), "boot": t("boot"), "start": t("start"),
    }.get(kind, kind)  # fmt: skip


def of_finding(number: int, at: float, finding: Finding) -> Entry:
    """A finding that began, changed, was acknowledged or is over."""
    over, seen = finding.severity is Severity.OK, finding.acknowledged
    return Entry(
        key=f"live {number}", at=at, kind="over" if over else "ack" if seen else "found",
        severity=Severity.INFO if seen and not over else finding.severity,
        text=brief(plain(timeless(finding.say))), node=finding.node, rule=finding.rule,
        device=finding.device,
        why=plain(finding.cause or finding.say),
    )  # fmt: skip


def of_step(number: int, step: Step) -> Entry | None:
    """An act's end, or evidence that was taken; None for what lies between."""
    if step.phase not in (*FINAL, "evidence", "audit"):
        return None
    return Entry(
        key=f"live {number}", at=step.at, kind="evidence" if step.phase == "evidence" else "act",
        severity=Severity.OK if step.ok else Severity.WARN,
        text=plain(f"{step.phase}: {step.detail}"), node=step.node,
        why=plain(" ".join(step.command)),
    )  # fmt: skip


def of_allocation(number: int, at: float, now: Allocation) -> Entry:
    """A node that the scheduler took out of work, or has back."""
    back = now.state in WORKING
    told = plain(now.raw or now.state)
    reason = f"{told}: {plain(now.reason)}" if now.reason else told
    return Entry(
        key=f"live {number}", at=at, kind="sched", source="scheduler", node=now.node,
        severity=Severity.OK if back else Severity.WARN if now.state == "down" else Severity.INFO,
        text=t("back in work: {state}", state=told) if back else reason,
        who=plain(now.reason_by), why=plain(now.reason),
    )  # fmt: skip


def of_past(index: int, told: Happening) -> Entry:
    """From the memory of earlier runs."""
    state, label = plain(told.rule), plain(told.label)
    text = brief(plain(timeless(told.say)))
    if told.what == "boot":
        text = t("rebooted")
    elif told.what == "back":
        text = t("back in work; it was {state}: {reason}", state=state, reason=text)
    elif told.what == "out":
        text = f"{state}: {text}"
    elif told.what == "over":
        text = t("over ({why}): {say}", why=plain(told.why), say=text)
    finding = told.what in ("found", "over")
    return Entry(
        key=f"past {index}", at=told.at, node=told.node, text=text, source="memory", past=True,
        kind=told.what if finding or told.what == "boot" else "sched",
        severity=told.severity if told.what == "found" else Severity.INFO
        if told.what in ("out", "boot") else Severity.OK,
        rule=state if finding else "", who="" if finding else label, why=text,
    )  # fmt: skip


def of_test(test: Tested) -> Entry:
    """A campaign that ended."""
    try:
        nodes = tuple(expand(test.nodes)[:NODES_MOST])
    except UsageError:  # cut short for its line
        nodes = ()
    level, on, end = plain(test.level), plain(test.nodes), test.at + test.duration_s
    said = t("{level} test on {nodes}", level=level, nodes=on)
    if test.interrupted:
        said = t("{level} test on {nodes}, stopped", level=level, nodes=on)
    return Entry(
        key=f"test {test.id}", at=end, kind="test", source="tests", severity=test.verdict,
        text=f"{said}: {plain(test.say)}" if test.say else said, nodes=nodes,
        why=plain(test.next_step or test.say),
    )  # fmt: skip


def clock(at: float, now: float) -> str:
    """The time of day, with the date when it is another one; at most 11 cells."""
    try:
        then, today = time.localtime(at), time.localtime(now)
    except (ValueError, OverflowError, OSError):
        return units.ABSENT
    if then[:3] == today[:3]:
        return time.strftime("%H:%M:%S", then)
    return time.strftime("%m-%d %H:%M" if then[0] == today[0] else "%Y-%m-%d", then)


def of_start(at: float) -> Entry:
    """When this console began to look."""
    text = t("this console was started; what is below is from its memory and the audit file")
    return Entry(key="start", at=at, kind="start", severity=Severity.INFO, text=text, why=text)


def person(who: Who) -> str:
    """mara@192.0.2.7, or mara@pts/3 for somebody at this machine."""
    where = next(iter(who.ssh_client.split()), "") or who.tty.removeprefix("/dev/")
    return plain(f"{who.told}@{where}" if where else who.told)


class Acts:
    """The audit's lines about one act on one node, folded into one line of the log."""

    def __init__(self) -> None:
        """No act yet."""
        self._open: dict[tuple[str, str, str], Entry] = {}
        """(node, verb, who) -> the newest such act."""
        self._number = 0

    def add(self, line: AuditLine) -> Entry:
        """The act's line as it is now; its key stays while the act goes on."""
        key = line.node, line.verb, person(line.who)
        before = None if line.what == "intend" else self._open.get(key)
        entry = self._began(line) if before is None else before
        if line.what == "outcome":
            entry = _ended(entry, line)
        elif line.what == "reading" and line.allocation is not None:
            state = plain(line.allocation.raw or line.allocation.state)
            entry = structs.replace(
                entry, why=t("{told}; now {state}", told=entry.why, state=state)
            )
        self._open[key] = entry
        return entry

    def _began(self, line: AuditLine) -> Entry:
        self._number += 1
        when, by = clock(line.at, line.at), person(line.who)
        why = t("{who} at {when}", who=by, when=when)
        if line.evidence:
            path = plain(line.evidence.partition(" sha256=")[0])
            why = t("{who} at {when}, evidence in {path}", who=by, when=when, path=path)
        return Entry(
            key=f"act {self._number}", at=line.at, kind=plain(line.verb), source="audit",
            severity=Severity.INFO, node=line.node, who=by, why=why,
            text=t("{reason}: no outcome yet", reason=plain(line.reason)),
        )  # fmt: skip


def _ended(entry: Entry, line: AuditLine) -> Entry:
    detail = plain(line.detail).removeprefix("done: ")
    reason = plain(line.reason)
    told = f"{detail}: {reason}" if reason else detail
    text = reason if line.ok and reason else told
    severity = Severity.OK if line.ok else Severity.WARN
    why = entry.why if line.ok else t("{told}; {outcome}", told=entry.why, outcome=detail)
    return structs.replace(entry, at=line.at, text=text, severity=severity, why=why)
