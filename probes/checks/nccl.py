"""Results of the active all-reduce test, which are Samples like any other."""

from __future__ import annotations

from collections.abc import Iterator

from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Severity

WRONG = Rule(
    id="nccl.wrong",
    title="The all-reduce gave wrong data",
    severity=Severity.CRITICAL,
    reads="column #wrong of nccl-tests, or the comparison of the torch test",
    cause="a GPU, link or NIC corrupts data without noticing",
    action=Action.DRAIN,
    next_step="drain; run the field diagnostic on each GPU of the node",
    source="nccl-tests: exit status and #wrong; science.md 6",
    others="all who run nccl-tests",
    example="#wrong 128 at 1 GiB",
    hard=True,
)
SLOW = Rule(
    id="nccl.busbw",
    title="The bus bandwidth of a node is below its product's floor",
    severity=Severity.WARN,
    reads="busbw at the best size against hardware.yaml",
    cause="an NVLink, a slow GPU, or NVLS not used",
    action=Action.DRAIN,
    next_step="compare with peers of the same product; look at nvlink and thermal findings; test again",
    source="science.md 2: site floors in use [az]; 90 % of it as nccl-tests itself passes",
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
    wrong = sum(
        int(sample.values.get("wrong", 0) or 0)
        for _, sample in look.facts.devices("nccl")
        if isinstance(sample.values.get("wrong", 0), int)
    )
    if wrong > 0 or summary.values.get("wrong", 0):
        yield WRONG.finding(
            look, "the all-reduce gave wrong data", (f"#wrong {wrong or summary.values.get('wrong')}",)
        )
    yield from _slow(look)


def _slow(look: Look) -> Iterator[Finding]:
    values = look.facts.get("nccl", "summary").values  # type: ignore[union-attr]
    busbw, ranks = values.get("busbw_max_gb_s"), values.get("ranks")
    if values.get("engine") == "torch-gloo" or ranks != FULL_NODE:
        return
    device_id = next(
        (s.values["pci_device_id"] for _, s in look.facts.devices("inventory") if "pci_device_id" in s.values),
        None,
    )
    product = look.rules.product(str(device_id) if device_id else None, look.facts.node.hardware)
    if product is None or product.allreduce_floor_gb_s is None or not isinstance(busbw, int | float):
        return
    share = look.rules.limit("nccl.floor_share")
    if busbw < share.value * product.allreduce_floor_gb_s:
        yield SLOW.finding(
            look, f"busbw {busbw:.0f} GB/s, {product.name} should reach {product.allreduce_floor_gb_s:.0f}",
            (f"busbw {busbw:.1f} GB/s at the best size, {ranks} ranks, {values.get('engine')}",),
            value=float(busbw), limit=share, severity=Severity.WARN,
            source=f"hardware.yaml {product.name}: {product.source}",
        )  # fmt: skip
