"""`nvidia-smi -q -x`: the XML report as the same cells that its text form gives.

The document is hostile: expat runs without entity expansion of any kind (a declared entity ends
the reading), depth, size and number of values are bounded, and what was read before a fault stays.
"""

from __future__ import annotations

from typing import Any
from xml.parsers import expat

from console.diagnose.nvidia_smi_q import BLOCKS, CELLS, Block, Cell, name_of

DEPTH = 24
TEXT_CHARS = 2000
CHUNK = 1 << 16


class _StopError(Exception):
    """The document asks for something that no report of nvidia-smi holds."""


class _Reader:
    """Handlers of expat; collects blocks."""

    def __init__(self) -> None:
        self.blocks = [Block()]
        self.path: list[str] = []
        self.text: list[str] = []
        self.size = 0
        self.leaf = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self.path) >= DEPTH:
            raise _StopError
        if name == "gpu" and "id" in attributes:
            if len(self.blocks) > BLOCKS:
                raise _StopError
            self.blocks.append(Block(attributes["id"][:TEXT_CHARS]))
        self.path.append(name_of(name[:TEXT_CHARS]) or "_")
        self.text, self.size, self.leaf = [], 0, True

    def data(self, text: str) -> None:
        if self.size < TEXT_CHARS:
            self.text.append(text)
            self.size += len(text)

    def end(self, name: str) -> None:
        if self.leaf and len(self.blocks[-1].cells) < CELLS:
            text = " ".join("".join(self.text)[:TEXT_CHARS].split())
            path = tuple(part for part in self.path if part not in ("nvidia_smi_log", "gpu"))
            if path:
                self.blocks[-1].add(Cell(path, text, f"<{name}>{text}</{name}>"))
        self.path.pop()
        self.leaf = False

    def refuse(self, *_: object) -> Any:
        raise _StopError


def blocks(text: str) -> tuple[list[Block], str]:
    """(the part before the first GPU and one block each, why the reading stopped early or "")."""
    begin = text.find("<nvidia_smi_log")
    prolog = text.find("<?xml")
    if 0 <= prolog < begin:
        begin = prolog
    if begin < 0:
        return [Block()], "no <nvidia_smi_log> in it"
    reader = _Reader()
    parser = expat.ParserCreate()
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.data
    # The DOCTYPE that nvidia-smi writes names a DTD and declares nothing: no entity is ever needed.
    parser.EntityDeclHandler = reader.refuse
    parser.ExternalEntityRefHandler = reader.refuse
    parser.SkippedEntityHandler = reader.refuse
    end = text.find("</nvidia_smi_log>", begin)
    body = text[begin : end + len("</nvidia_smi_log>")] if end >= 0 else text[begin:]
    why = "" if end >= 0 else "the report is cut off"
    try:
        for at in range(0, len(body), CHUNK):
            parser.Parse(body[at : at + CHUNK], at + CHUNK >= len(body) and end >= 0)
    except _StopError:
        why = "it declares entities, nests too deep or is too long: read up to there"
    except (expat.ExpatError, ValueError) as error:
        why = f"the XML is broken: {error}"
    return reader.blocks, why
