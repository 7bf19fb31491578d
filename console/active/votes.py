"""Figures of nodes and GPUs alone against catalogue, peers and their own past. Pure.

Two of the three must agree, or one with hardware evidence (science 1.2): what only one of them says
is a suspicion. Figures of CPU engines are compared with nothing but each other.

Marks and the comparison with the GPUs of the same node are those of the findings (gpu_test.*,
nccl.*), limits and all, so that both say the same; other nodes and the past come on top.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from console.active import expect
from console.active.expect import Expected, Figure, NodeSpec
from console.active.level import CPU_ENGINES
from console.active.results import Confidence, Level, Progress, Reading, Run
from probes.event import Severity
from probes.spread import Gates, Spread, below, low, spread

MARK = "catalogue"
FULL_NODE = 8
"""GPUs for which the catalogue has a busbw."""
PAST_SHARE = 0.90
LOST = 0.85
"""Share of what is expected below which it is critical (science 1.3)."""
LOCAL, FULL = 4, 8
"""Peers from which they are compared, and from which that is not called weak (science 1.3)."""
FLOOR = 0.01
"""Smallest scale of a benchmark (science 1.3)."""
TIGHT = Gates(3.5, 0.95, 0.93)
LOOSE = Gates(3.5, 0.90, 0.88)
"""GEMM and copies: healthy GPUs of one node differ by 5 % and more [mle]."""
CPU_GATES = Gates(3.5, 0.70, 0.55)
"""CPU engines scatter by 15 %."""
TIGHT_ONES = ("hbm_copy", "busbw", "busbw_ring")
SIBLINGS = {
    "gemm_bf16": "gpu_test.gemm_peers",
    "gemm_fp8": "gpu_test.gemm_peers",
    "hbm_copy": "gpu_test.memory_peers",
    "p2p": "gpu_test.peer_copy_peers",
}
"""Figure of one GPU -> limit of its share of the median of its node."""
PAIRS_LEAST = 2 * LOCAL
"""Peer copies from which their median means something, as in gpu_test_pairs."""


class Item(Struct, frozen=True):
    """One figure and what speaks against it."""

    run: Run
    reading: Reading
    against: tuple[str, ...] = ()
    """Which comparisons it fails, in words."""
    compared: int = 0
    """How many there were."""
    grave: bool = False
    hard: str = ""
    """Hardware evidence on the same GPU or node."""

    @property
    def sure(self) -> Confidence:
        """By how many agree."""
        votes = len(self.against)
        if votes >= 3 or (votes >= 2 and self.hard):
            return Confidence.CERTAIN
        return Confidence.LIKELY if votes >= 2 or self.hard else Confidence.SUSPECTED

    @property
    def severity(self) -> Severity:
        """unknown when there was nothing to compare with."""
        if not self.against:
            return Severity.OK if self.compared else Severity.UNKNOWN
        proven = self.sure is not Confidence.SUSPECTED
        return Severity.CRITICAL if self.grave and proven else Severity.WARN


Key = tuple[str, str, str, int]
"""Engine, product, figure, ranks: what is alike."""


def items(level: Level, runs: Sequence[Run], expected: Expected) -> list[Item]:
    """Every figure of the runs that are done."""
    found = [(run, r) for run in runs if run.state is Progress.DONE for r in _readings(level, run)]
    wide: dict[Key, list[Reading]] = defaultdict(list)
    for run, reading in found:
        wide[_key(run, reading, expected)].append(reading)
    groups = {key: _Group(readings) for key, readings in wide.items()}
    return [
        _judge(level, run, reading, groups[_key(run, reading, expected)], expected)
        for run, reading in found
    ]


def _readings(level: Level, run: Run) -> list[Reading]:
    """Its readings; the bus bandwidth of a node among them."""
    found = [structs.replace(r, node=r.node or run.group.nodes[0]) for r in run.readings]
    there = any(r.what == "busbw" for r in found)
    if level is Level.NODE and run.busbw_gb_s is not None and not there:
        node = run.group.nodes[0]
        found.insert(0, Reading(what="busbw", value=run.busbw_gb_s, unit="GB/s", node=node))
    return found


def _key(run: Run, reading: Reading, expected: Expected) -> Key:
    product = expected.spec(reading.node).product
    return run.engine, product.name if product else "", reading.what, run.ranks or 0


class _Group:
    """Alike figures, of each node and of all."""

    def __init__(self, readings: Sequence[Reading]) -> None:
        nodes: dict[str, list[float]] = defaultdict(list)
        for reading in readings:
            nodes[reading.node].append(reading.value)
        self.nodes: Mapping[str, Spread | None] = {n: spread(v) for n, v in nodes.items()}
        self.all = spread(r.value for r in readings)

    def here(self, node: str) -> Spread | None:
        """The node's own GPUs; None for too few."""
        found = self.nodes.get(node)
        return found if found is not None and found.n >= LOCAL else None

    def everywhere(self) -> Spread | None:
        """Everybody alike; None when that is one node, or too few."""
        many = self.all is not None and self.all.n >= LOCAL and len(self.nodes) > 1
        return self.all if many else None


