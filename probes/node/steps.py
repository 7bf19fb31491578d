"""What a job says of its own steps, where it cares to: a line per rank, in a file or a datagram.

    /dev/shm/gpuconsole.step.JOB.RANK       holds one line, replaced after each step (os.replace)
    UDP to 239.255.71.28:28029 on loopback  the same line; every agent on the node hears it

The line is `key=value ...` or a JSON object with the keys of KEYS. Only numbers leave the node, a
file counts when whoever owns it has a process on a GPU here, a datagram when its job has. Whoever
may write can only lie about his own job: nothing here ever takes a node out of work.
"""

import errno
import json
import os
import re
import socket
import stat
import time

from probes.node.context import Stuck
from probes.node.owners import identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Set

    from probes.node.context import Context

    Values = Dict[str, object]

NAME = "steps"
INTERVAL = "slow"
COUNTERS = False
METRICS = {
    "ranks": ("", "gauge", "ranks that told a step"),
    "foreign": ("", "gauge", "lines of somebody who has no process on a GPU here"),
    "broken": ("", "gauge", "lines that say nothing we understand"),
    "udp": ("", "gauge", "False: the group could not be joined, datagrams are not heard"),
    "job": ("", "info", "job of a row"),
    "rank": ("", "info", "its rank"),
    "source": ("", "info", "file or udp"),
    "age_s": ("s", "gauge", "how long ago the line was written"),
    "step": ("", "gauge", "number of its last step"),
    "t_total": ("s", "gauge", "how long that step took"),
    "t_data": ("s", "gauge", "of it, waiting for data"),
    "t_fwd": ("s", "gauge", "of it, forward"),
    "t_bwd": ("s", "gauge", "of it, backward"),
    "t_comm": ("s", "gauge", "of it, waiting for other ranks"),
    "tokens": ("", "gauge", "tokens (or samples) of that step on this rank"),
}
KEYS = {
    "step": 1e15, "t_total": 1e6, "t_data": 1e6, "t_fwd": 1e6, "t_bwd": 1e6, "t_comm": 1e6,
    "tokens": 1e15,
}  # fmt: skip
"""Number of a line -> its bound: seconds up to eleven days."""

GROUP, UDP_PORT = "239.255.71.28", 28029
"""Administratively scoped (RFC 2365); joined on loopback only, so nothing comes from outside."""
DIRECTORY, PREFIX = "dev/shm", "gpuconsole.step."
ENTRIES_MOST = 16384
"""Names in /dev/shm looked at: data loaders leave thousands."""
RANKS_MOST = 128
LINE_BYTES = 1024
DATAGRAMS_MOST = 1024
"""Of one look."""
OLD_S = 3600.0
"""A line this old is left over."""
FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
_WORD = re.compile(r"[\w.+:@-]{1,64}$")


def collect(ctx: "Context") -> "tuple[Dict[str, Values], List[Values]]":
    """One row a rank, the newest line; {} where no process is on a GPU."""
    uids, jobs = _owners(ctx)
    if not uids:
        _close(ctx)
        return {"": {}}, []
    values: "Values" = {"foreign": 0, "broken": 0}
    rows: "Dict[tuple[object, object], Values]" = {}
    for row in _files(ctx, uids, values) + _datagrams(ctx, jobs, values):
        key = row.get("job"), row["rank"]
        before = rows.get(key)
        if before is None or _age_s(row) < _age_s(before):
            rows[key] = row
    values["ranks"] = len(rows)
    return {"": values}, list(rows.values())[:RANKS_MOST]


def _age_s(row: "Values") -> "float":
    age = row["age_s"]
    return age if isinstance(age, float) else 0.0


def _owners(ctx: "Context") -> "tuple[Set[int], Set[str]]":
    """Who has a process on a GPU, by number, and their jobs."""
    from probes.node.nvml_library import Failed
    from probes.node.ras import on_gpus, uids_of

    try:
        pids = on_gpus(ctx)
    except (Failed, Stuck):
        return set(), set()
    uids = {int(uid) for pid in pids for uid in uids_of(ctx, pid) if uid.isdigit()}
    return uids, {str(identity(ctx, pid).get("job", "")) for pid in pids}


