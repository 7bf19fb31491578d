"""The catalogue is complete, honest and shipped; the language is the operator's."""

from __future__ import annotations

import string
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from console import options, preferences
from console.tui import palettes, words
from console.tui.text import Cell, Column, heading
from console.tui.words import language_of, t
from tests.tui import catalogue
from tests.tui.conftest import Opener


@pytest.fixture
def _zh() -> Iterator[None]:
    """Chinese within a test."""
    words.use("zh")
    yield
    words.use("en")


def translations() -> dict[str, str]:
    """English -> Chinese, as the .po has them."""
    return {str(m.id): str(m.string) for m in catalogue.read() if m.id}


def test_every_message_is_translated_and_none_is_left_over() -> None:
    """What the source says and what the catalogue answers are the same set."""
    told, asked = translations(), set(catalogue.messages())
    assert asked - set(told) == set(), "python -m tests.tui.catalogue adds these"
    assert set(told) - asked == set(), "python -m tests.tui.catalogue removes these"
    assert [text for text, said in told.items() if not said] == [], "not translated"


def test_placeholders_are_the_same() -> None:
    """A translation fills in what its message fills in."""
    differ = {a for a, b in translations().items() if _fields(a) != _fields(b)}
    assert differ == set()


def _fields(text: str) -> set[tuple[str | None, str | None, str | None]]:
    return {part[1:] for part in string.Formatter().parse(text) if part[1] is not None}


def test_spaces_at_the_ends_are_kept() -> None:
    """A message that begins or ends with a space is glued to something."""
    differ = {a for a, b in translations().items() if _ends(a) != _ends(b)}
    assert differ == set()


def _ends(text: str) -> tuple[bool, bool]:
    return text.startswith(" "), text.endswith(" ")


def test_compiled_is_what_is_written() -> None:
    """The .mo was made of this .po."""
    with catalogue.MO.open("rb") as file:
        shipped = catalogue.spoken(file)
    assert shipped == catalogue.spoken(catalogue.compiled(catalogue.read()))


def test_the_wheel_holds_the_catalogue(tmp_path: Path) -> None:
    """Otherwise an installed console would speak English only."""
    builder = WheelBuilder(str(catalogue.SOURCE.parent))
    (wheel,) = builder.build(directory=str(tmp_path), versions=["standard"])
    inside = zipfile.ZipFile(wheel).read("console/locale/zh/LC_MESSAGES/gpuconsole.mo")
    assert inside == catalogue.MO.read_bytes()


@pytest.mark.parametrize(
    ("environ", "language"),
    [
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh"}, "zh"),
        ({"LANG": "zha_CN.UTF-8"}, "en"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({"LANG": "zh_CN.UTF-8", "LC_MESSAGES": "en_US.UTF-8"}, "en"),
        ({"LANG": "en_US.UTF-8", "LC_MESSAGES": "C", "LC_ALL": "zh_CN.UTF-8"}, "zh"),
        ({"LC_ALL": "", "LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "TERM": "linux"}, "en"),
        ({}, "en"),
    ],
)
def test_language_by_environment(environ: dict[str, str], language: str) -> None:
    """The first variable that is set decides, as everywhere."""
    assert language_of(environ, "utf-8") == language
    assert language_of(environ, "UTF8", "en") == "en"


def test_wanted_language() -> None:
    """A preference comes before the environment, and what the terminal can carry before both."""
    assert language_of({"LANG": "C"}, "utf-8", "zh") == "zh"
    for encoding in ("ascii", "iso-8859-1", "gb18030", "no-such-thing", None):
        assert language_of({"LANG": "zh_CN"}, encoding, "zh") == "en"
    with pytest.raises(LookupError):
        words.use("tlh")


def test_preferences_know_the_same_names() -> None:
    """The file offers what there is."""
    assert set(preferences.LANGUAGES) == {"auto", *words.LANGUAGES}
    assert tuple(palettes.THEMES) == options.THEMES


@pytest.mark.usefixtures("_zh")
def test_translated_when_drawn() -> None:
    """Titles of tables declared at import follow the language; an empty one stays empty."""
    columns = [Column("node", "NODE", 8, 0), Column("mark", "", 2, 1)]
    assert heading(columns) == (Cell("节点    ", "head"), Cell("  ", "head"))
    assert t("") == ""
    assert t("{n} failed", n=3) == "3 个失败"
    words.use("en")
    assert t("{n} failed", n=3) == "3 failed"


@pytest.mark.usefixtures("_zh")
async def test_no_title_is_cut(console: Opener) -> None:
    """Every column of the fleet has room for its Chinese title."""
    async with console(size=(250, 30)) as c:
        assert "…" not in c.text.splitlines()[1]


@pytest.mark.usefixtures("_zh")
async def test_the_log_names_severities_in_the_language(console: Opener) -> None:
    async with console() as c:
        await c.press("0")
        await c.until(lambda: "严重" in "\n".join(c.text.splitlines()[2:]))
        assert "✗ crit" not in c.text
