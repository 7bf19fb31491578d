"""Terminals of other character sets, with real locales: what is drawn, what is typed, what is
printed."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console import charset
from console.tui.text import ascii_only, plain, width_of
from tests.conftest import Lab
from tests.terminal import ROOT, Pty, gpuconsole
from tests.tui.test_sturdy import ALIVE, SMALL, look_at_the_help

# Compiling a locale takes seconds: one process does it for all.
pytestmark = pytest.mark.xdist_group("locales")

LOCALES = {
    "zh_CN.GB18030": "gb18030",
    "zh_CN.GBK": "gbk",
    "en_US.ISO-8859-1": "iso8859-1",
}


@pytest.fixture(scope="module")
def compiled(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for LOCPATH with all of them."""
    lab.programs("localedef", "localedef", package="libc-bin")
    lab.require(
        "locales", Path("/usr/share/i18n/charmaps/GB18030.gz").exists(), "apt install locales"
    )
    folder = tmp_path_factory.mktemp("locales")
    for name in LOCALES:
        source, _, charmap = name.partition(".")
        subprocess.run(
            ["localedef", "-i", source, "-f", charmap, str(folder / name)],
            check=True, capture_output=True, timeout=250,
        )  # fmt: skip
    return folder


def environment(name: str, compiled: Path | None) -> dict[str, str]:
    """Of somebody who works in this locale, which is installed or not."""
    found = {"LC_ALL": name, "LANG": name, "LANGUAGE": "", "LOCPATH": str(compiled or ROOT)}
    return {**found, "PYTHONUTF8": "0"} if compiled else found


