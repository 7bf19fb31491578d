"""nvmlDeviceGetFieldValues: many values of one GPU in one call, each with its own return code.

Ids and their types: nvml.h, NVML_FI_DEV_*. What is neither known here nor named in the state's
"fields" is NOT_SUPPORTED.
"""

import time

from .identity import energy_mj
from .links import hidden, links_field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .state import Gpu

SUCCESS = 0
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3

UNSIGNED_INT, UNSIGNED_LONG_LONG, SIGNED_INT = 1, 3, 5
MEMBERS = {UNSIGNED_INT: "uiVal", UNSIGNED_LONG_LONG: "ullVal", SIGNED_INT: "siVal"}

ECC = {3: "ecc_vol_ce", 4: "ecc_vol_ue", 5: "ecc_agg_ce", 6: "ecc_agg_ue"}
REMAP = {142: 0, 143: 1, 144: 2, 145: 3}
LINK = {161: "replays", 162: "recoveries", 163: "crc", 164: "mbps", 165: "up"}
TIMES = (74, 75, 76, 77, 78, 79, 269, 270, 271)
"""Nanoseconds in each clocks event reason: 0 unless the state says otherwise."""
LIMITS = {193: -5, 194: -2, 195: 0, 196: 0}
"""T.Limit offsets of an H100: shutdown, slowdown, memory, operating."""

UINTS = frozenset((1, 82, 90, 91, 94, 142, 143, 144, 145, 164, 165, 185, 186, 189, 190, 230))


def get_field_values(gpu: "Gpu", count: "Any", values: "Any") -> "int":
    """Fill `count` nvmlFieldValue_t; the call as a whole succeeds whatever the fields say."""
    count = int(getattr(count, "value", count))
    array = values._obj if hasattr(values, "_obj") else values
    if count <= 0:
        return INVALID_ARGUMENT
    stamp_us = int(time.time() * 1e6)
    for place in range(count):
        _fill(gpu, array[place], stamp_us)
    return SUCCESS


def _fill(gpu: "Gpu", slot: "Any", stamp_us: "int") -> "None":
    value = gpu.field(slot.fieldId, slot.scopeId)
    if value is None:
        value = _known(gpu, int(slot.fieldId), int(slot.scopeId))
        value = gpu.moved(value, "fields.%d" % slot.fieldId)
    slot.timestamp, slot.latencyUsec = stamp_us, 5
    if value is None:
        slot.nvmlReturn = NOT_SUPPORTED
    elif isinstance(value, str):
        slot.nvmlReturn = int(value.lstrip("!"))
    else:
        slot.nvmlReturn = SUCCESS
        slot.valueType = _kind(slot.fieldId, value)
        setattr(slot.value, MEMBERS[slot.valueType], int(value))


def _kind(number: "int", value: "Any") -> "int":
    if value < 0 or number in LIMITS:
        return SIGNED_INT
    return UNSIGNED_INT if number in UINTS and value < 1 << 32 else UNSIGNED_LONG_LONG


def _known(gpu: "Gpu", number: "int", scope: "int") -> "Any":
    """The value of a field that follows from the rest of the entry; None: not supported."""
    if hidden(gpu, number):
        return None
    if number in ECC:
        return gpu.get(ECC[number]) if gpu.get("ecc") else None
    if number in REMAP:
        rows = None if gpu.get("mig") else gpu.get("remap")
        return None if rows is None else rows[REMAP[number]]
    if number in LINK or number in (90, 91):
        return _link(gpu, number, scope)
    if number in TIMES:
        return 0
    if number in LIMITS:
        return None if gpu.get("temp_max") is None else LIMITS[number]
    value = links_field(gpu, number, scope)
    return _scalar(gpu, number) if value is None else value


def _link(gpu: "Gpu", number: "int", scope: "int") -> "Any":
    links = None if gpu.get("mig") else gpu.get("links")
    if number == 91 or links is None:
        return links
    if number == 90:
        return gpu.get("link_mbps")
    return gpu.link(scope, LINK[number]) if scope < links else "!%d" % INVALID_ARGUMENT


def _scalar(gpu: "Gpu", number: "int") -> "Any":
    keys = {1: "ecc", 82: "mem_temp", 94: "pcie_replays", 230: "recovery"}
    if number in keys:
        return gpu.get(keys[number])
    if number == 83:
        return energy_mj(gpu)
    watts = {185: "power_w", 186: "power_instant_w", 189: "power_default_w", 190: "power_limit_w"}
    if number in watts:
        value = gpu.get(watts[number])
        if value is None and number in (186, 189):
            value = gpu.mean("power_w", 0.0) if number == 186 else gpu.get("power_limit_w")
        return None if value is None else value * 1000
    return None
