"""Process lists with any columns, load averages, and how old the last good reading is. Pure."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from msgspec import Struct, field

DRIVER = re.compile(r"nvidia|os_acquire|^rm_|uvm_|nv_|_nv\d{6}", re.IGNORECASE)
"""Kernel functions of the NVIDIA driver; names differ by release."""
PLACES = (
    (DRIVER, "the NVIDIA driver"),
    (re.compile(r"^(?:rpc_|nfs|__nfs)"), "a network file system call (NFS)"),
    (re.compile(r"^(?:ptlrpc|ll_|cl_|ldlm|osc_|lov_|lnet|mdc_)"),
     "a network file system call (Lustre)"),
    (re.compile(r"^(?:gpfs|cxi|fuse_|request_wait_answer|ceph|beegfs)"), "a file system call"),
    (re.compile(r"^(?:io_schedule|wait_on_page|folio_wait|blk_|jbd2|xfs_|ext4|md_|bio_|dm_)"),
     "a wait for a disk"),
    (re.compile(r"^(?:shrink_|congestion_wait|mem_cgroup|balance_dirty)"), "a wait for memory"),
)  # fmt: skip
_STAT = re.compile(r"^[RSDZTtXIW][<NLsl+]*$")
_HEAD = re.compile(r"^\s*(?:USER|UID|PID|F)\b.*\b(?:PID)\b.*\b(?:STAT|S|STATE|COMMAND|CMD|COMM)\b"
                   r"|^\s*PID\b.*\b(?:STAT|S|COMMAND|CMD)\b")  # fmt: skip
_BARE = re.compile(r"^\s*(?P<pid>\d{1,9})\s+(?P<stat>[DZ][<NLsl+]*)\s+(?P<rest>.*\S)\s*$")
_LOAD = re.compile(r"load average:?\s*([\d.]+),?\s+([\d.]+),?\s+([\d.]+)")
_LOADAVG = re.compile(r"^\s*(\d+\.\d\d) (\d+\.\d\d) (\d+\.\d\d) \d+/\d+ \d+\s*$")
_UPTIME = re.compile(r"\bup\s+(?:(\d+) days?,\s+)?(?:(\d+):(\d\d)|(\d+) min)")
_GOOD = re.compile(r"last_good=(\S+)\s+now=(\S+)")
PROCESSES = 20_000


class Sleeper(Struct, frozen=True):
    """A process that cannot be interrupted."""

    pid: int
    comm: str
    wchan: str
    seconds: int | None
    line: str

    @property
    def where(self) -> str:
        """What it waits in, in words; "" when the function says nothing."""
        return next((words for pattern, words in PLACES if pattern.search(self.wchan)), "")

    @property
    def driver(self) -> bool:
        """Whether the NVIDIA driver holds it."""
        return bool(DRIVER.search(self.wchan)) or self.comm.startswith("nvidia-smi")


class Processes(Struct):
    """What lists and load lines told."""

    sleepers: list[Sleeper] = field(default_factory=list)
    zombies: int = 0
    listed: int = 0
    load: tuple[float, float, float] | None = None
    uptime_s: int | None = None
    stale_s: int | None = None
    stale_line: str = ""
    cpus: int | None = None


def looks_like(line: str) -> bool:
    """Whether this line could stand in a process list without a head."""
    return bool(_BARE.match(line)) or bool(_HEAD.match(line))


def head(line: str) -> bool:
    """Whether this is the head of a process list."""
    return bool(_HEAD.match(line))


def read(lines: list[str]) -> Processes:
    """All lists of the text."""
    found = Processes()
    columns: list[str] = []
    for line in lines:
        if _HEAD.match(line):
            columns = line.split()
            continue
        if not line.strip():
            columns = []
        if _other(line, found):
            continue
        if columns:
            _row(line, columns, found)
        elif bare := _BARE.match(line):
            _bare(bare, line, found)
    return found


def _other(line: str, found: Processes) -> bool:
    if load := _LOAD.search(line) or _LOADAVG.match(line):
        found.load = (_float(load[1]), _float(load[2]), _float(load[3]))
        if up := _UPTIME.search(line):
            days, hours, minutes, alone = (int(part[:9]) if part else 0 for part in up.groups())
            found.uptime_s = days * 86400 + hours * 3600 + (minutes + alone) * 60
        return True
    if good := _GOOD.search(line):
        found.stale_s = _apart(good[1], good[2])
        found.stale_line = line.strip()
        return True
    if cpus := re.match(r"^\s*(?:CPU\(s\):|nproc[ =:]+)\s*(\d{1,6})\s*$", line):
        found.cpus = int(cpus[1])
        return True
    return False


def _float(text: str) -> float:
    try:
        return float(text[:12])
    except ValueError:
        return 0.0


def _apart(before: str, now: str) -> int | None:
    try:
        a, b = (datetime.fromisoformat(t) for t in (before, now))
        return max(0, int((b - a).total_seconds()))
    except (ValueError, TypeError, OverflowError):
        return None


def _row(line: str, columns: list[str], found: Processes) -> None:
    cells = line.split(None, len(columns) - 1)
    if len(cells) < len(columns):
        return
    told = dict(zip(columns, cells, strict=False))
    stat = told.get("STAT") or told.get("S") or told.get("STATE") or ""
    pid = told.get("PID", "")
    if not pid.isdecimal() or not _STAT.match(stat) or found.listed >= PROCESSES:
        return
    found.listed += 1
    comm = _comm(
        told.get("COMMAND") or told.get("CMD") or told.get("COMM") or told.get("COMMAN", "")
    )
    seconds = _seconds(told.get("ELAPSED") or told.get("ETIMES") or told.get("ETIME") or "")
    _take(found, pid, stat, comm, told.get("WCHAN", ""), seconds, line)


def _bare(match: re.Match[str], line: str, found: Processes) -> None:
    """pid, state, then in any order: seconds, wait channel, name; as `ps -eo` prints with `=`."""
    words = match["rest"].split()
    seconds = next((s for word in words if (s := _seconds(word)) is not None), None)
    names = [word for word in words if _seconds(word) is None]
    comm = names[-1] if names else "?"
    wchan = names[0] if len(names) > 1 else ""
    found.listed += 1
    _take(found, match["pid"], match["stat"], _comm(comm), wchan, seconds, line)


def _take(
    found: Processes, pid: str, stat: str, comm: str, wchan: str, seconds: int | None, line: str
) -> None:
    if stat.startswith("Z"):
        found.zombies += 1
    if stat.startswith("D") and len(found.sleepers) < PROCESSES and not comm.startswith("["):
        wchan = "" if wchan in ("-", "?") else wchan
        found.sleepers.append(Sleeper(int(pid[:9]), comm, wchan, seconds, line.strip()))


def _comm(command: str) -> str:
    """The program's name; arguments may hold secrets and are dropped."""
    first = command.split(maxsplit=1)[0] if command.split() else ""
    return first.rsplit("/", 1)[-1][:60] if not first.startswith("[") else first[:60]


