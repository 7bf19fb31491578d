"""The filter language: `state:crit node:gpu0* temp>85 !job:812 nvlink`. Pure.

Terms are separated by spaces and must all hold. `field:a,b` holds for any of the values, `field>n`
compares a number, a bare word is looked for in the row's text, `!` turns a term around, quotes keep
spaces together. A reading that is unknown satisfies no comparison, so `temp>85` and `temp<=85` both
leave it out.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Protocol

from inventory.errors import UsageError

NUMBERS = ("temp", "util", "power", "mem", "clock", "gpus", "age", "load", "findings")
"""Fields that compare: degrees C (hottest GPU), percent (mean), watts (sum), percent (fullest GPU),
MHz (slowest GPU), GPUs that answer, seconds since the last sample, load1, number of findings."""
WORDS = ("state", "node", "xid", "job", "user", "rule", "group", "sched", "status", "marked")
"""Fields that match words. `state` looks at severity, scheduler state and conversation alike."""

_TERM = re.compile(r'(!?)((?:"[^"]*"|\S)+)')
_FIELD = re.compile(r"^([A-Za-z_]+)(:|>=|<=|>|<|=)(.*)$", re.DOTALL)
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


class FilterError(UsageError):
    """The filter cannot be read; `at` is the 1-based column where it went wrong."""

    def __init__(self, what: str, at: int, instead: str = "") -> None:
        """One sentence with the position."""
        super().__init__(f"{what} at column {at}", instead=instead)
        self.at = at


class Filter:
    """A compiled filter. Empty text matches everything."""

    def __init__(self, text: str = "") -> None:
        """Raises FilterError for what cannot be read."""
        self.text = text.strip()
        self._tests = [_term(match) for match in _TERM.finditer(text)]

    def __bool__(self) -> bool:
        """Whether anything is filtered at all."""
        return bool(self._tests)

    def __call__(self, subject: Subject) -> bool:
        """Whether every term holds."""
        return all(test(subject) for test in self._tests)


def _term(match: re.Match[str]) -> Test:
    negated, body, at = match.group(1), match.group(2), match.start(2) + 1
    if body.count('"') % 2:
        raise FilterError('the quote " is not closed', at + body.index('"'))
    field = _FIELD.match(body)
    test = _field(field, at) if field and not body.startswith('"') else _bare(body, at)
    return (lambda subject: not test(subject)) if negated else test


def _bare(body: str, at: int) -> Test:
    word = _unquoted(body).lower()
    if not word or word == "!":
        raise FilterError("there is nothing to look for", at)
    return lambda subject: word in subject.text


def _field(match: re.Match[str], at: int) -> Test:
    name, operator, value = match.group(1).lower(), match.group(2), _unquoted(match.group(3))
    value_at = at + match.start(3)
    if name not in NUMBERS and name not in WORDS:
        raise FilterError(f"there is no field {name!r}", at, _nearest(name))
    if not value:
        raise FilterError(f"{name} needs a value", value_at)
    if name in NUMBERS:
        return _compare(name, "=" if operator == ":" else operator, value, value_at)
    if operator not in (":", "="):
        raise FilterError(f"{name} is matched with a colon", value_at - len(operator))
    return _match(name, tuple(part.lower() for part in value.split(",") if part))


def _nearest(name: str) -> str:
    close = difflib.get_close_matches(name, (*NUMBERS, *WORDS), 1, 0.6)
    if close:
        return f"did you mean {close[0]}?"
    return "fields: " + " ".join((*WORDS, *NUMBERS))


def _unquoted(value: str) -> str:
    return value.replace('"', "")


_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
    ">=": lambda a, b: a >= b,
    "<=": lambda a, b: a <= b,
    "=": lambda a, b: a == b,
}


def _compare(name: str, operator: str, value: str, at: int) -> Test:
    digits = re.match(r"^(-?\d+(?:\.\d+)?)\s*[%A-Za-z]*$", value)
    if digits is None:
        raise FilterError(f"{name} is compared with a number, not {value!r}", at)
    limit, compare = float(digits.group(1)), _COMPARE[operator]

    def test(subject: Subject) -> bool:
        reading = subject.number(name)
        return reading is not None and compare(reading, limit)

    return test


def _match(name: str, patterns: tuple[str, ...]) -> Test:
    def test(subject: Subject) -> bool:
        words = subject.words(name)
        return any(_like(name, word, pattern) for word in words for pattern in patterns)

    return test


def _like(field: str, word: str, pattern: str) -> bool:
    if any(char in pattern for char in "*?["):
        return fnmatchcase(word, pattern)
    if field in ("xid", "job"):
        return word == pattern
    if field in ("node", "user", "group"):
        return word == pattern or (field == "node" and pattern in word)
    return word.startswith(pattern) or any(s.startswith(pattern) for s in _SHORT.get(word, ()))
