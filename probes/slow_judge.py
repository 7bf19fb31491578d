"""Votes on one GPU and on one node: absolute, spatial, temporal, and hardware evidence. Pure.

What explains a low clock without a fault makes a comparison silent: a power cap at the limit, a
clock setting, more power than the peers (it works while they wait), less load than theirs, and
most other nodes being as slow.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from probes import loaded
from probes.kernel_xid import xid
from probes.loaded import Gpu
from probes.own import Baseline, Own
from probes.rules import Rules
from probes.slow_group import Group, power, util
from probes.slow_limits import Limits
from probes.slow_metrics import Metric
from probes.slow_votes import Votes
from probes.spread import Gates, Level, Spread, level

Held = Collection[tuple[str, str]]
"""(node, device) called slow already; they must come half as near again before they are fine."""
_HEAT = loaded.HW_THERMAL_BIT | loaded.SW_THERMAL_BIT | loaded.BRAKE_BIT | loaded.HW_SLOWDOWN_BIT


class Case(NamedTuple):
    """What a verdict is made with."""

    rules: Rules
    limits: Limits
    own: Own
    held: Held
    common: Collection[tuple[str, loaded.Key]]
    """(node, product and limit) whose slowness most other nodes share."""

    def gates(self, node: str, device: str) -> Gates:
        """Of the warning; eased for what is held."""
        warn = self.limits.warn
        return warn.eased() if (node, device) in self.held else warn

    def ratio(self, node: str, device: str, ratio: float) -> float:
        """A plain ratio; eased for what is held."""
        return (1 + ratio) / 2 if (node, device) in self.held else ratio


def of_gpu(case: Case, gpu: Gpu, metric: Metric, group: Group | None) -> Votes | None:
    """None when nothing speaks against it."""
    absolute = absolutely(case, gpu, metric)
    spatial = _spatially(case, gpu, metric, group)
    if not absolute and not spatial:
        return None
    usual = group.of(metric.read) if group is not None else None
    if not spatial and group is not None and _all_low(case, gpu, metric, usual):
        return None
    temporal, own = _temporally(case, gpu, metric)
    if not spatial and group is not None and not temporal:
        return None  # its peers are no faster
    return Votes(
        absolute=absolute, spatial=spatial, temporal=temporal, hard=hard(gpu, case.rules),
        group=usual, full=case.limits.full, own=own, unit=group.unit if group else "GPUs",
    )  # fmt: skip


def _all_low(case: Case, gpu: Gpu, metric: Metric, usual: Spread | None) -> bool:
    """Its peers are below the catalogue too: whatever it is, it is not this GPU."""
    top = metric.top(gpu) if metric.top else None
    return top is None or usual is None or usual.median < case.limits.catalogue * top


def absolutely(case: Case, gpu: Gpu, metric: Metric) -> Level | None:
    """Against the card's own maximum; None when something explains the clock."""
    value, top = metric.read(gpu), metric.top(gpu) if metric.top else None
    if value is None or top is None or gpu.reasons is None:
        return None
    if value >= case.ratio(gpu.node, gpu.device, case.limits.catalogue) * top:
        return Level.FINE
    grade = Level.CRIT if value < case.limits.catalogue_crit * top else Level.WARN
    if gpu.hard:
        return grade
    unknown = gpu.power_w is None or gpu.limit_w is None
    by_cap = metric.by_power and (
        capped(case, gpu) or (unknown and bool(gpu.reasons & loaded.POWER_CAP_BIT))
    )
    shared = (gpu.node, gpu.key[: loaded.COMMON]) in case.common
    return None if by_cap or shared or gpu.reasons & loaded.SETTING_BITS else grade


def capped(case: Case, gpu: Gpu) -> bool:
    """The SW power cap explains its clock."""
    if gpu.power_w is None or gpu.limit_w is None or gpu.reasons is None:
        return False
    at_limit = gpu.power_w >= case.limits.at_limit * gpu.limit_w
    return bool(gpu.reasons & loaded.POWER_CAP_BIT) and at_limit


def _spatially(case: Case, gpu: Gpu, metric: Metric, group: Group | None) -> Level | None:
    usual = group.of(metric.read) if group is not None else None
    value = metric.read(gpu)
    if group is None or usual is None or value is None or usual.n < case.limits.weak:
        return None
    found = _level(case, gpu.node, gpu.device, value, usual, metric)
    watts = gpu.power_w if metric.by_power else 0.0
    if found and _excused(case, watts, gpu.util_percent, gpu.reasons, group):
        return None
    return found


def _level(
    case: Case, node: str, device: str, value: float, usual: Spread, metric: Metric
) -> Level:
    limits = case.limits
    gates = case.gates(node, device)
    return level(value, usual, gates, limits.crit, limits.floor, limits.quantum_mhz)


