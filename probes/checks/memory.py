"""GPU memory: ECC errors, row remapping, and the driver's own recovery advice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Sample, Severity
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
PENDING = Rule(
    id="remap.pending",
    title="A row remap waits for a reset",
    severity=Severity.WARN,
    reads="remap_pending of each GPU",
    cause="a memory row failed and will be replaced by a spare one at the next reset",
    action=Action.RESET_GPU,
    next_step="reset the GPU when its work is done (drain, then nvidia-smi -r); running work is "
    "safe",
    source="NVML row remapping [nvml][gpud]: reset when convenient, running work unaffected",
    others="APL warns; GCM, gpud, OCI, AzHC, DCGM, NVS, SCK: warn or error",
    example="remap_pending true, remap_uncorrectable 1",
    hard=True,
    clears="reset",
)
FAILURE = Rule(
    id="remap.failure",
    title="A row remap failed",
    severity=Severity.CRITICAL,
    reads="remap_failure of each GPU",
    cause="no spare row is left in the bank, or a remapped row failed again",
    action=Action.REPLACE,
    next_step="drain; run the field diagnostic; RMA candidate",
    source="NVML row remapping [nvml][gpud]: failure is an RMA candidate after the field "
    "diagnostic",
    others="gpud hardware inspection; OCI terminate",
    example="remap_failure true, remap_uncorrectable 9",
    hard=True,
)
ROWS_USED = Rule(
    id="remap.rows_used",
    title="All spare rows are used up",
    severity=Severity.CRITICAL,
    reads="remap_uncorrectable of each GPU",
    cause="many rows failed; the next failure cannot be repaired",
    action=Action.REPLACE,
    next_step="drain and RMA",
    source="512 spare rows in total [dcgm][srv]",
    others="DCGM, SCK >= 512",
    example="remap_uncorrectable 512",
    limits=("remap.rows_total",),
    hard=True,
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
RULES = (UNCORRECTED, CORRECTED, PENDING, FAILURE, ROWS_USED, RECOVERY)

HOUR_S = 3600.0


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
        yield from _remap(look, device, label, sample)
        yield from _recovery(look, device, label, sample)


def _uncorrected(look: Look, device: str, label: str, sample: Sample) -> Iterator[Finding]:
    number = whole(sample.values.get("ecc_uncorrected_volatile"))
    limit = look.rules.limit("ecc.uncorrected_volatile")
    if number is None or number <= limit.value:
        return
    rates = look.facts.rates.get(("ecc", device))
    grown = rates.deltas.get("ecc_uncorrected_volatile") if rates else None
    recent = f", +{grown:.0f} in the last {rates.elapsed_s:.0f} s" if rates and grown else ""
    yield UNCORRECTED.finding(
        look, f"{label}: {number} uncorrected memory errors since the driver was loaded{recent}",
        (f"ecc_uncorrected_volatile {number}{recent}",),
        device=device, label=label, value=number, limit=limit,
    )  # fmt: skip


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
        yield CORRECTED.finding(
            look, f"{label}: corrected memory errors: {text}",
            (f"ecc_corrected_volatile +{grown:.0f} in {rates.elapsed_s:.0f} s",),
            device=device, label=label, value=round(per_s if grave else per_s * HOUR_S, 1),
            limit=storm if grave else hourly, severity=Severity.WARN if grave else None,
        )  # fmt: skip


def _remap(look: Look, device: str, label: str, sample: Sample) -> Iterator[Finding]:
    rows = whole(sample.values.get("remap_uncorrectable"))
    shown = f"remap_uncorrectable {rows if rows is not None else 'not readable'}"
    if sample.values.get("remap_failure") is True:
        yield FAILURE.finding(
            look, f"{label}: row remap failed", (f"remap_failure true, {shown}",),
            device=device, label=label,
        )  # fmt: skip
    if sample.values.get("remap_pending") is True:
        yield PENDING.finding(
            look, f"{label}: row remap pending, takes effect at the next reset",
            (f"remap_pending true, {shown}",), device=device, label=label,
        )  # fmt: skip
    limit = look.rules.limit("remap.rows_total")
    if rows is not None and rows >= limit.value:
        yield ROWS_USED.finding(
            look, f"{label}: {rows} of {limit.value:.0f} spare rows used", (shown,),
            device=device, label=label, value=rows, limit=limit,
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
