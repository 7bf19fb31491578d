"""Whatever the file or its folder is, there is a sentence and never an exception of SQLite."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from console.memory import schema, store
from console.memory.memory import NAME
from console.memory.store import Damaged, Unusable
from tests.memory.build import T0, Clock, finding, gpu, inventory, memory, rows

MIB = 1 << 20


def test_nobody_else_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "state" / "m.sqlite"
    before = os.umask(0)
    try:
        with store.transaction(db := store.connect(path, MIB)):
            db.execute("INSERT INTO node (name) VALUES ('n1')")
        for file in (path, path.with_name("m.sqlite-wal"), path.with_name("m.sqlite-shm")):
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        db.close()
    finally:
        os.umask(before)


def spoiled(path: Path) -> None:
    db = store.connect(path, MIB)
    db.close()
    raw = bytearray(path.read_bytes())
    raw[4096:] = b"\x5a" * (len(raw) - 4096)
    path.write_bytes(raw)


BROKEN: dict[str, Callable[[Path], object]] = {
    "no database": lambda path: path.write_bytes(b"this is no database, but long enough" * 99),
    "cut in its head": lambda path: path.write_bytes(b"SQLite format 3\0" + b"\0" * 30),
    "somebody else's": lambda path: sqlite3.connect(path).execute("CREATE TABLE x (y)"),
    "overwritten": spoiled,
}


@pytest.mark.parametrize("made", BROKEN.values(), ids=BROKEN)
def test_a_damaged_file_is_set_aside_and_a_new_one_begins(
    tmp_path: Path, made: Callable[[Path], object]
) -> None:
    path, said = tmp_path / "m.sqlite", list[str]()
    made(path)
    before = path.read_bytes()
    ours = memory(path, told=said.append)
    ours.tap(finding())
    assert ours.flush(60) or ours.flush(60)
    ours.close()
    assert rows(path, "SELECT count(*) FROM finding") == [(1,)]
    (aside,) = tmp_path.glob("m.sqlite.broken-*Z")
    assert aside.read_bytes() == before
    (sentence,) = said
    assert "damaged" in sentence
    assert aside.name in sentence


def test_a_file_that_breaks_while_it_is_used(tmp_path: Path) -> None:
    path, said = tmp_path / "m.sqlite", list[str]()
    ours = memory(path, told=said.append)
    ours.tap(finding())
    assert ours.flush(60)
    other = store.connect(path, MIB)  # after its writing nothing is read from a cache or the WAL
    other.execute("INSERT INTO node (name) VALUES ('n2')")
    other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    other.close()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\x5a" * (path.stat().st_size - 4096))
    ours.tap(finding("xid.94"))
    assert ours.flush(60) or ours.flush(60)
    ours.close()
    assert len(said) == 1
    assert "damaged" in said[0]
    assert list(tmp_path.glob("m.sqlite.broken-*Z"))
    assert rows(path, "SELECT rule FROM finding") == [("xid.94",)]


def test_two_that_find_it_damaged_set_it_aside_once(tmp_path: Path) -> None:
    path = tmp_path / "m.sqlite"
    path.write_bytes(b"no database" * 1000)
    assert "damaged" in store.set_aside(path)
    store.connect(path, MIB).close()
    assert store.set_aside(path) == ""
    assert len(list(tmp_path.glob("*.broken-*"))) == 1


def test_a_newer_file_is_left_alone(tmp_path: Path) -> None:
    path, said = tmp_path / "m.sqlite", list[str]()
    db = store.connect(path, MIB)
    db.execute(f"PRAGMA user_version={schema.VERSION + 1}")
    db.execute("CREATE TABLE of_the_future (x)")
    db.close()
    before = path.read_bytes()
    ours = memory(path, told=said.append)
    for _ in range(3):
        ours.tap(finding())
        ours.flush(60)
    assert "newer" in ours.trouble
    ours.close()
    assert len(said) == 1
    assert path.read_bytes() == before
    with pytest.raises(Unusable, match="newer"):
        store.for_reading(path)


@pytest.mark.parametrize("where", ["/proc/gpuconsole/m.sqlite", "/dev/null/m.sqlite", "/dev/full"])
def test_a_place_that_cannot_be_written_costs_one_sentence(where: str) -> None:
    said: list[str] = []
    ours = memory(Path(where), told=said.append)
    for event in (*inventory(), gpu(T0), finding()):
        ours.tap(event)
    for _ in range(3):
        assert not ours.flush(60)
    assert ours.trouble
    assert len(said) == 1
    assert "cannot be used" in said[0]
    assert ours.own() == {}
    assert ours.events("n1", 0) == []
    ours.close()


def test_a_pipe_in_its_place_stops_nobody(tmp_path: Path) -> None:
    path, said = tmp_path / "m.sqlite", list[str]()
    os.mkfifo(path)
    ours = memory(path, told=said.append)
    ours.tap(finding())
    assert not ours.flush(60)
    ours.close()
    assert "not a file" in said[0]


def test_a_reader_needs_no_right_to_write(tmp_path: Path) -> None:
    path = tmp_path / "m.sqlite"
    ours = memory(path, Clock())
    ours.tap(finding())
    assert ours.flush(60)
    ours.close()
    before = path.read_bytes()
    db = store.for_reading(path)
    assert db is not None
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        db.execute("DELETE FROM finding")
    db.close()
    assert path.read_bytes() == before
    assert store.for_reading(tmp_path / "none") is None


def test_a_file_in_a_folder_of_somebody_else_can_be_read(tmp_path: Path) -> None:
    """Root may write everywhere, so there it is done without root's privileges."""
    plain = [] if os.geteuid() else ["setpriv", "--inh-caps=-all", "--bounding-set=-all"]
    if plain and shutil.which(plain[0]) is None:
        pytest.skip("root, and no setpriv to be less")
    path = tmp_path / "state" / "gpuconsole" / NAME
    ours = memory(path, Clock(time.time()))
    ours.tap(finding())
    assert ours.close(60)
    path.parent.chmod(0o555)
    try:
        command = [*plain, sys.executable, "-m", "console.cli", "history", "n1"]
        told = subprocess.run(
            command, env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")},
            capture_output=True, text=True, timeout=250, check=False,
        )  # fmt: skip
    finally:
        path.parent.chmod(0o755)
    assert "xid.79" in told.stdout, told


