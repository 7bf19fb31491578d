"""The thread that writes: off the event loop, in batches, and never in the way.

What cannot be written waits in bounded queues; readings are dropped first, findings last.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from console.memory.gather import Gather, Row, Series
from console.memory.notes import Note
from console.memory.past import EMPTY, Past
from probes.event import Finding, Sample, Severity

if TYPE_CHECKING:
    import sqlite3

    from console.memory.book import Book
    from console.memory.store import Unusable

log = logging.getLogger(__name__)

EVERY_S = 2.0
"""Between two batches: what a kill -9 costs of findings, drains and tests."""
RETRY_S = 30.0
"""After trouble with the file."""
BUSY_S = 60.0
"""How long others may hold the file before it is told."""
PAST_S = 300.0
"""Between two readings of the baselines."""
ROWS_MOST = 100_000
NOTES_MOST = 20_000
ROWS_A_TIME = 4000
"""In one transaction: some 40 ms."""
THINNING_S = 0.05
"""Of each turn, for thinning old rows."""
PAUSE_S = 0.002
"""After each piece of work: the event loop may want the interpreter."""
ALARMING = (Severity.WARN, Severity.CRITICAL)
WIDE = "straggler."
"""Rules about a whole node that make the readings of its GPUs no baseline."""


class Writer(threading.Thread):
    """Takes from the queues, keeps the intervals under way, writes."""

    def __init__(
        self, path: Path, most_bytes: int, clock: Callable[[], float], told: Callable[[str], None]
    ) -> None:
        """Does nothing before start()."""
        super().__init__(name="memory", daemon=True)
        self.samples: deque[Sample] = deque()
        self.notes: deque[tuple[float, Note]] = deque()
        self.past: Past = EMPTY
        self.trouble = ""
        """Why nothing is kept now; "" when all is well."""
        self._path, self._most, self._clock, self._told = path, most_bytes, clock, told
        self._wake = threading.Event()
        self._turned = threading.Condition()
        self._turns = self._flush_until = 0
        self._ending = self._off = False
        self._busy_since: float | None = None
        self._gather = Gather()
        self._sick: dict[tuple[str, str], set[str]] = {}
        self._masks: dict[tuple[str, int], int] = {}
        self._pending: deque[tuple[float, Note]] = deque()
        self._rows: dict[tuple[int, Series], Row] = {}
        self._db: sqlite3.Connection | None = None
        self._book: Book | None = None
        self._retry_at = 0.0
        self._past_at = float("-inf")
        self._said: set[str] = set()

    # Called by others

    def wake(self) -> None:
        """There is much to do."""
        self._wake.set()

    def flush(self, timeout_s: float) -> bool:
        """Write what is known, intervals under way too; False when that took too long."""
        with self._turned:
            wanted = self._turns + 2  # the turn under way may have looked already
            self._flush_until = wanted
            end = time.monotonic() + timeout_s
            while self._turns < wanted and self.is_alive():
                self._wake.set()
                left = end - time.monotonic()
                if left <= 0:
                    return False
                self._turned.wait(min(left, 0.5))
        return not self._behind() and not self.trouble

    def end(self, timeout_s: float) -> bool:
        """Write everything and close the file; False when that took too long or was not possible.

        What is lost is told.
        """
        self._ending = True
        self._wake.set()
        self.join(timeout_s)
        if self.is_alive():
            self.say(
                f"the memory {self._path} is still not written after {timeout_s:.0f} s: given up"
            )
        elif self._behind() and not self.trouble:
            self.say(
                f"the memory {self._path} is held by another process: the last seconds are lost"
            )
        return not self.is_alive() and not self._behind()

    def say(self, text: str) -> None:
        """Tell the operator once."""
        if text not in self._said:
            self._said.add(text)
            self._told(text)

    # The thread

    def run(self) -> None:
        """Until end()."""
        self._first_past()
        ending = False
        while not ending:
            self._wake.wait(EVERY_S)
            self._wake.clear()
            ending = self._ending
            try:
                self._turn(all_of_them=ending or self._turns < self._flush_until)
            except Exception as error:
                log.exception("what was on its way into the memory is dropped")
                self._drop(repr(error))
            with self._turned:
                self._turns += 1
                self._turned.notify_all()
        self._close()

    def _drop(self, why: str) -> None:
        """A fault of ours costs the last seconds, and is not met again and again."""
        self._close()
        self._pending.clear()
        self._rows.clear()
        self._masks.clear()
        self.trouble = f"the memory lost what was on its way: {why}"
        self.say(self.trouble)

    def _first_past(self) -> None:
        """Baselines are wanted at once, by a process that may only live for seconds."""
        from console.memory import past, store

        try:
            with store.translated(self._path):
                db = store.for_reading(self._path)
                if db is not None:
                    self.past = past.read(db, self._clock())
                    self._past_at = self._clock()
                    db.close()
        except store.Unusable:
            pass  # told when it is to be written

    def _turn(self, *, all_of_them: bool) -> None:
        if self._off:
            self.notes.clear()
            self.samples.clear()
            return
        self._take()
        for row in self._gather.rows(self._clock(), all_of_them=all_of_them):
            self._rows[row.at, row.series] = row
        while len(self._rows) > ROWS_MOST:
            del self._rows[next(iter(self._rows))]
            self.say("the memory cannot be written for long: the oldest readings are dropped")
        if time.monotonic() < self._retry_at and not all_of_them:
            return
        from console.memory.store import Unusable, translated

        try:
            with translated(self._path):
                self._write()
        except Unusable as error:
            self._failed(error)

    def _take(self) -> None:
        """Notes first: whether a reading is good depends on findings."""
        while self.notes:
            entry = self.notes.popleft()
            if isinstance(entry[1], Finding):
                self._note_sick(entry[1])
            self._pending.append(entry)
        while len(self._pending) > NOTES_MOST:
            self._pending.popleft()
            self.say("the memory cannot be written for long: the oldest findings are dropped")
        from console.memory.book import slot

        for _ in range(len(self.samples)):
            sample = self.samples.popleft()
            third, mask = slot(sample.at)
            key = sample.node, third
            self._masks[key] = self._masks.get(key, 0) | mask
            self._gather.add(sample, good=self._good(sample))

    def _note_sick(self, finding: Finding) -> None:
        key = finding.node, finding.device
        if finding.severity in ALARMING:
            self._sick.setdefault(key, set()).add(finding.rule)
        elif key in self._sick:
            self._sick[key].discard(finding.rule)
            if not self._sick[key]:
                del self._sick[key]

    def _good(self, sample: Sample) -> bool:
        if not self._sick:
            return True
        wide = self._sick.get((sample.node, ""), ())
        return (sample.node, sample.device) not in self._sick and not any(
            rule.startswith(WIDE) for rule in wide
        )

    def _behind(self) -> bool:
        return bool(self._pending or self._rows or self._masks)

    def _write(self) -> None:
        """Everything there is, then a little of the housekeeping."""
        if self._db is None:
            self._open()
        while self._behind():
            self._batch()
            time.sleep(PAUSE_S)
        self.trouble, self._busy_since = "", None
        self._keep_house()

    def _open(self) -> None:
        from console.memory import store

        self._db, told = store.opened(self._path, self._most)
        if told:
            self.say(told)

    def _batch(self) -> None:
        """One transaction; what it holds is forgotten here only after it was committed."""
        from console.memory.book import Book
        from console.memory.store import transaction

        assert self._db is not None
        self._book = self._book or Book(self._db)
        keys = [key for _, key in zip(range(ROWS_A_TIME), self._rows, strict=False)]
        notes = [note for _, note in zip(range(ROWS_A_TIME), self._pending, strict=False)]
        masks = self._masks
        with transaction(self._db):
            for at, note in notes:
                self._book.note(note, at)
            for row, number in self._book.rows([self._rows[key] for key in keys]):
                self.past.confirm(row.series.node, row.series.device, number)
            self._book.watched(masks)
        self._masks = {}
        for key in keys:
            del self._rows[key]
        for _ in notes:
            self._pending.popleft()

    def _keep_house(self) -> None:
        from console.memory import past, thin
        from console.memory.store import transaction

        assert self._db is not None
        now = self._clock()
        until = time.monotonic() + THINNING_S
        more = not self._ending
        while more and time.monotonic() < until:
            with transaction(self._db):
                more = thin.step(self._db, now, self._most)
            time.sleep(PAUSE_S)
        if not self._past_at <= now <= self._past_at + PAST_S and not self._ending:
            self._past_at = now
            self.past = past.read(self._db, now)

    def _failed(self, error: Unusable) -> None:
        from console.memory.store import Busy, Damaged, Full, Unusable, set_aside

        self._book = None  # what it numbered in the transaction is not in the file
        if isinstance(error, Busy) and self._waits_for_others():
            return
        if isinstance(error, Full) and self._relieved():
            return
        self._close()
        if isinstance(error, Damaged):
            try:
                error = Unusable(set_aside(self._path) or str(error))
            except Unusable as worse:
                error = worse
        self._off = error.for_good
        self._retry_at = time.monotonic() + RETRY_S
        self.trouble = str(error)
        self.say(self.trouble)

    def _waits_for_others(self) -> bool:
        """Another console that writes for long is no trouble yet."""
        now = time.monotonic()
        self._busy_since = self._busy_since or now
        return now - self._busy_since < BUSY_S

    def _relieved(self) -> bool:
        """Whether room could be made in a file that has reached its size."""
        from console.memory import thin
        from console.memory.store import Unusable, transaction, translated

        try:
            with translated(self._path):
                if self._db is None or thin.used_bytes(self._db) < thin.FULL * self._most:
                    return False  # it is the disk that is full
                with transaction(self._db):
                    return thin.relieve(self._db, self._clock())
        except Unusable:
            return False

    def _close(self) -> None:
        db, self._db, self._book = self._db, None, None
        if db is not None:
            try:
                db.close()
            except Exception as error:  # noqa: BLE001 - nothing is lost that was not lost before
                self.trouble = str(error)
