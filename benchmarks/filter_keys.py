"""What a key in the filter costs with 4,000 nodes: `python -m benchmarks.filter_keys [NODES]`.

Processor time, not the clock: from the text to the names shown in order, for several filters; the
summaries are read before, in slices, as the console does when the prompt opens.
"""

from __future__ import annotations

import asyncio
import sys
import time

from console.tui.filter import FilterError
from console.tui.roster import Roster
from tests.tui import synthetic

FILTERS = (
    "lost", "state:crit", "node:gpu0*", "temp:60..90", "node~^gpu0[0-4]", "~nv.*link", "~.*foo",
    "temp>85 !job:812 | is:fault", "label.rack:r7", "age>3s", "~([a-z0-9]+.?)+#",
)  # fmt: skip
TIMES = 5


def roster(nodes: int) -> tuple[Roster, float]:
    """Nodes with two readings each, and the moment of the last one."""
    inventory = synthetic.inventory(nodes)
    scheduler = synthetic.MemoryScheduler([n.name for n in inventory.nodes], synthetic.jobs())
    engine = synthetic.LocalEngine(inventory, scheduler)
    for events in synthetic.faulty_steps(inventory, history=2):
        for event in events:
            engine.feed(event)
    asyncio.run(engine.refresh())
    engine.fleet.tick(engine.at)
    return Roster(engine.fleet), engine.at


def main() -> None:
    """Print one line a filter: nodes shown, best and worst of several times in ms."""
    found, now = roster(int(sys.argv[1]) if len(sys.argv) > 1 else 4000)
    began = time.process_time()
    found.build(float("inf"))
    print(
        f"{'summaries of all nodes, in slices':32} {(time.process_time() - began) * 1e3:14.0f} ms"
    )
    for text in FILTERS:
        took, shown = [], "refused"
        for _ in range(TIMES):
            began = time.process_time()
            try:
                found.narrow(text, now)
                shown = str(len(found.order(now)))
            except FilterError:
                pass
            took.append((time.process_time() - began) * 1e3)
        print(f"{text:32} {shown:>7} {min(took):6.1f} to {max(took):6.1f} ms")
        found.narrow("", now)


if __name__ == "__main__":
    main()
