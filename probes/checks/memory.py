"""GPU memory: ECC errors by place and rate, ECC mode, and the driver's own recovery advice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Sample, Severity
from probes.expect import product_id
from probes.reading import whole

UNCORRECTED = Rule(
    id="ecc.uncorrected",
    title="Uncorrected memory errors since the driver was loaded",
    severity=Severity.CRITICAL,
    reads="ecc_uncorrected_volatile of each GPU",
    cause="HBM or SRAM gave wrong data that ECC could not repair",
    action=Action.RESET_GPU,
    next_step="drain, reset the GPU; RMA if remapping fails or the errors return",
    source="NVML volatile ECC counters [nvml]; as Xid 48 in the catalogue [xid]",
    others="GCM, AzHC, OCI, DCGM, CCH, SCK: > 0 error",
    example="ecc_uncorrected_volatile 2, +1 in the last 30 s",
    limits=("ecc.uncorrected_volatile",),
    hard=True,
    clears="reset",
)
CORRECTED = Rule(
    id="ecc.corrected",
    title="Corrected memory errors come fast",
    severity=Severity.INFO,
    reads="rise of ecc_corrected_volatile of each GPU",
    cause="memory cells or HBM links wear out; ECC repairs them so far",
    action=Action.WATCH,
    next_step="watch the rate; reset the GPU at the next drain; field diagnostic if it grows",
    source="NVML volatile ECC counters [nvml]; the limits are our estimate, not measured",
    others="as total: SCK 10 M, AzHC 20 M, GCM 50 M",
    example="ecc_corrected_volatile +530000 in 30 s",
    limits=("ecc.corrected_per_h", "ecc.corrected_storm_per_s"),
)
SRAM_LIMIT = Rule(
    id="ecc.sram_limit",
    title="SRAM errors passed the driver's limit",
    severity=Severity.CRITICAL,
    reads="SRAM error status of each GPU: its threshold flag",
    cause="caches or registers of the GPU give wrong data again and again; no spare repairs them",
    action=Action.REPLACE,
    next_step="drain; run the field diagnostic; RMA",
    source="nvml.h nvmlDeviceGetSramEccErrorStatus [nvml]: the driver's own limit",
    others="SCK: SRAM uncorrected > 4 replace; OCI, AzHC: any",
    example="sram_threshold_exceeded true, 3 in L2, 2 in SM",
    hard=True,
)
SRAM_MANY = Rule(
    id="ecc.sram_many",
    title="Many uncorrected SRAM errors in the card's life",
    severity=Severity.WARN,
    reads="ecc_uncorrected_aggregate_sram of each GPU, where the driver has no verdict of its own",
    cause="caches or registers of the GPU wear out; single errors are cosmic rays",
    action=Action.WATCH,
    next_step="field diagnostic at the next drain; RMA if it fails or the count grows",
    source="NVML aggregate ECC counters by location [nvml]; limit as SCK",
    others="SCK > 4 replace; OCI, AzHC: any",
    example="ecc_uncorrected_aggregate_sram 6",
    limits=("ecc.sram_aggregate",),
)
MODE = Rule(
    id="ecc.off",
    title="ECC is off",
    severity=Severity.WARN,
    reads="ECC mode of each GPU, and the mode it is delivered with",
    cause="somebody switched it off; wrong data then goes unnoticed",
    action=Action.FIX_CONFIG,
    next_step="nvidia-smi -e 1 and reset the GPU when it is free",
    source="nvml.h nvmlDeviceGetEccMode and nvmlDeviceGetDefaultEccMode [nvml]; our rule: "
    "information where the product is delivered without",
    others="-",
    example="ECC off on GPU3, on by default",
)
MODE_PENDING = Rule(
    id="ecc.mode_pending",
    title="A change of the ECC mode waits for a reset",
    severity=Severity.INFO,
    reads="ECC mode of each GPU, now and pending",
    cause="the mode was changed, which takes effect at the next reset or reboot",
    action=Action.NONE,
    next_step="reset the GPU when it is free, or set the mode back",
    source="nvml.h nvmlDeviceGetEccMode [nvml]",
    others="-",
    example="ECC on, off after the next reset",
)
RECOVERY = Rule(
    id="gpu.recovery_action",
    title="The driver asks for a recovery action",
    severity=Severity.CRITICAL,
    reads="NVML field 230 (recovery action)",
    cause="the driver met a fault that only this action clears",
    action=Action.RESET_GPU,
    next_step="do what it says, after draining",
    source="nvml.h NVML_FI_DEV_GET_GPU_RECOVERY_ACTION [nvml]: the driver's word beats any table",
    others="DCGM, CCH (3 warn; 1, 2, 4 error), NVS",
    example="recovery action 2 (node reboot)",
    hard=True,
    clears="reset",
)
RULES = (UNCORRECTED, CORRECTED, SRAM_LIMIT, SRAM_MANY, MODE, MODE_PENDING, RECOVERY)

HOUR_S = 3600.0
SRAM_UNITS = ("l2", "sm", "pcie", "mcu", "other")
PLACES = ("dram", "sram", "l1", "l2", "registers", "texture", "cbu")
"""Where an error can sit, as far as the GPU tells: suffixes of the ECC counters."""


class Recovery(NamedTuple):
    """What the driver asks for, and how bad that is."""

    name: str
    action: Action
    severity: Severity
    next_step: str


RECOVERY_ACTIONS = {
    1: Recovery("GPU reset", Action.RESET_GPU, Severity.CRITICAL,
                "drain, then nvidia-smi -r -i GPU"),
    2: Recovery("node reboot", Action.REBOOT, Severity.CRITICAL, "drain, then reboot the node"),
    3: Recovery("drain P2P", Action.WATCH, Severity.WARN,
                "stop peer-to-peer users of this GPU; reset when they are gone"),
    4: Recovery("drain and reset", Action.DRAIN, Severity.WARN,
                "reduced capacity, running work is safe: drain, then reset the GPU"),
    5: Recovery("recover IMEX", Action.RESTART_SERVICE, Severity.CRITICAL,
                "restart the IMEX domain of this rack"),
    6: Recovery("bus reset", Action.REBOOT, Severity.CRITICAL,
                "drain, then reset the GPU's PCIe slot from the BMC, or reboot the node"),
    7: Recovery("system reboot", Action.REBOOT, Severity.CRITICAL,
                "drain, then power-cycle the whole system, not only this node's OS"),
}  # fmt: skip
"""Codes of NVML's field 230 and of Xid 154, which prints the same number; 0 is none [nvml]."""


