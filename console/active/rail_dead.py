"""What is said of nodes whose rank fails: those that a test of the rails had to leave out. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from console.active import pair_words
from console.active.blame import pairs_of, reported
from console.active.pairs import Pairs
from console.active.rail_course import Course
from console.active.results import Confidence, Progress, Run, Verdict
from probes.event import Severity

LEFT_OUT = "a suspect that was left out and tried with good ones"


def is_suspect(run: Run) -> bool:
    """Whether the failure may be of hardware: neither refused nor lacking software."""
    return run.state is not Progress.REFUSED and not pair_words.SOFTWARE.search(run.error)


def verdicts(course: Course, tried: Sequence[tuple[Pairs, list[Run]]]) -> list[Verdict]:
    """Of each node that an error named; `tried` are the pairs that ran since."""
    return [_verdict(course, node, run, tried) for node, run in course.accused.items()]


def _verdict(
    course: Course, node: str, run: Run, tried: Sequence[tuple[Pairs, list[Run]]]
) -> Verdict:
    if not is_suspect(run):
        return _no_fault(node, run)
    line = f"round {run.round} rail {run.group.rail}: {pair_words.figure(run)}"
    for pairs, mine in tried:
        if node not in course.nodes and node in pairs.nodes and mine:
            of_node = [v for v in pairs.verdicts(mine) if v.kind == "node" and v.name == node]
            if of_node and of_node[0].verdict is not Severity.UNKNOWN:
                return _tried(node, run, line, of_node[0])
    good = [n for n in course.nodes if n != node]
    return Verdict(
        kind="node", name=node, nodes=(node,), verdict=Severity.WARN,
        confidence=Confidence.SUSPECTED, say=f"{node}: its rank fails: {_why(run)}",
        evidence=(line,), cause=pair_words.NO_RUN,
        next_step=f"{pairs_of([node, *good])} tells whether it is this node", provenance=LEFT_OUT,
    )  # fmt: skip


def _no_fault(node: str, run: Run) -> Verdict:
    refused = run.state is Progress.REFUSED
    return Verdict(
        kind="node", name=node, nodes=(node,), verdict=Severity.UNKNOWN,
        confidence=Confidence.LIKELY, say=f"{node}: left out: {_why(run)}",
        cause="" if refused else "the test cannot be started there: software, not hardware",
        next_step="" if refused else f"make the test start on {node}, then test again",
    )  # fmt: skip


def _tried(node: str, run: Run, line: str, told: Verdict) -> Verdict:
    """What its pairs with good partners say, as of the failure that led to them."""
    if told.verdict is Severity.OK:
        return structs.replace(
            told, verdict=Severity.UNKNOWN, evidence=(line, *told.evidence),
            say=f"{node}: left out since an error named it, but fine in pairs on rail "
            f"{run.group.rail}; no figure for the other rails",
            next_step=f"test the rails again with {node}",
        )  # fmt: skip
    if "no run" not in told.say:  # slow, not dead
        return structs.replace(told, evidence=(line, *told.evidence))
    return structs.replace(
        told, say=f"{node}: its rank fails: {_why(run)}", evidence=(line, *told.evidence),
    )  # fmt: skip


def _why(run: Run) -> str:
    """What failed, without who reported it."""
    said = pair_words.cut(reported(run.error), pair_words.ERROR_CHARS)
    return said or run.state.value
