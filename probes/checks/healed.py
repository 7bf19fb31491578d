"""Which latched findings a reset has ended: the reading that showed the fault shows it no more.

Silence is no proof. A GPU that stopped answering has no pending remap either, so each rule asks
for its own reading, taken after the fault was last seen. What only the kernel log told stays until
reboot, acknowledgement or age: the line is still there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from probes.event import Finding, Sample
from probes.facts import NodeFacts
from probes.reading import whole

_Proof: TypeAlias = Callable[[NodeFacts, Finding, float], bool]


def healed(facts: NodeFacts, finding: Finding, since: float) -> bool:
    """Whether readings after `since` (epoch seconds) show that a reset ended this finding."""
    proof = PROOFS.get(finding.rule)
    return proof is not None and proof(facts, finding, since)


def _newer(facts: NodeFacts, probe: str, device: str, since: float) -> Sample | None:
    """The latest answer without error, when it was taken after `since`."""
    sample = facts.get(probe, device)
    if sample is None or not sample.at > since or "nvml_rc" in sample.values:
        return None
    return sample


def _answers(facts: NodeFacts, finding: Finding, since: float) -> bool:
    """The GPU answers all calls again."""
    return _newer(facts, "gpu", finding.device, since) is not None


def _same_card(facts: NodeFacts, finding: Finding, since: float) -> bool:
    """The GPU answers again and is the card that was there before."""
    card = _newer(facts, "inventory", finding.device, since)
    known = facts.uuids.get(finding.device)
    if card is None or known is None or card.values.get("uuid") != known:
        return False
    return _answers(facts, finding, since)


def _not_pending(facts: NodeFacts, finding: Finding, since: float) -> bool:
    """The flag is off and the rows are counted as before."""
    sample = _newer(facts, "ecc", finding.device, since)
    if sample is None or sample.values.get("remap_pending") is not False:
        return False
    return whole(sample.values.get("remap_uncorrectable")) is not None


def _no_page_waits(facts: NodeFacts, finding: Finding, since: float) -> bool:
    sample = _newer(facts, "ecc", finding.device, since)
    return sample is not None and sample.values.get("retired_pending") is False


def _fell(facts: NodeFacts, finding: Finding, since: float) -> bool:
    """Volatile counters only fall when the driver or the GPU starts anew."""
    sample = _newer(facts, "ecc", finding.device, since)
    number = None if sample is None else whole(sample.values.get("ecc_uncorrected_volatile"))
    before = whole(finding.value)
    return number is not None and before is not None and number < before


def _no_advice(facts: NodeFacts, finding: Finding, since: float) -> bool:
    sample = _newer(facts, "ecc", finding.device, since)
    return sample is not None and whole(sample.values.get("recovery_action")) == 0


def _all_there(facts: NodeFacts, finding: Finding, since: float) -> bool:
    node = _newer(facts, "inventory", "", since)
    number = None if node is None else whole(node.values.get("gpu_count"))
    before = whole(finding.value)
    return number is not None and before is not None and number > before


def _on_bus(facts: NodeFacts, finding: Finding, since: float) -> bool:
    node = _newer(facts, "inventory", "", since)
    rows = () if node is None else node.rows
    return any(r.get("pci") == finding.device and r.get("config_ok") is True for r in rows)


PROOFS: dict[str, _Proof] = {
    "gpu.lost": _same_card,
    "gpu.gone": _same_card,
    "gpu.reset_required": _answers,
    "gpu.count": _all_there,
    "gpu.config_space": _on_bus,
    "gpu.recovery_action": _no_advice,
    "driver.init_failed": _answers,
    "ecc.uncorrected": _fell,
    "remap.pending": _not_pending,
    "pages.pending": _no_page_waits,
}
"""Rules that declare clears="reset", and what proves one."""