def recovery(code: int, said: str = "") -> Recovery:
    """The driver's advice for a code other than 0; `said`: its own words for one we do not know."""
    unknown = said or f"code {code}"
    return RECOVERY_ACTIONS.get(code) or Recovery(
        unknown, Action.DRAIN, Severity.CRITICAL, RECOVERY.next_step
    )


def check(look: Look) -> Iterator[Finding]:
    """Each GPU by itself."""
    for device, sample in look.facts.devices("ecc"):
        label = look.facts.gpu_label(device)
        yield from _uncorrected(look, device, label, sample)
        yield from _corrected(look, device, label)
        yield from _sram(look, device, label, sample)
        yield from _mode(look, device, label, sample)
        yield from _recovery(look, device, label, sample)


def _uncorrected(look: Look, device: str, label: str, sample: Sample) -> Iterator[Finding]:
    number = whole(sample.values.get("ecc_uncorrected_volatile"))
    limit = look.rules.limit("ecc.uncorrected_volatile")
    if number is None or number <= limit.value:
        return
    rates = look.facts.rates.get(("ecc", device))
    counter = "ecc_uncorrected_volatile"
    grown = rates.deltas.get(counter) if rates and counter not in rates.reset else None
    recent = f", +{grown:.0f} in the last {rates.elapsed_s:.0f} s" if rates and grown else ""
    where = _where(sample, "ecc_uncorrected_volatile")
    yield UNCORRECTED.finding(
        look, f"{label}: {number} uncorrected memory error{'s' * (number != 1)} since the driver "
        f"was loaded{recent}",
        (f"ecc_uncorrected_volatile {number}{recent}{where}",),
        device=device, label=label, value=number, limit=limit,
    )  # fmt: skip


def _where(sample: Sample, counter: str) -> str:
    """Where the errors sit: " (2 in DRAM)"; "" when the GPU does not tell."""
    counts = {place: whole(sample.values.get(f"{counter}_{place}")) for place in PLACES}
    told = ", ".join(f"{count} in {place.upper()}" for place, count in counts.items() if count)
    return f" ({told})" if told else ""


