"""GPU reports judged: the console's checks and peer comparison, then what only paper can show."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import structs

from console.diagnose import cells, gpu_rules
from console.diagnose.gpu_cards import Card, put
from console.diagnose.offline import Offline, limits
from console.diagnose.report import found
from probes import straggler
from probes.checks import place
from probes.event import Action, Finding, NodeState, NodeStatus, Severity
from probes.rule import Rule

FROZEN = (
    "util_percent", "mem_util_percent", "power_w", "temp_c", "mem_temp_c", "thermal_margin_c",
    "sm_clock_mhz", "mem_clock_mhz", "reasons", "fan_percent",
)  # fmt: skip
"""Readings of a sick card that may be the last ones it gave."""
DEAD_CODES = (15, 16, 999)
"""NVML's codes of a card that does not answer: lost, reset required, unknown error."""
_RESETS = (1, 2, 4)
"""Recovery actions after which nothing that the card says is trusted."""


def judge(cards: Iterable[Card], node: str = "", **known: Any) -> list[Finding]:
    """Findings about one node's GPUs, worst first."""
    members = list(cards)
    for card in members:
        _margin(card)
        if _sick(card):
            _freeze(card)
    offline = Offline(node, **known)
    put(offline, members)
    findings = offline.judge()
    findings += _peers(offline)
    findings += [f for card in members for f in _paper(card, node, findings)]
    by_device = {card.device: card for card in members}
    findings = [_with_lines(f, by_device.get(f.device)) for f in findings]
    findings = [
        _whose(_slow(f, by_device.get(f.device)), members) for f in findings if not _usual(f)
    ]  # fmt: skip
    findings.sort(key=lambda f: (-f.severity.rank, place(f.rule), f.device))
    return findings


def _peers(offline: Offline) -> list[Finding]:
    """Who is slower than the others of the node; a paper speaks for an answering node."""
    offline.facts.apply(
        NodeStatus(node=offline.facts.node.name, at=offline.now, state=NodeState.UP)
    )
    compared = straggler.compare([offline.facts], limits(), offline.now)
    return [structs.replace(finding, hard=False) for finding in compared]


_BELOW = re.compile(r"(\d{1,3}) % below its (\d{1,3}) peers")
FAR_PERCENT, FEW_PEERS, BUSY_PERCENT = 25, 3, 90
"""Silicon and cooling differ by a few per cent; no healthy card is a quarter slower than three
busy siblings at full load (our estimate)."""


def _slow(finding: Finding, card: Card | None) -> Finding:
    """A card far below its siblings at full load is a warning also where no reason is shown.

    The live console waits for a second look; paper has one only.
    """
    match = _BELOW.search(finding.say) if finding.rule == "straggler.suspect" else None
    util = card.values.get("gpu.util_percent") if card is not None else None
    busy = isinstance(util, int | float) and util >= BUSY_PERCENT
    if match is None or not busy or int(match[1]) < FAR_PERCENT or int(match[2]) < FEW_PEERS:
        return finding
    return structs.replace(
        finding,
        severity=Severity.WARN,
        next_step="nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE of this GPU tells the reason; "
        "test it alone after the job",
    )


_UNDER = re.compile(r"(\d{1,3}) % below its maximum: no reason")


def _usual(finding: Finding) -> bool:
    """A clock somewhat below the maximum that no card keeps under load; siblings show a fault."""
    match = _UNDER.search(finding.say) if finding.rule == "straggler.suspect" else None
    return match is not None and int(match[1]) < FAR_PERCENT


_COUNTED = re.compile(r"^\d{1,3} GPUs? (?=waits? |failed )")
NAMED = 4
"""Most GPUs that a sentence names instead of counting them."""


def _whose(finding: Finding, cards: list[Card]) -> Finding:
    """Which GPUs wait for the fabric, where it is not the whole node."""
    if finding.rule != "nvlink.fabric":
        return finding
    waits = "wait" in finding.say.partition(" (")[0]
    mine = [c for c in cards if _waits(c) is waits and "nvlink.fabric_state" in c.values
            and (waits or c.values.get("nvlink.fabric_status"))]  # fmt: skip
    if not 0 < len(mine) <= NAMED or len(mine) == len(cards):
        return finding
    names = ", ".join(card.label for card in mine)
    device = mine[0].device if len(mine) == 1 else ""
    said = _COUNTED.sub(f"{names} ", finding.say)
    return structs.replace(finding, say=said, device=device, label=names if device else "")


def _waits(card: Card) -> bool:
    return card.values.get("nvlink.fabric_state") in (1, 2)


def _margin(card: Card) -> None:
    """Ampere and older tell limits, not margins: as the live probe does."""
    limit, temp = card.shown.get("temp_max_c"), card.values.get("gpu.temp_c")
    if "gpu.thermal_margin_c" not in card.values and limit and isinstance(temp, int | float):
        card.put("gpu.thermal_margin_c", limit - temp, card.lines.get("temp_c", ""))


_STATE = frozenset({"fan", "fan_speed", "temp", "pstate", "power", "power_draw", "util",
                    "utilization_gpu", "temperature_gpu", "state", "memory"})  # fmt: skip
"""Readings of now, in the names of table, -q and query."""


