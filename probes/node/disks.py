"""What each local disk did: requests, bytes and the time they took, from /proc/diskstats."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from probes.node.context import Context

    Values = dict[str, object]

NAME = "disks"
INTERVAL = "slow"
COUNTERS = True
METRICS = {
    "reads": ("", "counter", "reads completed"),
    "writes": ("", "counter", "writes completed"),
    "read_bytes": ("B", "counter", "bytes read"),
    "write_bytes": ("B", "counter", "bytes written"),
    "read_ms": ("ms", "counter", "time reads took, all together"),
    "write_ms": ("ms", "counter", "time writes took, all together"),
    "in_flight": ("", "gauge", "requests under way"),
    "busy_ms": ("ms", "counter", "time with requests under way"),
    "rotational": ("", "info", "whether it turns (a hard disk)"),
    "model": ("", "info", "model"),
    "state": ("", "gauge", "SCSI state: running, offline, blocked ..."),
    "read_only": ("", "gauge", "whether the disk itself refuses writes"),
}

DISKS = 32
LINES = 2048
SECTOR_BYTES = 512
"""Of diskstats, whatever the disk's own are (iostats.rst)."""

SKIPPED = ("loop", "ram", "zram", "dm-", "md", "sr", "fd", "nbd", "drbd", "rbd")
"""Layers above disks, whose time is theirs, and what is no disk of the node."""

FIELDS = (
    (3, "reads", 1), (5, "read_bytes", SECTOR_BYTES), (6, "read_ms", 1), (7, "writes", 1),
    (9, "write_bytes", SECTOR_BYTES), (10, "write_ms", 1), (11, "in_flight", 1),
    (12, "busy_ms", 1),
)  # fmt: skip


def collect(ctx: "Context") -> "tuple[dict[str, Values], list[Values]]":
    """A device for each disk: "nvme0n1"."""
    devices: "dict[str, Values]" = {"": {}}
    for line in (ctx.read("proc/diskstats") or "").splitlines()[:LINES]:
        words = line.split()
        if len(words) < 14 or words[2].startswith(SKIPPED) or len(devices) > DISKS:
            continue
        base = "sys/block/" + words[2].replace("/", "!")
        rotational = ctx.read_int(base, "queue/rotational")
        if rotational is None or not all(word.isdigit() for word in words[3:14]):
            continue  # a partition, or a disk that has gone
        values: "Values" = {name: int(words[at]) * scale for at, name, scale in FIELDS}
        values["rotational"] = rotational != 0
        values.update(_facts(ctx, base))
        devices[words[2][:32]] = values
    return devices, []


def _facts(ctx: "Context", base: "str") -> "Values":
    found: "Values" = {}
    for metric, name in (("model", "device/model"), ("state", "device/state")):
        text = (ctx.read(base, name) or "").strip()
        if text:
            found[metric] = text[:64]
    refused = ctx.read_int(base, "ro")
    if refused is not None:
        found["read_only"] = refused != 0
    return found
