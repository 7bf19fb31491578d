"""Which value of `nvidia-smi -q`, in text or XML, is which reading of the live probes.

Names differ between text and XML and from driver to driver (450 to 580); each reading lists all of
them, the first that is there counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from console.diagnose import cells
from console.diagnose.nvidia_smi_q import Path
from probes.event import Scalar

Parse = Callable[[str], Scalar | None]


class Reading(NamedTuple):
    """One reading and where it may stand."""

    name: str
    parse: Parse
    paths: tuple[Path, ...]


def _r(name: str, parse: Parse, *paths: str) -> Reading:
    return Reading(name, parse, tuple(tuple(path.split("/")) for path in paths))


def _pstate(text: str) -> int | None:
    return cells.count(text[1:]) if text.upper().startswith("P") else None


def _watts(text: str) -> float | None:
    value = cells.number(text)
    return None if value is None or value < 0 else float(value)


def _lanes(text: str) -> int | None:
    return cells.count(text.lower().removesuffix("x"))


def _us(text: str) -> int | None:
    value = cells.count(text)
    return None if value is None else value * 1000


FABRIC = {"not supported": 0, "not started": 1, "in progress": 2, "completed": 3}
"""Words of the fabric state -> NVML's number."""


def fabric_state(text: str) -> int | None:
    """NVML's number for the fabric state in words."""
    return FABRIC.get(cells.plain(text).lower())


def _fabric_status(text: str) -> int | None:
    said = cells.given(text)
    return None if said is None else 0 if said.lower() == "success" else 999


RECOVERY = {
    "none": 0, "reset": 1, "gpu reset": 1, "reboot": 2, "node reboot": 2, "drain p2p": 3,
    "drain and reset": 4, "recover imex": 5, "imex": 5,
}  # fmt: skip
"""Words of the recovery action -> NVML field 230."""


def recovery(text: str) -> int | None:
    """NVML's number for the recovery action in words; a word we do not know is a number of none."""
    said = cells.given(text)
    return None if said is None else RECOVERY.get(said.lower(), 99)


READINGS = (
    _r("inventory.vbios", cells.given, "vbios_version"),
    _r("inventory.minor", cells.count, "minor_number"),
    _r("inventory.persistence_mode", cells.flag, "persistence_mode"),
    _r("inventory.mig_mode", cells.flag, "mig_mode/current", "mig_mode/current_mig"),
    _r("gpu.util_percent", cells.count, "utilization/gpu", "utilization/gpu_util"),
    _r("gpu.mem_util_percent", cells.count, "utilization/memory", "utilization/memory_util"),
    _r("gpu.mem_used_bytes", cells.mebibytes, "fb_memory_usage/used"),
    _r("gpu.mem_total_bytes", cells.mebibytes, "fb_memory_usage/total"),
    _r("gpu.temp_c", cells.number, "temperature/gpu_current_temp", "temperature/gpu_temp"),
    _r("gpu.mem_temp_c", cells.number, "temperature/memory_current_temp",
       "temperature/memory_temp"),
    _r("gpu.thermal_margin_c", cells.number, "temperature/gpu_t_limit_temp",
       "temperature/gpu_temp_tlimit"),
    _r("gpu.power_w", _watts, "gpu_power_readings/average_power_draw",
       "gpu_power_readings/power_draw", "gpu_power_readings/instantaneous_power_draw",
       "gpu_power_readings/instant_power_draw", "power_readings/power_draw"),
    _r("gpu.power_limit_w", _watts, "gpu_power_readings/enforced_power_limit",
       "gpu_power_readings/current_power_limit", "power_readings/enforced_power_limit",
       "power_readings/power_limit"),
    _r("inventory.power_default_w", _watts, "gpu_power_readings/default_power_limit",
       "power_readings/default_power_limit"),
    _r("gpu.sm_clock_mhz", cells.count, "clocks/sm", "clocks/sm_clock"),
    _r("gpu.mem_clock_mhz", cells.count, "clocks/memory", "clocks/mem_clock"),
    _r("gpu.sm_clock_max_mhz", cells.count, "max_clocks/sm", "max_clocks/sm_clock"),
    _r("gpu.mem_clock_max_mhz", cells.count, "max_clocks/memory", "max_clocks/mem_clock"),
    _r("gpu.pstate", _pstate, "performance_state"),
    _r("gpu.thermal_hw_ns", _us, "clocks_event_reasons_counters/hw_thermal_slowdown",
       "clocks_event_reasons_counters/clocks_event_reasons_counters_hw_thermal_slowdown"),
    _r("gpu.thermal_sw_ns", _us, "clocks_event_reasons_counters/sw_thermal_slowdown",
       "clocks_event_reasons_counters/clocks_event_reasons_counters_sw_thermal_slowdown"),
    _r("gpu.power_brake_ns", _us, "clocks_event_reasons_counters/hw_power_braking",
       "clocks_event_reasons_counters/hw_power_brake_slowdown",
       "clocks_event_reasons_counters/clocks_event_reasons_counters_hw_power_brake"),
    _r("gpu.power_cap_ns", _us, "clocks_event_reasons_counters/sw_power_capping",
       "clocks_event_reasons_counters/sw_power_cap",
       "clocks_event_reasons_counters/clocks_event_reasons_counters_sw_power_cap"),
    _r("ecc.ecc_mode", cells.flag, "ecc_mode/current", "ecc_mode/current_ecc"),
    _r("ecc.remap_correctable", cells.count, "remapped_rows/correctable_error",
       "remapped_rows/remapped_row_corr"),
    _r("ecc.remap_uncorrectable", cells.count, "remapped_rows/uncorrectable_error",
       "remapped_rows/remapped_row_unc"),
    _r("ecc.remap_pending", cells.flag, "remapped_rows/pending",
       "remapped_rows/remapped_row_pending"),
    _r("ecc.remap_failure", cells.flag, "remapped_rows/remapping_failure_occurred",
       "remapped_rows/remapped_row_failure"),
    _r("ecc.recovery_action", recovery, "gpu_recovery_action"),
    _r("pcie.gen", cells.count, "pcie_generation/current", "pcie_gen/current_link_gen"),
    _r("pcie.gen_max", cells.count, "pcie_generation/max", "pcie_gen/max_link_gen"),
    _r("pcie.width", _lanes, "link_width/current", "link_widths/current_link_width"),
    _r("pcie.width_max", _lanes, "link_width/max", "link_widths/max_link_width"),
    _r("pcie.replays", cells.count, "replays_since_reset", "pci/replay_counter"),
    _r("inventory.mig_pending", cells.flag, "mig_mode/pending", "mig_mode/pending_mig"),
    _r("inventory.temp_max_c", cells.number, "temperature/gpu_max_operating_temp",
       "temperature/gpu_temp_max_gpu_threshold"),
    _r("inventory.temp_slowdown_c", cells.number, "temperature/gpu_slowdown_temp",
       "temperature/gpu_temp_slow_threshold"),
    _r("inventory.mem_temp_max_c", cells.number, "temperature/memory_max_operating_temp",
       "temperature/gpu_temp_max_mem_threshold"),
    _r("gpu.fan_percent", cells.count, "fan_speed"),
    _r("ecc.ecc_mode_pending", cells.flag, "ecc_mode/pending", "ecc_mode/pending_ecc"),
    _r("ecc.sram_threshold_exceeded", cells.flag, "aggregate/sram_threshold_exceeded"),
    _r("ecc.retired_single", cells.count, "retired_pages/single_bit_ecc",
       "multiple_single_bit_retirement/retired_count"),
    _r("ecc.retired_double", cells.count, "retired_pages/double_bit_ecc",
       "double_bit_retirement/retired_count"),
    _r("ecc.retired_pending", cells.flag, "retired_pages/pending_page_blacklist",
       "retired_pages/pending_retirement", "retired_pages/pending_blacklist",
       "retired_pages/pending"),
    _r("pcie.replay_rollovers", cells.count, "replay_number_rollovers",
       "pci/replay_rollover_counter"),
    _r("nvlink.fabric_state", fabric_state, "fabric/state"),
    _r("nvlink.fabric_status", _fabric_status, "fabric/status"),
)  # fmt: skip

