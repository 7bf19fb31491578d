"""Which nodes the error of a failed collective names. Pure; the error is a node's hostile text.

A name is a suspicion: the first rank that is seen to fail may have died of another one's death.
So what is named is left out, and then tried with known-good partners.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable

from console.active.pair_view import measured
from console.active.results import Progress, Run
from inventory.expressions import fold

LEAVES = 3
"""How often a test goes on without somebody; beyond it the fault is none of single nodes."""
MOST_SHARE = 0.5
"""An error that names more of the group than this tells nobody apart."""
HELP = 4
"""Good nodes, at least, with which a suspect is tried."""
_RANK = re.compile(r"\brank \d+ \(([^\s,()]+)")
_REPORTER = re.compile(r"^([^\s:]+): (?=.)")
_WORD = re.compile(r"[\w.-]+")


def blamed(run: Run) -> tuple[str, ...]:
    """Nodes of the group that its error names, in the group's order; () for a run with a figure.

    "gpu012: rank 4 (gpu005, local rank 0) failed": gpu012 reports, gpu005 is named. Who reports is
    named itself when no other is, unless it only waited until the time was over.
    """
    if measured(run):
        return ()
    ranks = _within(run, _RANK.findall(run.error))
    if ranks:
        return _few(run, ranks)
    reporter = _REPORTER.match(run.error)
    words = _within(run, _WORD.findall(reported(run.error)))
    if words or reporter is None or run.state is Progress.TIMED_OUT:
        return _few(run, words)
    return _few(run, _within(run, [reporter[1]]))


def reported(error: str) -> str:
    """The error without who reported it."""
    return _REPORTER.sub("", error, count=1)


def _within(run: Run, words: Iterable[str]) -> set[str]:
    """Names of the group among these words; "gpu005.example.org" and "gpu005." are gpu005 too."""
    bare = [word.strip(".-") for word in words]
    return set(run.group.nodes) & {*bare, *(word.partition(".")[0] for word in bare)}


def _few(run: Run, found: Collection[str]) -> tuple[str, ...]:
    nodes = run.group.nodes
    if len(found) > 1 and len(found) > MOST_SHARE * len(nodes):
        return ()
    return tuple(node for node in nodes if node in found)


def pairs_of(nodes: Iterable[str]) -> str:
    """The command that tells these nodes apart."""
    return f"`gpuconsole test {shlex.quote(fold(nodes))} --level pairs`"
