"""The kernel log: lines that matter to a GPU node, first the recent ones, then each new one.

Readers in this order: ROOT/dev/kmsg, dmesg, journalctl -k. The first that may be read wins. When
none may, the answer says so (readable False) and hello carries a hint: a log that cannot be read
is never "no Xid".
"""

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
}

RECENT = 200
"""Matching lines sent at the start, and at most in one frame: 200 x 500 B fit a frame."""

TEXT_CHARS = 500

BATCH_S = 0.2
"""Pause between batches: an AER flood becomes five frames a second at most."""

HINT = (
    "the kernel log may not be read: run as root (become: sudo -n) or set kernel.dmesg_restrict=0"
)

WANTED = re.compile(
    r"NVRM|S?Xid|nvidia|fallen off|mlx5|infiniband|\bAER\b|Hardware Error|EDAC|\bmce\b|soft lockup"
    r"|blocked for more than|Out of memory|nfs: server|Lustre|nvme|I/O error|EXT4-fs error|XFS"
    r"|read-only|PCIe Bus Error|error status/mask|oom-kill|hung_task|nvswitch",
    re.IGNORECASE,
)
"""What a line must hold to leave the node. Wide on purpose: judging happens on the bastion."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


def prepare(ctx: "Context") -> "None":
    """Find the reader before hello is sent; without one hello says why."""
    source = readers.choose(ctx)
    ctx.memory(NAME)["source"] = source
    if not source:
        ctx.missing[NAME] = HINT


def collect(ctx: "Context") -> "tuple[dict[str, Values], list[Values]]":
    """The recent lines once, for a pass. Rows {mono, text, prio, src}.

    Lines of a program that stalled are sent, but the log does not count as read.
    """
    source = _source(ctx)
    if not source:
        return {"": {"readable": False}}, []
    recent = Recent()
    with readers.opened(ctx, source, follow=False) as log:
        for line in log.lines():
            recent.add(line)
        return {"": dict(_values(source, log.lost), readable=not log.stalled)}, recent.take(source)


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
                emit({"": _values(source, log.lost + lost)}, rows)
            first = False
            pause.wait(BATCH_S)
    emit({"": {"source": source, "readable": False}}, [])


class Recent:
    """The newest matching lines."""

    def __init__(self) -> "None":
        self._lines: "deque[Line]" = deque(maxlen=RECENT)
        self.cut = 0
        """Matching lines that newer ones have pushed out."""

    def add(self, line: "Line") -> "None":
        """Keep a line when it matters."""
        if WANTED.search(line.text):
            self.cut += len(self._lines) == RECENT
            self._lines.append(line)

    def take(self, source: "str") -> "list[Values]":
        """The rows, oldest first."""
        return [_row(line, source) for line in self._lines]


def _row(line: "Line", source: "str") -> "Values":
    """prio is missing where the source has none (journal)."""
    row: "Values" = {"mono": line.mono, "text": _plain(line.text), "src": source}
    if line.prio >= 0:
        row["prio"] = line.prio
    return row


def _plain(text: "str") -> "str":
    return _CONTROL.sub(" ", text)[:TEXT_CHARS]


def _values(source: "str", lost: "int") -> "Values":
    return {"source": source, "readable": True, "lost": lost}


def _source(ctx: "Context") -> "str":
    memory = ctx.memory(NAME)
    if "source" not in memory:
        prepare(ctx)
    return str(memory["source"])
