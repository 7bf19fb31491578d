"""What a GPU is and how it is set up: names, firmware, modes, limits. Asked rarely.

All of it is optional: an old driver, a vGPU guest or a small card lacks many of these answers.
"""

from probes.node.context import Stuck
from probes.node.nvml_library import Failed
from probes.node.nvml_reader import field_id
from probes.node.pci import short_address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    from probes.node.nvml_library import Library
    from probes.node.nvml_reader import Reader

METRICS = {
    "name": ("", "info", "product name"),
    "uuid": ("", "info", "GPU-xxxxxxxx-..."),
    "serial": ("", "info", "board serial number"),
    "board_part": ("", "info", "board part number"),
    "minor": ("", "info", "N of /dev/nvidiaN"),
    "pci_device_id": ("", "info", "PCI device id, four hex digits"),
    "pci_subsystem_id": ("", "info", "PCI subsystem id, eight hex digits"),
    "vbios": ("", "info", "VBIOS version"),
    "inforom_image": ("", "info", "InfoROM image version"),
    "inforom_oem": ("", "info", "InfoROM version of the OEM object"),
    "inforom_ecc": ("", "info", "InfoROM version of the ECC object"),
    "inforom_power": ("", "info", "InfoROM version of the power object"),
    "gsp_version": ("", "info", "GSP firmware version"),
    "gsp_mode": ("", "info", "whether the driver runs on the GPU's own processor (GSP)"),
    "mig_mode": ("", "info", "whether MIG is on"),
    "mig_pending": ("", "info", "whether MIG will be on after the next reset"),
    "mig_instances": ("", "info", "MIG devices that are set up"),
    "virtualization_mode": ("", "info", "none, passthrough, vgpu, host_vgpu or host_vsga"),
    "host_vgpu_mode": ("", "info", "sriov or non_sriov, on a host that shares the GPU"),
    "compute_mode": ("", "info", "default, exclusive_thread, prohibited or exclusive_process"),
    "addressing_mode": ("", "info", "none, hmm or ats: how GPU and CPU see each other's memory"),
    "numa_node": ("", "info", "NUMA node of the GPU's own memory, where it is one (Grace)"),
    "persistence_mode": ("", "info", "whether the driver stays loaded without a client"),
    "power_default_w": ("W", "info", "power limit that the card is delivered with"),
    "power_min_w": ("W", "info", "lowest power limit that can be set"),
    "power_max_w": ("W", "info", "highest power limit that can be set"),
    "sm_clock_app_mhz": ("MHz", "info", "SM clock that applications get, where one is set"),
    "sm_clock_app_default_mhz": ("MHz", "info", "SM clock that applications get by default"),
    "temp_max_c": ("°C", "info", "highest operating temperature of the core"),
    "temp_slowdown_c": ("°C", "info", "core temperature at which the hardware slows down"),
    "temp_shutdown_c": ("°C", "info", "core temperature at which the hardware shuts down"),
    "mem_temp_max_c": ("°C", "info", "highest operating temperature of the memory"),
    "tlimit_max_c": ("°C", "info", "thermal margin at the highest operating temperature"),
    "tlimit_slowdown_c": ("°C", "info", "thermal margin at which the hardware slows down"),
    "tlimit_shutdown_c": ("°C", "info", "thermal margin at which the hardware shuts down"),
    "tlimit_mem_c": ("°C", "info", "thermal margin at the memory's highest temperature"),
}

VIRTUALIZATION = ("none", "passthrough", "vgpu", "host_vgpu", "host_vsga")
HOST_VGPU = ("non_sriov", "sriov")
COMPUTE = ("default", "exclusive_thread", "prohibited", "exclusive_process")
ADDRESSING = ("none", "hmm", "ats")
"""Names of the values of NVML's enumerations, in their order (nvml.h, API 13)."""

INFOROM = {"inforom_oem": 0, "inforom_ecc": 1, "inforom_power": 2}
THRESHOLDS = {"temp_shutdown_c": 0, "temp_slowdown_c": 1, "mem_temp_max_c": 2, "temp_max_c": 3}
PLAUSIBLE_C = (40, 130)
"""A threshold outside is a driver's way to say that it has none."""

TLIMITS = {
    "tlimit_shutdown_c": ("NVML_FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT", 193),
    "tlimit_slowdown_c": ("NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT", 194),
    "tlimit_mem_c": ("NVML_FI_DEV_TEMPERATURE_MEM_MAX_TLIMIT", 195),
    "tlimit_max_c": ("NVML_FI_DEV_TEMPERATURE_GPU_MAX_TLIMIT", 196),
}
CLOCK_SM = 1
MIG_MOST = 8
"""A GPU has seven MIG devices at most; the call may say anything."""
EXCLUDED_MOST = 16
TEXT_CHARS = 80


def read(reader: "Reader") -> "None":
    """Everything of one GPU."""
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
        board_part=_text(reader.ask("nvmlDeviceGetBoardPartNumber")),
    )
    _modes(reader)
    _firmware(reader)
    _limits(reader)


