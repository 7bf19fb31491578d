"""Campaigns for tests of how they are shown: one per level, made of figures, not of a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any

from console.active.results import (
    Campaign,
    Confidence,
    Group,
    Level,
    Progress,
    RankTime,
    Reading,
    Row,
    Run,
    Verdict,
)
from probes.event import Severity

AT = 1_796_000_340.0
NIC = "eight 400 Gb/s ports a node, 90 % of their wire rate"
CATALOGUE = "catalogue H100 80GB HBM3, science 2"


def names(count: int, prefix: str = "gpu") -> list[str]:
    """gpu001 ..."""
    return [f"{prefix}{i:03d}" for i in range(1, count + 1)]


def campaign(level: Level, nodes: Sequence[str], runs: Iterable[Run], **changes: Any) -> Campaign:
    """A campaign over `nodes`; whatever is not told is plain and healthy."""
    runs = tuple(runs)
    plain: dict[str, Any] = {
        "schema": 1,
        "id": f"20261129T235900Z-{level}",
        "level": level,
        "nodes": tuple(nodes),
        "at": AT,
        "duration_s": 130.0,
        "interrupted": False,
        "refused": {},
        "rounds": max((run.round for run in runs), default=0),
        "runs": runs,
        "verdicts": (),
        "verdict": Severity.OK,
        "drain": "",
        "exclude": "",
    }
    return Campaign(**plain | changes)


def rows(peak: float) -> tuple[Row, ...]:
    """Sizes from 1 MiB to 1 GiB, as a collective fills its pipe."""
    found = []
    for power in range(20, 31):
        size = 1 << power
        bus = peak * size / (size + (8 << 20))
        found.append(
            Row(
                size_bytes=size,
                time_us=size / bus / 1e3,
                algbw_gb_s=bus / 1.75,
                busbw_gb_s=bus,
                wrong=0,
            )
        )
    return tuple(found)


def run(
    nodes: Sequence[str], value: float | None, *, number: int = 1, expect: float | None = None,
    **changes: Any,
) -> Run:  # fmt: skip
    """A finished run at `value` GB/s, or a failed one without a figure."""
    told = Reading(
        what="busbw", value=value or 0.0, unit="GB/s", expected=expect, provenance=NIC,
        verdict=Severity.UNKNOWN if expect is None else Severity.OK,
    )  # fmt: skip
    plain: dict[str, Any] = {
        "group": Group(
            nodes=tuple(nodes), rail=changes.pop("rail", None), why=changes.pop("why", "")
        ),
        "round": number,
        "state": Progress.DONE if value is not None else Progress.FAILED,
        "started_at": AT,
        "duration_s": 12.0,
        "engine": "torch-nccl",
        "version": "2.7.1",
        "ranks": 8 * len(nodes),
        "busbw_gb_s": value,
        "readings": (told,) if expect and value is not None else (),
        "rows": rows(value) if value is not None else (),
    }
    return Run(**plain | changes)


def rounds(nodes: Sequence[str]) -> list[list[tuple[str, str]]]:
    """Every pair once, in rounds of disjoint pairs (the circle method); an even count."""
    ring, found = list(nodes), []
    for _ in range(len(ring) - 1):
        found.append([(ring[i], ring[-1 - i]) for i in range(len(ring) // 2)])
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return found


def pairs() -> Campaign:
    """Eight nodes in every pair, gpu007 slow with all, one pair out of time, two nodes refused."""
    nodes = names(8)
    runs = []
    for number, pair_list in enumerate(rounds(nodes), 1):
        for index, (a, b) in enumerate(pair_list):
            a, b = sorted((a, b))
            if (a, b) == ("gpu002", "gpu005"):
                runs.append(
                    run((a, b), None, number=number, state=Progress.TIMED_OUT,
                        error="no answer from rank 9 within 60 s")
                )  # fmt: skip
                continue
            value = 41.25 if "gpu007" in (a, b) else 184.0 + 1.5 * ((number + index) % 4)
            clue = ("sockets instead of InfiniBand",) if "gpu007" in (a, b) else ()
            why = "gpu007 with known good" if "gpu007" in (a, b) else "random pair"
            runs.append(run((a, b), value, number=number, clues=clue, why=why))
    bad = Verdict(
        kind="node", name="gpu007", nodes=("gpu007",), verdict=Severity.CRITICAL,
        confidence=Confidence.CERTAIN, say="gpu007: 41 of 186 GB/s with 7 partners",
        evidence=("7 of 7 partners: 41 to 41 GB/s", "its partners reach 185 GB/s among themselves"),
        cause="NCCL uses sockets there: its InfiniBand ports are not found",
        next_step="look at ibstat on gpu007, then drain it", expected=186.25,
        provenance="median of the 20 pairs without it",
    )  # fmt: skip
    path = Verdict(
        kind="path", name="gpu002-gpu005", nodes=("gpu002", "gpu005"), verdict=Severity.UNKNOWN,
        confidence=Confidence.SUSPECTED, say="gpu002-gpu005: no figure, both are fine with others",
        next_step="run this pair again",
    )  # fmt: skip
    good = [
        Verdict(
            kind="node", name=n, nodes=(n,), verdict=Severity.OK, confidence=Confidence.LIKELY,
            say=f"{n}: 186 GB/s",
        )
        for n in nodes if n not in ("gpu007", "gpu002", "gpu005")
    ]  # fmt: skip
    busy = "busy: 812 alice"
    return campaign(
        Level.PAIRS, [*nodes, "gpu009", "gpu010", "login1"], runs,
        refused={"gpu009": busy, "gpu010": busy, "login1": "its GPUs are not read yet"},
        verdicts=(*good, path, bad), verdict=Severity.CRITICAL, drain="gpu007",
        exclude="gpu[002,005,007]",
    )  # fmt: skip


def card(
    index: int, what: str, value: float, expect: float | None, unit: str = "TFLOPS"
) -> Reading:
    """One figure of one GPU."""
    low = expect is not None and value < 0.9 * expect
    return Reading(
        what=what, value=value, unit=unit, device=f"0000:{0x1B + 16 * index:02x}:00.0",
        label=f"GPU{index}", expected=expect, provenance=CATALOGUE if expect else "",
        verdict=Severity.CRITICAL if low else Severity.OK if expect else Severity.UNKNOWN,
    )  # fmt: skip


def gpu() -> Campaign:
    """Two nodes of eight GPUs, GPU3 of gpu002 slow at GEMM, one slow copy."""
    runs = []
    for node in names(2):
        told: list[Reading] = []
        for i in range(8):
            slow = (node, i) == ("gpu002", 3)
            told.append(card(i, "gemm_bf16", 489.5 if slow else 711.0 + i, 693.0))
            told.append(card(i, "hbm_copy", 2710.0 + i, 2512.0, "GB/s"))
            told.append(card(i, "h2d", 52.0 + i / 10, None, "GB/s"))
        for a, b in combinations(range(8), 2):
            slow = (node, a, b) == ("gpu001", 0, 5)
            told.append(
                Reading(
                    what="p2p", value=19.5 if slow else 360.0, unit="GB/s", label=f"GPU{a}>GPU{b}",
                    expected=340.0, provenance=CATALOGUE,
                    verdict=Severity.CRITICAL if slow else Severity.OK,
                )
            )  # fmt: skip
        runs.append(
            run((node,), None, state=Progress.DONE, readings=tuple(told), engine="torch-cuda")
        )
    bad = Verdict(
        kind="gpu", name="gpu002 GPU3", nodes=("gpu002",), verdict=Severity.CRITICAL,
        confidence=Confidence.CERTAIN, say="gpu002 GPU3: 490 of 693 TFLOPS bf16",
        evidence=("SM clock 1215 MHz meanwhile, the others 1755",), cause="it is too hot",
        next_step="look at its air flow", expected=693.0, unit="TFLOPS", provenance=CATALOGUE,
    )  # fmt: skip
    return campaign(
        Level.GPU, names(2), runs, verdicts=(bad,), verdict=Severity.CRITICAL, drain="gpu002",
        exclude="gpu002",
    )  # fmt: skip


def node() -> Campaign:
    """Four nodes; one has a bad ring, one failed, one is waiting: interrupted."""
    ring = [
        Reading(
            what="busbw_ring", value=v, unit="GB/s", expected=340.0, provenance=CATALOGUE,
            verdict=Severity.OK if v > 340 else Severity.CRITICAL,
        )
        for v in (351.0, 182.0)
    ]  # fmt: skip
    good = run(("gpu001",), 471.5, expect=450.0)
    bad = run(("gpu002",), 468.25, expect=450.0)
    late = tuple(
        RankTime(rank=i, node="gpu002", local_rank=i, time_us=5210.5 if i != 5 else 4100.0)
        for i in range(8)
    )
    verdict = Verdict(
        kind="node", name="gpu002", nodes=("gpu002",), verdict=Severity.CRITICAL,
        confidence=Confidence.LIKELY, say="gpu002: 182 of 340 GB/s in a ring, NVLS hides it",
        cause="one NVLink is slow or gone", next_step="nvidia-smi nvlink -e on gpu002",
        expected=340.0, provenance=CATALOGUE,
    )  # fmt: skip
    return campaign(
        Level.NODE, names(4),
        [
            Run(**_fields(good) | {"readings": (*good.readings, ring[0])}),
            Run(**_fields(bad) | {"readings": (*bad.readings, ring[1]), "rank_times": late}),
            run(("gpu003",), None, error="CUDA error: out of memory"),
            run(("gpu004",), None, state=Progress.CANCELLED),
        ],
        interrupted=True, verdicts=(verdict,), verdict=Severity.CRITICAL, drain="gpu002",
        exclude="gpu002",
    )  # fmt: skip


def _fields(struct: Run) -> dict[str, Any]:
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def rails() -> Campaign:
    """Eight rails over sixteen nodes, rail 5 at half."""
    nodes = names(16)
    runs = [
        run(nodes, 24.4 if i == 5 else 46.5 + i / 10, number=i + 1, rail=i, expect=45.0, ranks=16)
        for i in range(8)
    ]
    verdict = Verdict(
        kind="rail", name="rail 5", nodes=tuple(nodes), verdict=Severity.CRITICAL,
        confidence=Confidence.LIKELY, say="rail 5: 24 of 45 GB/s on 16 nodes, other rails 47",
        cause="the rail's switch or one of its uplinks", next_step="look at the leaf of rail 5",
        expected=45.0, provenance=NIC,
    )  # fmt: skip
    return campaign(Level.RAILS, nodes, runs, verdicts=(verdict,), verdict=Severity.CRITICAL)


def cluster() -> Campaign:
    """2 to 16 nodes, the last step falls."""
    nodes = names(16)
    runs = []
    for number, (count, value) in enumerate([(2, 372.0), (4, 368.0), (8, 361.0), (16, 271.0)], 1):
        first = run(nodes[:count], value, number=number, expect=360.0, why=f"{count} of 16 nodes")
        wire = Reading(
            what="wire_per_gpu", value=value / 8, unit="GB/s", expected=45.0, provenance=NIC,
            verdict=Severity.WARN if count == 16 else Severity.OK,
        )  # fmt: skip
        runs.append(Run(**_fields(first) | {"readings": (*first.readings, wire)}))
    verdict = Verdict(
        kind="fabric", name="16 nodes", nodes=tuple(nodes), verdict=Severity.WARN,
        confidence=Confidence.SUSPECTED, say="16 nodes: 271 GB/s, 73 % of what 2 nodes reach",
        cause="an uplink between leaves is short of bandwidth", next_step="run the pairs level",
        expected=334.8, provenance="0.9 of 2 nodes, science 6",
    )  # fmt: skip
    return campaign(Level.CLUSTER, nodes, runs, verdicts=(verdict,), verdict=Severity.WARN)


LEVELS = {"gpu": gpu, "node": node, "pairs": pairs, "rails": rails, "cluster": cluster}


def round_robin(count: int, slow: Sequence[str] = ("gpu007",)) -> Campaign:
    """Every pair of `count` nodes once, the slow ones at a fifth."""
    nodes = names(count)
    runs = [
        run(sorted(pair), 40.0 if {*pair} & {*slow} else 185.0 + number % 3, number=number, rows=())
        for number, listed in enumerate(rounds(nodes), 1)
        for pair in listed
    ]
    verdicts = tuple(
        Verdict(
            kind="node", name=n, nodes=(n,),
            verdict=Severity.CRITICAL if n in slow else Severity.OK,
            confidence=Confidence.CERTAIN if n in slow else Confidence.LIKELY,
            say=f"{n}: {40 if n in slow else 186} of 186 GB/s",
        )
        for n in nodes
    )  # fmt: skip
    return campaign(
        Level.PAIRS, nodes, runs, verdicts=verdicts,
        verdict=Severity.CRITICAL if slow else Severity.OK, drain=",".join(slow),
    )  # fmt: skip
