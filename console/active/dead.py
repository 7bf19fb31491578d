"""Verdicts on nodes that an error of a failed run names, while nothing else is known. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from console.active import pair_words
from console.active.blame import pairs_of, reported
from console.active.results import Confidence, Progress, Run, Verdict
from probes.event import Severity

LEFT_OUT = "a suspect that was left out and tried with good ones"


def is_suspect(run: Run) -> bool:
    """Whether the failure may be of hardware: neither refused nor lacking software."""
    return run.state is not Progress.REFUSED and not pair_words.SOFTWARE.search(run.error)


def suspected(node: str, run: Run, line: str, good: Sequence[str]) -> Verdict:
    """An error names it and nobody else tried it; `line` is the evidence, `good` may try it."""
    return Verdict(
        kind="node", name=node, nodes=(node,), verdict=Severity.WARN,
        confidence=Confidence.SUSPECTED, say=f"{node}: its rank fails: {why(run)}",
        evidence=(line,), cause=pair_words.NO_RUN,
        next_step=f"{pairs_of([node, *good])} tells whether it is this node", provenance=LEFT_OUT,
    )  # fmt: skip


def left_out(node: str, run: Run) -> Verdict:
    """It takes no part, which is no fault of its hardware."""
    refused = run.state is Progress.REFUSED
    return Verdict(
        kind="node", name=node, nodes=(node,), verdict=Severity.UNKNOWN,
        confidence=Confidence.LIKELY, say=f"{node}: left out: {why(run)}",
        cause="" if refused else "the test cannot be started there: software, not hardware",
        next_step="" if refused else f"make the test start on {node}, then test again",
    )  # fmt: skip


def why(run: Run) -> str:
    """What failed, without who reported it."""
    said = pair_words.cut(reported(run.error), pair_words.ERROR_CHARS)
    return said or run.state.value
