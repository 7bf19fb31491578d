"""Bundles on disk: whole or not there, private, kept for a time; pieces from hostile nodes."""

from __future__ import annotations

import base64
import hashlib
import json
import multiprocessing
import os
import tarfile
import time
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console import evidence
from console.engine import Engine
from console.settings import Settings
from inventory.node import Inventory, Node
from probes import blobs
from probes.blobs import File, Files
from probes.event import NodeState, NodeStatus, Sample
from probes.wire import Blob


def engine() -> Engine:
    made = Engine(Inventory(nodes=(Node(name="gpu1"),), source="test"), Settings(), schedulers={})
    made.feed(NodeStatus(node="gpu1", at=1.0, state=NodeState.UP))
    made.feed(Sample(node="gpu1", probe="host", at=1.0, values={"load1": 3.0}))
    return made


def packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode()


def read(path: str) -> dict[str, bytes]:
    """Files of a bundle by name, without its folder."""
    with tarfile.open(path) as tar:
        found = {}
        for member in tar.getmembers():
            file = tar.extractfile(member)
            assert file is not None
            found[member.name.partition("/")[2]] = file.read()
    return found


def test_a_bundle_tells_what_is_in_it(tmp_path: Path) -> None:
    files = {"dmesg.txt": File(data=b"line\n"), "topo.txt": File(data=b"", note="exit status 9")}
    kept = evidence.write(engine(), "gpu1", files, "", "xid 79", tmp_path)
    found = read(kept.path)
    manifest = json.loads(found.pop("manifest.json"))
    assert {item["name"] for item in manifest["files"]} == set(found)
    for item in manifest["files"]:
        assert item["sha256"] == hashlib.sha256(found[item["name"]]).hexdigest()
        assert item["size_bytes"] == len(found[item["name"]])
    assert found["node/dmesg.txt"] == b"line\n"
    assert manifest["why"] == "xid 79"
    assert manifest["answered"] is True
    assert [i["note"] for i in manifest["files"] if i["name"] == "node/topo.txt"] == [
        "exit status 9"
    ]
    assert json.loads(found["facts.json"])["samples"][0]["values"] == {"load1": 3.0}
    assert kept.sha256 == hashlib.sha256(Path(kept.path).read_bytes()).hexdigest()
    assert os.stat(kept.path).st_mode & 0o077 == 0


def test_a_silent_node_has_a_bundle_of_what_was_known(tmp_path: Path) -> None:
    kept = evidence.write(engine(), "gpu1", {}, "not asked: unreachable", "dead", tmp_path)
    manifest = json.loads(read(kept.path)["manifest.json"])
    assert not kept.answered
    assert manifest["note"] == "not asked: unreachable"


def test_two_bundles_of_one_second_have_two_names(tmp_path: Path) -> None:
    made = engine()
    paths = {evidence.write(made, "gpu1", {}, "", "", tmp_path).path for _ in range(3)}
    assert len(paths) == 3


def test_old_ones_go_and_nothing_else_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "KEEP_PER_NODE", 2)
    names = [f"gpu-a1-2026010{day}T000000Z.tar.gz" for day in range(1, 5)]
    names += ["gpu2-20250101T000000Z.tar.gz"]
    for name in (*names, "notes.tar.gz", "gpu1.tar.gz"):
        (tmp_path / name).write_bytes(b"x")
    now = time.time()
    os.utime(tmp_path / names[-1], (now - 91 * 86400,) * 2)
    gone = {path.name for path in evidence.retain(tmp_path, now)}
    assert gone == {names[0], names[1], names[4]}
    assert (tmp_path / "notes.tar.gz").exists()
    assert (tmp_path / "gpu1.tar.gz").exists()


def test_a_full_disk_leaves_no_half_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        evidence.write(engine(), "gpu1", {}, "", "", tmp_path)
    assert list(tmp_path.iterdir()) == []


