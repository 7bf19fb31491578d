"""Xids of the kernel log: one finding per GPU and root cause, with the lines as evidence.

An Xid is an event in a burst, as NVSentinel sees it: the root is the Xid that explains most, the
others are consequences. Xid 154 carries the driver's own recovery advice and overrides ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from msgspec import structs

from probes.checks import kernel_events, memory
from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Severity
from probes.kernel_lines import Burst, KernelEvent, bursts
from probes.rules import XidMeaning

XID = Rule(
    id="xid",
    title="Xid in the kernel log",
    severity=Severity.WARN,
    reads="NVRM: Xid lines of /dev/kmsg, dmesg or the journal",
    cause="see the table: gpuconsole explain xid:CODE",
    action=Action.WATCH,
    next_step="gpuconsole explain xid:CODE",
    source="NVIDIA Xid catalogue [xid]; names of the driver [okm]",
    others="GCM, AzHC, CCH, EKS, DCGM, gpud, imbue, OCI, NVS: policies differ, see each xid:CODE",
    example="NVRM: Xid (PCI:0000:43:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off "
    "the bus.",
    limits=("xid.burst_gap_s", "xid.bursts_suspect", "xid.coalesce_s", "xid.old_h"),
    hard=True,
)
SXID = Rule(
    id="sxid",
    title="NVSwitch fault in the kernel log",
    severity=Severity.WARN,
    reads="nvidia-nvswitch: SXid lines",
    cause="NVSwitch or one of its links; beside an Xid 74 or 79 a consequence of that",
    action=Action.REBOOT,
    next_step="drain; save the kernel log; reboot; RMA the baseboard if it returns",
    source="driver source [okm]: the line carries its severity word; codes as in gpud",
    others="gpud, NVS, SCK, DCGM: fatal error, non-fatal warn",
    example="nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up",
    hard=True,
)
UNREADABLE = Rule(
    id="kernel_log.unreadable",
    title="The kernel log may not be read",
    severity=Severity.INFO,
    reads="/dev/kmsg, dmesg, journalctl -k",
    cause="kernel.dmesg_restrict=1 and no root",
    action=Action.FIX_CONFIG,
    next_step="set `become: sudo -n` for this group, or kernel.dmesg_restrict=0 on the nodes",
    source="Linux kernel.dmesg_restrict; a log that was not read is never 'no Xid'",
    others="-",
    example="dmesg: read kernel buffer failed: Operation not permitted",
)
RULES = (XID, SXID, UNREADABLE)

DOUBLE_BIT = frozenset({48, 171, 172})
"""An uncorrectable error and its details; a 94 beside them says that it was contained [xid]."""
CONTAINED = 94
UNCONTAINED = 95
REMAP_FAILED = 64
ADVICE = 154
NVLINK5 = range(144, 151)
"""Their line carries its own severity word, Fatal or Nonfatal (NVIDIA Xid catalogue)."""
OFF_BUS = 79
SWITCH_ROOTS = (74, OFF_BUS)
"""Xids of a GPU that make its switch complain too."""


def check(look: Look) -> Iterator[Finding]:
    """The whole ring of kept lines, one finding per GPU and root cause."""
    yield from _unchecked(look)
    if not look.facts.kernel:
        return
    events = kernel_events.read(look)
    gap_s = look.rules.limit("xid.burst_gap_s").value
    groups = roots(look, events)
    yield from _xids(look, groups)
    yield from _switch(look, events, groups, gap_s)


def roots(look: Look, events: list[KernelEvent]) -> list[Burst]:
    """The bursts of all GPUs with what started each."""
    ranks, gap_s = _ranks(look), look.rules.limit("xid.burst_gap_s").value
    groups = bursts(events, ranks, gap_s, UNKNOWN_RANK)
    return [_contained(burst, ranks) or burst for burst in groups]


def _unchecked(look: Look) -> Iterator[Finding]:
    """A log that may not be read, and one of which nothing came, while other probes answered."""
    hint = str(look.facts.value("hello", "", "missing.kernel_log") or UNREADABLE.next_step)
    log = look.facts.get("kernel_log")
    if log is not None and log.values.get("readable") is False:
        yield UNREADABLE.finding(look, "not checked: Xids, the kernel log may not be read", (hint,))
    answered = any(look.facts.get(probe) for probe in ("host", "inventory"))
    if log is None and answered and "kernel_log" not in look.facts.troubles:
        yield UNREADABLE.finding(
            look, "not checked: Xids, the kernel log gave no answer", ("no answer of kernel_log",),
            cause="the probe did not run, or its reader hangs",
            next_step=f"run dmesg on the node; {hint}",
        )  # fmt: skip


UNKNOWN_RANK = Severity.WARN.rank * 10 + 1
"""A code that the table lacks explains more than the job's own Xids beside it."""


