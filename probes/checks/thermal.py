"""Throttling by heat and by the power brake, and how near a GPU is to it.

Where the card counts the time in slowdown its share is judged, the reason bits otherwise. The SW
power cap (0x4) at full load is how a GPU runs at its TDP, and the idle bit (0x1) is idleness:
neither is a finding.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Sample, Severity
from probes.reading import number, whole

HW_THERMAL = 0x40
POWER_BRAKE = 0x80
SW_THERMAL = 0x20
HW_SLOWDOWN = 0x8

THERMAL = Rule(
    id="thermal.hw_slowdown",
    title="The hardware slows a GPU down for heat",
    severity=Severity.WARN,
    reads="clocks event reasons 0x40 and NVML field 270 (time in HW thermal slowdown)",
    cause="cooling: fan, filter, heat sink, coolant or inlet air",
    action=Action.WATCH,
    next_step="check fans, coolant and inlet temperature; drain if it stays, the whole job waits "
    "for it",
    source="reason bit 0x40 and field 270 of nvml.h [nvml]; the limits are our estimate, not "
    "measured",
    others="CCH mask 0xE8 error; gpud 0.6 events/min; canonical each bit 5 min warn",
    example="reasons 0x40, 34 % of the last 2 s, 91 °C, 1.20 of 1.98 GHz",
    limits=("thermal.hw_share_warn", "thermal.hw_share_critical"),
)
BRAKE = Rule(
    id="power.brake",
    title="The power brake is on",
    severity=Severity.WARN,
    reads="clocks event reasons 0x80 and NVML field 271 (time in power brake slowdown)",
    cause="a power supply or the rack's power asks the node to draw less; a PSU may have failed",
    action=Action.WATCH,
    next_step="check PSUs, rack power and the BMC's event log; all GPUs of a node together point "
    "to its PSU",
    source="reason bit 0x80, field 271 [nvml]; NVIDIA/NVSentinel issue 1666: 36 h unseen on 9 "
    "nodes",
    others="NVS: 3 polls in a row",
    example="reasons 0x80 on 8 of 8 GPUs",
    limits=("thermal.hw_share_warn", "thermal.hw_share_critical"),
)
SW = Rule(
    id="thermal.sw_slowdown",
    title="The driver slows a GPU down for heat",
    severity=Severity.WARN,
    reads="clocks event reasons 0x20 and NVML field 269 (time in SW thermal slowdown)",
    cause="temperature near the limit: cooling or inlet air",
    action=Action.WATCH,
    next_step="check fans, coolant and inlet temperature",
    source="reason bit 0x20 and field 269 of nvml.h [nvml]; the limit is our estimate, not "
    "measured",
    others="CCH mask 0xE8 error",
    example="reasons 0x20, 12 % of the last 2 s",
    limits=("thermal.sw_share_warn",),
)
HOT = Rule(
    id="thermal.margin",
    title="No thermal margin is left",
    severity=Severity.WARN,
    reads="thermal_margin_c: degrees to the maximum operating temperature",
    cause="cooling: fan, filter, heat sink, coolant or inlet air",
    action=Action.WATCH,
    next_step="check fans, coolant and inlet temperature before it slows down",
    source="thermal margin of nvml.h [nvml]: the device's own figure, never hard-coded",
    others="NVS: below the slowdown offset error",
    example="87 °C, margin 0 °C",
    limits=("thermal.margin_c",),
)
MEMORY = Rule(
    id="thermal.memory",
    title="GPU memory is at its highest operating temperature",
    severity=Severity.WARN,
    reads="mem_temp_c: NVML field 82, against hardware.yaml",
    cause="cooling: HBM may throttle while the core is cool",
    action=Action.WATCH,
    next_step="check fans, coolant and inlet temperature; compare with the node's other GPUs",
    source="memory temperature of nvml.h [nvml]; highest operating value of the product",
    others="SCK 95 °C for H100; gpud: the value NVML names",
    example="memory 96 °C of 95 °C, core 71 °C",
    limits=("thermal.mem_temp_c",),
)
RULES = (THERMAL, BRAKE, SW, HOT, MEMORY)

KINDS = (
    (THERMAL, HW_THERMAL, "thermal_hw_ns", "HW thermal slowdown"),
    (BRAKE, POWER_BRAKE, "power_brake_ns", "power brake slowdown"),
    (SW, SW_THERMAL, "thermal_sw_ns", "SW thermal slowdown"),
)
"""Rule, reason bit, time counter, name. The first limit of the rule is its share of time."""


SLACK_SHARE, SLACK_S = 0.1, 0.5
"""A counter and the clock are not read at the same moment (our estimate)."""


def check(look: Look) -> Iterator[Finding]:
    """Each GPU by itself; the brake on all GPUs of a node is one finding."""
    brakes: list[Finding] = []
    for device, sample in look.facts.devices("gpu"):
        found = list(_gpu(look, device, sample))
        brakes += [f for f in found if f.rule == BRAKE.id]
        yield from (f for f in found if f.rule != BRAKE.id)
    total = sum(1 for _ in look.facts.devices("gpu"))
    if len(brakes) == total and total > 1:
        severity = max((f.severity for f in brakes), key=lambda s: s.rank)
        yield BRAKE.finding(
            look, f"power brake on all {total} GPUs: the node's power supply, not one card",
            brakes[0].evidence, severity=severity, action=Action.DRAIN,
        )  # fmt: skip
    else:
        yield from brakes


def _gpu(look: Look, device: str, sample: Sample) -> Iterator[Finding]:
    label = look.facts.gpu_label(device)
    slowed = False
    for rule, bit, counter, name in KINDS:
        share = _share(look, device, sample, rule, bit, counter)
        if share is None or (
            rule is SW and slowed
        ):  # the driver's own slowdown follows the hardware's
            continue
        slowed = True
        yield _slowdown(look, rule, device, label, sample, share, name)
    margin = number(sample.values.get("thermal_margin_c"))
    limit = look.rules.limit("thermal.margin_c")
    if margin is not None and margin <= limit.value and not slowed:
        yield HOT.finding(
            look, f"{label}: {_temp(sample)}, no thermal margin left",
            (f"{_temp(sample)}, margin {margin:g} °C",),
            device=device, label=label, value=margin, limit=limit,
        )  # fmt: skip
    yield from _memory(look, device, label, sample)


def _memory(look: Look, device: str, label: str, sample: Sample) -> Iterator[Finding]:
    """The product's own figure, else the general one."""
    temp = number(sample.values.get("mem_temp_c"))
    limit = look.rules.limit("thermal.mem_temp_c")
    device_id = look.facts.value("inventory", device, "pci_device_id")
    product = look.rules.product(None if device_id is None else str(device_id))
    if product is not None and product.mem_temp_max_c is not None:
        limit = structs.replace(limit, value=product.mem_temp_max_c, source=product.source)
    if temp is not None and temp >= limit.value:
        text = f"memory {temp:g} °C of {limit.value:g} °C"
        yield MEMORY.finding(
            look, f"{label}: {text}", (f"{text}, core {_temp(sample)}",),
            device=device, label=label, value=temp, limit=limit,
        )  # fmt: skip


