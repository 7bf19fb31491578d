"""The filter language: `state:crit node~^gpu0[0-4] temp:80..90 !job:812 | label.rack:r7`. Pure.

Terms are separated by spaces and must all hold; ` | ` begins another group, and one group that
holds is enough. `field:a,b` holds for any of the values, `field~expression` for a regular
expression, `field>n` and `field:low..high` compare a number, a bare word is looked for in the row's
text, `!` turns a term around, quotes keep spaces together. A reading that is unknown satisfies no
comparison, so `temp>85` and `temp<=85` both leave it out.

Regular expressions are Python's, whatever they say: a grammar that excluded the slow ones would
exclude useful ones too, and `.*a.*b` may be slow. Whoever applies a filter bounds the time instead
(see budget.py).
"""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Callable, Mapping
from fnmatch import translate
from typing import Protocol

from console.tui.words import t
from inventory.errors import UsageError

NUMBERS = ("temp", "util", "power", "mem", "clock", "gpus", "age", "load", "findings")
"""Fields that compare: degrees C (hottest GPU), percent (mean), watts (sum), percent (fullest GPU),
MHz (slowest GPU), GPUs that answer, seconds since the last sample, load1, number of findings."""
WORDS = (
    "state", "node", "xid", "job", "user", "rule", "finding", "group", "sched", "status", "is",
    "marked",
)  # fmt: skip
"""Fields that match words. `state` looks at severity, scheduler state and conversation alike;
`label.NAME` is one more for each label of the inventory."""
KINDS = ("fault", "marked", "stale")
"""Values of `is`: not ok, marked, no current readings."""
MAX_CHARS = 400
"""Longest filter; what people type has 10 to 60."""
UNITS: Mapping[str, Mapping[str, float]] = {
    "temp": {"c": 1},
    "util": {"%": 1},
    "mem": {"%": 1},
    "power": {"w": 1, "kw": 1000},
    "clock": {"mhz": 1, "ghz": 1000},
    "age": {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400},
}
"""Unit -> factor, lower case; without a unit the factor is 1."""

_TERM = re.compile(r'(!?)((?:"[^"]*"|\S)+)')
_FIELD = re.compile(r"^([A-Za-z_]+(?:\.[\w./-]+)?)(:|>=|<=|>|<|=|~)(.*)$", re.DOTALL)
_NUMBER = re.compile(r"(-?\d+(?:\.\d+)?)([A-Za-z%]*)")
_SHORT = {"critical": ("crit",), "unknown": ("unkn",), "warn": ("warning",)}


class Subject(Protocol):
    """What a filter looks at: one node as the grid knows it."""

    @property
    def text(self) -> str:
        """Everything a bare word is searched in, lower case."""
        ...

    def words(self, field: str) -> tuple[str, ...]:
        """Values of a word field, lower case; () when there are none."""
        ...

    def number(self, field: str) -> float | None:
        """Value of a number field; None when unknown."""
        ...


Test = Callable[[Subject], bool]
Like = Callable[[str], bool]


class FilterError(UsageError):
    """The filter cannot be read; `at` is the 1-based column where it went wrong."""

    def __init__(self, what: str, at: int, instead: str = "") -> None:
        """One sentence with the position."""
        super().__init__(t("{what} at column {n}", what=what, n=at), instead=instead)
        self.at = at


