"""Probe "ecc": ECC counts, row remapping, retired pages, and what the driver itself recommends.

The driver's recovery action (field 230) is preferred to any table of ours: it knows what
it met (nvml.h, API 13). Where an error sits (DRAM, SRAM, a cache) is told apart as far as the GPU
does: since Ampere DRAM and SRAM, before it every cache and the register file.
"""

import ctypes

from probes.node.nvml_library import FIELD_SOFT
from probes.node.nvml_reader import each_gpu, field_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple

    from probes.node.context import Context
    from probes.node.nvml_reader import Reader

NAME = "ecc"
INTERVAL = "slow"
COUNTERS = True

CORRECTED, UNCORRECTED = 0, 1
VOLATILE, AGGREGATE = 0, 1
ERRORS = (("corrected", CORRECTED), ("uncorrected", UNCORRECTED))
SPANS = (("volatile", VOLATILE), ("aggregate", AGGREGATE))
PLACES = (("dram", 2), ("sram", 7))
"""nvmlMemoryLocation_t that every data center GPU since Ampere counts by."""

TOTALS = {
    "ecc_corrected_volatile": (("NVML_FI_DEV_ECC_SBE_VOL_TOTAL", 3), CORRECTED, VOLATILE),
    "ecc_uncorrected_volatile": (("NVML_FI_DEV_ECC_DBE_VOL_TOTAL", 4), UNCORRECTED, VOLATILE),
    "ecc_corrected_aggregate": (("NVML_FI_DEV_ECC_SBE_AGG_TOTAL", 5), CORRECTED, AGGREGATE),
    "ecc_uncorrected_aggregate": (("NVML_FI_DEV_ECC_DBE_AGG_TOTAL", 6), UNCORRECTED, AGGREGATE),
}
UNITS = (
    ("L1", "l1", 7, 18),
    ("L2", "l2", 9, 20),
    ("REG", "registers", 13, 24),
    ("TEX", "texture", 15, 26),
)
"""Name in the header, ours, and the field numbers of corrected errors: volatile, aggregate.

The uncorrected ones follow each by one. Device memory (11, 22) is asked as DRAM."""
CBU = {"ecc_uncorrected_volatile_cbu": 17, "ecc_uncorrected_aggregate_cbu": 28}

REMAP = {
    "remap_correctable": ("NVML_FI_DEV_REMAPPED_COR", 142),
    "remap_uncorrectable": ("NVML_FI_DEV_REMAPPED_UNC", 143),
    "remap_pending": ("NVML_FI_DEV_REMAPPED_PENDING", 144),
    "remap_failure": ("NVML_FI_DEV_REMAPPED_FAILURE", 145),
}
BANKS = ("max", "high", "partial", "low", "none")
RETIRED = {
    "retired_single": ("NVML_FI_DEV_RETIRED_SBE", 29),
    "retired_double": ("NVML_FI_DEV_RETIRED_DBE", 30),
    "retired_pending": ("NVML_FI_DEV_RETIRED_PENDING", 31),
}
MORE = {
    "bank_remaps": ("NVML_FI_DEV_ACTIVE_BANK_REMAPPINGS", 303),
    "bank_remap_pending": ("NVML_FI_DEV_PENDING_BANK_REMAPPING", 307),
    "recovery_action": ("NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", 230),
}
FLAGS = ("remap_pending", "remap_failure", "retired_pending", "bank_remap_pending")

SRAM = {
    "sram_parity_volatile": "volatileUncParity",
    "sram_secded_volatile": "volatileUncSecDed",
    "sram_parity_aggregate": "aggregateUncParity",
    "sram_secded_aggregate": "aggregateUncSecDed",
    "sram_aggregate_l2": "aggregateUncBucketL2",
    "sram_aggregate_sm": "aggregateUncBucketSm",
    "sram_aggregate_pcie": "aggregateUncBucketPcie",
    "sram_aggregate_mcu": "aggregateUncBucketMcu",
    "sram_aggregate_other": "aggregateUncBucketOther",
}
"""Metric -> member of nvmlEccSramErrorStatus_t; all of them uncorrected errors."""
RETIRED_SINGLE_CAUSE, RETIRED_DOUBLE_CAUSE = 0, 1


