"""What the peer comparison says: the line, the evidence, the chain of causes. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from probes import slow_metrics
from probes.loaded import SOFT, Gpu
from probes.slow_group import Group
from probes.slow_metrics import Metric
from probes.slow_votes import Votes
from probes.spread import spread

STEPS = {
    "HW thermal slowdown": "check fans, filters, coolant and inlet air; drain after the job if it "
    "stays, since the whole job waits for it",
    "SW thermal slowdown": "check fans, coolant and inlet air before the hardware steps in",
    "HW power brake": "check PSUs, rack power and the BMC's event log; do not blame the GPU",
    "HW slowdown": "check power cables and PSUs; nvidia-smi -q -d PERFORMANCE shows which reason",
    "SW power cap": "compare power and cooling with its siblings; test it alone after the job",
}
"""Reason -> next step."""
ROOTS = {
    "HW thermal slowdown": "cooling (fan, heat sink, coolant, inlet air)",
    "SW thermal slowdown": "cooling (fan, heat sink, coolant, inlet air)",
    "HW power brake": "the chassis pulls the power brake (PSU lost, BMC cap)",
    "HW slowdown": "power delivery or heat",
    "SW power cap": "the card needs more power for the same work",
}
"""Reason -> the likely root."""


class Words(NamedTuple):
    """Texts of one finding."""

    say: str
    evidence: tuple[str, ...]
    cause: str = ""
    next_step: str = ""


def gpu(one: Gpu, metric: Metric, group: Group | None, votes: Votes) -> Words:
    """A GPU that stands out."""
    reason = reason_of(one) or (votes.hard if not one.hard else "")
    why = with_temp(reason, one.temp_c) or "no reason bit set"
    value, top = metric.read(one) or 0.0, metric.top(one) if metric.top else None
    if votes.group is not None and votes.spatial and group is not None:
        usual, off = votes.group.median, f"its {votes.group.n - 1} peers"
        off += "" if group.where == "on its node" else f" {group.where}"
    else:
        usual, off = top or 0.0, "its maximum"
    below = f"{percent_below(value, usual)} below {off}"
    runs = "runs at" if metric.name == "sm_clock_mhz" else f"{metric.words} is at"
    lines = [_reading(metric, value, group, votes), _state_line(one)]
    lines += [beside] if group and (beside := slow_metrics.beside(one, group.gpus)) else []
    chain = (
        f"{metric.words} {_ghz(value, top)}",
        f"up to {percent_below(value, usual)} slower than {off}", metric.chain,
    )  # fmt: skip
    root = ROOTS.get(reason, "unknown: power delivery or the card itself")
    return Words(
        f"{one.label} {runs} {_ghz(value, top)}, {below}: {why}",
        tuple(lines), _chain(root, why, *chain), STEPS.get(reason, ""),
    )  # fmt: skip


def node(group: Group, metric: Metric, peers: Group | None, votes: Votes) -> Words:
    """All loaded GPUs of a node."""
    one, here = group.gpus[0], group.of(metric.read)
    median, top = here.median if here else 0.0, metric.top(one) if metric.top else None
    reason = reason_of(one) if len({reason_of(g) for g in group.gpus}) == 1 else ""
    if peers is not None and votes.spatial and votes.group is not None:
        off = f"{percent_below(median, votes.group.median)} below {votes.group.n - 1} other nodes"
        off += f" {peers.where}"
    else:
        off = f"{_percent(median / top)} of the maximum" if top else "maximum not readable"
    watts = spread(g.power_w for g in group.gpus if g.power_w is not None)
    power = f", {watts.median:.0f} of {one.limit_w:.0f} W" if watts and one.limit_w else ""
    share = "all" if votes.absolute else "most of"
    why = f": {reason}" if reason else ""
    what = "run at" if metric.name == "sm_clock_mhz" else f"have their {metric.words} at"
    effect = f"{metric.words} {_ghz(median, top)}"
    return Words(
        f"{share} {len(group.gpus)} loaded GPUs {what} {_ghz(median, top)}, {off}{power}{why}",
        (_reading(metric, median, peers, votes), _state_line(one)),
        _chain(ROOTS.get(reason, "power or cooling of the node"), reason, effect, off,
               metric.chain),
        STEPS.get(reason, ""),
    )  # fmt: skip


def power_limit(one: Gpu, rest: list[Gpu], usual_w: float) -> Words:
    """A GPU capped below its siblings."""
    theirs = f"its {len(rest)} siblings at {usual_w:.0f} W"
    say = f"{one.label} is capped at {one.limit_w:.0f} W, {theirs}"
    clock = spread(g.clock_mhz for g in rest if g.loaded and g.clock_mhz is not None)
    usual = f", theirs {clock.median:.0f} MHz" if clock is not None else ""
    if one.loaded and one.clock_mhz is not None and clock is not None and clock.median > 0:
        say += f", and runs at {_percent(one.clock_mhz / clock.median)} of their clock"
    return Words(
        say,
        (
            f"power limit {one.limit_w:.0f} W, {len(rest)} siblings {usual_w:.0f} W",
            f"SM clock {_plain(one.clock_mhz, 'MHz')}{usual}; power {_plain(one.power_w, 'W')}",
        ),
    )


def reason_of(one: Gpu) -> str:
    """Name of the reason that weighs most; "" without one."""
    if one.hard:
        return one.hard
    bits = one.reasons or 0
    return next((name for bit, name in SOFT if bits & bit), "")


def with_temp(reason: str, temp_c: float | None) -> str:
    """Reasons of heat with the temperature."""
    return f"{reason} at {temp_c:g} °C" if "thermal" in reason and temp_c is not None else reason


def percent_below(value: float | None, usual: float | None) -> str:
    """38 %."""
    return _percent(1 - (value or 0.0) / usual) if usual else "an unknown share"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _ghz(clock_mhz: float, top_mhz: float | None) -> str:
    top = f" of {top_mhz / 1000:.2f}" if top_mhz else ""
    return f"{clock_mhz / 1000:.2f}{top} GHz"


def _plain(value: float | None, unit: str) -> str:
    return "not readable" if value is None else f"{value:.0f} {unit}"


def _reading(metric: Metric, value: float, group: Group | None, votes: Votes) -> str:
    """The value against its group."""
    own, usual = f"{metric.words} {value:.0f} {metric.unit}", votes.group
    if usual is None or group is None:
        return f"{own}; no group of like GPUs large enough"
    shares = ""
    if usual.median > 0 and usual.p75 > 0:
        shares = f"; {_percent(value / usual.median)} of the median"
        shares += f", {_percent(value / usual.p75)} of P75"
    weak = " (weak)" if usual.n < votes.full else ""
    what = "nodes" if group.nodes else "alike"
    return (
        f"{own}; {usual.n} {what} {group.where}{weak}: median {usual.median:.0f} {metric.unit}, "
        f"P75 {usual.p75:.0f} {metric.unit}, MAD {usual.mad:.0f} {metric.unit}{shares}"
    )


def _state_line(one: Gpu) -> str:
    reasons = hex(one.reasons) if one.reasons is not None else "not readable"
    return (
        f"{one.label}: {_plain(one.util_percent, '%')} utilisation, {_plain(one.power_w, 'W')} of "
        f"{_plain(one.limit_w, 'W')}, {_plain(one.temp_c, '°C')}, reasons {reasons}"
    )


_NOW = {"runs at": "ran at", "run at": "ran at", "is at": "was at", "have their": "had their"}
_VERB = re.compile("|".join(_NOW))


def past(say: str) -> str:
    """The same of a GPU or node that is no longer under load: nothing is known of it now."""
    return _VERB.sub(lambda verb: _NOW[verb.group()], say, count=1) + "; not under load now"


def _chain(*links: str) -> str:
    return " → ".join(link for link in links if link)
