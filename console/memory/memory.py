"""Memory: what the fleet was like before, in SQLite in the state directory.

Kept: medians of GPUs and ports under load (5 minutes for 2 days, hours for 14, days for 400),
findings, drains and returns, boots, cards and drivers, results of tests (400 days). Trouble with
the file costs the memory and one sentence, never the console.

The file holds 512 MB at most; readings go in the order of thin.CUTS, findings and tests of the last
28 days after all of them. A row takes 34 bytes (measured, benchmarks/memory.py). With 8 GPUs and 8
ports a node that are always under load that is room for
  64 nodes      all of it, 50 MB after 400 days
  1,000 nodes   5 minutes for 8 hours, hours for 14 days, days for 400
  4,000 nodes   5 minutes for 2 hours, hours for 3 days, days for 90
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from console.memory.notes import OUT, Act, Look, Note, Tested, boot
from inventory.scheduler import Allocation, Plan, Step
from probes.event import Event, Finding, Sample, Severity
from probes.loaded import ANSWERING
from probes.own import NONE, Own

if TYPE_CHECKING:
    import sqlite3

    from console.active.results import Campaign
    from console.fleet import Fleet
    from console.memory.lemon import Incident, Lemon
    from console.memory.told import Happening
    from console.memory.writer import Writer

log = logging.getLogger(__name__)

NAME = "memory.sqlite"
MOST_BYTES = 512 << 20
THINNED = ("gpu", "gpm", "infiniband", "host")
"""Probes of which a node's answers are taken every half minute; host only for having answered."""
WHOLE = frozenset({"hello", "inventory"})
"""Probes of which every answer is looked at: they are rare."""
OPEN_S = 1.5
"""How long a node's answers are taken once it is its turn: one round of a probe, or a pass."""
PAUSE_S = 28.0
SPREAD_S = 7
"""Up to so much longer, by node: 4,000 nodes that began together do not stay together."""
SAMPLES_MOST = 40_000
"""Samples on their way: 4,000 nodes x 8 GPUs once, with room."""
WAKE_AT = 4096
"""Samples on their way that are not left waiting."""
CLOSE_S = 8.0
"""How long leaving may take: another console may hold the file for 5 s."""
NEVER = float("-inf")


def _warn(text: str) -> None:
    log.warning("%s", text)