def _excused(
    case: Case, watts: float | None, percent: float | None, reasons: int | None, group: Group
) -> bool:
    """It computes while its peers wait, or does not work as they do."""
    if reasons is not None and reasons & _HEAT:
        return False
    usual_w, usual_util = group.of(power), group.of(util)
    if watts is None or usual_w is None:
        return bool((reasons or 0) & loaded.POWER_CAP_BIT)
    if watts > usual_w.median / case.limits.warn.ratio:
        return True
    return (
        percent is not None
        and usual_util is not None
        and percent < case.limits.equal_load * usual_util.median
    )


def _temporally(case: Case, gpu: Gpu, metric: Metric) -> tuple[Level | None, Baseline | None]:
    """Against its own past with this card, driver and limit, which the memory sees to."""
    own = case.own.get((gpu.node, gpu.device, metric.name))
    value = metric.read(gpu)
    if own is None or value is None or own.n < case.limits.own_least or own.median <= 0:
        return None, None
    if value >= case.ratio(gpu.node, gpu.device, case.limits.own_ratio) * own.median:
        return Level.FINE, own
    set_so = gpu.reasons is None or bool(gpu.reasons & loaded.SETTING_BITS)
    works = metric.by_power and (capped(case, gpu) or _harder_than_usual(case, gpu))
    if not gpu.hard and (works or set_so):
        return None, own
    return Level.WARN, own


def _harder_than_usual(case: Case, gpu: Gpu) -> bool:
    """Another load than that of its past: it draws more."""
    own = case.own.get((gpu.node, gpu.device, "power_w"))
    if own is None or gpu.power_w is None:
        return False
    return gpu.power_w > own.median / case.limits.warn.ratio


def hard(gpu: Gpu, rules: Rules) -> str:
    """Why the hardware holds it back: throttling, else an Xid of this boot that says hardware."""
    if gpu.hard:
        return gpu.hard
    for row in gpu.facts.kernel:
        text = str(row.get("text", ""))
        found = xid(text) if "Xid" in text else None
        if found is None or found["pci"] != gpu.device.partition(".")[0]:
            continue
        meaning = rules.xids.get(int(found["code"] or 0))
        if meaning is not None and meaning.hard:
            return f"Xid {meaning.code} ({meaning.name})"
    return ""


# A whole node


def of_node(case: Case, group: Group, peers: Group | None, metric: Metric) -> Votes | None:
    """A node whose loaded GPUs are slow together; None when nothing speaks against it."""
    absolute = [absolutely(case, gpu, metric) for gpu in group.gpus]
    spatial = _node_spatially(case, group, peers, metric)
    all_low = min((vote or Level.FINE for vote in absolute), default=Level.FINE)
    if not all_low and not spatial:
        return None
    temporal, own = _node_temporally(case, group, metric)
    why = {gpu.hard for gpu in group.gpus}
    told = why.pop() if len(why) == 1 else "" if "" in why else "held back by hardware"
    if not spatial and not told and not temporal:
        return None
    usual = peers.of(metric.read) if peers is not None else None
    if usual is not None and usual.n < case.limits.weak:
        usual = None
    return Votes(
        absolute=None if None in absolute else all_low, spatial=spatial, temporal=temporal,
        hard=told, group=usual, full=case.limits.full, own=own, unit="nodes",
    )  # fmt: skip


def _node_spatially(case: Case, group: Group, peers: Group | None, metric: Metric) -> Level | None:
    here = group.of(metric.read)
    usual = peers.of(metric.read) if peers is not None else None
    if peers is None or usual is None or here is None or usual.n < case.limits.weak:
        return None
    first = group.gpus[0]
    found = _level(case, first.node, "", here.median, usual, metric)
    watts, percent = group.of(power), group.of(util)
    reasons = 0
    for gpu in group.gpus:
        reasons |= gpu.reasons or 0
    heat = all((gpu.reasons or 0) & _HEAT for gpu in group.gpus)
    bits = reasons if heat else reasons & ~_HEAT
    excused = found and _excused(
        case,
        0.0 if not metric.by_power else watts.median if watts else None,
        percent.median if percent else None,
        bits,
        peers,
    )
    return None if excused else found


def _node_temporally(
    case: Case, group: Group, metric: Metric
) -> tuple[Level | None, Baseline | None]:
    """As most of its GPUs with a past."""
    told = [_temporally(case, gpu, metric) for gpu in group.gpus]
    votes = [vote for vote, _ in told if vote is not None]
    if len(votes) * 2 <= len(group.gpus):
        return None, None
    slow = sum(1 for vote in votes if vote)
    own = next(own for vote, own in told if vote is not None)
    return (Level.WARN if slow * 2 > len(votes) else Level.FINE), own