@given(st.text(max_size=300))
def test_a_name_never_leaves_the_bundle(name: str) -> None:
    made = blobs.safe_name(name)
    assert made
    assert "/" not in made
    assert not made.startswith(".")
    assert made.isascii()
    assert made.isprintable()
    assert len(made) <= blobs.NAME_CHARS


@given(st.lists(st.tuples(st.text(max_size=5), st.text(max_size=50), st.booleans()), max_size=90))
def test_pieces_of_any_kind_are_survived(pieces: list[tuple[str, str, bool]]) -> None:
    files = Files()
    for name, text, end in pieces:
        files.add(Blob(id="x", f=name, z=text, end=end, note="n"))
    assert len(files.taken()) <= blobs.FILES_MAX


def test_a_bomb_is_cut_and_told() -> None:
    files = Files()
    bomb = packed(b"\0" * (100 << 20))
    for _ in range(6):
        files.add(Blob(id="x", f="a", z=bomb))
        files.add(Blob(id="x", f="b", z=bomb, end=True))
    taken = files.taken()
    assert {len(file.data) for file in taken.values()} == {blobs.FILE_BYTES}
    assert "cut" in taken["a"].note
    assert "its end is missing" in taken["a"].note
    assert "its end is missing" not in taken["b"].note


def test_pieces_come_together() -> None:
    files = Files()
    files.add(Blob(id="x", f="a", z=packed(b"one ")))
    files.add(Blob(id="x", f="a", z=packed(b"two"), end=True, note="exit status 1"))
    assert files.taken() == {"a": File(data=b"one two", note="exit status 1")}


def test_an_end_without_end_has_a_short_note() -> None:
    files = Files()
    for number in range(5000):
        files.add(Blob(id="x", f="a", z=packed(b""), end=True, note=f"note {number} " * 20))
    assert len(files.taken()["a"].note) < 2000


def _bundle(folder: Path, start: object) -> None:
    start.wait()  # type: ignore[attr-defined]
    for number in range(20):
        evidence.write(engine(), "gpu1", {}, "", str(number), folder)


def test_consoles_that_write_at_once_overwrite_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    start = context.Event()
    writers = [context.Process(target=_bundle, args=(tmp_path, start)) for _ in range(3)]
    for writer in writers:
        writer.start()
    start.set()
    for writer in writers:
        writer.join(250)
        assert writer.exitcode == 0
    assert len(list(tmp_path.glob("*.tar.gz"))) == 60
    assert not list(tmp_path.glob(f".*{evidence.PART}"))


def test_what_a_killed_console_left_goes_with_the_old(tmp_path: Path) -> None:
    old, new = (tmp_path / f".gpu{n}-20260101T000000Z.tar.gz{evidence.PART}" for n in (1, 2))
    for part in (old, new):
        part.write_bytes(b"half")
    os.utime(old, (time.time() - 2 * evidence.PART_S,) * 2)
    evidence.retain(tmp_path)
    assert [path.exists() for path in (old, new)] == [False, True]


def test_what_cannot_be_removed_is_left(tmp_path: Path) -> None:
    """A folder of that name, or a link to nowhere: no reason to lose the bundle just taken."""
    (tmp_path / "gpu1-20200101T000000Z.tar.gz").mkdir()
    (tmp_path / "gpu2-20200101T000000Z.tar.gz").symlink_to("nowhere")
    assert evidence.retain(tmp_path, time.time() + 100 * 86400) == [
        tmp_path / "gpu2-20200101T000000Z.tar.gz"
    ]


@pytest.mark.parametrize("why", ["\udcff", "a\nb", "\u202e", "x" * 10_000, "\"'"])
def test_any_reason_is_kept(tmp_path: Path, why: str) -> None:
    kept = evidence.write(engine(), "gpu1", {}, "", why, tmp_path)
    found = json.loads(read(kept.path)["manifest.json"])["why"]
    assert found == why.replace("\udcff", "?")
