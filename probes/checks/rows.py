"""Spare parts of GPU memory: remapped rows and their banks, and retired pages before Ampere."""

from __future__ import annotations

from collections.abc import Iterator

from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Sample, Severity
from probes.reading import whole

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
BANKS = Rule(
    id="remap.banks",
    title="Memory banks run out of spare rows",
    severity=Severity.WARN,
    reads="row remapper histogram of each GPU",
    cause="rows of the same bank failed again and again",
    action=Action.WATCH,
    next_step="field diagnostic at the next drain; RMA candidate when a remap fails",
    source="nvml.h nvmlDeviceGetRowRemapperHistogram [nvml]; our rule: banks with low or no "
    "availability are told",
    others="SB: only printed",
    example="639 banks full, 1 low, 0 none",
    limits=("remap.banks_spent",),
)
PAGES_PENDING = Rule(
    id="pages.pending",
    title="A page waits to be retired",
    severity=Severity.WARN,
    reads="retired_pending of each GPU before Ampere",
    cause="a memory page failed; it stays in use until the driver is loaded anew",
    action=Action.REBOOT,
    next_step="drain, then reboot the node or reset the GPU; running work is at risk",
    source="nvml.h NVML_FI_DEV_RETIRED_PENDING [nvml]",
    others="GCM error; DCGM, CCH warn",
    example="retired_pending true, 2 pages retired for double bit errors",
    hard=True,
    clears="reset",
)
PAGES_RETIRED = Rule(
    id="pages.retired",
    title="Many memory pages are retired",
    severity=Severity.CRITICAL,
    reads="retired_single and retired_double of each GPU before Ampere",
    cause="the memory wears out; the table of retired pages has 64 places",
    action=Action.REPLACE,
    next_step="drain; field diagnostic; RMA",
    source="hardware limits of DCGM [dcgm]",
    others="DCGM: total >= 63, or > 15 for uncorrected errors and more than one a week; GCM > 10",
    example="40 pages for single, 23 for double bit errors",
    limits=("pages.retired_total", "pages.retired_double"),
    hard=True,
)
RULES = (PENDING, FAILURE, ROWS_USED, BANKS, PAGES_PENDING, PAGES_RETIRED)


def check(look: Look) -> Iterator[Finding]:
    """Each GPU by itself."""
    for device, sample in look.facts.devices("ecc"):
        label = look.facts.gpu_label(device)
        yield from _remap(look, device, label, sample)
        yield from _banks(look, device, label, sample)
        yield from _pages(look, device, label, sample)


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


def _banks(look: Look, device: str, label: str, sample: Sample) -> Iterator[Finding]:
    low, none = (whole(sample.values.get(f"remap_banks_{name}")) for name in ("low", "none"))
    limit = look.rules.limit("remap.banks_spent")
    spent = (low or 0) + (none or 0)
    if spent > limit.value:
        full = whole(sample.values.get("remap_banks_max"))
        yield BANKS.finding(
            look, f"{label}: {_many(none or 0)} no spare row left"
            + (f", {_many(low)} few" if low else ""),
            (f"{'?' if full is None else full} banks full, {low or 0} low, {none or 0} none",),
            device=device, label=label, value=spent, limit=limit,
        )  # fmt: skip


def _pages(look: Look, device: str, label: str, sample: Sample) -> Iterator[Finding]:
    single, double = (whole(sample.values.get(f"retired_{kind}")) for kind in ("single", "double"))
    shown = f"{single or 0} pages for single, {double or 0} for double bit errors"
    if sample.values.get("retired_pending") is True:
        yield PAGES_PENDING.finding(
            look, f"{label}: a memory page waits to be retired",
            (f"retired_pending true, {shown}",), device=device, label=label,
        )  # fmt: skip
    total = (single or 0) + (double or 0)
    most, most_double = (look.rules.limit(name) for name in PAGES_RETIRED.limits)
    if total >= most.value:
        yield PAGES_RETIRED.finding(
            look, f"{label}: {total} memory pages are retired", (shown,),
            device=device, label=label, value=total, limit=most,
        )  # fmt: skip
    elif double is not None and double > most_double.value:
        yield PAGES_RETIRED.finding(
            look, f"{label}: {double} memory pages are retired for uncorrected errors", (shown,),
            device=device, label=label, value=double, limit=most_double,
            severity=Severity.WARN, action=Action.WATCH,
            next_step="watch; RMA when more than one a week is added, or the field diagnostic "
            "fails",
        )  # fmt: skip


def _many(number: int) -> str:
    return "1 memory bank has" if number == 1 else f"{number} memory banks have"
