"""The pairs of many nodes as one picture of a pixel each, as a PNG in a data: address. Pure.

512 nodes are 262,144 cells: as SVG some 30 MB, as this at most 30 kB.
"""

from __future__ import annotations

import base64
import struct
import zlib

from console.active.figures import FINE, POOR
from console.active.matrix import FAILED, Matrix

PIXELS = 1024
"""Most rows; of more nodes a pixel is a block of neighbours and shows its lowest pair."""
COLOURS = (
    (255, 255, 255),
    (201, 214, 228),
    (240, 190, 90),
    (213, 94, 0),
    (120, 20, 60),
    (0, 0, 0),
)
"""Not run, fine, below 95 %, below 90 %, below half, no figure: on white, told apart by lightness
alone, so that print and colour-blind eyes see the same."""


def shade(part: float) -> int:
    """Index into COLOURS."""
    if part == FAILED:
        return 5
    return 1 if part >= FINE else 2 if part >= POOR else 3 if part >= 0.5 else 4


def png(m: Matrix) -> bytes:
    """Rows and columns in the order of `m.nodes`."""
    block = -(-len(m.nodes) // PIXELS)
    side = -(-len(m.nodes) // block)
    place = {name: i // block for i, name in enumerate(m.nodes)}
    rows = [bytearray(side) for _ in range(side)]
    for (a, b), part in m.cells.items():
        x, y, colour = place[a], place[b], shade(part)
        rows[x][y] = rows[y][x] = max(rows[x][y], colour)
    # Each row begins with its filter, 0: none.
    data = b"".join(b"\0" + row for row in rows)
    head = struct.pack(">IIBBBBB", side, side, 8, 3, 0, 0, 0)
    palette = bytes(part for colour in COLOURS for part in colour)
    parts = [(b"IHDR", head), (b"PLTE", palette), (b"IDAT", zlib.compress(data, 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, body) for kind, body in parts)


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def address(m: Matrix) -> str:
    """`data:image/png;base64,...`"""
    return "data:image/png;base64," + base64.b64encode(png(m)).decode("ascii")
