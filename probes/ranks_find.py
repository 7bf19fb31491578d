"""Findings about jobs that stand or wait: who holds them up, and that the others do not. Pure.

A finding stands at the suspect's node and names the rank, GPU and process. The nodes that only
wait get none: they are named as not at fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from probes.event import Finding, Row, Severity
from probes.expect import Peers
from probes.facts import NodeFacts
from probes.ranks import Polls, Rank
from probes.ranks_motion import FEW, Limits, Motion, Verdict, verdicts
from probes.ranks_rules import HANG, LATE_RANK
from probes.ranks_words import WORDS_MOST, cause, counts, names, one_in, span, why
from probes.reading import number
from probes.rule import Look
from probes.rules import Rules

FROZEN_S = 60.0
"""A suspect whose main thread has not run for so long does not compute."""
STUCK_STATES = "DTtZX"
"""Uninterruptible, stopped, traced, dead."""
WORD_BYTES = 4
"""port_xmit_data counts 4-byte words (IBTA PortCounters)."""


class Member(Struct, frozen=True):
    """A process of the job on a GPU."""

    facts: NodeFacts
    row: Row

    @property
    def device(self) -> str:
        """Its GPU's address."""
        return str(self.row.get("gpu", ""))

    @property
    def label(self) -> str:
        """GPU3."""
        return self.facts.gpu_label(self.device)


class Scene(Struct, frozen=True, kw_only=True):
    """One job: what is said of it, and what its nodes show."""

    verdict: Verdict
    members: tuple[Member, ...]
    rules: Rules
    now: float

    @property
    def name(self) -> str:
        """ "job 48211", "a job"."""
        return f"job {self.verdict.job}" if self.verdict.job else "a job"

    def nodes(self) -> list[NodeFacts]:
        """Its nodes, each once."""
        return list({member.facts.node.name: member.facts for member in self.members}.values())


def in_steps(
    all_facts: Iterable[NodeFacts], rules: Rules, now: float, polls: Polls
) -> Iterator[Finding | None]:
    """Findings about every job; None after each piece of work of about one node."""
    told = [v for v in verdicts(polls, Limits.of(rules), now) if v.motion in _TOLD]
    if not told:
        return
    facts = {one.node.name: one for one in all_facts}
    members: dict[str, list[Member]] = {}
    for one in facts.values():
        for row in _processes(one):
            members.setdefault(str(row.get("job") or f"\0{one.node.name}"), []).append(
                Member(one, row)
            )
        yield None
    for verdict in told:
        key = verdict.job or f"\0{verdict.view.asker}"
        scene = Scene(
            verdict=verdict, members=tuple(members.get(key, ())), rules=rules, now=now
        )  # fmt: skip
        yield from (
            _hang(scene, facts, polls)
            if verdict.motion is not Motion.LATE
            else _late(scene, facts, polls)
        )
        yield None


_TOLD = (Motion.LATE, Motion.STILL, Motion.SILENT)


def _processes(facts: NodeFacts) -> list[Row]:
    sample = facts.get("processes")
    return [] if sample is None else [row for row in sample.rows if row.get("alive") is not False]


# ------------------------------------------------------------------ a job that stands


def _hang(scene: Scene, facts: Mapping[str, NodeFacts], polls: Polls) -> Iterator[Finding]:
    verdict, limit = scene.verdict, scene.rules.limit
    spinning, total = spins(scene)
    share = spinning / total if total else None
    enough = limit("ranks.spinning_share").value
    waits = share is not None and share >= enough
    counted = verdict.motion is Motion.STILL and verdict.view.mid is not None
    if not (waits or counted) or _traffic(scene) >= limit("ranks.quiet_gb_s").value:
        return
    few = verdict.view.behind <= max(1.0, FEW * verdict.view.seen)
    by_node = _by_node(verdict.suspects if few else (), facts, polls, verdict.view.asker)
    if not by_node:
        by_node = {verdict.view.asker: []} if verdict.view.asker in facts else {}
    blamed = [name for name, ranks in by_node.items() if ranks]
    for name, ranks in by_node.items():
        yield _hang_at(scene, facts[name], ranks, blamed, (spinning, total), polls)


def _hang_at(
    scene: Scene, facts: NodeFacts, ranks: Sequence[Rank], blamed: Sequence[str],
    spinning: tuple[int, int], polls: Polls,
) -> Finding:  # fmt: skip
    verdict, limit = scene.verdict, scene.rules.limit("ranks.still_s")
    stuck = [words for rank in ranks if (words := _state(scene, facts, rank))]
    sure = verdict.still_s >= scene.rules.limit("ranks.hang_s").value or any(
        rank.lost == "dead" or rank.error or _is_stuck(scene, facts, rank) for rank in ranks
    )
    stands = f"{scene.name} stands for {span(verdict.still_s)}"
    shown = _member(scene, facts, ranks[0]) if len(ranks) == 1 else None
    evidence = [counts(verdict), *stuck, *_waiting(spinning), *_not_these(scene, blamed)]
    evidence += [] if verdict.view.seen >= verdict.view.size else [f"{verdict.seen}"]
    return HANG.finding(
        Look(facts, Peers(role=facts.node.role), scene.rules, scene.now),
        f"{stands}: {why(verdict, ranks, facts, polls)}", tuple(evidence),
        device=shown.device if shown else "", label=shown.label if shown else "",
        severity=None if sure else Severity.WARN, value=round(verdict.still_s), limit=limit,
        cause=cause(verdict, ranks),
        next_step="" if ranks else "look for a failing link or GPU on any of its nodes: NCCL_DEBUG "
        "lines, InfiniBand and NVLink findings; py-spy dump --nonblocking on two ranks",
    )  # fmt: skip


