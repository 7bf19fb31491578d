"""Probe "inventory": what each GPU is, which driver runs, and whether NVML and the bus agree.

Device "" holds the node's own facts; one row per GPU on the PCI bus says whether NVML has it too.
What is fixed for a card as long as the driver is loaded (limits, thresholds, firmware) is here.
"""

import os

from probes.node import confined, identity
from probes.node.context import Stuck
from probes.node.nvml_library import Failed
from probes.node.nvml_reader import each_gpu
from probes.node.pci import DEVICES, config_ok, driver, is_gpu, nvidia_gpus
from probes.node.slots import slots

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Set, Tuple

    from probes.node.context import Context
    from probes.node.nvml_library import Library

NAME = "inventory"
INTERVAL = "rare"
COUNTERS = False
METRICS = dict(
    identity.METRICS,
    index=("", "info", "NVML's index"),
    slot=("", "info", "physical slot of the card, as the firmware calls it"),
    driver_version=("", "info", "driver version"),
    driver_loaded=("", "gauge", "whether the kernel has the nvidia module"),
    device_files=("", "gauge", "whether /dev/nvidiactl is there"),
    cuda_version=("", "info", "highest CUDA version of the driver"),
    nvml_version=("", "info", "version of the NVML library"),
    gpu_count=("", "gauge", "GPUs that NVML counts"),
    pci_gpu_count=("", "gauge", "NVIDIA GPUs on the PCI bus that are not given to a guest"),
    excluded_gpus=("", "info", "addresses of GPUs that the driver was told to leave alone"),
    nvml_library=("", "gauge", "whether libnvidia-ml.so.1 was found"),
    confined=("", "info", "what may hide GPUs from this login: a container, or a job's cgroup"),
    cc_mode=("", "info", "confidential computing: on, off or devtools"),
    cc_ready=("", "gauge", "whether the GPUs take work in confidential computing mode"),
    nvml_rc=("", "gauge", "return code of the call that failed; absent when none did"),
    nvml_call=("", "info", "the call that failed"),
)


def collect(ctx: "Context") -> "Tuple[Dict[str, Dict[str, Any]], List[Dict[str, Any]]]":
    """Rare and thorough: looks up all handles again."""
    try:
        devices = each_gpu(ctx, identity.read, fresh=True)
    except Stuck:
        devices = {}
    known = slots(ctx)
    for device, values in devices.items():
        if device[:-2] in known:
            values["slot"] = known[device[:-2]]
    devices[""] = _node(ctx)
    return devices, _bus_rows(ctx, _listed(ctx), known)


def _node(ctx: "Context") -> "Dict[str, Any]":
    """Versions, both counts, and why NVML does not answer when it does not."""
    values: "Dict[str, Any]" = {
        "pci_gpu_count": len(nvidia_gpus(ctx)),
        "driver_loaded": bool(ctx.listdir("sys/module/nvidia")),
        "device_files": os.path.exists(ctx.path("dev/nvidiactl")),
    }
    where = confined.where(ctx)
    if where:
        values["confined"] = where
    library = ctx.nvml
    if library is None:
        values["nvml_library"] = False
        return values
    try:
        values["gpu_count"] = int(library.call("nvmlDeviceGetCount"))
    except Failed as failure:
        values.update(nvml_rc=failure.rc, nvml_call=failure.call)
    except Stuck:
        pass
    if library.found is not None:
        values["nvml_library"] = library.found
    values.update(_versions(ctx, library))
    values.update(identity.confidential(library))
    excluded = identity.excluded(library)
    if excluded:
        values["excluded_gpus"] = " ".join(excluded)
    return values


def _versions(ctx: "Context", library: "Library") -> "Dict[str, Any]":
    values = {
        "driver_version": _system(library, "nvmlSystemGetDriverVersion") or _module_version(ctx),
        "nvml_version": _system(library, "nvmlSystemGetNVMLVersion"),
    }
    cuda = _system(library, "nvmlSystemGetCudaDriverVersion")
    if isinstance(cuda, int) and cuda > 0:
        values["cuda_version"] = "%d.%d" % (cuda // 1000, cuda % 1000 // 10)
    return {name: value for name, value in values.items() if value}


def _system(library: "Library", name: "str") -> "Any":
    try:
        return library.call(name)
    except (Failed, Stuck):
        return None


def _module_version(ctx: "Context") -> "Optional[str]":
    """The loaded kernel module's version: known even when library and driver do not fit."""
    return ctx.read("sys/module/nvidia/version")


def _listed(ctx: "Context") -> "Optional[Set[str]]":
    """Addresses NVML knows, lost and stuck ones included; None when NVML does not answer."""
    try:
        return None if ctx.nvml is None else {gpu.key for gpu in ctx.nvml.gpus()}
    except (Failed, Stuck):
        return None


def _bus_rows(
    ctx: "Context", listed: "Optional[Set[str]]", known: "Dict[str, str]"
) -> "List[Dict[str, Any]]":
    """One row per GPU on the bus. in_nvml is False for a card that NVML does not list at all.

    `driver` is "" for a card that no driver has taken.
    """
    rows = []
    for address in ctx.listdir(DEVICES):
        if not is_gpu(ctx, address):
            continue
        row: "Dict[str, Any]" = {"pci": address, "driver": driver(ctx, address) or ""}
        if listed is not None:
            row["in_nvml"] = address in listed
        device_id = ctx.read(DEVICES, address, "device")
        if device_id:
            row["device_id"] = device_id.replace("0x", "", 1).lower()
        if address[:-2] in known:
            row["slot"] = known[address[:-2]]
        alive = config_ok(ctx, address)
        if alive is not None:
            row["config_ok"] = alive
        rows.append(row)
    return rows
