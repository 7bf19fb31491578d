"""A YAML mapping read field by field; whatever is not asked for, or not as asked, is a UsageError.

Each error carries file and line of the offending word and, for a misspelt one, the nearest valid.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from yaml.nodes import Node, ScalarNode, SequenceNode

from inventory import marked
from inventory.errors import UsageError
from inventory.nearest import nearest

_MISSING = object()


def document(path: Path) -> Fields:
    """The file's top mapping. Raises UsageError: unreadable, not YAML, empty, not a mapping."""
    problems = marked.Problems(path)
    root = marked.compose(path, problems)
    problems.finish()
    if root is None:
        advice = "write `nodes: gpu[001-016]`"
        raise UsageError("the file is empty", where=f"{path}:1", instead=advice)
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
        problems = marked.Problems(path)
        for key, value in marked.items(node, "this", problems):
            self._keys[key.value] = key
            self._values[key.value] = value
        problems.finish()

    def __contains__(self, key: str) -> bool:
        """Whether the key was written."""
        self._asked.append(key)
        return key in self._values

    def _fail(self, node: Node, what: str, instead: str = "") -> UsageError:
        return UsageError(what, where=f"{self.path}:{marked.line_of(node)}", instead=instead)

    def where(self, key: str) -> str:
        """`file:line` of a key's value, of the mapping when it is absent."""
        return f"{self.path}:{marked.line_of(self._values.get(key, self.node))}"

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
