"""Real processes: several writers at once, one that is killed, one whose disk is full."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

from console.memory import store
from console.memory.memory import MOST_BYTES
from tests.memory.build import finding, memory, rows

ROOT = Path(__file__).parents[2]

WRITER = """
import sys
from pathlib import Path
from tests.memory.build import Clock, T0, finding, gpu, inventory, memory

path, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
said = []
clock = Clock()
ours = memory(path, clock, told=said.append)
for event in inventory():
    ours.tap(event)
for number in range(count):
    clock.now = T0 + 60 * number
    ours.tap(finding(f"xid.{number}", node=name))
    ours.tap(finding(f"xid.{number}", node="both"))
    ours.tap(gpu(clock.now))
    if number % 10 == 9:
        assert ours.flush(120), (ours.trouble, said)
        print(number, flush=True)
assert ours.flush(120) and ours.close(120), ours.trouble
assert not said, said
"""

ENDLESS = """
import itertools, sys
from pathlib import Path
from tests.memory.build import finding, memory

ours = memory(Path(sys.argv[1]))
for number in itertools.count():
    ours.tap(finding(f"xid.{number}"))
    if number % 5 == 4:
        assert ours.flush(120), ours.trouble
        print(number, flush=True)
"""

FULL = """
import resource, sys
from pathlib import Path
from tests.memory.build import finding, memory

said = []
ours = memory(Path(sys.argv[1]), told=said.append)
ours.tap(finding("xid.0"))
assert ours.flush(120)
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
for number in range(4000):
    ours.tap(finding(f"xid.{number}", say="x" * 300))
assert not ours.flush(120)
assert ours.trouble
ours.tap(finding("late"))
ours.flush(120)
assert len(said) == 1, said
print(said[0], flush=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
assert ours.flush(120)
assert not ours.trouble
ours.close()
"""


def started(script: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)], cwd=ROOT, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def test_three_processes_write_at_once_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    path, count = tmp_path / "m.sqlite", 120
    writers = [started(WRITER, path, f"n{number}", count) for number in range(3)]
    for writer in writers:
        _, err = writer.communicate(timeout=250)
        assert writer.returncode == 0, err
    for number in range(3):
        query = "SELECT count(DISTINCT rule), count(*) FROM finding JOIN node ON node.id = node"
        found = rows(path, f"{query} WHERE name = 'n{number}'")
        assert found == [(count, count)]
    assert rows(path, f"{query} WHERE name = 'both'") == [(count, count)]
    assert rows(path, "SELECT count(*) FROM series") == [(1,)]
    assert rows(path, "SELECT count(*), min(n), max(n) FROM fine") == [(count // 5, 5, 5)]
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]


def test_a_killed_process_loses_only_what_it_had_not_written(tmp_path: Path) -> None:
    path = tmp_path / "m.sqlite"
    for round_ in range(4):
        writer = started(ENDLESS, path)
        assert writer.stdout is not None
        written = 0
        for line in writer.stdout:
            written = int(line)
            if written >= 20 * (round_ + 1):
                break
        writer.send_signal(signal.SIGKILL)  # it is in the middle of the next
        rest = writer.communicate()[0].split()
        written = max([written, *(int(word) for word in rest if word.isdigit())])
        assert rows(path, "PRAGMA integrity_check") == [("ok",)]
        (found,) = rows(path, "SELECT count(DISTINCT rule) FROM finding")
        assert isinstance(found[0], int)
        assert found[0] > written
    ours = memory(path)
    ours.tap(finding("after"))
    assert ours.flush(60)
    ours.close()
    assert list(tmp_path.glob("*.broken-*")) == []


def test_a_full_disk_costs_one_sentence_and_heals(tmp_path: Path) -> None:
    path = tmp_path / "m.sqlite"
    done = started(FULL, path)
    out, err = done.communicate(timeout=250)
    assert done.returncode == 0, err
    assert "cannot be used" in out
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]
    assert rows(path, "SELECT count(*) FROM finding") == [(4001,)], "all of them, later"
    assert rows(path, "SELECT count(*) FROM finding WHERE rule = 'late'") == [(1,)]


def test_one_that_holds_the_file_delays_the_memory_and_nobody_else(tmp_path: Path) -> None:
    path, said = tmp_path / "m.sqlite", list[str]()
    other = store.connect(path, MOST_BYTES)
    other.execute("BEGIN IMMEDIATE")
    ours = memory(path, told=said.append)
    for number in range(100):
        ours.tap(finding(f"xid.{number}"))
    assert not ours.flush(0.2)
    other.execute("COMMIT")
    other.close()
    assert ours.flush(60)
    ours.close()
    assert said == []
    assert rows(path, "SELECT count(*) FROM finding") == [(100,)]


def test_readers_see_whole_transactions_while_others_write(tmp_path: Path) -> None:
    path = tmp_path / "m.sqlite"
    writer = started(WRITER, path, "n1", 60)
    assert writer.stdout is not None
    seen = []
    for line in writer.stdout:
        db = store.for_reading(path)
        assert isinstance(db, sqlite3.Connection)
        (count,) = db.execute("SELECT count(*) FROM finding").fetchone()
        db.close()
        assert count >= 2 * (int(line) + 1)
        seen.append(count)
    assert writer.wait(250) == 0
    assert seen == sorted(seen)
    assert len(seen) == 6
    writer.communicate()
