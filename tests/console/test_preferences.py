"""console.yaml: what it may say, and that every mistake is one line with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.preferences import Preferences, Remap, check, load, read
from console.tui import commands, keymap
from inventory.errors import UsageError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration folder of an operator."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "gpuconsole"
    folder.mkdir()
    return folder


def written(folder: Path, text: str) -> Path:
    """The file with some content."""
    path = folder / "console.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_without_a_file_everything_is_as_most_people_want_it(home: Path) -> None:
    """No file is no mistake, and neither is an empty one."""
    assert load() == Preferences()
    path = written(home, "# nothing yet\n")
    assert load() == Preferences(path=str(path))


def test_every_field_is_read(home: Path) -> None:
    """Also keys that YAML would take for truth or nothing."""
    path = written(
        home,
        "theme: colour-blind\nlanguage: zh\nmouse: false\nascii: true\nbell: true\n"
        "notify: osc9\nstart: findings\n"
        "keys:\n  pause: f5\n  filter: [slash, ctrl-k]\n  explain: ~\n  copy: 'y'\n",
    )
    found = load()
    assert found == Preferences(
        theme="colour-blind", language="zh", mouse=False, ascii=True, bell=True, notify="osc9",
        start="findings", path=str(path),
        keys=(
            Remap("pause", ("f5",), f"{path}:9"),
            Remap("filter", ("slash", "ctrl-k"), f"{path}:10"),
            Remap("explain", ("~",), f"{path}:11"),
            Remap("copy", ("y",), f"{path}:12"),
        ),
    )  # fmt: skip
    assert keymap.keymap(found.keys)["filter"] == ("slash", "ctrl+k")
    assert read(written(home, "notify: off\nascii: auto\n")).notify == "off"


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("them: dark", 1, "did you mean theme?"),
        ("theme: drak", 1, "did you mean dark?"),
        ("mouse: maybe", 1, "true or false"),
        ("bell: true\nascii: 3", 2, "auto, true or false"),
        ("notify: osc8", 1, "did you mean osc9?"),
        ("start: finding", 1, "did you mean findings?"),
        ("keys: [p]", 1, "mapping"),
        ("keys:\n  pause: {a: b}", 2, "list"),
        ("keys:\n  pause: []", 2, "0 keys"),
        ("keys:\n  pasue: f5", 2, "did you mean pause?"),
        ("keys:\n  pause: f5\n  copy: hyperspace", 3, "there is no key 'hyperspace'"),
        ("keys:\n  pause: shift-a", 2, "there is no key"),
        ("keys:\n  pause: ctrl-c", 2, "always leaves"),
        ("keys:\n  pause: w", 2, "w is wide in fleet"),
        ("keys:\n  pause: j", 2, "j is down in"),
        ("keys:\n  down: p", 2, "p is pause in"),
        ("keys:\n  pause: f5\n  copy: f5", 2, "f5 is copy in"),
        ("keys:\n  drain: d", 2, "acts on nodes"),
        ("keys:\n  drain: space", 2, "acts on nodes"),
        ("keys:\n  stop: ['9']", 2, "acts on nodes"),
        ("keys:\n  - p", 2, "mapping"),
        ("theme: [\n", 2, "check"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(home: Path, text: str, line: int, says: str) -> None:
    """What is wrong, where, what instead."""
    path = written(home, text)
    with pytest.raises(UsageError) as raised:
        check()
    assert says in str(raised.value)
    assert str(raised.value).startswith(f"{path}:{line}: ")
    assert "\n" not in str(raised.value)


def test_an_acting_command_may_have_a_deliberate_key(home: Path) -> None:
    """Upper case, function keys, ctrl and alt are no accident."""
    written(home, "keys: {drain: F, resume: f9, test: ctrl-t, tour: f12, stop: alt-x}")
    assert keymap.keymap(check().keys)["test"] == ("ctrl+t",)


def test_what_is_no_file_is_refused(home: Path) -> None:
    """A folder of that name is no preference, and a pipe would keep us waiting."""
    (home / "console.yaml").mkdir()
    with pytest.raises(UsageError, match="not a file"):
        load()


def test_no_two_commands_share_a_key_on_a_screen() -> None:
    """Nor a command and a move: the one found first would win."""
    table = {c.id: (set(c.keys), set(c.screens)) for c in commands.COMMANDS}
    table |= {move: (set(keys), set(commands.EVERY)) for move, keys in commands.MOVES.items()}
    names = sorted(table)
    clashes = [
        (one, other, table[one][0] & table[other][0])
        for one in names
        for other in names
        if one < other and table[one][0] & table[other][0] and table[one][1] & table[other][1]
    ]
    assert clashes == []


def test_every_key_is_shown_as_it_may_be_written() -> None:
    """What help shows can be copied into the file."""
    for command in commands.COMMANDS:
        for key in command.keys[:1]:
            assert keymap.key_name(command.shown) == key, command.id
            assert keymap.shown(key) == command.shown


@given(st.text(max_size=20))
def test_any_text_is_a_key_or_is_not(text: str) -> None:
    """Whatever is written: a name that can be shown, or None."""
    name = keymap.key_name(text) if text else None
    assert name is None or keymap.shown(name).isprintable()


@pytest.mark.parametrize("char", [chr(code) for code in range(0x21, 0x7F)])
def test_every_character_of_a_keyboard_is_a_key(char: str) -> None:
    """Written as itself or by its name, and shown as itself."""
    name = keymap.key_name(char)
    assert name is not None
    assert keymap.key_name(name) == name
    assert keymap.shown(name) == char
