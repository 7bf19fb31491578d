"""What is said of nodes whose rank fails: those that a test of the rails had to leave out. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from console.active import dead, pair_words
from console.active.pairs import Pairs
from console.active.rail_course import Course
from console.active.results import Run, Verdict
from probes.event import Severity


def verdicts(course: Course, tried: Sequence[tuple[Pairs, list[Run]]]) -> list[Verdict]:
    """Of each node that an error named; `tried` are the pairs that ran since."""
    return [_verdict(course, node, run, tried) for node, run in course.accused.items()]


def _verdict(
    course: Course, node: str, run: Run, tried: Sequence[tuple[Pairs, list[Run]]]
) -> Verdict:
    if not dead.is_suspect(run):
        return dead.left_out(node, run)
    line = f"round {run.round} rail {run.group.rail}: {pair_words.figure(run)}"
    for pairs, mine in tried:
        if node not in course.nodes and node in pairs.nodes and mine:
            of_node = [v for v in pairs.verdicts(mine) if v.kind == "node" and v.name == node]
            if of_node and of_node[0].verdict is not Severity.UNKNOWN:
                return _tried(node, run, line, of_node[0])
    return dead.suspected(node, run, line, [n for n in course.nodes if n != node])


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
        told, say=f"{node}: its rank fails: {dead.why(run)}", evidence=(line, *told.evidence),
    )  # fmt: skip