def _modes(reader: "Reader") -> "None":
    persistence = reader.ask("nvmlDeviceGetPersistenceMode")
    node = reader.ask("nvmlDeviceGetNumaNodeId")
    reader.put(
        persistence_mode=None if persistence is None else bool(persistence),
        virtualization_mode=_named(VIRTUALIZATION, reader.ask("nvmlDeviceGetVirtualizationMode")),
        host_vgpu_mode=_named(HOST_VGPU, reader.ask("nvmlDeviceGetHostVgpuMode")),
        compute_mode=_named(COMPUTE, reader.ask("nvmlDeviceGetComputeMode")),
        addressing_mode=_named(ADDRESSING, reader.ask("nvmlDeviceGetAddressingMode")),
        numa_node=None if node is None or node < 0 else int(node),
    )
    mig = reader.ask("nvmlDeviceGetMigMode")
    if mig is not None:
        reader.put(mig_mode=bool(mig[0]), mig_pending=bool(mig[1]))
        reader.mode_is("mig", bool(mig[0]))
        if mig[0]:
            reader.put(mig_instances=_instances(reader))


def _instances(reader: "Reader") -> "Optional[int]":
    """MIG devices that exist. An index without one is no fault."""
    most = reader.ask("nvmlDeviceGetMaxMigDeviceCount")
    if most is None:
        return None
    indices = range(min(int(most), MIG_MOST))
    found = [reader.ask("nvmlDeviceGetMigDeviceHandleByIndex", index) for index in indices]
    return sum(1 for handle in found if handle is not None)


def _firmware(reader: "Reader") -> "None":
    mode = reader.ask("nvmlDeviceGetGspFirmwareMode")
    reader.put(
        vbios=reader.ask("nvmlDeviceGetVbiosVersion"),
        inforom_image=_text(reader.ask("nvmlDeviceGetInforomImageVersion")),
        gsp_version=_text(reader.ask("nvmlDeviceGetGspFirmwareVersion")),
        gsp_mode=None if mode is None else bool(mode[0]),
    )
    for name, part in INFOROM.items():
        reader.put(**{name: _text(reader.ask("nvmlDeviceGetInforomVersion", part))})


def _limits(reader: "Reader") -> "None":
    """Thresholds in degrees; where the card has T.Limit offsets, those too."""
    span_mw = reader.ask("nvmlDeviceGetPowerManagementLimitConstraints")
    if span_mw is not None:
        reader.put(power_min_w=span_mw[0] / 1000.0, power_max_w=span_mw[1] / 1000.0)
    default_mw = reader.ask("nvmlDeviceGetPowerManagementDefaultLimit")
    reader.put(
        power_default_w=None if default_mw is None else default_mw / 1000.0,
        sm_clock_app_mhz=reader.ask("nvmlDeviceGetApplicationsClock", CLOCK_SM),
        sm_clock_app_default_mhz=reader.ask("nvmlDeviceGetDefaultApplicationsClock", CLOCK_SM),
    )
    for name, kind in THRESHOLDS.items():
        limit_c = reader.ask("nvmlDeviceGetTemperatureThreshold", kind)
        if limit_c is not None and PLAUSIBLE_C[0] <= int(limit_c) <= PLAUSIBLE_C[1]:
            reader.put(**{name: int(limit_c)})
    ids = {name: (field_id(reader.pynvml, *field), 0) for name, field in TLIMITS.items()}
    found = reader.fields(ids.values())
    reader.put(**{name: found.get(field) for name, field in ids.items()})


def confidential(library: "Library") -> "Dict[str, Any]":
    """Confidential computing of the node; {} where the driver knows no such thing."""
    state = _system(library, "nvmlSystemGetConfComputeState")
    if state is None:
        return {}
    mode = "on" if state.ccFeature else "off"
    values: "Dict[str, Any]" = {"cc_mode": "devtools" if state.devToolsMode else mode}
    if state.ccFeature:
        ready = _system(library, "nvmlSystemGetConfComputeGpusReadyState")
        if ready is not None:
            values["cc_ready"] = bool(ready)
    return values


def excluded(library: "Library") -> "List[str]":
    """Addresses of GPUs the driver was told to leave alone (NVreg_ExcludedGpus)."""
    count = _system(library, "nvmlGetExcludedDeviceCount") or 0
    infos = [
        _system(library, "nvmlGetExcludedDeviceInfoByIndex", index)
        for index in range(min(int(count), EXCLUDED_MOST))
    ]
    return [short_address(_text(info.pci.busId) or "") for info in infos if info is not None]


def _system(library: "Library", name: "str", *args: "Any") -> "Any":
    try:
        return library.call(name, *args)
    except (Failed, Stuck):
        return None


def _text(value: "Any") -> "Optional[str]":
    """Text of a driver; some bindings leave it as bytes, some drivers say "N/A" instead."""
    if isinstance(value, bytes):
        value = value.decode("ascii", "replace")
    text = str(value or "").strip("\0 ")[:TEXT_CHARS]
    return text if text and text != "N/A" else None


def _named(names: "tuple[str, ...]", value: "Any") -> "Optional[str]":
    """The name of an enumeration's value; its number where it is a new one."""
    if value is None:
        return None
    return names[int(value)] if 0 <= int(value) < len(names) else str(int(value))