def _sick(card: Card) -> bool:
    action = card.values.get("ecc.recovery_action")
    silent = "message" in card.shown and "inforom" not in str(card.shown["message"]).lower()
    broken = bool(_STATE & set(card.broken))
    return silent or broken or action in _RESETS or card.values.get("gpu.nvml_rc") in DEAD_CODES


def _freeze(card: Card) -> None:
    """Keep what a sick card shows as untrusted; nothing is judged by it."""
    kept = {n: card.values.pop(f"gpu.{n}") for n in FROZEN if f"gpu.{n}" in card.values}
    if kept:
        card.shown["may_be_frozen"] = kept


def _with_lines(finding: Finding, card: Card | None) -> Finding:
    """The finding with the very lines that the readings in its evidence were read from."""
    if card is None:
        return finding
    said = " ".join(finding.evidence)
    lines = [line for name, line in card.lines.items() if name in said and line not in said]
    if finding.rule == "gpu.recovery_action" and "recovery_action" in card.lines:
        lines.insert(0, card.lines["recovery_action"])
    lines = list(dict.fromkeys(lines))[:4]
    return structs.replace(
        finding,
        evidence=tuple(dict.fromkeys((*finding.evidence, *lines))),
        say=_named(finding.say, finding.label, card).replace("; 0 others are readable", ""),
        label=card.label,
    )


def _named(say: str, label: str, card: Card) -> str:
    """The check's sentence with the card's name and address as the paste has them."""
    for name in (f"{label} at {card.device}", label, card.device):
        if name and name in say:
            return say.replace(name, card.label, 1)
    return say


def _paper(card: Card, node: str, findings: list[Finding]) -> Iterator[Finding]:
    """What no live check knows."""

    def add(rule: Rule, say: str, *evidence: str, **more: Any) -> Finding:
        lines = tuple(line for line in evidence if line)
        return found(
            rule, f"{card.label}: {say}", *lines, node=node, device=card.device,
            label=card.label, **more,
        )  # fmt: skip

    known = {f.rule for f in findings if f.device == card.device}
    yield from _broken(card, add)
    yield from _history(card, add, known)
    if card.shown.get("channel_repair_pending") or card.shown.get("tpc_repair_pending"):
        yield add(gpu_rules.REPAIR, "a repair waits for a reset", card.lines.get("repair", ""))
    if card.shown.get("drain_and_reset_recommended") and "gpu.recovery_action" not in known:
        yield add(gpu_rules.DRAIN_RESET, "the driver recommends to drain and reset it",
                  "Drain and Reset Recommended: Yes")  # fmt: skip
    health = str(card.shown.get("fabric_health") or "").lower()
    if health and health != "healthy":
        yield add(
            gpu_rules.FABRIC_HEALTH, f"its place in the NVLink fabric is {health}",
            f"Fabric Health Summary: {card.shown['fabric_health']}",
        )  # fmt: skip


def _broken(card: Card, add: Any) -> Iterator[Finding]:
    """ERR! and Unknown Error; many of them are a dying card."""
    if not card.broken:
        return
    names = ", ".join(list(card.broken)[:6])
    text = next(iter(card.broken.values()))
    state = _STATE & set(card.broken)
    grave = len(state) >= gpu_rules.BROKEN_CELLS
    frozen = "; its other numbers may be frozen" if state else ""
    yield add(
        gpu_rules.READING, f"an error stands in place of {names} ({text}){frozen}",
        card.lines.get("error", ""), value=len(card.broken),
        severity=Severity.CRITICAL if grave else None, action=Action.DRAIN if grave else None,
    )  # fmt: skip


def _history(card: Card, add: Any, known: set[str]) -> Iterator[Finding]:
    """Errors of the past, where nothing of now is wrong with this memory."""
    old = card.values.get("ecc.ecc_uncorrected_aggregate")
    now = card.values.get("ecc.ecc_uncorrected_volatile")
    trouble = {"ecc.uncorrected", "remap.failure", "remap.pending", "remap.rows_used"}
    if not isinstance(old, int) or old <= 0 or now not in (0, None) or trouble & known:
        return
    rows = card.values.get("ecc.remap_uncorrectable")
    remapped = ", already remapped" if rows else ""
    since = ", none since the driver was loaded" if now == 0 else ""
    yield add(
        gpu_rules.HISTORY,
        f"{old} old uncorrected memory error{'s' * (old != 1)}{remapped}{since}: nothing to do",
        card.lines.get("ecc_uncorrected_aggregate", ""), card.lines.get("remap_uncorrectable", ""),
        value=old,
    )  # fmt: skip


def active_reasons(card: Card) -> int:
    """The reason bits, also those of a frozen card."""
    bits = card.values.get("gpu.reasons", card.shown.get("may_be_frozen", {}).get("reasons"))
    return bits if isinstance(bits, int) else 0


def clock_share(card: Card) -> float | None:
    """SM clock over its maximum."""
    clock, top = (card.values.get(f"gpu.sm_clock{m}_mhz") for m in ("", "_max"))
    if not isinstance(clock, int) or not isinstance(top, int) or top <= 0:
        return None
    return clock / top


def place_of(card: Card) -> str:
    """Its address without a zero domain, as people say it."""
    return cells.short(card.pci) if card.pci else card.uuid
