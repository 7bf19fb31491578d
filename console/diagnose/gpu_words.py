"""One line about a node's GPUs, and the advice to drain, from findings. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from console.diagnose.gpu_cards import Card
from console.diagnose.gpu_judge import active_reasons, clock_share
from console.diagnose.report import AFTER_JOBS, NO, NOW
from probes.event import Action, Finding, Severity
from probes.reading import number

BRAKE_BIT, CAP_BIT = 0x80, 0x4
FULL_SHARE = 0.9
"""Power over its limit from which the power cap is what a busy card shows (straggler.*)."""
GANG = f"{AFTER_JOBS}; now if it slows a gang job"
WHOLE_NODE = f"{AFTER_JOBS}, or now if a job uses all GPUs of the node"
CAPPED = "no (after the job if it slows a gang job)"
_SLOWS = ("straggler.", "power.", "thermal.")
SHOWN = 4
TELLING = ("paper.ecc_history", "paper.memory_held", "nvlink.fabric", "ecc.mode_pending")
"""Information that belongs into the one line; the rest stands below it."""
_SILENT = ("straggler.suspect", "ecc.off")
"""Information that says nothing about trouble of today."""
_MORE = {
    "remap.failure": " (RMA criterion)",
    "remap.pending": ": reset it when its work is done",
    "gpu.recovery_action": " (GPU Recovery Action)",
}
"""What the one line says besides the check's own sentence."""
_FIRST = ("gpu.lost", "gpu.reset_required", "gpu.recovery_action", "remap.failure")


def summary(cards: Sequence[Card], findings: Sequence[Finding]) -> str:
    """What is wrong with which GPU, worst first; then what is only to be known; then the rest."""
    whole = braked(cards)
    bad = [f for f in findings if f.severity.rank > Severity.INFO.rank]
    if whole:
        bad = [f for f in bad if f.rule not in ("straggler.node", "power.brake")]
    said = [whole, *_by_card(bad)] if whole else list(_by_card(bad))
    said += _besides(cards, bad)
    if capped := at_limit(cards, findings):
        said.append(capped)
    told = {f.device for f in bad if f.device}
    infos = [
        f for f in findings if f.severity is Severity.INFO
        and (f.rule in TELLING or (not bad and f.rule not in _SILENT))
    ]  # fmt: skip
    said += [f"{f.say} (info)" for f in infos[:2]]
    told |= {f.device for f in infos}
    fine = [card for card in cards if card.device not in told]
    if not bad and not whole:
        said.insert(0, _all_well(cards))
        return "; ".join(said)
    if fine and told and not capped and not whole and not any(not f.device for f in bad):
        said.append(_rest(fine))
    return "; ".join(said)


def _besides(cards: Iterable[Card], bad: Sequence[Finding]) -> Iterable[str]:
    """What a reading beside the fault adds to it."""
    rules = {(f.device, f.rule) for f in bad}
    for card in cards:
        default = number(card.shown.get("power_default_w"))
        limit = number(card.values.get("gpu.power_limit_w"))
        low = (card.device, "straggler.power_limit") in rules
        if low and default is not None and limit is not None and default > limit:
            yield f"its default limit is {default:.0f} W"
        ecc = card.shown.get("ecc") or {}
        unread = bool(ecc) and all(value is None for value in ecc.values())
        if unread and (card.device, "remap.pending") in rules:
            yield "its ECC counters are not readable until then"


def _by_card(findings: Iterable[Finding]) -> Iterable[str]:
    """Sentences, those of one card together."""
    groups: dict[str, list[Finding]] = {}
    for finding in sorted(findings, key=lambda f: (-f.severity.rank, f.rule not in _FIRST)):
        groups.setdefault(finding.device or finding.rule, []).append(finding)
    sentences = list(groups.values())
    for about in sentences[:SHOWN]:
        says = [f.say + _MORE.get(f.rule, "") for f in about[:3]]
        name = f"{about[0].label}: "
        yield ", ".join([says[0], *(say.removeprefix(name) for say in says[1:])])
    if len(sentences) > SHOWN:
        yield f"and {len(sentences) - SHOWN} more"


def _rest(fine: Sequence[Card]) -> str:
    """The cards nothing is known against."""
    if len(fine) > 3:
        return f"nothing against the other {len(fine)} GPUs"
    return f"nothing against {', '.join(card.label for card in fine)}"


