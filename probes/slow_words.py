"""What the peer comparison says: the line, the evidence, the chain of causes. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct

from probes.loaded import SOFT, Gpu
from probes.spread import Spread, spread

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


class Group(Struct, frozen=True):
    """GPUs that may be compared, and what is usual among them."""

    gpus: tuple[Gpu, ...]
    where: str
    """"on its node", "of job 48211"."""
    clock: Spread
    power: Spread | None
    temp: Spread | None

    @property
    def n(self) -> int:
        """GPUs with a clock."""
        return len(self.gpus)

    @classmethod
    def of(cls, gpus: Iterable[Gpu], where: str) -> Group:
        """Of loaded GPUs, of which there is at least one; each has a clock."""
        members = tuple(gpus)
        clock = spread(g.clock_mhz for g in members if g.clock_mhz is not None)
        assert clock is not None
        return cls(
            members, where, clock, spread(g.power_w for g in members if g.power_w is not None),
            spread(g.temp_c for g in members if g.temp_c is not None),
        )  # fmt: skip

    @classmethod
    def medians(cls, groups: list[Group], where: str) -> Group:
        """Node against nodes: the readings are the medians of the nodes."""
        clock = spread(group.clock.median for group in groups)
        assert clock is not None
        return cls(
            tuple(gpu for group in groups for gpu in group.gpus), where, clock,
            spread(g.power.median for g in groups if g.power is not None),
            spread(g.temp.median for g in groups if g.temp is not None),
        )  # fmt: skip


def gpu(
    one: Gpu, group: Group | None, against_peers: bool, against_catalogue: bool | None, full: int
) -> Words:
    """A GPU that stands out; `full` is the group size from which it is not called weak."""
    reason = reason_of(one)
    why = with_temp(reason, one.temp_c) or "no reason bit set"
    if group is not None and against_peers:
        peers = f"{percent_below(one.clock_mhz, group.clock.median)} below its {group.n - 1} peers"
        peers += "" if group.where == "on its node" else f" {group.where}"
    else:
        peers = f"{percent_below(one.clock_mhz, one.clock_max_mhz)} below its maximum"
    votes = _agreement(group, against_peers, against_catalogue, one.hard, full)
    lines = [_clock_line(one.clock_mhz, group), votes, _state_line(one)]
    lines += _others(one, group)
    return Words(
        f"{one.label} runs at {clocks(one)}, {peers}: {why}",
        tuple(lines),
        _chain(ROOTS.get(reason, "unknown: power delivery or the card itself"), why, peers),
        STEPS.get(reason, ""),
    )


def node(
    group: Group, peers: Group | None, against_peers: bool, against_catalogue: bool, full: int
) -> Words:
    """All loaded GPUs of a node."""
    one = group.gpus[0]
    median, top = group.clock.median, one.clock_max_mhz
    reason = reason_of(one) if len({reason_of(g) for g in group.gpus}) == 1 else ""
    if peers is not None and against_peers:
        off = f"{percent_below(median, peers.clock.median)} below {peers.clock.n - 1} other nodes"
        off += f" {peers.where}"
    else:
        off = f"{_percent(median / top)} of the maximum" if top else "maximum not readable"
    why = f": {reason}" if reason else ""
    limit = one.limit_w
    power = f", {group.power.median:.0f} of {limit:.0f} W" if group.power and limit else ""
    hard = one.hard if all(g.hard for g in group.gpus) else ""
    share = "all" if against_catalogue else "most of"
    lines = (
        _clock_line(median, peers),
        _agreement(peers, against_peers, against_catalogue or None, hard, full, unit="nodes"),
        _state_line(one),
    )
    return Words(
        f"{share} {group.n} loaded GPUs run at {_ghz(median, top)}, {off}{power}{why}",
        lines,
        _chain(ROOTS.get(reason, "power or cooling of the node"), reason or "low clocks", off),
        STEPS.get(reason, ""),
    )


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


def clocks(one: Gpu) -> str:
    """1.20 of 1.98 GHz."""
    return _ghz(one.clock_mhz or 0.0, one.clock_max_mhz)


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


def _clock_line(clock_mhz: float | None, group: Group | None) -> str:
    own = f"SM clock {_plain(clock_mhz, 'MHz')}"
    if group is None:
        return f"{own}; no group of like GPUs large enough"
    usual = group.clock
    return (
        f"{own}; {usual.n} alike {group.where}: median {usual.median:.0f} MHz, "
        f"P75 {usual.p75:.0f} MHz, MAD {usual.mad:.0f} MHz"
    )


def _agreement(
    group: Group | None, against_peers: bool, against_catalogue: bool | None, hard: str, full: int,
    *, unit: str = "GPUs",
) -> str:  # fmt: skip
    """Which comparisons speak against it, and how sure that is."""
    n = group.clock.n if group is not None else 0
    verdicts = {True: "slow", False: "fine", None: "cannot tell"}
    parts = [
        f"peers: {verdicts[against_peers] if group is not None else 'too few'}",
        f"catalogue: {verdicts[against_catalogue]}",
        "own history: not kept",
        f"hardware evidence: {hard or 'none'}",
    ]
    small = against_peers and n < full
    if not hard and not (against_peers and against_catalogue):
        confidence = "suspicion only"
    elif small:
        confidence = f"weak, {n} {unit} compared"
    else:
        confidence = "strong" if hard and against_peers else "fair"
    return f"{'; '.join(parts)}; confidence: {confidence}"


def _state_line(one: Gpu) -> str:
    reasons = hex(one.reasons) if one.reasons is not None else "not readable"
    return (
        f"{one.label}: {_plain(one.util_percent, '%')} utilisation, {_plain(one.power_w, 'W')} of "
        f"{_plain(one.limit_w, 'W')}, {_plain(one.temp_c, '°C')}, reasons {reasons}"
    )


def _others(one: Gpu, group: Group | None) -> list[str]:
    """Power and temperature against the group; they support, they do not decide."""
    if group is None:
        return []
    parts = []
    if one.power_w is not None and group.power is not None and group.power.n > 1:
        parts.append(f"power {one.power_w:.0f} W, median {group.power.median:.0f} W")
    if one.temp_c is not None and group.temp is not None and group.temp.n > 1:
        parts.append(f"temperature {one.temp_c:.0f} °C, median {group.temp.median:.0f} °C")
    return ["; ".join(parts)] if parts else []


def _chain(root: str, why: str, effect: str) -> str:
    return f"{root} → {why} → SM clock {effect} → every rank of the job waits for it"
