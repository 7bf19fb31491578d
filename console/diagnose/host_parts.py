"""systemctl, time daemons, sensors, BMC and DIMM lists of a host. Pure."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct, field

Row = dict[str, Any]

_UNIT = re.compile(
    r"^\s*(?:[●○×*↻]\s*)?(?P<unit>[\w@.:\\-]+\.(?:service|mount|socket|timer|target))\s+(?:-|loaded)"
)
_LOADED = re.compile(r"^\s+Loaded: (?P<loaded>\S+)(?: \([^;]*; (?P<enabled>[\w-]+))?")
_ACTIVE = re.compile(
    r"^\s+Active: (?P<state>\w+) \((?P<sub>[\w-]+)\)?(?:.*?Result: (?P<result>[\w-]+))?"
)
_LISTED = re.compile(
    r"^\s*(?:[●○×*↻]\s*)?(?P<unit>[\w@.:\\-]+\.(?:service|mount|socket|timer))\s+(?P<load>loaded|not-found|masked|error)\s+"
    r"(?P<state>active|inactive|failed|activating|deactivating)\s+(?P<sub>[\w-]+)\s"
)
SERVICES = {
    "nvidia-fabricmanager": "fabricmanager", "nvidia-persistenced": "persistenced",
    "nvidia-dcgm": "dcgm", "nvidia-imex": "imex", "slurmd": "slurmd", "munge": "munge",
    "kubelet": "kubelet", "containerd": "containerd", "docker": "docker", "chronyd": "chronyd",
    "ntpd": "ntpd", "systemd-timesyncd": "timesyncd", "opensmd": "opensm",
}  # fmt: skip

CHRONY = re.compile(r"^(?:Reference ID\s*:|Leap status\s*:|System time\s*:.*NTP time)")
_OFFSET = re.compile(r"^System time\s*:\s*([\d.]+) seconds (slow|fast) of NTP time")
_LEAP = re.compile(r"^Leap status\s*:\s*(.+?)\s*$")
_SYNC = re.compile(r"^\s*(?:System clock synchronized|NTP synchronized):\s*(yes|no)")
_SERVICE = re.compile(
    r"^\s*(?:NTP service|systemd-timesyncd.service active|Network time on):\s*(\S+)"
)

_SENSOR = re.compile(
    r"^(?P<name>[\w .+-]+?):\s+\+?(?P<now>-?[\d.]+) ?°?C\s*(?:\((?P<limits>[^)]*)\))?(?P<rest>.*)$"
)
_HIGH = re.compile(r"(?P<what>high|crit|max|emerg)\s*=\s*\+?(?P<limit>-?[\d.]+)")
_IPMI = re.compile(
    r"^(?P<name>[^|]{2,40}?)\s*\|\s*(?P<value>[^|]*?)\s*\|\s*(?P<unit>[^|]*?)\s*\|\s*(?P<state>[^|]*?)\s*(?:\||$)"
)
_IPMI_SDR = re.compile(
    r"^(?P<name>[^|]{2,40}?)\s*\|\s*(?P<value>[^|]*?)\s*\|\s*(?P<state>ok|ns|nc|cr|nr|lnc|lcr|unc|ucr|unr)\s*$"
)
_BAD_STATES = {"cr": "critical", "nr": "not recoverable", "lcr": "critical", "ucr": "critical",
               "lnr": "not recoverable", "unr": "not recoverable"}  # fmt: skip
_SEL = re.compile(r"^\s*[0-9a-f]+\s*\|\s*\d\d/\d\d/\d{2,4}\s*\|.*\|.*", re.IGNORECASE)
_SEL_BAD = re.compile(
    r"Uncorrectable|AC lost|Power Supply.*(?:Failure|lost|Fault)|Redundancy Lost|"
    r"Critical Interrupt|PCI SERR|Bus Fatal|Processor.*(?:Thermal Trip|IERR)|Non-recoverable|"
    r"Predictive Failure",
    re.IGNORECASE,
)
_DIMM = re.compile(
    r"^\s+(?P<key>Size|Locator|Speed|Configured (?:Memory|Clock) Speed|Part Number):\s*"
    r"(?P<value>.*\S)?"
)
ROWS = 5000


class Parts(Struct):
    """What was told."""

    services: dict[str, Row] = field(default_factory=dict)
    """Our name of the service (or the unit's) -> row of the services probe."""
    lines: dict[str, str] = field(default_factory=dict)
    time: dict[str, Any] = field(default_factory=dict)
    hot: list[tuple[str, float, float, str]] = field(default_factory=list)
    """Sensor, value, limit, line."""
    bmc: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    sensors: int = 0
    dimms: list[Row] = field(default_factory=list)


def looks_like(line: str) -> bool:
    """Whether one of the formats shows itself in this line."""
    return bool(
        _ACTIVE.match(line) or _LISTED.match(line) or CHRONY.match(line) or _SYNC.match(line)
        or _SEL.match(line) or _IPMI_SDR.match(line)
        or (_SENSOR.match(line) and ("high" in line or "crit" in line))
        or line.startswith(("Memory Device", "Getting SMBIOS data"))
        or (_IPMI.match(line) and re.search(r"degrees C|Volts|RPM|Watts|discrete", line))
    )  # fmt: skip


def read(lines: list[str]) -> Parts:
    """Line by line; each format knows its own."""
    found = Parts()
    unit = ""
    for line in lines[: ROWS * 20]:
        if named := _UNIT.match(line):
            unit = named["unit"]
        _service(line, unit, found)
        _time(line, found)
        _sensor(line, found)
        _dimm(line, found)
    return found


def _name(unit: str) -> str:
    plain = unit.rpartition(".")[0]
    return SERVICES.get(plain, plain)


def _service(line: str, unit: str, found: Parts) -> None:
    if listed := _LISTED.match(line):
        row = {"unit": listed["unit"], "state": listed["state"], "sub": listed["sub"]}
        _state(row, line, found)
        return
    if unit and (loaded := _LOADED.match(line)):
        found.services.setdefault(_name(unit), {"unit": unit, "service": _name(unit)})[
            "enabled"
        ] = loaded["enabled"] or loaded["loaded"]
    if unit and (active := _ACTIVE.match(line)):
        row = {"unit": unit, "state": active["state"], "sub": active["sub"]}
        if active["result"]:
            row["result"] = active["result"]
        _state(row, line, found)


def _state(row: Row, line: str, found: Parts) -> None:
    name = _name(str(row["unit"]))
    if len(found.services) >= ROWS:
        return
    known = found.services.setdefault(name, {"service": name})
    known |= {**row, "service": name, "running": row["state"] == "active"}
    found.lines.setdefault(name, line.strip())


def _time(line: str, found: Parts) -> None:
    if offset := _OFFSET.match(line):
        sign = -1 if offset[2] == "slow" else 1
        found.time |= {"daemon": "chronyd", "offset_s": sign * float(offset[1][:18])}
    if leap := _LEAP.match(line):
        found.time |= {"daemon": "chronyd", "synchronised": "not sync" not in leap[1].lower()}
    if sync := _SYNC.match(line):
        found.time["synchronised"] = sync[1] == "yes"
        found.time.setdefault("daemon", "time daemon")
    if (service := _SERVICE.match(line)) and service[1] in ("inactive", "no", "n/a"):
        found.time["daemon"] = "none"
    if CHRONY.match(line) or _SYNC.match(line):
        found.lines.setdefault("time", line.strip())


def _sensor(line: str, found: Parts) -> None:
    if sensor := _SENSOR.match(line):
        limits = [float(m["limit"][:8]) for m in _HIGH.finditer(sensor["limits"] or "")
                  if _decimal(m["limit"])]  # fmt: skip
        found.sensors += 1
        now = float(sensor["now"][:8]) if _decimal(sensor["now"]) else 0.0
        usable = [limit for limit in limits if 0 < limit < 200]
        if usable and now >= min(usable) and len(found.hot) < ROWS:
            found.hot.append((sensor["name"].strip(), now, min(usable), line.strip()))
        return
    for pattern in (_IPMI_SDR, _IPMI):
        match = pattern.match(line)
        if match is not None and not _SEL.match(line):
            found.sensors += 1
            if match["state"].lower() in _BAD_STATES and len(found.bmc) < ROWS:
                found.bmc.append(line.strip())
            return
    grave = _SEL.match(line) and _SEL_BAD.search(line) and "Deasserted" not in line
    if grave and len(found.events) < ROWS:
        found.events.append(line.strip())


def _decimal(text: str) -> bool:
    return re.fullmatch(r"-?\d+(?:\.\d+)?", text) is not None


def _dimm(line: str, found: Parts) -> None:
    if line.startswith("Memory Device") and len(found.dimms) < ROWS:
        found.dimms.append({})
    elif found.dimms and (told := _DIMM.match(line)):
        found.dimms[-1].setdefault(told["key"], (told["value"] or "")[:80])


def dimm_facts(found: Parts) -> dict[str, Any]:
    """Populated and empty slots, sizes and speeds."""
    full = [d for d in found.dimms if not d.get("Size", "No").startswith("No")]
    if not found.dimms:
        return {}
    return {
        "dimm_slots": len(found.dimms), "dimms": len(full),
        "dimm_sizes": sorted({d["Size"] for d in full}),
        "dimm_speeds": sorted({d.get("Configured Memory Speed", d.get("Configured Clock Speed",
                              d.get("Speed", "?"))) for d in full}),
    }  # fmt: skip
