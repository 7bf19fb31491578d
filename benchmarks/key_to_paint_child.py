"""The measured process: `grid`, `quiet` (grid, one node in a hundred changes), `table` (DataTable),
`none` (no screen: what collecting and judging cost), or a view by its name."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from textual.app import App, ComposeResult
from textual.widgets import DataTable

from benchmarks import inside
from console.collector import calm_collector
from console.evidence import Kept
from console.fleet import Fleet
from console.preferences import Preferences
from console.recording.recorder import Recorder
from console.tui import view
from console.tui.app import ConsoleApp
from console.tui.roster import Roster
from console.tui.theme import UNICODE
from console.tui.ticking import BREATH_S, JUDGING_S, SLICE_S
from console.tui.views import VIEW_IDS
from inventory.node import Inventory, Node
from inventory.scheduler import Plan, Step
from probes.event import Event, NodeState, NodeStatus, Sample, Scalar
from probes.transport import Transport

BATCHES = 20
"""Per second at least: sessions answer spread over the tick, not all at once."""
BATCH_NODES = 20
"""Nodes in one go at most: each session is its own turn of the loop."""
VARIANTS = 7


def pci(gpu: int) -> str:
    """PCI address of a GPU."""
    return f"0000:{0x1B + gpu * 0x10:02x}:00.0"


PCIS = [pci(gpu) for gpu in range(8)]


def readings(gpu: int, variant: int) -> dict[str, Scalar]:
    """A busy GPU whose shown numbers differ between variants."""
    return {
        "index": gpu,
        "util_percent": 90 + variant,
        "mem_util_percent": 50,
        "mem_used_bytes": 60 << 30,
        "mem_total_bytes": 80 << 30,
        "temp_c": 55 + (gpu + variant) % VARIANTS,
        "mem_temp_c": 70,
        "power_w": 600.0 + 13 * variant,
        "power_limit_w": 700.0,
        "sm_clock_mhz": 1700 + 15 * variant,
        "sm_clock_max_mhz": 1980,
        "reasons": 4,
        "pstate": 0,
    }


READINGS = [[readings(gpu, variant) for gpu in range(8)] for variant in range(VARIANTS)]


CARD: dict[str, Scalar] = {
    "name": "NVIDIA H100 80GB HBM3",
    "pci_device_id": "2330",
    "pci_subsystem_id": "16c110de",
}
ECC: dict[str, Scalar] = {
    "ecc_mode": True,
    "ecc_uncorrected_volatile": 0,
    "ecc_corrected_volatile": 0,
    "remap_pending": False,
    "remap_failure": False,
    "recovery_action": 0,
}
PCIE: dict[str, Scalar] = {"gen": 5, "gen_max": 5, "width": 16, "width_max": 16, "replays": 0}
LINKS: dict[str, Scalar] = {"links": 18, "fabric_state": 3, "fabric_status": 0}
for _link in range(18):
    LINKS |= {f"link{_link}_up": True, f"link{_link}_mbps": 26562, f"link{_link}_crc": 0}
PORT: dict[str, Scalar] = {
    "state": 4,
    "state_text": "ACTIVE",
    "phys_state": 5,
    "rate_gbps": 400.0,
    "link_layer": "InfiniBand",
    "has_counters": True,
    "link_downed": 0,
    "symbol_error": 0,
}


def standing_events(name: str, now: float) -> Iterator[Event]:
    """What changes rarely: inventory, ECC, PCIe, NVLink and ports of eight GPUs."""
    clock = time.monotonic()
    yield NodeStatus(node=name, at=now, state=NodeState.UP)
    whole: dict[str, Scalar] = {"driver_version": "570.86.15", "gpu_count": 8, "pci_gpu_count": 8}
    yield Sample(node=name, probe="inventory", at=now, clock=clock, values=whole)
    for gpu, device in enumerate(PCIS):
        per_gpu = {"inventory": {**CARD, "index": gpu}, "ecc": ECC, "pcie": PCIE, "nvlink": LINKS}
        for probe, values in per_gpu.items():
            yield Sample(node=name, probe=probe, device=device, at=now, clock=clock, values=values)
        port = f"mlx5_{gpu}/1"
        yield Sample(node=name, probe="infiniband", device=port, at=now, clock=clock, values=PORT)


def tick_events(
    names: Sequence[str], step: int, now: float, *, alike: bool = False
) -> Iterator[Event]:
    """One tick of these nodes; `alike`: all with the same readings, at every step."""
    clock = time.monotonic()
    for offset, name in enumerate(names):
        values = READINGS[0 if alike else (step + offset) % VARIANTS]
        for gpu in range(8):
            yield Sample(
                node=name, probe="gpu", device=PCIS[gpu], at=now, clock=clock, values=values[gpu]
            )


class Feed:
    """An engine without sessions: Events are made here and applied to the real Fleet."""

    read_only = True
    cluster = "bench"
    recorder: Recorder | None = None
    state = Path(tempfile.gettempdir()) / "gpuconsole-bench-state"

    def __init__(self, count: int, quiet: bool) -> None:
        """All nodes have answered once before the screen opens."""
        nodes = tuple(Node(name=f"gpu{i + 1:04d}", gpus=8) for i in range(count))
        self.fleet = Fleet(Inventory(nodes=nodes, cluster="bench"))
        self.names = list(self.fleet.nodes)
        self.quiet = quiet
        now = time.time()
        self._apply(event for name in self.names for event in standing_events(name, now))
        self._apply(tick_events(self.names, 0, now))

    def _apply(self, events: Iterable[Event]) -> None:
        for event in events:
            self.fleet.apply(event)

    async def run(self) -> None:
        """Every node once a second, in batches; `quiet` repeats the same readings."""
        step, share = 0, min(BATCH_NODES, -(-len(self.names) // BATCHES))
        pause_s = share / len(self.names)
        while True:
            step += 1
            for start in range(0, len(self.names), share):
                began = time.perf_counter()
                names = self.names[start : start + share]
                self._apply(self._told(names, step))
                await asyncio.sleep(max(0.0, pause_s - (time.perf_counter() - began)))

    def _told(self, names: Sequence[str], step: int) -> Iterator[Event]:
        if not self.quiet:
            return tick_events(names, step, time.time())
        news = [n for n in names if int(n[3:]) % 100 == step % 100]
        same = [n for n in names if n not in news]
        now = time.time()
        return chain(tick_events(same, 0, now, alike=True), tick_events(news, step, now))

    async def plan(self, verb: str, names: Iterable[str], reason: str, **options: bool) -> Plan:
        """Never: read-only."""
        raise NotImplementedError

    async def execute(
        self, plan: Plan, typed_count: int | None = None, **options: bool
    ) -> AsyncIterator[Step]:
        """Never: read-only."""
        raise NotImplementedError
        yield

    def gather(self, names: Sequence[str], why: str) -> AsyncIterator[Kept]:
        """Nobody presses e here."""
        raise NotImplementedError

    def transport(self) -> Transport:
        """There is no node."""
        raise NotImplementedError

    def record(self, path: Path, most_bytes: int | None = None) -> None:
        """Nobody records here."""
        raise NotImplementedError

    def stop_recording(self) -> Recorder | None:
        """Nothing to end."""
        return None

    def ssh_command(self, name: str) -> list[str]:
        """Never used."""
        raise NotImplementedError


async def no_screen(feed: Feed) -> None:
    """Collecting and judging at the console's pace, nothing drawn."""
    calm_collector()
    collecting = asyncio.create_task(feed.run())
    while not collecting.done():
        began = time.perf_counter()
        await judge(feed.fleet)
        await asyncio.sleep(max(0.2, 1 - (time.perf_counter() - began)))


