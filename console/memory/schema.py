"""Tables of the memory. Times are epoch seconds of the machine that watched.

Strict: a change is a new entry of MIGRATIONS, never an edit of an old one.
"""

from __future__ import annotations

_THIN = """CREATE TABLE {name} (
  at INTEGER NOT NULL, series INTEGER NOT NULL, n INTEGER NOT NULL, good INTEGER NOT NULL,
  packed BLOB NOT NULL, PRIMARY KEY (at, series)) WITHOUT ROWID"""
"""One row per device and interval that began at `at`; `packed` as console/memory/metrics.py."""

FIRST = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE node (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)",
    # A device under conditions that make its readings comparable (gather.Series).
    """CREATE TABLE series (
      id INTEGER PRIMARY KEY, node INTEGER NOT NULL, device TEXT NOT NULL, kind INTEGER NOT NULL,
      card TEXT NOT NULL, product TEXT NOT NULL, driver TEXT NOT NULL, limit_w INTEGER NOT NULL,
      label TEXT NOT NULL, first_at INTEGER NOT NULL, last_at INTEGER NOT NULL,
      UNIQUE (node, device, kind, card, product, driver, limit_w))""",
    _THIN.format(name="fine"),
    _THIN.format(name="hour"),
    _THIN.format(name="day"),
    # The last good hours of a series and their median; `ring` is at (int32) and packed of each.
    """CREATE TABLE baseline (
      series INTEGER PRIMARY KEY, n INTEGER NOT NULL, since INTEGER NOT NULL,
      packed BLOB NOT NULL, ring BLOB NOT NULL)""",
    # Bit k of `mask`: the node answered in the k-th ten minutes of these eight hours.
    """CREATE TABLE watched (
      node INTEGER NOT NULL, third INTEGER NOT NULL, mask INTEGER NOT NULL,
      PRIMARY KEY (node, third)) WITHOUT ROWID""",
    """CREATE TABLE finding (
      id INTEGER PRIMARY KEY, node INTEGER NOT NULL, rule TEXT NOT NULL, device TEXT NOT NULL,
      label TEXT NOT NULL, severity TEXT NOT NULL, hard INTEGER NOT NULL, say TEXT NOT NULL,
      count INTEGER NOT NULL, begin REAL NOT NULL, seen REAL NOT NULL,
      over REAL, why TEXT NOT NULL DEFAULT '', acknowledged REAL)""",
    "CREATE INDEX finding_of ON finding (node, rule, device, begin)",
    "CREATE INDEX finding_open ON finding (node) WHERE over IS NULL",
    # Out of work as the scheduler says it, whoever decided it.
    """CREATE TABLE outage (
      id INTEGER PRIMARY KEY, node INTEGER NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL,
      by TEXT NOT NULL, begin REAL NOT NULL, seen REAL NOT NULL, over REAL)""",
    "CREATE INDEX outage_of ON outage (node, begin)",
    # What was done from here.
    """CREATE TABLE act (
      id INTEGER PRIMARY KEY, node INTEGER NOT NULL, at REAL NOT NULL, verb TEXT NOT NULL,
      by TEXT NOT NULL, reason TEXT NOT NULL, ok INTEGER NOT NULL, detail TEXT NOT NULL,
      UNIQUE (node, at, verb))""",
    """CREATE TABLE boot (
      node INTEGER NOT NULL, boot_id TEXT NOT NULL, first_at REAL NOT NULL, last_at REAL NOT NULL,
      PRIMARY KEY (node, boot_id)) WITHOUT ROWID""",
    """CREATE TABLE test (
      id INTEGER PRIMARY KEY, node INTEGER NOT NULL, device TEXT NOT NULL, label TEXT NOT NULL,
      what TEXT NOT NULL, at REAL NOT NULL, value REAL, unit TEXT NOT NULL, expected REAL,
      verdict TEXT NOT NULL, level TEXT NOT NULL, engine TEXT NOT NULL, version TEXT NOT NULL,
      ranks INTEGER NOT NULL, party TEXT NOT NULL, campaign TEXT NOT NULL, good INTEGER NOT NULL,
      say TEXT NOT NULL, UNIQUE (node, device, what, at, campaign, party))""",
    "CREATE INDEX test_of ON test (node, at)",
)

MIGRATIONS = (FIRST,)
"""Entry k brings a file from user_version k to k + 1."""
VERSION = len(MIGRATIONS)
