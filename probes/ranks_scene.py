"""One job as its nodes show it: its processes and GPUs, what they wait for, its traffic. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec import Struct

from probes.event import Row
from probes.facts import NodeFacts
from probes.ranks import Rank
from probes.ranks_motion import Verdict
from probes.ranks_words import span
from probes.reading import number
from probes.rules import Rules
from probes.steps import MEAN, step_seen

FROZEN_S = 60.0
"""A suspect whose main thread has not run for so long does not compute."""
STUCK_STATES = "TtZX"
"""Stopped, traced, dead."""
WAITS_STATE = "D"
"""Uninterruptible: stuck if it stays there, at work if it comes and goes."""
WORD_BYTES = 4
"""port_xmit_data counts 4-byte words (IBTA PortCounters)."""


History: TypeAlias = Callable[[str, str, str], Sequence[float]]
"""(node, device, metric) -> its last readings, oldest first."""


def no_history(_node: str, _device: str, _metric: str) -> Sequence[float]:
    """Where none is kept."""
    return ()


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
    history: History = no_history

    @property
    def name(self) -> str:
        """ "job 48211", "a job"."""
        return f"job {self.verdict.job}" if self.verdict.job else "a job"

    def nodes(self) -> list[NodeFacts]:
        """Its nodes, each once."""
        return list({member.facts.node.name: member.facts for member in self.members}.values())


def processes(facts: NodeFacts) -> list[Row]:
    sample = facts.get("processes")
    return [] if sample is None else [row for row in sample.rows if row.get("alive") is not False]


def member_of(scene: Scene, facts: NodeFacts, rank: Rank) -> Member | None:
    """Its process on this node, by process id inside or outside its container, or by GPU."""
    here = [m for m in scene.members if m.facts is facts]
    for name in ("pid", "inner_pid"):
        mine = [m for m in here if rank.pid is not None and m.row.get(name) == rank.pid]
        if len(mine) == 1:
            return mine[0]
    mine = [m for m in here if rank.gpu is not None and m.label == f"GPU{rank.gpu}"]
    return mine[0] if len(mine) == 1 else None


def state_of(scene: Scene, facts: NodeFacts, rank: Rank) -> str:
    """What the kernel says of a suspect's process; "" when it is not known."""
    member = member_of(scene, facts, rank)
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


def is_stuck(scene: Scene, facts: NodeFacts, rank: Rank) -> bool:
    """Its process is stopped, or has not run for long."""
    member = member_of(scene, facts, rank)
    if member is None:
        return False
    row = member.row
    frozen = (number(row.get("still_s")) or 0.0) >= FROZEN_S
    return frozen or str(row.get("state", "R"))[:1] in STUCK_STATES


def works(scene: Scene, facts: NodeFacts, rank: Rank) -> str:
    """What its process does meanwhile, if its main thread runs or waits for I/O that goes on."""
    member = member_of(scene, facts, rank)
    state = str(member.row.get("state", ""))[:1] if member is not None else ""
    if member is None or number(member.row.get("still_s")):
        return ""
    return {"R": "runs on the CPU", WAITS_STATE: "reads or writes, and goes on"}.get(state, "")


def is_over(scene: Scene, asker: NodeFacts | None) -> bool:
    """No process of the job is left on a GPU, where processes are listed at all."""
    listed = asker is not None and asker.get("processes") is not None
    return listed and not scene.members


def traffic_gb_s(scene: Scene) -> float:
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


def step_of(scene: Scene) -> list[str]:
    """How long a step takes, by the power of one of its GPUs; [] where that does not repeat."""
    for member in scene.members[:4]:
        rates = member.facts.rates.get(("gpu", member.device))
        place = member.facts.node.name, member.device
        readings, means = (scene.history(*place, metric) for metric in ("power_w", MEAN))
        found = step_seen(readings, means, rates.elapsed_s) if rates is not None else None
        if found is not None:
            whose = f"{member.facts.node.name} {member.label}"
            return [
                f"a step, or several, take {found.period_s:.3g} s: estimate from the power of "
                f"{whose}, which repeats ({found.strength:.2f})"
            ]
    return []