class Filter:
    """A compiled filter. Empty text matches everything."""

    def __init__(self, text: str = "") -> None:
        """Raises FilterError for what cannot be read."""
        if len(text) > MAX_CHARS:
            raise FilterError(
                t("the filter is longer than {n} characters", n=MAX_CHARS), MAX_CHARS + 1
            )
        self.text = text.strip()
        self.searches = False
        """Whether a regular expression is in it: applying it may take any time."""
        self.reads_age = False
        """Whether it depends on the clock, not only on what the node said."""
        self._groups: list[list[Test]] = []
        self._read(text)

    def _read(self, text: str) -> None:
        group: list[Test] = []
        bar = 0
        for match in _TERM.finditer(text):
            if match.group() != "|":
                group.append(self._term(match))
                continue
            bar = match.start() + 1
            self._groups.append(_filled(group, bar))
            group = []
        if bar:
            _filled(group, bar)
        if group:
            self._groups.append(group)

    def __bool__(self) -> bool:
        """Whether anything is filtered at all."""
        return bool(self._groups)

    def __call__(self, subject: Subject) -> bool:
        """Whether every term of a group holds."""
        for group in self._groups:
            for test in group:
                if not test(subject):
                    break
            else:
                return True
        return not self._groups

    def _term(self, match: re.Match[str]) -> Test:
        negated, body, at = match.group(1), match.group(2), match.start(2) + 1
        if body.count('"') % 2:
            raise FilterError(t('the quote " is not closed'), at + body.index('"'))
        field = _FIELD.match(body)
        self.searches |= body.startswith("~") or bool(field and field.group(2) == "~")
        self.reads_age |= bool(field and field.group(1).lower() in ("age", "is"))
        test = _field(field, at) if field and body[0] not in '"~' else _bare(body, at)
        return (lambda subject: not test(subject)) if negated else test


def _filled(group: list[Test], at: int) -> list[Test]:
    if not group:
        raise FilterError(t("nothing beside the |"), at, t("write it between two groups of terms"))
    return group


def toggled(text: str, term: str) -> str:
    """`text` with a term added to every group, or without it where every group has it."""
    groups: list[list[str]] = [[]]
    for match in _TERM.finditer(text):
        if match.group() == "|":
            groups.append([])
        else:
            groups[-1].append(match.group())
    if all(term in group for group in groups):
        changed = [[word for word in group if word != term] for group in groups]
        # A group that said nothing else lets everything through, and so do all of them together.
        return "" if not all(changed) else " | ".join(" ".join(group) for group in changed)
    changed = [[term, *(word for word in group if word != term)] for group in groups]
    return " | ".join(" ".join(group) for group in changed)


def without_field(text: str) -> str:
    """`text` without a last word that may become the name of a field."""
    before, _, last = text.rpartition(" ")
    word = last.removeprefix("!").lower()
    names = (*NUMBERS, *WORDS, "label.")
    return before if word and any(name.startswith(word) for name in names) else text


def _bare(body: str, at: int) -> Test:
    if body.startswith("~"):
        search = _regex(_unquoted(body[1:]), at + 1)
        return lambda subject: search(subject.text)
    word = _unquoted(body).lower()
    if not word or word == "!":
        raise FilterError(t("there is nothing to look for"), at)
    return lambda subject: word in subject.text


def _field(match: re.Match[str], at: int) -> Test:
    name, operator, value = match.group(1).lower(), match.group(2), _unquoted(match.group(3))
    value_at = at + match.start(3)
    label = name.startswith("label.")
    if name not in NUMBERS and name not in WORDS and not label:
        raise FilterError(t("there is no field {name}", name=repr(name)), at, _nearest(name))
    if not value:
        raise FilterError(t("{name} needs a value", name=name), value_at)
    if name in NUMBERS:
        if operator == "~":
            raise FilterError(
                t("{name} is a number", name=name), value_at - 1, t("compare it: < > = or a..b")
            )
        return _numeric(name, "=" if operator == ":" else operator, value, value_at)
    if operator == "~":
        return _any(name, (_regex(value, value_at),))
    if operator not in (":", "="):
        raise FilterError(t("{name} is matched with a colon", name=name), value_at - len(operator))
    patterns = [part.lower() for part in value.split(",") if part]
    if name == "is":
        _check_kinds(patterns, value_at)
    return _any(name, tuple(_like("label" if label else name, pattern) for pattern in patterns))


