"""nccl-tests' own JSON report (-J, since 2.17): the same judgement as of its text.

Its "env" holds every environment variable of the run, secrets included: it is never looked at.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from typing import Any

from console.diagnose import nccl_tests
from console.diagnose.nccl_run import Row, Run
from console.diagnose.report import Report
from console.diagnose.text import Text
from probes.event import Action, Severity
from probes.rule import Rule

KIND = "nccl-tests"
TITLE = "its JSON reports (-J)"
STREAMS = False

LATE = Rule(
    id="nccl_tests.late_process",
    title="One process waits less than the others: it comes last",
    severity=Severity.INFO,
    reads="per_process_max_times_us of the JSON report",
    cause="the GPU, host or adapter of that process is slower; the others wait for it",
    action=Action.WATCH,
    next_step="look at its node first: clocks, power, PCIe and links",
    source="the late rank's own kernel is the shortest [nct]; the limit is our estimate",
    others="-",
    example="process 3 (gpu-a02): 3.1 ms, the others 4.4 ms",
)
RULES = (LATE,)

WAIT_SHARE = 0.85
"""Our estimate: healthy processes of one collective agree within a few per cent."""
ROWS = 20_000
_SHAPE = re.compile(r'"(?:out_of_place|in_place)"\s*:')
_FIELDS = {"time": "time_us", "cpu_time": "time_us", "alg_bw": "algbw_gb_s", "bus_bw": "busbw_gb_s"}
_ITERATIONS = {"min_us": "i_min_us", "max_us": "i_max_us", "p99_us": "i_p99_us",
               "cv_pct": "i_cv_percent"}  # fmt: skip


def sniff(head: str) -> int:
    """By the names of its fields."""
    if not head.lstrip("\ufeff \n\r\t").startswith(("{", "[")):
        return 0
    if _SHAPE.search(head) and re.search(r'"(?:bus_bw|alg_bw)"', head):
        return 97
    return 90 if re.search(r'"nccl_version"\s*:', head) and '"config"' in head else 0


def read(text: Text) -> Report:
    """One run; of a report that was never closed what is whole."""
    run, whole = _run(text)
    report = nccl_tests.judged(run)
    common = set.intersection(*map(set, run.late)) if len(run.late) > 1 else set()
    for process in sorted(common)[:4]:
        share = statistics.median(by_process[process] for by_process in run.late)
        report.add(LATE, f"process {process} waits {share:.0%} of what others do: it comes last",
                   f"per_process_max_times_us of process {process}",
                   value=round(share, 2))  # fmt: skip
    if not whole:
        report.unknown.append("the end of the report: it was cut short or never closed")
    return report


def _run(text: Text) -> tuple[Run, bool]:
    run = Run(host=text.host)
    whole = False
    for value in text.documents():
        for one in value if isinstance(value, list) else [value]:
            if not isinstance(one, dict):
                continue
            whole = whole or "average_bus_bandwidth" in one
            _report(run, one)
    return run, whole


def _report(run: Run, told: dict[str, Any]) -> None:
    """A whole report, or one device or result of a broken one."""
    table = run.table
    table.version = _text(told.get("version")) or table.version
    library = told.get("nccl_version")
    table.library = str(library) if isinstance(library, int | str) else table.library
    config = told.get("config")
    if isinstance(config, dict):
        for device in _dicts(config.get("devices")):
            _device(run, device)
    elif "hostname" in told and "rank" in told:
        _device(run, told)
    args = told.get("args")
    if isinstance(args, list) and args and isinstance(args[0], str):
        table.test = args[0].rsplit("/", 1)[-1][:100]
    results = _dicts(told.get("results")) if "results" in told else iter(())
    for result in results:
        _result(run, result)
    if "size" in told and ("in_place" in told or "out_of_place" in told):
        _result(run, told)
    _footer(run, told)


def _device(run: Run, device: dict[str, Any]) -> None:
    if len(run.table.devices) >= ROWS:
        return
    run.table.devices.append({
        "rank": device.get("rank"), "pid": device.get("pid"), "device": device.get("device"),
        "host": _text(device.get("hostname")), "pci": _text(device.get("device_hex")),
        "name": _text(device.get("device_info")),
    })  # fmt: skip


def _result(run: Run, result: dict[str, Any]) -> None:
    size = result.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or len(run.rows) >= ROWS:
        return
    rows: list[Row] = []
    for place in ("out_of_place", "in_place"):
        cells = result.get(place)
        if not isinstance(cells, dict):
            continue
        row: Row = {"size_bytes": size, "in_place": place == "in_place",
                    "dtype": _text(result.get("type"))}  # fmt: skip
        row |= _numbers(cells, _FIELDS)
        wrong = cells.get("nwrong")
        if isinstance(wrong, int | float) and wrong == wrong and abs(wrong) < 1 << 62:
            row["wrong"] = int(wrong)
        iterations = result.get(f"{place}_per_iter")
        if isinstance(iterations, dict):
            row |= _numbers(iterations, _ITERATIONS)
            _late(run, iterations)
        rows.append(row)
    if rows:
        run.rows.append(rows)
        run.table.rows.extend(rows)
        speeds = [f"{r.get('busbw_gb_s', '?')} GB/s" for r in rows]
        run.lines.append(f"size {size}: bus_bw {', '.join(speeds)}")


def _late(run: Run, iterations: dict[str, Any]) -> None:
    """Remember the processes whose own time is the shortest, by size."""
    times = iterations.get("per_process_max_times_us")
    if not isinstance(times, list) or len(times) < 4:
        return
    middles = []
    for one in times:
        numbers = [t for t in one if _finite(t)] if isinstance(one, list) else []
        if not numbers:
            return
        middles.append(statistics.median(numbers))
    usual = statistics.median(middles)
    run.late.append({n: m / usual for n, m in enumerate(middles) if m < WAIT_SHARE * usual})


def _footer(run: Run, told: dict[str, Any]) -> None:
    bounds, average = told.get("out_of_bounds"), told.get("average_bus_bandwidth")
    if isinstance(bounds, dict) and isinstance(bounds.get("count"), int):
        run.table.out_of_bounds = bounds["count"]
        run.bounds_line = f"out_of_bounds {bounds['count']}"
    if isinstance(average, dict):
        value = average.get("bandwidth")
        run.table.average = float(str(value)) if _finite(value) else None
        run.table.concluded = True
        okay = average.get("okay")
        run.average_line = f"average_bus_bandwidth {value}, okay {okay}"
        run.verdict_word = "FAILED" if okay in ("false", False) else ""
    for error in told.get("errors") or () if isinstance(told.get("errors"), list) else ():
        words = error if isinstance(error, str) else _error_text(error)
        run.table.errors.append(words[:500])
        run.log.feed(f"Test failure {words[:500]}")


def _error_text(error: object) -> str:
    values = error.values() if isinstance(error, dict) else ()
    return " ".join(str(v)[:200] for v in values if isinstance(v, str | int))


def _numbers(cells: dict[str, Any], names: dict[str, str]) -> Row:
    return {new: float(cells[old]) for old, new in names.items() if _finite(cells.get(old))}


def _finite(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and -1e30 < value < 1e30  # type: ignore[operator]


def _dicts(value: object) -> Iterator[dict[str, Any]]:
    return (one for one in value if isinstance(one, dict)) if isinstance(value, list) else iter(())


def _text(value: object) -> str:
    return value[:200] if isinstance(value, str) else ""


across = nccl_tests.across
