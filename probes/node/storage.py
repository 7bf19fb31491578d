"""File systems: which are mounted, whether they answer, how full they are, and broken RAID sets.

Asking a file system may hang for as long as its server is away. Network and FUSE file systems are
asked in threads of their own, all at once: one that does not answer in time is reported with the
seconds since, and not touched again until that call returns. Local ones are asked in turn, each
booked on its place.
"""

import os
import threading
from zlib import crc32

from probes.node import mounts
from probes.node.context import Stuck
from probes.node.errors import describe
from probes.node.host import uptime_s

TYPE_CHECKING = False
if TYPE_CHECKING:
    from probes.node.context import Context
    from probes.node.mounts import Mount, Wanted

    Values = dict[str, object]

NAME = "storage"
INTERVAL = "slow"
COUNTERS = False
METRICS = {
    "fstype": ("", "info", "type of the file system"),
    "source": ("", "info", "what is mounted: disk, server or label"),
    "network": ("", "info", "whether a server or a FUSE program has to answer"),
    "expected": ("", "info", "whether fstab mounts it at boot"),
    "mounted": ("", "gauge", "False: fstab wants it, and it is not there"),
    "read_only": ("", "gauge", "whether writing is refused"),
    "wanted_read_only": ("", "info", "whether fstab says so"),
    "kernel_stopped_writing": (
        "", "gauge", "mounted for writing, but the kernel made it read-only after an error",
    ),
    "hung_s": ("s", "gauge", "a call has not come back for so long; absent when all is well"),
    "error": ("", "gauge", "what the file system answered instead: EIO, ESTALE ..."),
    "size_bytes": ("B", "info", "its size"),
    "free_bytes": ("B", "gauge", "what users may still write"),
    "used_percent": ("%", "gauge", "used of what users may have, as df says"),
    "inodes": ("", "info", "files it can hold; absent where it has no fixed number"),
    "inodes_free": ("", "gauge", "files that can still be made"),
    "mounts": ("", "gauge", "file systems looked at"),
    "raid_level": ("", "info", "of an md array"),
    "raid_disks": ("", "info", "disks the array should have"),
    "raid_working": ("", "gauge", "disks it has"),
    "raid_action": ("", "gauge", "recovery, resync, reshape or check, with its progress"),
}  # fmt: skip

PATIENCE = 0.6
"""Share of the deadline that the others wait for one that does not answer; the agent calls the
whole probe hung at 1.0."""

ARRAYS = 16


class Asked:
    """One call to a file system, in a thread of its own."""

    __slots__ = ("ended", "result", "since")

    def __init__(self, since: "float") -> "None":
        self.since = since
        self.result: "Values" = {}
        self.ended = threading.Event()


def prepare(ctx: "Context") -> "None":
    """Say before the hello why there will be no mounts: another root's are for root to read."""
    if mounts.read(ctx) is None:
        ctx.missing["storage"] = "the mounts of %s cannot be read; use become" % ctx.root


def collect(ctx: "Context") -> "tuple[dict[str, Values], list[Values]]":
    """A device for each place; "" says how many. Arrays are devices "md0"."""
    listed = mounts.read(ctx)
    devices: "dict[str, Values]" = {"": {}}
    if listed is not None:
        wanted = mounts.fstab(ctx.read("etc/fstab") or "")
        chosen = mounts.worth(listed, wanted)
        devices[""]["mounts"] = len(chosen)
        asked = {m.place: _ask(ctx, m) for m in chosen if m.network}
        for mount in chosen:
            devices[name(mount.place)] = _facts(mount, wanted.get(mount.place))
            if not mount.network:
                devices[name(mount.place)].update(_local(ctx, mount))
        _wait(ctx, asked)
        for place, call in asked.items():
            devices[name(place)].update(_answer(ctx, place, call))
        devices.update(_missing(listed, wanted))
    devices.update(raid(ctx.read("proc/mdstat") or ""))
    return devices, []


def name(place: "str") -> "str":
    """A place as a device: long ones are cut for the wire, and still differ from each other."""
    raw = place.encode("utf-8", "surrogateescape")
    text = raw.decode("utf-8", "replace")
    return text if len(text) <= 64 else "%s...%08x...%s" % (text[:20], crc32(raw), text[-30:])


def _facts(mount: "Mount", wanted: "Wanted | None") -> "Values":
    values: "Values" = {
        "fstype": mount.fstype[:32], "source": name(mounts.public(mount.source)),
        "network": mount.network,
        "expected": wanted is not None, "mounted": True, "read_only": mount.read_only,
        "kernel_stopped_writing": mount.kernel_stopped_writing,
    }  # fmt: skip
    if wanted is not None:
        values["wanted_read_only"] = "ro" in wanted.options
    return values


