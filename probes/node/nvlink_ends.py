"""Probe "nvlink_ends": what is at the other end of every NVLink, and how hard FEC has to work.

Rare, because cables do not move: one row per link with the remote device (GPU, NVSwitch, NPU) and
its address, and on NVLink 5 the bit error rates and the histogram of corrected symbols. The other
end of a link that went down is remembered from the time when it was up.
"""

from probes.node.nvlink_fields import (
    EFFECTIVE_BER,
    FEC_BINS,
    FEC_FIRST,
    LINK_COUNT,
    REMOTE_KINDS,
    REMOTE_LINK,
    SYMBOL_BER,
    VERSION,
    VERSIONS,
    error_rate,
    states_of,
)
from probes.node.nvml_library import FIELD_SOFT, pci_key
from probes.node.nvml_reader import each_gpu, field_id, scoped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple

    from probes.node.context import Context
    from probes.node.nvml_reader import Field, Number, Reader

    Row = Dict[str, Any]

NAME = "nvlink_ends"
INTERVAL = "rare"
COUNTERS = False
METRICS = {
    "index": ("", "info", "NVML's index"),
    "nvlink_version": ("", "info", "NVLink generation of the active links: 4.0"),
    "to_gpus": ("links", "gauge", "active links to another GPU"),
    "to_switches": ("links", "gauge", "active links to an NVSwitch"),
    "to_npus": ("links", "gauge", "active links to a CPU (IBM POWER)"),
    "fec_worst_bin": ("symbols", "gauge", "most symbols FEC had to correct in one block, any link"),
    "nvml_rc": ("", "gauge", "return code of the call that failed; absent when none did"),
    "nvml_call": ("", "info", "the call that failed"),
}


def collect(ctx: "Context") -> "Tuple[Dict[str, Dict[str, Any]], List[Dict[str, Any]]]":
    """One tick over all GPUs. Row: gpu, link, up, remote, remote_pci, remote_link, BER, FEC."""
    known: "Dict[str, Any]" = ctx.memory(NAME)
    rows: "List[Row]" = []
    devices = each_gpu(ctx, lambda reader: _read(reader, known, rows))
    return devices, rows


def _read(reader: "Reader", known: "Dict[str, Any]", rows: "List[Row]") -> "None":
    field = (field_id(reader.pynvml, *LINK_COUNT), 0)
    states = states_of(reader, reader.fields([field]).get(field))
    if not states:
        return
    found = _fields(reader, len(states))
    tally = dict.fromkeys(REMOTE_KINDS.values(), 0)
    versions = []
    for link, up in enumerate(states):
        if up is None:
            continue
        end = _end(reader, link) if up else None
        if end is not None:
            known["%s/%d" % (reader.gpu.key, link)] = end
        end = end or known.get("%s/%d" % (reader.gpu.key, link), {})
        row = dict(end, gpu=reader.gpu.key, link=link, up=up)
        if up:
            tally[end.get("remote", "")] = tally.get(end.get("remote", ""), 0) + 1
            versions += [found[VERSION[0], link]] if (VERSION[0], link) in found else []
            row.update(_quality(found, link))
        rows.append(row)
    reader.put(
        to_gpus=tally["gpu"], to_switches=tally["switch"], to_npus=tally["npu"],
        nvlink_version=VERSIONS.get(int(max(versions))) if versions else None,
        fec_worst_bin=_worst_bin(found, len(states)),
    )  # fmt: skip


def _fields(reader: "Reader", links: "int") -> "Dict[Tuple[str, int], Number]":
    """(name, link) -> value, in one call."""
    names = {field[0]: field for field in (VERSION, REMOTE_LINK, EFFECTIVE_BER, SYMBOL_BER)}
    for step in range(FEC_BINS):
        names["fec%d" % step] = ("NVML_FI_DEV_NVLINK_COUNT_FEC_HISTORY_%d" % step,
                                 FEC_FIRST[1] + step)  # fmt: skip
    ids = {name: field_id(reader.pynvml, *field) for name, field in names.items()}
    found: "Dict[Field, Number]" = reader.fields(scoped(list(ids.values()), links))
    return {
        (name, link): found[number, link]
        for name, number in ids.items()
        for link in range(links)
        if (number, link) in found
    }


def _end(reader: "Reader", link: "int") -> "Row | None":
    """The other end of an active link; None when the driver does not tell."""
    kind = reader.ask("nvmlDeviceGetNvLinkRemoteDeviceType", link, soft=FIELD_SOFT)
    info = reader.ask("nvmlDeviceGetNvLinkRemotePciInfo", link, soft=FIELD_SOFT)
    if kind is None and info is None:
        return None
    end: "Row" = {"remote": REMOTE_KINDS.get(kind, "unknown") if kind is not None else "unknown"}
    address = "" if info is None else pci_key(info)
    if address and not address.startswith("ffff"):
        end["remote_pci"] = address
    return end


def _quality(found: "Dict[Tuple[str, int], Number]", link: "int") -> "Row":
    row: "Row" = {}
    for name, field in (("effective_ber", EFFECTIVE_BER), ("symbol_ber", SYMBOL_BER)):
        if (field[0], link) in found:
            row[name] = error_rate(int(found[field[0], link]))
    if (REMOTE_LINK[0], link) in found:
        row["remote_link"] = int(found[REMOTE_LINK[0], link])
    bins = [found.get(("fec%d" % step, link)) for step in range(FEC_BINS)]
    if any(count is not None for count in bins):
        row["fec"] = ",".join("" if count is None else "%d" % count for count in bins).rstrip(",")
    return row


def _worst_bin(found: "Dict[Tuple[str, int], Number]", links: "int") -> "int | None":
    """Highest bin of the histogram that any link has a count in; None without a histogram."""
    seen = [step for step in range(FEC_BINS) for link in range(links)
            if found.get(("fec%d" % step, link))]  # fmt: skip
    return max(seen) if seen else None
