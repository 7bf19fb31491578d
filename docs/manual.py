"""The manual page, from the command line's own declarations. man(7) macros, plain ASCII."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Collection, Iterator
from importlib.metadata import version

import click

from console.cli import cli
from console.tui.commands import COMMANDS

NAME = "gpuconsole.1"
DATE = "2026-11-30"
"""Of the page's last hand-written word, not of the day it was built."""
WIDTH = 76
"""Of a line of the page; mandoc asks for less than 80."""
_TO_ASCII = str.maketrans({"–": "-", "…": "...", "·": ".", "×": "x", "→": "->", "≥": ">=", "°": ""})

EXIT = (
    ("0", "ok or info"),
    ("1", "warn"),
    ("2", "critical"),
    ("3", "unknown or partial, or a scheduler that does not answer"),
    ("64", "wrong input; nothing was done"),
    ("70", "a fault of this program; the line names the log"),
    ("129", "the terminal went away"),
    ("130", "interrupted"),
)
FILES = (
    ("~/.config/gpuconsole/inventory.yaml", "which nodes; else /etc/gpuconsole/inventory.yaml"),
    ("~/.config/gpuconsole/console.yaml", "how the screen looks and which keys it has"),
    ("/etc/gpuconsole/policy.yaml", "who may drain what, and what may be drained unattended"),
    ("~/.local/state/gpuconsole/audit.jsonl", "who drained and resumed what; hash-chained"),
    ("~/.local/state/gpuconsole/memory.sqlite", "baselines and history of nodes"),
)
ENVIRONMENT = (
    ("NO_COLOR", "when set, no colour is sent"),
    ("TERM, COLORTERM", "how many colours the terminal has"),
    ("LANG, LC_ALL", "the character set, and the language: English or Chinese"),
    ("SLURM_CONF, KUBECONFIG", "used by scontrol and kubectl as always"),
    ("SSH_AUTH_SOCK", "the agent that logs in; it is never forwarded"),
)
EXAMPLES = (
    ("gpuconsole --demo --tour", "sixteen simulated nodes, and a guided tour"),
    ("gpuconsole -i slurm:", "the nodes that Slurm names"),
    ("gpuconsole --json --fail-on critical", "one pass for cron"),
    ("gpuconsole drain 'gpu[003,017]' --reason 'Xid 79' --dry-run", "the plan of a drain"),
    ("gpuconsole explain xid:79", "what an Xid means, and who says so"),
)


def page() -> str:
    """The whole page."""
    lines = [
        '.\\" Made by python -m docs from the program itself.',
        f'.TH GPUCONSOLE 1 {DATE} "gpuconsole {version("gpuconsole")}" "User Commands"',
        ".SH NAME",
        "gpuconsole \\- which GPU nodes are sick, which are slow, why, and what to do",
        ".SH SYNOPSIS",
        ".B gpuconsole",
        _text("[OPTIONS] [COMMAND] [ARGUMENTS]"),
        ".SH DESCRIPTION",
        *_paragraphs(cli.help or ""),
        ".SH OPTIONS",
        *_options(cli),
        ".SH COMMANDS",
    ]
    for name in sorted(cli.commands):
        lines += _command(name, cli.commands[name])
    lines += [".SH KEYS"]
    for command in COMMANDS:
        lines += _entry(command.shown, command.help)
    for title, entries in (
        ("EXIT STATUS", EXIT), ("FILES", FILES), ("ENVIRONMENT", ENVIRONMENT),
        ("EXAMPLES", EXAMPLES),
    ):  # fmt: skip
        lines += [f".SH {title}", *(line for entry in entries for line in _entry(*entry))]
    lines += [".SH SEE ALSO", ".BR ssh_config (5),", ".BR scontrol (1),", ".BR nvidia\\-smi (1)"]
    return "\n".join(lines) + "\n"


def _command(name: str, command: click.Command) -> Iterator[str]:
    arguments = [
        p.make_metavar(_context()) for p in command.params if isinstance(p, click.Argument)
    ]
    yield f".SS {_text(' '.join((name, *arguments)))}"
    yield from _paragraphs(command.help or "")
    common = {option for parameter in cli.params for option in parameter.opts}
    yield from _options(command, without=common)


def _context() -> click.Context:
    return click.Context(cli, info_name="gpuconsole")


def _options(command: click.Command, without: Collection[str] = ()) -> Iterator[str]:
    """Options, without those that the program itself takes before the command."""
    for parameter in command.params:
        record = parameter.get_help_record(_context())
        if record is not None and not set(parameter.opts) & set(without):
            yield from _entry(*record)


def _entry(term: str, what: str) -> list[str]:
    return [".TP", f".B {_text(term)}", *_filled(what)]


def _paragraphs(text: str) -> Iterator[str]:
    """Docstrings as click shows them: a blank line begins a paragraph."""
    for number, part in enumerate(inspect.cleandoc(text).split("\n\n")):
        if number:
            yield ".PP"
        yield from _filled(part)


def _filled(text: str) -> Iterator[str]:
    """Lines that no macro is in; roff fills them again."""
    for line in textwrap.wrap(_text(" ".join(text.split())), WIDTH, break_on_hyphens=False):
        # A line that begins with one of these would be a macro.
        yield f"\\&{line}" if line.startswith((".", "'")) else line


def _text(text: str) -> str:
    """Text without an escape or a quote that roff would read."""
    plain = text.translate(_TO_ASCII).replace("\\", "\\e").replace("-", "\\-")
    assert plain.isascii(), text
    return plain.replace('"', "\\(dq")
