"""One run of nccl-tests as its output tells it, whatever the release and the launcher."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeAlias

from msgspec import Struct, field

from console.diagnose import nccl_log
from console.diagnose.nccl_trouble import Death, untagged
from console.diagnose.text import Text
from probes.node.nccl_table import STAMP, Table
from probes.rules import Product, load_rules

Row: TypeAlias = dict[str, Any]
"""A table row as nccl_table gives it."""
OLD_ERROR = re.compile(r"algbw\s+busbw\s+error", re.IGNORECASE)
"""Column head before 2.13: the largest difference, no count of wrong values."""
_START = re.compile(r"^# (?:nccl-tests version|nThread \d|Collective test starting)")
_MEMORY = re.compile(r"^#.*(?:memory|Memory).*?(\d+(?:\.\d+)?)\s*(\w*B)\b")
_ERROR = re.compile(r"^# ?[Ee]rror: ?(.*)|^error: (.*)")
LARGE_BYTES = 256 << 20


class Run(Struct):
    """Everything one run told."""

    table: Table = field(default_factory=Table)
    log: nccl_log.Log = field(default_factory=nccl_log.Log)
    death: Death = field(default_factory=Death)
    rows: list[list[Row]] = field(default_factory=list)
    """The placements of each table line."""
    lines: list[str] = field(default_factory=list)
    """The very lines of `rows`."""
    old_errors: bool = False
    header: bool = False
    verdict_word: str = ""
    """OK or FAILED behind the average, when a minimum was set."""
    average_line: str = ""
    bounds_line: str = ""
    memory: str = ""
    errors: list[str] = field(default_factory=list)
    host: str = ""
    """Of the prompt above, where the header names none."""
    late: list[dict[int, float]] = field(default_factory=list)
    """Size by size the processes that wait least, as a share of what the others wait."""

    def feed(self, raw: str) -> None:
        """Read one line."""
        line = untagged(raw[: nccl_log.LINE_CHARS])
        if line.startswith("#"):
            self._comment(line)
        rows = self.table.feed(line)
        if rows:
            self.rows.append(rows)
            self.lines.append(line.strip())
        elif not line.startswith("#"):
            self.log.feed(raw)
            self.death.feed(line)

    def _comment(self, line: str) -> None:
        self.old_errors = self.old_errors or OLD_ERROR.search(line) is not None
        self.header = self.header or "algbw" in line
        if line.startswith("# Avg bus bandwidth"):
            self.average_line = line.strip()
            self.verdict_word = line.rsplit(maxsplit=1)[-1] if "FAILED" in line else ""
        if line.startswith("# Out of bounds"):
            self.bounds_line = line.strip()
        if _MEMORY.match(line):
            self.memory = self.memory or line.lstrip("# ").strip()
        if error := _ERROR.match(line):
            self.errors.append((error[1] or error[2] or "").strip())

    @property
    def hosts(self) -> list[str]:
        """In the order of the header."""
        return list(dict.fromkeys(str(device["host"]) for device in self.table.devices))

    @property
    def alone(self) -> bool:
        """One rank, or several processes that each believe to be rank 0: a build without MPI."""
        ranks = {device["rank"] for device in self.table.devices}
        return ranks == {0} or not self.table.busbw_means_something

    @property
    def node(self) -> str:
        """The host when it is one."""
        hosts = self.hosts
        return hosts[0] if len(hosts) == 1 else "" if hosts else self.host

    @property
    def names(self) -> list[str]:
        """GPU products of the header."""
        return list(dict.fromkeys(str(device["name"]) for device in self.table.devices))

    @property
    def product(self) -> Product | None:
        """The one product of all ranks, when the catalogue has it."""
        names = self.names
        return load_rules().product(None, names[0]) if len(names) == 1 else None

    @property
    def best(self) -> float | None:
        """Highest busbw of any row."""
        return max(self._busbw(), default=None)

    def _busbw(self) -> Iterator[float]:
        for row in self.table.rows:
            if isinstance(value := row.get("busbw_gb_s"), float | int):
                yield float(value)

    @property
    def large(self) -> Row | None:
        """The better placement of the largest size."""
        return self.table.largest()

    @property
    def large_busbw(self) -> float | None:
        """Its busbw; None without rows."""
        value = (self.large or {}).get("busbw_gb_s")
        return float(value) if isinstance(value, float | int) else None

    @property
    def large_size(self) -> int:
        """Its size, bytes; 0 without rows."""
        return size((self.large or {}).get("size_bytes"))

    @property
    def wrong(self) -> int:
        """Values found wrong; the footer decides for releases that print differences."""
        bounds = self.table.out_of_bounds or 0
        return bounds if self.old_errors else max(bounds, self.table.wrong())


def size(value: object) -> int:
    """A row's size, 0 when it is none."""
    return value if isinstance(value, int) else 0