def _all_well(cards: Sequence[Card]) -> str:
    if not cards:
        return "no GPU that could be read in it"
    names = {card.name for card in cards if card.name}
    product = f" ({names.pop()})" if len(names) == 1 else ""
    if not any(card.values for card in cards):
        plural = "s" * (len(cards) != 1)
        return f"{len(cards)} GPU{plural} listed{product}; a list of names shows no health"
    return f"{len(cards)} GPU{'s' if len(cards) != 1 else ''}{product}: nothing wrong in this paste"


def braked(cards: Sequence[Card]) -> str:
    """The sentence for a power brake on every GPU of the node; "" otherwise."""
    if len(cards) < 2 or not all(active_reasons(card) & BRAKE_BIT for card in cards):
        return ""
    shares = [share for card in cards if (share := clock_share(card)) is not None]
    parts = [f"all {len(cards)} GPUs are braked by the chassis (HW power brake)"]
    if shares:
        low, high = round(100 * min(shares)), round(100 * max(shares))
        span = f"{low} %" if low == high else f"{low}-{high} %"
        parts.append(f"at {span} of the SM clock")
    loads = _known(cards, "gpu.util_percent")
    if loads:
        parts.append(f"at {sum(loads) / len(loads):.0f} % load")
    watts, limits = _known(cards, "gpu.power_w"), _known(cards, "gpu.power_limit_w")
    if watts and limits:
        parts.append(f"{sum(watts) / len(watts):.0f} of {sum(limits) / len(limits):.0f} W")
    return ", ".join(parts) + ": the power supply or its cap, not the cards"


def _known(cards: Iterable[Card], name: str) -> list[float]:
    return [value for card in cards if (value := number(card.values.get(name))) is not None]


def capped_cards(cards: Iterable[Card]) -> list[Card]:
    """Cards whose power cap is only the sign of full load."""
    found = []
    for card in cards:
        power, limit = (number(card.values.get(f"gpu.power_{n}")) for n in ("w", "limit_w"))
        if active_reasons(card) & CAP_BIT and power and limit and power >= FULL_SHARE * limit:
            found.append(card)
    return found


def at_limit(cards: Sequence[Card], findings: Sequence[Finding]) -> str:
    """That others show the same flag as the one that is capped too low, and are right to."""
    low = {f.device for f in findings if f.rule == "straggler.power_limit"}
    normal = [card for card in capped_cards(cards) if card.device not in low]
    if not low or not normal:
        return ""
    names = ", ".join(str(card.index) if card.index is not None else card.label for card in normal)
    one = len(normal) == 1
    return (
        f"GPU{'' if one else 's'} {names} show{'s' if one else ''} the same power cap flag and "
        f"{'is' if one else 'are'} simply at full power"
    )


def drain(cards: Sequence[Card], findings: Iterable[Finding]) -> str:
    """For hardware that failed now; for what is only slow when jobs are over."""
    asked = [(finding, _of(finding)) for finding in findings]
    advice = max((said for _, said in asked), key=_rank, default=NO)
    urgent = [finding for finding, said in asked if said == NOW]
    devices = {finding.device for finding in urgent}
    only_reset = all(finding.action is Action.RESET_GPU for finding in urgent)
    if advice == NOW and len(devices) == 1 and only_reset and len(cards) > 1 and devices != {""}:
        return f"{NOW} for {urgent[0].label}"
    return advice


_ORDER = (NO, CAPPED, AFTER_JOBS, GANG, WHOLE_NODE, NOW)


def _rank(advice: str) -> int:
    return _ORDER.index(advice)


def _of(finding: Finding) -> str:
    """What one finding asks for."""
    if finding.rule == "straggler.power_limit":
        return CAPPED
    if finding.rule == "gpu.count":
        return WHOLE_NODE
    if finding.severity.rank < Severity.WARN.rank or finding.severity is Severity.UNKNOWN:
        return NO
    grave = finding.severity is Severity.CRITICAL
    if finding.rule.startswith(_SLOWS):
        return GANG if grave or finding.action is Action.DRAIN else NO
    if finding.action in (Action.DRAIN, Action.REPLACE, Action.REBOOT, Action.RESET_GPU):
        return NOW if grave else AFTER_JOBS
    return NOW if grave else NO
