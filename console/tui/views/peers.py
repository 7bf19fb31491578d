"""A completed comparison of peers as the view of stragglers lists it: groups, and who was left out.

Pure. Only what the Comparison holds of its own is read: its GPUs keep their readings while the
node's facts go on.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from probes import slow_metrics
from probes.loaded import MIG, Gpu
from probes.slow_group import Group
from probes.slow_metrics import Metric
from probes.slow_rules import NODE
from probes.slow_time import Slow
from probes.spread import Spread, below
from probes.straggler import Comparison

CLOCK = slow_metrics.ACCUSING[0]
"""What groups are drawn by: the SM clock."""
_METRICS = {metric.name: metric for metric in slow_metrics.ACCUSING}


class Why(StrEnum):
    """Why GPUs were not compared."""

    UNREAD = "unread"
    """The node does not answer, or the GPU's readings are missing or old."""
    MIG = "mig"
    IDLE = "idle"
    ALONE = "alone"
    """Under load, but too few like it: only its own maximum and past can tell."""


class Left(NamedTuple):
    """GPUs that were not compared, for one reason."""

    why: Why
    gpus: int
    names: tuple[str, ...]


class Reading(NamedTuple):
    """One reading and those it was judged by."""

    metric: Metric
    value: float
    values: tuple[float, ...]
    """Of the whole group, its own among them; of a node those of the other nodes."""
    usual: Spread | None
    z: float | None
    """How far below, in robust standard deviations; None without a group."""


class Field(NamedTuple):
    """A group of like GPUs, and its slowest."""

    values: tuple[float, ...]
    """SM clocks, MHz."""
    slowest: Gpu
    """Of those that nobody accuses; of all where everybody is accused."""
    accused: int
    median: float


def reading(look: Comparison, slow: Slow) -> Reading | None:
    """What accuses a GPU or node, with its peers; None where the latest look lacks it."""
    metric = _METRICS.get(slow.metric)
    if metric is None:
        return None
    if slow.finding.rule == NODE.id or not slow.finding.device:
        return _of_node(look, slow, metric)
    gpus = look.nodes.get(slow.finding.node, ())
    gpu = next((gpu for gpu in gpus if gpu.device == slow.finding.device), None)
    value = metric.read(gpu) if gpu is not None and gpu.loaded else None
    if gpu is None or value is None:
        return None
    return _told(look, metric, value, _group(look, gpu))


def _group(look: Comparison, gpu: Gpu) -> Group | None:
    """As Comparison chooses it: the node's own GPUs, or those of the job where they are few."""
    local = look.local.get((gpu.node, gpu.key))
    if local is not None and local.n >= look.limits.weak:
        return local
    wide = look.wide.get(gpu.key)
    return wide if wide is not None and wide.n >= look.limits.weak else local


def _of_node(look: Comparison, slow: Slow, metric: Metric) -> Reading | None:
    mine = [(key, group) for (node, key), group in look.local.items() if node == slow.finding.node]
    if not mine:
        return None
    key, here = max(mine, key=lambda one: one[1].n)
    spread = here.of(metric.read)
    if spread is None:
        return None
    nodes = [group for (_, other), group in look.local.items() if other == key]
    return _told(look, metric, spread.median, Group((), "", nodes))


def _told(look: Comparison, metric: Metric, value: float, group: Group | None) -> Reading:
    usual = group.of(metric.read) if group is not None else None
    values = _values(group, metric) if group is not None else (value,)
    limits = look.limits
    z = below(value, usual, limits.floor, limits.quantum_mhz) if usual is not None else None
    return Reading(metric, value, values, usual, z)


def _values(group: Group, metric: Metric) -> tuple[float, ...]:
    if group.nodes:
        usual = [node.of(metric.read) for node in group.nodes]
        return tuple(one.median for one in usual if one is not None)
    return tuple(value for gpu in group.gpus if (value := metric.read(gpu)) is not None)


Accused = Container[tuple[str, str]]
"""(node, device) of the slow; (node, "") of whole nodes."""


def alike(look: Comparison, shown: frozenset[str] | None) -> list[Group]:
    """Groups with a GPU on a node that is shown, the largest first; None shows all."""
    weak = look.limits.weak
    wide = {key: group for key, group in look.wide.items() if group.n >= weak}
    groups = list(wide.values())
    groups += [g for (_, key), g in look.local.items() if g.n >= weak and key not in wide]
    if shown is not None:
        groups = [group for group in groups if any(gpu.node in shown for gpu in group.gpus)]
    return sorted(groups, key=lambda group: -group.n)


def field_of(group: Group, accused: Accused) -> Field | None:
    """The figures of one group; None when no clock can be read."""
    clocked = [gpu for gpu in group.gpus if gpu.clock_mhz is not None]
    usual = group.of(CLOCK.read)
    if not clocked or usual is None:
        return None
    rest = [g for g in clocked if (g.node, g.device) not in accused and (g.node, "") not in accused]
    return Field(
        values=_values(group, CLOCK),
        slowest=min(rest or clocked, key=lambda gpu: gpu.clock_mhz or 0.0),
        median=usual.median,
        accused=len(clocked) - len(rest),
    )


def left(look: Comparison, shown: Iterable[str], expected: Mapping[str, int | None]) -> list[Left]:
    """Who was not compared and why; `expected`: GPUs of nodes, as far as known."""
    found: dict[Why, dict[str, int]] = {why: {} for why in Why}
    alone = _alone(look)
    for name in shown:
        gpus = look.nodes.get(name, [])
        missing = (expected.get(name) or 0) - len(gpus)
        if missing > 0 or not gpus:
            found[Why.UNREAD][name] = max(0, missing)
        if name in alone:
            found[Why.ALONE][name] = alone[name]
        for gpu in gpus:
            if not gpu.loaded:
                why = _why(gpu)
                found[why][name] = found[why].get(name, 0) + 1
    return [Left(why, sum(each.values()), tuple(each)) for why, each in found.items() if each]


def _alone(look: Comparison) -> dict[str, int]:
    """Node -> GPUs under load that have too few alike on the node and in the job."""
    weak, found = look.limits.weak, dict[str, int]()
    for (node, key), group in look.local.items():
        if group.n < weak:
            wide = look.wide.get(key)
            if wide is None or wide.n < weak:
                found[node] = found.get(node, 0) + group.n
    return found


def _why(gpu: Gpu) -> Why:
    if gpu.clock_mhz is None or gpu.util_percent is None:
        return Why.UNREAD
    return Why.MIG if gpu.product[MIG] is True else Why.IDLE


def job_of(gpus: Sequence[Gpu]) -> str:
    """The jobs of a node's loaded GPUs, "" when none is known."""
    return "+".join(dict.fromkeys(gpu.job for gpu in gpus if gpu.loaded and gpu.job))
