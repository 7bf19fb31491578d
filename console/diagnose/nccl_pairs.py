"""Tables of pairwise runs: which node all slow pairs have in common."""

from __future__ import annotations

import csv
import itertools
import re
import statistics
from typing import Any

from msgspec import Struct, field

from console.diagnose.nccl_tests_rules import NOT_MEASURED, PAIR, PATH
from console.diagnose.offline import Offline, limits
from console.diagnose.report import AFTER_JOBS, NOW, Report, drain_advice
from console.diagnose.text import Text
from inventory.expressions import fold

KIND = "nccl-tests"
TITLE = "tables of pairwise runs (CSV)"
STREAMS = False

PAIRS = 200_000
_HEAD = re.compile(
    r"^[ \t]*(?:#[ \t]*)?(?:node|host|src|source)[ _]?(?:a|1|x)?[ \t]*[,;\t|][ \t]*"
    r"(?:node|host|dst|dest|peer)\w*[ _]?(?:b|2|y)?[ \t]*[,;\t|].*(?:bw|GB)",
    re.IGNORECASE | re.MULTILINE,
)
_FAILED = re.compile(r"time.?out|fail|error|n/?a|-|null|none|", re.IGNORECASE)


class Matrix(Struct):
    """Pairs and what they reached."""

    speeds: dict[tuple[str, str], float] = field(default_factory=dict)
    missing: list[tuple[str, str]] = field(default_factory=list)
    wrong: dict[tuple[str, str], int] = field(default_factory=dict)
    lines: dict[tuple[str, str], str] = field(default_factory=dict)


def sniff(head: str) -> int:
    """By the names of the columns."""
    return 92 if _HEAD.search(head) else 0


def read(text: Text) -> Report:
    """Nodes against the median of all measured pairs."""
    matrix = _parse(text)
    report = Report(kind=KIND)
    measured = list(matrix.speeds.values())
    report.facts = {"pairs": len(measured), "missing_pairs": [list(p) for p in matrix.missing],
                    "slow_pairs": 0}  # fmt: skip
    if not measured:
        report.measured = False
        report.say = "no pair was measured"
        return report
    # The mean would be pulled down by the straggler itself.
    middle = statistics.median(measured)
    report.facts["median"] = round(middle, 2)
    _judge(matrix, middle, report)
    _wrong(matrix, report)
    if matrix.missing:
        names = ", ".join("-".join(pair) for pair in matrix.missing[:6])
        report.add(NOT_MEASURED, f"not measured: {names}; repeat, it accuses neither by itself",
                   *(matrix.lines[pair] for pair in matrix.missing[:4]))  # fmt: skip
        report.unknown.append(f"the speed of {names}: run it again")
    report.say = _say(matrix, middle, report)
    return report


def _parse(text: Text) -> Matrix:
    matrix = Matrix()
    columns: dict[str, int] = {}
    for _, line in itertools.islice(text, PAIRS):
        cells = _cells(line)
        if len(cells) < 3:
            continue
        if not columns:
            columns = _columns(cells)
            continue
        pair = (cells[0], cells[1])
        if not all(re.fullmatch(r"[\w.-]+", name) for name in pair) or pair[0] == pair[1]:
            continue
        matrix.lines[pair] = line.strip()
        status = _cell(cells, columns.get("status"))
        speed = _number(_cell(cells, columns.get("speed")))
        if speed is None or (status and re.search(r"time.?out|fail|error", status, re.IGNORECASE)):
            matrix.missing.append(pair)
        else:
            matrix.speeds[pair] = speed
        if wrong := _number(_cell(cells, columns.get("wrong"))):
            matrix.wrong[pair] = int(wrong)
    return matrix


def _cells(line: str) -> list[str]:
    mark = next((m for m in (",", ";", "|") if m in line), None)
    if mark is None:
        return line.split()
    try:
        return [cell.strip() for cell in next(csv.reader([line.strip("| ")], delimiter=mark), [])]
    except csv.Error:
        return []


