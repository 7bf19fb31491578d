"""A ticket holds several things: pieces of one format each, with the host of the prompt above.

Cuts are prompts, `---` lines, code fences, and blank lines behind which another format begins. A
piece that no reader knows goes with the one before it (or after it, at the beginning): the count
under a list, the note over a table. Pieces of one kind and host are read together, as one text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct, field

from console.diagnose import detect
from console.diagnose.text import HEAD_BYTES, Line, Text, tidy

PIECES = 400
"""Most pieces of one text; what follows goes with the last one."""
SURE = 60
"""How sure a reader must be of a paragraph to take it away from the format around it."""

CERTAIN = 75
"""From here on a paragraph's reader needs nobody's leave, but that of a reader that takes it in."""

_CUT = re.compile(r"^(?:-{3}|={3}|`{3}[\w+-]*|~{3}[\w+-]*)\s*$")
_PROMPT = re.compile(
    r"^(?:\([\w.-]+\)\s)?(?:"
    r"\[?(?P<user>[\w.-]+)@(?P<host>[\w.-]+)(?:[:\s][^\s\]$#%>]*)?\]?\s?[$#%>]"
    r"|(?P<only>[A-Za-z][\w.-]*)?(?::[~/][^\s$#]*)?[$]"
    r")\s+(?P<command>\S.*)$"
)


class Piece(Struct):
    """Lines of one format."""

    kind: str
    """"" while no reader knows it."""
    host: str
    command: str
    lines: list[Line] = field(default_factory=list)
    score: int = 0
    reader: detect.Reader | None = None

    def text(self, source: str) -> Text:
        """As readers take it."""
        return Text(self.lines, source, host=self.host, command=self.command)


def pieces(lines: list[Line], kind: str = "") -> list[Piece]:
    """The pieces of a text that some reader knows, in order.

    `kind` forces one for all of it; then nothing is cut but what prompts name hosts for.
    """
    if kind:
        guess = detect.best(_head(lines), kind)
        reader = guess.reader if guess else None
        return [Piece(kind, "", "", _unquoted(lines), 100, reader)]
    found: list[Piece] = []
    for block in _blocks(_unquoted(lines)):
        for piece in _paragraphs(block):
            _join(found, piece, full=len(found) >= PIECES)
    _attach_first(found)
    for piece in found:
        while piece.lines and not piece.lines[-1].text.strip():
            piece.lines.pop()
    return _together([piece for piece in found if piece.kind])


def _blocks(lines: list[Line]) -> Iterator[Piece]:
    """Between prompts, fences and rules."""
    block = Piece("", "", "")
    filled, count = False, 0
    for line in lines:
        prompt = _prompt(line.text)
        cut = prompt is not None or _CUT.match(line.text[:80]) is not None
        if not cut or count >= PIECES:
            block.lines.append(line)
            filled = filled or bool(line.text.strip())
            continue
        if filled:
            yield block
            count += 1
        host, command = prompt or (block.host, "")
        block, filled = Piece("", host, command), False
    if filled:
        yield block


def _prompt(text: str) -> tuple[str, str] | None:
    """Host and command of a line that is a shell's prompt with a command behind it."""
    match = _PROMPT.match(tidy(text[:400]))
    if match is None:
        return None
    return (match["host"] or match["only"] or "").partition(".")[0], match["command"]


def _paragraphs(block: Piece) -> Iterator[Piece]:
    """Parts of a block between blank lines, each with the reader that is surest of it.

    One format may have blank lines inside: a paragraph changes the reader only when another one is
    sure of it, and the reader of the whole block is not surer.
    """
    whole = _dedent(block)
    current: Piece | None = None
    for part in _split(block.lines):
        guess = detect.best(_head(part))
        score = guess.score if guess else 0
        other = guess is not None and (current is None or guess.reader is not current.reader)
        if current is None or (
            other and score >= SURE and not _inside(current, whole, score)
            and not _taken(current, guess)
        ):  # fmt: skip
            if current is not None:
                yield current
            current = _piece(block, part, guess)
        else:
            current.lines.extend(part)
            if score > current.score and guess is not None and current.reader is None:
                current.kind, current.score, current.reader = guess.reader.KIND, score, guess.reader
    if current is None:
        return
    if current.reader is None and whole is not None:
        # No paragraph says what all of them together do.
        current.kind, current.score, current.reader = whole.reader.KIND, whole.score, whole.reader
    yield current


