"""Probe "pcie": the link of each GPU and of every bridge above it, replays, errors, traffic.

An idle GPU trains its link down on purpose; whether a generation is judged is the judge's business.
NVML's maximum is what card and slot can do together; sysfs tells the two apart, and shows the links
further up, which all devices behind a switch share.
"""

from probes.node.nvml_library import FIELD_SOFT
from probes.node.nvml_reader import each_gpu, field_id
from probes.node.pci import DEVICES, bridges, link

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

    from probes.node.context import Context
    from probes.node.nvml_reader import Reader

NAME = "pcie"
INTERVAL = "slow"
COUNTERS = True
METRICS = {
    "index": ("", "info", "NVML's index"),
    "gen": ("", "gauge", "PCIe generation now"),
    "gen_max": ("", "info", "highest generation of card and slot together"),
    "util_percent": ("%", "gauge", "use of the GPU when the generation was read"),
    "width": ("lanes", "gauge", "lanes now"),
    "width_max": ("lanes", "info", "lanes of card and slot together"),
    "card_gen_max": ("", "info", "highest generation of the card alone"),
    "card_width_max": ("lanes", "info", "lanes of the card alone"),
    "sysfs_width": ("lanes", "gauge", "lanes now, as the kernel reads them from the card"),
    "slot": ("", "info", "PCI address of the port above the card"),
    "slot_gen_max": ("", "info", "highest generation of the port above the card"),
    "slot_width_max": ("lanes", "info", "lanes of the port above the card"),
    "path": ("", "info", "PCI addresses from the port above the card to the root port"),
    "replays": ("", "counter", "packets sent again"),
    "replay_rollovers": ("", "counter", "packets sent again so often that the link was retrained"),
    "recoveries": ("", "counter", "times the link left L0 to recover"),
    "corrected": ("", "counter", "corrected errors that the card counted"),
    "nonfatal": ("", "counter", "uncorrected, non-fatal errors that the card counted"),
    "fatal": ("", "counter", "fatal errors that the card counted"),
    "naks_received": ("", "counter", "negative acknowledgements received"),
    "naks_sent": ("", "counter", "negative acknowledgements sent"),
    "receiver_errors": ("", "counter", "errors of the receiver"),
    "bad_tlps": ("", "counter", "damaged packets received"),
    "bad_dllps": ("", "counter", "damaged link packets received"),
    "lcrc_errors": ("", "counter", "packets with a wrong link CRC"),
    "lane_errors": ("", "counter", "errors of single lanes"),
    "unsupported_requests": ("", "counter", "requests the card does not know"),
    "tx_bytes": ("B", "counter", "bytes the card sent"),
    "rx_bytes": ("B", "counter", "bytes the card received"),
    "tx_kb_per_s": ("KB/s", "gauge", "bytes sent in 20 ms, where the card keeps no count"),
    "rx_kb_per_s": ("KB/s", "gauge", "bytes received in 20 ms, where the card keeps no count"),
    "aer_correctable": ("", "counter", "kernel's count of corrected PCIe errors"),
    "aer_nonfatal": ("", "counter", "as many errors that were not fatal, without UnsupReq"),
    "aer_fatal": ("", "counter", "kernel's count of fatal errors, without UnsupReq"),
    "slot_aer_correctable": ("", "counter", "the same three of the port above the card"),
    "slot_aer_nonfatal": ("", "counter", "see slot_aer_correctable"),
    "slot_aer_fatal": ("", "counter", "see slot_aer_correctable"),
    "nvml_rc": ("", "gauge", "return code of the call that failed; absent when none did"),
    "nvml_call": ("", "info", "the call that failed"),
}

AER = ("correctable", "nonfatal", "fatal")
HARMLESS = "UnsupReq"
"""An answer to a request the device does not know, as scans of the bus make; no damage."""
FIELDS = {
    "replays": ("NVML_FI_DEV_PCIE_REPLAY_COUNTER", 94),
    "replay_rollovers": ("NVML_FI_DEV_PCIE_REPLAY_ROLLOVER_COUNTER", 95),
    "recoveries": ("NVML_FI_DEV_PCIE_L0_TO_RECOVERY_COUNTER", 169),
    "corrected": ("NVML_FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS", 173),
    "naks_received": ("NVML_FI_DEV_PCIE_COUNT_NAKS_RECEIVED", 174),
    "receiver_errors": ("NVML_FI_DEV_PCIE_COUNT_RECEIVER_ERROR", 175),
    "bad_tlps": ("NVML_FI_DEV_PCIE_COUNT_BAD_TLP", 176),
    "naks_sent": ("NVML_FI_DEV_PCIE_COUNT_NAKS_SENT", 177),
    "bad_dllps": ("NVML_FI_DEV_PCIE_COUNT_BAD_DLLP", 178),
    "nonfatal": ("NVML_FI_DEV_PCIE_COUNT_NON_FATAL_ERROR", 179),
    "fatal": ("NVML_FI_DEV_PCIE_COUNT_FATAL_ERROR", 180),
    "unsupported_requests": ("NVML_FI_DEV_PCIE_COUNT_UNSUPPORTED_REQ", 181),
    "lcrc_errors": ("NVML_FI_DEV_PCIE_COUNT_LCRC_ERROR", 182),
    "lane_errors": ("NVML_FI_DEV_PCIE_COUNT_LANE_ERROR", 183),
    "tx_bytes": ("NVML_FI_DEV_PCIE_COUNT_TX_BYTES", 197),
    "rx_bytes": ("NVML_FI_DEV_PCIE_COUNT_RX_BYTES", 198),
}
UTIL_TX, UTIL_RX = 0, 1


