"""Probe "ecc": ECC counts, row remapping, and what the driver itself recommends to do.

The driver's recovery action (field 230) is preferred to any table of ours: it knows what
it met (nvml.h, API 13).
"""

from probes.node.nvml_reader import each_gpu, field_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple

    from probes.node.context import Context
    from probes.node.nvml_reader import Reader

NAME = "ecc"
INTERVAL = "slow"
COUNTERS = True
METRICS = {
    "index": ("", "info", "NVML's index"),
    "ecc_mode": ("", "info", "whether ECC is on"),
    "ecc_uncorrected_volatile": ("", "counter", "uncorrected errors since the driver was loaded"),
    "ecc_corrected_volatile": ("", "counter", "corrected errors since the driver was loaded"),
    "ecc_uncorrected_aggregate": ("", "counter", "uncorrected errors in the card's life"),
    "ecc_corrected_aggregate": ("", "counter", "corrected errors in the card's life"),
    "remap_correctable": ("", "counter", "rows remapped for corrected errors"),
    "remap_uncorrectable": ("", "counter", "rows remapped for uncorrected errors"),
    "remap_pending": ("", "gauge", "a remapping waits for a reset"),
    "remap_failure": ("", "gauge", "a remapping failed: RMA candidate after field diagnostic"),
    "recovery_action": (
        "",
        "gauge",
        "0 none, 1 GPU reset, 2 node reboot, 3 drain P2P, 4 drain and reset, 5 recover IMEX",
    ),
    "nvml_rc": ("", "gauge", "return code of the call that failed; absent when none did"),
    "nvml_call": ("", "info", "the call that failed"),
}

CORRECTED, UNCORRECTED = 0, 1
VOLATILE, AGGREGATE = 0, 1

TOTALS = {
    "ecc_corrected_volatile": (("NVML_FI_DEV_ECC_SBE_VOL_TOTAL", 3), CORRECTED, VOLATILE),
    "ecc_uncorrected_volatile": (("NVML_FI_DEV_ECC_DBE_VOL_TOTAL", 4), UNCORRECTED, VOLATILE),
    "ecc_corrected_aggregate": (("NVML_FI_DEV_ECC_SBE_AGG_TOTAL", 5), CORRECTED, AGGREGATE),
    "ecc_uncorrected_aggregate": (("NVML_FI_DEV_ECC_DBE_AGG_TOTAL", 6), UNCORRECTED, AGGREGATE),
}
REMAP = {
    "remap_correctable": ("NVML_FI_DEV_REMAPPED_COR", 142),
    "remap_uncorrectable": ("NVML_FI_DEV_REMAPPED_UNC", 143),
    "remap_pending": ("NVML_FI_DEV_REMAPPED_PENDING", 144),
    "remap_failure": ("NVML_FI_DEV_REMAPPED_FAILURE", 145),
}
RECOVERY = ("NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", 230)
FLAGS = ("remap_pending", "remap_failure")


def collect(ctx: "Context") -> "Tuple[Dict[str, Dict[str, Any]], List[Dict[str, Any]]]":
    """One tick over all GPUs."""
    return each_gpu(ctx, _read), []


def _read(reader: "Reader") -> "None":
    """Everything as fields in one call; what an old driver lacks there, by its own call."""
    binding = reader.pynvml
    ids = {name: (field_id(binding, *field), 0) for name, (field, _, _) in TOTALS.items()}
    ids.update((name, (field_id(binding, *field), 0)) for name, field in REMAP.items())
    recovery = (field_id(binding, *RECOVERY), 0)
    found = reader.fields(list(ids.values()) + [recovery])
    reader.put(**{name: found.get(field) for name, field in ids.items()})
    reader.put(recovery_action=found.get(recovery))
    mode = reader.ask("nvmlDeviceGetEccMode")
    reader.put(ecc_mode=None if mode is None else bool(mode[0]))
    _totals(reader)
    _remap(reader)


def _totals(reader: "Reader") -> "None":
    for name, (_, error, span) in TOTALS.items():
        if name not in reader.values:
            reader.put(**{name: reader.ask("nvmlDeviceGetTotalEccErrors", error, span)})


def _remap(reader: "Reader") -> "None":
    if not all(name in reader.values for name in REMAP):
        rows = reader.ask("nvmlDeviceGetRemappedRows")
        if rows is not None:
            reader.put(**dict(zip(REMAP, rows)))
    reader.put(**{name: bool(reader.values[name]) for name in FLAGS if name in reader.values})
