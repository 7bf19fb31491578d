"""A day in short: a fleet whose trouble comes and goes, an operator who looks around.

Everything that has a name changes it as it would in reality: jobs, processes, boots, kernel lines.
What grows with them and is never forgotten shows in the counts.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator

import msgspec
from textual.pilot import Pilot

from console.tui.app import ConsoleApp
from inventory.scheduler import Allocation, Job
from probes.event import Event, NodeState, NodeStatus, Sample
from tests.tui import synthetic
from tests.tui.synthetic import NOW, LocalEngine, pci

STEP_S = 10.0
"""Simulated seconds between two ticks."""
SLOW_EVERY = 3
PHASE = 20
"""Ticks of one phase of a node: 200 s."""
PHASES = ("well", "lost", "hot", "port", "gone", "reboot")
KEYS = (
    "j", "j", "space", "n", "enter", "j", "tab", "escape", "2", "j", "3", "4", "j", "5", "6",
    "j", "8",
    "9", "0", "j", "1", "asterisk", "ctrl+backslash", "slash", "g", "p", "u", "enter", "escape",
    "a", "p", "p", "G", "g", "question_mark", "escape", "left_square_bracket",
    "right_square_bracket", "1", "colon", "s", "o", "r", "t", "space", "n", "o", "d", "e", "enter",
)  # fmt: skip
"""What the operator presses, one key a tick, over and over."""


class Day:
    """The story: what each node tells at a tick."""

    def __init__(self, engine: LocalEngine) -> None:
        """At NOW, nobody has answered."""
        self.engine = engine
        self.names = list(engine.fleet.nodes)
        self.ticks = 0

    def events(self) -> Iterator[Event]:
        """Of the next tick."""
        self.ticks += 1
        at = NOW + self.ticks * STEP_S
        for number, name in enumerate(self.names):
            yield from self._node(name, number, at)

    def _node(self, name: str, number: int, at: float) -> Iterator[Event]:
        # Phases of the nodes are spread, so that something is always wrong with some of them.
        step = self.ticks + number * PHASE * len(PHASES) // len(self.names)
        phase, turn = PHASES[step // PHASE % len(PHASES)], step // PHASE
        begins = step % PHASE == 0 or self.ticks == 1
        if phase == "gone":
            if begins:
                yield synthetic.unreachable(name, at)
            return
        if begins or self.ticks % SLOW_EVERY == 0:
            yield from self._slow(name, at, turn, hello=begins)
        if begins:
            yield self._allocation(name, number, at, turn)
        yield from self._faulty(phase, name, at, begins, turn)

    def _slow(self, name: str, at: float, turn: int, *, hello: bool) -> Iterator[Event]:
        for event in synthetic.slow(name, at):
            if isinstance(event, Sample) and event.probe == "hello":
                if hello:
                    boot = {**event.values, "boot_id": f"boot-{name}-{turn // len(PHASES)}"}
                    yield msgspec.structs.replace(event, values=boot)
            elif isinstance(event, NodeStatus):
                if hello:
                    yield NodeStatus(node=name, at=at, state=NodeState.UP)
            elif isinstance(event, Sample) and event.probe == "processes":
                rows = [{**r, "pid": 1000 + turn * 8 + i, "job": f"{turn}"}
                        for i, r in enumerate(event.rows)]  # fmt: skip
                yield msgspec.structs.replace(event, rows=rows)
            else:
                yield event

    def _allocation(self, name: str, number: int, at: float, turn: int) -> Allocation:
        job = Job(id=f"{turn * 1000 + number // 4}", user=f"u{turn}", name=f"run {turn}", nodes=4)
        held = turn % 5 == 0
        return Allocation(
            node=name, at=at, scheduler="memory", state="drained" if held else "allocated",
            raw="DRAIN" if held else "ALLOCATED", reason=f"reason {turn}" if held else "",
            partitions=("batch",), jobs=() if held else (job,),
        )  # fmt: skip

    def _faulty(self, phase: str, name: str, at: float, begins: bool, turn: int) -> Iterator[Event]:
        events = synthetic.fast(name, at, self.ticks)
        match phase:
            case "lost":
                yield from synthetic.lost(events, pci(3))
                if begins:
                    text = f"pid={turn}, GPU has fallen off the bus, turn {turn}."
                    yield synthetic.xid(name, at, pci(3), 79, text)
            case "hot":
                yield from synthetic.changed(
                    events, "gpu", pci(5), temp_c=91, sm_clock_mhz=960, reasons=0x40 | 0x8
                )
            case "port":
                yield from events
                ports = [e for e in synthetic.slow(name, at) if _is_port(e)]
                state = 1 if self.ticks % 2 else 4
                yield from synthetic.changed(ports, "infiniband", "mlx5_4/1", state=state)
            case _:
                yield from events


def _is_port(event: Event) -> bool:
    return isinstance(event, Sample) and event.probe == "infiniband"


async def tick(app: ConsoleApp, day: Day) -> None:
    """What the nodes tell next, judged and drawn."""
    day.engine.at = NOW + (day.ticks + 1) * STEP_S
    day.engine.feed_all(day.events())
    day.engine.fleet.tick(day.engine.at)
    await app.tick()


async def live(app: ConsoleApp, day: Day, ticks: int, pilot: Pilot[None]) -> None:
    """Let time pass, then go back to where a look at the counts is fair: the fleet, no marks."""
    for _ in range(ticks):
        await tick(app, day)
        await pilot.press(KEYS[day.ticks % len(KEYS)])
    await pilot.press("escape", "escape")
    app.go("fleet")
    app.roster.mark(list(app.roster.marked), on=False)
    if app.paused:
        app.toggle_pause()
    await app.tick()
    await pilot.pause()


def census() -> Counter[str]:
    """Live container objects by type."""
    gc.collect()
    return Counter(f"{type(o).__module__}.{type(o).__qualname__}" for o in gc.get_objects())
