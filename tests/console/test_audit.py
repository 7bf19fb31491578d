"""The audit file: chained lines, writers at once, what a changed or missing line shows."""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import resource
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from console import audit, to_syslog
from console.audit import Audit
from console.audit_read import breaks, run
from inventory.errors import UsageError
from inventory.scheduler import Plan, Step

PLAN = Plan(verb="drain", nodes=("gpu1", "gpu2"), reason="xid 79", commands=())


def acted(path: Path, count: int = 3) -> None:
    ours = Audit(path)
    ours.intend(PLAN)
    for number in range(count):
        ours.outcome(PLAN, Step(node=f"gpu{number}", at=1.0, phase="done", ok=True))


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
    audit.LOCK_S = 200.0
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
        writer.join(250)
        assert writer.exitcode == 0
    assert len(lines(path)) == 4 * 25 * 3
    assert list(breaks(path)) == []


def test_what_a_person_reads(path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run(path, nodes="gpu2", verify=False, json=False) == 0
    told = capfdbinary.readouterr().out.decode().splitlines()
    assert len(told) == 2
    assert "drain  gpu2  intend  (xid 79)" in told[0]
    assert "gpu2  outcome  ok" in told[1]


def test_no_file_is_nothing_done_and_nothing_verified(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path / "no.jsonl", nodes="", verify=False, json=False) == 0
    assert "nothing was drained" in capfd.readouterr().err
    with pytest.raises(UsageError, match="nothing was drained"):
        run(tmp_path / "no.jsonl", nodes="", verify=True, json=False)


@pytest.fixture(params=[socket.SOCK_DGRAM, socket.SOCK_STREAM], ids=["datagrams", "stream"])
def log(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[socket.socket]:
    """The socket of a syslog daemon, in a place of its own."""
    with socket.socket(socket.AF_UNIX, request.param) as made:
        made.bind(str(tmp_path / "log"))
        monkeypatch.setattr(to_syslog, "PLACES", (str(tmp_path / "log"),))
        if request.param == socket.SOCK_STREAM:
            made.listen(8)
        yield made


def test_syslog_holds_the_hash_of_each_line(path: Path, log: socket.socket) -> None:
    """The end of the file can be compared with what was told there."""
    number = len(lines(path))
    Audit(path).intend(Plan(verb="drain", nodes=("gpu8", "gpu9"), reason="x", commands=()))
    acted(path, 1)
    hashes = [json.loads(line)["prev"] for line in lines(path)[number + 1 : number + 3]]
    if log.type == socket.SOCK_STREAM:
        with log.accept()[0] as talk, talk.makefile("rb") as told:
            heard = told.read().rstrip(b"\0").split(b"\0")
    else:
        heard = [log.recv(2000) for _ in range(2)]
    for node, sha256, word in zip(("gpu8", "gpu9"), hashes, heard, strict=True):
        assert word.startswith(
            b"<37>gpuconsole[%d]: drain %s intend" % (os.getpid(), node.encode())
        )
        assert word.endswith(b"sha256=" + sha256.encode())


def test_a_syslog_that_stands_still_holds_no_drain(
    path: Path, log: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """syslog(3) would wait for it for ever: a queue takes some ten words."""
    monkeypatch.setattr(to_syslog, "WAIT_S", 0.05)
    nodes = tuple(f"gpu{number}" for number in range(5000))
    Audit(path).intend(Plan(verb="drain", nodes=nodes, reason="x", commands=()))
    assert json.loads(lines(path)[-1])["node"] == "gpu4999"
    assert list(breaks(path)) == []


def test_a_full_disk_leaves_no_word_of_what_was_not_done(tmp_path: Path) -> None:
    """A file that may not grow any more: a part of the lines fits."""
    path = tmp_path / "audit.jsonl"
    acted(path)
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 300, hard))
        with pytest.raises(OSError, match="too large"):
            Audit(path).intend(PLAN)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    assert path.read_bytes() == before
    acted(path)
    assert list(breaks(path)) == []


def replaced_by_folder(path: Path) -> None:
    path.mkdir()


def replaced_by_pipe(path: Path) -> None:
    os.mkfifo(path)


def replaced_by_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def replaced_by_endless_line(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 30)


@pytest.mark.parametrize(
    "replaced",
    [replaced_by_folder, replaced_by_pipe, replaced_by_device, replaced_by_endless_line],
)
def test_what_is_no_audit_file_is_told_at_once(tmp_path: Path, replaced: object) -> None:
    assert callable(replaced)
    path = tmp_path / "audit.jsonl"
    replaced(path)
    with pytest.raises(OSError, match=r"."):
        Audit(path).intend(PLAN)
    if not path.is_file():
        with pytest.raises(UsageError, match="cannot read it"):
            run(path, nodes="", verify=True, json=False)
    else:
        assert run(path, nodes="", verify=True, json=False) == 2


def test_a_stopped_console_that_holds_the_file_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "LOCK_S", 0.0)
    path = tmp_path / "audit.jsonl"
    acted(path)
    with path.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(OSError, match="another console"):
            Audit(path).intend(PLAN)
    acted(path)
    assert list(breaks(path)) == []


@pytest.mark.parametrize(
    "text", ["\udcff no UTF-8", "quotes \" ' \\", "two\nlines", "\u202ebidi", "x" * 10_000]
)
def test_any_reason_is_one_line(
    tmp_path: Path, text: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = tmp_path / "audit.jsonl"
    plan = Plan(verb="drain", nodes=("gpu1",), reason=text, commands=())
    Audit(path).intend(plan)
    Audit(path).outcome(plan, Step(node="gpu1", at=1.0, phase="done", ok=True, command=(text,)))
    assert len(lines(path)) == 2
    assert list(breaks(path)) == []
    assert run(path, nodes="", verify=False, json=False) == 0
    told = capfdbinary.readouterr().out.decode()
    assert len(told.splitlines()) == 2
    assert "\u202e" not in told


def test_lines_of_any_kind_are_read(path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    odd = json.loads(lines(path)[2])
    odd["at"], odd["who"]["ssh_client"], odd["node"] = 1e300, "  ", "\u001b]0;x\u0007gpu9"
    with path.open("ab") as file:
        file.write(json.dumps(odd).encode() + b"\n" + os.urandom(5000) + b"\n")
        file.write(b"[" * 200_000 + b"\n" + b'"\xff"\n')
    assert run(path, nodes="", verify=False, json=False) == 0
    out = capfdbinary.readouterr().out
    assert out.count(b"gpu9") == 1
    assert b"\x1b" not in out
    assert run(path, nodes="", verify=True, json=False) == 2


def test_an_intent_without_an_outcome_is_told(
    path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """After kill -9 nobody wrote the outcome."""
    Audit(path).intend(Plan(verb="drain", nodes=("gpu7",), reason="x", commands=()))
    assert run(path, nodes="gpu7", verify=False, json=False) == 0
    assert f"{path}:6: gpu7: no outcome" in capfd.readouterr().err
    assert run(path, nodes="gpu1", verify=False, json=False) == 0
    assert "no outcome" not in capfd.readouterr().err


def test_who_is_not_what_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_USER", "\x1b[2Jmara")
    assert audit.who().sudo_user == "mara"
    assert audit.Who(user="root", sudo_user="mara").person == "mara"
    forged = audit.Who(user="lin", sudo_user="mara")
    assert forged.person == "lin"
    assert forged.told == "lin (SUDO_USER mara)"
