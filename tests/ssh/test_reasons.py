"""Texts of ssh, PAM, sudo and shells; frames and lines; without any network."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.answers import Clock
from probes.event import NodeState
from probes.reasons import read_exit
from probes.reasons import read_text as read
from probes.sanitise import clean, decode
from probes.transport import Exit, Failure
from probes.wire import Lines, Tick, read_frame


def read_text(text: str) -> Failure:
    """The Failure a text speaks of; there must be one."""
    found = read(text)
    assert found is not None
    return found


CASES = Path(__file__).parents[1] / "data" / "cases"


def test_case_host_key_changed() -> None:
    failure = read_text((CASES / "ssh-transport-host-key-changed.txt").read_text())
    assert (failure.reason, failure.state) == ("host_key", NodeState.HOST_KEY_CHANGED)
    assert failure.fixed, "never retried in a loop"
    for fact in ("gpu-a01", "ED25519", "known_hosts:41", "SHA256:AAAA"):
        assert fact in failure.what
    assert "by hand" in failure.hint


def test_case_pam_slurm_adopt() -> None:
    parts = re.split(
        r"^### (\S+) rc=\d+\n",
        (CASES / "ssh-transport-pam-slurm-adopt.txt").read_text(),
        flags=re.MULTILINE,
    )[1:]
    found = {name: read(text) for name, text in zip(parts[::2], parts[1::2], strict=True)}
    assert found["gpu-a02"] is None
    for name in ("gpu-a01", "gpu-a03"):
        failure = found[name]
        assert failure is not None
        assert (failure.reason, failure.state) == ("no_job_policy", NodeState.AUTH_FAILED)


def test_case_two_factor() -> None:
    failure = read_text((CASES / "ssh-transport-two-factor-prompts.txt").read_text())
    assert (failure.reason, failure.fixed) == ("needs_interactive_auth", True)
    assert "publickey,keyboard-interactive" in failure.what


def test_case_control_path() -> None:
    failure = read_text((CASES / "ssh-transport-controlpath-too-long.txt").read_text())
    assert failure.reason == "control_path_too_long"
    assert "local problem" in failure.what
    assert "108" in failure.what
    assert "%C" in failure.hint


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Permission denied (publickey).", "auth"),
        ("This account is currently not available.", "no_shell"),
        ("sudo: a password is required", "become"),
        ("bash: line 1: python3: command not found", "no_python"),
        ("System is booting up. Unprivileged users are not permitted to log in yet.", "no_shell"),
    ],
)
def test_other_wordings(text: str, reason: str) -> None:
    assert read_text(text).reason == reason


@pytest.mark.parametrize("text", ["", "Welcome to the python3 cluster", "Last login: yesterday"])
def test_harmless_texts_mean_nothing(text: str) -> None:
    assert read(text) is None


def test_exit_without_words_is_told_as_it_is() -> None:
    failure = read_exit(Exit(rc=0), "")
    assert failure.reason == "no_agent"
    assert "status 0" in failure.what
    assert "SIGKILL" in read_exit(Exit(signal="SIGKILL"), "").what


@given(st.text(), st.integers(2, 50))
def test_clean_is_one_printable_line(text: str, limit: int) -> None:
    found = clean(text, limit)
    assert found.isprintable()
    assert len(found) <= limit
    assert clean(found, limit) == found


@given(st.text(alphabet=st.characters(exclude_categories=("C", "Z"))))
def test_clean_keeps_printable_text(text: str) -> None:
    assert clean(text, 10**6) == text


@given(st.binary())
def test_decode_never_fails(raw: bytes) -> None:
    assert decode(raw).isprintable()


def test_clean_removes_escapes_whole() -> None:
    assert clean("a\x1b[31;1mb\x1b[0m\x1b]0;title\x07c\x1b]8;;http://x\x1b\\d") == "abcd"
    assert clean("x\ty\nz\u2028w") == "x y z w"
    assert clean("\x1b" * 5000) == ""


@given(st.lists(st.binary(max_size=30)), st.lists(st.integers(1, 40)))
def test_lines_equal_split_however_they_are_cut(parts: list[bytes], cuts: list[int]) -> None:
    whole = b"\n".join(parts) + b"\n"
    lines, found, at = Lines(), [], 0
    for cut in [*cuts, len(whole)]:
        found += lines.feed(whole[at : at + cut])
        at += cut
    assert found == whole.split(b"\n")[:-1]
    assert (lines.dropped, lines.unfinished) == (0, b"")


@given(st.lists(st.binary(max_size=40), min_size=1), st.lists(st.integers(1, 15)))
def test_lines_drop_exactly_the_long_ones(parts: list[bytes], cuts: list[int]) -> None:
    whole = b"\n".join(part.replace(b"\n", b"") for part in parts) + b"\n"
    lines, found, at = Lines(cap=20), [], 0
    for cut in [*cuts, len(whole)]:
        found += lines.feed(whole[at : at + cut])
        at += cut
    real = whole.split(b"\n")[:-1]
    assert found == [line for line in real if len(line) <= 20]
    assert lines.dropped == sum(len(line) > 20 for line in real)


@given(st.binary())
def test_any_bytes_are_a_frame_or_none(raw: bytes) -> None:
    read_frame(raw)


@pytest.mark.parametrize(
    "raw",
    [
        b"[" * 100000,
        b"{}",
        b'{"k":"nope"}',
        b'{"k":"s","p":"x","t":NaN}',
        b'{"k":"s","p":1,"t":1}',
        b'{"k":"s","p":"x","t":1,"d":{"a":[1]}}',
        b"\xff\xfe",
        b"",
    ],
)
def test_nonsense_is_no_frame(raw: bytes) -> None:
    assert read_frame(raw) is None


def test_nulls_are_absent_not_fatal() -> None:
    raw = json.dumps({"k": "s", "p": "gpu", "t": 1, "d": {"a": {"x": None, "y": 2}}}).encode()
    frame = read_frame(raw)
    assert isinstance(frame, Tick)
    assert frame.d == {"a": {"y": 2}}


def test_clock_follows_the_fastest_frame_and_never_the_future() -> None:
    clock = Clock(node_mono=100.0, mono=1000.5)
    assert clock.epoch(101.0, mono=1001.0, now=5001.0) == pytest.approx(5001.0, abs=0.01)
    # This frame was half a second slower than the last one.
    assert clock.epoch(102.0, mono=1002.5, now=5002.5) == pytest.approx(5002.0, abs=0.01)
    assert clock.epoch(1e9, mono=1003.0, now=5003.0) <= 5003.0
    assert clock.epoch(float("nan"), mono=1004.0, now=5004.0) == 5004.0


def test_a_hostile_clock_cannot_date_anything_before_the_session() -> None:
    clock = Clock(node_mono=100.0, mono=1000.0)
    assert clock.epoch(-1e12, mono=1010.0, now=5010.0) >= 5000.0
