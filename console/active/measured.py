"""From what agents and programs answered to a Run. Pure; node output is hostile, so bounded."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from console.active.results import Group, Progress, RankTime, Reading, Row, Run
from probes.event import Sample, Scalar, Severity
from probes.sanitise import clean

ROWS_MOST = 200
CLUES_MOST = 20
RANKS_MOST = 16_384
READINGS_MOST = 1024
TEXT_CHARS = 300
NAME_CHARS = 40

READINGS = {
    "gemm_bf16_tflops": ("gemm_bf16", "TFLOPS"),
    "gemm_fp8_tflops": ("gemm_fp8", "TFLOPS"),
    "hbm_copy_gb_s": ("hbm_copy", "GB/s"),
    "h2d_gb_s": ("h2d", "GB/s"),
    "d2h_gb_s": ("d2h", "GB/s"),
    "p2p_gb_s": ("p2p", "GB/s"),
}
"""Values of probe gpu_test -> figure and unit."""


def run_of(run: Run, samples: Sequence[Sample], state: Progress, error: str = "") -> Run:
    """The run with what the samples say; `samples` are those of all its nodes, in order."""
    tests = [s for s in samples if s.probe in ("nccl", "gpu_test")]
    summary = _summary(run.group, tests)
    said = error or str(summary.get("error", ""))
    if state is Progress.DONE and summary.get("ok") is False:
        state = Progress.FAILED
    return msgspec.structs.replace(
        run,
        state=state,
        engine=clean(str(summary.get("engine", "")), NAME_CHARS),
        version=clean(str(summary.get("version", "")), NAME_CHARS),
        ranks=_whole(summary.get("ranks")),
        busbw_gb_s=busbw(summary) if state is Progress.DONE else None,
        rows=tuple(rows(tests)),
        rank_times=tuple(rank_times(run.group, tests, _whole(summary.get("ranks")))),
        readings=tuple(readings(tests)) if state is Progress.DONE else (),
        clues=tuple(clues(tests)),
        error="" if state is Progress.DONE else clean(said, TEXT_CHARS),
    )


def _summary(group: Group, tests: Sequence[Sample]) -> dict[str, Scalar]:
    """The first node's: it holds rank 0, which measures."""
    found = [s for s in tests if s.device == "summary" and s.node == group.nodes[0]]
    return found[-1].values if found else {}


def busbw(summary: dict[str, Scalar]) -> float | None:
    """Bus bandwidth at the largest size, GB/s."""
    return _number(summary.get("busbw_largest_gb_s", summary.get("busbw_max_gb_s")))


def rows(tests: Iterable[Sample]) -> list[Row]:
    """One per size: of several (both placements, cycles) the fastest."""
    found: dict[int, Row] = {}
    for sample in tests:
        size = _whole(sample.values.get("size_bytes"))
        if sample.probe != "nccl" or sample.device or size is None:
            continue
        row = Row(
            size_bytes=size,
            time_us=_number(sample.values.get("time_us")),
            algbw_gb_s=_number(sample.values.get("algbw_gb_s")),
            busbw_gb_s=_number(sample.values.get("busbw_gb_s")),
            wrong=_whole(sample.values.get("wrong")),
        )
        before = found.get(size)
        if before is None or (row.busbw_gb_s or 0.0) > (before.busbw_gb_s or 0.0):
            found[size] = row
    return [found[size] for size in sorted(found)][:ROWS_MOST]


def clues(tests: Iterable[Sample]) -> list[str]:
    """What NCCL_DEBUG said, each sentence once, in the order it came."""
    texts = [clean(str(row["text"]), TEXT_CHARS) for row in _listed(tests) if "text" in row]
    return list(dict.fromkeys(filter(None, texts)))[:CLUES_MOST]


def rank_times(group: Group, tests: Iterable[Sample], ranks: int | None) -> list[RankTime]:
    """Per rank; nodes hold consecutive ranks, in the group's order."""
    found: list[RankTime] = []
    each = max(1, (ranks or 0) // len(group.nodes))
    for row in _listed(tests):
        rank, took = _whole(row.get("rank")), _number(row.get("time_us"))
        if rank is None or took is None or rank < 0 or len(found) >= RANKS_MOST:
            continue
        host = str(row.get("host", ""))
        node = host if host in group.nodes else group.nodes[min(rank // each, len(group.nodes) - 1)]
        local = _whole(row.get("local_rank"))
        found.append(
            RankTime(rank=rank, node=node, local_rank=local or 0, time_us=took)
        )  # fmt: skip
    return found


def _listed(tests: Iterable[Sample]) -> Iterable[dict[str, Scalar]]:
    for sample in tests:
        yield from sample.rows


def readings(tests: Iterable[Sample]) -> list[Reading]:
    """Figures of single GPUs, and the ring's beside the node's own all-reduce."""
    found: list[Reading] = []
    index: dict[str, int] = {}
    for sample in tests:
        if sample.probe == "nccl" and sample.device == "ring":
            value = busbw(sample.values)
            if value is not None and sample.values.get("ok", True):
                found.append(_reading("busbw_ring", value, "GB/s", sample.node, "", ""))
        if sample.probe != "gpu_test" or sample.device in ("", "summary"):
            continue
        place = _whole(sample.values.get("index"))
        if place is not None:
            index[sample.device] = place
        label = ">".join(f"GPU{index[p]}" for p in sample.device.split(">") if p in index)
        for name, (what, unit) in READINGS.items():
            figure = _number(sample.values.get(name))
            if figure is not None:
                found.append(_reading(what, figure, unit, sample.node, sample.device, label))
    return found[:READINGS_MOST]


def _reading(
    what: str, value: float, unit: str, node: str, device: str, label: str
) -> Reading:  # fmt: skip
    return Reading(
        what=what, value=value, unit=unit, node=node, device=device, label=label,
        verdict=Severity.UNKNOWN,
    )  # fmt: skip


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
