"""The text that an NCCL RAS port sends; all there is before 2.28.7. Pure."""

import re

from probes.node.ras_comm import (
    COMMS_MOST, RANKS_MOST, WORD_CHARS, Comm, Missing, Rank, number_of, host_of, name_of, word,
)  # fmt: skip

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from probes.node.ras_read import Reader

_TOOK = re.compile(r"^Communicators\.\.\.\s*\((\d+\.?\d*)s\)")
_RELEASE = re.compile(r"^NCCL version (\S{1,32})")
_GROUP = re.compile(r"^\s*(\d+)\s+(\d+)\s+(\d+)\s+(\S+)\s+(\d+)\s+(\d+)\s+([A-Z]+)\s+([A-Z,]+)\s*$")
_HEAD = re.compile(r"^#(\d+)-\d+ \(([0-9a-fA-F]{1,16})\) ([A-Z]+)")
_DIFFER = re.compile(r"ranks have different (\w+) operation counts")
_SET = re.compile(r"^\s*(\d+) ranks have (?:launched up to operation (\d+)|not launched any)")
_ONE = re.compile(r"^\s*Rank (\d+) has (?:launched up to operation (\d+)|not launched any)")
_RANK = re.compile(r"^\s*Rank (\d+)\b")
_ERROR = re.compile(r"^\s*(?:\d+ ranks|Rank \d+) reported ([A-Za-z ]+?)(?: --|$)")
_WHO = re.compile(
    r"-- GPU (\d+)(?: \(NVML (\d+)\))? managed by process (\d+) on node ([0-9a-fA-F.:]{2,46})"
)
_LOST = re.compile(r"^\s*Missing communicator data from (\d+) rank")
_LISTED = re.compile(r"^\s*The missing ranks?: ([\d, ]+)")
_GONE = re.compile(r"^\s*Process (\d+) on node ([0-9a-fA-F.:]{2,46}) managing GPUs? (\d+)")
_TIMEOUTS = re.compile(r"^\s*Encountered (\d+) communication timeout")
_RESULTS = (
    "", "Unhandled CUDA error", "System error", "Internal error", "Invalid argument",
    "Invalid usage", "Remote process error",
)  # fmt: skip
"""ncclResult_t by number (nccl.h), as the text writes them."""
UNKNOWN_ERROR = 99


