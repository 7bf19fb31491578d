"""The audit file: chained lines, writers at once, what a changed or missing line shows."""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
from pathlib import Path

import pytest

from console.audit import Audit
from console.audit_read import breaks, run
from inventory.errors import UsageError
from inventory.scheduler import Plan, Step

PLAN = Plan(verb="drain", nodes=("gpu1", "gpu2"), reason="xid 79", commands=())


def acted(path: Path, count: int = 3) -> None:
    audit = Audit(path)
    audit.intend(PLAN)
    for number in range(count):
        audit.outcome(PLAN, Step(node=f"gpu{number}", at=1.0, phase="done", ok=True))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with five lines."""
    path = tmp_path / "state" / "audit.jsonl"
    acted(path)
    return path


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def test_each_line_follows_the_one_before(path: Path) -> None:
    assert len(lines(path)) == 5
    assert list(breaks(path)) == []
    assert json.loads(lines(path)[0]).get("prev", "") == ""
    assert len({json.loads(line)["prev"] for line in lines(path)[1:]}) == 4


def test_a_second_console_goes_on_with_the_chain(path: Path) -> None:
    acted(path)
    assert len(lines(path)) == 10
    assert list(breaks(path)) == []


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda all_: [*all_[:1], all_[1].replace(b"gpu2", b"gpu9"), *all_[2:]], [3]),
        (lambda all_: [*all_[:2], *all_[3:]], [3]),
        (lambda all_: [*all_[:3], all_[1], *all_[3:]], [4, 5]),
        (lambda all_: [all_[0], all_[2], all_[1], *all_[3:]], [2, 3, 4]),
        (lambda all_: [b'{"hello"\n', *all_[1:]], [1, 2]),
        (lambda all_: all_[1:], [1]),
    ],
    ids=["changed", "removed", "repeated", "swapped", "overwritten", "beginning removed"],
)
def test_what_was_touched_is_named(path: Path, change: object, where: list[int]) -> None:
    assert callable(change)
    path.write_bytes(b"".join(change(lines(path))))
    assert [one.number for one in breaks(path)] == where
    assert run(path, nodes="", verify=True, json=False) == 2


def test_a_line_without_a_link_can_only_come_first(path: Path) -> None:
    """Files of a version that did not chain stay good; a line written by hand does not."""
    old = json.loads(lines(path)[1])
    del old["prev"]
    plain = json.dumps(old).encode() + b"\n"
    later = path.with_name("old.jsonl")
    later.write_bytes(plain * 2)
    acted(later)
    assert list(breaks(later)) == []
    with path.open("ab") as file:
        file.write(plain)
    assert [one.number for one in breaks(path)] == [6]


def test_after_a_torn_line_the_chain_goes_on(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b'{"at":1.0,"who":{"us')
    acted(path, 1)
    assert [one.number for one in breaks(path)] == [6], "the torn line, and nothing behind it"


def test_lines_longer_than_a_block(path: Path) -> None:
    long = Plan(verb="drain", nodes=("gpu1",), reason="x" * 200_000, commands=())
    Audit(path).intend(long)
    acted(path, 1)
    assert list(breaks(path)) == []


def _writer(path: Path, start: object) -> None:
    start.wait()  # type: ignore[attr-defined]
    for _ in range(25):
        acted(path, 1)


def test_consoles_that_write_at_once(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    context = multiprocessing.get_context("spawn")
    start = context.Event()
    writers = [context.Process(target=_writer, args=(path, start)) for _ in range(4)]
    for writer in writers:
        writer.start()
    start.set()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    assert len(lines(path)) == 4 * 25 * 3
    assert list(breaks(path)) == []


def test_what_a_person_reads(path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run(path, nodes="gpu2", verify=False, json=False) == 0
    told = capsysbinary.readouterr().out.decode().splitlines()
    assert len(told) == 2
    assert "drain  gpu2  intend  (xid 79)" in told[0]
    assert "gpu2  outcome  ok" in told[1]


def test_no_file_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing was drained"):
        run(tmp_path / "no.jsonl", nodes="", verify=False, json=False)


@pytest.mark.skipif(
    os.path.exists("/dev/log") or os.getuid() != 0, reason="needs root and no syslog of its own"
)
def test_syslog_holds_the_hash_of_each_line(tmp_path: Path) -> None:
    """A real syslog socket: the end of the file can be compared with what was told there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as log:
        try:
            log.bind("/dev/log")
        except OSError:
            pytest.skip("another test has the socket")
        try:
            log.settimeout(10)
            path = tmp_path / "audit.jsonl"
            Audit(path).intend(Plan(verb="drain", nodes=("only-here",), reason="x", commands=()))
            heard = log.recv(2000).decode()
            while "only-here" not in heard:
                heard = log.recv(2000).decode()
        finally:
            os.unlink("/dev/log")
    assert "drain only-here intend" in heard
    acted(path, 1)
    follows = json.loads(lines(path)[1])["prev"]
    assert f"sha256={follows}" in heard
