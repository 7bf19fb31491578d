"""Every reader takes hostile input: no exception, bounded time, nothing but printable text."""

# ruff: noqa: E501 - pasted output is as wide as its program prints it

from __future__ import annotations

import random
import re
import string
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from console.diagnose import detect, render
from console.diagnose.report import sanitised
from console.diagnose.text import of
from console.output import as_json
from tests.diagnose.support import DATA, ticket

QUICK = settings(
    max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), database=None
)
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202e]")
READERS = detect.readers()
JUNK = [
    "\x1b[31m", "\x00", "\x07", "\u202e", "\t", "N/A", "-1", "1e999", "nan", "9" * 40, "0x", "[", "]",
    "{", "}", "|", ",", ":", "=", "%", "#", "\r", "\ud800", "é", "\x9b2J", "None", '"', "\\",
]  # fmt: skip


@cache
def inputs() -> tuple[str, ...]:
    """The inputs of all field cases."""
    files = [*DATA.glob("*.txt"), *(p for p in DATA.glob("*.json") if p.name != "index.json")]
    return tuple(p.read_text(encoding="utf-8") for p in sorted(files))


def mutate(text: str, seed: int) -> str:
    """Lines cut, doubled, swapped, mixed with another input's; bytes replaced by junk."""
    rng = random.Random(seed)
    lines = text.splitlines()
    other = rng.choice(inputs()).splitlines()
    for _ in range(rng.randint(1, 12)):
        if not lines:
            break
        at = rng.randrange(len(lines))
        what = rng.randrange(7)
        if what == 0:
            del lines[at]
        elif what == 1:
            lines[at] = lines[at][: rng.randint(0, len(lines[at]))]
        elif what == 2:
            lines.insert(at, rng.choice(other))
        elif what == 3:
            cut = rng.randint(0, len(lines[at]))
            lines[at] = lines[at][:cut] + rng.choice(JUNK) + lines[at][cut:]
        elif what == 4:
            lines[at] = re.sub(r"\d+", lambda m: rng.choice([m[0], "9" * 25, "-", ""]), lines[at])
        elif what == 5:
            lines = lines[: at + 1]
        else:
            lines[at] = "".join(rng.choice(string.printable) for _ in range(rng.randint(0, 80)))
    return "\n".join(lines)


def texts(value: Any) -> Iterator[str]:
    """Every text of a document."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from texts(key)
            yield from texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from texts(one)


def check(raw: str) -> None:
    diagnosis = ticket(raw.encode("utf-8", "surrogatepass"))
    document = msgspec.json.decode(as_json(diagnosis, indent=False))
    assert not [text for text in texts(document) if CONTROL.search(text)]
    shown = "\n".join(render.lines(diagnosis, render.Style(colour=False, unicode=True)))
    assert not CONTROL.search(shown)


@pytest.mark.parametrize("number", range(len(inputs())))
@given(seed=st.integers(0, 1 << 30))
@QUICK
def test_mutated_cases_through_the_whole_command(number: int, seed: int) -> None:
    check(mutate(inputs()[number], seed))


@pytest.mark.parametrize("reader", READERS, ids=lambda r: r.__name__.rpartition(".")[2])
@given(seed=st.integers(0, 1 << 30))
@QUICK
def test_each_reader_takes_what_is_not_its_own(reader: detect.Reader, seed: int) -> None:
    rng = random.Random(seed)
    raw = mutate(rng.choice(inputs()), seed)
    assert 0 <= reader.sniff(raw) <= 100
    report = sanitised(reader.read(of(raw, "fuzz")))
    assert not [text for text in texts(msgspec.to_builtins(report)) if CONTROL.search(text)]
    assert report.verdict in {"ok", "info", "warn", "critical", "unknown"}


@given(raw=st.binary(max_size=4096))
@QUICK
def test_random_bytes(raw: bytes) -> None:
    diagnosis = ticket(raw)
    document = msgspec.json.decode(as_json(diagnosis, indent=False))
    assert not [text for text in texts(document) if CONTROL.search(text)]


@pytest.mark.parametrize("reader", READERS, ids=lambda r: r.__name__.rpartition(".")[2])
@pytest.mark.parametrize(
    "raw",
    [
        "", "\n", "{", "[" * 20_000, '{"a":' * 20_000, "a" * 200_000, "<" * 50_000, "|" * 50_000,
        '{"items": ' + "[" * 3000 + "]" * 3000 + "}", "x: &a [*a, *a]\n" * 100,
        "\n".join("9" * 300 for _ in range(200)), " ".join("1" for _ in range(50_000)),
        "0 0 0 " * 20_000, "a=" * 50_000, "(((" * 30_000, "via " * 40_000, "Rank 1 " * 40_000,
        " " * 60_000, "- " * 40_000, "1:" * 40_000, "a, " * 40_000, "\n" * 60_000, "]" * 60_000,
    ],
    ids=range(23),
)  # fmt: skip
@pytest.mark.timeout(250)
def test_bombs(reader: detect.Reader, raw: str) -> None:
    """Nesting, width and patterns that invite backtracking end within the limit."""
    reader.sniff(raw[:65536])
    sanitised(reader.read(of(raw, "bomb")))


@pytest.mark.parametrize("reader", READERS, ids=lambda r: r.__name__.rpartition(".")[2])
@given(seed=st.integers(0, 1 << 30))
@settings(QUICK, max_examples=6)
@pytest.mark.timeout(500)
def test_one_phrase_over_and_over(reader: detect.Reader, seed: int) -> None:
    """The words that a pattern waits for, thousands of times in one line: no quadratic patterns."""
    rng = random.Random(seed)
    line = rng.choice([line for line in rng.choice(inputs()).splitlines() if line.strip()] or ["x"])
    phrase = line.strip()[: rng.choice([6, 12, 40])]
    raw = phrase * (40_000 // len(phrase))
    reader.sniff(raw)
    sanitised(reader.read(of(raw, "phrase")))
