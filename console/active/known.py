"""What is known of a node beside the test: its findings as evidence of a verdict, and cause. Pure.

A verdict comes from figures alone. That the same node has a hot GPU or a flapping port is not
counted for or against it, it is told: who reads the verdict shall not look for it elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import structs

from console.active.pair_words import GENERAL
from console.active.results import Confidence, Level, Verdict
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
    known = [_told(level, verdict, findings) for verdict in verdicts]
    return tuple(_never_bare(known, findings))


def _never_bare(
    verdicts: Sequence[Verdict], findings: Mapping[str, Sequence[Finding]]
) -> list[Verdict]:
    """A node that is critical now is not just fine, whatever this test could see of it."""
    found = list(verdicts)
    for node, of_node in findings.items():
        worst = [f for f in of_node if f.severity is Severity.CRITICAL]
        about = [v for v in found if v.kind in ("node", "gpu") and node in v.nodes]
        if worst and about and all(v.verdict is Severity.OK for v in about):
            whole = [v for v in about if v.kind == "node"]
            found = [v for v in found if v not in whole]
            found.append(_but(whole[0] if whole else None, node, worst))
    return found


def _but(verdict: Verdict | None, node: str, worst: Sequence[Finding]) -> Verdict:
    """What the test said, and what speaks against it."""
    of_test = verdict or Verdict(
        kind="node", name=node, nodes=(node,), verdict=Severity.OK, say=f"{node}: all figures",
        confidence=Confidence.LIKELY, evidence=tuple(_also(f) for f in worst[:SHOWN]),
    )  # fmt: skip
    line = _line(of_test, worst[0])
    return structs.replace(
        of_test, verdict=Severity.WARN, confidence=Confidence.LIKELY, cause=line,
        say=f"{of_test.say}: ok in this test; but: {line}",
        evidence=of_test.evidence or tuple(_also(f) for f in worst[:SHOWN]),
        next_step=clean(worst[0].next_step, 2 * CHARS) or f"see the findings of {node}",
    )  # fmt: skip


def _also(finding: Finding) -> str:
    label = f"{finding.label}: " if finding.label and finding.label not in finding.say else ""
    return clean(f"also: {label}{finding.say} ({finding.rule})", CHARS)


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