def _files(ctx: "Context", uids: "Set[int]", values: "Values") -> "List[Values]":
    rows: "List[Values]" = []
    try:
        with os.scandir(ctx.path(DIRECTORY)) as entries:
            names = [
                entry.name
                for _, entry in zip(range(ENTRIES_MOST), entries)
                if entry.name.startswith(PREFIX)
            ]
    except OSError:
        return rows
    for name in sorted(names)[: RANKS_MOST * 2]:
        row = _file(ctx, name, uids, values)
        if row is not None:
            rows.append(row)
    return rows


def _file(ctx: "Context", name: "str", uids: "Set[int]", values: "Values") -> "Optional[Values]":
    """The line of one file; links, devices and other people's files are not read."""
    try:
        handle = os.open(ctx.path(DIRECTORY, name), FLAGS)
    except OSError as error:
        _count(values, "foreign" if error.errno in (errno.ELOOP, errno.EACCES) else "broken")
        return None
    try:
        told = os.fstat(handle)
        if not stat.S_ISREG(told.st_mode) or told.st_uid not in uids:
            _count(values, "foreign")
            return None
        raw = os.read(handle, LINE_BYTES)
    except OSError:
        return None
    finally:
        os.close(handle)
    age_s = max(0.0, time.time() - told.st_mtime)
    job, _, rank = name[len(PREFIX) :].rpartition(".")
    row = line(raw, job, rank)
    if row is None or age_s > OLD_S:
        _count(values, "broken" if row is None else "foreign")
        return None
    row.update(source="file", age_s=round(age_s, 1))
    return row


def _datagrams(ctx: "Context", jobs: "Set[str]", values: "Values") -> "List[Values]":
    """What came since the look before; the newest line of a rank."""
    link = _link(ctx, values)
    found: "Dict[tuple[object, object], Values]" = {}
    if link is None:
        return []
    for _ in range(DATAGRAMS_MOST):
        try:
            raw = link.recv(LINE_BYTES)
        except OSError:  # also: nothing more
            break
        row = line(raw, "", "")
        if row is None:
            _count(values, "broken")
        elif str(row.get("job", "")) not in jobs or len(found) >= RANKS_MOST:
            _count(values, "foreign")
        else:
            row.update(source="udp", age_s=0.0)
            found[row.get("job"), row["rank"]] = row
    return list(found.values())


def _link(ctx: "Context", values: "Values") -> "Optional[socket.socket]":
    """The socket that hears the group; kept between looks, None where it cannot be had."""
    memory = ctx.memory(NAME)
    if "link" not in memory:
        memory["link"] = _joined()
    link = memory["link"]
    if isinstance(link, socket.socket):
        return link
    values["udp"] = False
    return None


def _joined() -> "Optional[socket.socket]":
    """Several agents may hear one group: each gets every datagram, as with no other UDP socket."""
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        link.bind((GROUP, UDP_PORT))
        membership = socket.inet_aton(GROUP) + socket.inet_aton("127.0.0.1")
        link.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        link.setblocking(False)
    except OSError:
        link.close()
        return None
    return link


def _close(ctx: "Context") -> "None":
    link = ctx.memory(NAME).pop("link", None)
    if isinstance(link, socket.socket):
        link.close()


def line(raw: "bytes", job: "str", rank: "str") -> "Optional[Values]":
    """One line as a row; `job` and `rank` are what its file's name says. None: not understood."""
    text = raw.decode("utf-8", "replace").partition("\n")[0].strip()
    told = _json(text) if text.startswith("{") else _pairs(text)
    row: "Values" = {}
    for name, most in KEYS.items():
        number = _number(told.get(name), most)
        if number is not None:
            row[name] = int(number) if name in ("step", "tokens") else round(number, 6)
    job = str(told.get("job", job))
    number = _number(told.get("rank", rank), 1e7)
    if number is None or "step" not in row:
        return None
    row["rank"] = str(int(number))
    if job and _WORD.match(job):
        row["job"] = job
    return row


def _pairs(text: "str") -> "Dict[str, object]":
    return {name: value for name, _, value in (word.partition("=") for word in text.split())}


def _json(text: "str") -> "Dict[str, object]":
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _number(value: "object", most: "float") -> "Optional[float]":
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if 0 <= number <= most else None


def _count(values: "Values", name: "str") -> "None":
    before = values.get(name)
    values[name] = (before if isinstance(before, int) else 0) + 1