def _state(scene: Scene, facts: NodeFacts, rank: Rank) -> str:
    """What the kernel says of a suspect's process; "" when it is not known."""
    member = _member(scene, facts, rank)
    if member is None:
        return ""
    row, parts = member.row, [f"rank {rank.rank}: pid {member.row.get('pid')}"]
    parts += [str(row["command"])] if row.get("command") else []
    parts += [f"state {row['state']}"] if row.get("state") else []
    parts += [f"in {row['wchan']}"] if row.get("wchan") else []
    still = number(row.get("still_s"))
    parts += [f"has not run for {span(still)}"] if still else []
    values = facts.get("gpu", member.device)
    if values is not None and number(values.values.get("util_percent")) is not None:
        parts.append(f"{member.label} at {number(values.values['util_percent']):.0f} %")
        power = number(values.values.get("power_w"))
        parts += [f"{power:.0f} W"] if power is not None else []
    return ", ".join(parts)


def _is_stuck(scene: Scene, facts: NodeFacts, rank: Rank) -> bool:
    """Its process is gone, stopped, or has not run for long."""
    member = _member(scene, facts, rank)
    if member is None:
        return False
    row = member.row
    frozen = (number(row.get("still_s")) or 0.0) >= FROZEN_S
    return frozen or str(row.get("state", "R"))[:1] in STUCK_STATES


def _traffic(scene: Scene) -> float:
    """GB/s of the busiest node of the job on InfiniBand; 0 where none is known."""
    return max((_sent_gb_s(facts) for facts in scene.nodes()), default=0.0)


def _sent_gb_s(facts: NodeFacts) -> float:
    words = 0.0
    for device, _ in facts.devices("infiniband"):
        rates = facts.rates.get(("infiniband", device))
        words += (rates.per_s("port_xmit_data") or 0.0) if rates is not None else 0.0
    return words * WORD_BYTES / 1e9


def spins(scene: Scene) -> tuple[int, int]:
    """(GPUs of the job at full utilisation and little power, all whose readings are known)."""
    limit = scene.rules.limit
    util_most = limit("straggler.waits_util_percent").value
    power_most, idle = limit("straggler.waits_power").value, limit("straggler.idle_power").value
    known = spinning = 0
    places = {(m.facts.node.name, m.device): m.facts for m in scene.members}
    for (_, device), facts in places.items():
        sample = facts.get("gpu", device)
        values = {} if sample is None else sample.values
        util, power = number(values.get("util_percent")), number(values.get("power_w"))
        most = number(values.get("power_limit_w"))
        if util is None or power is None or not most or most <= 0:
            continue
        known += 1
        share = (power / most - idle) / (1 - idle)
        spinning += util >= util_most and share < power_most
    return spinning, known


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
        member = _member(scene, facts[name], here[0]) if len(here) == 1 else None
        evidence = [
            f"behind in {first.hits} of {first.looks} looks, now {first.lag} of "
            f"{verdict.view.mid} collectives; by chance: less than 1 in {one_in(verdict.chance)}",
            counts(verdict), *filter(None, (_state(scene, facts[name], r) for r in here)),
            *_waiting(spinning), *_not_these(scene, list(by_node)),
        ]  # fmt: skip
        if verdict.view.basis != "all":
            evidence.append("NCCL before 2.28.7 tells counts only in looks where ranks differ")
        if not waits:
            evidence.append("the GPUs do not wait: it may cost the job nothing")
        yield LATE_RANK.finding(
            Look(facts[name], Peers(role=facts[name].node.role), scene.rules, scene.now),
            f"{scene.name} waits for {names(here, facts[name], polls)}: behind in {first.hits} of "
            f"{first.looks} looks, not this node's peers", tuple(evidence),
            device=member.device if member else "", label=member.label if member else "",
            severity=None if waits else Severity.INFO, value=first.lag,
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


def _member(scene: Scene, facts: NodeFacts, rank: Rank) -> Member | None:
    """Its process on this node, by process id inside or outside its container, or by GPU."""
    here = [m for m in scene.members if m.facts is facts]
    for name in ("pid", "inner_pid"):
        mine = [m for m in here if rank.pid is not None and m.row.get(name) == rank.pid]
        if len(mine) == 1:
            return mine[0]
    mine = [m for m in here if rank.gpu is not None and m.label == f"GPU{rank.gpu}"]
    return mine[0] if len(mine) == 1 else None


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
