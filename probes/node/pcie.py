"""Probe "pcie": link generation and width of each GPU, replays, and the kernel's AER totals.

An idle GPU trains its link down on purpose; whether a generation is judged is the judge's business.
"""

from probes.node.nvml_reader import each_gpu, field_id
from probes.node.pci import DEVICES

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
    "width": ("lanes", "gauge", "lanes now"),
    "width_max": ("lanes", "info", "lanes of card and slot together"),
    "replays": ("", "counter", "packets sent again"),
    "aer_correctable": ("", "counter", "kernel's count of corrected PCIe errors"),
    "aer_nonfatal": ("", "counter", "kernel's count of uncorrected, non-fatal PCIe errors"),
    "aer_fatal": ("", "counter", "kernel's count of fatal PCIe errors"),
    "nvml_rc": ("", "gauge", "return code of the call that failed; absent when none did"),
    "nvml_call": ("", "info", "the call that failed"),
}

REPLAYS = ("NVML_FI_DEV_PCIE_REPLAY_COUNTER", 94)
AER = ("correctable", "nonfatal", "fatal")


def collect(ctx: "Context") -> "Tuple[Dict[str, Dict[str, Any]], List[Dict[str, Any]]]":
    """One tick over all GPUs; the AER totals are there for lost GPUs too."""
    return each_gpu(ctx, lambda reader: _read(ctx, reader)), []


def _read(ctx: "Context", reader: "Reader") -> "None":
    """One GPU; its AER totals at the same moment as the rest."""
    for kind in AER:
        total = _aer_total(ctx.read(DEVICES, reader.gpu.key, "aer_dev_" + kind))
        reader.put(**{"aer_" + kind: total})
    reader.put(
        gen=reader.ask("nvmlDeviceGetCurrPcieLinkGeneration"),
        width=reader.ask("nvmlDeviceGetCurrPcieLinkWidth"),
        gen_max=reader.ask("nvmlDeviceGetMaxPcieLinkGeneration"),
        width_max=reader.ask("nvmlDeviceGetMaxPcieLinkWidth"),
    )
    replays = reader.ask("nvmlDeviceGetPcieReplayCounter")
    if replays is None:
        field = (field_id(reader.pynvml, *REPLAYS), 0)
        replays = reader.fields([field]).get(field)
    reader.put(replays=replays)


def _aer_total(text: "Optional[str]") -> "Optional[int]":
    """The TOTAL_ERR_ line of an aer_dev_* file."""
    for line in (text or "").splitlines():
        words = line.split()
        if len(words) == 2 and words[0].startswith("TOTAL_ERR_") and words[1].isdigit():
            return int(words[1])
    return None
