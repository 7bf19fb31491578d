"""What a line at the prompt may become: command words, their arguments, filter fields. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct

from console.tui.commandline import ALIASES, WITH_TEXT
from console.tui.filter import KINDS, NUMBERS, WORDS
from console.tui.palettes import THEMES
from probes.event import NodeState, Severity

MOST = 50
"""Candidates of one line."""


class World(Struct, frozen=True, kw_only=True):
    """What there is to name, in this view."""

    words: Sequence[str]
    """Commands, as typed after `:`."""
    nodes: Sequence[str] = ()
    orders: Sequence[str] = ()
    labels: Sequence[str] = ()
    """Names of labels in the inventory."""
    rules: Callable[[], Iterable[str]] = tuple
    """Topics of `explain`."""
    values: Callable[[str], Iterable[str]] = lambda _field: ()
    """Values of a word field, of all nodes now."""


def command(line: str, world: World) -> list[str]:
    """Whole lines that a `:` line may become, the likeliest first."""
    word, space, text = line.partition(" ")
    if not space:
        found = sorted((w for w in world.words if w.startswith(word)), key=lambda w: (len(w), w))
        return [f"{w} " if w.replace("-", "_") in WITH_TEXT else w for w in found][:MOST]
    name = ALIASES.get(word, word.replace("-", "_"))
    return [f"{word} {argument}" for argument in _arguments(name, text, world)][:MOST]


def _arguments(name: str, text: str, world: World) -> Iterable[str]:
    match name:
        case "copy":
            from console.tui.copying import FORMATS

            return _beginning(text, FORMATS)
        case "screenshot":
            from console.tui.shots import FORMS

            return _beginning(text, FORMS)
        case "open" | "ssh" | "kernel_log":
            return _beginning(text, world.nodes)
        case "theme":
            return _beginning(text, THEMES)
        case "sort":
            return _beginning(text, world.orders)
        case "metric":
            from console.tui.views.gpu_metrics import BY_NAME

            return _beginning(text, BY_NAME)
        case "explain":
            return _beginning(text, world.rules())
        case "mark":
            return [*_beginning(text, ("all", "none")), *filtering(text, world)]
        case "filter":
            return filtering(text, world)
    return ()


def _beginning(text: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(text) and name != text]


def filtering(line: str, world: World) -> list[str]:
    """Whole filters that a `/` line may become: its last term completed."""
    kept, last = _split(line)
    sign = "!" if last.startswith("!") else ""
    term = last.removeprefix("!")
    return [f"{kept}{sign}{found}" for found in _terms(term, world)][:MOST]


def _split(line: str) -> tuple[str, str]:
    """What stands before the last term, and that term; spaces in quotes divide nothing."""
    quoted = False
    start = 0
    for at, char in enumerate(line):
        quoted ^= char == '"'
        if char == " " and not quoted:
            start = at + 1
    return line[:start], line[start:]


def _terms(term: str, world: World) -> Iterator[str]:
    field, colon, value = term.partition(":")
    if not colon:
        if term:
            yield from _beginning(term, (f"{name}:" for name in WORDS))
            yield from _beginning(term, (f"{name}>" for name in NUMBERS))
            yield from _beginning(term, (f"label.{name}:" for name in world.labels))
        return
    before, comma, last = value.rpartition(",")
    for found in _beginning(last.lower(), _values(field.lower(), world)):
        yield f"{field}:{before}{comma}{_quoted(found)}"


def _values(field: str, world: World) -> Iterable[str]:
    if field == "is":
        return KINDS
    if field == "state":
        states = (*(s.value for s in Severity), *(s.value for s in NodeState))
        return dict.fromkeys((*states, *world.values("sched")))
    return sorted({value for value in world.values(field) if value})


def _quoted(value: str) -> str:
    return f'"{value}"' if " " in value else value
