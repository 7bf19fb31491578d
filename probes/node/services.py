"""Probe "services": the daemons a GPU node lives on, as systemd sees them, else as /proc does.

One bounded `systemctl show` an answer, and only where systemd runs the node (sd_booted(3)). What it
does not know (a driver container's fabric manager, another init system) is looked for among the
processes. A service that is neither known nor running has no row.
"""

import os
import re

from probes.node.context import Stuck, plain
from probes.node.tool import Patience, read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

    from probes.node.context import Call, Context

    Row = Dict[str, Any]

NAME = "services"
INTERVAL = "slow"
COUNTERS = False
METRICS = {
    "manager": ("", "info", "who told: systemd, or proc where only processes could be seen"),
    "sees_processes": ("", "info", "whether a daemon that is not among the processes is not there"),
    "systemctl_timeout": ("", "gauge", "systemd did not answer within the limit"),
    "systemctl_limit_s": ("s", "gauge", "that limit; time in which it got no CPU does not count"),
    "restarts_fabricmanager": ("", "counter", "automatic restarts, likewise for each service"),
    "fabricmanager_log": ("", "info", "last error of its log, where fabric manager does not run"),
    "service": ("", "info", "our name of the service"),
    "unit": ("", "info", "the unit, where systemd knows one"),
    "running": ("", "gauge", "the daemon runs"),
    "state": ("", "gauge", "systemd's ActiveState"),
    "sub": ("", "gauge", "systemd's SubState"),
    "enabled": ("", "info", "systemd's UnitFileState"),
    "result": ("", "gauge", "how the unit ended, when not in success"),
    "started_s": ("s", "gauge", "when its main process started, on the node's monotonic clock"),
}

SERVICES = {
    "fabricmanager": (("nvidia-fabricmanager.service",), ("nv-fabricmanager",)),
    "persistenced": (("nvidia-persistenced.service",), ("nvidia-persistenced",)),
    "imex": (("nvidia-imex.service",), ("nvidia-imex",)),
    "dcgm": (("nvidia-dcgm.service", "dcgm.service"), ("nv-hostengine",)),
    "nvsm": (("nvsm.service",), ("nvsm_core", "nvsm-core")),
    "slurmd": (("slurmd.service",), ("slurmd",)),
    "munge": (("munge.service",), ("munged",)),
    "kubelet": (
        ("kubelet.service", "k3s.service", "k3s-agent.service", "rke2-agent.service"),
        ("kubelet", "k3s-agent", "k3s-server"),
    ),
    "containerd": (("containerd.service",), ("containerd",)),
    "docker": (("docker.service",), ("dockerd",)),
    "crio": (("crio.service",), ("crio",)),
    "chronyd": (("chronyd.service", "chrony.service"), ("chronyd",)),
    "ntpd": (("ntpd.service", "ntp.service", "ntpsec.service"), ("ntpd",)),
    "timesyncd": (("systemd-timesyncd.service",), ("systemd-timesyncd",)),
    "opensm": (("opensm.service", "opensmd.service"), ("opensm",)),
}
"""Our name -> units in order of preference, names of the process."""

for _service in SERVICES:  # one counter a service: derive.py makes rates of counters only
    METRICS["restarts_" + _service] = ("", "counter", "automatic restarts of this service")

PROPERTIES = "Id,Names,LoadState,ActiveState,SubState,UnitFileState,NRestarts,Result" + (
    ",ExecMainStartTimestampMonotonic"
)
BOOTED = "run/systemd/system"
"""Exists where systemd is the init system: sd_booted(3)."""
BUS = "run/dbus/system_bus_socket"

FABRIC_LOG = "var/log/fabricmanager.log"
FABRIC_ERROR = re.compile(r"\[ERROR\]|n't match|mismatch|\bfatal\b|failed", re.IGNORECASE)
LOG_BYTES = 16384
LOG_CHARS = 250

LIMIT_S = 4.0
"""systemctl answers in 10 to 30 ms; below the deadline of a call, so that /proc is still asked."""
OUTPUT_BYTES = 65536
"""25 units with 8 properties are 6 KB."""
NAMES_MAX = 16
PIDS_MAX = 40000
COMM_CHARS = 15
"""TASK_COMM_LEN of Linux less its final zero."""
TEXT_CHARS = 64


def collect(ctx: "Context") -> "Tuple[Dict[str, Dict[str, Any]], List[Row]]":
    """Device "" and one row for each service that is known here."""
    values: "Dict[str, Any]" = {"sees_processes": _sees_processes(ctx)}
    units = _units(ctx, values)
    values["manager"] = "proc" if units is None else "systemd"
    running = _processes(ctx)
    rows = []
    for service, (names, _) in SERVICES.items():
        row = _row(service, _best([(units or {}).get(name) for name in names]), service in running)
        if row is not None:
            restarts = row.pop("restarts", None)
            if restarts is not None:
                values["restarts_" + service] = restarts
            rows.append(row)
    if not any(row["service"] == "fabricmanager" and row["running"] for row in rows):
        complaint = _complaint(ctx)
        if complaint:
            values["fabricmanager_log"] = complaint
    return {"": values}, rows


