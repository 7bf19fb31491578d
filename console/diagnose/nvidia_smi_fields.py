"""One GPU's part of `nvidia-smi -q`, in text or XML, as a Card."""

from __future__ import annotations

from typing import Any

from console.diagnose import cells
from console.diagnose.gpu_cards import Card
from console.diagnose.nvidia_smi_names import READINGS, SHOWN, Reading
from console.diagnose.nvidia_smi_q import Block, Cell, processes

REASONS = {
    "idle": 0x1, "gpu_idle": 0x1, "applications_clocks_setting": 0x2, "sw_power_cap": 0x4,
    "hw_slowdown": 0x8, "sync_boost": 0x10, "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40, "hw_power_brake_slowdown": 0x80, "hw_power_brake": 0x80,
    "display_clock_setting": 0x100, "display_clocks_setting": 0x100,
}  # fmt: skip
"""Names of the clocks event reasons in text, XML and query -> NVML's bit."""
REASON_NAMES = {
    0x1: "idle", 0x2: "application_clocks", 0x4: "sw_power_cap", 0x8: "hw_slowdown",
    0x10: "sync_boost", 0x20: "sw_thermal", 0x40: "hw_thermal", 0x80: "hw_power_brake",
    0x100: "display_clocks",
}  # fmt: skip
_SECTIONS = ("clocks_event_reasons", "clocks_throttle_reasons")


def reason_names(bits: int) -> list[str]:
    """The set bits by name, from the lowest."""
    return [name for bit, name in REASON_NAMES.items() if bits & bit]


def _reasons(block: Block) -> tuple[int | None, str]:
    """(bit mask, lines of the active ones); None where the section is not there."""
    bits, seen, lines = 0, False, []
    for cell in block.cells:
        section = next((name for name in _SECTIONS if name in cell.path[:-1]), None)
        if section is None:
            continue
        name = cell.path[-1]
        for prefix in ("clocks_event_reason_", "clocks_throttle_reason_"):
            name = name.removeprefix(prefix)
        bit, active = REASONS.get(name), cells.flag(cell.text)
        if bit is not None and active is not None:
            seen = True
            if active:
                bits |= bit
                lines.append(cell.line)
    return (bits if seen else None), "; ".join(lines)


SCOPES = ("volatile", "aggregate")
_UNCORRECTED = {
    "dram": ("dram_uncorrectable",),
    "sram": ("sram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_sec_ded",
             "sram_uncorrectable_secded"),
}  # fmt: skip
_CORRECTED = {"dram": ("dram_correctable",), "sram": ("sram_correctable",)}


def _ecc(block: Block, card: Card) -> None:
    """Totals by scope, new layout (SRAM and DRAM) or old (single and double bit)."""
    shown: dict[str, int | None] = {}
    for scope in SCOPES:
        for kind, names, old, short in (
            ("uncorrected", _UNCORRECTED, "double_bit", "ue"),
            ("corrected", _CORRECTED, "single_bit", "ce"),
        ):
            total, lines = None, []
            for memory, keys in names.items():
                found = [cell for key in keys if (cell := block.get(scope, key)) is not None]
                if not found:
                    continue
                counts = [n for cell in found if (n := cells.count(cell.text)) is not None]
                shown[f"{scope}_{memory}_{short}"] = sum(counts) if counts else None
                if counts:
                    card.put(f"ecc.ecc_{kind}_{scope}_{memory}", sum(counts))
                    total = (total or 0) + sum(counts)
                    lines += [c.line for c in found if cells.count(c.text)]
            if total is None and (cell := block.get(scope, old, "total")) is not None:
                total, lines = cells.count(cell.text), [cell.line]
                shown[f"{scope}_{short}"] = total
            card.put(f"ecc.ecc_{kind}_{scope}", total, f"{scope}: " + "; ".join(lines[:3]))
    if shown:
        card.shown["ecc"] = shown


_BANKS = ("max", "high", "partial", "low", "none")


def _banks(block: Block, card: Card) -> dict[str, int] | None:
    found = {}
    for name in _BANKS:
        cell = block.get("bank_remap_availability_histogram", name) or block.get(
            "row_remapper_histogram", f"row_remapper_histogram_{name}"
        )
        number = None if cell is None else cells.count(cell.text)
        if number is not None:
            found[name] = number
            card.put(f"ecc.remap_banks_{name}", number, cell.line if cell else "")
    return found or None


_IDENTITY = (
    ("uuid", ("gpu_uuid",)), ("uuid", ("uuid",)), ("serial", ("serial_number",)),
    ("serial", ("serial",)), ("name", ("product_name",)),
)  # fmt: skip


