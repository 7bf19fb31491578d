"""A Diagnosis as text: glyph and word first, then what it means, the very lines, what is unknown.

Colour only for a terminal that wants it; the glyph and the word carry the meaning without it.
"""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from probes.event import Finding, Severity

if TYPE_CHECKING:
    from console.diagnose.command import Diagnosis, Part

WIDTH = 100
SHOWN = 40
"""Most findings of one part that are printed; --json has all."""

_GLYPHS = {
    Severity.OK: "✓", Severity.INFO: "i", Severity.WARN: "!", Severity.CRITICAL: "✗",
    Severity.UNKNOWN: "?",
}  # fmt: skip
_ASCII = {**_GLYPHS, Severity.OK: "+", Severity.CRITICAL: "X"}
_COLOURS = {
    Severity.INFO: "36", Severity.WARN: "33", Severity.CRITICAL: "1;31", Severity.UNKNOWN: "35",
}  # fmt: skip


class Style(NamedTuple):
    """What the output can carry."""

    colour: bool
    unicode: bool

    def grade(self, severity: Severity) -> str:
        """Glyph and word, coloured where that is wanted."""
        glyph = (_GLYPHS if self.unicode else _ASCII)[severity]
        text = f"{glyph} {severity.value}"
        code = _COLOURS.get(severity)
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and code else text


def text(diagnosis: Diagnosis) -> bytes:
    """For stdout, in its encoding."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    style = Style(_colour(os.environ, terminal=sys.stdout.isatty()), _carries(encoding))
    return "\n".join([*lines(diagnosis, style), ""]).encode(encoding, "replace")


def _colour(environ: Mapping[str, str], *, terminal: bool) -> bool:
    return terminal and not environ.get("NO_COLOR") and environ.get("TERM", "dumb") != "dumb"


def _carries(encoding: str) -> bool:
    try:
        "".join(_GLYPHS.values()).encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def lines(diagnosis: Diagnosis, style: Style) -> Iterator[str]:
    """Part by part; with several parts the whole in the end."""
    for part in diagnosis.inputs:
        yield from _part(part, style)
        yield ""
    if len(diagnosis.inputs) > 1:
        yield f"{style.grade(diagnosis.verdict)}  all together; drain: {diagnosis.drain}"


def _part(part: Part, style: Style) -> Iterator[str]:
    where = f"{part.file}:{part.lines}" if part.lines else part.file
    yield f"{style.grade(part.verdict)}  {where}  {part.kind}".rstrip()
    yield from _wrapped("  ", part.say)
    if part.kind:
        yield f"  drain: {part.drain}"
    for finding in part.findings[:SHOWN]:
        yield from _finding(finding, style)
    if len(part.findings) > SHOWN:
        yield f"  and {len(part.findings) - SHOWN} findings more; --json has them"
    for sentence in part.unknown:
        yield from _wrapped("  unknown: ", sentence)


def _finding(finding: Finding, style: Style) -> Iterator[str]:
    names = " ".join(filter(None, (finding.node, _device(finding))))
    lead = f"{names}: " if names else ""
    yield f"  {style.grade(finding.severity)}  {lead}{finding.say}  [{finding.rule}]"
    for line in finding.evidence:
        yield f"      | {line}"
    yield from _wrapped("      cause: ", finding.cause)
    yield from _wrapped("      next: ", finding.next_step)
    yield from _wrapped("      source: ", finding.source)


def _device(finding: Finding) -> str:
    """Its label, unless the sentence begins with it ("GPU 14 is lost", "/data: ...")."""
    label = finding.label or finding.device
    begins = finding.say.casefold().startswith(label.casefold())
    return "" if begins and not finding.say[len(label) :][:1].isalnum() else label


def _wrapped(lead: str, sentence: str) -> list[str]:
    if not sentence:
        return []
    indent = " " * len(lead)
    return textwrap.wrap(
        sentence, WIDTH, initial_indent=lead, subsequent_indent=indent, break_on_hyphens=False,
        break_long_words=False,
    )  # fmt: skip
