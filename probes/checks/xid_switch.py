"""NVSwitch faults of the kernel log and of the fabric manager: one finding per switch.

A GPU that falls off the bus makes its switch complain: those lines are its consequences. Xid 74 of
several GPUs at one time is the switch's fault rather than theirs.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from probes.checks import kernel_events, xid_causes
from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Severity
from probes.kernel_lines import Burst, KernelEvent

SXID = Rule(
    id="sxid",
    title="NVSwitch fault in the kernel log",
    severity=Severity.WARN,
    reads="nvidia-nvswitch: SXid lines; the fabric manager's lines where the kernel's are missing",
    cause="NVSwitch or one of its links; beside an Xid 74 or 79 a consequence of that",
    action=Action.REBOOT,
    next_step="drain; save the kernel log; reboot; RMA the baseboard if it returns",
    source="driver source [okm]: the line carries its severity word; codes as in gpud",
    others="gpud, NVS, SCK, DCGM: fatal error, non-fatal warn",
    example="nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up",
    hard=True,
)
CODES = 6
"""Codes that a line names."""


def check(
    look: Look, events: list[KernelEvent], groups: list[Burst], gap_s: float
) -> Iterator[Finding]:
    """SXids that no Xid of a GPU explains, by switch."""
    alone: dict[tuple[str, int], list[KernelEvent]] = {}
    told = {event.code for event in events if event.kind == "sxid"}
    for event in events:
        quoted = event.kind == "fabric_manager" and event.code not in told
        if event.kind != "sxid" and not quoted:
            continue
        if not _explained(event, groups, gap_s):
            alone.setdefault((event.pci or "", event.boot), []).append(event)
    for (pci, boot), same in sorted(alone.items()):
        if boot == 0 or (pci, 0) not in alone:
            yield _switch(look, pci, same)


def _explained(event: KernelEvent, groups: list[Burst], gap_s: float) -> bool:
    """Whether a GPU off the bus, or an Xid 74 of one GPU alone, is the cause."""
    near = [
        burst for burst in groups
        if burst.root.boot == event.boot and abs(burst.root.at - event.at) <= gap_s
    ]  # fmt: skip
    if any(e.code == xid_causes.OFF_BUS for burst in near for e in burst.events):
        return True
    return len({b.pci for b in near if b.root.code == 74}) == 1


def _switch(look: Look, pci: str, same: list[KernelEvent]) -> Finding:
    """The worst line leads; the severity word of a line wins over the table's."""
    graded = [(_severity(look, event), event) for event in same]
    severity, root = max(graded, key=lambda pair: pair[0].rank)
    meaning = look.rules.sxids.get(root.code or 0)
    fatal = severity is Severity.CRITICAL
    number = root.facts.get("switch")
    label = "an NVSwitch" if number is None else f"NVSwitch {number}"
    codes = list(dict.fromkeys(event.code for event in same if event.code != root.code))
    others = f" with {', '.join(map(str, codes[:CODES]))}" if codes else ""
    name = f": {meaning.name}" if meaning else f": {root.facts.get('said', '')}".rstrip(": ")
    finding = SXID.finding(
        look, f"{label}{xid_causes.links(same)}: SXid {root.code}{others}, "
        f"{'fatal' if root.facts.get('fatal') else 'non-fatal'}{name}"
        f"{kernel_events.ago(look, same[-1])}",
        kernel_events.texts(same), device=pci, label=label, value=root.code, severity=severity,
        action=Action.REBOOT if fatal else Action.WATCH,
        cause=meaning.cause if meaning else "", next_step=meaning.next_step if meaning else "",
        source=f"{SXID.source}; {meaning.source}" if meaning else "",
    )  # fmt: skip
    finding = structs.replace(finding, hard=severity is not Severity.INFO, count=len(same))
    return kernel_events.aged(look, finding, same[-1])


def _severity(look: Look, event: KernelEvent) -> Severity:
    if event.facts.get("fatal") is True:
        return Severity.CRITICAL
    meaning = look.rules.sxids.get(event.code or 0)
    table = Severity.WARN if meaning is None else meaning.severity
    return min(Severity.WARN, table, key=lambda severity: severity.rank)
