"""When a training job is in which step: the same moment for all of its ranks. Pure.

Each step computes, and sends gradients from the middle of the backward pass on; in its tail only
the all-reduce is left. A node with a hot or braked GPU holds up all others. The shares are
plausible, nobody's measurement.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from console.demo.nvml.rhythm import in_tail
from console.demo.scenario import Fault, Job

LOW = {"power_w": 0.62, "util": 0.97, "mem_util": 0.5, "activity": 0.65}
"""What the tail leaves of a GPU's readings: NVML's utilisation counts a waiting kernel too."""
SENDING = 0.4
"""Last part of a step in which the adapters are busy, at 2.5 times the mean rate."""
SLOWED = 1.4
"""Times the step's length while a GPU of the job is slowed down: what load.py takes of the clock,
less what the all-reduce does not need of it."""
SLOWING = frozenset({"thermal", "power_brake"})
WOBBLE, WOBBLE_S = 0.02, 37.0
"""Steps are not all alike: by so much of one they come early or late, slowly."""


class Rhythm:
    """Of one job with `step_s`; all times are story seconds."""

    def __init__(self, job: Job, faults: Sequence[Fault]) -> None:
        """`faults` are those of its nodes."""
        self._job = job
        self._length_s = job.step_s or 1.0
        self._faults = [fault for fault in faults if fault.kind in SLOWING]
        edges = {job.at_s}
        for fault in self._faults:
            edges.add(max(job.at_s, fault.at_s))
            if fault.for_s is not None:
                edges.add(max(job.at_s, fault.at_s + fault.for_s))
        self._edges = sorted(edges)

    def every_s(self, t: float) -> float:
        """How long a step takes at time t."""
        slow = any(fault.present(t) for fault in self._faults)
        return self._length_s * (SLOWED if slow else 1.0)

    def steps(self, t: float) -> float:
        """Steps done since the job began, the present one in part; never falls."""
        ends = [*self._edges[1:], math.inf]
        whole = sum(
            (min(t, end) - begin) / self.every_s(begin)
            for begin, end in zip(self._edges, ends, strict=True)
            if begin < t
        )
        return whole + WOBBLE * math.sin(math.tau * (t - self._job.at_s) / WOBBLE_S)

    def sending_s(self, t: float) -> float:
        """What each step sends takes a healthy step's time at the mean rate: so much until t."""
        return max(0.0, in_tail(self.steps(t), SENDING)) / SENDING * self._length_s
