"""Whether the node's clock is kept in step, by whom, and how well.

The kernel knows: adjtimex(2) tells whether some daemon disciplines the clock and the error it
estimates. Which server, and how far off, the daemon's own tool says (chronyc, ntpq, timedatectl).
Both only when the root is this kernel's own.
"""

import ctypes

from probes.node.context import Stuck
from probes.node.host import scan
from probes.node.tool import here, output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from probes.node.context import Context

    Values = dict[str, object]

NAME = "timesync"
INTERVAL = "slow"
COUNTERS = False
METRICS = {
    "daemon": ("", "info", "the time daemon that runs; none: no known one, of all processes"),
    "synchronised": ("", "gauge", "whether the kernel says that its clock is disciplined"),
    "error_s": ("s", "gauge", "error as the kernel estimates it; grows without a server"),
    "error_max_s": ("s", "gauge", "error at most"),
    "offset_s": ("s", "gauge", "clock against its server, as the daemon says; positive: ahead"),
    "source": ("", "info", "the server in use"),
    "stratum": ("", "gauge", "steps from a reference clock; 0 or 16: none"),
    "first_sync": ("", "gauge", "whether systemd-timesyncd has ever reached a server since boot"),
}

DAEMONS = (
    ("chronyd", "chrony"), ("ntpd", "ntp"), ("ntpsec", "ntp"), ("openntpd", "openntpd"),
    ("systemd-timesyn", "timesyncd"), ("ptp4l", "ptp"), ("phc2sys", "ptp"), ("timemaster", "ptp"),
    ("vmtoolsd", "vmtools"), ("VBoxService", "virtualbox"),
)  # fmt: skip
"""Process names (15 characters, as the kernel keeps them) and what we call them."""

UNSYNC = 0x0040
NANO = 0x2000
"""STA_UNSYNC and STA_NANO, linux/timex.h."""
MICRO = 1e-6

TOOL_S = 2.0
TOOL_EVERY_S = 120.0
"""A tool costs a process; servers change by the hour."""

SYNCHRONIZED = "run/systemd/timesync/synchronized"
"""Touched by systemd-timesyncd at each step and correction since version 239."""


class Timex(ctypes.Structure):
    """struct timex of linux/timex.h on 64-bit machines; what follows `tick` is padding here."""

    _fields_ = [
        ("modes", ctypes.c_uint), ("offset", ctypes.c_long), ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long), ("esterror", ctypes.c_long), ("status", ctypes.c_int),
        ("rest", ctypes.c_long * 24),
    ]  # fmt: skip


def collect(ctx: "Context") -> "tuple[dict[str, Values], list[Values]]":
    """One device ""."""
    values: "Values" = {}
    running = _daemons(ctx)
    if running is not None:
        values["daemon"] = "+".join(running) or "none"
    if "timesyncd" in (running or ()):
        values["first_sync"] = ctx.read(SYNCHRONIZED) is not None
    if here(ctx):
        values.update(kernel_clock())
        values.update(_told(ctx, running or []))
    return {"": values}, []


def _daemons(ctx: "Context") -> "list[str] | None":
    """Known time daemons among the processes; None where not all of them are to be seen."""
    names = {task.comm for task in scan(ctx)}
    found = []
    for comm, name in DAEMONS:
        if comm in names and name not in found:
            found.append(name)
    if found or names & {"systemd", "init", "launchd", "runit"}:
        return found
    return None


def kernel_clock() -> "Values":
    """adjtimex(2) with no mode set only reads; {} where there is no such call."""
    timex = Timex()
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    except (OSError, AttributeError):
        return {}
    if state < 0:
        return {}
    return {
        "synchronised": not timex.status & UNSYNC,
        "error_s": round(timex.esterror * MICRO, 6),
        "error_max_s": round(timex.maxerror * MICRO, 6),
    }


def _told(ctx: "Context", running: "list[str]") -> "Values":
    """What the daemon's own tool says, asked every TOOL_EVERY_S and repeated between."""
    memory = ctx.memory(NAME)
    due, known = memory.get("due", 0.0), memory.get("told")
    if isinstance(due, float) and isinstance(known, dict) and ctx.mono() < due:
        return dict(known)
    memory["due"], memory["told"] = ctx.mono() + TOOL_EVERY_S, {}
    found: "Values" = {}
    for name, argv, read in TOOLS:
        if name in running:
            try:
                found = read(output(ctx, argv, TOOL_S) or "")
            except Stuck:
                continue
            break
    memory["told"] = found
    return dict(found)


def chrony_tracking(text: "str") -> "Values":
    """`chronyc -n -c tracking`: reference id, name, stratum, time, offset, ... leap status.

    Its offset is what the clock must be corrected by: negative when it is ahead.
    """
    fields = text.strip().split(",")
    if len(fields) < 14:
        return {}
    found: "Values" = {}
    if fields[1]:
        found["source"] = fields[1][:64]
    if fields[2].isdigit():
        found["stratum"] = int(fields[2])
    offset = _float(fields[4])
    if offset is not None and fields[13] != "Not synchronised":
        found["offset_s"] = -offset
    return found


def ntp_variables(text: "str") -> "Values":
    """`ntpq -c rv`: name=value, with commas between; the offset is in milliseconds."""
    words = dict(part.strip().partition("=")[::2] for part in text.replace("\n", ",").split(","))
    found: "Values" = {}
    if words.get("refid"):
        found["source"] = words["refid"].strip('"')[:64]
    if words.get("stratum", "").isdigit():
        found["stratum"] = int(words["stratum"])
    offset = _float(words.get("offset", ""))
    if offset is not None and found.get("stratum") != 16:
        found["offset_s"] = round(offset / 1000.0, 9)
    return found


def timesync_status(text: "str") -> "Values":
    """`timedatectl show-timesync`: Key=value; the offset is not among them."""
    words = dict(line.partition("=")[::2] for line in text.splitlines())
    found: "Values" = {}
    if words.get("ServerName"):
        found["source"] = words["ServerName"][:64]
    stratum = words.get("NTPMessage", "").partition("Stratum=")[2].partition(",")[0]
    if stratum.isdigit():
        found["stratum"] = int(stratum)
    return found


def _float(text: "str") -> "float | None":
    try:
        return float(text)
    except ValueError:
        return None


TOOLS = (
    ("chrony", ["chronyc", "-n", "-c", "tracking"], chrony_tracking),
    ("ntp", ["ntpq", "-n", "-c", "rv"], ntp_variables),
    ("timesyncd", ["timedatectl", "show-timesync"], timesync_status),
)
