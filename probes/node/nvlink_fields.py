"""NVML's field numbers for NVLinks, and what their values mean (nvml.h, API 13)."""

from probes.node.nvml_library import FIELD_SOFT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

    from probes.node.nvml_reader import Number, Reader

LINKS_MAX = 36
"""NVML_NVLINK_MAX_LINKS of API 13."""
MANY_LINKS = 18
"""A device may have 256 metrics: with more links than today's parts have, the FEW must do."""

LINK_COUNT = ("NVML_FI_DEV_NVLINK_LINK_COUNT", 91)
SPEED = ("NVML_FI_DEV_NVLINK_GET_SPEED", 164)
SPEED_COMMON = ("NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON", 90)
VERSION = ("NVML_FI_DEV_NVLINK_GET_VERSION", 166)
REMOTE_LINK = ("NVML_FI_DEV_NVLINK_REMOTE_NVLINK_ID", 146)
EFFECTIVE_BER = ("NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_BER", 220)
SYMBOL_BER = ("NVML_FI_DEV_NVLINK_COUNT_SYMBOL_BER", 222)
FEC_FIRST = ("NVML_FI_DEV_NVLINK_COUNT_FEC_HISTORY_0", 235)
FEC_BINS = 16

COUNTS = (
    ("replays", "NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY", 161),
    ("recoveries", "NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY", 162),
    ("crc", "NVML_FI_DEV_NVLINK_ERROR_DL_CRC", 163),
    ("recoveries", "NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS", 215),
    ("recoveries_ok", "NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS", 213),
    ("recoveries_failed", "NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS", 214),
    ("symbol_errors", "NVML_FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS", 221),
    ("effective_errors", "NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS", 219),
    ("receive_errors", "NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS", 208),
    ("remote_errors", "NVML_FI_DEV_NVLINK_COUNT_RCV_REMOTE_ERRORS", 209),
    ("malformed", "NVML_FI_DEV_NVLINK_COUNT_MALFORMED_PACKET_ERRORS", 206),
    ("overruns", "NVML_FI_DEV_NVLINK_COUNT_BUFFER_OVERRUN_ERRORS", 207),
    ("integrity", "NVML_FI_DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS", 211),
    ("discards", "NVML_FI_DEV_NVLINK_COUNT_XMIT_DISCARDS", 212),
)
"""Metric suffix and its field, scope = link. The first that answers gives the value."""

FEW = frozenset(("recoveries", "recoveries_failed", "receive_errors", "replays", "crc"))
"""Suffixes of COUNTS that say most, for parts with MANY links."""

PER_LINK = (
    ("crc_data", ((0, 5, 39), (6, 11, 102))),
    ("ecc", ((0, 11, 148),)),
)
"""Suffix -> ranges (first link, last link, field of the first link): links 0-11, no scope."""

OLD_COUNTERS = {"replays": 0, "recoveries": 1, "crc": 2, "crc_data": 3, "ecc": 4}
"""nvmlNvLinkErrorCounter_t: what drivers without the scoped fields have (CRC of flits)."""

VERSIONS = {1: "1.0", 2: "2.0", 3: "2.2", 4: "3.0", 5: "3.1", 6: "4.0", 7: "5.0", 8: "6.0"}
"""nvmlNvlinkVersion_t -> generation as people write it."""

REMOTE_KINDS = {0: "gpu", 1: "npu", 2: "switch"}
"""nvmlIntNvLinkDeviceType_t: what is at the other end; 0xff is unknown."""

NO_ERROR_EXPONENT = 255
"""The rate NVML gives for "not one error so far" is 15e-255."""


def error_rate(raw: "int") -> "float":
    """A bit error rate as NVML packs it: mantissa in bits 8-11, negative exponent in bits 0-7."""
    mantissa, exponent = raw >> 8 & 0xF, raw & 0xFF
    return 0.0 if exponent >= NO_ERROR_EXPONENT else mantissa * 10.0**-exponent


def states_of(reader: "Reader", count: "Optional[Number]") -> "Optional[List[Optional[bool]]]":
    """Per link: up, down, or None where its state cannot be read. None when NVML does not say.

    `count` is what the driver says about the number of links; None when it does not.
    """
    states: "List[Optional[bool]]" = []
    limit = LINKS_MAX if count is None else min(int(count), LINKS_MAX)
    for link in range(limit):
        state = reader.ask("nvmlDeviceGetNvLinkState", link, soft=FIELD_SOFT)
        if state is None and count is None:
            break
        states.append(None if state is None else bool(state))
    if count is None and not states:
        return None
    return states