def _missing(listed: "list[Mount]", wanted: "dict[str, Wanted]") -> "dict[str, Values]":
    """What fstab wants and nothing is mounted on."""
    places = {mount.place for mount in listed}
    found: "dict[str, Values]" = {}
    for place, entry in sorted(wanted.items())[: mounts.MOUNTS]:
        if place not in places:
            found[name(place)] = {
                "fstype": entry.fstype[:32], "source": name(mounts.public(entry.source)),
                "expected": True, "mounted": False,
            }  # fmt: skip
    return found


# ---------------------------------------------------------------------- asking


def _local(ctx: "Context", mount: "Mount") -> "Values":
    try:
        with ctx.busy("statvfs " + mount.place, name(mount.place)):
            return space(ctx, mount)
    except Stuck:
        return {}


def _ask(ctx: "Context", mount: "Mount") -> "Asked":
    """The call in flight on this place, or a new one."""
    calls = ctx.memory(NAME)
    before = calls.get(mount.place)
    if isinstance(before, Asked) and not before.ended.is_set():
        return before
    call = Asked(uptime_s(ctx))
    calls[mount.place] = call
    thread = threading.Thread(target=_call, args=(ctx, mount, call), name="statvfs")
    thread.daemon = True
    try:
        thread.start()
    except (RuntimeError, MemoryError):
        call.ended.set()
    return call


def _call(ctx: "Context", mount: "Mount", call: "Asked") -> "None":
    try:
        call.result = space(ctx, mount)
    except Exception as error:
        call.result = {"error": describe(error)[:100]}
    finally:
        call.ended.set()


def _wait(ctx: "Context", asked: "dict[str, Asked]") -> "None":
    """Until all have answered, or the patience is used up by all of them together."""
    step_s, patience_s = 0.005, PATIENCE * ctx.deadline_s
    for call in asked.values():
        while patience_s > 0 and not call.ended.is_set():
            call.ended.wait(step_s)
            patience_s -= step_s
            step_s = min(0.1, step_s * 2)


def _answer(ctx: "Context", place: "str", call: "Asked") -> "Values":
    if not call.ended.is_set():
        return {"hung_s": round(max(0.0, uptime_s(ctx) - call.since), 1)}
    ctx.memory(NAME).pop(place, None)
    return call.result


def space(ctx: "Context", mount: "Mount") -> "Values":
    """Size and room. {} where this place shows another file system (a root without its mounts)."""
    path = ctx.path(mount.place) if ctx.root != "/" else mount.place
    try:
        if ctx.root != "/" and mount.fstype != "btrfs" and not _is_at(path, mount):
            return {}
        stat = os.statvfs(path)
    except OSError as error:
        import errno

        return {"error": errno.errorcode.get(error.errno or 0, str(error.errno))}
    block = stat.f_frsize or stat.f_bsize
    taken = stat.f_blocks - stat.f_bfree
    values: "Values" = {"size_bytes": stat.f_blocks * block, "free_bytes": stat.f_bavail * block}
    if taken + stat.f_bavail > 0:
        values["used_percent"] = round(100.0 * taken / (taken + stat.f_bavail), 1)
    if stat.f_files > 0:
        values["inodes"] = stat.f_files
        values["inodes_free"] = stat.f_ffree
    return values


def _is_at(path: "str", mount: "Mount") -> "bool":
    """btrfs shows other numbers for its subvolumes."""
    number = os.stat(path).st_dev
    return mount.device == "%d:%d" % (os.major(number), os.minor(number))


# ---------------------------------------------------------------------- arrays


def raid(text: "str") -> "dict[str, Values]":
    """Arrays of /proc/mdstat: level, disks, and what they are busy with."""
    found: "dict[str, Values]" = {}
    current: "Values" = {}
    for line in text.splitlines()[:1000]:
        words = line.split()
        if len(words) > 3 and words[1] == ":" and line.startswith("md") and len(found) < ARRAYS:
            levels = [word for word in words[3:6] if word.startswith(("raid", "linear", "multi"))]
            current = {"raid_level": levels[0][:16]} if levels else {}
            found[words[0][:16]] = current
        elif current and words:
            _array_line(words, current)
    return found


def _array_line(words: "list[str]", values: "Values") -> "None":
    """ "1953382400 blocks super 1.2 [2/1] [U_]" or "[==>..]  recovery = 12.6% (..)"."""
    for word in words:
        want, slash, have = word.strip("[]").partition("/")
        if word.startswith("[") and slash and want.isdigit() and have.isdigit():
            values["raid_disks"], values["raid_working"] = int(want), int(have)
    for action in ("recovery", "resync", "reshape", "check"):
        if action in words:
            rest = words[words.index(action) + 2 :]
            values["raid_action"] = " ".join([action] + rest[:1])[:32]