def run(environ: Mapping[str, str], *arguments: str | bytes) -> subprocess.CompletedProcess[bytes]:
    """One command to its end."""
    return subprocess.run(
        [*gpuconsole(), *arguments], env={**os.environ, **environ}, cwd=ROOT,
        capture_output=True, check=False, timeout=250, stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.fixture(params=LOCALES)
def installed(request: pytest.FixtureRequest, compiled: Path) -> dict[str, str]:
    """The environment of a locale that Python takes as it is."""
    environ = environment(request.param, compiled)
    probe = "import sys; print(sys.stderr.encoding, sys.flags.utf8_mode)"
    argv = [gpuconsole()[0], "-c", probe]
    said = subprocess.run(argv, env={**os.environ, **environ}, capture_output=True, check=True)
    assert said.stdout.decode().split() == [LOCALES[request.param], "0"]
    return environ


def test_drawn_in_ascii_and_typed_in_the_locales_own(installed: dict[str, str]) -> None:
    """Two bytes of a Chinese character are one character of two cells, not four strange ones."""
    encoding = LOCALES[installed["LC_ALL"]]
    typed, cells = ("é", "?") if encoding == "iso8859-1" else ("中", "??")
    with Pty(SMALL, env=installed) as pty:
        pty.until(ALIVE)
        pty.send(b"/" + typed.encode(encoding))
        pty.until(rf"/{re.escape(cells)} +0/4|/{re.escape(cells)} 0/4")
        mark = len(pty.seen)
        pty.send("\x1b")
        pty.until("gpu004", after=mark)
        # A notice and the palette: frames of Textual's own.
        pty.send("y")
        pty.until("copied")
        pty.send("\x10")
        pty.until("Search for commands|palette")
        mark = len(pty.seen)
        pty.send("\x1b")
        pty.until("gpu004", after=mark)
        look_at_the_help(pty)
        pty.send("q")
        assert pty.wait() == 0
        assert pty.seen.isascii()
        assert "\\u" not in pty.text


def test_half_a_character_does_not_end_the_keyboard(installed: dict[str, str]) -> None:
    """What is no character in this set, and a lead byte in front of a key and of a sequence."""
    with Pty(SMALL, env=installed) as pty:
        pty.until(ALIVE)
        pty.send(b"\xff\xfe\x80\xc3(\xb0\xa1\xf0\x28\x8c\x28\x81\x1b[B\x81\x1b[A")
        look_at_the_help(pty)
        pty.send("q")
        assert pty.wait() == 0


@pytest.mark.parametrize("name", LOCALES)
@pytest.mark.parametrize("forced", [{}, {"PYTHONUTF8": "1"}], ids=["", "utf8-mode"])
def test_a_locale_that_is_not_installed_still_names_the_terminal(
    name: str, forced: dict[str, str]
) -> None:
    """Python is in its UTF-8 mode then; the operator's terminal is not."""
    with Pty(SMALL, env={**environment(name, None), **forced}) as pty:
        pty.until(ALIVE)
        pty.send("q")
        assert pty.wait() == 0
        assert pty.seen.isascii()


def test_text_in_the_locales_own_and_json_in_utf8(
    installed: dict[str, str], tmp_path: Path
) -> None:
    """What the set lacks becomes a question mark, never an error."""
    encoding = LOCALES[installed["LC_ALL"]]
    log = tmp_path / "ticket.txt"
    log.write_text(
        "Nov 30 01:02:03 gpu1 kernel: NVRM: Xid (PCI:0000:9d:00): 79, name=中文é, "
        "GPU has fallen off the bus.\n", encoding="utf-8",
    )  # fmt: skip
    said = run(installed, "diagnose", str(log))
    assert said.returncode == 2
    assert "name=中文é".encode(encoding, "replace") in said.stdout
    document = json.loads(run(installed, "diagnose", "--json", str(log)).stdout.decode("utf-8"))
    assert "中文é" in json.dumps(document, ensure_ascii=False)


def test_a_reason_is_printed_as_it_was_typed(installed: dict[str, str]) -> None:
    """Typed in the terminal's set, kept in UTF-8, printed in the set again."""
    encoding = LOCALES[installed["LC_ALL"]]
    reason = "é" if encoding == "iso8859-1" else "坏"
    drained = run(installed, "drain", "gpu001", "--demo", "--nodes", "4", "--yes",
                  "--timeout", "200", "--reason", f"fan {reason}".encode(encoding))  # fmt: skip
    assert drained.returncode == 0, drained.stderr
    told = run(installed, "audit", "--demo")
    assert f"fan {reason}".encode(encoding) in told.stdout
    kept = run(installed, "audit", "--demo", "--json")
    assert json.loads(kept.stdout.decode("utf-8").splitlines()[0])["reason"].count(reason)


def test_a_report_of_tests_in_ascii(installed: dict[str, str]) -> None:
    said = run(installed, "test", "gpu004", "--demo", "--nodes", "4", "--level", "gpu", "--yes")
    assert b"gpu004" in said.stdout, said.stderr
    assert said.stdout.isascii()


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("-w", "gpu坏é", "--json"), b"cannot be in a host name"),
        (("--坏é",), b"No such option"),
        (("explain", "坏é"), b"nothing is called"),
        (("-i", "/坏é.yaml", "--json"), b".yaml"),
    ],
)
def test_an_error_is_a_line(
    installed: dict[str, str], arguments: tuple[str, ...], what: bytes
) -> None:
    encoding = LOCALES[installed["LC_ALL"]]
    for told in (encoding, "utf-8"):
        said = run(installed, *(word.encode(told, "replace") for word in arguments))
        assert said.returncode == 64
        assert said.stdout == b""
        assert said.stderr.startswith(b"gpuconsole: ")
        assert what in said.stderr
        assert said.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    ("environ", "encoding", "found"),
    [
        ({"LC_ALL": "zh_CN.GB18030"}, "gb18030", "gb18030"),
        ({"LC_ALL": "zh_CN.GB18030@stroke"}, "utf-8", "gb18030"),
        ({"LC_ALL": "", "LANG": "de_DE.ISO-8859-15@euro"}, "utf-8", "iso8859-15"),
        ({"LC_ALL": "C", "LANG": "zh_CN.GBK"}, "utf-8", "utf-8"),
        ({"LANG": "en_US.utf8"}, "UTF8", "utf-8"),
        ({"LANG": "en_US.nonsense"}, "utf-8", "utf-8"),
        ({"LANG": "zh_CN.GBK", "PYTHONIOENCODING": "utf-8"}, "utf-8", "utf-8"),
        ({"LANG": "en_US.UTF-8"}, "iso-8859-1", "iso8859-1"),
        ({}, None, "ascii"),
        ({}, "hex", "ascii"),
    ],
)
def test_the_set_of_a_terminal(environ: dict[str, str], encoding: str | None, found: str) -> None:
    assert charset.of(environ, encoding) == found


@pytest.mark.parametrize(
    ("name", "read"),
    [("ascii", "utf-8"), ("gbk", "gbk"), ("iso2022_jp", "utf-8"), ("utf-16", "utf-8"),
     ("hz", "utf-8"), ("utf-8", "utf-8"), ("cp037", "utf-8")],
)  # fmt: skip
def test_keys_are_never_read_in_a_set_that_takes_escapes_for_itself(name: str, read: str) -> None:
    assert charset.for_keys(name) == read


@given(st.text())
def test_ascii_takes_the_same_cells(text: str) -> None:
    """Or a line would break at what another terminal cannot show."""
    harmless = plain(text.replace("°", ""))
    assert width_of(ascii_only(harmless)) == width_of(harmless)
