"""What is known of a node beside the test: its findings as evidence of a verdict, and cause. Pure.

A verdict comes from figures alone. That the same node has a hot GPU or a flapping port is not
counted for or against it, it is told: who reads the verdict shall not look for it elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import structs

from console.active.pair_words import GENERAL
from console.active.results import Level, Verdict
from console.active.solo import CAUSES
from probes.event import Finding, Severity
from probes.sanitise import clean

BAD = (Severity.WARN, Severity.CRITICAL)
TEST = ("gpu_test", "nccl")
"""Findings made of the same figures are no second word."""
NETWORK = ("ib", "roce", "fabric", "congestion", "gdr", "kernel_log.mlx5")
SPEED = (
    "thermal", "power", "clocks", "straggler", "xid", "sxid", "ecc", "remap", "pages", "nvlink",
    "gpu", "pcie", "c2c", "driver",
)  # fmt: skip
"""What makes a GPU, and with it every collective of its node, slow."""
SHOWN, CAUSES_SHOWN = 4, 2
CHARS = 200


def told(
    level: Level, verdicts: Sequence[Verdict], findings: Mapping[str, Sequence[Finding]]
) -> tuple[Verdict, ...]:
    """The same verdicts; those of a node, GPU or path with what is known of it now."""
    return tuple(_told(level, verdict, findings) for verdict in verdicts)


def _told(
    level: Level, verdict: Verdict, findings: Mapping[str, Sequence[Finding]]
) -> Verdict:  # fmt: skip
    if verdict.kind not in ("node", "gpu", "path"):
        return verdict
    known = [f for node in verdict.nodes for f in findings.get(node, ()) if _about(verdict, f)]
    known.sort(key=lambda f: (_place(level, verdict, f), -f.severity.rank, f.rule, f.device))
    lines = tuple(f"also: {_line(verdict, f)} ({f.rule})" for f in known[:SHOWN])
    if len(known) > SHOWN:
        lines += (f"also: {len(known) - SHOWN} more findings",)
    verdict = structs.replace(verdict, evidence=(*verdict.evidence, *lines))
    first = [f for f in known if _place(level, verdict, f) < _LAST]
    return _explained(verdict, first) if first and verdict.verdict in BAD else verdict


def _about(verdict: Verdict, finding: Finding) -> bool:
    """Whether it is of this thing and not told already."""
    if finding.severity not in BAD or _domain(finding) in TEST:
        return False
    if any(finding.say in line for line in verdict.evidence):
        return False
    if verdict.kind != "gpu" or not finding.device:
        return True
    gpu = verdict.name.partition(" ")[2]
    return finding.label == gpu or finding.label.startswith(f"{gpu} ")


def _domain(finding: Finding) -> str:
    return finding.rule if finding.rule in NETWORK else finding.rule.partition(".")[0]


_LAST = 2


def _place(level: Level, verdict: Verdict, finding: Finding) -> int:
    """0 for what explains best; _LAST for what explains nothing."""
    alone = level in (Level.GPU, Level.NODE)
    if _domain(finding) in NETWORK:
        return _LAST if alone else 0
    if _domain(finding) in SPEED:
        return _LAST if verdict.kind == "path" else 0 if alone else 1
    return _LAST


def _line(verdict: Verdict, finding: Finding) -> str:
    node = f"{finding.node} " if len(verdict.nodes) > 1 else ""
    label = f"{finding.label}: " if finding.label and finding.label not in finding.say else ""
    return clean(f"{node}{label}{finding.say}", CHARS)


def _explained(verdict: Verdict, known: Sequence[Finding]) -> Verdict:
    """With the likeliest finding as cause, in place of a cause that fits any node."""
    lines = [_line(verdict, f) for f in known[:CAUSES_SHOWN]]
    general = verdict.cause in (*GENERAL, *CAUSES.values())
    said = [] if general or not verdict.cause else [verdict.cause]
    step = verdict.next_step
    if general and known[0].next_step:
        drain = f"drain {verdict.nodes[0]}; " if verdict.drains else ""
        step = clean(drain + _bare(known[0].next_step), 2 * CHARS)
    return structs.replace(verdict, cause="; ".join([*said, *lines]), next_step=step)


def _bare(step: str) -> str:
    """The step without its own "drain; "."""
    return step.removeprefix("drain; ").removeprefix("drain, ")
