"""Results of the active all-reduce test, which are Samples like any other."""

from __future__ import annotations

from collections.abc import Iterator

from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Sample, Severity
from probes.reading import number, whole

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
RULES = (WRONG, SLOW)
FULL_NODE = 8


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
    yield from _slow(look, summary)


def _slow(look: Look, summary: Sample) -> Iterator[Finding]:
    values = summary.values
    busbw, ranks = number(values.get("busbw_max_gb_s")), values.get("ranks")
    if values.get("engine") == "torch-gloo" or ranks != FULL_NODE:
        return
    ids = (s.values.get("pci_device_id") for _, s in look.facts.devices("inventory"))
    device_id = next((str(value) for value in ids if value), None)
    product = look.rules.product(device_id, look.facts.node.hardware)
    floor = None if product is None else product.allreduce_floor_gb_s
    if product is None or floor is None or busbw is None:
        return
    share = look.rules.limit("nccl.floor_share")
    if busbw < share.value * floor:
        yield SLOW.finding(
            look, f"busbw {busbw:.0f} GB/s, {product.name} should reach {floor:.0f}",
            (f"busbw {busbw:.1f} GB/s at the best size, {ranks} ranks, {values.get('engine')}",),
            value=float(busbw), limit=share, severity=Severity.WARN,
            source=f"hardware.yaml {product.name}: {product.source}",
        )  # fmt: skip
