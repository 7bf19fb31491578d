"""What a paste tells of GPUs, one by one and together, for the document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from console.diagnose import nvidia_smi_fields
from console.diagnose.gpu_cards import Card
from console.diagnose.gpu_judge import active_reasons, clock_share
from console.diagnose.gpu_words import capped_cards
from probes.event import Finding


def facts_of(card: Card) -> dict[str, Any]:
    """What the text tells of one GPU; a reading that is an error is null, with NAME_error."""
    facts: dict[str, Any] = {"pci": card.pci or None, "uuid": card.uuid, "name": card.name,
                             "serial": card.serial}  # fmt: skip
    facts = {name: value for name, value in facts.items() if value != ""}
    for name, value in card.values.items():
        facts[name.partition(".")[2]] = value
    facts.update(card.shown)
    for name in card.broken:
        facts[name] = None
        facts[f"{name}_error"] = True
    bits = active_reasons(card)
    if "reasons" in facts or "gpu.reasons" in card.values:
        facts["reason_names"] = nvidia_smi_fields.reason_names(bits)
    share = clock_share(card)
    if share is not None:
        facts["sm_clock_percent"] = round(100 * share)
    return facts


def together(cards: Sequence[Card], findings: Sequence[Finding]) -> dict[str, Any]:
    """Facts about all cards of the node."""
    facts: dict[str, Any] = {}
    bits = {active_reasons(card) for card in cards if "gpu.reasons" in card.values}
    if len(bits) == 1 and len(cards) > 1:
        facts["reasons"] = nvidia_smi_fields.reason_names(bits.pop())
    shares = [round(100 * s) for card in cards if (s := clock_share(card)) is not None]
    if shares and len(cards) > 1:
        low, high = min(shares), max(shares)
        facts["sm_clock_pct"] = f"{low}-{high}" if low != high else str(low)
    low_limit = {f.device for f in findings if f.rule == "straggler.power_limit"}
    stragglers = [card for card in cards if card.device in low_limit]
    if stragglers:
        facts["normal"] = [c.index for c in capped_cards(cards) if c.device not in low_limit]
        facts["straggler"] = [
            {
                "index": card.index, "pci": card.pci,
                "enforced_limit_w": card.values.get("gpu.power_limit_w"),
                "default_limit_w": card.shown.get("power_default_w"),
                "sm_mhz": card.values.get("gpu.sm_clock_mhz"),
            } for card in stragglers
        ]  # fmt: skip
    return facts
