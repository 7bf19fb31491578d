"""NVMe disks: state, temperature, and the SMART / Health log that the controller keeps.

The log is read with the kernel's own pass-through (NVME_IOCTL_ADMIN_CMD, Get Log Page), which needs
root and changes nothing. A controller that does not answer costs its own device only.
"""

import ctypes
import fcntl
import os
import stat
import struct

from probes.node.context import Stuck

TYPE_CHECKING = False
if TYPE_CHECKING:
    from probes.node.context import Context

    Values = dict[str, object]

NAME = "nvme"
INTERVAL = "slow"
COUNTERS = False
METRICS = {
    "state": ("", "gauge", "live, connecting, resetting, deleting or dead"),
    "model": ("", "info", "model"),
    "firmware": ("", "info", "firmware"),
    "transport": ("", "info", "pcie; others are disks elsewhere"),
    "pci": ("", "info", "PCI address"),
    "temp_c": ("C", "gauge", "composite temperature"),
    "temp_warn_c": ("C", "info", "where the disk itself warns"),
    "temp_critical_c": ("C", "info", "where it may shut down"),
    "critical_warning": (
        "",
        "gauge",
        "bits of the SMART log: 1 spare, 2 heat, 4 worn, 8 read-only",
    ),
    "spare_percent": ("%", "gauge", "spare blocks left"),
    "spare_threshold_percent": ("%", "info", "where the disk calls them too few"),
    "used_percent": ("%", "gauge", "endurance used; may exceed 100"),
    "written_bytes": ("B", "gauge", "data written in its life"),
    "read_bytes": ("B", "gauge", "data read in its life"),
    "power_on_h": ("h", "gauge", "hours with power"),
    "unsafe_shutdowns": ("", "gauge", "times power went without a word"),
    "media_errors": ("", "gauge", "errors of the flash that could not be corrected"),
    "error_entries": ("", "gauge", "entries in its error log; commands it refused count too"),
    "warning_temp_min": ("min", "gauge", "time spent above the warning temperature"),
    "critical_temp_min": ("min", "gauge", "time spent above the critical temperature"),
    "smart_errno": ("", "gauge", "why the log could not be read; absent when it was"),
}

DISKS = 32
CLASS = "sys/class/nvme"

ADMIN_CMD = 0xC0484E41
"""_IOWR('N', 0x41, struct nvme_admin_cmd), linux/nvme_ioctl.h."""
GET_LOG_PAGE, SMART_LOG, ALL_NAMESPACES = 0x02, 0x02, 0xFFFFFFFF
RETAIN_EVENT = 1 << 15
"""Reading must not clear the event that tells the kernel of a warning (NVMe 1.3)."""
LOG_BYTES = 512
TIMEOUT_MS = 3000
"""Shorter than the agent's deadline; the kernel's own default is a minute."""

DATA_UNIT_BYTES = 512 * 1000
"""NVM Express Base Specification, SMART / Health Information."""
KELVIN = 273


def prepare(ctx: "Context") -> "None":
    """Say before the hello why there will be no SMART log."""
    for name in ctx.listdir(CLASS):
        path = ctx.path("dev", name)
        if os.path.exists(path) and not os.access(path, os.R_OK):
            ctx.missing["nvme_smart"] = "%s is for root only; use become" % path
            return


def collect(ctx: "Context") -> "tuple[dict[str, Values], list[Values]]":
    """A device for each controller: "nvme0"."""
    devices: "dict[str, Values]" = {"": {}}
    names = [name for name in ctx.listdir(CLASS) if name.startswith("nvme") and name[4:].isdigit()]
    for name in sorted(names, key=lambda one: int(one[4:]))[:DISKS]:
        values = _facts(ctx, name)
        values.update(_temperature(ctx, name))
        if values.get("transport", "pcie") == "pcie" and values.get("state", "live") == "live":
            values.update(_smart(ctx, name))
        devices[name] = values
    return devices, []


def _facts(ctx: "Context", name: "str") -> "Values":
    found: "Values" = {}
    places = (
        ("state", "state"), ("model", "model"), ("firmware", "firmware_rev"),
        ("transport", "transport"), ("pci", "address"),
    )  # fmt: skip
    for metric, place in places:
        text = (ctx.read(CLASS, name, place) or "").strip()
        if text:
            found[metric] = text[:64]
    return found


def _temperature(ctx: "Context", name: "str") -> "Values":
    """As hwmon shows it, to anybody; in thousandths of a degree."""
    for one in ctx.listdir(CLASS, name):
        if one.startswith("hwmon"):
            inside = [one] + ["%s/%s" % (one, deep) for deep in ctx.listdir(CLASS, name, one)[:8]]
            for place in inside:
                found = _hwmon(ctx, "%s/%s/%s" % (CLASS, name, place))
                if found:
                    return found
    return {}


def _hwmon(ctx: "Context", place: "str") -> "Values":
    found: "Values" = {}
    names = (("temp_c", "input"), ("temp_warn_c", "max"), ("temp_critical_c", "crit"))
    for metric, name in names:
        thousandths = ctx.read_int(place, "temp1_" + name)
        if thousandths is not None and thousandths > 0:
            found[metric] = thousandths // 1000
    return found


# ---------------------------------------------------------------------- SMART


def _smart(ctx: "Context", name: "str") -> "Values":
    path = ctx.path("dev", name)
    try:
        with ctx.busy("NVMe Get Log Page", name):
            return health(log_page(path))
    except Stuck:
        return {}
    except FileNotFoundError:
        return {}
    except OSError as error:
        return {"smart_errno": error.errno or 0}


def log_page(path: "str") -> "bytes":
    """The SMART log of a controller's character device. OSError when there is none."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISCHR(os.fstat(handle).st_mode):
            raise FileNotFoundError(path)
        page = ctypes.create_string_buffer(LOG_BYTES)
        what = SMART_LOG | RETAIN_EVENT | (LOG_BYTES // 4 - 1) << 16
        command = bytearray(struct.pack(
            "<BBHIIIQQIIIIIIIIII", GET_LOG_PAGE, 0, 0, ALL_NAMESPACES, 0, 0, 0,
            ctypes.addressof(page), 0, LOG_BYTES, what, 0, 0, 0, 0, 0, TIMEOUT_MS, 0,
        ))  # fmt: skip
        status = fcntl.ioctl(handle, ADMIN_CMD, command, True)
        if status:
            raise OSError(5, "NVMe status %#x" % status)
        return page.raw
    finally:
        os.close(handle)


def health(page: "bytes") -> "Values":
    """The SMART / Health Information log: 512 bytes, little-endian, counts of 16 bytes."""
    warning, kelvin, spare, threshold, used = struct.unpack_from("<BHBBB", page)
    found: "Values" = {
        "critical_warning": warning, "spare_percent": spare,
        "spare_threshold_percent": threshold, "used_percent": used,
    }  # fmt: skip
    if kelvin > KELVIN:
        found["temp_c"] = kelvin - KELVIN
    places = (
        ("read_bytes", 32, DATA_UNIT_BYTES), ("written_bytes", 48, DATA_UNIT_BYTES),
        ("power_on_h", 128, 1), ("unsafe_shutdowns", 144, 1), ("media_errors", 160, 1),
        ("error_entries", 176, 1),
    )  # fmt: skip
    for metric, at, scale in places:
        number = int.from_bytes(page[at : at + 16], "little") * scale
        if number < 1 << 63:
            found[metric] = number
    found["warning_temp_min"], found["critical_temp_min"] = struct.unpack_from("<II", page, 192)
    return found
