"""Text as it comes out of tickets: any encoding, gzip, endless, hostile; and the lines of it.

Lines are sanitised and at most 64 KiB long; a reader of JSON takes the whole text instead.
"""

from __future__ import annotations

import codecs
import gzip
import json
import re
import sys
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from inventory.errors import UsageError
from probes.sanitise import clean

LINE_CHARS = 64 * 1024
HEAD_BYTES = 64 * 1024
"""What formats are told by."""
SMALL_BYTES = 4 << 20
"""Up to here a text is taken apart into pieces; a larger one is one format, read as a stream."""
LINES = 1_000_000
"""Most lines kept at a time: 2 million short ones would take 700 MB (measured)."""
WHOLE_BYTES = 64 << 20
"""Most that is kept at a time for readers that need everything at once."""
CHUNK_BYTES = 1 << 20
GZIP_BYTES = 8 << 30
"""Most that one compressed file is unpacked to."""
JSON_VALUES = 20_000
"""Most JSON documents of one text."""
JSON_FAILURES = 64
"""Most beginnings of a document that turn out to be none: each may cost a look at all the text."""
_OPENS = re.compile(r"^[ \t\ufeff]*[{\[]", re.MULTILINE)
_GZIP = b"\x1f\x8b"
_BOMS = ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_ODD = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_ODD_SHARE = 0.02
"""Control bytes other than tab, line ends and ESC; a log after a crash may hold a few zeros."""


class Line(NamedTuple):
    """One line, its number in the file from 1."""

    number: int
    text: str


class Text:
    """Lines of one piece of one input."""

    def __init__(
        self, lines: Iterable[Line], source: str = "", *, host: str = "", command: str = "",
        whole: str = "",
    ) -> None:  # fmt: skip
        """`host` and `command` are those of the prompt above the piece, where there is one.

        `whole` is the text itself, where the lines are not all of it.
        """
        self._lines = lines
        self._whole = whole
        self.source = source
        self.host = host
        self.command = command

    def __iter__(self) -> Iterator[Line]:
        """Sanitised lines; once only for an endless input."""
        for number, text in self._lines:
            yield Line(number, tidy(text))

    def lines(self) -> list[Line]:
        """All lines at once."""
        return list(self)

    def whole(self) -> str:
        """The text in one piece, long lines uncut. Not sanitised: for parsers of JSON or XML."""
        return self._whole or "\n".join(text for _, text in self._lines)

    def documents(self) -> list[Any]:
        """The JSON values of the text, whatever stands around them."""
        return documents(self.whole())


def of(text: str, source: str = "", *, host: str = "") -> Text:
    """A Text of a string."""
    return Text([Line(n, t) for n, t in enumerate(text.split("\n"), 1)], source, host=host)


def tidy(text: str) -> str:
    """One sanitised line; the blanks in front are kept, tabs become blanks."""
    text = text.rstrip("\r\n")
    if text.isprintable() and len(text) <= LINE_CHARS:
        return text
    text = text[: LINE_CHARS * 2].expandtabs(8)
    lead = len(text) - len(text.lstrip(" "))
    return (" " * lead + clean(text[lead:], LINE_CHARS))[:LINE_CHARS]


def documents(text: str) -> list[Any]:
    """JSON objects and arrays that begin a line, in order.

    Of a document that was cut short the parts that are whole are found instead: the items of a
    list, one by one.
    """
    decoder = json.JSONDecoder(strict=False)
    found: list[Any] = []
    end, failures = 0, 0
    for start in _OPENS.finditer(text):
        at = start.end() - 1
        if at < end:
            continue
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            failures += 1
            if failures > JSON_FAILURES:
                break
        else:
            found.append(value)
            if len(found) >= JSON_VALUES:
                break
    return found