MOUNTS = """rootfs / rootfs rw 0 0
/dev/vda1 / ext4 rw 0 0
filer:/home /home nfs4 rw 0 0
tmpfs /home/lin/scratch\\040here tmpfs rw 0 0
odd
"""


@pytest.mark.parametrize(
    ("folder", "network"),
    [("/home/mara/state", True), ("/var/lib", False), ("/home/lin/scratch here/x", False)],
)
def test_network_file_systems_are_told_by_the_mounts(
    tmp_path: Path, folder: str, network: bool
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)
    assert store.on_network(Path(folder) / "m.sqlite", mounts) is network
    assert store.on_network(Path(folder), tmp_path / "none") is False


def test_on_a_network_file_system_there_is_no_wal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.sqlite"
    store.connect(path, MIB).close()
    monkeypatch.setattr(store, "on_network", lambda _path: True)
    db = store.connect(path, MIB)
    with store.transaction(db):
        db.execute("INSERT INTO node (name) VALUES ('n1')")
    assert not path.with_name("m.sqlite-wal").exists()
    db.close()


def test_half_a_migration_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.sqlite"
    store.connect(path, MIB).close()
    bad = (*schema.MIGRATIONS, ("CREATE TABLE more (x)", "CREATE TABLE nonsense"))
    monkeypatch.setattr(store, "MIGRATIONS", bad)
    monkeypatch.setattr(store, "VERSION", len(bad))
    with pytest.raises(Unusable) as caught:
        store.connect(path, MIB)
    assert not isinstance(caught.value, Damaged)
    assert rows(path, "PRAGMA user_version") == [(schema.VERSION,)]
    assert rows(path, "SELECT count(*) FROM sqlite_master WHERE name = 'more'") == [(0,)]
    good = (*schema.MIGRATIONS, ("CREATE TABLE more (x)",))
    monkeypatch.setattr(store, "MIGRATIONS", good)
    store.connect(path, MIB).close()
    assert rows(path, "PRAGMA user_version") == [(len(good),)]
