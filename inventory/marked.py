"""YAML whose every value remembers its line, with limits against hostile files.

The file is composed to PyYAML nodes, never constructed to objects. Problems are collected, so that
one message can name the first one in full and the lines of all others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import yaml

from inventory.errors import UsageError

MAX_BYTES = 5_000_000
"""Largest file read; 100,000 hosts written one a line are 2 MB."""
MAX_ALIASES = 100
"""Most `*alias` in a file; nothing needs them, and they multiply."""
MAX_DEPTH = 20
"""Deepest nesting; the inventory needs 6."""

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_KINDS = {"int": "a number", "float": "a number", "bool": "yes/no", "null": "nothing"}
_KINDS |= {"seq": "a list", "map": "a mapping", "str": "text", "timestamp": "a date"}
_NO_TEXT = (_TAG + "bool", _TAG + "null")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Problems:
    """What is wrong with one file, in the order found."""

    def __init__(self, path: Path) -> None:
        """`path` leads every message."""
        self.path = path
        self.found: list[tuple[int, UsageError]] = []

    def where(self, node: yaml.Node | int) -> str:
        """`file:line` of a node or of a line number."""
        line = node if isinstance(node, int) else line_of(node)
        return f"{self.path}:{line}"

    def add(self, node: yaml.Node | int, what: str, instead: str = "") -> None:
        """Remember one problem and go on reading."""
        line = node if isinstance(node, int) else line_of(node)
        self.found.append((line, UsageError(what, where=self.where(line), instead=instead)))

    def keep(self, node: yaml.Node, error: UsageError) -> None:
        """Remember an error that already carries its place."""
        self.found.append((line_of(node), error))

    def finish(self) -> None:
        """Raise the first problem by line, with the lines of the others behind it."""
        if not self.found:
            return
        self.found.sort(key=lambda entry: entry[0])
        first = self.found[0][1]
        if len(self.found) == 1:
            raise first
        others = ", ".join(str(line) for line, _ in self.found[1:11])
        dots = ", ..." if len(self.found) > 11 else ""
        count = len(self.found) - 1
        merged = UsageError(f"{first} [{count} more, line {others}{dots}]")
        merged.where, merged.instead = first.where, first.instead
        raise merged


def line_of(node: yaml.Node) -> int:
    """Line of a node, from 1."""
    return int(node.start_mark.line) + 1


def compose(path: Path, problems: Problems, opened: BinaryIO | None = None) -> yaml.Node | None:
    """The file's only document, or None when it is empty. UsageError when it cannot be read.

    `opened` is the file where the caller has opened it already.
    """
    text = _read(path, opened)
    stray = yaml.reader.Reader.NON_PRINTABLE.search(text)
    if stray is not None:
        line = text.count("\n", 0, stray.start()) + 1
        what = f"a control character ({stray[0]!r})"
        raise UsageError(what, where=problems.where(line), instead="remove it")
    try:
        _check_shape(text, problems)
        node: yaml.Node | None = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(text, error, problems) from None
    except yaml.YAMLError as error:
        raise UsageError(_one_line(str(error)), where=str(path)) from None
    return node


def _read(path: Path, opened: BinaryIO | None) -> str:
    try:
        with opened or path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot read it: {error.strerror}", where=str(path)) from None
    if len(data) > MAX_BYTES:
        raise UsageError(f"larger than {MAX_BYTES // 1_000_000} MB", where=str(path))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        byte = f"byte 0x{data[error.start]:02x} is not UTF-8"
        raise UsageError(byte, where=f"{path}:{line}", instead="save it as UTF-8") from None


def _check_shape(text: str, problems: Problems) -> None:
    depth = aliases = documents = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.AliasEvent):
            aliases += 1
        elif isinstance(event, yaml.DocumentStartEvent):
            documents += 1
        line = event.start_mark.line + 1 if event.start_mark else 1
        if depth > MAX_DEPTH or aliases > MAX_ALIASES or documents > 1:
            what = "nested too deeply" if depth > MAX_DEPTH else "too many aliases"
            what = "a second document begins here" if documents > 1 else what
            raise UsageError(what, where=problems.where(line), instead="one plain mapping, please")


def _syntax_error(text: str, error: yaml.MarkedYAMLError, problems: Problems) -> UsageError:
    mark = error.problem_mark or error.context_mark
    if error.context_mark and "flow" in str(error.context):
        mark = error.context_mark  # where the bracket opens, not where the file ends
    line = mark.line + 1 if mark else 1
    lines = text.splitlines()
    for number, content in enumerate(lines[:line], 1):
        if "\t" in content[: len(content) - len(content.lstrip())]:
            return UsageError(
                "a tab in the indentation", where=problems.where(number), instead="use spaces"
            )
    here = lines[line - 1] if line <= len(lines) else ""
    what = _one_line(error.problem or error.context or "not valid YAML")
    instead = "check the indentation and the colons"
    if re.search(r"\[[^\]]*\[|\{[^}]*\[", here):
        instead = 'put host expressions inside [...] or {...} in quotes: ["gpu[001-064]"]'
    elif re.search(r"\[[^\]]*$", here):
        instead = "close the bracket, or quote the text"
    return UsageError(what, where=problems.where(line), instead=instead)


def _one_line(text: str) -> str:
    return _CONTROL.sub(" ", text)[:200]


def kind(node: yaml.Node) -> str:
    """What a value is, in words: "a list", "yes/no" ..."""
    return _KINDS.get(node.tag.removeprefix(_TAG), f"{node.tag!r}")


def items(node: yaml.Node, what: str, problems: Problems) -> Iterator[tuple[yaml.Node, yaml.Node]]:
    """Keys and values of a mapping; wrong types and repeated keys are remembered as problems."""
    if not isinstance(node, yaml.MappingNode):
        problems.add(node, f"{what} must be a mapping, not {kind(node)}", "write `key: value`")
        return
    seen: dict[str, int] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            problems.add(key, f"a key in {what} is {kind(key)}", "keys are plain text")
            continue
        if key.value in seen:
            before = seen[key.value]
            again = f"key {key.value!r} in {what} again; first on line {before}"
            problems.add(key, again, "keep one of them")
            continue
        seen[key.value] = line_of(key)
        yield key, value


def text(node: yaml.Node, what: str, problems: Problems) -> str | None:
    """A non-empty text of one line; numbers count as text, yes/no and nothing do not."""
    strange = node.tag.removeprefix(_TAG) not in _KINDS  # "!!python/..." is no name
    if not isinstance(node, yaml.ScalarNode) or strange or node.tag in _NO_TEXT:
        quoted = f"quote it: '{node.value}'" if node.tag == _TAG + "bool" else "write one word"
        problems.add(node, f"{what} must be text, not {kind(node)}", quoted)
        return None
    if "\n" in node.value.strip():
        problems.add(node, f"{what} spans several lines", "write a list, one `- entry` a line")
        return None
    if not node.value.strip() or _CONTROL.search(node.value):
        empty = "is empty" if not node.value.strip() else "has control characters"
        problems.add(node, f"{what} {empty}")
        return None
    return str(node.value).strip()


def number(node: yaml.Node, what: str, low: int, high: int, problems: Problems) -> int | None:
    """A whole decimal number from `low` to `high`."""
    raw = node.value if isinstance(node, yaml.ScalarNode) else ""
    if re.fullmatch(r"[0-9]{1,9}", raw) and low <= int(raw) <= high:
        return int(raw)
    shown = repr(raw) if raw else kind(node)
    problems.add(node, f"{what} is {shown}", f"a whole number from {low} to {high}")
    return None


def truth(node: yaml.Node, what: str, problems: Problems) -> bool:
    """true or false."""
    if node.tag == _TAG + "bool":
        return str(node.value).lower() in ("true", "yes", "on")
    problems.add(node, f"{what} must be true or false, not {kind(node)}")
    return False


def words(node: yaml.Node, what: str, problems: Problems) -> tuple[yaml.Node, ...]:
    """The entries of a list; a single scalar counts as a list of one."""
    if isinstance(node, yaml.SequenceNode):
        return tuple(node.value)
    if isinstance(node, yaml.ScalarNode):
        return (node,)
    problems.add(node, f"{what} must be text or a list, not {kind(node)}")
    return ()
