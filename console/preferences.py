"""How one operator likes the screen: console.yaml in the configuration folder. No Textual here.

    theme: colour-blind          # auto, dark, light, high-contrast, colour-blind
    language: zh                 # auto (from LANG), en, zh
    mouse: false                 # leave the mouse to the terminal
    ascii: true                  # auto: what the locale can carry
    bell: true                   # ring for a new critical finding
    notify: osc9                 # desktop notice of the terminal: off, osc9, osc777
    start: findings              # the view to open first
    keys:                        # command -> key or list of keys
      pause: f5
      filter: [slash, ctrl-k]

Options of the command line come before the file. Nothing in it changes what is measured or done.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import platformdirs
import yaml
from msgspec import Struct

from console.options import THEMES
from console.tui import words
from console.tui.views import VIEW_IDS
from inventory import marked
from inventory.errors import UsageError
from inventory.marked import Problems
from inventory.nearest import nearest
from inventory.paths import is_written

LANGUAGES = ("auto", *words.LANGUAGES)
NOTICES = ("off", "osc9", "osc777")
"""OSC 9 (iTerm2, kitty, WezTerm) and OSC 777 (urxvt, foot, VTE): terminals know one or neither."""
MOST_KEYS = 8
"""Keys of one command."""


class Remap(Struct, frozen=True):
    """Keys for one command, as written: which names are valid is checked by console.tui.keymap."""

    command: str
    keys: tuple[str, ...]
    where: str
    """file:line."""


class Preferences(Struct, frozen=True, kw_only=True):
    """What the file says; without a file, what most people want."""

    theme: str = "auto"
    language: str = "auto"
    mouse: bool = True
    ascii: bool | None = None
    """None: as the locale and the terminal allow."""
    bell: bool = False
    notify: str = "off"
    start: str = "fleet"
    """Id of the view to open first."""
    keys: tuple[Remap, ...] = ()
    path: str = ""
    """The file; "" when there is none."""


def path() -> Path:
    """Where the file is looked for, whether it is there or not."""
    return Path(platformdirs.user_config_dir("gpuconsole")) / "console.yaml"


def load() -> Preferences:
    """The operator's file, if any. UsageError for a wrong one."""
    file = path()
    return read(file) if is_written(file) else Preferences()


def read(file: Path) -> Preferences:
    """One file. UsageError with file:line for the first thing that is wrong."""
    problems = Problems(file)
    if not file.is_file():
        raise UsageError("cannot read it: not a file", where=str(file))
    root = marked.compose(file, problems)
    found: dict[str, object] = {}
    if root is not None:
        for key, value in marked.items(root, "the preferences", problems):
            reader = _FIELDS.get(key.value)
            if reader is None:
                problems.add(key, f"unknown key {key.value!r}", nearest(key.value, _FIELDS))
            else:
                found[key.value] = reader(value, key.value, problems)
    problems.finish()
    return Preferences(path=str(file), **found)  # type: ignore[arg-type]


def check() -> Preferences:
    """All that can be said about the file without a screen: also its keys. UsageError."""
    from console.tui import keymap

    found = load()
    keymap.keymap(found.keys)
    return found


def _one_of(*valid: str) -> Callable[[yaml.Node, str, Problems], str]:
    def read_one(node: yaml.Node, what: str, problems: Problems) -> str:
        # `off` is what YAML calls false.
        word = node.value if isinstance(node, yaml.ScalarNode) else None
        if word in valid:
            return str(word)
        shown = repr(word) if word is not None else marked.kind(node)
        problems.add(node, f"{what} is {shown}", nearest(word or "", valid))
        return ""

    return read_one


def _ascii(node: yaml.Node, what: str, problems: Problems) -> bool | None:
    if isinstance(node, yaml.ScalarNode) and node.value == "auto":
        return None
    if marked.kind(node) != "yes/no":
        problems.add(node, f"{what} must be auto, true or false, not {marked.kind(node)}")
        return None
    return marked.truth(node, what, problems)


def _keys(node: yaml.Node, what: str, problems: Problems) -> tuple[Remap, ...]:
    return tuple(
        Remap(key.value, _names(value, key.value, problems), problems.where(value))
        for key, value in marked.items(node, what, problems)
    )


def _names(node: yaml.Node, what: str, problems: Problems) -> tuple[str, ...]:
    written = marked.words(node, what, problems)
    names = [_name(entry, what, problems) for entry in written[:MOST_KEYS]]
    if len(written) > MOST_KEYS or not written:
        problems.add(node, f"{what} has {len(written)} keys", f"one to {MOST_KEYS}")
    return tuple(name for name in names if name)


def _name(node: yaml.Node, what: str, problems: Problems) -> str:
    # YAML reads y, n, on and off as truth, and ~ as nothing: here they are keys.
    if isinstance(node, yaml.ScalarNode) and len(node.value) == 1 and node.value.isprintable():
        return str(node.value)
    return marked.text(node, what, problems) or ""


_FIELDS: dict[str, Callable[[yaml.Node, str, Problems], object]] = {
    "theme": _one_of(*THEMES),
    "language": _one_of(*LANGUAGES),
    "mouse": marked.truth,
    "ascii": _ascii,
    "bell": marked.truth,
    "notify": _one_of(*NOTICES),
    "start": _one_of(*VIEW_IDS),
    "keys": _keys,
}