def _ranks(look: Look) -> dict[int, int]:
    """How much a code explains: severity first; follow-ups and application codes last."""
    order = {"hw": 3, "fabric": 3, "drv": 2, "app": 1, "meta": 0, "follow-up": 0}
    return {
        code: meaning.severity.rank * 10 + order.get(meaning.kind, 1)
        for code, meaning in look.rules.xids.items()
    }


def _contained(burst: Burst, ranks: dict[int, int]) -> Burst | None:
    """The burst led by its 94 instead of the 48 that 94 explains; None when it is not contained."""
    codes = {event.code for event in burst.events}
    failed = any(_failed(event) for event in burst.events)
    if CONTAINED not in codes or UNCONTAINED in codes or failed:
        return None
    others = [event for event in burst.events if event.code not in DOUBLE_BIT]
    root = max(others, key=lambda event: ranks.get(event.code or 0, UNKNOWN_RANK))
    return structs.replace(burst, root=root)


def _failed(event: KernelEvent) -> bool:
    """A remap that failed, or a 94 whose line asks for a reset now."""
    if event.code == REMAP_FAILED:
        return event.facts.get("remap") != "already_pending"
    return event.code == CONTAINED and event.facts.get("rst") is True


def _xids(look: Look, groups: list[Burst]) -> Iterator[Finding]:
    """One finding per GPU and root code: the newest burst, counted over all."""
    by_root: dict[tuple[str, int], list[Burst]] = {}
    for burst in groups:
        by_root.setdefault((burst.pci, burst.root.code or 0), []).append(burst)
    over = _recovered(groups)
    for (_, code), same in sorted(by_root.items()):
        yield _xid(look, code, same, recovered=id(same[-1]) in over)


def _recovered(groups: list[Burst]) -> set[int]:
    """Bursts (by id) after which the driver withdrew its advice: a 154 to none, no Xid since."""
    over: set[int] = set()
    withdrawn: set[str] = set()
    for burst in reversed(groups):
        done = True
        for event in reversed(burst.events):
            if event.code == ADVICE and event.facts.get("recovery") == 0:
                withdrawn.add(burst.pci)
            elif burst.pci not in withdrawn:
                done = False
        if done:
            over.add(id(burst))
    return over


def _xid(look: Look, code: int, same: list[Burst], *, recovered: bool) -> Finding:
    burst = same[-1]
    meaning = look.rules.xids.get(code)
    device, label = kernel_events.gpu(look, burst.pci)
    last = burst.events[-1]
    judged = _judged(burst, meaning)
    suspect = look.rules.limit("xid.bursts_suspect")
    if len(same) >= suspect.value and meaning and meaning.kind == "app":
        judged = judged._replace(
            severity=max(judged.severity, Severity.WARN, key=lambda s: s.rank),
            next_step=f"{len(same)} bursts on one GPU: run diagnostics there, not only the job's "
            "owner",
        )
    if recovered and judged.severity is not Severity.INFO:
        judged = _Judged(
            Severity.INFO, Action.WATCH, "nothing now; watch whether it returns",
            f"{judged.name}; since then the driver asks for nothing",
        )  # fmt: skip
    history = kernel_events.old(look, last)
    others = sorted({event.code or 0 for event in burst.events} - {code})
    seen = f" with {', '.join(map(str, others[:OTHERS]))}" if others else ""
    process = burst.root.process or ""
    by = f" by {process[:PROCESS]}" if process and meaning and meaning.kind == "app" else ""
    finding = XID.finding(
        look, f"{label}: Xid {code}{seen}{by}: {judged.name}{kernel_events.ago(look, last)}",
        tuple(event.text for event in burst.events[:5]),
        device=device, label=label, value=code,
        severity=Severity.INFO if history else judged.severity, action=judged.action,
        cause=meaning.cause if meaning else "unknown to this catalogue; newer driver?",
        next_step=judged.next_step, source=meaning.source if meaning else XID.source,
    )  # fmt: skip
    lasting = bool(meaning and meaning.hard) and not history and not recovered
    return structs.replace(finding, rule=f"xid.{code}", count=len(same), hard=lasting)


OTHERS = 8
"""Codes beside the root's that a line names."""
PROCESS = 60
"""Characters of a process name in a line; the kernel's own are 15."""


