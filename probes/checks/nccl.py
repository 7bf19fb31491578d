"""Results of the active all-reduce test, which are Samples like any other."""

from __future__ import annotations

from collections.abc import Iterator

from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Sample, Severity
from probes.reading import number, whole
from probes.rules import Product

WRONG = Rule(
    id="nccl.wrong",
    title="The all-reduce gave wrong data",
    severity=Severity.CRITICAL,
    reads="column #wrong of nccl-tests, or the comparison of the torch test",
    cause="a GPU, link or NIC corrupts data without noticing",
    action=Action.DRAIN,
    next_step="drain; run the field diagnostic on each GPU of the node",
    source="nccl-tests: exit status and #wrong [nct]",
    others="all who run nccl-tests",
    example="#wrong 128 at 1 GiB",
    limits=("nccl.wrong",),
    hard=True,
)
SLOW = Rule(
    id="nccl.busbw",
    title="The bus bandwidth of a node is below its product's floor",
    severity=Severity.WARN,
    reads="busbw at the best size against hardware.yaml",
    cause="an NVLink, a slow GPU, or NVLS not used",
    action=Action.DRAIN,
    next_step="compare with peers of the same product; look at nvlink and thermal findings; test "
    "again",
    source="floors in use at Azure [az]; 90 % of them, as nccl-tests itself passes [nct]",
    others="AzHC, OCI, CHS, SOP",
    example="busbw 212 GB/s of 460 expected for H100 SXM with 8 ranks",
    limits=("nccl.floor_share",),
)
NVLS = Rule(
    id="nccl.nvls",
    title="The all-reduce of a node gains nothing from NVLS",
    severity=Severity.WARN,
    reads="busbw of the node's all-reduce and of the same as a ring",
    cause="one GPU or NVLink holds all others back, or NVLS is off: fabric manager, an old driver, "
    "a virtual machine",
    action=Action.WATCH,
    next_step="nvidia-smi nvlink -s and -e; is the fabric manager running; peer copies of the GPU "
    "test name the link",
    source="NVLS and ring by product [mle]",
    others="-",
    example="busbw 371 GB/s, as a ring 365; usual for H100-SXM5-80: 480 and 365",
    limits=("nccl.nvls_gain",),
)
RULES = (WRONG, SLOW, NVLS)
FULL_NODE = 8
CLUES = 4


def check(look: Look) -> Iterator[Finding]:
    """The last summary, whenever it was run."""
    summary = look.facts.get("nccl", "summary")
    if summary is None:
        return
    rows = (whole(sample.values.get("wrong")) or 0 for _, sample in look.facts.devices("nccl"))
    wrong = max(sum(rows), whole(summary.values.get("wrong")) or 0)
    limit = look.rules.limit("nccl.wrong")
    if wrong > limit.value:
        yield WRONG.finding(
            look, "the all-reduce gave wrong data", (f"#wrong {wrong}",), value=wrong, limit=limit
        )
    if _whole_node(summary):
        yield from _slow(look, summary)
        yield from _gain(look, summary)


def _whole_node(summary: Sample) -> bool:
    """Whether the catalogue has figures for it: an all-reduce over the 8 GPUs of one node."""
    values = summary.values
    alone = values.get("nnodes", 1) == 1 and values.get("collective", "all_reduce") == "all_reduce"
    return alone and values.get("ranks") == FULL_NODE and values.get("engine") != "torch-gloo"


def _product(look: Look) -> Product | None:
    ids = (s.values.get("pci_device_id") for _, s in look.facts.devices("inventory"))
    device_id = next((str(value) for value in ids if value), None)
    return look.rules.product(device_id, look.facts.node.hardware)


def _clues(look: Look) -> list[str]:
    """What NCCL's log of the same run says."""
    told = look.facts.get("nccl", "clues")
    rows = told.rows if told is not None else []
    return [str(row["text"]) for row in rows if row.get("text")]


def _slow(look: Look, summary: Sample) -> Iterator[Finding]:
    values, product = summary.values, _product(look)
    busbw, ranks = number(values.get("busbw_max_gb_s")), values.get("ranks")
    floor = None if product is None else product.allreduce_floor_gb_s
    if product is None or floor is None or busbw is None:
        return
    share = look.rules.limit("nccl.floor_share")
    if busbw < share.value * floor:
        clues = _clues(look)
        run = f"busbw {busbw:.1f} GB/s at the best size, {ranks} ranks, {values.get('engine')}"
        yield SLOW.finding(
            look, f"busbw {busbw:.0f} GB/s, {product.name} should reach {floor:.0f}",
            (run, *clues[:CLUES]), value=float(busbw), limit=share, severity=Severity.WARN,
            cause=clues[0] if clues else "",
            source=f"hardware.yaml {product.name}: {product.source}",
        )  # fmt: skip


def _gain(look: Look, summary: Sample) -> Iterator[Finding]:
    """NVLS against ring: what is wrong with one link takes the gain away before the ring slows."""
    again = look.facts.get("nccl", "ring")
    if again is None or again.values.get("id") != summary.values.get("id"):
        return
    product, limit = _product(look), look.rules.limit("nccl.nvls_gain")
    nvls, ring = (number(one.values.get("busbw_max_gb_s")) for one in (summary, again))
    usual = product and product.allreduce_nvls_gb_s
    if product is None or not usual or not nvls or not ring or nvls >= limit.value * ring:
        return
    if product.allreduce_ring_gb_s and nvls >= limit.value * product.allreduce_ring_gb_s:
        return  # no ring is so fast: NVLS is at work, whatever the second run used
    clues = _clues(look)
    yield NVLS.finding(
        look, f"busbw {nvls:.0f} GB/s, as a ring {ring:.0f}: nothing gained from NVLS",
        (f"usual for {product.name}: {usual:g} with NVLS, {product.allreduce_ring_gb_s or 0:g} as "
         "a ring", *clues[:CLUES]),
        value=nvls / ring, limit=limit, cause=clues[0] if clues else "",
    )  # fmt: skip
