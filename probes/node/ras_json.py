"""The JSON that an NCCL RAS port sends from 2.28.7 on. Pure."""

import json
import re

from probes.node.ras_comm import (
    COMMS_MOST, OPS_MOST, WORD_CHARS, Comm, Missing, Rank, number_of, host_of, is_number, name_of,
    whole, word,
)  # fmt: skip

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    from probes.node.ras_read import Reader

_BRACE = re.compile(r"[{}]")
"""Names of the answer hold none; one that does confuses itself only."""
_FIELD = re.compile(r'"(hash|size|missing_ranks_count)"\s*:\s*"?(0x[0-9a-fA-F]+|\d+)')
_VERSION = re.compile(r'"nccl_version"\s*:\s*"([^"]{1,32})"')
_COMM, _RANK_DEPTH = 2, 3
"""Depth of braces: the document is 1, a communicator in it, a rank in that."""


class Json:
    """Ranks are decoded one by one; what stands before the first names their communicator."""

    def __init__(self, reader: "Reader") -> "None":
        self.reader = reader
        self.comm: "Optional[Comm]" = None
        self.depth = 0
        self.seen = 0
        """Characters of the rest that were looked through already."""
        self.begin = {_COMM: 0, _RANK_DEPTH: 0}
        self.head = False
        """A communicator has begun, and none of its ranks."""

    def take(self, text: "str") -> "str":
        done = 0
        for found in _BRACE.finditer(text, self.seen):
            if found.group() == "{":
                self.depth += 1
                self._open(text, found.start(), done)
                continue
            if self._close(text, found.end()):
                done = found.end()
            self.depth -= 1
            self.reader.complete = self.reader.complete or self.depth == 0
            self.reader.odd = self.reader.odd or self.depth < 0
        self.seen = len(text) - done
        self.begin = {depth: at - done for depth, at in self.begin.items()}
        return text[done:]

    def end(self) -> "None":
        """Nothing is left to tell."""

    def _open(self, text: "str", at: "int", done: "int") -> "None":
        if self.depth == _COMM:
            version = _VERSION.search(text, done, at)
            self.reader.version = word(version.group(1)) if version else self.reader.version
            self.head = True
        elif self.depth == _RANK_DEPTH and self.head:
            self._begin(dict(_FIELD.findall(text[self.begin[_COMM] : at])))
            self.head = False
        if self.depth in self.begin:
            self.begin[self.depth] = at

    def _close(self, text: "str", end: "int") -> "bool":
        """Whether all up to here is dealt with."""
        if self.depth == _RANK_DEPTH:
            if self.comm is not None and self.reader.room():  # else not worth decoding
                self._rank(self.comm, _decoded(text[self.begin[_RANK_DEPTH] : end]))
        elif self.depth == _COMM and self.head:
            self._alone(text[self.begin[_COMM] : end])
        return self.depth in self.begin

    def _alone(self, text: "str") -> "None":
        """An object with none inside: what NCCL says of its asking, or an empty communicator."""
        told = _decoded(text)
        if "hash" in told:
            self._begin(dict(_FIELD.findall(text)))
        elif "collection_time_sec" in told:
            took_s = told["collection_time_sec"]
            self.reader.took_s = float(took_s) if is_number(took_s) else None
            self.reader.timeouts = whole(told.get("timeouts_count")) or 0

    def _begin(self, fields: "dict[str, str]") -> "None":
        name, size = name_of(fields.get("hash", "")), number_of(fields.get("size"))
        self.comm = None
        if name and size is not None and len(self.reader.comms) < COMMS_MOST:
            self.comm = Comm(name, size)
            self.comm.lost = number_of(fields.get("missing_ranks_count")) or 0
            self.reader.comms.append(self.comm)

    def _rank(self, comm: "Comm", told: "dict[str, Any]") -> "None":
        status = told.get("status")
        if "rank" not in told:
            return
        status = status if isinstance(status, dict) else {}
        number, host = whole(told.get("rank")), host_of(told.get("host"))
        pid, gpu = whole(told.get("pid")), whole(told.get("nvml_dev"))
        counts = told.get("collective_counts")
        if isinstance(counts, dict):
            count, ops = _launched(counts)
            init, error = whole(status.get("init_state")), whole(status.get("async_error"))
            ending = any(status.get(flag) is True for flag in _ENDING)
            comm.ranks.append(Rank(number, host, pid, gpu, count, ops, init, error, ending))
        else:
            silent, dead = status.get("unresponsive") is True, status.get("considered_dead") is True
            comm.missing.append(Missing(number, host, pid, gpu, silent, dead))


def _decoded(text: "str") -> "dict[str, Any]":
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _launched(counts: "dict[str, Any]") -> "tuple[Optional[int], str]":
    """Collectives of all kinds, and the same by kind as text; None where one cannot be read."""
    ops = [(str(op)[:WORD_CHARS], whole(n)) for op, n in list(counts.items())[:OPS_MOST]]
    known = [n for _, n in ops if n is not None]
    text = ", ".join("%s %d" % (word(op), n) for op, n in ops if n)
    return (sum(known) if known and len(known) == len(ops) else None), text


_ENDING = ("finalize_called", "destroy_flag", "abort_flag")
