"""The file: opened, made, brought up to date, set aside when it is broken. SQLite, stdlib.

Several consoles and cron jobs write at once: WAL, short transactions, a busy time-out. On a network
file system, where WAL cannot work, a rollback journal. `synchronous=NORMAL`: a killed process loses
what it had not committed, a machine without power the last seconds; neither damages the file.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from console.memory.schema import MIGRATIONS, VERSION
from console.settings import private

BUSY_MS = 5000
"""How long another writer is waited for; its transactions take milliseconds."""
JOURNAL_BYTES = 4 << 20
"""The WAL is cut to this after a checkpoint."""
CACHE_KIB = 2048
NETWORK = frozenset({
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "ceph", "glusterfs",
    "fuse.glusterfs", "fuse.sshfs", "afs", "9p", "wekafs", "panfs", "pvfs2", "orangefs",
})  # fmt: skip
"""File systems without shared memory between machines."""


class Unusable(Exception):  # noqa: N818 - a state, told in a sentence
    """One sentence: why there is no memory, and whether that may pass."""

    def __init__(self, text: str, *, for_good: bool = False) -> None:
        """`for_good`: asking again is of no use."""
        super().__init__(text)
        self.for_good = for_good


class Damaged(Unusable):
    """The file is there and is no database, or a broken one."""


class Busy(Unusable):
    """Another process held it for BUSY_MS."""


class Full(Unusable):
    """The disk is full, or the file has reached its size."""


def explain(error: BaseException, path: Path) -> str:
    """One sentence of what SQLite or the system said."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"the memory {path} cannot be used: {text}"


def opened(path: Path, most_bytes: int) -> tuple[sqlite3.Connection, str]:
    """A connection that may write, and a sentence about a file that was set aside ("" if none).

    Raises Unusable.
    """
    try:
        return connect(path, most_bytes), ""
    except Damaged:
        told = set_aside(path)
        return connect(path, most_bytes), told


def connect(path: Path, most_bytes: int) -> sqlite3.Connection:
    """The file, made and brought up to date if need be. Raises Unusable, Damaged."""
    try:
        private(path.parent)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600))
        if not path.is_file():
            raise OSError(None, "not a file")
    except OSError as error:
        raise Unusable(explain(error, path)) from None
    with translated(path):
        db = sqlite3.connect(path, timeout=BUSY_MS / 1000, isolation_level=None)
        try:
            _prepare(db, path, most_bytes)
        except BaseException:
            db.close()
            raise
    return db


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """SQLite's errors as Unusable or Damaged."""
    try:
        yield
    except sqlite3.Error as error:
        raise _KINDS.get(primary(error), Unusable)(explain(error, path)) from None


_KINDS: dict[int, type[Unusable]] = {
    sqlite3.SQLITE_CORRUPT: Damaged, sqlite3.SQLITE_NOTADB: Damaged, sqlite3.SQLITE_BUSY: Busy,
    sqlite3.SQLITE_LOCKED: Busy, sqlite3.SQLITE_FULL: Full,
}  # fmt: skip


def primary(error: sqlite3.Error) -> int:
    """SQLite's primary result code; 0 when the module itself complains."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _prepare(db: sqlite3.Connection, path: Path, most_bytes: int) -> None:
    db.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
    version = db.execute("PRAGMA user_version").fetchone()[0]
    check_version(version, path)
    if version == 0 and _tables(db):
        raise Damaged(f"the memory {path} is some other database")
    wanted = "truncate" if on_network(path) else "wal"
    if db.execute("PRAGMA journal_mode").fetchone()[0] != wanted:
        db.execute(f"PRAGMA journal_mode={wanted}")
    db.execute("PRAGMA synchronous=NORMAL")
    db.execute(f"PRAGMA journal_size_limit={JOURNAL_BYTES}")
    page_bytes = db.execute("PRAGMA page_size").fetchone()[0]
    db.execute(f"PRAGMA max_page_count={most_bytes // page_bytes}")
    if version < VERSION:
        _migrate(db, path)


def check_version(version: int, path: Path) -> None:
    """Raises Unusable for a file that a newer version wrote."""
    if version > VERSION:
        raise Unusable(
            f"the memory {path} was written by a newer gpuconsole (schema {version}, this one knows"
            f" {VERSION}): left alone",
            for_good=True,
        )


def _tables(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])


def _migrate(db: sqlite3.Connection, path: Path) -> None:
    """Each step in the same transaction: another process sees the old schema or the new one."""
    with transaction(db):
        version = db.execute("PRAGMA user_version").fetchone()[0]  # another may have been faster
        check_version(version, path)
        for statements in MIGRATIONS[version:]:
            for statement in statements:
                db.execute(statement)
        db.execute(f"PRAGMA user_version={VERSION}")


@contextlib.contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All or nothing. IMMEDIATE: who reads first and writes later must not be overtaken."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if db.in_transaction:  # SQLite has ended it itself after some errors
            db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def set_aside(path: Path) -> str:
    """Give a broken file another name; the sentence that tells it. Raises Unusable.

    Under a lock, and only if it is still broken: another console may have done it already.
    """
    aside = path.with_name(f"{path.name}.broken-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
    try:
        lock = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _broken(path):
                return ""
            for ending in ("", "-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    path.with_name(path.name + ending).rename(aside.with_name(aside.name + ending))
        finally:
            os.close(lock)
    except OSError as error:
        raise Unusable(explain(error, path)) from None
    return f"the memory {path} was damaged: it is now {aside.name}, and a new one begins"


def _broken(path: Path) -> bool:
    try:
        db = sqlite3.connect(path, timeout=BUSY_MS / 1000, isolation_level=None)
        try:
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version == 0 and _tables(db):
                return True
            return bool(db.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok")
        finally:
            db.close()
    except sqlite3.Error as error:
        return _KINDS.get(primary(error)) is Damaged


def on_network(path: Path, mounts: Path = Path("/proc/self/mounts")) -> bool:
    """Whether the folder lies on a network file system; no where that cannot be told."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
        where = path.parent.resolve()
    except OSError:
        return False
    best, kind = -1, ""
    for line in lines:
        words = line.split()
        if len(words) < 3:
            continue
        point = Path(words[1].replace("\\040", " "))
        if len(point.parts) >= best and where.is_relative_to(point):
            best, kind = len(point.parts), words[2]
    return kind in NETWORK


def for_reading(path: Path) -> sqlite3.Connection | None:
    """A connection that cannot write; None when there is no file. Raises Unusable, Damaged.

    Where not even the WAL's shared memory may be made (a folder of somebody else's), the file is
    read as it was at the last checkpoint.
    """
    if not path.exists():
        return None
    if not path.is_file():
        raise Unusable(f"the memory {path} is not a file")
    with translated(path):
        try:
            return _reader(path, "mode=ro")
        except sqlite3.OperationalError as error:
            if primary(error) not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
                raise
            return _reader(path, "mode=ro&immutable=1")


def _reader(path: Path, how: str) -> sqlite3.Connection:
    db = sqlite3.connect(
        f"{path.absolute().as_uri()}?{how}", uri=True, timeout=BUSY_MS / 1000, isolation_level=None,
        check_same_thread=False,
    )  # fmt: skip
    try:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        check_version(version, path)
        if version < VERSION:
            raise Unusable(f"the memory {path} is of an older gpuconsole; any console updates it")
    except BaseException:
        db.close()
        raise
    return db
