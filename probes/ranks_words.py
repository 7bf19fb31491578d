"""Ranks, counts and reasons as an operator reads them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from probes.facts import NodeFacts
from probes.ranks import Polls, Rank
from probes.ranks_motion import Verdict

WORDS_MOST = 4
"""Ranks and nodes named in one line."""


def names(ranks: Sequence[Rank], facts: NodeFacts, polls: Polls) -> str:
    """ "rank 17 (gpu003 GPU1, pid 48212)", "ranks 8, 9, 10, 11 and 4 more (gpu002)"."""
    node = polls.node_of(ranks[0]) or ranks[0].host or "an unknown host"
    where = node if node == facts.node.name else f"{node}, not in this inventory"
    if len(ranks) == 1:
        one = ranks[0]
        gpu = f" GPU{one.gpu}" if one.gpu is not None else ""
        pid = f", pid {one.pid}" if one.pid is not None else ""
        return f"rank {one.rank} ({where}{gpu}{pid})"
    shown = ", ".join(str(rank.rank) for rank in ranks[:WORDS_MOST])
    more = f" and {len(ranks) - WORDS_MOST} more" if len(ranks) > WORDS_MOST else ""
    return f"ranks {shown}{more} ({where})"


def counts(verdict: Verdict) -> str:
    """How far the ranks are."""
    view = verdict.view
    pace = f", {verdict.per_s:.3g} collectives/s" if verdict.per_s else ""
    if view.mid is None:
        return f"{view.missing} of {view.size} ranks do not answer; the others' counts are equal"
    kinds = "collectives" if view.basis == "all" else view.basis
    if view.low == view.high:
        return f"all of {view.seen} ranks have launched {view.mid} {kinds}{pace}"
    return (
        f"{view.behind} of {view.seen} ranks are below {view.mid} {kinds}, the lowest at "
        f"{view.low}{pace}"
    )


def _is(ranks: Sequence[Rank]) -> str:
    return "are" if len(ranks) > 1 else "is"


def one_in(chance: float) -> str:
    return f"{min(1e9, 1 / chance) if chance > 0 else 1e9:,.0f}"


def span(seconds: float) -> str:
    """ "40 s", "25 min", "3 h"."""
    if seconds < 300:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def why(verdict: Verdict, ranks: Sequence[Rank], facts: NodeFacts, polls: Polls) -> str:
    if not ranks:
        if verdict.view.low != verdict.view.high:
            return f"{verdict.view.behind} of {verdict.view.seen} ranks are behind the others"
        return "all ranks have launched the same collectives and none goes on"
    named = names(ranks, facts, polls)
    one = ranks[0]
    if one.lost == "dead":
        return f"{named} {_is(ranks)} dead, says NCCL; the others wait"
    if one.lost:
        return f"{named} {'do' if len(ranks) > 1 else 'does'} not answer NCCL; the others wait"
    if one.error:
        return f"{named} reported an error (ncclResult {one.error}); the others wait"
    lag = (verdict.view.mid or 0) - (one.count or 0)
    return f"{named} {_is(ranks)} {lag} behind; the others wait for it"


def cause(verdict: Verdict, ranks: Sequence[Rank], at_work: str = "") -> str:
    """`at_work`: what the process of the first rank does meanwhile; "" if it only waits."""
    if not ranks:
        return (
            "a collective does not finish on any rank: a link, switch or GPU that fails without a "
            "word, or ranks that call different collectives"
        )
    if ranks[0].lost == "dead":
        return "the process ended or its node is gone; NCCL's collectives wait for it for ever"
    if at_work and not any(rank.lost or rank.error for rank in ranks):
        return (
            f"its process {at_work}: a checkpoint, data loading or compiling, after which the job "
            "goes on by itself; or it has left the program's path and the others wait for ever"
        )
    return ""


def filled(step: str, ranks: Sequence[Rank], facts: NodeFacts) -> str:
    """A next step with the process and node that it is about, ready to be copied."""
    step = step.replace("NODE", facts.node.name)
    pids = [str(rank.pid) for rank in ranks if rank.pid is not None]
    return step.replace("--pid PID", f"--pid {pids[0]}") if len(pids) == 1 else step
