"""The kernel log: lines that matter to a GPU node, first the recent ones, then each new one.

Readers in this order: ROOT/dev/kmsg, dmesg, journalctl -k. The first that may be read wins. When
none may, the answer says so (readable False) and hello carries a hint: a log that cannot be read
is never "no Xid". Where the journal keeps the boot before this one, its last lines come first.
"""

import os
import re
import threading
from collections import deque

from probes.node import kernel_readers as readers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from probes.node.context import Context
    from probes.node.kernel_readers import Line

    Values = dict[str, object]
    Emit = Callable[[dict[str, Values], list[Values]], None]

NAME = "kernel_log"
INTERVAL = "stream"
COUNTERS = False
METRICS = {
    "source": ("", "info", "kmsg, dmesg or journal"),
    "readable": ("", "gauge", "whether the kernel log may be read at all"),
    "lost": ("", "counter", "lines that were overwritten or left out before they could be sent"),
    "crash_dumps": ("", "gauge", "files that a crashed kernel left in /sys/fs/pstore"),
    "crash_dump": ("", "info", "name of the newest of them"),
}

RECENT = 200
"""Matching lines sent at the start, and at most in one frame: 200 x 500 B fit a frame."""

BEFORE = 40
"""Matching lines of the boot before this one: what it said last."""

TEXT_CHARS = 500

BATCH_S = 0.2
"""Pause between batches: an AER flood becomes five frames a second at most."""

HINT = (
    "the kernel log may not be read: run as root (become: sudo -n) or set kernel.dmesg_restrict=0"
)

FAMILIES = (
    r"\bAER\b|Bus Error|error status/mask|: +\[ ?\d{1,2}\] [A-Z]|pciehp|power state|DMAR|AMD-Vi"
    r"|arm-smmu|iommu",
    r"NVRM|S?Xid|nvswitch|nvidia|fallen off|modeset",
    r"mlx5|infiniband|\befa\b|rdmap|NETDEV WATCHDOG|unit hang|tx[_ ](?:timeout|hang)|adapter reset"
    r"|reset adapter|link is (?:up|down)|carrier|keep alive|firmware",
    r"Hardware Error|EDAC|\bmce\b|machine check|memory failure|hardware memory|temperature",
    r"lockup|\bstalls?\b|blocked for more than|hung_task|\bBUG\b|\bOops\b|kernel panic"
    r"|general protection|unable to handle|segfault",
    r"out of memory|oom[-_]kill|oom_reaper",
    r"nfs: server|lockd|Lustre|LNet|reclaim failed|nvme|I/O error|medium error|target error|EXT4-fs"
    r"|\bXFS\b|BTRFS|read-only|disk failure|aborting journal",
    r"callbacks suppressed",
)
"""What a line must hold to leave the node, by what it is about. Wide on purpose: judging happens on
the bastion. A flood of one family does not push out the others."""

WANTED = re.compile("|".join(FAMILIES), re.IGNORECASE)

_FAMILIES = [re.compile(words, re.IGNORECASE) for words in FAMILIES]

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


def prepare(ctx: "Context") -> "None":
    """Find the reader before hello is sent; without one hello says why."""
    source = readers.choose(ctx)
    ctx.memory(NAME)["source"] = source
    if not source:
        ctx.missing[NAME] = HINT


def collect(ctx: "Context") -> "tuple[dict[str, Values], list[Values]]":
    """The recent lines once, for a pass. Rows {mono, text, prio, src}; those of the boot before
    this one with boot -1.

    Lines of a program that stalled are sent, but the log does not count as read.
    """
    source = _source(ctx)
    if not source:
        return {"": {"readable": False}}, []
    recent = Recent()
    with readers.opened(ctx, source, follow=False) as log:
        for line in log.lines():
            recent.add(line)
        values = dict(_values(ctx, source, log.lost), readable=not log.stalled)
    return {"": values}, _before(ctx) + recent.take(source)


def follow(ctx: "Context", emit: "Emit") -> "None":
    """The recent lines, then new ones as they come. Returns when the source ends."""
    source = _source(ctx)
    if not source:
        emit({"": {"readable": False}}, [])
        return
    pause = threading.Event()
    with readers.opened(ctx, source, follow=True) as log:
        lost, first = 0, True
        # An open device answers at once even when it holds nothing: that too is an answer.
        while (first and source == "kmsg") or log.wait():
            recent = Recent()
            for line in log.lines():
                recent.add(line)
            lost += 0 if first else recent.cut
            rows = recent.take(source)
            if rows or first:
                emit({"": _values(ctx, source, log.lost + lost)}, rows)
            if first:
                _emit_before(ctx, source, log.lost, emit)
            first = False
            pause.wait(BATCH_S)
    emit({"": {"source": source, "readable": False}}, [])


def _emit_before(ctx: "Context", source: "str", lost: "int", emit: "Emit") -> "None":
    """What the boot before said, in a frame of its own: the journal may take seconds."""
    rows = _before(ctx)
    if rows:
        emit({"": _values(ctx, source, lost)}, rows)


def _before(ctx: "Context") -> "list[Values]":
    """The last matching lines of the boot before this one, once; [] where no journal has them."""
    recent = Recent(BEFORE)
    if ctx.memory(NAME).setdefault("before", True):
        ctx.memory(NAME)["before"] = False
        for line in readers.before_boot(ctx):
            recent.add(line)
    return [dict(row, boot=-1) for row in recent.take("journal")]


class Recent:
    """The newest matching lines, of every family some."""

    def __init__(self, most: "int" = RECENT) -> "None":
        self._most = most
        self._lines: "list[deque[tuple[int, Line]]]" = [deque(maxlen=most) for _ in _FAMILIES]
        self._number = 0

    @property
    def cut(self) -> "int":
        """Matching lines that do not fit."""
        return max(0, self._number - self._most)

    def add(self, line: "Line") -> "None":
        """Keep a line when it matters."""
        if WANTED.search(line.text):
            which = next(n for n, words in enumerate(_FAMILIES) if words.search(line.text))
            self._lines[which].append((self._number, line))
            self._number += 1

    def take(self, source: "str") -> "list[Values]":
        """The rows, oldest first; the largest families give way."""
        for _ in range(sum(map(len, self._lines)) - self._most):
            max(self._lines, key=len).popleft()
        kept = sorted(pair for family in self._lines for pair in family)
        return [_row(line, source) for _, line in kept]


def _row(line: "Line", source: "str") -> "Values":
    """prio is missing where the source has none (journal)."""
    row: "Values" = {"mono": line.mono, "text": _plain(line.text), "src": source}
    if line.prio >= 0:
        row["prio"] = line.prio
    return row


def _plain(text: "str") -> "str":
    return _CONTROL.sub(" ", text)[:TEXT_CHARS]


def _values(ctx: "Context", source: "str", lost: "int") -> "Values":
    return dict(_dumps(ctx), source=source, readable=True, lost=lost)


def _dumps(ctx: "Context") -> "Values":
    """Names in pstore; absent where the directory may not be read."""
    try:
        names = sorted(os.listdir(ctx.path("sys", "fs", "pstore")))
    except OSError:
        return {}
    dumps = [name for name in names if name.startswith("dmesg-")]
    values: "Values" = {"crash_dumps": len(dumps)}
    if dumps:
        values["crash_dump"] = _plain(dumps[-1])
    return values


def _source(ctx: "Context") -> "str":
    memory = ctx.memory(NAME)
    if "source" not in memory:
        prepare(ctx)
    return str(memory["source"])
