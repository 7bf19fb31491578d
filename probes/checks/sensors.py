"""What a GPU's sensors say: thermal margin, memory temperature, fan, and power that cannot be."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from probes.checks.nvml_codes import code as meaning
from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Sample, Severity
from probes.reading import number, whole
from probes.rules import Limit

HOT = Rule(
    id="thermal.margin",
    title="No thermal margin is left",
    severity=Severity.WARN,
    reads="thermal_margin_c: degrees to the maximum operating temperature, and the card's own "
    "T.Limit offset of its slowdown; the temperature alone where a card has neither",
    cause="cooling: fan, filter, heat sink, coolant or inlet air",
    action=Action.WATCH,
    next_step="check fans, coolant and inlet temperature before it slows down",
    source="thermal margin and field 194 of nvml.h [nvml]: the device's own figures",
    others="NVS: below the slowdown offset error; GCM example 84 °C; CCH > 93 °C warn; SCK 75 °C "
    "for H100",
    example="91 °C, margin -4 °C, hardware slows down at -2 °C",
    limits=("thermal.margin_c", "thermal.core_c"),
)
MEMORY = Rule(
    id="thermal.memory",
    title="GPU memory is at its highest operating temperature",
    severity=Severity.WARN,
    reads="mem_temp_c: NVML field 82, against hardware.yaml",
    cause="cooling: HBM may throttle while the core is cool",
    action=Action.WATCH,
    next_step="check fans, coolant and inlet temperature; compare with the node's other GPUs",
    source="memory temperature and its threshold of nvml.h [nvml]; else the product's figure",
    others="SCK 95 °C for H100; gpud: the value NVML names",
    example="memory 96 °C of 95 °C, core 71 °C",
    limits=("thermal.mem_temp_c",),
)
FAN = Rule(
    id="thermal.fan",
    title="A GPU's fan has failed",
    severity=Severity.WARN,
    reads="fan speed wanted and measured; return code of the fan's own calls",
    cause="a fan that is blocked or broken, or a card whose firmware no longer reads it",
    action=Action.WATCH,
    next_step="look at the card; it will run hot under load, so exchange the fan or the card soon",
    source="fan speed of nvml.h [nvml]: the wanted speed may differ from that of a blocked fan; a "
    "card that prints ERR! there is often sick (utkuozdemir/nvidia_gpu_exporter issue 393)",
    others="-",
    example="fan wanted at 80 %, measured 0 rpm",
    limits=("thermal.fan_percent",),
)
SENSOR = Rule(
    id="power.reading",
    title="A GPU's power reading cannot be true",
    severity=Severity.WARN,
    reads="power and enforced power limit of each GPU",
    cause="the power sensor or its controller is defective, or the card does not run its firmware",
    action=Action.WATCH,
    next_step="compare with the BMC; the driver holds the card's power down by this sensor",
    source="NVHV takes 65 to 1500 W for sane; against the card's own limit: our estimate",
    others="NVHV: average power outside of 65 to 1500 W",
    example="0 W at 97 % utilisation",
    limits=("power.over_limit", "power.least_w"),
)
RULES = (HOT, MEMORY, FAN, SENSOR)

COOL_C = 60.0
"""No memory has a limit below; looking it up costs more than reading the temperature."""
FAN_CALL = "FanSpeed"


def check_gpu(
    look: Look, device: str, label: str, sample: Sample, *, slowed: bool
) -> Iterator[Finding]:
    """One GPU. `slowed`: its throttling is a finding already, so heat alone is none."""
    yield from _margin(look, device, label, sample, slowed)
    yield from _memory(look, device, label, sample)
    yield from _fan(look, device, label, sample)
    yield from _power(look, device, label, sample)


def temperature(sample: Sample) -> str:
    """The core's temperature in words."""
    temp = sample.values.get("temp_c")
    return f"{temp} °C" if temp is not None else "temperature not readable"


def _memory_limit(look: Look, device: str) -> Limit:
    general = look.rules.limit("thermal.mem_temp_c")
    own = number(look.facts.value("inventory", device, "mem_temp_max_c"))
    if own is not None:
        return structs.replace(general, value=own, source="threshold of the card itself [nvml]")
    device_id = look.facts.value("inventory", device, "pci_device_id")
    product = look.rules.product(None if device_id is None else str(device_id))
    if product is None or product.mem_temp_max_c is None:
        return general
    return structs.replace(general, value=product.mem_temp_max_c, source=product.source)


