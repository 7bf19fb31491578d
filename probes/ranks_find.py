"""Findings about jobs that stand or wait: who holds them up, and that the others do not. Pure.

A finding stands at the suspect's node and names the rank, GPU and process. The nodes that only
wait get none: they are named as not at fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from probes.event import Finding, Severity
from probes.expect import Peers
from probes.facts import NodeFacts
from probes.ranks import Polls, Rank
from probes.ranks_motion import FEW, Limits, Motion, verdicts
from probes.ranks_rules import HANG, LATE_RANK
from probes.ranks_scene import (
    History,
    Member,
    Scene,
    is_over,
    is_stuck,
    member_of,
    no_history,
    processes,
    spins,
    state_of,
    step_of,
    traffic_gb_s,
    works,
)  # fmt: skip
from probes.ranks_words import WORDS_MOST, cause, counts, filled, names, one_in, span, why
from probes.rule import Look
from probes.rules import Rules


def in_steps(
    all_facts: Iterable[NodeFacts],
    rules: Rules,
    now: float,
    polls: Polls,
    history: History = no_history,
) -> Iterator[Finding | None]:
    """Findings about every job; None after each piece of work of about one node."""
    told = [v for v in verdicts(polls, Limits.of(rules), now) if v.motion in _TOLD]
    if not told:
        return
    facts = {one.node.name: one for one in all_facts}
    members: dict[str, list[Member]] = {}
    for one in facts.values():
        for row in processes(one):
            members.setdefault(str(row.get("job") or f"\0{one.node.name}"), []).append(
                Member(one, row)
            )
        yield None
    for verdict in told:
        key = verdict.job or f"\0{verdict.view.asker}"
        mine = tuple(members.get(key, ()))
        scene = Scene(verdict=verdict, members=mine, rules=rules, now=now, history=history)
        yield from (
            _hang(scene, facts, polls)
            if verdict.motion is not Motion.LATE
            else _late(scene, facts, polls)
        )
        yield None


_TOLD = (Motion.LATE, Motion.STILL, Motion.SILENT)


# ------------------------------------------------------------------ a job that stands


def _hang(scene: Scene, facts: Mapping[str, NodeFacts], polls: Polls) -> Iterator[Finding]:
    verdict, limit = scene.verdict, scene.rules.limit
    spinning, total = spins(scene)
    share = spinning / total if total else None
    enough = limit("ranks.spinning_share").value
    waits = share is not None and share >= enough
    counted = verdict.motion is Motion.STILL and verdict.view.mid is not None
    if not (waits or counted) or traffic_gb_s(scene) >= limit("ranks.quiet_gb_s").value:
        return
    if is_over(scene, facts.get(verdict.view.asker)):
        return
    gone = verdict.view.missing > FEW * verdict.view.size
    if gone and share is not None and not waits:
        return  # most ranks have left and nobody waits for them: it ends
    few = verdict.view.behind <= max(1.0, FEW * verdict.view.seen)
    by_node = _by_node(verdict.suspects if few else (), facts, polls, verdict.view.asker)
    if not by_node:
        by_node = {verdict.view.asker: []} if verdict.view.asker in facts else {}
    blamed = [name for name, ranks in by_node.items() if ranks]
    for name, ranks in by_node.items():
        yield _hang_at(scene, facts[name], ranks, blamed, (spinning, total), polls)


_NOBODY_NEXT = (
    "look for a failing link or GPU on any of its nodes: NCCL_DEBUG lines, InfiniBand and NVLink "
    "findings; py-spy dump --nonblocking on two ranks"
)


def _hang_at(
    scene: Scene, facts: NodeFacts, ranks: Sequence[Rank], blamed: Sequence[str],
    spinning: tuple[int, int], polls: Polls,
) -> Finding:  # fmt: skip
    verdict, limit = scene.verdict, scene.rules.limit("ranks.still_s")
    stuck = [words for rank in ranks if (words := state_of(scene, facts, rank))]
    sure = verdict.still_s >= scene.rules.limit("ranks.hang_s").value or any(
        rank.lost == "dead" or rank.error or is_stuck(scene, facts, rank) for rank in ranks
    )
    stands = f"{scene.name} stands for {span(verdict.still_s)}"
    shown = member_of(scene, facts, ranks[0]) if len(ranks) == 1 else None
    at_work = next((does for rank in ranks if (does := works(scene, facts, rank))), "")
    evidence = [counts(verdict), *stuck, *_waiting(spinning), *_not_these(scene, blamed)]
    evidence += [f"its process {at_work}"] if at_work else []
    evidence += [] if verdict.view.seen >= verdict.view.size else [f"{verdict.seen}"]
    return HANG.finding(
        Look(facts, Peers(role=facts.node.role), scene.rules, scene.now),
        f"{stands}: {why(verdict, ranks, facts, polls)}", tuple(evidence),
        device=shown.device if shown else "", label=shown.label if shown else "",
        severity=None if sure else Severity.WARN, value=round(verdict.still_s), limit=limit,
        cause=cause(verdict, ranks, at_work),
        next_step=filled(HANG.next_step, ranks, facts) if ranks else _NOBODY_NEXT,
    )  # fmt: skip


# ------------------------------------------------------------------ a job that waits for somebody


def _late(scene: Scene, facts: Mapping[str, NodeFacts], polls: Polls) -> Iterator[Finding]:
    verdict = scene.verdict
    late = {one.rank.rank: one for one in verdict.late}
    ranks = [one.rank for one in verdict.late]
    spinning = spins(scene)
    enough = scene.rules.limit("ranks.spinning_share").value
    waits = bool(spinning[1]) and spinning[0] >= enough * spinning[1]
    by_node = _by_node(ranks, facts, polls, verdict.view.asker)
    for name, here in by_node.items():
        first = late[here[0].rank]
        member = member_of(scene, facts[name], here[0]) if len(here) == 1 else None
        evidence = [
            f"behind in {first.hits} of {first.looks} looks, now {first.lag} of "
            f"{verdict.view.mid} collectives; by chance: less than 1 in {one_in(verdict.chance)}",
            counts(verdict), *filter(None, (state_of(scene, facts[name], r) for r in here)),
            *_waiting(spinning), *_not_these(scene, list(by_node)), *step_of(scene),
        ]  # fmt: skip
        if verdict.view.basis != "all":
            evidence.append("NCCL before 2.28.7 tells counts only in looks where ranks differ")
        if not waits:
            evidence.append("the GPUs do not wait: it may cost the job nothing")
        yield LATE_RANK.finding(
            Look(facts[name], Peers(role=facts[name].node.role), scene.rules, scene.now),
            f"{scene.name} waits for {names(here, facts[name], polls)}: behind in {first.hits} of "
            f"{first.looks} looks", tuple(evidence),
            device=member.device if member else "", label=member.label if member else "",
            severity=None if waits else Severity.INFO, value=first.lag,
            next_step=filled(LATE_RANK.next_step, here, facts[name]),
        )  # fmt: skip


# ------------------------------------------------------------------ words


def _by_node(
    ranks: Iterable[Rank], facts: Mapping[str, NodeFacts], polls: Polls, asker: str
) -> dict[str, list[Rank]]:
    """Node -> its ranks; those on no known node stand at the node that asked."""
    found: dict[str, list[Rank]] = {}
    for rank in ranks:
        node = polls.node_of(rank)
        node = node if node in facts else asker
        if node in facts:
            found.setdefault(node, []).append(rank)
    return found


def _waiting(spinning: tuple[int, int]) -> list[str]:
    if not spinning[1]:
        return []
    return [f"{spinning[0]} of {spinning[1]} GPUs of the job at full utilisation and little power"]


def _not_these(scene: Scene, blamed: Sequence[str]) -> list[str]:
    """The nodes that only wait."""
    others = [f.node.name for f in scene.nodes() if f.node.name not in blamed]
    if not others or not blamed:
        return []
    more = f" and {len(others) - WORDS_MOST} more" if len(others) > WORDS_MOST else ""
    return [f"not these nodes, they wait: {', '.join(others[:WORDS_MOST])}{more}"]
