"""The table that plain `nvidia-smi` prints, of drivers from the 4xx to the 58x series.

Two or three lines for a GPU between bars; widths, bars and headings moved over the years, the order
of the cells did not. Below it: MIG devices, processes, and warnings about single cards.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct, field

from console.diagnose import cells
from console.diagnose.gpu_cards import Card

_TITLE = re.compile(
    r"NVIDIA-SMI\s+(?P<smi>[\d.]+).{0,80}?Driver Version:\s*(?P<driver>[\d.]+)"
    r"(?:.{0,80}?CUDA Version:\s*(?P<cuda>[\d.]+|ERR!|N/A))?"
)
_GPU = re.compile(
    r"\s*(?P<index>\d{1,4})\s+(?P<name>\S.*?)\s+(?P<persistence>On|Off|N/A|ERR!|TCC|WDDM|MCDM)\s*$"
)
_BUS = re.compile(
    r"\s*(?P<pci>(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s+\S+\s*$"
)
_LOAD = re.compile(
    r"\s*(?P<fan>\S+)\s+(?P<temp>\S+)\s+(?P<pstate>\S+)\s+(?P<power>\S+)\s*/\s*(?P<cap>\S+)\s*$"
)
_MEMORY = re.compile(r"\s*(?P<used>\S+)\s*/\s*(?P<total>\S+)\s*$")
_UTIL = re.compile(r"\s*(?P<util>\S+)\s+(?P<mode>\S.*?)\s*$")
_PROCESS = re.compile(
    r"\s*(?P<gpu>\d{1,4})\s+(?:(?P<gi>\d+|N/A)\s+(?P<ci>\d+|N/A)\s+)?(?P<pid>\d{1,10})\s+"
    r"(?P<type>[A-Z+]{1,5})\s+(?P<name>\S.*?)\s+(?P<memory>\d+\s?MiB|N/A)\s*$"
)
_MIG = re.compile(r"\s*(?P<gpu>\d{1,4})\s+(?P<gi>\d+)\s+(?P<ci>\d+)\s+(?P<dev>\d+)\s*$")
ROWS = 4096
"""Most processes or MIG devices that are read."""


class Table(Struct):
    """One or more tables of a text."""

    driver: str = ""
    cuda: str = ""
    cards: list[Card] = field(default_factory=list)
    processes: list[dict[str, Any]] = field(default_factory=list)
    mig: list[dict[str, Any]] = field(default_factory=list)


def parse(lines: Iterable[str]) -> Table:
    """Every table in these lines."""
    table = Table()
    current: Card | None = None
    row = 0
    for line in lines:
        title = _TITLE.search(line)
        if title:
            table.driver, table.cuda = title["driver"], title["cuda"] or ""
        parts = _split(line)
        if parts is None:
            current = None if set(line.strip()) - set("+-|= ") else current
            continue
        if len(parts) == 3 and (begun := _begin(parts, line)) is not None:
            current, row = begun, 1
            if len(table.cards) < ROWS:
                table.cards.append(current)
        elif current is not None and len(parts) == 3 and row < 3:
            row += 1
            (_second if row == 2 else _third)(current, parts, line)
        else:
            current = None
            _below(table, parts)
    return table


def _split(line: str) -> list[str] | None:
    """Cells between the bars; None for a line that is no row (a rule, a heading, prose)."""
    text = line.strip()
    if len(text) < 3 or text[0] != "|" or text[-1] != "|" or set(text) <= set("+-|= "):
        return None if not (len(text) > 2 and set(text) <= set("| ")) else text[1:-1].split("|")
    return text[1:-1].split("|")


def _begin(parts: Sequence[str], line: str) -> Card | None:
    """First line of a GPU: index, name, persistence, address, volatile uncorrected errors."""
    left, bus = _GPU.match(parts[0]), _BUS.match(parts[1])
    if left is None or bus is None:
        return None
    card = Card(index=int(left["index"]), pci=bus["pci"], name=left["name"])
    if (code := cells.broken(card.name)) is not None:
        card.broken["name"], card.name = card.name, ""
        if code in (15, 16):
            card.put("gpu.nvml_rc", code, line.strip())
            card.put("gpu.nvml_call", f"nvidia-smi ({card.broken['name']})")
    if "..." in card.name:
        card.shown["name_cut"], card.name = card.name, ""
    card.put("inventory.persistence_mode", cells.flag(left["persistence"]), line.strip())
    errors = parts[2].strip()
    if cells.broken(errors) is not None:
        card.broken["ecc"] = errors
    elif errors.lower() == "off":
        card.put("ecc.ecc_mode", False, line.strip())
    else:
        card.put("ecc.ecc_uncorrected_volatile", cells.count(errors), line.strip())
    return card


def _second(card: Card, parts: Sequence[str], line: str) -> None:
    """Second line: fan, temperature, state, power; memory; utilisation and compute mode."""
    where = line.strip()
    load = _LOAD.match(parts[0])
    if load is not None:
        card.shown["fan"] = cells.given(load["fan"])
        card.put("gpu.fan_percent", cells.count(load["fan"]), where)
        card.put("gpu.temp_c", cells.number(load["temp"]), where)
        pstate = load["pstate"]
        card.put("gpu.pstate", cells.count(pstate[1:]) if pstate[:1] == "P" else None, where)
        for name, text in (("power_w", load["power"]), ("power_limit_w", load["cap"])):
            watts = cells.number(text)
            card.put(f"gpu.{name}", None if watts is None else float(watts), where)
        names = ("fan", "temp", "pstate", "power", "cap")
        card.broken.update({n: load[n] for n in names if cells.broken(load[n]) is not None})
    elif cells.broken(parts[0]) is not None:
        card.broken["state"] = parts[0].strip()
    memory = _MEMORY.match(parts[1])
    if memory is not None:
        card.put("gpu.mem_used_bytes", cells.mebibytes(memory["used"]), where)
        card.put("gpu.mem_total_bytes", cells.mebibytes(memory["total"]), where)
    util = _UTIL.match(parts[2])
    if util is not None:
        card.put("gpu.util_percent", cells.count(util["util"]), where)
        if cells.broken(util["util"]) is not None:
            card.broken["util"] = util["util"]
    _errors(card, parts[1], where)
    if card.broken:
        card.lines.setdefault("error", where)


def _errors(card: Card, memory: str, where: str) -> None:
    """The memory cell of a GPU that stopped answering says why."""
    code = cells.broken(memory)
    if code is None:
        return
    card.broken["memory"] = memory.strip()
    if code in (15, 16):
        card.put("gpu.nvml_rc", code, where)
        card.put("gpu.nvml_call", f"nvidia-smi ({memory.strip()})")


def _third(card: Card, parts: Sequence[str], line: str) -> None:
    """Third line, since the 450 series: MIG mode."""
    card.put("inventory.mig_mode", cells.flag(parts[2]), line.strip())
    if parts[2].strip().endswith("*"):
        card.shown["mig_mode_waits_for_reset"] = True


def _below(table: Table, parts: Sequence[str]) -> None:
    """Processes and MIG devices."""
    if len(table.processes) + len(table.mig) >= ROWS:
        return
    if len(parts) == 1 and (row := _PROCESS.match(parts[0])) is not None:
        table.processes.append({
            "gpu": int(row["gpu"]), "pid": int(row["pid"]), "type": row["type"],
            "name": row["name"], "memory_mib": cells.count(row["memory"]),
        })  # fmt: skip
    elif len(parts) == 4 and (row := _MIG.match(parts[0])) is not None:
        table.mig.append({
            "gpu": int(row["gpu"]), "gpu_instance": int(row["gi"]),
            "compute_instance": int(row["ci"]), "memory": " ".join(parts[1].split()),
        })  # fmt: skip


def is_table(line: str) -> bool:
    """Whether this line is the table's title or a GPU's first line."""
    parts = _split(line)
    title = _TITLE.search(line) is not None
    return title or (parts is not None and len(parts) == 3 and _begin(parts, line) is not None)
