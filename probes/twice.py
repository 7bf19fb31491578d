"""One fault that two checks tell: the less telling finding becomes evidence of the other. Pure.

The kernel log says when, a reading says how things stand: where both are there, the reading speaks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from msgspec import structs

from probes.event import Finding

EVIDENCE = 8
"""Lines of a finding with another's; a screen of 24 lines shows them all."""

_Same: TypeAlias = Callable[[Finding, Finding], bool]


def _anywhere(_first: Finding, _second: Finding) -> bool:
    """Both are about the node."""
    return True


def _one_device(first: Finding, second: Finding) -> bool:
    return first.device == second.device


def _edac(_first: Finding, second: Finding) -> bool:
    """Lines about memory: EDAC counts nothing else."""
    return any("EDAC" in line for line in second.evidence)


def _server(first: Finding, second: Finding) -> bool:
    """The server of the mount that does not answer."""
    return f" from {second.device.rpartition(' ')[2]}:" in first.say


def _disk(first: Finding, second: Finding) -> bool:
    """The disk below the mount that cannot be written."""
    return f" on /dev/{second.device})" in first.say


TOLD_BY: dict[str, tuple[tuple[str, _Same], ...]] = {
    "host.hardware_error": (("host.edac_ue", _edac),),
    "host.corrected_errors": (("host.edac_ce", _edac), ("host.edac_ue", _edac)),
    "host.cpu_hot": (("host.cpu_throttle", _anywhere),),
    "nvlink.fabric": (("service.fabricmanager", _anywhere),),
    "gpu.config_space": (("gpu.lost", _one_device),),
    "storage.disk": (("disk.raid_degraded", _one_device),),
    "storage.nvme": (("nvme.dead", _one_device), ("nvme.hung", _one_device)),
    "storage.nfs": (("storage.hung", _server),),
    "storage.filesystem": (("storage.read_only", _disk),),
}
"""Rule -> rules that tell the same fault better, and when it is the same."""


def tells(first: Finding, second: Finding) -> bool:
    """Whether the first finding stands for the second one too. It is at least as severe then."""
    if first.severity.rank < second.severity.rank:
        return False
    return any(rule == first.rule and same(first, second) for rule, same in _better(second))


def _better(finding: Finding) -> tuple[tuple[str, _Same], ...]:
    return TOLD_BY.get(finding.rule, ())


def once(findings: Iterable[Finding]) -> list[Finding]:
    """The findings without those that another one tells; their lines are its evidence."""
    kept = list(findings)
    for second in [finding for finding in kept if finding.rule in TOLD_BY]:
        at = next((n for n, first in enumerate(kept) if tells(first, second)), None)
        if at is not None:
            first = kept[at]
            more = (line for line in second.evidence if line not in first.evidence)
            kept[at] = structs.replace(first, evidence=(*first.evidence, *more)[:EVIDENCE])
            kept.remove(second)
    return kept
