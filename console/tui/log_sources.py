"""Where the log looks besides the Fleet: the audit file, the memory, ended tests. Blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from console.audit_tail import Tail

if TYPE_CHECKING:
    from console.audit import AuditLine
    from console.memory.told import Happening
    from console.tui.app import ConsoleApp
    from console.tui.bench import Bench
    from console.tui.bench import Entry as Tested

PAST_S = 14 * 86400.0
"""How far back the memory is asked."""
PAST_MOST = 3000
"""Happenings taken from it: less than a third of the log."""
TESTS_S = 10.0
"""Between two looks for tests of other consoles and of cron."""


class Batch(NamedTuple):
    """What is new."""

    lines: list[AuditLine]
    past: list[Happening]
    tests: list[Tested]
    trouble: str


class Sources:
    """Read in a thread, one reading at a time. An engine without a file there is asked nothing."""

    def __init__(self, app: ConsoleApp) -> None:
        """Nothing read yet."""
        audit = getattr(app.engine, "audit", None)
        self._engine = app.engine
        self._bench: Bench | None = None
        self._tail = Tail(audit.path) if audit is not None else None
        self._memory = getattr(app.engine, "memory", None)
        self._tested_at = float("-inf")

    def read(self, began: float, now: float) -> Batch:
        """`began`: when this console was started; what is later the Fleet knows better."""
        lines = self._tail.read() if self._tail else []
        past: list[Happening] = []
        if self._memory is not None:
            past = self._memory.happened(began - PAST_S, began, PAST_MOST)
            self._memory = None
        tests: list[Tested] = []
        if abs(now - self._tested_at) >= TESTS_S:
            self._tested_at = now
            tests = self._kept()
        return Batch(lines, past, tests, self._tail.trouble if self._tail else "")

    def _kept(self) -> list[Tested]:
        """Not by the console's own Bench: that one is made and changed beside this thread."""
        from console.tui.bench import Bench

        self._bench = self._bench or Bench(self._engine)
        return self._bench.kept()
