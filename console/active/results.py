"""What active tests measured and what that means: the structs of `gpuconsole test --json`.

Bandwidths in GB/s are 1e9 bytes a second, as nccl-tests prints them; TFLOPS are dense.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from probes.event import Severity


class Level(StrEnum):
    """What is tested at once, from small to large."""

    GPU = "gpu"
    """Each GPU alone: GEMM, HBM copy, host and peer copies."""
    NODE = "node"
    """All-reduce over the GPUs of one node."""
    PAIRS = "pairs"
    """All-reduce over disjoint pairs of nodes, in rounds."""
    RAILS = "rails"
    """All-reduce over the GPUs of one local index on all nodes, one index after the other."""
    CLUSTER = "cluster"
    """All-reduce over 2, 4, 8 ... all nodes."""


class Progress(StrEnum):
    """Where one run stands."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"


class Confidence(StrEnum):
    """How sure a verdict is. Only what is certain or likely proposes a drain."""

    SUSPECTED = "suspected"
    LIKELY = "likely"
    CERTAIN = "certain"


class Group(Struct, frozen=True, kw_only=True):
    """Nodes that run one collective together."""

    nodes: tuple[str, ...]
    rail: int | None = None
    """Local GPU index when only that GPU of each node takes part."""
    why: str = ""
    """What this run is to tell: "random pair", "gpu007 with known good", "2 of 16 nodes"."""

    @property
    def name(self) -> str:
        """ "gpu001+gpu002", "rail 3"."""
        if self.rail is not None:
            return f"rail {self.rail}"
        shown = self.nodes if len(self.nodes) <= 2 else (self.nodes[0], f"{len(self.nodes) - 1}")
        return "+".join(shown)


class Reading(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One figure against what it should be."""

    what: str
    """gemm_bf16, gemm_fp8, hbm_copy, h2d, d2h, p2p, busbw, busbw_ring, wire_per_gpu."""
    value: float
    unit: str
    """ "TFLOPS" or "GB/s"."""
    node: str = ""
    device: str = ""
    """PCI address of the GPU, or two of them joined by ">"."""
    label: str = ""
    """ "GPU3", "GPU0>GPU3"."""
    expected: float | None = None
    provenance: str = ""
    """Where `expected` comes from, in words."""
    verdict: Severity = Severity.OK
    """unknown where nothing is expected."""


class Row(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One size of a collective."""

    size_bytes: int
    time_us: float | None = None
    algbw_gb_s: float | None = None
    busbw_gb_s: float | None = None
    wrong: int | None = None


class RankTime(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How long one rank needed for the largest size."""

    rank: int
    node: str
    local_rank: int
    time_us: float


class Run(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One collective, or the single-GPU tests of one node."""

    group: Group
    round: int
    """Counted from 1."""
    state: Progress
    started_at: float = 0.0
    duration_s: float = 0.0
    engine: str = ""
    """ "nccl-tests", "torch-nccl", "torch-gloo"."""
    version: str = ""
    ranks: int | None = None
    busbw_gb_s: float | None = None
    """At the largest size: what the run is judged by."""
    rows: tuple[Row, ...] = ()
    rank_times: tuple[RankTime, ...] = ()
    readings: tuple[Reading, ...] = ()
    clues: tuple[str, ...] = ()
    """What NCCL_DEBUG said that explains the figure: "sockets instead of InfiniBand"."""
    error: str = ""
    """Why there is no figure."""


class Verdict(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the runs say about one thing."""

    kind: str
    """node, gpu, path, rail, group (a leaf or rack), fabric, job."""
    name: str
    """ "gpu007", "gpu007-gpu012", "rail 3", "rack r7"."""
    nodes: tuple[str, ...]
    verdict: Severity
    confidence: Confidence
    say: str
    """One line: "gpu007: 41 of 188 GB/s with 3 partners"."""
    evidence: tuple[str, ...] = ()
    cause: str = ""
    next_step: str = ""
    expected: float | None = None
    unit: str = "GB/s"
    provenance: str = ""

    @property
    def drains(self) -> bool:
        """Whether to propose taking its nodes out of work."""
        sure = self.confidence is not Confidence.SUSPECTED
        return self.kind in ("node", "gpu") and self.verdict is Severity.CRITICAL and sure


class Campaign(Struct, frozen=True, kw_only=True):
    """The document: everything asked, run and concluded. Written after every run, so resumable."""

    schema: int
    id: str
    """ "20261129T235900Z-pairs": also the file's name."""
    level: Level
    nodes: tuple[str, ...]
    at: float
    duration_s: float
    interrupted: bool
    """Stopped before all was run: what is missing is in `runs` as waiting or cancelled."""
    refused: dict[str, str]
    """Node -> why it was not tested."""
    rounds: int
    runs: tuple[Run, ...]
    verdicts: tuple[Verdict, ...]
    verdict: Severity
    """The worst of all; a node without a figure makes it at least unknown."""
    drain: str
    """Hostlist to drain; "" for none."""
    exclude: str
    """Hostlist for `--exclude`: drain and the merely suspected."""


class Localiser(Protocol):
    """Chooses rounds by what was measured before, and names what is at fault. Pure."""

    def next_round(self, runs: Sequence[Run]) -> list[Group]:
        """Groups to run side by side, disjoint in nodes; [] when nothing more is worth running.

        Deterministic in (constructor arguments, runs): an interrupted campaign goes on by it.
        """
        ...

    def verdicts(self, runs: Sequence[Run]) -> list[Verdict]:
        """What the runs so far say: also the healthy ones (ok)."""
        ...
