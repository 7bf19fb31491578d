"""The shape of a run: stalls in single iterations, dips at a size, cycles that differ. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from console.diagnose.nccl_run import Row, Run, size
from console.diagnose.nccl_tests_rules import DIP, ITERATION
from console.diagnose.offline import limits
from console.diagnose.report import found
from console.units import size as shown
from probes.event import Finding

DIP_BYTES = 64 << 20
JITTER_BYTES = 1 << 20


def iterations(run: Run) -> Iterator[Finding]:
    """Iterations far slower than the fastest one of their size."""
    limit = limits().limit("nccl.iteration_spread")
    for rows, line in zip(run.rows, run.lines, strict=True):
        for row in rows:
            low, high = row.get("i_min_us"), row.get("i_max_us")
            if not isinstance(low, float) or not isinstance(high, float) or low <= 0:
                continue
            bytes_ = size(row["size_bytes"])
            if bytes_ < JITTER_BYTES or high / low < limit.value:
                continue
            cv = row.get("i_cv_percent")
            spread = f" (cv {cv:.0f} %)" if isinstance(cv, float) else ""
            below = _below_smaller(run, row)
            yield found(
                ITERATION, f"{sized(bytes_)} row: one iteration took {_ms(high)} against "
                f"{_ms(low)} at best{spread}{below}", line, node=run.node,
                value=round(high / low, 1),
                limit=limit,
            )  # fmt: skip
            break


def _below_smaller(run: Run, row: Row) -> str:
    busbw = row.get("busbw_gb_s")
    smaller = _best_below(run, size(row["size_bytes"]))
    if isinstance(busbw, float) and smaller is not None and busbw < smaller:
        return f"; its busbw ({busbw:.0f}) falls below that of smaller sizes"
    return ""


def _best_below(run: Run, bytes_: int) -> float | None:
    values = [
        float(value) for rows in run.rows for row in rows
        if size(row["size_bytes"]) < bytes_
        and isinstance(value := row.get("busbw_gb_s"), float | int)
    ]  # fmt: skip
    return max(values, default=None)


def dips(run: Run) -> Iterator[Finding]:
    """Sizes whose bandwidth falls, where no iteration column explains it."""
    limit = limits().limit("nccl.dip_share")
    for rows, line in zip(run.rows, run.lines, strict=True):
        bytes_ = size(rows[0]["size_bytes"])
        values = [float(v) for r in rows if isinstance(v := r.get("busbw_gb_s"), float | int)]
        before = _best_below(run, bytes_)
        again = sum(size(r[0]["size_bytes"]) == bytes_ for r in run.rows) > 2
        if bytes_ < DIP_BYTES or not values or before is None or "i_max_us" in rows[0] or again:
            continue
        if max(values) < limit.value * before:
            yield found(
                DIP, f"busbw falls to {max(values):.0f} GB/s at {sized(bytes_)}, smaller sizes "
                f"reach {before:.0f}", line, node=run.node, value=max(values), limit=limit,
            )  # fmt: skip


def cycles(run: Run) -> Iterator[Finding]:
    """The same size measured several times (-N), with results far apart."""
    limit = limits().limit("nccl.dip_share")
    told_by: dict[int, list[tuple[float, str]]] = {}
    for rows, line in zip(run.rows, run.lines, strict=True):
        values = [float(v) for r in rows if isinstance(v := r.get("busbw_gb_s"), float | int)]
        if values:
            told_by.setdefault(size(rows[0]["size_bytes"]), []).append((max(values), line))
    for bytes_, told in told_by.items():
        low, high = min(told), max(told)
        if len(told) > 2 and bytes_ >= JITTER_BYTES and low[0] < limit.value * high[0]:
            yield found(
                DIP, f"{len(told)} cycles of {sized(bytes_)} reach from {low[0]:.0f} to "
                f"{high[0]:.0f} GB/s", low[1], high[1], node=run.node, value=low[0], limit=limit,
            )  # fmt: skip


def sized(value: int) -> str:
    """As "8 GiB"."""
    text = shown(value)
    number, unit = text[:-1].removesuffix(".0"), text[-1]
    return f"{number} {unit}iB" if unit != "B" else f"{number} B"


def _ms(us: float) -> str:
    return f"{us / 1000:.0f} ms" if us >= 10_000 else f"{us / 1000:.1f} ms"