class Text:
    """Line by line: the table of groups, then a paragraph for each communicator that is not OK.

    Counts are told only of operations in which the ranks differ, and ranks only of the smaller
    sets; a communicator in which all agree is not even named. Of several operations the first
    counts.
    """

    def __init__(self, reader: "Reader") -> "None":
        self.reader = reader
        self.sizes: "dict[str, int]" = {}
        self.comms: "dict[str, Comm]" = {}
        self.comm: "Optional[Comm]" = None
        self.part = ""
        """The paragraph: INCOMPLETE, DEAD, ERROR, MISMATCH."""
        self.op = ""
        """Whose counts are being told."""
        self.set: "Optional[int]" = None
        """Count of the set of ranks being told."""
        self.error: "Optional[int]" = None
        self.gone: "dict[tuple[Optional[int], str], bool]" = {}
        """(pid, node) -> dead."""

    def take(self, text: "str") -> "str":
        lines = text.split("\n")
        for line in lines[:-1]:
            self._line(line.rstrip("\r"))
        return lines[-1]

    def end(self) -> "None":
        """Who of the missing is dead is told before them."""
        for comm in self.reader.comms:
            comm.missing = [
                one._replace(dead=self.gone.get((one.pid, one.host), False)) for one in comm.missing
            ]

    def _line(self, line: "str") -> "None":
        release, took, head = _RELEASE.match(line), _TOOK.match(line), _HEAD.match(line)
        if release:
            self.reader.version = word(release.group(1))
        elif took:
            self.reader.took_s = float(took.group(1))
        elif head:
            self._begin(head.group(1), head.group(2), head.group(3))
        elif line.startswith("Warnings"):
            self.comm, self.reader.complete = None, True
        elif line.strip() in ("DEAD", "INCOMPLETE"):
            self.comm, self.part = None, line.strip()
        elif self.comm is None:
            self._of_job(line)
        else:
            self._of_comm(self.comm, line)

    def _begin(self, group: "str", digits: "str", part: "str") -> "None":
        name = name_of(digits)
        self.part, self.op, self.set, self.error = part, "", None, None
        self.comm = self.comms.get(name)
        if self.comm is None and len(self.comms) < COMMS_MOST:
            self.comm = self.comms[name] = Comm(name, self.sizes.get(group, 0))
            self.comm.basis = "text"
            self.reader.comms.append(self.comm)

    def _of_job(self, line: "str") -> "None":
        group, gone, late = _GROUP.match(line), _GONE.match(line), _TIMEOUTS.match(line)
        if group and len(self.sizes) < COMMS_MOST:
            self.sizes[group.group(1)] = number_of(group.group(5)) or 0
        elif gone and len(self.gone) < RANKS_MOST:
            self.gone[number_of(gone.group(1)), gone.group(2)] = self.part == "DEAD"
        elif late:
            self.reader.timeouts = number_of(late.group(1)) or 0

    def _of_comm(self, comm: "Comm", line: "str") -> "None":
        differ, lost, listed = _DIFFER.search(line), _LOST.match(line), _LISTED.match(line)
        if differ:
            self.op, self.set = differ.group(1)[:WORD_CHARS], None
            comm.basis = self.op if comm.basis == "text" else comm.basis
        elif lost:
            comm.lost = number_of(lost.group(1)) or 0
        elif listed:
            for one in listed.group(1).replace(",", " ").split():
                self._missing(comm, number_of(one), line)
        elif self.part == "INCOMPLETE":
            rank = _RANK.match(line)
            if rank:
                self._missing(comm, number_of(rank.group(1)), line)
        elif self.part == "ERROR":
            self._failed(comm, line)
        elif self.op == comm.basis:
            self._launched(comm, line)

    def _missing(self, comm: "Comm", number: "Optional[int]", line: "str") -> "None":
        if self.reader.room():
            comm.missing.append(Missing(number, *_who(line), silent=True, dead=False))

    def _failed(self, comm: "Comm", line: "str") -> "None":
        error, rank = _ERROR.match(line), _RANK.match(line)
        if error:
            known = error.group(1) in _RESULTS
            self.error = _RESULTS.index(error.group(1)) if known else UNKNOWN_ERROR
        if rank and self.error and self.reader.room():
            number = number_of(rank.group(1))
            comm.ranks.append(Rank(number, *_who(line), None, "", None, self.error, False))

    def _launched(self, comm: "Comm", line: "str") -> "None":
        many, one, named = _SET.match(line), _ONE.match(line), _RANK.match(line)
        if many:
            self.set = number_of(many.group(2)) or 0
            comm.counts[self.set] = comm.counts.get(self.set, 0) + (number_of(many.group(1)) or 0)
        elif one:
            self._named(comm, number_of(one.group(1)), number_of(one.group(2)) or 0, line)
        elif named and self.set is not None:
            comm.counts[self.set] -= 1
            self._named(comm, number_of(named.group(1)), self.set, line)

    def _named(self, comm: "Comm", number: "Optional[int]", count: "int", line: "str") -> "None":
        if self.reader.room():
            ops = "%s %d" % (self.op, count)
            comm.ranks.append(Rank(number, *_who(line), count, ops, None, None, False))


def _who(line: "str") -> "tuple[str, Optional[int], Optional[int]]":
    """Node, process and GPU (NVML's index) of a text line."""
    found = _WHO.search(line)
    if found is None:
        return "", None, None
    gpu, nvml, pid, host = found.groups()
    return host_of(host), number_of(pid), number_of(nvml or gpu)
