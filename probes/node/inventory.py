"""Probe "inventory": what each GPU is, which driver runs, and whether NVML and the bus agree.

Device "" holds the node's own facts; one row per GPU on the PCI bus says whether NVML has it too.
"""

from probes.node.context import Stuck
from probes.node.nvml_library import Failed
from probes.node.nvml_reader import each_gpu
from probes.node.pci import DEVICES, config_ok, driver, is_gpu, nvidia_gpus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Set, Tuple

    from probes.node.context import Context
    from probes.node.nvml_library import Library
    from probes.node.nvml_reader import Reader

NAME = "inventory"
INTERVAL = "rare"
COUNTERS = False
METRICS = {
    "index": ("", "info", "NVML's index"),
    "name": ("", "info", "product name"),
    "uuid": ("", "info", "GPU-xxxxxxxx-..."),
    "serial": ("", "info", "board serial number"),
    "pci_device_id": ("", "info", "PCI device id, four hex digits"),
    "pci_subsystem_id": ("", "info", "PCI subsystem id, eight hex digits"),
    "vbios": ("", "info", "VBIOS version"),
    "mig_mode": ("", "info", "whether MIG is on"),
    "persistence_mode": ("", "info", "whether the driver stays loaded without a client"),
    "minor": ("", "info", "N of /dev/nvidiaN"),
    "driver_version": ("", "info", "driver version"),
    "cuda_version": ("", "info", "highest CUDA version of the driver"),
    "nvml_version": ("", "info", "version of the NVML library"),
    "gpu_count": ("", "gauge", "GPUs that NVML counts"),
    "pci_gpu_count": ("", "gauge", "NVIDIA GPUs on the PCI bus that are not given to a guest"),
    "nvml_library": ("", "gauge", "whether libnvidia-ml.so.1 was found"),
    "nvml_rc": ("", "gauge", "return code of the call that failed; absent when none did"),
    "nvml_call": ("", "info", "the call that failed"),
}


def collect(ctx: "Context") -> "Tuple[Dict[str, Dict[str, Any]], List[Dict[str, Any]]]":
    """Rare and thorough: looks up all handles again."""
    try:
        devices = each_gpu(ctx, _read, fresh=True)
    except Stuck:
        devices = {}
    devices[""] = _node(ctx)
    return devices, _bus_rows(ctx, _listed(ctx))


def _read(reader: "Reader") -> "None":
    info = reader.gpu.info
    if info is not None:
        reader.put(
            pci_device_id="%04x" % (info.pciDeviceId >> 16),
            pci_subsystem_id="%08x" % info.pciSubSystemId,
        )
    reader.put(
        minor=reader.ask("nvmlDeviceGetMinorNumber"),
        name=reader.ask("nvmlDeviceGetName"),
        uuid=reader.ask("nvmlDeviceGetUUID"),
        serial=reader.ask("nvmlDeviceGetSerial"),
        vbios=reader.ask("nvmlDeviceGetVbiosVersion"),
    )
    _modes(reader)


def _modes(reader: "Reader") -> "None":
    persistence = reader.ask("nvmlDeviceGetPersistenceMode")
    reader.put(persistence_mode=None if persistence is None else bool(persistence))
    mig = reader.ask("nvmlDeviceGetMigMode")
    if mig is not None:
        reader.put(mig_mode=bool(mig[0]))
        reader.mode_is("mig", bool(mig[0]))


def _node(ctx: "Context") -> "Dict[str, Any]":
    """Versions, both counts, and why NVML does not answer when it does not."""
    values: "Dict[str, Any]" = {"pci_gpu_count": len(nvidia_gpus(ctx))}
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


def _bus_rows(ctx: "Context", listed: "Optional[Set[str]]") -> "List[Dict[str, Any]]":
    """One row per GPU on the bus. in_nvml is False for a card that NVML does not list at all."""
    rows = []
    for address in ctx.listdir(DEVICES):
        if not is_gpu(ctx, address):
            continue
        row: "Dict[str, Any]" = {"pci": address}
        if listed is not None:
            row["in_nvml"] = address in listed
        device_id = ctx.read(DEVICES, address, "device")
        alive = config_ok(ctx, address)
        name = driver(ctx, address)
        if device_id:
            row["device_id"] = device_id.replace("0x", "", 1).lower()
        if alive is not None:
            row["config_ok"] = alive
        if name is not None:
            row["driver"] = name
        rows.append(row)
    return rows