def _corrected(look: Look, device: str, label: str) -> Iterator[Finding]:
    """By rate: a total says nothing, some cards count for years. A storm precedes failure."""
    rates = look.facts.rates.get(("ecc", device))
    per_s = rates.per_s("ecc_corrected_volatile") if rates else None
    if rates is None or per_s is None or "ecc_corrected_volatile" in rates.reset:
        return
    hourly, storm = (look.rules.limit(name) for name in CORRECTED.limits)
    grave = per_s > storm.value
    if grave or per_s * HOUR_S > hourly.value:
        grown = rates.deltas["ecc_corrected_volatile"]
        text = f"{per_s:.0f}/s" if grave else f"{per_s * HOUR_S:.0f} an hour"
        parts = ", ".join(
            f"{delta:.0f} in {place.upper()}" for place in PLACES
            if (delta := rates.deltas.get(f"ecc_corrected_volatile_{place}", 0.0)) > 0
        )  # fmt: skip
        yield CORRECTED.finding(
            look, f"{label}: corrected memory errors: {text}",
            (f"ecc_corrected_volatile +{grown:.0f} in {rates.elapsed_s:.0f} s"
             f"{f' ({parts})' if parts else ''}",),
            device=device, label=label, value=round(per_s if grave else per_s * HOUR_S, 1),
            limit=storm if grave else hourly, severity=Severity.WARN if grave else None,
        )  # fmt: skip


def _sram(look: Look, device: str, label: str, sample: Sample) -> Iterator[Finding]:
    """The driver's verdict; our own limit only where it has none."""
    values = sample.values
    exceeded = values.get("sram_threshold_exceeded")
    number = whole(values.get("ecc_uncorrected_aggregate_sram"))
    limit = look.rules.limit("ecc.sram_aggregate")
    if exceeded is True:
        where = ", ".join(
            f"{count} in {unit.upper()}" for unit in SRAM_UNITS
            if (count := whole(values.get(f"sram_aggregate_{unit}")))
        )  # fmt: skip
        yield SRAM_LIMIT.finding(
            look, f"{label}: uncorrected SRAM errors passed the driver's limit",
            (f"sram_threshold_exceeded true{', ' if where else ''}{where}",),
            device=device, label=label, value=number,
        )  # fmt: skip
    elif exceeded is None and number is not None and number > limit.value:
        yield SRAM_MANY.finding(
            look, f"{label}: {number} uncorrected SRAM errors in the card's life",
            (f"ecc_uncorrected_aggregate_sram {number}",),
            device=device, label=label, value=number, limit=limit,
        )  # fmt: skip


def _mode(look: Look, device: str, label: str, sample: Sample) -> Iterator[Finding]:
    """Off is a fault where the product is delivered with ECC on; a change that waits is none."""
    now, later = (sample.values.get(name) for name in ("ecc_mode", "ecc_mode_pending"))
    if now is False and later is not True:
        default = sample.values.get("ecc_mode_default")
        product = look.rules.product(product_id(look.facts, device) or None)
        expected = default is True or (
            default is None and product is not None and product.form != "pcie"
        )
        known = ", on by default" if default is True else ""
        yield MODE.finding(
            look, f"{label}: ECC is off", (f"ECC off on {label}{known}",),
            device=device, label=label,
            severity=Severity.WARN if expected else Severity.INFO,
            action=None if expected else Action.NONE,
        )  # fmt: skip
    if isinstance(now, bool) and isinstance(later, bool) and now is not later:
        words = ("off", "on")
        yield MODE_PENDING.finding(
            look, f"{label}: ECC will be {words[later]} after the next reset",
            (f"ECC {words[now]}, {words[later]} after the next reset",),
            device=device, label=label,
        )  # fmt: skip


def _recovery(look: Look, device: str, label: str, sample: Sample) -> Iterator[Finding]:
    code = whole(sample.values.get("recovery_action"))
    if code is None or code == 0:
        return
    name, action, severity, step = recovery(code)
    yield RECOVERY.finding(
        look, f"{label}: the driver asks for: {name}", (f"recovery action {code} ({name})",),
        device=device, label=label, value=code, action=action, next_step=step, severity=severity,
    )  # fmt: skip
