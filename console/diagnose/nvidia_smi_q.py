"""`nvidia-smi -q`: its indented lines as cells with a path, per GPU.

Paths instead of nested objects: a section may be cut off, doubled or without its indentation and
the lines below it still say what they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec import Struct, field

Path = tuple[str, ...]


class Cell(NamedTuple):
    """One value and where it stood."""

    path: Path
    """Normalised names from the outermost section to the key: ("ecc_mode", "current")."""
    text: str
    line: str


class Block(Struct):
    """One GPU, or what stands before the first of them."""

    gpu: str = ""
    """The address in its heading."""
    cells: list[Cell] = field(default_factory=list)
    _by_key: dict[str, list[Cell]] = field(default_factory=dict)

    def add(self, cell: Cell) -> None:
        """One more value."""
        self.cells.append(cell)
        self._by_key.setdefault(cell.path[-1], []).append(cell)

    def get(self, *wanted: str) -> Cell | None:
        """The first cell whose path ends in the last name and holds the others in this order."""
        for cell in self._by_key.get(wanted[-1], ()):
            if _holds(cell.path[:-1], wanted[:-1]):
                return cell
        return None


def _holds(path: Path, wanted: Path) -> bool:
    rest = iter(path)
    return all(name in rest for name in wanted)


def name_of(text: str) -> str:
    """A key as one word: "SRAM Uncorrectable SEC-DED" -> "sram_uncorrectable_sec_ded"."""
    return re.sub(r"[^a-z0-9]+", "_", text.strip().lower()).strip("_")


GPU = re.compile(r"\s*GPU ((?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*$")
"""Heading of one GPU's part."""
_COLON = re.compile(r":(?=\s|$)")
CELLS = 4000
"""Most values of one GPU; a full report has about 350 and one line a process."""
BLOCKS = 512


def blocks(lines: Iterable[str]) -> list[Block]:
    """The part before the first GPU, then one block for each GPU."""
    found = [Block()]
    stack: list[tuple[int, str]] = []
    for line in lines:
        heading = GPU.match(line)
        if heading:
            if len(found) > BLOCKS:
                break
            found.append(Block(heading[1]))
            stack = []
            continue
        if not line.strip() or set(line.strip()) <= {"=", "-", "+"}:
            continue
        cell = _cell(line, stack)
        if cell is not None and len(found[-1].cells) < CELLS:
            found[-1].add(cell)
    return found


def _cell(line: str, stack: list[tuple[int, str]]) -> Cell | None:
    """The value of a line in the sections of `stack`, which the line may open or close."""
    wide = line.expandtabs(8)
    text = wide.strip()
    depth, pair = len(wide) - len(wide.lstrip()), _COLON.search(text)
    name = name_of(text if pair is None else text[: pair.start()])
    if not name:
        return None
    while stack and stack[-1][0] >= depth:
        stack.pop()
    path = (*(section for _, section in stack), name)
    stack.append((depth, name))
    if pair is None:
        if depth == 0:
            # Without indentation every heading ends the section before, and stays open itself.
            stack[:] = [(-1, name)]
        return None
    return Cell(path, text[pair.end() :].strip(), text)


def is_log(lines: Iterable[str]) -> bool:
    """Whether these lines hold such a report: its banner, or a GPU's heading with values below."""
    previous = ""
    for line in lines:
        if "NVSMI LOG" in line:
            return True
        if GPU.match(previous) and _COLON.search(line.rstrip()):
            return True
        if GPU.match(previous) and line.startswith("    "):
            return True
        previous = line if line.strip() else previous
    return False


def processes(block: Block) -> Iterator[dict[str, str]]:
    """Process rows of one GPU: each begins with its id."""
    row: dict[str, str] = {}
    for cell in block.cells:
        key = cell.path[-1]
        if key == "process_id" or (key == "pid" and "process_info" in cell.path):
            if row:
                yield row
            row = {"pid": cell.text}
        elif row and key in ("type", "name", "process_name", "used_gpu_memory", "used_memory"):
            row[{"process_name": "name", "used_gpu_memory": "used_memory"}.get(key, key)] = (
                cell.text
            )
        elif row and "processes" not in cell.path:
            yield row
            row = {}
    if row:
        yield row
