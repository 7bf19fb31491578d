"""What one burst of Xids is worth: the table's word, refined by the text of its lines. Pure.

Xid 154 carries the driver's own recovery advice and overrides ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from probes.checks import memory, xid_causes
from probes.event import Action, Severity
from probes.kernel_lines import Burst, KernelEvent
from probes.kernel_nvlink import FIFTH
from probes.rules import XidMeaning

CONTAINED = 94
REMAP_FAILED = 64
REMAPPED = 63
ADVICE = 154
NVLINK = 74
PROCESS = 60
"""Characters of a process name in a line; the kernel's own are 15."""
HARMLESS_BITS = frozenset({"ignore"})
"""Registers of a 74 that NVSentinel's table ignores."""
LINK_WORDS = {
    "ecc": "ECC or parity error: hardware if it returns on this link",
    "reseat": "reseat and diagnose", "marginal": "marginal signal",
    "ignore": "harmless bits", "secondary": "consequence of another link's error",
    "fabric_reset": "needs a reset of the whole fabric", "ecc_threshold": "ECC threshold",
}  # fmt: skip


class Judged(NamedTuple):
    """How bad, what to do, and what to call it."""

    severity: Severity
    action: Action
    next_step: str
    name: str


def judged(burst: Burst, meaning: XidMeaning | None) -> Judged:
    """The table's word, refined by the text of the line, overridden by the newest Xid 154."""
    said = _by_text(burst, meaning)
    advice = next((e for e in reversed(burst.events) if "recovery" in e.facts), None)
    code = 0 if advice is None else int(advice.facts["recovery"])
    if advice is None or code == 0:
        return said
    words = str(advice.facts.get("recovery_name", ""))[:PROCESS]
    asked = memory.recovery(code, words)
    gone = burst.root.code == xid_causes.OFF_BUS  # whatever helps, no job runs on it
    return Judged(
        Severity.CRITICAL if gone else asked.severity, asked.action,
        f"the driver says: {words or asked.name} (Xid 154); {asked.next_step}",
        f"{said.name}; the driver asks for: {words or asked.name}",
    )  # fmt: skip


def failed(event: KernelEvent) -> bool:
    """A remap that failed, or a 94 whose line asks for a reset now."""
    if event.code == REMAP_FAILED:
        return event.facts.get("remap") != "already_pending"
    return event.code == CONTAINED and event.facts.get("rst") is True


def _by_text(burst: Burst, meaning: XidMeaning | None) -> Judged:
    root = burst.root
    if meaning is None:
        next_step = f"look Xid {root.code} up in NVIDIA's newest list; watch whether it returns"
        return Judged(Severity.WARN, Action.WATCH, next_step, "not in the catalogue")
    special = _SPECIAL.get(root.code or 0)
    found = None if special is None else special(burst, meaning)
    if found is None and root.code in FIFTH:
        found = _fifth(burst, meaning)
    plain = Judged(meaning.severity, meaning.action, meaning.next_step, meaning.name)
    return plain if found is None else found


def _advice(burst: Burst, meaning: XidMeaning) -> Judged | None:
    if burst.root.facts.get("recovery") == 0:
        return Judged(Severity.INFO, Action.WATCH, "nothing", "the driver asks for nothing")
    return None


def _remap(burst: Burst, meaning: XidMeaning) -> Judged | None:
    if not failed(burst.root):
        return Judged(
            Severity.WARN, Action.RESET_GPU, "reset the GPU when its work is done",
            "row is already pending remapping",
        )  # fmt: skip
    if burst.root.facts.get("remap") == "spare_rows_exhausted":
        return Judged(
            Severity.CRITICAL, Action.REPLACE, "drain; RMA once the remapper says Failure: Yes",
            "no spare rows are left",
        )  # fmt: skip
    return None


def _double_bit(burst: Burst, meaning: XidMeaning) -> Judged | None:
    """An error whose row could not be replaced is the remapper's failure first of all."""
    exhausted = any(
        e.code == REMAP_FAILED and e.facts.get("remap") == "spare_rows_exhausted"
        for e in burst.events
    )
    if not exhausted:
        return None
    return Judged(
        Severity.CRITICAL, Action.REPLACE, "drain; RMA once the remapper says Failure: Yes",
        f"{meaning.name}, and no spare rows are left",
    )  # fmt: skip


def _contained(burst: Burst, meaning: XidMeaning) -> Judged:
    if any(map(failed, burst.events)):
        return Judged(
            Severity.CRITICAL, Action.RESET_GPU, "drain; reset the GPU before anything restarts",
            f"{meaning.name}, but a reset is needed now",
        )  # fmt: skip
    return Judged(
        meaning.severity, Action.RESET_GPU,
        "restart the job that died; reset the GPU when running work ends, then look that no "
        "remap is pending; RMA only if remapping fails or it repeats", meaning.name,
    )  # fmt: skip


def _fifth(burst: Burst, meaning: XidMeaning) -> Judged | None:
    """The line's own severity word; packets lost towards a port that died are no fault here."""
    where = _on(burst.events)
    unit = str(burst.root.facts.get("unit", ""))
    name = f"{meaning.name}{where}{f' ({unit})' if unit else ''}"
    if xid_causes.peer_died(burst):
        return Judged(
            Severity.INFO, Action.WATCH, "look for the port or GPU that died first",
            f"{name}: packets were lost because another port died",
        )  # fmt: skip
    if any(event.facts.get("fatal") is True for event in burst.events):
        return Judged(
            Severity.CRITICAL, Action.RESET_GPU, "drain; reset the GPU, then reboot; RMA if it "
            "returns", f"{name}, fatal",
        )  # fmt: skip
    return Judged(meaning.severity, meaning.action, meaning.next_step, name)


def _nvlink(burst: Burst, meaning: XidMeaning) -> Judged:
    """Which link, and what its registers say."""
    lines = [event for event in burst.events if event.code == NVLINK]
    words: dict[str, None] = {}
    for event in lines:
        for word in str(event.facts.get("meaning", "unread")).split(","):
            words[word] = None
    told = [LINK_WORDS[word] for word in words if word in LINK_WORDS]
    detail = f" ({'; '.join(told)})" if told else ""
    name = f"{meaning.name}{_on(lines)}{detail}"
    if HARMLESS_BITS.issuperset(words):
        return Judged(Severity.INFO, Action.WATCH, "watch the link", name)
    return Judged(meaning.severity, meaning.action, meaning.next_step, name)


def _follow_up(burst: Burst, meaning: XidMeaning) -> Judged | None:
    cause = burst.root.facts.get("caused_by")
    if cause is None:
        return None
    return Judged(
        meaning.severity, meaning.action, f"gpuconsole explain xid:{cause}",
        f"{meaning.name}, because of Xid {cause} as the driver says",
    )  # fmt: skip


_SPECIAL = {
    45: _follow_up, 48: _double_bit, REMAP_FAILED: _remap, NVLINK: _nvlink,
    CONTAINED: _contained, ADVICE: _advice,
}  # fmt: skip


def _on(lines: Iterable[KernelEvent]) -> str:
    """As " on link 3"; "" where no line names one."""
    where = xid_causes.links(lines)
    return f" on{where}" if where else ""
