"""What nccl-tests printed under a scheduler, as the Samples that an agent would have sent. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from console.active.results import Group
from probes.event import Sample, Scalar
from probes.node.nccl_table import Table
from probes.sanitise import clean

LINE_CHARS = 4096
LINES_MOST = 100_000
TEXT_CHARS = 300
ENGINE = re.compile(r"^# engine (torch-\w{1,20})")
GPU_SIZES = {"b": 256 << 20, "e": 4 << 30, "f": 4, "n": 20, "w": 5}
"""As probes.node.nccl runs it: below 256 MiB latency rules (our estimate, not measured)."""


def flags(min_bytes: int | None, max_bytes: int | None, gpus: int) -> list[str]:
    """Options of all_reduce_perf for one task that drives `gpus` GPUs."""
    sizes = {**GPU_SIZES, "b": min_bytes or GPU_SIZES["b"], "e": max_bytes or GPU_SIZES["e"]}
    sizes["e"] = max(sizes["b"], sizes["e"])
    words = [word for name, value in sizes.items() for word in (f"-{name}", str(value))]
    return [*words, "-g", str(gpus), "-c", "0"]


class Printed:
    """Lines of one run, as they come."""

    def __init__(self) -> None:
        """Nothing read yet."""
        self.table = Table()
        self.engine = "nccl-tests"
        self.tail = ""
        """The last line that was not empty: what a program says when it gives up."""
        self._lines = 0

    def feed(self, line: str) -> None:
        """One line; of hostile output only so much is looked at."""
        self._lines += 1
        if self._lines > LINES_MOST:
            return
        if found := ENGINE.match(line):
            self.engine = found[1]
        self.table.feed(line[:LINE_CHARS])
        if line.strip() and not line.startswith("#"):
            self.tail = clean(line.strip(), TEXT_CHARS)

    def trouble(self, rc: int) -> str:
        """Why this is no valid measurement; "" when it is one. The exit status comes first."""
        table = self.table
        if table.errors:
            return clean(table.errors[0], TEXT_CHARS)
        wrong = table.wrong() or table.out_of_bounds or 0
        if wrong:
            return f"{wrong} wrong values"
        if rc != 0:
            return f"exit status {rc}: {self.tail}"
        return "" if table.rows else f"it measured nothing: {self.tail}"

    def samples(self, group: Group, name: str, rc: int, at: float) -> list[Sample]:
        """Rows and summary, of the group's first node."""
        node, table = group.nodes[0], self.table
        error = self.trouble(rc)
        values: dict[str, Scalar] = {
            "id": name, "ok": not error, "engine": self.engine, "version": table.version, "rc": rc,
            "nnodes": len(group.nodes),
        }  # fmt: skip
        if error:
            values["error"] = error
        if table.ranks is not None:
            values["ranks"] = table.ranks
        values |= _bandwidths(table)
        rows = [
            Sample(node=node, probe="nccl", at=at, values={**_scalars(row), "id": name})
            for row in table.rows
        ]
        return [*rows, Sample(node=node, probe="nccl", device="summary", at=at, values=values)]


def _bandwidths(table: Table) -> dict[str, Scalar]:
    found: dict[str, Scalar] = {}
    bands = [b for row in table.rows if isinstance(b := row.get("busbw_gb_s"), float)]
    largest = table.largest()
    if bands and table.busbw_means_something:
        found["busbw_max_gb_s"] = max(bands)
        if largest is not None and isinstance(b := largest.get("busbw_gb_s"), float):
            found["busbw_largest_gb_s"] = b
        if table.average is not None:
            found["busbw_avg_gb_s"] = table.average
    return found


def _scalars(row: Mapping[str, object]) -> dict[str, Scalar]:
    return {k: v for k, v in row.items() if isinstance(v, int | float | str | bool)}