def _share(
    look: Look, device: str, sample: Sample, rule: Rule, bit: int, counter: str
) -> float | None:
    """Share of time in this reason; None when it is below the limit or absent.

    A card without the time counter only shows the moment: its bit counts as the warn share, so that
    one moment is never critical. So it is where the counter began anew or rose by more time than
    passed: that is time since the driver was loaded.
    """
    warn = look.rules.limit(rule.limits[0]).value
    rates = look.facts.rates.get(("gpu", device))
    spent_ns = rates.deltas.get(counter) if rates else None
    if rates is not None and spent_ns is not None and counter not in rates.reset:
        spent_s = spent_ns / 1e9
        if spent_s <= rates.elapsed_s * (1 + SLACK_SHARE) + SLACK_S:
            share = min(1.0, spent_s / rates.elapsed_s)
            return share if share > warn else None
    reasons = whole(sample.values.get("reasons")) or 0
    return warn if reasons > 0 and reasons & bit else None


def _slowdown(
    look: Look, rule: Rule, device: str, label: str, sample: Sample, share: float, name: str
) -> Finding:
    critical = look.rules.limit("thermal.hw_share_critical")
    warn = look.rules.limit(rule.limits[0])
    measured = share > warn.value
    grave = share > critical.value and rule is not SW and _far_below(sample)
    text = f"{share:.0%} of the time" if measured else "at this moment"
    clocks, bits = _clocks(sample), hex(whole(sample.values.get("reasons")) or 0)
    return rule.finding(
        look, f"{label}: {name} {text}{', ' + clocks if clocks else ''}",
        (f"reasons {bits}, {name} {text}, {_temp(sample)}, {clocks}",),
        device=device, label=label, value=round(share, 3) if measured else None,
        limit=critical if grave else warn, severity=Severity.CRITICAL if grave else Severity.WARN,
        action=Action.DRAIN if grave else None,
    )  # fmt: skip


def _far_below(sample: Sample) -> bool:
    """Clock below half of its maximum: the job runs at the pace of this card.

    A share of time alone does not say how much is lost, so it alone is never critical.
    """
    clock, top = (number(sample.values.get(f"sm_clock{m}_mhz")) for m in ("", "_max"))
    if clock is None or top is None:
        return False
    return clock < 0.5 * top


def _temp(sample: Sample) -> str:
    temp = sample.values.get("temp_c")
    return f"{temp} °C" if temp is not None else "temperature not readable"


def _clocks(sample: Sample) -> str:
    clock, top = (number(sample.values.get(f"sm_clock{m}_mhz")) for m in ("", "_max"))
    if clock is None or top is None:
        return ""
    return f"{clock / 1000:.2f} of {top / 1000:.2f} GHz"
