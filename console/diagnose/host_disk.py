"""df, mount, free, smartctl and nvme smart-log as the samples of the console's own probes. Pure."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct, field

Values = dict[str, Any]

DF = re.compile(
    r"^Filesystem\s+(?:Type\s+)?(?:\S*[Bb]locks|Size|Inodes|1[BKMGT])\S*\s+(?:Used|IUsed)\s"
)
_DF_ERROR = re.compile(r"^df: '?(?P<place>/[^':]*)'?: (?P<why>.*)$")
_MOUNT = re.compile(
    r"^(?P<source>\S+) on (?P<place>/\S*) type (?P<type>[\w.]+) \((?P<options>[^)]*)\)"
)
FREE = re.compile(r"^\s+total\s+used\s+free\s+shared\s+buff/cache\s+available")
_FREE_ROW = re.compile(r"^(?P<what>Mem|Swap):\s+(?P<cells>.*)$")
_MEMINFO = re.compile(
    r"^(?P<what>MemTotal|MemAvailable|SwapTotal|SwapFree):\s+(?P<kib>\d{1,15}) kB"
)
_RAID = re.compile(r"^(?P<name>md\w+) : active (?:\(.*?\) )?(?P<level>raid\d+)")
_RAID_DISKS = re.compile(r"\[(?P<want>\d{1,4})/(?P<have>\d{1,4})\] \[[U_]+\]")
_ERRNO = {
    "Stale file handle": "ESTALE", "Stale NFS file handle": "ESTALE", "Input/output error": "EIO",
    "Transport endpoint is not connected": "ENOTCONN", "Connection timed out": "ETIMEDOUT",
    "Host is down": "EHOSTDOWN", "Cannot send after transport endpoint shutdown": "ESHUTDOWN",
    "No such device": "ENODEV",
}  # fmt: skip
_NETWORK = ("nfs", "nfs4", "lustre", "cifs", "ceph", "gpfs", "beegfs", "fuse.glusterfs")
_UNITS = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}

SMART = re.compile(r"^(?:smartctl \d|=== START OF|SMART/Health Information|"
                   r"Smart Log for NVME device|"
                   r"SMART overall-health|SMART Health Status)", re.IGNORECASE)  # fmt: skip
_SMART = {
    "critical warning": "critical_warning", "temperature": "temp_c",
    "available spare": "spare_percent", "available spare threshold": "spare_threshold_percent",
    "percentage used": "used_percent", "media and data integrity errors": "media_errors",
    "media_errors": "media_errors", "critical_warning": "critical_warning",
    "available_spare": "spare_percent", "available_spare_threshold": "spare_threshold_percent",
    "percentage_used": "used_percent", "power on hours": "power_on_h",
    "unsafe shutdowns": "unsafe_shutdowns", "num_err_log_entries": "error_entries",
    "error information log entries": "error_entries",
}  # fmt: skip
_ATTRIBUTE = re.compile(
    r"^\s*(?P<id>5|187|188|197|198|199)\s+(?P<name>\w+)\s+0x\w+\s+.*\s(?P<raw>\d+)(?:\s\(.*\))?\s*$"
)
PLACES = 2000


class Disks(Struct):
    """All that was told of file systems, memory and disks."""

    places: dict[str, Values] = field(default_factory=dict)
    """Mount point -> values of the storage probe."""
    nvme: dict[str, Values] = field(default_factory=dict)
    memory: Values = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    """Disk -> line in which SMART gives it up."""
    sectors: dict[str, list[str]] = field(default_factory=dict)
    """Disk -> lines of attributes that count bad sectors, above zero."""
    lines: dict[str, str] = field(default_factory=dict)


def looks_like(line: str) -> bool:
    """Whether one of the formats begins here."""
    return bool(DF.match(line) or FREE.match(line) or SMART.match(line) or _MOUNT.match(line)
                or _DF_ERROR.match(line) or _MEMINFO.match(line) or _RAID.match(line))  # fmt: skip


def read(lines: list[str]) -> Disks:
    """All of them, wherever they stand."""
    found = Disks()
    columns: list[str] = []
    memory = False
    disk = raid = ""
    for line in lines:
        if DF.match(line):
            columns = line.replace("Mounted on", "Mounted").split()
            continue
        memory = bool(FREE.match(line)) or memory
        disk = _smart(line, disk, found)
        raid = _raid(line, raid, found)
        if meminfo := _MEMINFO.match(line):
            _meminfo(meminfo, found)
        elif mount := _MOUNT.match(line):
            _mounted(mount, line, found)
        elif error := _DF_ERROR.match(line):
            _broken(error, line, found)
        elif memory and (row := _FREE_ROW.match(line)):
            _free(row, found)
        elif columns:
            _df(line, columns, found)
    return found


def _raid(line: str, name: str, found: Disks) -> str:
    """/proc/mdstat: the array that the following line is about."""
    if array := _RAID.match(line):
        found.places.setdefault(array["name"], {"raid_level": array["level"]})
        return array["name"]
    if name and (disks := _RAID_DISKS.search(line)):
        told = {"raid_disks": int(disks["want"]), "raid_working": int(disks["have"])}
        found.places[name] |= told
        found.lines[name] = line.strip()
        return ""
    return name


def _size(text: str, unit: int) -> int | None:
    match = re.fullmatch(r"(\d{1,18}(?:\.\d+)?)([BKMGTP]?)i?B?", text, re.IGNORECASE)
    if match is None:
        return None
    suffix = match[2].upper()
    return int(float(match[1]) * (_UNITS[suffix] if suffix else unit))


def _df(line: str, columns: list[str], found: Disks) -> None:
    cells = line.split(None, len(columns) - 1)
    if len(cells) < len(columns) or not cells[-1].startswith("/") or len(found.places) >= PLACES:
        return
    told = dict(zip(columns, cells, strict=False))
    place = told["Mounted"]
    values = found.places.setdefault(place, {"mounted": True})
    kind = told.get("Type", "")
    values.setdefault("source", told["Filesystem"])
    values.setdefault("fstype", kind or "?")
    values.setdefault("network", kind in _NETWORK or ":/" in told["Filesystem"])
    found.lines.setdefault(place, line.strip())
    unit = 1 << 20 if any("1M" in c for c in columns) else 1024
    if "Inodes" in columns:
        total, free = _size(told["Inodes"], 1), _size(told.get("IFree", ""), 1)
        values |= {k: v for k, v in (("inodes", total), ("inodes_free", free)) if v is not None}
        return
    total, _, free = (_size(cell, unit) for cell in cells[-5:-2])
    percent = told.get("Use%", told.get("Capacity", "")).rstrip("%")
    values |= {k: v for k, v in (("size_bytes", total), ("free_bytes", free)) if v is not None}
    if percent.isdecimal():
        values["used_percent"] = float(percent[:4])


def _mounted(match: re.Match[str], line: str, found: Disks) -> None:
    if len(found.places) >= PLACES:
        return
    options = match["options"].split(",")
    values = found.places.setdefault(match["place"], {"mounted": True})
    values |= {"fstype": match["type"], "source": match["source"], "read_only": "ro" in options,
               "network": match["type"] in _NETWORK}  # fmt: skip
    if "ro" in options and "errors=remount-ro" in options:
        values["kernel_stopped_writing"] = True
    found.lines.setdefault(match["place"], line.strip())


def _broken(match: re.Match[str], line: str, found: Disks) -> None:
    code = next((code for words, code in _ERRNO.items() if words in match["why"]), "")
    if not code or len(found.places) >= PLACES:
        return
    values = found.places.setdefault(match["place"], {"mounted": True})
    values.setdefault("fstype", "?")
    values.setdefault("source", "?")
    values["error"] = code
    found.lines[match["place"]] = line.strip()


def _free(row: re.Match[str], found: Disks) -> None:
    sizes = [_size(cell, 1024) for cell in row["cells"].split()]
    if row["what"] == "Mem" and len(sizes) >= 6 and sizes[0] and sizes[5] is not None:
        found.memory |= {"mem_total_bytes": sizes[0], "mem_available_bytes": sizes[5]}
        found.lines["memory"] = row[0].strip()
    elif row["what"] == "Swap" and len(sizes) >= 2 and sizes[0] is not None:
        found.memory |= {"swap_total_bytes": sizes[0], "swap_used_bytes": sizes[1] or 0}


def _meminfo(match: re.Match[str], found: Disks) -> None:
    names = {"MemTotal": "mem_total_bytes", "MemAvailable": "mem_available_bytes",
             "SwapTotal": "swap_total_bytes"}  # fmt: skip
    if match["what"] in names:
        found.memory[names[match["what"]]] = int(match["kib"]) * 1024


def _smart(line: str, disk: str, found: Disks) -> str:
    """The disk that the following lines are about."""
    if named := re.search(
        r"(?:Smart Log for NVME device:\s*|smartctl.*?/dev/|^Device: +/dev/)(\w+)", line
    ):
        return named[1]
    if model := re.match(r"^(?:Model Number|Device Model):\s+(.*\S)", line):
        disk = disk or "disk"
        found.nvme.setdefault(disk, {})["model"] = model[1][:60]
    if re.match(r"^SMART (?:overall-health|Health Status).*(?:FAIL|BAD)", line, re.IGNORECASE):
        found.failed[disk or "disk"] = line.strip()
    attribute = _ATTRIBUTE.match(line)
    if attribute is not None and int(attribute["raw"][:15]) > 0 and attribute["id"] != "199":
        found.sectors.setdefault(disk or "disk", []).append(line.strip())
    if told := re.match(
        r"^([A-Za-z][\w ]+?)\s*:\s+(0x[0-9a-fA-F]+|[\d,]+)(?:\s*(?:%|Celsius|°?C))?", line
    ):
        name = _SMART.get(told[1].strip().lower())
        if name is not None:
            number = told[2].replace(",", "")
            base = 16 if number.startswith("0x") else 10
            value = int(number[:18], base)
            found.nvme.setdefault(disk or "disk", {}).setdefault(name, value)
            found.lines.setdefault(f"{disk or 'disk'} {name}", line.strip())
    return disk


def smart_json(value: Any, found: Disks) -> bool:
    """`smartctl -j`; whether it was one."""
    if not isinstance(value, dict) or "smartctl" not in value:
        return False
    device = value.get("device")
    name = str(device.get("name", "disk")) if isinstance(device, dict) else "disk"
    name = name.rsplit("/", 1)[-1][:32] or "disk"
    log = value.get("nvme_smart_health_information_log")
    log = log if isinstance(log, dict) else {}
    names = {"critical_warning": "critical_warning", "temperature": "temp_c",
             "available_spare": "spare_percent", "percentage_used": "used_percent",
             "available_spare_threshold": "spare_threshold_percent",
             "media_errors": "media_errors"}  # fmt: skip
    told = {new: log[old] for old, new in names.items()
            if isinstance(log.get(old), int) and not isinstance(log.get(old), bool)}  # fmt: skip
    found.nvme[name] = {**told, "model": str(value.get("model_name", ""))[:60]}
    status = value.get("smart_status")
    if isinstance(status, dict) and status.get("passed") is False:
        found.failed[name] = "smart_status passed: false"
    return True