def _check_kinds(patterns: list[str], at: int) -> None:
    for pattern in patterns:
        if pattern not in KINDS:
            raise FilterError(
                t("no node is {what}", what=repr(pattern)),
                at,
                t("one of {names}", names=" ".join(KINDS)),
            )


def _nearest(name: str) -> str:
    close = difflib.get_close_matches(name, (*NUMBERS, *WORDS, "label.NAME"), 1, 0.6)
    if close:
        return t("did you mean {word}?", word=close[0])
    return t("fields: {names}", names=" ".join((*WORDS, *NUMBERS, "label.NAME")))


def _unquoted(value: str) -> str:
    return value.replace('"', "")


def _regex(pattern: str, at: int) -> Like:
    if not pattern:
        raise FilterError(t("there is nothing to look for"), at)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = re.compile(pattern, re.IGNORECASE)
    except re.error as error:
        where = at + min(error.pos or 0, len(pattern))
        raise FilterError(t("the expression cannot be read: {why}", why=error.msg), where) from None
    except (RecursionError, OverflowError):
        raise FilterError(t("the expression is too large"), at) from None
    return lambda word: found.search(word) is not None


_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
    ">=": lambda a, b: a >= b,
    "<=": lambda a, b: a <= b,
    "=": lambda a, b: a == b,
}


def _numeric(name: str, operator: str, value: str, at: int) -> Test:
    low, dots, high = value.partition("..")
    if dots:
        if operator != "=":
            raise FilterError(
                t("a range follows a colon, not {sign}", sign=operator), at - len(operator)
            )
        return _range(name, low, high, at)
    limit, compare = _number(name, value, at), _COMPARE[operator]

    def test(subject: Subject) -> bool:
        reading = subject.number(name)
        return reading is not None and compare(reading, limit)

    return test


def _range(name: str, low: str, high: str, at: int) -> Test:
    """Both ends included; either may be left out, and the unit may stand at the end only."""
    end = _NUMBER.fullmatch(high)
    if end and re.fullmatch(r"-?[\d.]+", low):
        low += end.group(2)
    least = _number(name, low, at) if low else float("-inf")
    most = _number(name, high, at + len(low) + 2) if high else float("inf")
    if not low and not high:
        raise FilterError(t("{name} needs a value", name=name), at)
    if least > most:
        raise FilterError(t("the range is empty"), at, f"{name}:{high}..{low}")

    def test(subject: Subject) -> bool:
        reading = subject.number(name)
        return reading is not None and least <= reading <= most

    return test


def _number(name: str, value: str, at: int) -> float:
    match = _NUMBER.fullmatch(value)
    if match is None:
        told = t("{name} is compared with a number, not {what}", name=name, what=repr(value))
        raise FilterError(told, at)
    unit, units = match.group(2).lower(), UNITS.get(name, {})
    if unit and unit not in units:
        known = " ".join(units)
        instead = t("units: {names}", names=known) if known else t("it has no unit")
        raise FilterError(
            t("{name} is not in {unit}", name=name, unit=match.group(2)),
            at + match.start(2),
            instead,
        )
    return float(match.group(1)) * units.get(unit, 1)


def _any(name: str, likes: tuple[Like, ...]) -> Test:
    if len(likes) == 1:
        like = likes[0]
        return lambda subject: any(map(like, subject.words(name)))
    return lambda subject: any(like(word) for word in subject.words(name) for like in likes)


def _like(field: str, pattern: str) -> Like:
    """How a word field is compared with one value."""
    if any(char in pattern for char in "*?["):
        found = re.compile(translate(pattern))
        return lambda word: found.match(word) is not None
    if field in ("node", "finding"):
        return lambda word: pattern in word
    if field in ("xid", "job", "user", "group", "is", "label"):
        return lambda word: word == pattern
    return lambda word: (
        word.startswith(pattern) or any(short.startswith(pattern) for short in _SHORT.get(word, ()))
    )
