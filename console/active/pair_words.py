"""Sentences of the pairs level: what an operator reads at 3 a.m. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from console.active import expect
from console.active.pair_view import Edge, View, measured
from console.active.results import Progress, Run
from inventory.expressions import fold

SHOWN = 6
"""Lines of evidence per verdict; the runs hold the rest."""
ERROR_CHARS = 240
"""Of an error in a line: names, rank and what NCCL said, in three lines of a terminal."""
SOFTWARE = re.compile(
    r"no such file|not found|cannot be started|permission denied|exit status 12[67]\b"
    r"|modulenotfound|importerror|not set for this node",
    re.IGNORECASE,
)
"""Errors that say something of what is installed, and nothing of the hardware."""
NO_RUN = "its NIC, cable, subnet manager entry, firewall or a hanging driver"
SLOW_NICS = "its NICs, their cables or PCIe slots: the node is slow with everybody"
ONE_OF = "one of the two nodes, or their path"
GENERAL = (NO_RUN, SLOW_NICS, ONE_OF)
"""Causes that fit any node; what is known of this one says more."""


def gb_s(value: float) -> str:
    """Three digits are what a single run is worth."""
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def figure(run: Run) -> str:
    """ "41 GB/s", "timed out", "failed: unhandled system error"."""
    if measured(run):
        return f"{gb_s(run.busbw_gb_s or 0.0)} GB/s"
    if run.state is Progress.TIMED_OUT:
        return "timed out"
    return f"failed: {cut(run.error, ERROR_CHARS)}" if run.error else "failed without a word"


def cut(text: str, chars: int) -> str:
    """At most so many characters; what is left out begins at a word, and an ellipsis says so."""
    if len(text) <= chars:
        return text
    kept = text[: chars - 1]
    whole = kept if text[chars - 1] == " " else kept.rpartition(" ")[0]
    # One long word, as of a path, is cut where it has to be.
    return (whole if 2 * len(whole) > chars else kept).rstrip(" ,;:") + "…"


def met(view: View, node: str, edge: Edge) -> str:
    """One run as evidence, with what its partner reaches with somebody else."""
    partner = edge.other(node)
    text = f"round {edge.round} with {partner}: {figure(edge.run)}"
    best = max(
        (e for p, es in view.met[partner].items() if p != node for e in es),
        key=lambda e: e.share,
        default=None,
    )
    if best is None or not best.share:
        return f"{text} ({partner} was not fast with anybody else)"
    return f"{text} ({partner} with {best.other(partner)}: {figure(best.run)})"


def evidence(view: View, node: str, partners: Iterable[str]) -> tuple[str, ...]:
    """The runs with these partners, in order of rounds, then what was said in them."""
    edges = sorted((e for p in partners for e in view.met[node][p]), key=lambda e: e.round)
    lines = [met(view, node, edge) for edge in edges[:SHOWN]]
    if len(edges) > SHOWN:
        lines.append(f"and {len(edges) - SHOWN} more runs")
    return (*lines, *clues([edge.run for edge in edges]))


def clues(runs: Sequence[Run]) -> tuple[str, ...]:
    """What NCCL said of most of these runs."""
    said = dict.fromkeys(clue for run in runs for clue in run.clues)
    return tuple(c for c in said if sum(c in run.clues for run in runs) * 2 > len(runs))


def failed_only(edges: Sequence[Edge]) -> bool:
    """Whether none of them has a figure."""
    return bool(edges) and not any(measured(edge.run) for edge in edges)


def software(edges: Sequence[Edge]) -> bool:
    """Whether all failed by what is installed."""
    return failed_only(edges) and all(SOFTWARE.search(edge.run.error) for edge in edges)


def cause_of_node(view: View, node: str, edges: Sequence[Edge], alone: str) -> str:
    """The likeliest first."""
    if software(edges):
        return "the test cannot be started there: software, not hardware"
    reasons = [
        alone,
        expect.lacks(view.expected, node, view.capacity.get(node)),
        "; ".join(clues([e.run for e in edges])),
        view.expected.hard.get((node, ""), ""),
    ]
    told = "; ".join(reason for reason in reasons if reason)
    if told:
        return told
    if failed_only(edges):
        return NO_RUN
    return SLOW_NICS


def next_of_node(node: str, edges: Sequence[Edge], alone: str) -> str:
    """One step."""
    if software(edges):
        return f"make the test start on {node}, then test again"
    if alone:
        return f"drain {node}; look at its NVLink, GPU and thermal findings first"
    return (
        f"drain {node}; look at its ib and pcie findings, then "
        f"`gpuconsole test --level rails` with a few good nodes names the NIC"
    )


def hosts(nodes: Iterable[str]) -> str:
    """Folded."""
    return fold(nodes)
