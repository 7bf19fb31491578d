"""The operator's own keys: names checked, conflicts named, and how a key is written. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from textual.keys import REPLACED_KEYS, Keys, _character_to_key, key_to_character

from console.preferences import Remap
from console.tui import commands
from inventory.errors import UsageError
from inventory.nearest import nearest

Keymap = Mapping[str, tuple[str, ...]]
"""Command id -> Textual's names of its keys; commands that are not in it keep their own."""
Table = dict[str, tuple[tuple[str, ...], frozenset[str]]]
"""Command or move -> its keys and the screens it is on."""

ALWAYS = {"ctrl+c": "leaves the console", "ctrl+q": "leaves the console"}
"""Keys that no file takes away."""
_MODIFIERS = ("ctrl", "alt", "shift", "super", "hyper", "meta")
_WRITTEN = {
    "esc": "escape", "return": "enter", "del": "delete", "ins": "insert", "pgup": "pageup",
    "pgdn": "pagedown", "pgdown": "pagedown", "ctrl+i": "tab", "ctrl+m": "enter",
    "ctrl+left_square_bracket": "escape", "ctrl+space": "ctrl+@",
    "ctrl+at": "ctrl+@",
}  # fmt: skip
"""What people write, and what terminals send for it."""
_SHOWN = {
    "escape": "esc", "pageup": "pgup", "pagedown": "pgdn", "delete": "del", "insert": "ins",
    "ctrl+@": "ctrl-space",
}  # fmt: skip


def key_name(written: str) -> str | None:
    """Textual's name of a key as people write it: `?`, `ctrl-p`, `F5`; None for no key."""
    text = written.strip() or written
    if len(text) == 1:
        return _character_to_key(text) if text.isprintable() else None
    *modifiers, base = re.split("[+-]", text)
    base = _character_to_key(base) if len(base) == 1 else base.lower()
    whole = "+".join([*(part.lower() for part in modifiers), base])
    whole = _WRITTEN.get(whole, whole)
    *modifiers, base = whole.split("+")
    # With shift alone a terminal sends the capital letter itself.
    capital = modifiers == ["shift"] and _char(base) != ""
    known = all(part in _MODIFIERS for part in modifiers) and _is_base(base)
    return whole if known and not capital else None


def _is_base(name: str) -> bool:
    named = name in {key.value for key in Keys} and "<" not in name
    return named or _char(name) != "" or name == "@"  # ctrl-space


def _char(key: str) -> str:
    """The character of a key; "" for one without."""
    char = key_to_character(REPLACED_KEYS.get(key, key)) or ""
    return char if char.isprintable() and char != " " else ""


def shown(key: str) -> str:
    """A key as it is written for people: `?`, `ctrl-p`, `esc`."""
    if key in _SHOWN:
        return _SHOWN[key]
    *modifiers, base = key.split("+")
    return "-".join([*modifiers, _char(base) or _SHOWN.get(base, base)])


def keymap(remaps: Iterable[Remap]) -> dict[str, tuple[str, ...]]:
    """Checked keys of each remapped command. UsageError with file:line."""
    found: dict[str, tuple[str, ...]] = {}
    where: dict[str, str] = {}
    for remap in remaps:
        command = remap.command.replace("-", "_")
        if command not in commands.BY_ID and command not in commands.MOVES:
            valid = nearest(command, [*commands.BY_ID, *commands.MOVES])
            raise UsageError(
                f"there is no command {remap.command!r}", where=remap.where, instead=valid
            )
        found[command] = tuple(_checked(key, command, remap.where) for key in remap.keys)
        where[command] = remap.where
    table = _table(found)
    for command in found:
        _conflict(command, table, where[command])
    return found


def _checked(written: str, command: str, where: str) -> str:
    key = key_name(written)
    if key is None:
        raise UsageError(
            f"{command}: there is no key {written!r}", where=where,
            instead="write one as f, F, ?, f5, ctrl-f, pgup or space",
        )  # fmt: skip
    if key in ALWAYS:
        raise UsageError(f"{command}: {shown(key)} always {ALWAYS[key]}", where=where)
    entry = commands.BY_ID.get(command)
    if entry is not None and entry.acts and not _deliberate(key):
        raise UsageError(
            f"{command} acts on nodes and may not be on {shown(key)!r}", where=where,
            instead="take an upper-case letter, a function key or one with ctrl or alt",
        )  # fmt: skip
    return key


def _deliberate(key: str) -> bool:
    """Whether nobody presses it by accident."""
    if len(key) == 1:
        return key.isupper()
    return "+" in key or (key[0] == "f" and key[1:].isdigit())


def _conflict(command: str, table: Table, where: str) -> None:
    mine, mine_on = table[command]
    for other, (keys, screens) in table.items():
        both = set(mine) & set(keys)
        together = mine_on & screens
        if other == command or not both or not together:
            continue
        key, screen = shown(min(both)), min(together)
        raise UsageError(
            f"{command}: {key} is {other} in {screen}", where=where,
            instead=f"choose another key, or give {other} one too",
        )  # fmt: skip


def _table(found: Keymap) -> Table:
    table = {c.id: (found.get(c.id, c.keys), frozenset(c.screens)) for c in commands.COMMANDS}
    every = frozenset(commands.EVERY)
    return table | {i: (found.get(i, keys), every) for i, keys in commands.MOVES.items()}


def textual(keys: Keymap) -> dict[str, str]:
    """As App.set_keymap takes it."""
    return {command: ",".join(names) for command, names in keys.items()}
