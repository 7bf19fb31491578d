"""What happened on all nodes, newest first, for a log. Reads the file only."""

from __future__ import annotations

import sqlite3

from msgspec import Struct

from probes.event import Severity

_FOUND = """SELECT begin, node.name, 'found', severity, rule, label, say, '' FROM finding
  JOIN node ON node.id = finding.node WHERE begin >= :since AND begin < :until"""
_OVER = """SELECT over, node.name, 'over', severity, rule, label, say, why FROM finding
  JOIN node ON node.id = finding.node WHERE over >= :since AND over < :until"""
_OUT = """SELECT begin, node.name, 'out', '', state, by, reason, '' FROM outage
  JOIN node ON node.id = outage.node WHERE begin >= :since AND begin < :until"""
_BACK = """SELECT over, node.name, 'back', '', state, by, reason, '' FROM outage
  JOIN node ON node.id = outage.node WHERE over >= :since AND over < :until"""
_BOOT = """SELECT first_at, node.name, 'boot', '', '', '', '', '' FROM boot
  JOIN node ON node.id = boot.node WHERE first_at >= :since AND first_at < :until
  AND EXISTS (SELECT 1 FROM boot AS earlier
    WHERE earlier.node = boot.node AND earlier.first_at < boot.first_at)"""
_ALL = " UNION ALL ".join((_FOUND, _OVER, _OUT, _BACK, _BOOT)) + " ORDER BY 1 DESC LIMIT :most"


class Happening(Struct, frozen=True, kw_only=True):
    """Something that began or ended on a node."""

    at: float
    node: str
    what: str
    """found, over (findings); out, back (of work, by the scheduler); boot."""
    severity: Severity = Severity.OK
    """The finding's own, also when it is over."""
    rule: str = ""
    """The finding's rule, or the scheduler's state."""
    label: str = ""
    """The device, or who took the node out."""
    say: str = ""
    why: str = ""
    """Why a finding ended."""


def happened(db: sqlite3.Connection, since: float, until: float, most: int) -> list[Happening]:
    """The newest `most` between these times, newest first."""
    rows = db.execute(_ALL, {"since": since, "until": until, "most": most})
    return [
        Happening(
            at=at, node=node, what=what, severity=Severity(severity) if severity else Severity.OK,
            rule=rule, label=label, say=say, why=why,
        )
        for at, node, what, severity, rule, label, say, why in rows
    ]  # fmt: skip
