"""What the memory holds of one node, for its screen: read at once, in a thread of the caller's."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct, structs

from console.memory import read, store
from console.memory.history import NodeHistory, of_node
from probes.own import Own

SERIES_S = 7 * 86400.0
"""How far back readings are told: in five minutes for a day, in hours for a week."""
DAYS = 28.0
"""How far back findings, drains and boots are told: the window of the lemon score."""

Interval = tuple[float, float, float]
"""Begin, end, value."""


class Remembered(Struct, frozen=True, kw_only=True):
    """One node's past."""

    at: float
    """When it was read."""
    history: NodeHistory
    """Without trends: `series` has them."""
    series: dict[tuple[str, str], list[Interval]]
    """(device, metric) -> medians under load, oldest first."""
    usual: dict[tuple[str, str], float]
    """(device, metric) -> own baseline."""


def remembered(path: Path, node: str, now: float, own: Own) -> Remembered | None:
    """Everything about the node until `now`; None where there is no memory yet.

    Raises store.Unusable.

    Measured: 20 ms for two days of one node with eight GPUs; rows are found by time and series,
    so that other nodes in the file add little.
    """
    with store.translated(path):
        db = store.for_reading(path)
        if db is None:
            return None
        try:
            history = _until(now, of_node(db, node, DAYS, now, own, trends=False))
            devices = dict.fromkeys(one.device for one in read.conditions(db, node))
            series = {
                (device, metric): values
                for device in devices
                for metric, values in read.intervals(db, node, device, now - SERIES_S, now).items()
            }
        finally:
            db.close()
    usual = {key: own[node, *key].median for key in series if (node, *key) in own}
    return Remembered(at=now, history=history, series=series, usual=usual)


def _until(now: float, told: NodeHistory) -> NodeHistory:
    """Without what began later, when a past moment is asked for."""
    return structs.replace(
        told,
        findings=[one for one in told.findings if one.first <= now],
        events=[one for one in told.events if one.at <= now],
        tests=[one for one in told.tests if one.at <= now],
    )
