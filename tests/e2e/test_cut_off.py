"""A drain that is ended at any step: the audit explains it, nothing stays or is done twice."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.lab import COMMAND, SIGNALS, Site, ended, until
from tests.leftovers import left_since, temporary

pytestmark = [pytest.mark.sshd, pytest.mark.slurm]
DRAIN = ("drain", "n1", "--reason", "xid 79", "--yes", "--timeout", "30")


def state(site: Site) -> str:
    return site.slurm.ok("sinfo", "-h", "-N", "-p", "gpu", "-n", "n1", "-o", "%T|%E")


@pytest.fixture
def stuck_driver(site: Site) -> Iterator[Path]:
    """n1's nvidia-smi writes its pid into this file, then never comes back."""
    program = site.gpus["n1"].folder / "bin" / "nvidia-smi"
    asked = Path(tempfile.mkdtemp(prefix="asked-")) / "asked"
    asked.parent.chmod(0o777)
    program.write_text(f"#!/bin/sh\necho $$ >> {asked}\nexec sleep 300\n")
    program.chmod(0o755)
    yield asked
    program.unlink()
    shutil.rmtree(asked.parent)


@pytest.mark.parametrize("number", SIGNALS)
def test_while_evidence_is_gathered(site: Site, stuck_driver: Path, number: signal.Signals) -> None:
    before, was = temporary(), state(site)
    with site.started(*DRAIN) as console:
        until(lambda: stuck_driver.exists() and stuck_driver.read_text(), "nvidia-smi on n1")
        os.kill(console.pid, number)
        code, _, err = ended(console)
    assert code == (-number if number is signal.SIGKILL else 130), err
    site.nothing_left()
    assert state(site) == was, "nothing was written yet"
    assert site.audit == []
    assert left_since(before) == set()
    bundles = site.home / "state" / "gpuconsole" / "evidence"
    assert not list(bundles.iterdir())


@pytest.fixture
def slow_scontrol(site: Site, tmp_path: Path) -> Iterator[tuple[dict[str, str], Path]]:
    """An scontrol that does not come back from an update; the update itself is done."""
    real, wrote = shutil.which("scontrol", path=site.environment["PATH"]), tmp_path / "wrote"
    program = tmp_path / "scontrol"
    program.write_text(
        f'#!/bin/sh\ncase "$*" in *update*) {real} "$@"; echo $$ > {wrote}; exec sleep 300;; esac\n'
        f'exec {real} "$@"\n'
    )
    program.chmod(0o755)
    yield {**site.environment, "PATH": f"{tmp_path}:{site.environment['PATH']}"}, wrote
    if wrote.exists():
        try:
            os.kill(int(wrote.read_text()), signal.SIGKILL)
        except ProcessLookupError:
            return


@pytest.mark.parametrize("number", SIGNALS)
def test_between_write_and_outcome(
    site: Site, slow_scontrol: tuple[dict[str, str], Path], number: signal.Signals
) -> None:
    environment, wrote = slow_scontrol
    with subprocess.Popen(
        site.argv((*DRAIN, "--no-evidence")), env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=site.folder,
    ) as console:  # fmt: skip
        try:
            until(lambda: wrote.exists() and wrote.read_text(), "the update")
            os.kill(console.pid, number)
            ended(console)
        finally:
            console.kill()
    assert "drain" in state(site)
    told = [(line["what"], line.get("ok")) for line in site.audit]
    said = subprocess.run(
        [*COMMAND, "audit"], env=site.environment, capture_output=True, text=True,
        check=True, timeout=250,
    )  # fmt: skip
    if number is signal.SIGKILL:
        assert told == [("intend", None)]
        assert "n1: no outcome" in said.stderr
    else:
        assert told == [("intend", None), ("outcome", False)]
        assert "interrupted" in said.stdout
    again = site.run(*DRAIN, "--no-evidence")
    assert "already drained by us" in again.err
    assert len(site.audit) == len(told), "nothing is done twice"


@pytest.mark.parametrize("number", SIGNALS)
def test_between_intent_and_write(site: Site, tmp_path: Path, number: signal.Signals) -> None:
    """The update never reaches Slurm: the record says what was meant, and a second try does it."""
    real, asked = shutil.which("scontrol", path=site.environment["PATH"]), tmp_path / "asked"
    program = tmp_path / "scontrol"
    program.write_text(
        f'#!/bin/sh\ncase "$*" in *update*) echo $$ > {asked}; exec sleep 300;; esac\n'
        f'exec {real} "$@"\n'
    )
    program.chmod(0o755)
    environment = {**site.environment, "PATH": f"{tmp_path}:{site.environment['PATH']}"}
    was = state(site)
    with subprocess.Popen(
        site.argv((*DRAIN, "--no-evidence")), env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=site.folder,
    ) as console:  # fmt: skip
        try:
            until(lambda: asked.exists() and asked.read_text(), "the update")
            os.kill(console.pid, number)
            ended(console)
        finally:
            console.kill()
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(asked.read_text()), signal.SIGKILL)
    assert state(site) == was
    first = [(line["what"], line.get("ok")) for line in site.audit]
    assert first == [("intend", None)] + [("outcome", False)] * (number is not signal.SIGKILL)
    again = site.run(*DRAIN, "--no-evidence")
    assert again.code == 0, again.err
    assert "drain" in state(site)
    assert [line["what"] for line in site.audit[len(first) :]] == ["intend", "outcome", "reading"]


def test_two_consoles_drain_the_same_node_at_once(site: Site) -> None:
    """One writes, the other finds it done or refused; the reason is one of theirs, whole."""
    reasons = ("bad fan", "slow link")
    consoles = [
        site.started("drain", "n1", "--reason", reason, "--yes", "--no-evidence", "--timeout", "30")
        for reason in reasons
    ]
    with consoles[0] as one, consoles[1] as two:
        codes = [ended(console)[0] for console in (one, two)]
    assert 0 in codes
    assert set(codes) <= {0, 3}
    word, _, reason = state(site).strip().partition("|")
    assert word == "drained"
    assert reason in {f"gpuconsole: {text}" for text in reasons}
    site.run("audit", "--verify")
    done = [line for line in site.audit if line["what"] == "outcome" and line["ok"]]
    assert 1 <= len(done) <= 2
