"""Probe "fabric": registration of each GPU with the NVLink fabric, NVSwitches, and C2C links.

Boards with NVSwitch register with a fabric manager: on this node (HGX) or on the switch tray
(GB200 and GB300 racks). Elsewhere the answer is NOT_SUPPORTED or state 0. Grace parts also have
C2C links to their CPU, which take the place of PCIe.
"""

import ctypes

from probes.node.c2c import METRICS as C2C_METRICS
from probes.node.c2c import read as read_c2c
from probes.node.nvml_library import FIELD_SOFT
from probes.node.nvml_reader import each_gpu
from probes.node.pci import config_ok, nvswitches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple

    from probes.node.context import Context
    from probes.node.nvml_reader import Reader

NAME = "fabric"
INTERVAL = "slow"
COUNTERS = True
METRICS = {
    "index": ("", "info", "NVML's index"),
    "fabric_state": ("", "gauge", "0 not supported, 1 not started, 2 in progress, 3 completed"),
    "fabric_waiting_s": ("s", "gauge", "seconds in state 1 or 2 since this agent first saw it"),
    "fabric_status": ("", "gauge", "nvmlReturn_t of the registration; meaningful in state 3"),
    "fabric_clique": ("", "info", "clique id: GPUs of one clique reach each other over NVLink"),
    "fabric_cluster": ("", "info", "UUID of the NVLink domain"),
    "fabric_health": ("", "gauge", "health mask of the fabric registration; 0 is not reported"),
    "fabric_summary": ("", "gauge", "0 not reported, 1 healthy, 2 unhealthy, 3 limited capacity"),
    "nvswitches": ("", "gauge", "NVSwitches on the PCI bus of this node (up to Hopper)"),
    "nvswitches_dead": ("", "info", "addresses of NVSwitches that answer with all ones"),
    "nvml_rc": ("", "gauge", "return code of the call that failed; absent when none did"),
    "nvml_call": ("", "info", "the call that failed"),
}
METRICS.update(C2C_METRICS)

STRUCTURES = ("c_nvmlGpuFabricInfo_v3_t", "c_nvmlGpuFabricInfoV_t")
"""Newest first; an older driver refuses a structure with "argument version mismatch"."""
OLDEST = "c_nvmlGpuFabricInfo_t"
WAITING = (1, 2)
COMPLETED = 3


def collect(ctx: "Context") -> "Tuple[Dict[str, Dict[str, Any]], List[Dict[str, Any]]]":
    """All GPUs; device "" has what the PCI bus says about NVSwitches."""
    waits: "Dict[str, Any]" = ctx.memory(NAME)
    devices = each_gpu(ctx, lambda reader: _read(ctx, reader, waits))
    switches = nvswitches(ctx)
    if switches:
        dead = [address for address in switches if config_ok(ctx, address) is False]
        devices[""] = {"nvswitches": len(switches)}
        if dead:
            devices[""]["nvswitches_dead"] = " ".join(dead[:8])
    return devices, []


def _read(ctx: "Context", reader: "Reader", waits: "Dict[str, Any]") -> "None":
    info = _info(reader)
    if info is not None:
        state = int(info.state)
        reader.put(fabric_state=state, fabric_status=int(info.status))
        if state == COMPLETED:
            cluster = bytes(bytearray(info.clusterUuid))
            reader.put(fabric_clique=int(info.cliqueId))
            reader.put(fabric_cluster=_uuid(cluster) if any(cluster) else None)
        reader.put(fabric_health=int(getattr(info, "healthMask", 0)) or None)
        reader.put(fabric_summary=int(getattr(info, "healthSummary", 0)) or None)
        if state in WAITING:
            since = waits.setdefault(reader.gpu.key, ctx.mono())
            reader.put(fabric_waiting_s=round(ctx.mono() - since, 1))
        else:
            waits.pop(reader.gpu.key, None)
    read_c2c(reader)


def _info(reader: "Reader") -> "Any":
    """The registration as the newest structure that driver and binding both know."""
    for name in STRUCTURES:
        make = getattr(reader.pynvml, name, None)
        if make is not None:
            info = make()
            call = "nvmlDeviceGetGpuFabricInfoV"
            if reader.ask(call, ctypes.byref(info), key=name, soft=FIELD_SOFT) is not None:
                return info
    make = getattr(reader.pynvml, OLDEST, None)
    info = None if make is None else make()
    if info is None:
        return None
    call = "nvmlDeviceGetGpuFabricInfo"
    asked = reader.ask(call, ctypes.byref(info), key=OLDEST, soft=FIELD_SOFT)
    return None if asked is None else info


def _uuid(raw: "bytes") -> "str":
    text = "".join("%02x" % one for one in bytearray(raw))
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:32]))
