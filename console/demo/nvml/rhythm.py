"""The rhythm of a training job: each step computes, then waits for the all-reduce to end.

An entry's "step" {"at": steps done when the file was written, "every_s": story seconds a step,
"low": {key: share left in the tail}} says how its readings move between two states of the file.
"""

import math

TAIL = 0.2
"""Last part of a step, in which only communication is left: plausible, nobody's measurement."""
SENSOR_S = 1.0
"""NVML's power of Hopper and newer, and its utilisation, are means over a second."""


def in_tail(steps: "float", tail: "float" = TAIL) -> "float":
    """How much of so many steps, told in steps, lies in the last part of one."""
    whole = math.floor(steps)
    return whole * tail + max(0.0, steps - whole - (1.0 - tail))


def tail_share(steps: "float", span: "float") -> "float":
    """Share of the `span` of a step before `steps` that lay in tails."""
    span = max(span, 1e-3)
    return (in_tail(steps) - in_tail(steps - span)) / span
