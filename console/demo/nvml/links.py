"""What the simulated driver says about memory health in detail, links of all kinds and the fabric.

Keys of an entry besides those of state.py, all optional, `null` for "not supported":
"ecc_pending", "ecc_default" 0 or 1; "ecc_sram" {"vol_ue": n, ...}, the part of the totals that is
SRAM, or false where places are not told apart; "sram" {member of nvmlEccSramErrorStatus_t: n};
"banks" [max, high, partial, low, none]; "retired" [single, double, pending], null since Ampere;
"pcie_kb" [sent, received] per second; "pcie_errors" false: fields 173-183 are unknown;
"fabric" [state, status, health mask, clique, UUID as hex, summary];
"nvlink5" true: counters of NVLink 5 instead of those before; "remote" [kind, address] of all links;
"c2c" {"links": n, "mbps": n, "down": [link, ...], "crc": n, "replays": n}.
A link of "link" may have "remote" and, on NVLink 5, the names of NVLINK5 and "fec" [16 counts].
"""

from .shapes import (
    ARGUMENT_VERSION_MISMATCH,
    INSUFFICIENT_SIZE,
    NOT_SUPPORTED,
    SUCCESS,
    out,
    whole_gpu_only,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional

    from .state import Gpu

    Call = Callable[..., int]

DEFAULTS = {
    "ecc_default": 1, "ecc_sram": {}, "sram": {}, "banks": [640, 0, 0, 0, 0], "retired": None,
    "pcie_kb": [1200, 3400], "pcie_errors": True, "nvlink5": False, "remote": None, "c2c": None,
}  # fmt: skip
"""A healthy H100 on a board with four NVSwitches."""

SWITCHES = ("0000:07:00.0", "0000:08:00.0", "0000:09:00.0", "0000:0a:00.0")
SRAM_V1 = 0x01000068
FABRIC_V2, FABRIC_V3 = 0x02000024, 0x03000028
DRAM, SRAM = 2, 7
GPU_END, NPU_END, SWITCH_END = 0, 1, 2

NVLINK5 = {
    206: "malformed", 207: "overruns", 208: "receive_errors", 209: "remote_errors",
    210: "general_errors", 211: "integrity", 212: "discards", 213: "recoveries_ok",
    214: "recoveries_failed", 215: "recoveries", 219: "effective_errors", 221: "symbol_errors",
}  # fmt: skip
NVLINK5_RATES = {220: "effective_ber", 222: "symbol_ber"}
NO_ERROR = 15 << 8 | 255
"""How NVML packs the rate of a link without any error."""
NVLINK4 = (161, 162, 163)
FEC = [10**12, 10**6, 300, 2] + [0] * 12
FEC_FIRST = 235
PCIE = frozenset((95, 169, *range(173, 184), 197, 198))
VERSION = {False: 6, True: 7}
"""nvmlNvlinkVersion_t: 6 is NVLink 4.0, 7 is NVLink 5.0."""


def own(gpu: "Gpu", key: "str") -> "Any":
    """A key of this module with its drift."""
    return gpu.moved(gpu.entry.get(key, DEFAULTS.get(key)), key)


def links_field(gpu: "Gpu", number: "int", scope: "int") -> "Any":
    """A field of this module; None: not supported, or not of this module."""
    if number in (29, 30, 31):
        pages = own(gpu, "retired")
        return None if pages is None else pages[number - 29]
    if number in PCIE:
        return 0 if own(gpu, "pcie_errors") else None
    if 170 <= number <= 172 or 231 <= number <= 234:
        return _c2c(gpu, number, scope)
    links = None if gpu.get("mig") else gpu.get("links")
    if links is None or scope >= links:
        return None
    if number == 166:
        return VERSION[bool(own(gpu, "nvlink5"))] if gpu.link(scope, "up") else None
    return _nvlink5(gpu, number, scope) if own(gpu, "nvlink5") else None


def hidden(gpu: "Gpu", number: "int") -> "bool":
    """Fields of NVLink 4 that an NVLink 5 part does not have."""
    return number in NVLINK4 and bool(own(gpu, "nvlink5"))


def _of_link(gpu: "Gpu", link: "int", key: "str", otherwise: "Any") -> "Any":
    value = gpu.get("link").get(str(link), {}).get(key, otherwise)
    return gpu.moved(value, "link.%d.%s" % (link, key))


def _nvlink5(gpu: "Gpu", number: "int", link: "int") -> "Any":
    if number in NVLINK5:
        return _of_link(gpu, link, NVLINK5[number], 0)
    if number in NVLINK5_RATES:
        return _of_link(gpu, link, NVLINK5_RATES[number], NO_ERROR)
    if FEC_FIRST <= number < FEC_FIRST + len(FEC):
        return _of_link(gpu, link, "fec", FEC)[number - FEC_FIRST]
    return None


def _c2c(gpu: "Gpu", number: "int", link: "int") -> "Any":
    c2c = own(gpu, "c2c")
    if c2c is None or (number != 170 and link >= c2c["links"]):
        return None
    up = link not in c2c.get("down", [])
    return {
        170: c2c["links"], 171: int(up), 172: c2c["mbps"] if up else 0, 234: 0,
        231: c2c.get("crc", 0) if link == 0 else 0,
        232: c2c.get("replays", 0) if link == 0 else 0, 233: 0,
    }[number]  # fmt: skip


# ---------------------------------------------------------------------- memory


def _ecc_mode(gpu: "Gpu", current: "Any", pending: "Any") -> "int":
    mode = gpu.get("ecc")
    if mode is None:
        return NOT_SUPPORTED
    out(current).value, out(pending).value = int(mode), int(gpu.entry.get("ecc_pending", mode))
    return SUCCESS


def _number(read: "Callable[[Gpu], Any]") -> "Call":
    def call(gpu: "Gpu", argument: "Any") -> "int":
        value = read(gpu)
        if value is None:
            return NOT_SUPPORTED
        out(argument).value = int(value)
        return SUCCESS

    return call


def _place(gpu: "Gpu", error: "Any", span: "Any", place: "Any", argument: "Any") -> "int":
    sram = own(gpu, "ecc_sram")
    place = int(getattr(place, "value", place))
    if not gpu.get("ecc") or not isinstance(sram, dict) or place not in (DRAM, SRAM):
        return NOT_SUPPORTED
    key = "%s_%s" % ("agg" if span.value else "vol", "ue" if error.value else "ce")
    count = int(sram.get(key, 0))
    total = gpu.get("ecc_" + key)
    if total is None:
        return NOT_SUPPORTED
    out(argument).value = count if place == SRAM else max(0, int(total) - count)
    return SUCCESS


def _sram(gpu: "Gpu", argument: "Any") -> "int":
    status, members = out(argument), own(gpu, "sram")
    if status.version != SRAM_V1:
        return ARGUMENT_VERSION_MISMATCH
    if members is None or not gpu.get("ecc"):
        return NOT_SUPPORTED
    for name, _ in status._fields_:
        if name != "version":
            setattr(status, name, int(members.get(name, 0)))
    return SUCCESS


def _histogram(gpu: "Gpu", argument: "Any") -> "int":
    banks = own(gpu, "banks")
    if banks is None or gpu.get("remap") is None:
        return NOT_SUPPORTED
    values = out(argument)
    for (name, _), count in zip(values._fields_, banks):
        setattr(values, name, int(count))
    return SUCCESS


def _retired_pages(gpu: "Gpu", cause: "Any", count: "Any", pages: "Any") -> "int":
    retired = own(gpu, "retired")
    if retired is None:
        return NOT_SUPPORTED
    number, room = int(retired[int(cause.value)]), out(count).value
    out(count).value = number
    if pages is None:
        return INSUFFICIENT_SIZE if number else SUCCESS
    if number > room:
        return INSUFFICIENT_SIZE
    for place in range(number):
        pages[place] = 0x1000 * (place + 1)
    return SUCCESS


# ---------------------------------------------------------------------- links


def _throughput(gpu: "Gpu", counter: "Any", argument: "Any") -> "int":
    rates = own(gpu, "pcie_kb")
    if rates is None:
        return NOT_SUPPORTED
    out(argument).value = int(rates[int(getattr(counter, "value", counter))])
    return SUCCESS


def _end(gpu: "Gpu", link: "Any") -> "Optional[Any]":
    """[kind, address] of what is at the other end; None when the link is down or unknown."""
    number = int(getattr(link, "value", link))
    links = None if gpu.get("mig") else gpu.get("links")
    if links is None or number >= links or not gpu.link(number, "up"):
        return None
    default = own(gpu, "remote") or [SWITCH_END, SWITCHES[number % len(SWITCHES)]]
    return _of_link(gpu, number, "remote", default)


def _remote_kind(gpu: "Gpu", link: "Any", argument: "Any") -> "int":
    end = _end(gpu, link)
    if end is None:
        return NOT_SUPPORTED
    out(argument).value = int(end[0])
    return SUCCESS


def _remote_pci(gpu: "Gpu", link: "Any", argument: "Any") -> "int":
    end = _end(gpu, link)
    if end is None:
        return NOT_SUPPORTED
    info = out(argument)
    domain, _, rest = str(end[1]).partition(":")
    info.domain = int(domain, 16)
    info.busId = ("%08X:%s" % (info.domain, rest.upper())).encode()
    return SUCCESS


def _fabric(gpu: "Gpu", argument: "Any") -> "int":
    info, fabric = out(argument), gpu.get("fabric")
    if getattr(info, "version", FABRIC_V2) not in (FABRIC_V2, FABRIC_V3):
        return ARGUMENT_VERSION_MISMATCH
    if fabric is None:
        return NOT_SUPPORTED
    state, status, health, clique, cluster, summary = _filled(fabric)
    info.state, info.status, info.cliqueId = int(state), int(status), int(clique)
    for place, byte in enumerate(bytearray.fromhex(str(cluster))[:16]):
        info.clusterUuid[place] = byte
    if hasattr(info, "healthMask"):
        info.healthMask = int(health)
    if hasattr(info, "healthSummary"):
        info.healthSummary = int(summary)
    return SUCCESS


def _filled(fabric: "Any") -> "Any":
    """What the state leaves out is 0: not reported."""
    return list(fabric) + [0, 0, 0, 0, "", 0][len(fabric) :]


DEVICE: "Dict[str, Call]" = {
    "nvmlDeviceGetEccMode": _ecc_mode,
    "nvmlDeviceGetDefaultEccMode": _number(lambda gpu: own(gpu, "ecc_default")),
    "nvmlDeviceGetMemoryErrorCounter": _place,
    "nvmlDeviceGetSramEccErrorStatus": _sram,
    "nvmlDeviceGetRowRemapperHistogram": whole_gpu_only(_histogram),
    "nvmlDeviceGetRetiredPages": _retired_pages,
    "nvmlDeviceGetRetiredPagesPendingStatus": _number(
        lambda gpu: (own(gpu, "retired") or [None])[-1]
    ),
    "nvmlDeviceGetPcieThroughput": _throughput,
    "nvmlDeviceGetNvLinkRemoteDeviceType": _remote_kind,
    "nvmlDeviceGetNvLinkRemotePciInfo_v2": _remote_pci,
    "nvmlDeviceGetGpuFabricInfo": _fabric,
    "nvmlDeviceGetGpuFabricInfoV": _fabric,
}
"""Calls about a GPU, after the handle."""