def _inside(current: Piece, whole: detect.Guess | None, score: int) -> bool:
    """Whether the block's own reader is surer of all of it than another one of this paragraph.

    Who is certain of a paragraph takes it, whatever stands around it.
    """
    return (
        score < CERTAIN
        and whole is not None
        and whole.reader is current.reader
        and whole.score > score
    )


_QUOTED = re.compile(r"^\s*>+ ?")


def _unquoted(lines: list[Line]) -> list[Line]:
    """Without the "> " that a mail puts in front: no format begins a line with it."""
    return [
        Line(n, _QUOTED.sub("", text, count=1)) if text.lstrip()[:1] == ">" else Line(n, text)
        for n, text in lines
    ]


def _dedent(block: Piece) -> detect.Guess | None:
    """The reader of the whole block; a common indent goes where that helps it."""
    whole = detect.best(_head(block.lines))
    plain = [Line(n, t.expandtabs(8) if t[:1] == "\t" else t) for n, t in block.lines]
    filled = [text for _, text in plain if text.strip()]
    indent = min((len(text) - len(text.lstrip(" ")) for text in filled), default=0)
    if not indent:
        return whole
    plain = [Line(n, text[indent:]) for n, text in plain]
    other = detect.best(_head(plain))
    if other is not None and (whole is None or other.score > whole.score):
        block.lines = plain
        return other
    return whole


def _taken(current: Piece, guess: detect.Guess | None) -> bool:
    """Whether the reader of the format around it reads this one too, and declares so in TAKES."""
    return guess is not None and guess.reader.KIND in getattr(current.reader, "TAKES", ())


def _piece(block: Piece, part: list[Line], guess: detect.Guess | None) -> Piece:
    kind, score = (guess.reader.KIND, guess.score) if guess else ("", 0)
    lines = list(part)
    return Piece(kind, block.host, block.command, lines, score, guess.reader if guess else None)


def _split(lines: list[Line]) -> Iterator[list[Line]]:
    part: list[Line] = []
    blank = filled = False
    count = 0
    for line in lines:
        if blank and filled and count < PIECES and line.text.strip():
            yield part
            part, filled, count = [], False, count + 1
        filled = filled or bool(line.text.strip())
        blank = not line.text.strip()
        part.append(line)
    if part:
        yield part


def _join(found: list[Piece], piece: Piece, *, full: bool) -> None:
    """Append a piece, or put it with the one before: unknown ones, and the same kind again."""
    last = found[-1] if found else None
    same = last is not None and last.reader is piece.reader and last.host == piece.host
    if last is not None and (full or same or (piece.reader is None and last.reader is not None)):
        last.lines.extend(piece.lines)
    else:
        found.append(piece)


def _attach_first(found: list[Piece]) -> None:
    """What no reader knows at the beginning belongs to what follows."""
    if len(found) > 1 and found[0].reader is None:
        found[1].lines[:0] = found[0].lines
        del found[0]


def _together(found: list[Piece]) -> list[Piece]:
    """Pieces of one reader and host as one."""
    merged: dict[tuple[int, str], Piece] = {}
    for piece in found:
        key = (id(piece.reader), piece.host)
        if key in merged:
            merged[key].lines.extend(piece.lines)
        else:
            merged[key] = piece
    return list(merged.values())


def _head(lines: list[Line]) -> str:
    """The beginning of a text, sanitised, as readers sniff at it."""
    kept: list[str] = []
    chars = 0
    for _, text in lines:
        if chars > HEAD_BYTES:
            break
        kept.append(tidy(text[:HEAD_BYTES]))
        chars += len(kept[-1]) + 1
    return "\n".join(kept)
