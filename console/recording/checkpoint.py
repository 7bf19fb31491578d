"""A Fleet at a moment, kept small, so that going back need not begin at the beginning.

Everything the Fleet holds is kept but what belongs to the process (rules, clock, taps) and what
follows from the rest (which checks may be skipped). Samples and findings are frozen and shared: a
checkpoint holds references to them. Measured on the demo: 2 ms and 35 kB a node, and 105 kB for the
samples that only the checkpoint still holds.
"""

from __future__ import annotations

import copyreg
import io
import pickle
from types import FunctionType
from typing import Any

from console.fleet import Fleet
from inventory.node import Node
from inventory.scheduler import Allocation, Step
from probes.event import Finding, NodeStatus, Sample
from probes.unchanged import Quiet

PROCESS = ("inventory", "rules", "clock", "taps", "own")
"""Attributes of a Fleet that no moment changes."""
STEPS = "_steps"
"""A generator; exhausted whenever a moment is complete."""
_SHARED = (Sample, Finding, NodeStatus, Allocation, Step, Node, FunctionType)
"""Never change; functions are what checks and metrics are made of."""


class Checkpoint:
    """What one Fleet held; `restore` gives it to another of the same inventory and rules."""

    def __init__(self, fleet: Fleet) -> None:
        """Take it. The Fleet must not be judging (Fleet.thorough has ended).

        Raises RuntimeError when the Fleet changes meanwhile: this takes 2 ms a node, in a thread.
        """
        left_out = (*PROCESS, STEPS)
        held = {name: value for name, value in vars(fleet).items() if name not in left_out}
        out = io.BytesIO()
        writer = _Writer(out, fleet)
        writer.dump(held)
        self._shared = writer.shared
        self._bytes = out.getvalue()

    def restore(self, fleet: Fleet) -> None:
        """Make `fleet` hold what was taken."""
        held = _Reader(io.BytesIO(self._bytes), fleet, self._shared).load()
        vars(fleet).update(held, **{STEPS: iter(())})


def _process(fleet: Fleet) -> dict[str, object]:
    return {"": fleet, **{name: getattr(fleet, name) for name in PROCESS}}


class _Writer(pickle.Pickler):
    def __init__(self, out: io.BytesIO, fleet: Fleet) -> None:
        super().__init__(out, pickle.HIGHEST_PROTOCOL)
        self.shared: list[object] = []
        self._names = {id(value): name for name, value in _process(fleet).items()}
        # A check that may be skipped is only a saving, and its memory would double the size.
        self.dispatch_table = {**copyreg.dispatch_table, Quiet: lambda _quiet: (Quiet, ())}

    def persistent_id(self, obj: object) -> int | str | None:
        if isinstance(obj, _SHARED):
            self.shared.append(obj)
            return len(self.shared) - 1
        return self._names.get(id(obj))


class _Reader(pickle.Unpickler):
    """Reads only what this process wrote a moment ago; nothing of it ever touches a file."""

    def __init__(self, data: io.BytesIO, fleet: Fleet, shared: list[object]) -> None:
        super().__init__(data)
        self._shared = shared
        self._process = _process(fleet)

    def persistent_load(self, pid: Any) -> object:
        return self._process[pid] if isinstance(pid, str) else self._shared[pid]