async def judge(fleet: Fleet) -> None:
    """As ConsoleApp does."""
    for _ in range(int(JUDGING_S / SLICE_S)):
        began = time.perf_counter()
        fleet.tick(time.time(), SLICE_S)
        if time.perf_counter() - began < SLICE_S:
            return
        await asyncio.sleep(BREATH_S)


class TableApp(App[None]):
    """The same rows in a DataTable, updated cell by cell where the text changed."""

    CSS = "DataTable { height: 1fr; } DataTable > .datatable--cursor { text-style: reverse; }"

    def __init__(self, feed: Feed) -> None:
        """Same Events, same Fleet, same rows."""
        super().__init__(ansi_color=True)
        self.theme = "ansi-dark"
        self.feed = feed
        self.roster = Roster(feed.fleet)
        self.columns = view.columns(158, feed.names)
        self.shown: dict[str, list[str]] = {}

    def compose(self) -> ComposeResult:
        """Only the table."""
        yield DataTable(cursor_type="row", cell_padding=0)

    def on_mount(self) -> None:
        """All rows, then the same worker and tick as the console."""
        table = self.query_one(DataTable)
        for column in self.columns:
            table.add_column(column.title, key=column.name, width=column.width)
        for name in self.feed.names:
            self.shown[name] = self.cells(name)
            table.add_row(*self.shown[name], key=name)
        table.focus()
        self.run_worker(self.feed.run(), group="engine")
        self.run_worker(self.ticks(), group="tick")

    def cells(self, name: str) -> list[str]:
        """Texts of a row."""
        row = view.row(self.roster.summary(name), self.columns, UNICODE, time.time())
        return [cell.text for cell in row]

    async def ticks(self) -> None:
        """Judge in slices, update every cell that differs, give way as often as the console."""
        table = self.query_one(DataTable)
        while True:
            began = time.perf_counter()
            await judge(self.feed.fleet)
            dirty = self.feed.fleet.take_dirty()
            self.roster.changed(dirty)
            sliced = time.perf_counter()
            for name in dirty:
                new = self.cells(name)
                for column, old, now in zip(self.columns, self.shown[name], new, strict=True):
                    if old != now:
                        table.update_cell(name, column.name, now)
                self.shown[name] = new
                if time.perf_counter() - sliced > SLICE_S:
                    await asyncio.sleep(BREATH_S)
                    sliced = time.perf_counter()
            await asyncio.sleep(max(0.2, 1 - (time.perf_counter() - began)))


def main() -> None:
    """Run one kind until killed."""
    kind, count = sys.argv[1], int(sys.argv[2])
    feed = Feed(count, quiet=kind == "quiet")
    if kind == "none":
        asyncio.run(no_screen(feed))
        return
    app: App[None] = TableApp(feed) if kind == "table" else console(feed, kind)
    asyncio.run(app.run_async())


def console(feed: Feed, kind: str) -> ConsoleApp:
    """The console, at a view where `kind` names one."""
    if os.environ.get(inside.PATH):
        inside.measure()
    start = kind if kind in VIEW_IDS else "fleet"
    app = ConsoleApp(feed, preferences=Preferences(start=start))
    app.roster.sort = "node"
    return app


if __name__ == "__main__":
    main()