class Input:
    """One file or stdin, opened; its beginning read."""

    def __init__(self, name: str, stream: IO[bytes], below: IO[bytes] | None = None) -> None:
        """`below` is the file under an unpacking stream, which does not close it."""
        self.name = name
        self._below = below
        self.notes: list[str] = []
        self.whole = ""
        """All of the text, once `lines` has read it."""
        self._stream = stream
        self.start = self._read(SMALL_BYTES + 1)
        self.small = len(self.start) <= SMALL_BYTES
        self.binary = _binary(self.start[:HEAD_BYTES])

    def _read(self, most: int) -> bytes:
        """Up to `most` bytes; fewer only at the end."""
        parts: list[bytes] = []
        left = most
        while left > 0:
            try:
                # read() of a cut gzip file would lose what it had unpacked before the cut.
                part = self._part(min(left, CHUNK_BYTES))
            except (OSError, EOFError, zlib.error) as error:
                self.notes.append(f"reading stopped early: {error}")
                break
            if not part:
                break
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def _part(self, most: int) -> bytes:
        part: bytes = getattr(self._stream, "read1", self._stream.read)(most)
        return part

    def close(self) -> None:
        """Nothing is read any more; stdin stays open."""
        if self._stream is not sys.stdin.buffer:
            self._stream.close()
        if self._below is not None:
            self._below.close()

    def lines(self) -> list[Line]:
        """Everything, at most WHOLE_BYTES of it."""
        raw = self.start
        if not self.small:
            raw += self._read(WHOLE_BYTES - len(raw) + 1)
        if len(raw) > WHOLE_BYTES:
            raw = raw[:WHOLE_BYTES]
            self.notes.append(f"only the first {WHOLE_BYTES >> 20} MiB were read")
        self.whole = decoded(raw)
        found = self.whole.split("\n", LINES)
        if len(found) > LINES:
            found.pop()
            self.notes.append(f"only the first {LINES} lines were read")
        return [Line(n, t) for n, t in enumerate(found, 1)]

    def stream(self) -> Iterator[Line]:
        """All lines in bounded memory: what a line has beyond LINE_CHARS is dropped."""
        number, rest = 0, b""
        for chunk in self._chunks():
            *whole, rest = (rest + chunk).split(b"\n")
            for raw in whole:
                number += 1
                yield Line(number, raw[: LINE_CHARS * 2].decode("utf-8", "replace"))
            rest = rest[: LINE_CHARS * 2]
        if rest:
            yield Line(number + 1, rest.decode("utf-8", "replace"))

    def _chunks(self) -> Iterator[bytes]:
        start, self.start = self.start, b""
        for at in range(0, len(start), CHUNK_BYTES):
            yield start[at : at + CHUNK_BYTES]
        total = len(start)
        start = b""
        while chunk := self._read(CHUNK_BYTES):
            yield chunk
            total += len(chunk)
            if total > GZIP_BYTES and isinstance(self._stream, gzip.GzipFile):
                self.notes.append(f"only the first {GZIP_BYTES >> 30} GiB were unpacked")
                break


def decoded(raw: bytes) -> str:
    """UTF-8, or UTF-16 where a byte order mark says so (what PowerShell writes)."""
    for mark, encoding in _BOMS:
        if raw.startswith(mark):
            return raw[2:].decode(encoding, "replace")
    return raw.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace")


def _binary(head: bytes) -> bool:
    if any(head.startswith(mark) for mark, _ in _BOMS):
        return False
    odd = len(_ODD.findall(head))
    broken = head.decode("utf-8", "ignore")
    # A cut character at the end of the head is no fault; a tenth of undecodable bytes is.
    lost = len(head) - len(broken.encode())
    return odd > max(2, _ODD_SHARE * len(head)) or lost > max(8, len(head) // 10)


def open_input(name: str) -> Input:
    """A file, or stdin for "-". Raises UsageError with one line."""
    if name == "-":
        return Input("stdin", _unzipped(sys.stdin.buffer))
    path = Path(name)
    if path.is_dir():
        raise UsageError("is a directory", where=name, instead="name the files in it")
    try:
        stream = path.open("rb")
    except OSError as error:
        raise UsageError(f"{error.strerror}", where=name) from error
    unpacked = _unzipped(stream)
    return Input(name, unpacked, None if unpacked is stream else stream)


def _unzipped(stream: IO[bytes]) -> IO[bytes]:
    peek = getattr(stream, "peek", None)
    if peek is not None and peek(2)[:2] == _GZIP:
        return cast("IO[bytes]", gzip.GzipFile(fileobj=stream))
    return stream
