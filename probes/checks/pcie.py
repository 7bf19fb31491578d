"""PCIe link of each GPU: width always, generation only under load (idle links train down).

Errors count as growth between two answers; a counter that was reset says nothing. Grace parts hang
on C2C links, so their PCIe link is not judged.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from probes.checks.rule import Look, Rule
from probes.derive import Rates
from probes.event import Action, Finding, Sample, Severity
from probes.expect import product_id
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
    reads="kernel AER totals aer_dev_nonfatal and aer_dev_fatal of the GPU and the port above it",
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
CORRECTED = Rule(
    id="pcie.corrected",
    title="Corrected PCIe errors of a GPU's link come fast",
    severity=Severity.WARN,
    reads="kernel AER total aer_dev_correctable of the GPU and of the port above it",
    cause="signal integrity: seating, riser, retimer or damaged lanes; the link repairs it so far",
    action=Action.WATCH,
    next_step="compare with the sibling slots; reseat the card or riser at the next drain",
    source="Linux sysfs AER counters [lx]; as rate, not as total",
    others="imbue, CVS: message patterns",
    example="aer_correctable +412 in 60 s",
    limits=("pcie.corrected_per_min",),
)
DISAGREE = Rule(
    id="pcie.disagree",
    title="NVML and the kernel see different PCIe widths",
    severity=Severity.INFO,
    reads="PCIe width as NVML tells it, and current_link_width of the card in sysfs",
    cause="one of them read while the link was retrained; if it stays, the card reports wrongly",
    action=Action.WATCH,
    next_step="lspci -vv on the node shows both ends of the link",
    source="our rule: two readings of one link must agree",
    others="CCH compares what OS, PCI and NVML count",
    example="NVML x16, sysfs x8",
)
RULES = (WIDTH, GENERATION, AER, REPLAYS, CORRECTED, DISAGREE)
FEW_REPLAYS = 5
"""Fewer are no rate (our estimate): in a pass of 1 s one replay would be 60 a minute."""
UNCORRECTED = ("aer_nonfatal", "aer_fatal", "slot_aer_nonfatal", "slot_aer_fatal")


def check(look: Look) -> Iterator[Finding]:
    """Each GPU by itself."""
    for device, sample in look.facts.devices("pcie"):
        if not device:
            continue
        label = look.facts.gpu_label(device)
        if not on_c2c(look, device):
            yield from _width(look, device, label, sample)
            yield from _generation(look, device, label)
        rates = look.facts.rates.get(("pcie", device))
        if rates is not None:
            yield from _aer(look, device, label, rates)
            yield from _corrected(look, device, label, rates)
            yield from _replays(look, device, label, sample, rates)


def on_c2c(look: Look, device: str) -> bool:
    """Whether PCIe says little about this GPU, because C2C links do its work."""
    product = look.rules.product(product_id(look.facts, device) or None)
    return product is not None and product.form == "superchip"


def _width(look: Look, device: str, label: str, sample: Sample) -> Iterator[Finding]:
    """Fewer lanes than both ends can do. Which end is at fault only an exchange tells."""
    width, most, seen = (
        whole(sample.values.get(name)) for name in ("width", "width_max", "sysfs_width")
    )
    if width is not None and most is not None and 0 < width < most:
        slot, card = (whole(sample.values.get(n)) for n in ("slot_width_max", "card_width_max"))
        ends = f"; card x{card}, slot x{slot}" if slot is not None and card is not None else ""
        yield WIDTH.finding(
            look, f"{label}: PCIe x{width} of x{most}", (f"x{width} of x{most}{ends}",),
            device=device, label=label, value=width,
        )  # fmt: skip
    elif width is not None and seen is not None and width != seen:
        yield DISAGREE.finding(
            look, f"{label}: PCIe x{width} says NVML, x{seen} the kernel",
            (f"NVML x{width}, sysfs x{seen}",), device=device, label=label, value=seen,
        )  # fmt: skip


def _generation(look: Look, device: str, label: str) -> Iterator[Finding]:
    generation = whole(look.facts.value("pcie", device, "gen"))
    most = whole(look.facts.value("pcie", device, "gen_max"))
    # Read together: an idle link trains up when load begins, and is asked far less often than use.
    then = number(look.facts.value("pcie", device, "util_percent"))
    now = number(look.facts.value("gpu", device, "util_percent"))
    util = now if then is None or now is None else min(then, now)
    limit = look.rules.limit("pcie.busy_util_percent")
    if generation is None or most is None or util is None:
        return
    if 0 < generation < most and util >= limit.value:
        yield GENERATION.finding(
            look, f"{label}: PCIe Gen{generation} of Gen{most} while busy",
            (f"Gen{generation} of Gen{most} at {util:g} % utilisation",),
            device=device, label=label, value=generation, limit=limit,
        )  # fmt: skip


def _aer(look: Look, device: str, label: str, rates: Rates) -> Iterator[Finding]:
    grown = _grown(rates, UNCORRECTED)
    if grown:
        text = ", ".join(f"{name} +{delta:.0f}" for name, delta in grown.items())
        yield AER.finding(
            look, f"{label}: uncorrected PCIe errors: {text}",
            (f"{text} in {rates.elapsed_s:.0f} s",),
            device=device, label=label, value=sum(grown.values()),
        )  # fmt: skip


def _grown(rates: Rates, names: tuple[str, ...]) -> dict[str, float]:
    return {
        name: delta for name in names
        if (delta := rates.deltas.get(name, 0.0)) > 0 and name not in rates.reset
    }  # fmt: skip


def _corrected(look: Look, device: str, label: str, rates: Rates) -> Iterator[Finding]:
    """The port above counts what it received damaged from the card, the card the other way."""
    grown = _grown(rates, ("aer_correctable", "slot_aer_correctable"))
    limit = look.rules.limit("pcie.corrected_per_min")
    most = max(grown.values(), default=0.0)
    per_min = most / rates.elapsed_s * 60
    if most >= FEW_REPLAYS and per_min > limit.value:
        text = ", ".join(f"{name} +{delta:.0f}" for name, delta in grown.items())
        yield CORRECTED.finding(
            look, f"{label}: {per_min:.0f} corrected PCIe errors a minute",
            (f"{text} in {rates.elapsed_s:.0f} s",),
            device=device, label=label, value=round(per_min, 1), limit=limit,
        )  # fmt: skip


def _replays(
    look: Look, device: str, label: str, sample: Sample, rates: Rates
) -> Iterator[Finding]:
    """Per minute, by the highest generation: a link that is idle now shows Gen1."""
    width, most = (whole(sample.values.get(name)) for name in ("width", "gen_max"))
    if width is None or most is None:
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