def card_of(block: Block) -> Card:
    """One GPU's part of the report as a Card."""
    card = Card(pci=block.gpu)
    for name, path in _IDENTITY:
        cell = block.get(*path)
        said = None if cell is None else cells.given(cell.text)
        if said and name == "uuid":
            clean = cells.UUID.search(said)
            said = clean[1] if clean is not None else said
        if said and not getattr(card, name):
            setattr(card, name, said)
    for reading in READINGS:
        found = _first(block, reading)
        if found is not None:
            card.put(reading.name, reading.parse(found.text), found.line)
    for reading in SHOWN:
        found = _first(block, reading)
        if found is not None:
            card.shown[reading.name] = reading.parse(found.text)
    bits, lines = _reasons(block)
    card.put("gpu.reasons", bits, lines)
    _ids(block, card)
    _ecc(block, card)
    _remap(block, card)
    _breakage(block, card)
    _health(block, card)
    rows = list(processes(block))
    if rows:
        card.shown["processes"] = rows[:100]
    return card


_HEALTH = (
    ("bandwidth", 0, {"degraded": 1, "full": 2, "false": 2, "true": 1}),
    ("route_recovery_in_progress", 2, {"true": 1, "false": 2}),
    ("route_unhealthy", 4, {"true": 1, "false": 2}),
    ("access_timeout_recovery", 6, {"true": 1, "false": 2}),
)
"""Lines of the fabric's health, their place in NVML's mask, and the values (nvml.h, API 13)."""
_CONFIGURATION = (
    ("guid", 2), ("chassis", 3), ("partition", 4), ("insufficient", 5), ("nvlink", 5),
    ("firmware", 6), ("location", 7), ("state", 8),
)  # fmt: skip
"""A word of "Incorrect Configuration" -> its number in the mask."""


def _health(block: Block, card: Card) -> None:
    """The fabric's health line by line, as NVML's mask would say it."""
    mask = 0
    for name, shift, values in _HEALTH:
        cell = block.get("fabric", "health", name)
        said = "" if cell is None else cell.text.strip().lower()
        mask |= values.get(said, 0) << shift
    cell = block.get("fabric", "health", "incorrect_configuration")
    said = "" if cell is None else cell.text.strip().lower()
    if said and not cells.absent(said) and said != "none":
        mask |= next((number for word, number in _CONFIGURATION if word in said), 0) << 8
    if mask:
        card.put("nvlink.fabric_health", mask)


def _first(block: Block, reading: Reading) -> Cell | None:
    for path in reading.paths:
        cell = block.get(*path)
        if cell is not None:
            return cell
    return None


def _ids(block: Block, card: Card) -> None:
    """PCI device id: "0x233010DE", in XML "233010DE"; the vendor is the lower half."""
    for key, name in (("device_id", "pci_device_id"), ("pci_device_id", "pci_device_id")):
        cell = block.get("pci", key)
        digits = "" if cell is None else cell.text.lower().removeprefix("0x")
        if len(digits) == 8 and digits.endswith("10de"):
            card.put(f"inventory.{name}", digits[:4], cell.line if cell else "")


def _remap(block: Block, card: Card) -> None:
    """What the remapper says, with its banks."""
    names = ("correctable", "uncorrectable", "pending", "failure")
    remap: dict[str, Any] = {
        name: card.values[f"ecc.remap_{name}"]
        for name in names if f"ecc.remap_{name}" in card.values
    }  # fmt: skip
    banks = _banks(block, card)
    if banks is not None:
        remap["histogram"] = banks
    if remap:
        card.shown["remap"] = remap


_ALIASES = {"fan_speed": "fan", "product_brand": "brand", "ecc_mode_current": "ecc_mode",
            "gpu_power_readings_power_draw": "power", "power_readings_power_draw": "power",
            "temperature_gpu_current_temp": "temp", "utilization_gpu": "util",
            "performance_state": "pstate", "product_name": "name"}  # fmt: skip


def _breakage(block: Block, card: Card) -> None:
    """Values that are errors; the recovery action "Reset" is a value."""
    for cell in block.cells:
        code = cells.broken(cell.text)
        if code is not None:
            name = cell.path[-1] if len(cell.path) == 1 else "_".join(cell.path[-2:])
            card.broken.setdefault(_ALIASES.get(name, name), cell.text)
            card.lines.setdefault("error", cell.line)
            if code in (15, 16):
                card.put("gpu.nvml_rc", code, cell.line)
                card.put("gpu.nvml_call", f"nvidia-smi ({cell.line})"[:200])
    if card.shown.get("reset_required") is True:
        card.put("gpu.nvml_rc", 16)
        card.put("gpu.nvml_call", "nvidia-smi -q (Reset Required: Yes)")