def _unit_fields() -> "Dict[str, Tuple[str, int]]":
    found = {}
    for header, ours, volatile, aggregate in UNITS:
        for span, word, number in (("volatile", "VOL", volatile), ("aggregate", "AGG", aggregate)):
            for error, kind, step in (("corrected", "SBE", 0), ("uncorrected", "DBE", 1)):
                name = "NVML_FI_DEV_ECC_%s_%s_%s" % (kind, word, header)
                found["ecc_%s_%s_%s" % (error, span, ours)] = (name, number + step)
    for metric, number in CBU.items():
        found[metric] = ("", number)
    return found


UNIT_FIELDS = _unit_fields()


def _metrics() -> "Dict[str, Tuple[str, str, str]]":
    since = {"volatile": "since the driver was loaded", "aggregate": "in the card's life"}
    found = {}
    for error, _ in ERRORS:
        for span, _ in SPANS:
            where = [("", "")] + [("_" + place, " in " + place.upper()) for place, _ in PLACES]
            where += [("_" + unit[1], " in the " + unit[1]) for unit in UNITS]
            for suffix, text in where:
                meaning = "%s errors%s %s" % (error, text, since[span])
                found["ecc_%s_%s%s" % (error, span, suffix)] = ("", "counter", meaning)
    for metric in CBU:
        span = metric.split("_")[2]
        meaning = "uncorrected errors in the convergence barrier unit " + since[span]
        found[metric] = ("", "counter", meaning)
    for metric in SRAM:
        found[metric] = ("", "counter", "uncorrected SRAM errors: " + metric[5:].replace("_", " "))
    for bank in BANKS:
        meaning = "memory banks with %s spare rows left" % {"max": "all", "none": "no"}.get(
            bank, "%s number of" % bank
        )
        found["remap_banks_" + bank] = ("banks", "gauge", meaning)
    return found


METRICS = {
    "index": ("", "info", "NVML's index"),
    "ecc_mode": ("", "info", "whether ECC is on"),
    "ecc_mode_pending": ("", "info", "whether ECC will be on after the next reset or reboot"),
    "ecc_mode_default": ("", "info", "whether ECC is on in this product as delivered"),
    "sram_threshold_exceeded": ("", "gauge", "uncorrected SRAM errors passed the driver's limit"),
    "remap_correctable": ("", "counter", "rows remapped for corrected errors"),
    "remap_uncorrectable": ("", "counter", "rows remapped for uncorrected errors"),
    "remap_pending": ("", "gauge", "a remapping waits for a reset"),
    "remap_failure": ("", "gauge", "a remapping failed: RMA candidate after field diagnostic"),
    "bank_remaps": ("", "counter", "whole banks remapped"),
    "bank_remap_pending": ("", "gauge", "a bank waits for a reset to be remapped"),
    "retired_single": ("pages", "counter", "pages retired for repeated corrected errors"),
    "retired_double": ("pages", "counter", "pages retired for an uncorrected error"),
    "retired_pending": ("", "gauge", "a page waits for the next driver load to be retired"),
    "recovery_action": (
        "",
        "gauge",
        "0 none, 1 GPU reset, 2 node reboot, 3 drain P2P, 4 drain and reset, 5 recover IMEX, "
        "6 bus reset, 7 system reboot",
    ),
    "nvml_rc": ("", "gauge", "return code of the call that failed; absent when none did"),
    "nvml_call": ("", "info", "the call that failed"),
}
METRICS.update(_metrics())


def collect(ctx: "Context") -> "Tuple[Dict[str, Dict[str, Any]], List[Dict[str, Any]]]":
    """One tick over all GPUs."""
    return each_gpu(ctx, _read), []