class Memory:
    """One process's way to the file. Cheap until something is kept; all methods return at once
    but close, flush and those that read for people."""

    def __init__(
        self,
        path: Path,
        *,
        most_bytes: int = MOST_BYTES,
        clock: Callable[[], float] = time.time,
        told: Callable[[str], None] = _warn,
        keeps: bool = True,
    ) -> None:
        """`path`: the file, made when it is first written. `told` hears each trouble once."""
        self.path = path
        self._most, self._clock, self._told = most_bytes, clock, told
        self._windows: dict[str, dict[str, float]] = {probe: {} for probe in THINNED}
        self._out: dict[str, tuple[str, str] | None] = {}
        self._writer: Writer | None = None
        self.keeps = keeps
        """Whether anything is recorded; reading is possible without."""
        self._said: set[str] = set()

    @property
    def trouble(self) -> str:
        """Why nothing is kept now; "" when all is well."""
        return self._writer.trouble if self._writer is not None else ""

    def tap(self, event: Event) -> None:
        """For Engine.taps and Fleet.taps: keeps what is worth keeping."""
        if type(event) is Sample:
            windows = self._windows.get(event.probe)
            if windows is not None:
                end = windows.get(event.node, NEVER)
                if not end - OPEN_S <= event.at <= end:  # before it: the clock was put back
                    # Every string keeps its own hash: this costs less than a random number.
                    if end < event.at < end + PAUSE_S + hash(event.node) % SPREAD_S:
                        return
                    windows[event.node] = event.at + OPEN_S
                self._sample(event)
            elif event.probe in WHOLE:
                self._whole(event)
        elif type(event) is Finding:
            self._note(event)
        elif type(event) is Allocation:
            self._allocation(event)

    def _whole(self, sample: Sample) -> None:
        if sample.probe == "inventory":
            self._sample(sample)
            return
        note = boot(sample)
        if note is not None:
            self._note(note)

    def _sample(self, sample: Sample) -> None:
        writer = self._writing()
        if writer is None:
            return
        if len(writer.samples) >= SAMPLES_MOST:
            writer.say("the memory is behind: readings are dropped, findings are kept")
            return
        writer.samples.append(sample)
        if len(writer.samples) == WAKE_AT:
            writer.wake()

    def _allocation(self, now: Allocation) -> None:
        """Only what changed: each node's state comes every 15 s."""
        told = (now.state, now.reason) if now.state in OUT else None
        if self._out.get(now.node, self) != told:
            self._out[now.node] = told
            self._note(now)

    def _note(self, note: Note) -> None:
        writer = self._writing()
        if writer is not None:
            writer.notes.append((self._clock(), note))

    def _writing(self) -> Writer | None:
        """The thread, started when it is needed; None when nothing is to be kept."""
        if self._writer is None and self.keeps:
            from console.memory.writer import Writer

            self._writer = Writer(self.path, self._most, self._clock, self._told)
            self._writer.start()
        return self._writer

    def look(self, fleet: Fleet) -> None:
        """Everything that is found now on nodes that answer and can be judged.

        Open findings of these nodes that are not among it are over: they ended when nobody looked.
        """
        found = {
            name: fleet.findings[name]
            for name, facts in fleet.nodes.items()
            if facts.state in ANSWERING and fleet.verdict(name) is not Severity.UNKNOWN
        }
        if found:
            self._note(Look(self._clock(), found))

    def acted(self, plan: Plan, step: Step, by: str) -> None:
        """The outcome of a drain or resume for one node."""
        self._note(
            Act(node=step.node, at=step.at, verb=plan.verb, by=by, reason=plan.reason, ok=step.ok,
                detail=step.detail)
        )  # fmt: skip

    def add_campaign(self, campaign: Campaign) -> None:
        """Figures and verdicts of active tests; may be repeated with the same campaign."""
        from console.memory.campaigns import of_campaign

        notes: Iterator[Tested] = of_campaign(campaign)
        for note in notes:
            self._note(note)

    def own(self) -> Own:
        """Baselines, as of a few minutes ago; nothing before they were first read."""
        return self._writer.past if self._writer is not None else NONE

    def read_own(self, *, engine: str = "", version: str = "") -> Own:
        """Baselines read now (up to a second for 4,000 nodes); of tests by this engine only."""
        from console.memory import past

        with self._reading() as db:
            if db is not None:
                return past.read(db, self._clock(), engine=engine, version=version)
        return NONE

    def lemons(self, now: float) -> dict[str, Lemon]:
        """Every node with a score above 0."""
        from console.memory import read

        with self._reading() as db:
            if db is not None:
                scored = {name: read.lemon(db, name, now) for name in read.suspects(db, now)}
                return {name: lemon for name, lemon in scored.items() if lemon.points}
        return {}

    def series(
        self, node: str, device: str, metric: str, since: float
    ) -> list[tuple[float, float]]:
        """(begin of the interval, median under load), oldest first."""
        from console.memory import read

        with self._reading() as db:
            if db is not None:
                return read.series(db, node, device, metric, since, self._clock())
        return []

    def events(self, node: str, since: float) -> list[Incident]:
        """Findings that were there at or after this time, in the order they began."""
        from console.memory import read

        with self._reading() as db:
            if db is not None:
                return read.incidents(db, node, since)
        return []

    def happened(self, since: float, until: float, most: int) -> list[Happening]:
        """What began and ended on all nodes in this time: the newest `most`, newest first."""
        from console.memory import told

        with self._reading() as db:
            if db is not None:
                return told.happened(db, since, until, most)
        return []

    def tested_since(self, node: str, at: float) -> bool | None:
        """Whether the last test that was judged on the node after this time was passed; None when
        none was."""
        from console.memory import read

        self.flush()
        with self._reading() as db:
            if db is not None:
                return read.tested_since(db, node, at)
        return None

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        """A connection for reading; None, said once, where there is none or it breaks."""
        from console.memory import store

        db: sqlite3.Connection | None = None
        try:
            with store.translated(self.path):
                db = store.for_reading(self.path)
                yield db
        except store.Unusable as error:
            if db is None:
                yield None
            if str(error) not in self._said:
                self._said.add(str(error))
                self._told(str(error))
        finally:
            if db is not None:
                db.close()

    def flush(self, timeout_s: float = CLOSE_S) -> bool:
        """Write all that is known so far; False when it could not be written in time."""
        return self._writer is None or self._writer.flush(timeout_s)

    def close(self, timeout_s: float = CLOSE_S) -> bool:
        """Write the rest and let go of the file; False when that took too long."""
        self.keeps = False
        writer, self._writer = self._writer, None
        return writer is None or writer.end(timeout_s)
