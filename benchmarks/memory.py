"""What remembering costs: the event loop, the writing thread, the disk.

    python -m benchmarks.memory [--nodes 4000] [--seconds 60] [--days 3]

Prints JSON.

fleet_us, with_memory_us    CPU of the feeding thread per Sample (8 GPUs a node, one each second)
ratio                       with the memory over the Fleet alone, median of alternating rounds
tap_us                      tap() alone on the same Samples; skipped_us on those it does not keep
writer_share                CPU of the writing thread over wall time of the fleet's seconds
bytes_per_row               file size over rows, by table
days                        nodes -> days of five-minute, hourly and daily rows in the default size
own_ms                      reading all baselines of those nodes
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import tempfile
import time
from pathlib import Path

from console.fleet import Fleet
from console.memory import past, store, thin
from console.memory.book import Book
from console.memory.gather import Row, Series
from console.memory.memory import MOST_BYTES, Memory
from console.memory.metrics import GPU, PORT, Thin, pack
from inventory.node import Inventory, Node
from probes.event import Event, Sample, Scalar

GPUS, PORTS = 8, 8
SIZES = (64, 1000, 4000)


def readings(gpu: int, at: float) -> dict[str, Scalar]:
    """A loaded H100."""
    return {
        "index": gpu, "util_percent": 97, "mem_util_percent": 55, "power_w": 655.0 + gpu,
        "power_limit_w": 700.0, "reasons": 4, "sm_clock_mhz": 1755, "mem_clock_mhz": 2619,
        "sm_clock_max_mhz": 1980, "temp_c": 60 + gpu, "mem_temp_c": 75, "pstate": 0,
        "energy_mj": int(at * 655), "thermal_margin_c": 23,
    }  # fmt: skip


def seconds(names: list[str], begin: float, count: int) -> list[list[Event]]:
    """What all GPUs say, second by second."""
    return [
        [
            Sample(node=name, probe="gpu", device=f"0000:{gpu:02x}:00.0", at=begin + second,
                   clock=second, values=readings(gpu, begin + second))
            for name in names
            for gpu in range(GPUS)
        ]
        for second in range(count)
    ]  # fmt: skip


def inventories(names: list[str], at: float) -> list[Event]:
    """Which cards there are."""
    told: list[Event] = []
    for name in names:
        for gpu in range(GPUS):
            values: dict[str, Scalar] = {"index": gpu, "serial": f"{name}-{gpu}", "name": "H100"}
            device = f"0000:{gpu:02x}:00.0"
            told.append(Sample(node=name, probe="inventory", device=device, at=at, values=values))
        driver: dict[str, Scalar] = {"driver_version": "580.95.05"}
        told.append(Sample(node=name, probe="inventory", at=at, values=driver))
    return told


def feeding(nodes: int, count: int, folder: Path) -> dict[str, float]:
    """Seconds of a fleet with and without the memory, in turn."""
    names = [f"gpu{i:04d}" for i in range(nodes)]
    inventory = Inventory(nodes=tuple(Node(name=name, gpus=GPUS) for name in names))
    now = [1e9]
    memory = Memory(folder / "feeding.sqlite", clock=lambda: now[0])
    fleets = {False: Fleet(inventory), True: Fleet(inventory)}
    for event in inventories(names, now[0]):
        for fleet in fleets.values():
            fleet.apply(event)
        memory.tap(event)
    spent: dict[bool, list[float]] = {False: [], True: []}
    other, began = 0.0, time.monotonic()
    for second in range(count):
        (events,) = seconds(names, 1e9 + second, 1)
        now[0] = 1e9 + second
        for remembers in (False, True) if second % 2 else (True, False):
            gc.collect()
            mine, all_ = time.thread_time(), time.process_time()
            apply, tap = fleets[remembers].apply, memory.tap
            for event in events:
                apply(event)
                if remembers:
                    tap(event)
            spent[remembers].append(1e6 * (time.thread_time() - mine) / len(events))
            other += (time.process_time() - all_) - (time.thread_time() - mine)
    before = time.process_time() - time.thread_time()
    memory.close(60)
    closing = time.process_time() - time.thread_time() - before
    pairs = zip(spent[True], spent[False], strict=True)
    return {
        "fleet_us": statistics.median(spent[False]),
        "with_memory_us": statistics.median(spent[True]),
        "ratio": statistics.median(a / b for a, b in pairs),
        "writer_share": before / count, "closing_s": closing, "wall_s": time.monotonic() - began,
    }  # fmt: skip


def taps(nodes: int, folder: Path) -> dict[str, float]:
    """tap() alone: when the windows are open, and when they are closed."""
    names = [f"gpu{i:04d}" for i in range(nodes)]
    memory = Memory(folder / "taps.sqlite")
    told = {}
    for name, second in (("tap_us", 0), ("skipped_us", 5)):
        (events,) = seconds(names, 1e9 + second, 1)
        began = time.thread_time()
        for event in events:
            memory.tap(event)
        told[name] = 1e6 * (time.thread_time() - began) / len(events)
    memory.close(60)
    return told


def sizes(days: int, folder: Path) -> dict[str, float]:
    """Bytes a row of 16 nodes, each table by itself."""
    told = {}
    series = [
        *(card(node, gpu) for node in range(16) for gpu in range(GPUS)),
        *(Series(f"gpu{node:04d}", f"mlx5_{port}/1", PORT, "", "400 Gb/s")
          for node in range(16) for port in range(PORTS)),
    ]  # fmt: skip
    for level in thin.LEVELS:
        path = folder / f"{level.name}.sqlite"
        db = store.connect(path, MOST_BYTES)
        book, rows, empty = Book(db), 0, thin.used_bytes(db)
        for step in range(max(50, int(days * 86400 / level.step_s))):
            at = 1_700_000_000 // level.step_s * level.step_s + step * level.step_s
            with store.transaction(db):
                for one in series:
                    values = _values(one, step)
                    number = book.series(one, "GPU0", at)
                    query = f"INSERT INTO {level.name} VALUES (?,?,?,?,?)"
                    db.execute(query, (at, number, 10, True, pack(one.kind, values)))
                    rows += 1
        told[level.name] = (thin.used_bytes(db) - empty) / rows
        db.close()
    return told


def card(node: int, gpu: int) -> Series:
    """One GPU."""
    device = f"0000:{gpu:02x}:00.0"
    return Series(f"gpu{node:04d}", device, GPU, f"s{node}-{gpu}", "H100", "580", 700)


def _values(series: Series, step: int) -> list[float]:
    if series.kind == PORT:
        return [21e9 + step * 1e5, 22e9 - step * 1e5]
    return [1755 + step % 3, 2619, 655.0 + step % 7, 61, 75, 97, 61, 53, 1e11, 1e11, 1e9, 1e9]


def days_kept(
    bytes_per_row: dict[str, float], bytes_per_series: float
) -> dict[str, dict[str, float]]:
    """How the size is shared out, by the rules of console/memory/thin.py."""
    told = {}
    for nodes in SIZES:
        rows = nodes * (GPUS + PORTS)
        a_day = {
            one.name: rows * 86400 / one.step_s * bytes_per_row[one.name] for one in thin.LEVELS
        }
        room = thin.FULL * MOST_BYTES - rows * bytes_per_series
        kept = {one.name: one.kept_s / 86400 for one in thin.LEVELS}
        for level, least_s in thin.CUTS:
            over = sum(kept[name] * a_day[name] for name in kept) - room
            cut = max(0.0, over) / a_day[level.name]
            kept[level.name] = max(least_s / 86400, kept[level.name] - cut)
        told[str(nodes)] = {name: round(value, 2) for name, value in kept.items()}
    return told


def baselines(nodes: int, folder: Path) -> dict[str, float]:
    """Reading them all."""
    db = store.connect(folder / "past.sqlite", MOST_BYTES)
    book = Book(db)
    packed = pack(GPU, [1755, 2619, 655, 61, 75, 97, 61, 53, 1e11, 1e11, 1e9, 1e9])
    with store.transaction(db):
        for node in range(nodes):
            for gpu in range(GPUS):
                row = Row(1_700_000_000, card(node, gpu), "GPU0", Thin(1, True, packed))
                book.rows([row])
        query = "INSERT INTO baseline SELECT id, 20, 1700000000, ?, zeroblob(580) FROM series"
        db.execute(query, (packed,))
    runs = []
    for _ in range(3):
        began = time.process_time()
        found = past.read(db, 1.7e9)
        runs.append(1e3 * (time.process_time() - began))
    each = thin.used_bytes(db) / (nodes * GPUS)
    db.close()
    assert found["gpu0001", "0000:01:00.0", "sm_clock_mhz"].median == 1755
    return {"own_ms": statistics.median(runs), "bytes_per_series": each}


def main() -> None:
    """Command line; see the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=4000)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--days", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        told: dict[str, object] = {}
        told |= feeding(options.nodes, options.seconds, folder)
        told |= taps(options.nodes, folder)
        told |= (past_ := baselines(options.nodes, folder))
        told["bytes_per_row"] = found = sizes(options.days, folder)
        told["days"] = days_kept(found, past_["bytes_per_series"])
    print(json.dumps(told))


if __name__ == "__main__":
    main()