def _memory(look: Look, device: str, label: str, sample: Sample) -> Iterator[Finding]:
    """The card's own figure, else the product's, else the general one."""
    temp = number(sample.values.get("mem_temp_c"))
    if temp is None or temp < COOL_C:
        return
    limit = _memory_limit(look, device)
    if temp >= limit.value:
        text = f"memory {temp:g} °C of {limit.value:g} °C"
        yield MEMORY.finding(
            look, f"{label}: {text}", (f"{text}, core {temperature(sample)}",),
            device=device, label=label, value=temp, limit=limit,
        )  # fmt: skip


def _margin(look: Look, device: str, label: str, sample: Sample, slowed: bool) -> Iterator[Finding]:
    """Below the slowdown's own offset it is no longer a warning, whatever the reason bits say."""
    margin = number(sample.values.get("thermal_margin_c"))
    if margin is None:
        yield from _core(look, device, label, sample)
        return
    limit = look.rules.limit("thermal.margin_c")
    if margin > limit.value:
        return
    slowdown = number(look.facts.value("inventory", device, "tlimit_slowdown_c"))
    grave = slowdown is not None and margin < slowdown
    if slowed and not grave:
        return
    at = f", hardware slows down at {slowdown:g} °C" if slowdown is not None else ""
    yield HOT.finding(
        look, f"{label}: {temperature(sample)}, no thermal margin left",
        (f"{temperature(sample)}, margin {margin:g} °C{at}",),
        device=device, label=label, value=margin, limit=limit,
        severity=Severity.CRITICAL if grave else None,
        action=Action.DRAIN if grave else None,
    )  # fmt: skip


def _core(look: Look, device: str, label: str, sample: Sample) -> Iterator[Finding]:
    """A card that tells no margin and no limit."""
    temp, limit = number(sample.values.get("temp_c")), look.rules.limit("thermal.core_c")
    if temp is not None and temp >= limit.value:
        yield HOT.finding(
            look, f"{label}: {temperature(sample)}; the card tells no limit of its own",
            (f"{temperature(sample)}, no margin readable",), device=device, label=label, value=temp,
            limit=limit,
        )  # fmt: skip


def _fan(look: Look, device: str, label: str, sample: Sample) -> Iterator[Finding]:
    if "fan_percent" not in sample.values and "nvml_rc" not in sample.values:
        return
    wanted, rpm = (number(sample.values.get(name)) for name in ("fan_percent", "fan_rpm"))
    limit = look.rules.limit("thermal.fan_percent")
    call = str(sample.values.get("nvml_call", ""))
    code = whole(sample.values.get("nvml_rc"))
    if FAN_CALL in call and code is not None and meaning(code).severity is Severity.WARN:
        yield FAN.finding(
            look, f"{label}: the fan cannot be read; its other readings may be frozen",
            (f"{call} returned {code} ({meaning(code).name})",), device=device, label=label,
            value=code,
        )  # fmt: skip
    elif rpm == 0 and wanted is not None and wanted >= limit.value:
        yield FAN.finding(
            look, f"{label}: the fan stands still, {temperature(sample)}",
            (f"fan wanted at {wanted:g} %, measured 0 rpm, {temperature(sample)}",),
            device=device, label=label, value=0, limit=limit,
        )  # fmt: skip


def _power(look: Look, device: str, label: str, sample: Sample) -> Iterator[Finding]:
    power, top = number(sample.values.get("power_w")), number(sample.values.get("power_limit_w"))
    if power is None:
        return
    over, least = look.rules.limit("power.over_limit"), look.rules.limit("power.least_w")
    limit = least if power < least.value else over
    if power < least.value or (top is not None and top > 0 and power > over.value / 100 * top):
        util = sample.values.get("util_percent")
        load = f" at {util} % utilisation" if util is not None else ""
        against = f", limit {top:g} W" if top is not None else ""
        yield SENSOR.finding(
            look, f"{label}: power reads {power:g} W{against}", (f"{power:g} W{load}{against}",),
            device=device, label=label, value=power, limit=limit,
        )  # fmt: skip
