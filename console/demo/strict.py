"""A YAML mapping read field by field; whatever is not asked for, or not as asked, is a UsageError.

Each error carries file and line of the offending word and, for a misspelt one, the nearest valid.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from inventory.errors import UsageError

_MISSING = object()


def document(path: Path) -> Fields:
    """The file's top mapping. Raises UsageError: unreadable, not YAML, empty, not a mapping."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{error.strerror}", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"not UTF-8 at byte {error.start}", where=str(path)) from error
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UsageError(f"not YAML: {error.problem}", where=f"{path}:{line}") from error
    except yaml.YAMLError as error:
        raise UsageError(f"not YAML: {error}", where=f"{path}:1") from error
    if root is None:
        raise UsageError("the file is empty", where=f"{path}:1", instead="write `nodes: gpu[001-016]`")
    return Fields(path, root)


class Fields:
    """One mapping; every getter marks its key as known, `done` refuses the rest."""

    def __init__(self, path: Path, node: Node) -> None:
        """Raises UsageError when the node is no mapping, or names a key twice."""
        self.path = path
        self.node = node
        self._values: dict[str, Node] = {}
        self._keys: dict[str, Node] = {}
        self._asked: list[str] = []
        if not isinstance(node, MappingNode):
            raise self._fail(node, "expected `key: value` lines here")
        for key, value in node.value:
            if not isinstance(key, ScalarNode):
                raise self._fail(key, "a key must be a plain word")
            if key.value in self._keys:
                raise self._fail(key, f"{key.value!r} is there twice")
            self._keys[key.value] = key
            self._values[key.value] = value

    def __contains__(self, key: str) -> bool:
        """Whether the key was written."""
        self._asked.append(key)
        return key in self._values

    def _fail(self, node: Node, what: str, instead: str = "") -> UsageError:
        return UsageError(what, where=f"{self.path}:{node.start_mark.line + 1}", instead=instead)

    def error(self, key: str, what: str, instead: str = "") -> UsageError:
        """The UsageError to raise about a key's value."""
        return self._fail(self._values.get(key, self.node), what, instead)

    def _scalar(self, key: str, default: object = _MISSING) -> str | None:
        self._asked.append(key)
        node = self._values.get(key)
        if node is None:
            if default is _MISSING:
                raise self._fail(self.node, f"`{key}:` is missing")
            return None
        if not isinstance(node, ScalarNode):
            raise self._fail(node, f"`{key}:` takes one value")
        return str(node.value)

    def text(self, key: str, default: object = _MISSING) -> str:
        """A non-empty string, or the default."""
        value = self._scalar(key, default)
        if value is None:
            return str(default)
        if not value.strip():
            raise self.error(key, f"`{key}:` is empty")
        return value.strip()

    def choice(self, key: str, valid: Sequence[str], default: object = _MISSING) -> str:
        """One of the valid words."""
        value = self.text(key, default)
        if value not in valid:
            raise self.error(key, f"{value!r} is no {key}", nearest(value, valid))
        return value

    def known_node(self, name: str, names: Sequence[str], key: str) -> str:
        """The name, if the scenario has that node."""
        if name not in names:
            raise self.error(key, f"no node {name!r} in this scenario", nearest(name, names))
        return name

    def whole_or_none(self, key: str, below: int) -> int | None:
        """A whole number from 0 to below `below`, or None when the key is absent."""
        if key not in self:
            return None
        number = self.whole(key, 0, least=0)
        if number >= below:
            raise self.error(key, f"`{key}: {number}` does not exist", f"use 0 to {below - 1}")
        return number

    def whole(self, key: str, default: int, *, least: int) -> int:
        """A whole number of at least `least`."""
        value = self._scalar(key, default)
        if value is None:
            return default
        try:
            number = int(value)
        except ValueError:
            raise self.error(key, f"`{key}: {value}` is no whole number") from None
        if number < least:
            raise self.error(key, f"`{key}: {value}` is below {least}")
        return number

    def seconds_or_none(self, key: str) -> float | None:
        """Seconds >= 0, or None when the key is absent."""
        return self.seconds(key, 0.0) if key in self else None

    def seconds(self, key: str, default: float) -> float:
        """Seconds >= 0."""
        value = self._scalar(key, default)
        if value is None:
            return default
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if not 0 <= number < float("inf"):
            raise self.error(key, f"`{key}: {value}` is no time in seconds", "write e.g. 30")
        return number

    def items(self, key: str) -> Iterator[Fields]:
        """Each mapping of a list; nothing when the key is absent."""
        self._asked.append(key)
        node = self._values.get(key)
        if node is None:
            return
        if not isinstance(node, SequenceNode):
            raise self._fail(node, f"`{key}:` takes a list (lines that begin with `- `)")
        for item in node.value:
            yield Fields(self.path, item)

    def done(self) -> None:
        """Refuse keys that nobody asked for."""
        valid = sorted(set(self._asked))
        for key, node in self._keys.items():
            if key not in valid:
                raise self._fail(node, f"unknown key {key!r}", nearest(key, valid))


def nearest(word: str, valid: Sequence[str]) -> str:
    """Advice that names the valid word that is most alike, or all when none is."""
    close = difflib.get_close_matches(word, valid, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]!r}?"
    shown = ", ".join(valid[:20])
    return f"valid: {shown}" + (", ..." if len(valid) > 20 else "")
