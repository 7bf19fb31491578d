"""What a healthy GPU shows under a load: a pure function of seed, place and time.

The figures only have to be plausible and consistent with each other (power follows clock and
activity, temperature follows power with inertia); they are nobody's measurement.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import NamedTuple

from console.demo.hardware import Hardware

IDLE_BIT, POWER_CAP_BIT = 0x1, 0x4
HW_SLOWDOWN_BIT, SW_THERMAL_BIT, HW_THERMAL_BIT, BRAKE_BIT = 0x8, 0x20, 0x40, 0x80
"""NVML clocks event reasons (nvml.h, nvmlClocksEventReasons)."""

TAU_S = 18.0
"""Thermal time constant of an air-cooled module: our estimate, a minute from idle to steady."""
HOT_TAU_S = 9.0
"""With a failing heat sink it heats faster; our estimate."""
THROTTLE_BAND_C = 5.0
"""Degrees below the limit over which the clock is taken back."""
THROTTLE_DEPTH = 0.36
"""Share of the clock that is lost at the limit."""


class Level(NamedTuple):
    """A kind of load: percent, share of memory, share of the power above idle at load clock."""

    util: float
    mem_util: float
    memory: float
    activity: float
    swing: float
    """How far `util` and `activity` move, as a share."""


LEVELS = {
    "training": Level(98, 55, 0.88, 0.93, 0.015),
    "waiting": Level(100, 2, 0.86, 0.17, 0.0),
    "inference": Level(52, 30, 0.71, 0.30, 0.45),
    "idle": Level(0, 0, 0.0, 0.0, 0.0),
}


class Reading(NamedTuple):
    """What the driver would say about one healthy (or only hot) GPU."""

    util: int
    mem_util: int
    mem_used_mib: int
    temp: int
    mem_temp: int
    power_w: float
    sm_mhz: int
    reasons: int
    throttle: float
    """0 to 1: how much of THROTTLE_DEPTH is in force."""


class Span(NamedTuple):
    """From `at_s` on: this load, and whether the heat sink fails."""

    at_s: float
    load: str
    hot: bool


class Gpu:
    """One simulated GPU; `reading(t)` may be asked in any order."""

    def __init__(self, seed: str, hardware: Hardware, spans: Sequence[Span]) -> None:
        """`spans` cover the whole story, the first one begins at 0; `seed` names the place."""
        rng = random.Random(seed)
        self._hardware = hardware
        self.spans = spans
        self._ambient_c = 25.0 + rng.uniform(-1.5, 2.5)
        self._c_per_w = 36.0 / (0.94 * hardware.tdp_w) * rng.uniform(0.96, 1.04)
        self._silicon = rng.uniform(-0.006, 0.006)
        self._waves = [(rng.uniform(4, 40), rng.uniform(0, math.tau)) for _ in range(3)]

    def _wave(self, t: float, shift: float = 0.0) -> float:
        """Smooth noise in [-1, 1]."""
        parts = (math.sin(math.tau * t / period + phase + shift) for period, phase in self._waves)
        return sum(parts) / 3

    def _target_c(self, span: Span) -> float:
        if span.hot and LEVELS[span.load].activity > 0.5:
            return self._hardware.throttle_c + 1.5
        power = self._power_w(LEVELS[span.load].activity, self._clock_mhz(span.load))
        return self._ambient_c + self._c_per_w * (1.35 if span.hot else 1.0) * power

    def temperature_c(self, t: float) -> float:
        """First-order answer to the loads so far; steady at time 0."""
        value = self._target_c(self.spans[0])
        for span, after in zip(self.spans, [*self.spans[1:], None], strict=True):
            end = t if after is None else min(t, after.at_s)
            if end <= span.at_s:
                break
            target = self._target_c(span)
            tau = HOT_TAU_S if span.hot else TAU_S
            value = target + (value - target) * math.exp(-(end - span.at_s) / tau)
        return value

    def span(self, t: float) -> Span:
        """The span that holds at time t."""
        return [s for s in self.spans if s.at_s <= t][-1]

    def _clock_mhz(self, load: str) -> float:
        hardware = self._hardware
        if load == "idle":
            return hardware.sm_idle_mhz
        return hardware.sm_load_mhz if load == "training" else hardware.sm_max_mhz

    def _power_w(self, activity: float, sm_mhz: float) -> float:
        hardware = self._hardware
        dynamic = (hardware.tdp_w - hardware.idle_w) * activity
        return hardware.idle_w + dynamic * math.pow(sm_mhz / hardware.sm_load_mhz, 1.4)

    def reading(self, t: float) -> Reading:
        """Everything at story time t (seconds)."""
        hardware, load = self._hardware, self.span(t).load
        level, wave = LEVELS[load], self._wave(t)
        temp = self.temperature_c(t)
        throttle = self._throttle(t, temp)
        clock = self._clock_mhz(load) * (1 - THROTTLE_DEPTH * throttle)
        if load == "training":
            clock *= 1 + self._silicon + 0.004 * wave
        swing = 1 + level.swing * wave
        power = self._power_w(level.activity * swing, clock) + 1.5 * self._wave(t, 1.0)
        temp += 0.6 * self._wave(t, 2.0)
        return Reading(
            util=min(100, round(level.util * swing)),
            mem_util=round(level.mem_util * swing),
            mem_used_mib=round(hardware.mem_mib * level.memory) + 528,
            temp=round(temp),
            mem_temp=round(30 + 0.7 * temp),
            power_w=round(min(power, hardware.tdp_w * 1.01), 1),
            sm_mhz=round(clock / 15) * 15,
            reasons=_reasons(load, power / hardware.tdp_w, throttle),
            throttle=throttle,
        )

    def _throttle(self, t: float, temp: float) -> float:
        span = self.span(t)
        if not span.hot or span.load == "idle":
            return 0.0
        above = temp - (self._hardware.throttle_c - THROTTLE_BAND_C)
        return min(1.0, max(0.0, above / THROTTLE_BAND_C))


def _reasons(load: str, power_share: float, throttle: float) -> int:
    if load == "idle":
        return IDLE_BIT
    if throttle > 0.05:
        hardware = HW_THERMAL_BIT | HW_SLOWDOWN_BIT if throttle > 0.6 else 0
        return SW_THERMAL_BIT | hardware
    # Next to the power limit the cap is in force now and then: normal, and a trap for a judge.
    return POWER_CAP_BIT if power_share > 0.93 else 0
