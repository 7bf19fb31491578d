"""`nvidia-smi --query-gpu=... --format=csv`: what each column is, its own heading says.

Without a heading (`noheader`) only the command line above can tell; else nothing is guessed.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct, field

from console.diagnose import cells
from console.diagnose.gpu_cards import CARDS, Card
from console.diagnose.nvidia_smi_fields import REASONS
from console.diagnose.nvidia_smi_names import Parse, fabric_state, recovery
from console.diagnose.nvidia_smi_q import name_of
from probes.event import Scalar

COMMAND = re.compile(r"--query-(?:gpu|remapped-rows)[= ]\"?'?([a-z0-9_.,]{3,4000})")


def _watts(text: str) -> float | None:
    value = cells.number(text)
    return None if value is None or value < 0 else float(value)


def _pstate(text: str) -> int | None:
    return cells.count(text[1:]) if text[:1] == "P" else None


def _us(text: str) -> int | None:
    value = cells.count(text)
    return None if value is None else value * 1000


COLUMNS: dict[str, tuple[str, Parse]] = {
    "utilization.gpu": ("gpu.util_percent", cells.count),
    "utilization.memory": ("gpu.mem_util_percent", cells.count),
    "memory.used": ("gpu.mem_used_bytes", cells.mebibytes),
    "memory.total": ("gpu.mem_total_bytes", cells.mebibytes),
    "temperature.gpu": ("gpu.temp_c", cells.number),
    "temperature.memory": ("gpu.mem_temp_c", cells.number),
    "temperature.gpu.tlimit": ("gpu.thermal_margin_c", cells.number),
    "power.draw.instant": ("gpu.power_w", _watts),
    "power.draw": ("gpu.power_w", _watts),
    "power.draw.average": ("gpu.power_w", _watts),
    "power.limit": ("gpu.power_limit_w", _watts),
    "enforced.power.limit": ("gpu.power_limit_w", _watts),
    "power.default_limit": ("inventory.power_default_w", _watts),
    "clocks.current.sm": ("gpu.sm_clock_mhz", cells.count),
    "clocks.sm": ("gpu.sm_clock_mhz", cells.count),
    "clocks.current.memory": ("gpu.mem_clock_mhz", cells.count),
    "clocks.mem": ("gpu.mem_clock_mhz", cells.count),
    "clocks.max.sm": ("gpu.sm_clock_max_mhz", cells.count),
    "clocks.max.memory": ("gpu.mem_clock_max_mhz", cells.count),
    "clocks.max.mem": ("gpu.mem_clock_max_mhz", cells.count),
    "pstate": ("gpu.pstate", _pstate),
    "ecc.mode.current": ("ecc.ecc_mode", cells.flag),
    "ecc.errors.corrected.volatile.total": ("ecc.ecc_corrected_volatile", cells.count),
    "ecc.errors.uncorrected.volatile.total": ("ecc.ecc_uncorrected_volatile", cells.count),
    "ecc.errors.corrected.aggregate.total": ("ecc.ecc_corrected_aggregate", cells.count),
    "ecc.errors.uncorrected.aggregate.total": ("ecc.ecc_uncorrected_aggregate", cells.count),
    "remapped_rows.correctable": ("ecc.remap_correctable", cells.count),
    "remapped_rows.uncorrectable": ("ecc.remap_uncorrectable", cells.count),
    "remapped_rows.pending": ("ecc.remap_pending", cells.flag),
    "remapped_rows.failure": ("ecc.remap_failure", cells.flag),
    "gpu_recovery_action": ("ecc.recovery_action", recovery),
    "pcie.link.gen.current": ("pcie.gen", cells.count),
    "pcie.link.gen.gpucurrent": ("pcie.gen", cells.count),
    "pcie.link.gen.max": ("pcie.gen_max", cells.count),
    "pcie.link.width.current": ("pcie.width", cells.count),
    "pcie.link.width.max": ("pcie.width_max", cells.count),
    "mig.mode.current": ("inventory.mig_mode", cells.flag),
    "persistence_mode": ("inventory.persistence_mode", cells.flag),
    "vbios_version": ("inventory.vbios", cells.given),
    "minor_number": ("inventory.minor", cells.count),
    "fabric.state": ("nvlink.fabric_state", fabric_state),
    "fan.speed": ("gpu.fan_percent", cells.count),
    "retired_pages.single_bit_ecc.count": ("ecc.retired_single", cells.count),
    "retired_pages.sbe": ("ecc.retired_single", cells.count),
    "retired_pages.double_bit.count": ("ecc.retired_double", cells.count),
    "retired_pages.dbe": ("ecc.retired_double", cells.count),
    "retired_pages.pending": ("ecc.retired_pending", cells.flag),
    "clocks_event_reasons_counters.sw_power_cap": ("gpu.power_cap_ns", _us),
    "clocks_event_reasons_counters.hw_thermal_slowdown": ("gpu.thermal_hw_ns", _us),
    "clocks_event_reasons_counters.sw_thermal_slowdown": ("gpu.thermal_sw_ns", _us),
    "clocks_event_reasons_counters.hw_power_brake_slowdown": ("gpu.power_brake_ns", _us),
}
"""Column of a query -> reading of a probe."""
_IDENTITY = {
    "index": "index", "pci.bus_id": "pci", "gpu_bus_id": "pci", "gpu.bus_id": "pci",
    "uuid": "uuid", "gpu_uuid": "uuid", "name": "name", "gpu_name": "name",
    "serial": "serial", "gpu_serial": "serial",
}  # fmt: skip
_SHOWN: dict[str, tuple[str, Parse]] = {
    "fan.speed": ("fan", cells.given),
    "power.max_limit": ("power_max_w", _watts),
    "power.default_limit": ("power_default_w", _watts),
    "compute_mode": ("compute_mode", cells.given),
    "retired_pages.single_bit_ecc.count": ("retired_single_bit", cells.count),
    "retired_pages.sbe": ("retired_single_bit", cells.count),
    "retired_pages.double_bit.count": ("retired_double_bit", cells.count),
    "retired_pages.dbe": ("retired_double_bit", cells.count),
    "retired_pages.pending": ("retired_pending", cells.flag),
    "gpu_recovery_action": ("recovery_action", cells.given),
    "reset_status.reset_required": ("reset_required", cells.flag),
    "fabric.state": ("fabric_state", cells.given),
    "fabric.status": ("fabric_status", cells.given),
    "ecc.mode.current": ("ecc_mode", cells.flag),
    "ecc.errors.uncorrected.aggregate.sram": ("aggregate_sram_ue", cells.count),
    "ecc.errors.uncorrected.volatile.sram": ("volatile_sram_ue", cells.count),
    "ecc.errors.uncorrected.aggregate.dram": ("aggregate_dram_ue", cells.count),
    "ecc.errors.uncorrected.volatile.dram": ("volatile_dram_ue", cells.count),
}
_REASONS = ("clocks_event_reasons", "clocks_throttle_reasons")
_ECC_PART = re.compile(r"ecc\.errors\.(un)?corrected\.(volatile|aggregate)\.(\w+)$")
_NAMES = frozenset(
    {*COLUMNS, *_IDENTITY, *_SHOWN, "clocks.current.graphics", "clocks.gr", "timestamp",
     "driver_version", "count", "pid", "process_name",
     "memory.free", "memory.reserved", "clocks.max.graphics", "clocks.max.gr", "clocks.video",
     "clocks.current.video", "display_active", "display_mode", "gpu_uuid", "used_memory",
     "used_gpu_memory", "mig.mode.pending", "ecc.mode.pending", "driver_model.current"}
)  # fmt: skip


_UNIT = re.compile(r"\[[^\[\]]{0,30}\]$")


class Query(Struct):
    """The answers of the queries in one text."""

    cards: list[Card] = field(default_factory=list)
    processes: list[dict[str, Any]] = field(default_factory=list)
    driver: str = ""
    columns: list[str] = field(default_factory=list)
    headless: int = 0
    """Rows of which nothing says what they are."""


def heading(line: str) -> list[str] | None:
    """The columns' names where this line is a query's heading; None for any other."""
    names = [_UNIT.sub("", part.strip()).strip().lower() for part in line.split(",")]
    if not names or any(not re.fullmatch(r"[a-z0-9_.]{1,80}", name) for name in names):
        return None
    known = [n for n in names if n in _NAMES or n.startswith(_REASONS) or n.startswith("ecc.")]
    if len(known) * 2 <= len(names) or (len(names) == 1 and "." not in names[0]):
        return None
    return names


def asked(command: str) -> list[str] | None:
    """The columns that a command line asks for; `query-compute-apps` and the like are not GPUs."""
    found = COMMAND.search(command)
    if found is None or "noheader" not in command:
        return None
    return [name for name in found[1].split(",") if name]


def parse(lines: Iterable[str], command: str = "") -> Query:
    """Every answer in these lines; a heading holds until the next one."""
    query = Query()
    columns = asked(command)
    for line in lines:
        if "--query-" in line:
            columns = asked(line)
            continue
        names = heading(line)
        if names is not None:
            columns = query.columns = names
            continue
        parts = _cells(line)
        if len(parts) < 2 and columns != ["name"]:
            columns = columns if not line.strip() else None if len(parts) < 2 else columns
            continue
        if columns is None:
            query.headless += _is_answer(parts)
        elif len(parts) >= len(columns) or (len(parts) > 1 and _is_answer(parts)):
            _row(query, columns, parts, line.strip())
    return query


def _cells(line: str) -> list[str]:
    """Cells of one row; a product's or process's name may hold a comma in quotes."""
    try:
        return [part.strip() for part in next(csv.reader([line], skipinitialspace=True), [])]
    except csv.Error:
        return []


def is_answer(line: str) -> bool:
    """Whether a line is a row that names a GPU, whatever its other cells are."""
    parts = _cells(line)
    return len(parts) > 1 and _is_answer(parts) and cells.count(parts[0]) is not None


def _is_answer(parts: Sequence[str]) -> bool:
    """Whether a row names a GPU: by address or UUID."""
    return any(cells.PCI.fullmatch(part) or cells.UUID.fullmatch(part) for part in parts)


def _row(query: Query, columns: Sequence[str], parts: Sequence[str], line: str) -> None:
    # A row that was cut has fewer cells than names: what is there still says what it is.
    values = dict(zip(columns, parts, strict=False))
    query.driver = values.get("driver_version") or query.driver
    if "pid" in values:
        if len(query.processes) < 4096:
            query.processes.append({name: cells.given(text) for name, text in values.items()})
        return
    card = Card()
    for column, text in values.items():
        _column(card, column, text, line)
    _reasons(card, values, line)
    _ecc(card, values, line)
    known = card.index is not None or card.pci or card.uuid
    if known and len(query.cards) < CARDS:
        query.cards.append(card)


def _column(card: Card, column: str, text: str, line: str) -> None:
    place = _IDENTITY.get(column)
    if place == "index":
        card.index = cells.count(text)
    elif place == "pci":
        card.pci = text if cells.PCI.fullmatch(text) else ""
    elif place is not None:
        setattr(card, place, cells.given(text) or "")
    code = cells.broken(text)
    if code is not None:
        card.broken[name_of(column)] = text
        card.lines.setdefault("error", line)
        if code in (15, 16):
            card.put("gpu.nvml_rc", code, line)
            card.put("gpu.nvml_call", f"nvidia-smi ({column}: {cells.plain(text)})"[:200])
    if column in COLUMNS:
        name, parse_cell = COLUMNS[column]
        card.put(name, parse_cell(text), line)
    if column in _SHOWN:
        name, parse_cell = _SHOWN[column]
        card.shown[name] = parse_cell(text)


def _reasons(card: Card, values: dict[str, str], line: str) -> None:
    """The mask, or one column for each reason."""
    bits: int | None = None
    for column, text in values.items():
        prefix, _, name = column.partition(".")
        if prefix not in _REASONS:
            continue
        if name == "active":
            bits = cells.mask(text)
            break
        bit, active = REASONS.get(name), cells.flag(text)
        if bit is not None and active is not None:
            bits = (bits or 0) | (bit if active else 0)
    card.put("gpu.reasons", bits, line)


def _ecc(card: Card, values: dict[str, str], line: str) -> None:
    """A total by its parts, where only the parts were asked for."""
    sums: dict[str, Scalar] = {}
    for column, text in values.items():
        part = _ECC_PART.match(column)
        number = cells.count(text)
        if part is not None and part[3] in ("dram", "sram") and number is not None:
            name = f"ecc.ecc_{'un' if part[1] else ''}corrected_{part[2]}"
            sums[name] = int(sums.get(name, 0)) + number
    for name, value in sums.items():
        if name not in card.values:
            card.put(name, value, line)
