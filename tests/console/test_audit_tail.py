"""Following the audit file: real lines of a real Audit, and what may happen to the file."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from console import audit_tail
from console.audit import Audit
from console.audit_tail import Tail
from inventory.scheduler import Plan, Step


def plan(node: str = "n1", reason: str = "why") -> Plan:
    return Plan(verb="drain", nodes=(node,), reason=reason, commands=())


def intend(path: Path, *reasons: str) -> None:
    for reason in reasons:
        Audit(path, told=False).intend(plan(reason=reason))


def reasons(tail: Tail) -> list[str]:
    return [line.reason for line in tail.read()]


def test_only_what_is_new(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    tail = Tail(path)
    assert (reasons(tail), tail.trouble) == ([], ""), "no file yet is no trouble"
    intend(path, "a", "b")
    assert reasons(tail) == ["a", "b"]
    assert reasons(tail) == []
    intend(path, "c")
    assert reasons(tail) == ["c"]


def test_an_outcome_keeps_its_moment(tmp_path: Path) -> None:
    """The log knows its own acts again by it."""
    path = tmp_path / "audit.jsonl"
    step = Step(node="n1", at=1_795_000_200.123456, phase="done", ok=True, detail="drained")
    Audit(path, told=False).outcome(plan(), step)
    (line,) = Tail(path).read()
    assert (line.at, line.detail, line.ok) == (step.at, "done: drained", True)


def test_a_line_that_is_being_written_waits(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    intend(path, "a")
    whole = path.read_bytes()
    half = len(whole) // 2
    path.write_bytes(whole[:half])
    tail = Tail(path)
    assert reasons(tail) == []
    with path.open("ab") as file:
        file.write(whole[half:])
    assert reasons(tail) == ["a"]


def test_another_file_is_read_from_its_begin(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    tail = Tail(path)
    intend(path, "a", "b")
    tail.read()
    path.rename(tmp_path / "audit.1")
    intend(path, "c")
    assert reasons(tail) == ["c"]
    path.write_bytes(b"")
    assert reasons(tail) == []
    intend(path, "d")
    assert reasons(tail) == ["d"]


def test_the_end_of_a_long_file(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    intend(path, "first", *(["x" * 1000] * 40), "last")
    before, audit_tail.FIRST_BYTES = audit_tail.FIRST_BYTES, 5000
    try:
        told = reasons(Tail(path))
    finally:
        audit_tail.FIRST_BYTES = before
    assert told[-1] == "last"
    assert "first" not in told
    assert 1 < len(told) < 6, "whole lines only, of the last 5,000 bytes"


def test_what_is_no_file_of_ours_is_trouble_not_a_wait(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    os.mkfifo(path)
    tail = Tail(path)
    assert tail.read() == []
    assert "not a file" in tail.trouble
    path.unlink()
    path.write_bytes(b'{"at": "soon"}\n\xff\xfe\n\n[1]\n')
    assert tail.read() == []
    assert (tail.trouble, tail.unreadable) == ("", 3)


@given(cuts=st.lists(st.integers(1, 400), max_size=12), count=st.integers(0, 5))
def test_however_it_is_written_each_line_comes_once(cuts: list[int], count: int) -> None:
    """The writer may be interrupted anywhere, the reader may look at any time."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        source, path = Path(folder, "source"), Path(folder, "audit")
        wanted = [str(i) for i in range(count)]
        intend(source, *wanted)
        rest = source.read_bytes() if count else b""
        tail, told = Tail(path), []
        path.touch()
        for cut in [*cuts, len(rest)]:
            with path.open("ab") as file:
                file.write(rest[:cut])
            rest = rest[cut:]
            told += reasons(tail)
        assert told == wanted
