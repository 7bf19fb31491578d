"""Two lists of one node's GPUs, before and after: who is missing, and whose index moved. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from console.diagnose.live_rules import live
from console.diagnose.report import found
from probes.event import Finding

Entry = tuple[int, str]
"""Index, and the UUID or address that names the card for good."""


class Change(NamedTuple):
    """What differs between two lists."""

    before: int
    now: int
    missing: list[Entry]
    moves: dict[int, int]


def lists(entries: Iterable[Entry]) -> list[list[Entry]]:
    """Lists one after another: each begins where the index starts anew."""
    found_: list[list[Entry]] = []
    for index, key in entries:
        if not found_ or index <= found_[-1][-1][0]:
            found_.append([])
        found_[-1].append((index, key))
    return found_


def change(all_lists: Sequence[Sequence[Entry]]) -> Change | None:
    """From the first whole list to the last one; None where nothing is missing.

    Part of a list (`-i 3`) is no loss: a whole one counts from 0 and has most of the cards.
    """
    whole = [one for one in all_lists if [index for index, _ in one] == list(range(len(one)))]
    if len(whole) < 2:
        return None
    old, new = whole[0], whole[-1]
    now = {key: index for index, key in new}
    missing = [(index, key) for index, key in old if key not in now]
    if not missing or len(new) >= len(old) or len(new) * 2 <= len(old):
        return None
    moves = {index: now[key] for index, key in old if key in now and now[key] != index}
    return Change(len(old), len(new), missing, moves)


def finding(changed: Change, node: str) -> Finding:
    """As the live check on the number of GPUs."""
    names = ", ".join(key for _, key in changed.missing[:4])
    return found(
        live("gpu.count"),
        f"{changed.now} of {changed.before} GPUs present; missing {names}{moved(changed.moves)}",
        *(f"was index {index}: {key}" for index, key in changed.missing[:6]), node=node,
        device=changed.missing[0][1] if len(changed.missing) == 1 else "", value=changed.now,
    )  # fmt: skip


def facts(changed: Change) -> dict[str, Any]:
    """For the document."""
    return {
        "expected": changed.before,
        "missing": [{"old_index": index, "id": key} for index, key in changed.missing],
        "index_moves": {str(old): new for old, new in changed.moves.items()},
    }


def moved(moves: dict[int, int]) -> str:
    """What older notes mean now."""
    if not moves:
        return ""
    old = sorted(moves)
    spans = [_span(*run) for run in _runs(moves)]
    first = f"; index{'es' if len(old) > 1 else ''} {spans[0][0]} moved{spans[0][1]}"
    more = "".join(f", {span}{by}" for span, by in spans[1:6])
    return f"{first}{more}, so older notes that name GPU {old[len(old) // 2]} mean another card now"


def _runs(moves: dict[int, int]) -> list[tuple[int, int, int]]:
    """(first old index, last one, steps down) of neighbours that moved alike."""
    runs: list[tuple[int, int, int]] = []
    for was, now in sorted(moves.items()):
        step = was - now
        if runs and runs[-1][1] == was - 1 and runs[-1][2] == step:
            runs[-1] = (runs[-1][0], was, step)
        else:
            runs.append((was, was, step))
    return runs


def _span(first: int, last: int, step: int) -> tuple[str, str]:
    """As "3-7" and " down by one"."""
    number = {1: "one", 2: "two", 3: "three"}.get(abs(step), str(abs(step)))
    way = "down" if step > 0 else "up"
    return (f"{first}-{last}" if last > first else str(first)), f" {way} by {number}"
