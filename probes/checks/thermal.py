"""Throttling by heat and by the power brake: share of time where the card counts it, bits otherwise.

The SW power cap (0x4) at full load is how a GPU runs at its TDP, and the idle bit (0x1) is idleness:
neither is a finding (science.md 1.4).
"""

from __future__ import annotations

from collections.abc import Iterator

from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Sample, Severity

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
    next_step="check fans, coolant and inlet temperature; drain if it stays, the whole job waits for it",
    source="science.md 10: bit 0x40 for > 1 % of time warn, > 10 % critical (guess); field 270 nvml.h",
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
    next_step="check PSUs, rack power and the BMC's event log; all GPUs of a node together point to its PSU",
    source="science.md 10: bit 0x80 as 0x40; anchors.md 7 case 6: 36 h unseen on 9 of 288 nodes",
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
    source="science.md 4: reason bit 0x20; limits as thermal.hw_slowdown",
    others="CCH mask 0xE8 error",
    example="reasons 0x20, 12 % of the last 2 s",
    limits=("thermal.hw_share_warn",),
)
HOT = Rule(
    id="thermal.margin",
    title="No thermal margin is left",
    severity=Severity.WARN,
    reads="thermal_margin_c: degrees to the maximum operating temperature",
    cause="cooling: fan, filter, heat sink, coolant or inlet air",
    action=Action.WATCH,
    next_step="check fans, coolant and inlet temperature before it slows down",
    source="science.md 10: margin <= 0 warn; read from the device, never hard-coded",
    others="NVS: below the slowdown offset error",
    example="87 °C, margin 0 °C",
    limits=("thermal.margin_c",),
)
RULES = (THERMAL, BRAKE, SW, HOT)

KINDS = (
    (THERMAL, HW_THERMAL, "thermal_hw_ns", "HW thermal slowdown"),
    (BRAKE, POWER_BRAKE, "power_brake_ns", "power brake slowdown"),
    (SW, SW_THERMAL, "thermal_sw_ns", "SW thermal slowdown"),
)


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
        share = _share(look, device, sample, bit, counter)
        if share is None or (rule is SW and slowed):  # the driver's own slowdown follows the hardware's
            continue
        slowed = True
        yield _slowdown(look, rule, device, label, sample, share, name)
    margin = sample.values.get("thermal_margin_c")
    limit = look.rules.limit("thermal.margin_c")
    if isinstance(margin, int | float) and margin <= limit.value and not slowed:
        yield HOT.finding(
            look, f"{label}: {_temp(sample)}, no thermal margin left",
            (f"{_temp(sample)}, margin {margin:g} °C",),
            device=device, label=label, value=margin, limit=limit,
        )  # fmt: skip


def _share(look: Look, device: str, sample: Sample, bit: int, counter: str) -> float | None:
    """Share of time in this reason; None when it is below the limit or absent.

    A card without the time counter only shows the moment: its bit counts as the warn share, so that
    one moment is never critical.
    """
    warn = look.rules.limit("thermal.hw_share_warn").value
    rates = look.facts.rates.get(("gpu", device))
    spent_ns = rates.deltas.get(counter) if rates else None
    if rates is not None and spent_ns is not None:
        share = min(1.0, spent_ns / 1e9 / rates.elapsed_s)
        return share if share > warn else None
    reasons = sample.values.get("reasons")
    return warn if isinstance(reasons, int) and reasons & bit else None


def _slowdown(
    look: Look, rule: Rule, device: str, label: str, sample: Sample, share: float, name: str
) -> Finding:
    critical = look.rules.limit("thermal.hw_share_critical")
    warn = look.rules.limit("thermal.hw_share_warn")
    measured = share > warn.value
    grave = share > critical.value and rule is not SW and _far_below(sample)
    text = f"{share:.0%} of the time" if measured else "at this moment"
    clocks = _clocks(sample)
    return rule.finding(
        look, f"{label}: {name} {text}{', ' + clocks if clocks else ''}",
        (f"reasons {hex(int(sample.values.get('reasons', 0)))}, {name} {text}, {_temp(sample)}, {clocks}",),
        device=device, label=label, value=round(share, 3) if measured else None,
        limit=critical if grave else warn, severity=Severity.CRITICAL if grave else Severity.WARN,
        action=Action.DRAIN if grave else None,
    )  # fmt: skip


def _far_below(sample: Sample) -> bool:
    """Clock below half of its maximum: the job runs at the pace of this card.

    A share of time alone does not say how much is lost, so it alone is never critical.
    """
    clock, top = sample.values.get("sm_clock_mhz"), sample.values.get("sm_clock_max_mhz")
    if not isinstance(clock, int | float) or not isinstance(top, int | float):
        return False
    return clock < 0.5 * top


def _temp(sample: Sample) -> str:
    temp = sample.values.get("temp_c")
    return f"{temp} °C" if temp is not None else "temperature not readable"


def _clocks(sample: Sample) -> str:
    clock, top = sample.values.get("sm_clock_mhz"), sample.values.get("sm_clock_max_mhz")
    if not isinstance(clock, int | float) or not isinstance(top, int | float):
        return ""
    return f"{clock / 1000:.2f} of {top / 1000:.2f} GHz"
