"""The command line: what it imports, and one clear line with exit 64 for everything wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("textual", "asyncssh", "ClusterShell", "pynvml", "psutil")


def gpuconsole(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "console.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def imported(*arguments: str) -> set[str]:
    """Top-level modules loaded by a command line that ends by itself."""
    code = (
        "import sys, json\nfrom console import cli\n"
        f"sys.argv = ['gpuconsole', *{list(arguments)!r}]\n"
        "try:\n    cli.main()\nexcept SystemExit:\n    pass\n"
        "print('\\n' + json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=250, check=True
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("arguments", [["--help"], ["drain", "--help"], ["--no-such-option"]])
def test_parsing_imports_no_heavy_library(arguments: list[str]) -> None:
    assert not imported(*arguments) & set(HEAVY)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--no-such-option"], "--no-such-option"),
        (["--timeout", "soon", "--json"], "soon"),
        (["--timeout", "nan", "--json"], "nan is not a number"),
        (["--window", "NaN", "--json"], "not a number"),
        (["test", "gpu1", "--limit", "nan"], "not a number"),
        (["replay", "no-such-file", "--speed", "nan"], "not a number"),
        (["drain", "gpu1"], "--reason"),
        (["drain", "gpu1"], "drain --help` lists"),
        (["evidence", "gpu1", "gpu2"], "gpu005,gpu006"),
        (["--json", "--fail-on", "never"], "never"),
        (["--fail-on", "critical"], "--fail-on: is for --json"),
        (["--fail-on", "critical", "audit"], "--fail-on: is for --json"),
        (["--json", "audit"], "--json: belongs behind audit; gpuconsole audit --json"),
        (["--theme", "light", "--json"], "--theme: is for the console alone"),
        (["--no-mouse", "audit"], "--no-mouse: is for the console alone"),
        (["--tour", "--demo", "--json"], "--tour: is for the console alone"),
        (["--dry-run", "--json"], "--dry-run: is for --drain-on"),
        (["no-such-command"], "no-such-command"),
        ([], "needs a terminal"),
        (["--json", "--nodes", "4"], "--demo"),
        (["drain", "gpu[1-", "--reason", "x", "--yes"], "gpu[1-"),
        (["drain", "gpu1", "--reason", "x"], "--yes"),
        (["replay", "--json", "no-such-file"], "no-such-file"),
        (["explain", "no.such.rule"], "no.such.rule"),
        (["replay", "--json", "/dev/zero"], "regular file"),
        (
            ["test", "--demo", "--resume", "last", "--level", "gpu"],
            "--level is that of the campaign",
        ),
    ],
)
def test_wrong_input_is_one_line_and_exit_64(arguments: list[str], says: str) -> None:
    done = gpuconsole(*arguments)
    assert done.returncode == 64
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert says in done.stderr


def test_a_recording_with_a_bad_line_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "run.ndjson"
    file.write_text('{"type":"sample","node":"a","probe":"gpu","at":1.0}\nnot json\n')
    done = gpuconsole("replay", "--json", str(file))
    assert done.returncode == 64
    assert f"{file}:2" in done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_fault_of_ours(closed: str) -> None:
    command = f'"$0" -m console.cli inventory -w gpu1 {closed}'
    done = subprocess.run(
        ["/bin/sh", "-c", command, sys.executable], capture_output=True, timeout=250, check=False
    )
    assert done.returncode == 0
    assert done.stderr == b""


def test_a_message_cannot_drive_the_terminal(tmp_path: Path) -> None:
    done = gpuconsole("-i", f"{tmp_path}/\x1b]0;x\x07\x1b[31mname\nline", "inventory")
    assert done.returncode == 64
    assert done.stderr.rstrip("\n").isprintable()


def test_help_names_every_command() -> None:
    text = gpuconsole("--help").stdout
    for command in (
        "drain",
        "resume",
        "test",
        "watch",
        "replay",
        "explain",
        "doctor",
        "schema",
        "inventory",
    ):
        assert command in text


def test_what_is_done_to_the_embedded_cluster_is_written_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drain or a passed test of the demo must not count for the real node of that name."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    quick = ("--demo", "--nodes", "2", "--window", "0.1", "--timeout", "200")
    done = gpuconsole("drain", "gpu001", "--reason", "x", "--yes", *quick)
    assert done.returncode == 0, done.stderr
    ours = tmp_path / "gpuconsole"
    assert [path.name for path in ours.iterdir()] == ["demo"]
    assert [path.name[:7] for path in (ours / "demo" / "evidence").iterdir()] == ["gpu001-"]
    assert gpuconsole("audit").stdout == ""
    assert "gpu001" in gpuconsole("audit", "--demo").stdout
    assert gpuconsole("--demo", "audit").stdout == gpuconsole("audit", "--demo").stdout
    assert "gpu[001-002]" in gpuconsole("inventory", *quick).stdout