def _read(reader: "Reader") -> "None":
    """Everything as fields in one call; what an old driver lacks there, by its own call."""
    wanted: "Dict[str, Tuple[str, int]]" = {name: field for name, (field, _, _) in TOTALS.items()}
    for group in (UNIT_FIELDS, REMAP, RETIRED, MORE):
        wanted.update(group)
    ids = {name: (field_id(reader.pynvml, *field), 0) for name, field in wanted.items()}
    found = reader.fields(list(ids.values()))
    reader.put(**{name: found.get(field) for name, field in ids.items()})
    mode = reader.ask("nvmlDeviceGetEccMode")
    if mode is not None:
        reader.put(ecc_mode=bool(mode[0]), ecc_mode_pending=bool(mode[1]))
    default = reader.ask_once("nvmlDeviceGetDefaultEccMode")
    if default is not None:  # the binding makes a list of it
        reader.put(ecc_mode_default=bool(default[0] if isinstance(default, list) else default))
    _totals(reader)
    _places(reader)
    _sram(reader)
    _remap(reader)
    _retired(reader)
    reader.put(**{name: bool(reader.values[name]) for name in FLAGS if name in reader.values})


def _totals(reader: "Reader") -> "None":
    for name, (_, error, span) in TOTALS.items():
        if name not in reader.values:
            reader.put(**{name: reader.ask("nvmlDeviceGetTotalEccErrors", error, span)})


def _places(reader: "Reader") -> "None":
    """DRAM and SRAM apart; a GPU that does not tell them apart says so once."""
    for error_name, error in ERRORS:
        for span_name, span in SPANS:
            for place, location in PLACES:
                count = _new(reader, "nvmlDeviceGetMemoryErrorCounter", error, span, location)
                reader.put(**{"ecc_%s_%s_%s" % (error_name, span_name, place): count})


def _new(reader: "Reader", name: "str", *args: "Any", key: "Any" = None) -> "Any":
    """A question that old drivers do not know, and then call an invalid argument."""
    return reader.ask(name, *args, key=key, soft=FIELD_SOFT)


def _sram(reader: "Reader") -> "None":
    """The driver's own count and limit of SRAM errors: passed means RMA."""
    make = getattr(reader.pynvml, "c_nvmlEccSramErrorStatus_v1_t", None)
    if make is None:
        return
    status = make()
    answer = _new(reader, "nvmlDeviceGetSramEccErrorStatus", ctypes.byref(status), key="v1")
    if answer is None:
        return
    reader.put(**{name: int(getattr(status, member)) for name, member in SRAM.items()})
    reader.put(sram_threshold_exceeded=bool(status.bThresholdExceeded))


def _remap(reader: "Reader") -> "None":
    if not all(name in reader.values for name in REMAP):
        rows = reader.ask("nvmlDeviceGetRemappedRows")
        if rows is not None:
            reader.put(**dict(zip(REMAP, rows)))
    if "remap_uncorrectable" not in reader.values:
        return
    banks = _new(reader, "nvmlDeviceGetRowRemapperHistogram")
    if banks is not None:
        reader.put(**{"remap_banks_" + name: int(getattr(banks, name)) for name in BANKS})


def _retired(reader: "Reader") -> "None":
    """Page retirement came before row remapping; GPUs that remap rows do not retire pages."""
    if "remap_uncorrectable" in reader.values or "retired_double" in reader.values:
        return
    for name, cause in (
        ("retired_single", RETIRED_SINGLE_CAUSE),
        ("retired_double", RETIRED_DOUBLE_CAUSE),
    ):
        pages = _new(reader, "nvmlDeviceGetRetiredPages", cause)
        reader.put(**{name: None if pages is None else len(pages)})
    reader.put(retired_pending=_new(reader, "nvmlDeviceGetRetiredPagesPendingStatus"))