_CLOCK = re.compile(r"^(?:(\d{1,6})-)?(?:(\d{1,3}):)?(\d{1,3}):(\d\d)$")


def _seconds(text: str) -> int | None:
    """Seconds, or [[dd-]hh:]mm:ss as ps prints elapsed time."""
    if text.isdecimal() and len(text) < 11:
        return int(text)
    if match := _CLOCK.match(text):
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return days * 86400 + hours * 3600 + minutes * 60 + seconds
    return None


def facts(found: Processes) -> dict[str, Any]:
    """As numbers and names."""
    smi = [s for s in found.sleepers if s.comm.startswith("nvidia-smi")]
    stuck = smi or [s for s in found.sleepers if s.driver]
    ages = [s.seconds for s in stuck if s.seconds is not None]
    told: dict[str, Any] = {
        "hung_nvidia_smi": len(smi), "oldest_s": max(ages, default=None),
        "other_hung": list(dict.fromkeys(s.comm for s in found.sleepers if s not in smi)),
        "blocked": [
            {"pid": s.pid, "comm": s.comm, "wchan": s.wchan, "seconds": s.seconds, "where": s.where}
            for s in found.sleepers[:200]
        ],
        "processes": found.listed, "zombies": found.zombies,
        "load1": found.load[0] if found.load else None,
        "uptime_s": found.uptime_s, "stale_s": found.stale_s,
    }  # fmt: skip
    return {name: value for name, value in told.items() if value not in (None, [], 0)}