def _columns(cells: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for at, name in enumerate(cells):
        if re.search(r"wrong|bounds", name, re.IGNORECASE):
            found.setdefault("wrong", at)
        elif re.search(r"status|result|state|rc", name, re.IGNORECASE):
            found.setdefault("status", at)
        elif at >= 2 and re.search(r"bus.?bw|bw|GB", name, re.IGNORECASE):
            found.setdefault("speed", at)
    return found if "speed" in found else {**found, "speed": 2}


def _cell(cells: list[str], at: int | None) -> str:
    return cells[at] if at is not None and at < len(cells) else ""


def _number(cell: str) -> float | None:
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if 0 <= value < 1e9 else None


def _judge(matrix: Matrix, middle: float, report: Report) -> None:
    """A node is slow when most of its pairs are, and not only by its partners' fault."""
    share = limits().limit("nccl.floor_share")
    slow = {pair for pair, speed in matrix.speeds.items() if speed < share.value * middle}
    report.facts["slow_pairs"] = len(slow)
    left, guilty = set(slow), []
    while left:
        counts = {n: sum(n in pair for pair in left) for pair in left for n in pair}
        node = max(sorted(counts), key=lambda n: counts[n])
        own = [pair for pair in matrix.speeds if node in pair]
        if counts[node] < 2 or sum(pair in slow for pair in own) * 2 <= len(own):
            break
        guilty.append(node)
        left = {pair for pair in left if node not in pair}
    for node in guilty:
        own = sorted(pair for pair in slow if node in pair)
        speeds = [matrix.speeds[pair] for pair in own]
        all_ = sum(node in pair for pair in matrix.speeds)
        usual = statistics.median(speeds)
        report.add(PAIR, f"{len(own)} of its {all_} pairs at about {usual:.0f} GB/s "
                   f"({usual / middle:.0%} of the others' {middle:.0f})",
                   *(matrix.lines[pair] for pair in own[:6]), node=node, value=round(usual, 1),
                   limit=share)  # fmt: skip
    for pair in sorted(left):
        report.add(PATH, f"{pair[0]} to {pair[1]} at {matrix.speeds[pair]:.0f} GB/s, the median is "
                   f"{middle:.0f}; both are well with others", matrix.lines[pair],
                   device="-".join(pair), value=matrix.speeds[pair], limit=share)  # fmt: skip
    facts: dict[str, Any] = {"slow_nodes": guilty}
    if len(guilty) == 1:
        facts |= {"slow_node": guilty[0], "slow_pairs": sum(guilty[0] in p for p in slow)}
    report.facts |= facts
    report.drain = f"{AFTER_JOBS}: {fold(guilty)}" if guilty else drain_advice(report.findings)


def _wrong(matrix: Matrix, report: Report) -> None:
    for pair, number in sorted(matrix.wrong.items()):
        node = Offline("-".join(pair))
        node.put("nccl", "summary", wrong=number, engine="nccl-tests")
        report.findings += [f for f in node.judge() if f.rule == "nccl.wrong"]
        report.drain = NOW


def _say(matrix: Matrix, middle: float, report: Report) -> str:
    if matrix.wrong:
        bad = [pair for pair, number in matrix.wrong.items() if number]
        shared = set.intersection(*(set(pair) for pair in bad)) if len(bad) > 1 else set()
        whose = f"; {', '.join(sorted(shared))} is in all of them" if shared else ""
        names = ", ".join("-".join(pair) for pair in sorted(bad)[:6])
        return f"wrong data in {len(bad)} pair{'s' * (len(bad) != 1)}: {names}{whose}."
    guilty = [f for f in report.findings if f.rule == PAIR.id]
    missing = ", ".join("-".join(pair) for pair in matrix.missing[:3])
    rest = f" Not measured: {missing} (repeat; it accuses neither node)." if missing else ""
    if guilty:
        return "; ".join(f"{f.node}: {f.say}" for f in guilty) + "." + rest
    paths = [f for f in report.findings if f.rule == PATH.id]
    if paths:
        return "; ".join(f.say for f in paths[:3]) + "." + rest
    return f"{len(matrix.speeds)} pairs, all within 10 % of the median {middle:.0f} GB/s.{rest}"
