"""Probe "nvlink": state, speed and error counts of every NVLink, and the fabric registration.

Speeds are the signalling rate NVML reports (26,562 MB/s a link on Hopper), about 6 % above the data
sheet. Links 1-4 count replays, recoveries and CRC errors; link 5 (Blackwell) counts other things,
which appear under their own names.
"""

import ctypes

from probes.node.nvml_library import FIELD_SOFT
from probes.node.nvml_reader import each_gpu, field_id, scoped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

    from probes.node.context import Context
    from probes.node.nvml_reader import Field, Number, Reader

NAME = "nvlink"
INTERVAL = "slow"
COUNTERS = True
METRICS = {
    "index": ("", "info", "NVML's index"),
    "links": ("", "info", "links of the card, up or not"),
    "linkN_up": ("", "gauge", "whether link N is active"),
    "linkN_mbps": (
        "MB/s",
        "gauge",
        "signalling rate of link N, one way; active links only",
    ),
    "linkN_replays": ("", "counter", "packets sent again on link N"),
    "linkN_recoveries": ("", "counter", "retrainings of link N"),
    "linkN_crc": ("", "counter", "CRC errors of link N"),
    "linkN_recoveries_failed": ("", "counter", "failed recoveries of link N (NVLink 5)"),
    "linkN_symbol_errors": ("", "counter", "symbol errors of link N (NVLink 5)"),
    "linkN_effective_errors": ("", "counter", "errors left after FEC on link N (NVLink 5)"),
    "linkN_receive_errors": ("", "counter", "bad packets received on link N (NVLink 5)"),
    "fabric_state": ("", "gauge", "0 not supported, 1 not started, 2 in progress, 3 completed"),
    "fabric_status": ("", "gauge", "nvmlReturn_t of the registration; meaningful in state 3"),
    "fabric_health": ("", "gauge", "health mask of the fabric registration"),
    "nvml_rc": ("", "gauge", "return code of the call that failed; absent when none did"),
    "nvml_call": ("", "info", "the call that failed"),
}

MAX_LINKS = 36
"""NVML_NVLINK_MAX_LINKS of API 13."""

LINK_COUNT = ("NVML_FI_DEV_NVLINK_LINK_COUNT", 91)
SPEED = ("NVML_FI_DEV_NVLINK_GET_SPEED", 164)
SPEED_COMMON = ("NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON", 90)

COUNTS = (
    ("replays", "NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY", 161),
    ("recoveries", "NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY", 162),
    ("crc", "NVML_FI_DEV_NVLINK_ERROR_DL_CRC", 163),
    ("recoveries", "NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS", 215),
    ("recoveries_failed", "NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS", 214),
    ("symbol_errors", "NVML_FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS", 221),
    ("effective_errors", "NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS", 219),
    ("receive_errors", "NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS", 208),
)
"""Metric suffix and its field, scope = link. The first that answers gives the value."""

OLD_COUNTERS = {"replays": 0, "recoveries": 1, "crc": 2}
"""nvmlNvLinkErrorCounter_t: what drivers without the scoped fields have (CRC of flits)."""


def collect(ctx: "Context") -> "Tuple[Dict[str, Dict[str, Any]], List[Dict[str, Any]]]":
    """One tick over all GPUs. A card without NVLink has links 0; unknown has no `links`."""
    return each_gpu(ctx, _read), []


def _read(reader: "Reader") -> "None":
    states = _states(reader)
    if states is not None:
        reader.put(links=len(states))
        for link, up in enumerate(states):
            if up is not None:
                reader.put(**{"link%d_up" % link: up})
        if states:
            reader.mode_is("links", tuple(states))  # a link that comes up answers more
            _speeds_and_counts(reader, states)
    _fabric(reader)


def _states(reader: "Reader") -> "Optional[List[Optional[bool]]]":
    """Per link: up, down, or None where its state cannot be read. None when NVML does not say."""
    field = (field_id(reader.pynvml, *LINK_COUNT), 0)
    count = reader.fields([field]).get(field)
    states: "List[Optional[bool]]" = []
    limit = MAX_LINKS if count is None else min(int(count), MAX_LINKS)
    for link in range(limit):
        state = reader.ask("nvmlDeviceGetNvLinkState", link, soft=FIELD_SOFT)
        if state is None and count is None:
            break
        states.append(None if state is None else bool(state))
    if count is None and not states:
        return None
    return states


def _speeds_and_counts(reader: "Reader", states: "List[Optional[bool]]") -> "None":
    """One call for all links and fields; then old calls for what it left open."""
    ids = [field_id(reader.pynvml, name, number) for _, name, number in COUNTS]
    speed = field_id(reader.pynvml, *SPEED)
    common = (field_id(reader.pynvml, *SPEED_COMMON), 0)
    found = reader.fields(scoped([speed] + ids, len(states)) + [common])
    for link, up in enumerate(states):
        if up:
            mbps = found.get((speed, link)) or found.get(common) or None
            reader.put(**{"link%d_mbps" % link: mbps})
        _counts(reader, link, ids, found)


def _counts(
    reader: "Reader", link: "int", ids: "List[int]", found: "Dict[Field, Number]"
) -> "None":
    values: "Dict[str, Number]" = {}
    for (suffix, _, _), number in zip(COUNTS, ids):
        if (number, link) in found:
            values.setdefault(suffix, found[number, link])
    if not values:
        for suffix, counter in OLD_COUNTERS.items():
            count = reader.ask("nvmlDeviceGetNvLinkErrorCounter", link, counter, soft=FIELD_SOFT)
            if count is not None:
                values[suffix] = count
    reader.put(**{"link%d_%s" % (link, suffix): value for suffix, value in values.items()})


def _fabric(reader: "Reader") -> "None":
    """Only boards with NVSwitch register; elsewhere NOT_SUPPORTED or state 0."""
    make = getattr(reader.pynvml, "c_nvmlGpuFabricInfoV_t", None)
    if make is None:
        return
    info = make()
    answer = reader.ask("nvmlDeviceGetGpuFabricInfoV", ctypes.byref(info), key="v2")
    if answer is None:
        return
    reader.put(fabric_state=int(info.state), fabric_status=int(info.status))
    if info.healthMask:
        reader.put(fabric_health=int(info.healthMask))