def runs(text: Text) -> list[Run]:
    """The runs of a text: a new header after rows or a footer begins another one."""
    found = [Run(host=text.host)]
    begun = False
    for _, line in text:
        plain = untagged(line[:200])
        if _START.match(plain) and (found[-1].rows or found[-1].average_line or not begun):
            if begun and (found[-1].rows or found[-1].average_line):
                found.append(Run(host=text.host))
            begun = True
        found[-1].feed(line)
    return found[:1000]


def facts(run: Run) -> dict[str, Any]:
    """What the run says, without judgement."""
    table = run.table
    found: dict[str, Any] = {
        "test": table.test, "version": table.version, "nccl_library": table.library,
        "ranks": table.ranks, "nodes": len(run.hosts) or None, "hosts": run.hosts,
        "gpus": run.names, "rows": len(run.rows), "columns": _columns(run),
        "out_of_bounds": table.out_of_bounds, "wrong": run.wrong,
        "avg_busbw": table.average, "max_busbw": run.best,
        "large_message_busbw": run.large_busbw, "large_message_bytes": run.large_size or None,
        "busbw_meaningful": not run.alone, "completed": table.concluded,
        "transport": table.transport, "memory": run.memory,
        "timestamps": [str(rows[0]["timestamp"]) for rows in run.rows if "timestamp" in rows[0]],
        "signal": run.death.signal, "rank": run.death.rank, "host": run.death.host,
        "frame": run.death.frame, "errors": [*table.errors, *run.errors][:20],
    }  # fmt: skip
    if run.alone:
        found["ranks"] = 1
        for name in ("avg_busbw", "max_busbw", "large_message_busbw", "large_message_bytes"):
            found.pop(name)
    keep = ("rows", "completed", "busbw_meaningful", "wrong")
    found = {k: v for k, v in found.items() if k in keep or v not in (None, "", [])}
    found["table"] = [_plain_row(row) for rows in run.rows[:200] for row in rows]
    for rows in run.rows[:200]:
        if "i_max_us" in rows[0]:
            found[f"row_{rows[0]['size_bytes']}"] = _iteration_row(rows[0])
    return found


def _columns(run: Run) -> str:
    first = run.rows[0][0] if run.rows else {}
    parts = ["per-iteration"] if "i_max_us" in first else []
    parts += ["timestamp"] if any(STAMP.search(line) for line in run.lines[:3]) else []
    parts += ["error instead of #wrong"] if run.old_errors else []
    return " + ".join(parts) or ("plain" if run.rows else "")


def _plain_row(row: Row) -> dict[str, Any]:
    kept = ("size_bytes", "in_place", "time_us", "busbw_gb_s", "algbw_gb_s", "wrong")
    return {name: row[name] for name in kept if name in row}


def _iteration_row(row: Row) -> dict[str, Any]:
    names = {"busbw_gb_s": "busbw", "time_us": "time_us", "i_min_us": "i_min_us",
             "i_max_us": "i_max_us", "i_p99_us": "i_p99_us",
             "i_cv_percent": "i_cv_pct"}  # fmt: skip
    return {new: row[old] for old, new in names.items() if old in row}