def collect(ctx: "Context") -> "Tuple[Dict[str, Dict[str, Any]], List[Dict[str, Any]]]":
    """All GPUs; AER totals and links are there for lost GPUs too. One row per link further up."""
    paths: "Dict[str, List[str]]" = {}
    devices = each_gpu(ctx, lambda reader: _read(ctx, reader, paths))
    return devices, _upper_links(ctx, paths)


def _read(ctx: "Context", reader: "Reader", paths: "Dict[str, List[str]]") -> "None":
    """One GPU; its AER totals at the same moment as the rest."""
    above = paths[reader.gpu.key] = bridges(ctx, reader.gpu.key)
    for kind in AER:
        reader.put(**{"aer_" + kind: _aer_total(ctx, reader.gpu.key, kind)})
        if above:
            reader.put(**{"slot_aer_" + kind: _aer_total(ctx, above[0], kind)})
    _ends(ctx, reader, above)
    reader.put(
        gen=reader.ask("nvmlDeviceGetCurrPcieLinkGeneration"),
        width=reader.ask("nvmlDeviceGetCurrPcieLinkWidth"),
        gen_max=reader.ask("nvmlDeviceGetMaxPcieLinkGeneration"),
        width_max=reader.ask("nvmlDeviceGetMaxPcieLinkWidth"),
        replays=reader.ask("nvmlDeviceGetPcieReplayCounter"),
    )
    use = reader.ask("nvmlDeviceGetUtilizationRates", soft=FIELD_SOFT)
    reader.put(util_percent=getattr(use, "gpu", None))
    ids = {name: (field_id(reader.pynvml, *field), 0) for name, field in FIELDS.items()}
    found = reader.fields(list(ids.values()))
    counts = {name: found.get(field) for name, field in ids.items()}
    if "replays" in reader.values:
        del counts["replays"]
    reader.put(**counts)
    if "tx_bytes" not in reader.values:
        reader.put(
            tx_kb_per_s=reader.ask("nvmlDeviceGetPcieThroughput", UTIL_TX, soft=FIELD_SOFT),
            rx_kb_per_s=reader.ask("nvmlDeviceGetPcieThroughput", UTIL_RX, soft=FIELD_SOFT),
        )


def _ends(ctx: "Context", reader: "Reader", above: "List[str]") -> "None":
    """What card and slot could do, each by itself."""
    card = link(ctx, reader.gpu.key)
    reader.put(
        card_gen_max=card.get("gen_max"),
        card_width_max=card.get("width_max"),
        sysfs_width=card.get("width"),
    )
    if above:
        slot = link(ctx, above[0])
        reader.put(
            slot=above[0],
            path=" ".join(above),
            slot_gen_max=slot.get("gen_max"),
            slot_width_max=slot.get("width_max"),
        )


def _upper_links(ctx: "Context", paths: "Dict[str, List[str]]") -> "List[Dict[str, Any]]":
    """Links between bridges: upstream port of a switch, and the port above it.

    From the card upwards, ports come in pairs: (card, slot) is one link, slot and upstream port of
    its switch are one chip, then (upstream port, port above) is the next link.
    """
    rows: "Dict[str, Dict[str, Any]]" = {}
    for above in paths.values():
        for lower, upper in zip(above[1::2], above[2::2]):
            if lower not in rows:
                rows[lower] = _upper_link(ctx, lower, upper)
    return [rows[lower] for lower in sorted(rows)]


def _upper_link(ctx: "Context", lower: "str", upper: "str") -> "Dict[str, Any]":
    below, over = link(ctx, lower), link(ctx, upper)
    row: "Dict[str, Any]" = {"bridge": lower, "above": upper}
    row.update((name, below[name]) for name in ("gen", "width") if name in below)
    for name in ("gen_max", "width_max"):
        if name in below and name in over:
            row[name] = min(below[name], over[name])
    return row


def _aer_total(ctx: "Context", address: "str", kind: "str") -> "Optional[int]":
    """The TOTAL_ERR_ line of an aer_dev_* file, less the requests that were not supported."""
    counts = {}
    for line in (ctx.read(DEVICES, address, "aer_dev_" + kind) or "").splitlines():
        words = line.split()
        if len(words) == 2 and words[1].isdigit():
            counts[words[0]] = int(words[1])
    totals = [count for name, count in counts.items() if name.startswith("TOTAL_ERR_")]
    return max(0, totals[0] - counts.get(HARMLESS, 0)) if totals else None