SHOWN = (
    _r("brand", cells.given, "product_brand"),
    _r("architecture", cells.given, "product_architecture"),
    _r("fan", cells.given, "fan_speed"),
    _r("recovery_action", cells.given, "gpu_recovery_action"),
    _r("reset_required", cells.flag, "gpu_reset_status/reset_required"),
    _r("drain_and_reset_recommended", cells.flag,
       "gpu_reset_status/drain_and_reset_recommended"),
    _r("ecc_mode", cells.flag, "ecc_mode/current", "ecc_mode/current_ecc"),
    _r("ecc_mode_pending", cells.flag, "ecc_mode/pending", "ecc_mode/pending_ecc"),
    _r("mig_mode_pending", cells.flag, "mig_mode/pending", "mig_mode/pending_mig"),
    _r("power_default_w", _watts, "gpu_power_readings/default_power_limit",
       "power_readings/default_power_limit"),
    _r("power_max_w", _watts, "gpu_power_readings/max_power_limit",
       "power_readings/max_power_limit"),
    _r("temp_max_c", cells.number, "temperature/gpu_max_operating_temp",
       "temperature/gpu_temp_max_gpu_threshold"),
    _r("temp_slowdown_c", cells.number, "temperature/gpu_slowdown_temp",
       "temperature/gpu_temp_slow_threshold"),
    _r("slowdown_tlimit_c", cells.number, "temperature/gpu_slowdown_t_limit_temp",
       "temperature/gpu_temp_slow_tlimit_threshold"),
    _r("mem_temp_max_c", cells.number, "temperature/memory_max_operating_temp",
       "temperature/gpu_temp_max_mem_threshold"),
    _r("retired_single_bit", cells.count, "retired_pages/single_bit_ecc",
       "multiple_single_bit_retirement/retired_count"),
    _r("retired_double_bit", cells.count, "retired_pages/double_bit_ecc",
       "double_bit_retirement/retired_count"),
    _r("retired_pending", cells.flag, "retired_pages/pending_page_blacklist",
       "retired_pages/pending_retirement", "retired_pages/pending_blacklist",
       "retired_pages/pending"),
    _r("sram_threshold_exceeded", cells.flag, "aggregate/sram_threshold_exceeded"),
    _r("channel_repair_pending", cells.flag, "channel_repair_pending"),
    _r("tpc_repair_pending", cells.flag, "tpc_repair_pending"),
    _r("fabric_state", cells.given, "fabric/state"),
    _r("fabric_status", cells.given, "fabric/status"),
    _r("fabric_health", cells.given, "fabric/health/summary"),
    _r("virtualization", cells.given, "virtualization_mode"),
    _r("gsp_firmware", cells.given, "gsp_firmware_version"),
)  # fmt: skip