def _complaint(ctx: "Context") -> "str":
    """The last error in the fabric manager's log: it says why it did not stay. "" without one."""
    try:
        with plain(ctx.path(FABRIC_LOG)) as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - LOG_BYTES))
            lines = log.read(LOG_BYTES).decode("utf-8", "replace").splitlines()
    except (OSError, ValueError):
        return ""
    bad = [line for line in lines if FABRIC_ERROR.search(line)]
    return bad[-1].strip()[:LOG_CHARS] if bad else ""


def _row(service: "str", unit: "Optional[Dict[str, str]]", process: "bool") -> "Optional[Row]":
    row: "Row" = {"service": service}
    if unit is not None:
        row.update(
            unit=unit["Id"],
            state=unit.get("ActiveState", ""),
            sub=unit.get("SubState", ""),
            enabled=unit.get("UnitFileState", ""),
        )
        if unit.get("Result", "success") != "success":
            row["result"] = unit["Result"]
        if unit.get("NRestarts", "").isdecimal():
            row["restarts"] = int(unit["NRestarts"])
        started = unit.get("ExecMainStartTimestampMonotonic", "")
        if started.isdecimal() and int(started):
            row["started_s"] = int(started) / 1e6
    elif not process:
        return None
    row["running"] = process or row.get("state") == "active"
    return row


def _best(units: "List[Optional[Dict[str, str]]]") -> "Optional[Dict[str, str]]":
    """An active one, else the first that is installed."""
    known = [unit for unit in units if unit and unit.get("LoadState") not in ("not-found", "")]
    active = [unit for unit in known if unit.get("ActiveState") == "active"]
    first = active or known
    return first[0] if first else None


# ---------------------------------------------------------------------- systemd


def _units(ctx: "Context", values: "Dict[str, Any]") -> "Optional[Dict[str, Dict[str, str]]]":
    """What systemd says of all units by name; None where it is not there or does not answer."""
    if not os.path.isdir(ctx.path(BOOTED)):
        return None
    names = [unit for units, _ in SERVICES.values() for unit in units]
    try:
        with ctx.busy("systemctl show", "systemctl") as call:
            text = _systemctl(ctx, call, ["show", "--property=" + PROPERTIES] + names)
    except (OSError, Stuck) as error:
        ctx.missing["services"] = "systemctl did not run: %s" % error
        return None
    if text is None:
        values["systemctl_timeout"], values["systemctl_limit_s"] = True, LIMIT_S
        return None
    return parsed(text)


def parsed(text: "str") -> "Optional[Dict[str, Dict[str, str]]]":
    """Blocks of NAME=VALUE parted by empty lines, by each name of the unit; None without any.

    Two names of one unit (chrony, chronyd) may give one block or two.
    """
    found: "Dict[str, Dict[str, str]]" = {}
    for block in text.strip("\n").split("\n\n"):
        pairs = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        unit = {key: value[:TEXT_CHARS] for key, value in pairs.items()}
        if unit.get("Id"):
            for name in (pairs.get("Names") or pairs["Id"]).split()[:NAMES_MAX]:
                found[name] = unit
    return found or None


def _systemctl(ctx: "Context", call: "Call", words: "List[str]") -> "Optional[str]":
    """Its output, cut at OUTPUT_BYTES; None past LIMIT_S. Raises OSError."""
    import subprocess

    environment = dict(os.environ, LC_ALL="C", SYSTEMD_PAGER="", SYSTEMD_COLORS="0")
    if os.path.realpath(ctx.root) != "/":  # the host's systemd, not the container's own
        environment.update(
            SYSTEMCTL_FORCE_BUS="1", DBUS_SYSTEM_BUS_ADDRESS="unix:path=" + ctx.path(BUS)
        )
    child = subprocess.Popen(
        ["systemctl", "--no-pager"] + words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, env=environment,
    )  # fmt: skip
    call.tool = Patience(child.pid, LIMIT_S, ctx.timer())
    assert child.stdout is not None
    try:
        raw, in_time = read(child.stdout.fileno(), call.tool, OUTPUT_BYTES)
        return raw[:OUTPUT_BYTES].decode("utf-8", "replace") if in_time else None
    finally:
        child.stdout.close()
        child.kill()
        try:
            child.wait(0.5)
        except subprocess.TimeoutExpired:
            pass


# ---------------------------------------------------------------------- processes


def _processes(ctx: "Context") -> "Dict[str, str]":
    """Our name -> pid of the services among the processes."""
    wanted = {}
    for service, (_, programs) in SERVICES.items():
        wanted.update({program[:COMM_CHARS]: (service, program) for program in programs})
    found: "Dict[str, str]" = {}
    for pid in [name for name in ctx.listdir("proc") if name.isdecimal()][:PIDS_MAX]:
        known = wanted.get((ctx.read("proc", pid, "comm") or "").strip())
        if known is not None and known[0] not in found and _is(ctx, pid, known[1]):
            found[known[0]] = pid
    return found


def _is(ctx: "Context", pid: "str", program: "str") -> "bool":
    """Whether the whole name fits too; the kernel keeps 15 characters of it."""
    if len(program) <= COMM_CHARS:
        return True
    first = (ctx.read_bytes("proc", pid, "cmdline") or b"").split(b"\0")[0]
    return not first or os.path.basename(first.decode("utf-8", "replace")) == program


def _sees_processes(ctx: "Context") -> "bool":
    """Whether /proc shows the host's processes: pid 2 is a kernel thread there only."""
    return (ctx.read("proc/2/comm") or "").strip() == "kthreadd"
