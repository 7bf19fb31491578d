"""CPU of one tick of the views of rows: taking in news, ordering, the cells in sight.

    python -m benchmarks.views [VIEW ...] [--nodes 4000] [--runs 9]

4,000 nodes x 8 GPUs in 1,000 jobs, 200 of them out of work, 10,000 lines of log. Prints, a view:
the first look at all nodes, a tick after 1 % of them had news, a tick after all had (as each second
in life), in ms; the median of `runs`, and the worst.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from console.collector import calm_collector
from console.fleet import Fleet
from console.tui.roster import Roster
from console.tui.theme import UNICODE
from inventory.node import Inventory, Node
from inventory.scheduler import Allocation, Job
from probes.event import Finding, Sample, Severity
from tests.tui import synthetic

if TYPE_CHECKING:
    from console.tui.views.table import Table

WIDTH, LINES = 160, 46
FAULTS = 10_000
SICK = ("findings", "stragglers", "drift")


def fleet(count: int, at: list[float]) -> Fleet:
    """Every node answers, four nodes a job, every twentieth out of work."""
    nodes = tuple(Node(name=f"gpu{i + 1:04d}", gpus=8, scheduler="slurm") for i in range(count))
    made = Fleet(Inventory(nodes=nodes), clock=lambda: at[0])
    for i, node in enumerate(nodes):
        job = Job(id=str(i // 4), user="mara", name="train", nodes=4, start_at=at[0] - 7200)
        for event in (*synthetic.slow(node.name, at[0]), *synthetic.fast(node.name, at[0])):
            made.apply(_of(event, job.id))
        out = i % 20 == 0
        made.apply(Allocation(
            node=node.name, at=at[0], scheduler="slurm", state="drained" if out else "allocated",
            reason="gpuconsole: xid 79" if out else "", reason_at=at[0] - 60.0 * i,
            jobs=() if out else (job,),
        ))  # fmt: skip
        made._verdicts[node.name] = Severity.WARN if i % 50 == 0 else Severity.OK
    for i in range(FAULTS):
        what = Finding(
            rule="xid", severity=Severity.WARN, node=nodes[i % count].name, say=f"GPU3: Xid {i}"
        )
        made._note(at[0] - i, what)
    return made


def sick(count: int, at: list[float]) -> Fleet:
    """Judged: every twentieth node is hot, has an Xid, another driver, or does not answer."""
    racks = [{"rack": f"r{i // 16}"} for i in range(count)]
    nodes = tuple(Node(name=f"gpu{i + 1:04d}", gpus=8, labels=racks[i]) for i in range(count))
    made = Fleet(Inventory(nodes=nodes), clock=lambda: at[0])
    for i, node in enumerate(nodes):
        if i % 80 == 60:
            made.apply(synthetic.unreachable(node.name, at[0]))
            continue
        for event in (*synthetic.slow(node.name, at[0]), *synthetic.fast(node.name, at[0])):
            made.apply(_sick(event, i))
        if i % 80 == 20:
            made.apply(synthetic.xid(node.name, at[0], synthetic.pci(3), 94, "Contained"))
    for _ in range(4):
        at[0] += 30.0
        for i, node in enumerate(nodes):
            for event in synthetic.fast(node.name, at[0]) if i % 80 != 60 else ():
                made.apply(_sick(event, i))
        made.tick(at[0])
    return made


def _sick(event: Any, number: int) -> Any:
    """What every eightieth node says instead."""
    if not isinstance(event, Sample):
        return event
    if number % 80 == 0 and (event.probe, event.device) == ("gpu", synthetic.pci(5)):
        hot = {"temp_c": 91, "sm_clock_mhz": 960, "reasons": 0x48, "thermal_margin_c": 0}
        return msgspec.structs.replace(event, values={**event.values, **hot})
    if number % 80 == 40 and "driver_version" in event.values:
        return msgspec.structs.replace(event, values={**event.values, "driver_version": "570.1"})
    return _of(event, str(number // 4))


def sick_tables(one: Fleet) -> dict[str, Callable[[], Table]]:
    """The views of what is wrong, by name."""
    from console.tui.views.drift import Drift
    from console.tui.views.findings import Findings
    from console.tui.views.stragglers import Stragglers

    return {
        "findings": lambda: Findings(one),
        "stragglers": lambda: Stragglers(one),
        "drift": lambda: Drift(one),
    }


def _of(event: Any, job: str) -> Any:
    if isinstance(event, Sample) and event.probe == "processes":
        rows = [{**row, "job": job} for row in event.rows]
        return msgspec.structs.replace(event, rows=rows)
    return event


def tick(table: Table, roster: Roster, names: set[str], now: float) -> dict[str, float]:
    """Milliseconds of one tick as the screen does it."""
    shown = roster.shown(now)
    columns = table.columns(WIDTH)
    steps: dict[str, Callable[[], object]] = {
        "update": lambda: table.update(names, now),
        "rows": lambda: table.rows(shown, now),
        "cells": lambda: [
            table.cells(key, columns, UNICODE, now) for key in table.rows(shown, now)[:LINES]
        ],
        "headline": table.headline,
    }
    spent = {}
    for name, step in steps.items():
        began = time.process_time()
        step()
        spent[name] = 1000 * (time.process_time() - began)
    return spent


def tables(one: Fleet, roster: Roster) -> dict[str, Callable[[], Table]]:
    """The views by name."""
    from console.tui.views.drained import DrainedTable
    from console.tui.views.fabric import FabricTable
    from console.tui.views.jobs import JobsTable
    from console.tui.views.log import LogTable

    return {
        "fabric": lambda: FabricTable(one),
        "jobs": lambda: JobsTable(lambda: one),
        "drained": lambda: DrainedTable(lambda: one),
        "log": lambda: LogTable(lambda: one, roster.summary),
    }


def news(one: Fleet, names: set[str], now: float, step: int) -> None:
    """A fast tick of these nodes."""
    for name in names:
        for event in synthetic.fast(name, now, step):
            one.apply(event)


def measure(
    one: Fleet, make: Callable[[], Table], at: list[float], runs: int, *, judged: bool = False
) -> None:
    """Print the rows of one view; `judged`: the Fleet judges the news first, unmeasured."""
    roster, table = Roster(one), make()
    every = set(one.nodes)
    few = set(list(one.nodes)[::100])
    _say("first", [tick(table, roster, every, at[0])])
    for label, names in (("1 %", few), ("all", every)):
        told = []
        for step in range(runs):
            at[0] += 1.0
            news(one, names, at[0], step)
            if judged:
                one.tick(at[0])
            told.append(tick(table, roster, names, at[0]))
        _say(label, told)


def heat(one: Fleet, at: list[float], runs: int) -> None:
    """Print the heat map: reading in slices (and the longest), another metric, ticks as drawn."""
    from console.tui.ticking import SLICE_S
    from console.tui.views.gpu_layout import arrange
    from console.tui.views.gpu_words import minimap
    from console.tui.views.gpus import HeatMap

    names = list(one.nodes)
    model = HeatMap(one)
    layout = arrange(WIDTH, LINES - 4, len(names), 8, 7)
    seen = names[: layout.columns * layout.visible(LINES - 4)]

    def build() -> list[float]:
        spent = []
        while True:
            began = time.process_time()
            ended = model.build(SLICE_S, at[0])
            spent.append(1000 * (time.process_time() - began))
            if ended:
                return spent

    def draw() -> float:
        began = time.process_time()
        for name in seen:
            model.block(name, layout.name, layout.cell, UNICODE, at[0], marked=False)
        minimap([model.weight(name) for name in names], layout, LINES - 4, 0, UNICODE)
        return 1000 * (time.process_time() - began)

    def told(label: str, slices: list[float], drawn: float) -> None:
        print(
            f"  {label:12} read {sum(slices):6.1f} in {len(slices)} slices, longest "
            f"{max(slices):.1f}   draw {drawn:.1f}"
        )

    model.update(names)
    told("first", build(), draw())
    for metric in ("power", "ecc", "temp"):
        began = time.process_time()
        model.choose(metric)
        took = 1000 * (time.process_time() - began) + draw()
        told(f"to {metric}", build(), took)
    for label, some in (("1 %", set(names[::100])), ("all", set(names))):
        for step in range(min(runs, 3)):
            at[0] += 1.0 + 5.0 * (step == 2)
            news(one, some, at[0], step)
            model.update(some, seen)
            told(f"{label}{', measured' if step == 2 else ''}", build(), draw())


def _say(label: str, told: list[dict[str, float]]) -> None:
    whole = [sum(one.values()) for one in told]
    parts = "  ".join(
        f"{name} {statistics.median(one[name] for one in told):.1f}" for name in told[0]
    )
    print(f"  {label:6} {statistics.median(whole):6.1f} (worst {max(whole):.1f})   {parts}")


def main() -> None:
    """Measure the views named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("views", nargs="*")
    parser.add_argument("--nodes", type=int, default=4000)
    parser.add_argument("--runs", type=int, default=9)
    asked = parser.parse_args()
    at = [synthetic.NOW]
    one = fleet(asked.nodes, at)
    calm_collector()  # as console.tui.app does once it has painted
    for name, make in tables(one, Roster(one)).items():
        if not asked.views or name in asked.views:
            print(f"{name}, {asked.nodes} nodes, ms of CPU")
            measure(one, make, at, asked.runs)
    if not asked.views or "gpus" in asked.views:
        print(f"gpus, {asked.nodes} nodes, ms of CPU")
        heat(one, at, asked.runs)
    wanted = set(asked.views or SICK) & set(SICK)
    ill = sick(asked.nodes, at) if wanted else one
    for name, make in sick_tables(ill).items():
        if name in wanted:
            print(f"{name}, {asked.nodes} nodes, a twentieth of them sick, ms of CPU")
            measure(ill, make, at, asked.runs, judged=True)


if __name__ == "__main__":
    main()
