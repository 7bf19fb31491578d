"""`nvidia-smi dmon`: one line a GPU and second; the last line of each GPU is now."""

from __future__ import annotations

from collections.abc import Iterable

from console.diagnose import cells
from console.diagnose.gpu_cards import CARDS, Card

COLUMNS = {
    "pwr": "gpu.power_w", "gtemp": "gpu.temp_c", "mtemp": "gpu.mem_temp_c",
    "sm": "gpu.util_percent", "mem": "gpu.mem_util_percent", "mclk": "gpu.mem_clock_mhz",
    "pclk": "gpu.sm_clock_mhz",
}  # fmt: skip
"""Column -> reading of the live probe."""


def heading(line: str) -> list[str] | None:
    """The columns' names where this line is dmon's heading."""
    words = line.split()
    if words[:2] == ["#", "gpu"]:
        return words[1:]
    return words if words[:1] == ["#gpu"] else None


def parse(lines: Iterable[str]) -> list[Card]:
    """The latest reading of each GPU."""
    found: dict[int, Card] = {}
    columns: list[str] | None = None
    for line in lines:
        columns = heading(line) or columns
        words = line.split()
        if columns is None or line.startswith("#") or len(words) != len(columns):
            continue
        index = cells.count(words[0])
        if index is None or (index not in found and len(found) >= CARDS):
            continue
        card = found[index] = Card(index=index)
        for name, text in zip(columns, words, strict=True):
            value = cells.number(text)
            if name in COLUMNS and value is not None:
                watts = name == "pwr"
                card.put(COLUMNS[name], float(value) if watts else value, line.strip())
    return list(found.values())
