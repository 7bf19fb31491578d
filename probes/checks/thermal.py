"""Throttling by heat and by the power brake; how near a GPU is to it say its sensors.

Where the card counts the time in slowdown its share is judged, the reason bits otherwise. The SW
power cap (0x4) at full load is how a GPU runs at its TDP, and the idle bit (0x1) is idleness:
neither is a finding.
"""

from __future__ import annotations

from collections.abc import Iterator

from probes.checks import sensors
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
SLOWDOWN = Rule(
    id="clocks.hw_slowdown",
    title="The hardware slows a GPU down and does not say why",
    severity=Severity.WARN,
    reads="clocks event reason 0x8 without 0x40 (heat) and 0x80 (power brake)",
    cause="on older cards heat or the power brake; else a fast power trigger: power cables, "
    "connector or PSU",
    action=Action.WATCH,
    next_step="compare temperature and power with its siblings; check the card's power cables",
    source="reason bit 0x8 of nvml.h [nvml]: HW slowdown, also by the fast trigger for power",
    others="gpud: more than 0.6 events/min in 10 min error; CCH mask 0xE8 error; canonical: "
    "5 min warn",
    example="reasons 0x8, 0.60 of 1.53 GHz, 61 °C",
)
RULES = (THERMAL, BRAKE, SW, SLOWDOWN, *sensors.RULES)

KINDS = (
    (THERMAL, HW_THERMAL, "thermal_hw_ns", "HW thermal slowdown"),
    (BRAKE, POWER_BRAKE, "power_brake_ns", "power brake slowdown"),
    (SW, SW_THERMAL, "thermal_sw_ns", "SW thermal slowdown"),
)
"""Rule, reason bit, time counter, name. The first limit of the rule is its share of time."""


ANY_THERMAL = "thermal_ns"

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
    if not slowed:
        yield from _unexplained(look, device, label, sample)
    yield from sensors.check_gpu(look, device, label, sample, slowed=slowed)


def _unexplained(look: Look, device: str, label: str, sample: Sample) -> Iterator[Finding]:
    reasons = whole(sample.values.get("reasons")) or 0
    if reasons > 0 and reasons & HW_SLOWDOWN and not reasons & (HW_THERMAL | POWER_BRAKE):
        clocks, temp = _clocks(sample), sensors.temperature(sample)
        yield SLOWDOWN.finding(
            look, f"{label}: HW slowdown{', ' + clocks if clocks else ''}, {temp}",
            (f"reasons {reasons:#x}, {temp}, {clocks}",), device=device, label=label,
        )  # fmt: skip


def _share(
    look: Look, device: str, sample: Sample, rule: Rule, bit: int, counter: str
) -> float | None:
    """Share of time in this reason; None when it is below the limit or absent.

    A card without the time counter only shows the moment: its bit counts as the warn share, so that
    one moment is never critical. So it is where the counter began anew, stands still although the
    bit is set, or rose by more time than passed: that is time since the driver was loaded.
    """
    warn = look.rules.limit(rule.limits[0]).value
    rates = look.facts.rates.get(("gpu", device))
    if rates is not None and counter not in rates.deltas and rule is SW:
        counter = ANY_THERMAL  # an older driver counts heat as a whole
    spent_ns = rates.deltas.get(counter) if rates else None
    if rates is not None and spent_ns and counter not in rates.reset:
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
        (f"reasons {bits}, {name} {text}, {sensors.temperature(sample)}, {clocks}",),
        device=device, label=label, value=round(share, 3) if measured else None,
        limit=critical if grave else warn, severity=Severity.CRITICAL if grave else Severity.WARN,
        action=Action.DRAIN if grave else None,
    )  # fmt: skip


def _far_below(sample: Sample) -> bool:
    """Clock below half of its maximum: the job runs at the pace of this card.

    A share of time alone does not say how much is lost, so it alone is never critical.
    """
    clock, top = (number(sample.values.get(f"sm_clock{m}_mhz")) for m in ("", "_max"))
    if clock is None or top is None or _idle(sample):
        return False
    return clock < 0.5 * top


def _idle(sample: Sample) -> bool:
    """Nothing runs: its low clock is by design and says nothing of what heat costs."""
    util = number(sample.values.get("util_percent"))
    reasons = whole(sample.values.get("reasons")) or 0
    return bool(reasons & IDLE_BIT) or (util is not None and util < IDLE_PERCENT)


IDLE_BIT = 0x1
"""nvmlClocksEventReasonGpuIdle, nvml.h."""
IDLE_PERCENT = 5.0


def _clocks(sample: Sample) -> str:
    clock, top = (number(sample.values.get(f"sm_clock{m}_mhz")) for m in ("", "_max"))
    if clock is None or top is None:
        return ""
    return f"{clock / 1000:.2f} of {top / 1000:.2f} GHz"
