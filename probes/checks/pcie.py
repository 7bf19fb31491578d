"""PCIe link of each GPU: width always, generation only under load (idle links train down).

Errors count as growth between two answers.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Sample, Severity
from probes.reading import number, whole

WIDTH = Rule(
    id="pcie.width",
    title="PCIe link has fewer lanes than card and slot allow",
    severity=Severity.CRITICAL,
    reads="PCIe width now and maximum",
    cause="bad seating, riser, retimer or damaged lanes",
    action=Action.DRAIN,
    next_step="drain, reseat the card or riser; exchange with a sibling slot",
    source="NVML width and maximum width [nvml]; critical below the maximum: our estimate",
    others="GCM, OCI, SCK: width < 16 error",
    example="x8 of x16",
    hard=True,
)
GENERATION = Rule(
    id="pcie.generation",
    title="PCIe link runs at a lower generation while the GPU works",
    severity=Severity.WARN,
    reads="PCIe generation now and maximum, GPU utilisation",
    cause="the link trained down: signal integrity",
    action=Action.WATCH,
    next_step="look again under load; reseat the card or riser at the next drain",
    source="NVML generation and maximum [nvml]; idle Gen1 is normal (Syllo/nvtop issue 6)",
    others="GCM, OCI, SCK compare it too, none of them under load only",
    example="Gen2 of Gen5 at 98 % utilisation",
    limits=("pcie.busy_util_percent",),
)
AER = Rule(
    id="pcie.errors",
    title="Uncorrected PCIe errors of a GPU's slot",
    severity=Severity.CRITICAL,
    reads="kernel AER totals aer_dev_nonfatal and aer_dev_fatal",
    cause="signal integrity or a dying device",
    action=Action.DRAIN,
    next_step="drain, reseat; exchange with a sibling slot",
    source="Linux sysfs AER counters [lx]",
    others="imbue, CVS: message patterns",
    example="aer_nonfatal +3 in 30 s",
)
REPLAYS = Rule(
    id="pcie.replays",
    title="Packets are sent again and again over a GPU's PCIe link",
    severity=Severity.WARN,
    reads="PCIe replay counter, width and highest generation of each GPU",
    cause="signal integrity: seating, riser, retimer or damaged lanes",
    action=Action.WATCH,
    next_step="compare with the sibling slots; reseat the card or riser at the next drain",
    source="PCIe replay counter of nvml.h [nvml]; hardware limits of DCGM [dcgm], as rate",
    others="DCGM: per lane and minute, warn; CVS",
    example="replays +90 in 30 s on Gen5 x16",
    limits=tuple(f"pcie.replays_per_lane_min_gen{generation}" for generation in (3, 4, 5, 6)),
)
RULES = (WIDTH, GENERATION, AER, REPLAYS)
FEW_REPLAYS = 5
"""Fewer are no rate (our estimate): in a pass of 1 s one replay would be 60 a minute."""


def check(look: Look) -> Iterator[Finding]:
    """Each GPU by itself."""
    for device, sample in look.facts.devices("pcie"):
        label = look.facts.gpu_label(device)
        width, most = (whole(sample.values.get(name)) for name in ("width", "width_max"))
        if width is not None and most is not None and 0 < width < most:
            yield WIDTH.finding(
                look, f"{label}: PCIe x{width} of x{most}", (f"x{width} of x{most}",),
                device=device, label=label, value=width,
            )  # fmt: skip
        yield from _generation(look, device, label)
        yield from _aer(look, device, label)
        yield from _replays(look, device, label, sample)


def _generation(look: Look, device: str, label: str) -> Iterator[Finding]:
    generation = whole(look.facts.value("pcie", device, "gen"))
    most = whole(look.facts.value("pcie", device, "gen_max"))
    util = number(look.facts.value("gpu", device, "util_percent"))
    limit = look.rules.limit("pcie.busy_util_percent")
    if generation is None or most is None or util is None:
        return
    if 0 < generation < most and util >= limit.value:
        yield GENERATION.finding(
            look, f"{label}: PCIe Gen{generation} of Gen{most} while busy",
            (f"Gen{generation} of Gen{most} at {util:g} % utilisation",),
            device=device, label=label, value=generation, limit=limit,
        )  # fmt: skip


def _aer(look: Look, device: str, label: str) -> Iterator[Finding]:
    rates = look.facts.rates.get(("pcie", device))
    if rates is None:
        return
    grown = {n: rates.deltas.get(n, 0.0) for n in ("aer_nonfatal", "aer_fatal")}
    if any(delta > 0 for delta in grown.values()):
        text = ", ".join(f"{name} +{delta:.0f}" for name, delta in grown.items() if delta > 0)
        yield AER.finding(
            look, f"{label}: uncorrected PCIe errors: {text}",
            (f"{text} in {rates.elapsed_s:.0f} s",),
            device=device, label=label, value=sum(grown.values()), severity=Severity.CRITICAL,
        )  # fmt: skip


def _replays(look: Look, device: str, label: str, sample: Sample) -> Iterator[Finding]:
    """Per minute, by the highest generation: a link that is idle now shows Gen1."""
    rates = look.facts.rates.get(("pcie", device))
    width, most = (whole(sample.values.get(name)) for name in ("width", "gen_max"))
    if rates is None or width is None or most is None:
        return
    grown = rates.deltas.get("replays", 0.0)
    per_lane = look.rules.limit(REPLAYS.limits[min(max(most, 3), 6) - 3])
    limit = structs.replace(per_lane, value=per_lane.value * width)
    per_min = grown / rates.elapsed_s * 60
    if grown >= FEW_REPLAYS and per_min > limit.value and "replays" not in rates.reset:
        yield REPLAYS.finding(
            look, f"{label}: {per_min:.0f} PCIe replays a minute, {limit.value:.0f} are tolerated",
            (f"replays +{grown:.0f} in {rates.elapsed_s:.0f} s on Gen{most} x{width}",),
            device=device, label=label, value=round(per_min, 1), limit=limit,
        )  # fmt: skip