def _judge(level: Level, run: Run, reading: Reading, group: _Group, expected: Expected) -> Item:
    against, shares, compared = [], list[float](), 0
    figure: Figure | None = None
    for name, one, failed in _comparisons(level, run, reading, group, expected):
        compared += 1
        if failed:
            against.append(f"{name}: {reading.value:.3g} of {one.value:.3g} ({one.provenance})")
            shares.append(reading.value / one.value)
        if figure is None or (failed and len(against) == 1):
            figure = one
    # The marks of single GPUs lie as far below what is usual.
    grave = _lost(shares) or any(text.startswith(MARK) for text in against)
    item = Item(
        run, reading, tuple(against), compared, grave if level is Level.GPU else _lost(shares),
        expected.hard.get((reading.node, reading.device), ""),
    )  # fmt: skip
    told = structs.replace(
        reading,
        expected=None if figure is None else round(figure.value, 3),
        provenance="" if figure is None else figure.provenance,
        verdict=item.severity,
    )
    return structs.replace(item, reading=told)


def _comparisons(
    level: Level, run: Run, reading: Reading, group: _Group, expected: Expected
) -> list[tuple[str, Figure, bool]]:
    """(which, what it should be, whether it is below) of those that can be made."""
    found = []
    cpu = run.engine in CPU_ENGINES
    mark = None if cpu else catalogue(expected, reading, run.ranks)
    if mark is not None:
        found.append((MARK, mark, reading.value < mark.value))
    peers = _peers(reading, group, expected, cpu, mark is not None)
    if peers:
        found.append(next((p for p in peers if p[2]), peers[0]))
    past = expect.own(expected, level, run, reading.what, reading.node, reading.device)
    if past is not None and not cpu:
        found.append(("own past", past, reading.value < PAST_SHARE * past.value))
    return found


def _peers(
    reading: Reading, group: _Group, expected: Expected, cpu: bool, marked: bool
) -> list[tuple[str, Figure, bool]]:
    """Against the GPUs of its node, and against everybody alike."""
    found = []
    here, all_ = group.here(reading.node), group.everywhere()
    product = expected.spec(reading.node).product
    bridged = product is not None and (product.nvlink_bridge or not product.nvlink_links)
    if reading.what == "p2p" and not cpu and (marked or bridged):
        return []  # a mark is enough; pairs without NVSwitches are not alike
    limit = SIBLINGS.get(reading.what)
    least = PAIRS_LEAST if reading.what == "p2p" else LOCAL
    if here is not None and here.n >= least and (cpu or limit is not None):
        words = f"{here.n} of its node"
        if cpu or limit is None:
            found.append(_against(reading, here, words, cpu))
        else:
            share = expected.limit(limit)
            figure = Figure(here.median, f"median of {words}, {share:.0%} of it are enough")
            found.append(("peers", figure, reading.value < share * here.median))
    if all_ is not None:
        words = f"{all_.n} of {len(group.nodes)} nodes"
        found.append(_against(reading, all_, words, cpu))
    return found


def _against(reading: Reading, peers: Spread, words: str, cpu: bool) -> tuple[str, Figure, bool]:
    gates = CPU_GATES if cpu else TIGHT if reading.what in TIGHT_ONES else LOOSE
    weak = "" if peers.n >= FULL else ", weak: few"
    z = below(reading.value, peers, FLOOR, 0.0)
    figure = Figure(peers.median, f"median of {words}{weak}, z {z:.1f}")
    return "peers", figure, low(reading.value, peers, gates, FLOOR, 0.0)


def _lost(shares: Sequence[float]) -> bool:
    return bool(shares) and min(shares) < LOST


def catalogue(expected: Expected, reading: Reading, ranks: int | None) -> Figure | None:
    """Pass mark of the product or slot; None without one."""
    spec = expected.spec(reading.node)
    if reading.what in ("h2d", "d2h"):
        return _host(expected, spec, reading.device)
    product = spec.product
    if product is None:
        return None
    full = ranks == FULL_NODE
    gemm, node = expected.limit("gpu_test.gemm_floor"), expected.limit("nccl.floor_share")
    marks: dict[str, tuple[float | None, float, str]] = {
        "gemm_bf16": (product.gemm_bf16_tflops, gemm, "of the usual"),
        "gemm_fp8": (product.gemm_fp8_tflops, gemm, "of the usual"),
        "hbm_copy": (product.mem_copy_floor_gb_s, 1.0, "of the pass mark"),
        "p2p": (product.p2p_floor_gb_s, 1.0, "of the pass mark"),
        "busbw": (product.allreduce_floor_gb_s if full else None, node, "of the floor"),
        "busbw_ring": (product.allreduce_ring_gb_s if full else None, node, "of the usual"),
    }
    value, share, words = marks.get(reading.what, (None, 1.0, ""))
    if value is None:
        return None
    return Figure(value * share, f"{share:.0%} {words} {value:g}, hardware.yaml {product.name}")


def _host(expected: Expected, spec: NodeSpec, device: str) -> Figure | None:
    """By the GPU's own slot; where nobody read it, by the product's."""
    if device in spec.host_gb_s:
        return Figure(spec.host_gb_s[device], "the mark for its PCIe slot [az]")
    gen = spec.product.pcie_gen if spec.product else None
    if gen not in (3, 4, 5):
        return None
    return Figure(expected.limit(f"gpu_test.copy_gen{gen}_gb_s"), f"the mark for Gen{gen} [az]")