class _Judged(NamedTuple):
    severity: Severity
    action: Action
    next_step: str
    name: str


def _judged(burst: Burst, meaning: XidMeaning | None) -> _Judged:
    """The table's word, refined by the text of the line, overridden by the newest Xid 154."""
    judged = _by_text(burst, meaning)
    advice = next((e for e in reversed(burst.events) if "recovery" in e.facts), None)
    code = 0 if advice is None else int(advice.facts["recovery"])
    if advice is None or code == 0:
        return judged
    said = str(advice.facts.get("recovery_name", ""))[:PROCESS]
    asked = memory.recovery(code, said)
    gone = burst.root.code == OFF_BUS  # whatever helps, no job runs on it
    return _Judged(
        Severity.CRITICAL if gone else asked.severity, asked.action,
        f"the driver says: {said or asked.name} (Xid 154); {asked.next_step}",
        f"{judged.name}; the driver asks for: {said or asked.name}",
    )  # fmt: skip


def _by_text(burst: Burst, meaning: XidMeaning | None) -> _Judged:
    root = burst.root
    if meaning is None:
        next_step = XID.next_step.replace("CODE", str(root.code))
        return _Judged(Severity.WARN, Action.WATCH, next_step, "not in the catalogue")
    if root.code == ADVICE and root.facts.get("recovery") == 0:
        return _Judged(Severity.INFO, Action.WATCH, "nothing", "the driver asks for nothing")
    if root.code == REMAP_FAILED and not _failed(root):
        return _Judged(
            Severity.WARN, Action.RESET_GPU, "reset the GPU when its work is done",
            "row is already pending remapping",
        )  # fmt: skip
    if root.code == REMAP_FAILED and root.facts.get("remap") == "spare_rows_exhausted":
        return _Judged(
            Severity.CRITICAL, Action.REPLACE, "drain; RMA once the remapper says Failure: Yes",
            "no spare rows are left",
        )  # fmt: skip
    if root.code == CONTAINED and any(map(_failed, burst.events)):
        return _Judged(
            Severity.CRITICAL, Action.RESET_GPU, "drain; reset the GPU before anything restarts",
            f"{meaning.name}, but a reset is needed now",
        )  # fmt: skip
    if root.code == CONTAINED:
        return _Judged(
            meaning.severity, Action.RESET_GPU,
            "restart the job that died; reset the GPU when running work ends, then look that no "
            "remap is pending; RMA only if remapping fails or it repeats", meaning.name,
        )  # fmt: skip
    if root.code in NVLINK5 and re.search(r"\b[Ff]atal\b", str(root.facts.get("said", ""))):
        return _Judged(
            Severity.CRITICAL, Action.RESET_GPU, "drain; reset the GPU, then reboot; RMA if it "
            "returns", f"{meaning.name}, fatal",
        )  # fmt: skip
    return _Judged(meaning.severity, meaning.action, meaning.next_step, meaning.name)


def _switch(
    look: Look, events: list[KernelEvent], groups: list[Burst], gap_s: float
) -> Iterator[Finding]:
    """SXids that are not a consequence of an Xid 74 or 79 within the gap."""
    causes = [b.root for b in groups if b.root.code in SWITCH_ROOTS]
    roots = [cause.mono for cause in causes if cause.mono is not None]
    alone: dict[tuple[str, int], list[KernelEvent]] = {}
    for event in events:
        if event.kind != "sxid":
            continue
        if event.mono is not None and any(abs(event.mono - root) <= gap_s for root in roots):
            continue
        alone.setdefault((event.pci or "?", event.code or 0), []).append(event)
    for (pci, code), same in sorted(alone.items()):
        fatal = any(event.facts.get("fatal") for event in same)
        links = sorted({str(e.facts["link"]) for e in same if "link" in e.facts})
        where = f" link {', '.join(links)}" if links else ""
        switch = same[0].facts.get("switch", "?")
        history = kernel_events.old(look, same[-1])
        severity = Severity.CRITICAL if fatal else Severity.WARN
        finding = SXID.finding(
            look, f"NVSwitch {switch}{where}: SXid {code}, {'fatal' if fatal else 'non-fatal'}"
            f"{kernel_events.ago(look, same[-1])}",
            kernel_events.texts(same), device=pci, label=f"NVSwitch {switch}", value=code,
            severity=Severity.INFO if history else severity,
            action=Action.REBOOT if fatal else Action.WATCH,
        )  # fmt: skip
        yield structs.replace(finding, hard=not history)
