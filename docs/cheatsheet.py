"""The cheat sheet: one page to print or to keep open beside the console."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from console.tui.commands import COMMANDS, EVERY, NODES, TABLES, Command
from console.tui.views import VIEW_IDS

NAME = "cheatsheet.md"
TASKS = (
    ("Find the sick node", "`n`"),
    ("See why", "`enter`"),
    ("Drain it", "`D` `y`"),
    ("Give it back", "`U` `y` (`U` `I` `y` while it is still sick)"),
    ("Who is slow", "`3`"),
    ("Which job suffers", "`6`"),
    ("Copy the host list of all that are not ok", "`ctrl-z` `*` `y`"),
    ("What is out of work", "`8`"),
    ("Test an idle node", "`T` `y`"),
)
SHELL = (
    ("gpuconsole --demo --tour", "a guided tour of two minutes"),
    ("gpuconsole --json", "one pass, one document, for cron"),
    ("gpuconsole explain xid:79", "what it means and who says so"),
    ("gpuconsole diagnose ticket.txt", "read pasted logs with the same checks"),
    ("gpuconsole drained", "what is out of work, safe to work on or not"),
    ("gpuconsole history gpu017", "what we remember of a node"),
    ("gpuconsole doctor", "what is missing on this machine"),
)


def sheet() -> str:
    """The whole sheet, as Markdown."""
    groups: dict[str, list[Command]] = {}
    for command in COMMANDS:
        groups.setdefault(command.group, []).append(command)
    lines = ["# gpuconsole on one page", "", *_table("To", "press", TASKS)]
    for group, members in groups.items():
        lines += ["", f"## {group}", ""]
        lines += _table("Key", "what it does", [(f"`{c.shown}`", _told(c)) for c in members])
    lines += ["", "## In the shell", ""]
    lines += _table("Command", "what it does", [(f"`{c}`", what) for c, what in SHELL])
    return "\n".join(lines) + "\n"


def keys() -> str:
    """All keys in one table, for the README."""
    return "\n".join(_table("Key", "What it does", [(f"`{c.shown}`", _told(c)) for c in COMMANDS]))


_MANY = {frozenset(names) for names in (EVERY, NODES, TABLES, VIEW_IDS)}
"""Sets of screens that are most of them: nothing is said of where."""


def _told(command: Command) -> str:
    """What it does and, where that is in a few screens only, in which."""
    if frozenset(command.screens) in _MANY or len(command.screens) > 5:
        return command.help
    return f"{command.help.strip().rstrip('.')} ({', '.join(command.screens)})"


def _table(left: str, right: str, rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    yield f"| {left} | {right} |"
    yield "| --- | --- |"
    for first, second in rows:
        # A bar ends a cell, also inside code.
        first, second = (text.replace("|", "\\|") for text in (first, second.strip().rstrip(".")))
        yield f"| {first} | {second} |"
