"""Which reader understands a text: told by its shape, never by the name of the file."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from typing import Protocol, cast

from msgspec import Struct

from console.diagnose.report import Report
from console.diagnose.text import HEAD_BYTES, Text
from inventory.errors import UsageError
from inventory.nearest import nearest
from probes.rule import Rule

MODULES = (
    "evidence", "kernel_log", "nccl_tests", "nccl_json", "nccl_pairs",
    "nccl_debug", "nvidia_smi", "nvlink",
    "topo", "nvml_json", "ib_tools", "ib_sysfs", "slurm", "kubernetes", "drain_output", "host",
    "ssh_text", "ssh_config_text", "hostlist",
)  # fmt: skip
"""The one registration. Of two readers that are equally sure the first one reads."""
LEAST = 20
"""A sniff below this is a guess that nobody should act on."""


class Reader(Protocol):
    """What a module of this folder has to offer."""

    KIND: str
    TITLE: str
    STREAMS: bool

    def sniff(self, head: str) -> int:
        """0 to 100: how sure that this text is of its kind."""
        ...

    def read(self, text: Text) -> Report:
        """Facts and findings; never raises for what the text holds."""
        ...


class Guess(Struct, frozen=True):
    """A reader and how sure it is."""

    reader: Reader
    score: int


@functools.cache
def readers() -> tuple[Reader, ...]:
    """Every reader that is there."""
    names = [f"{__package__}.{name}" for name in MODULES]
    there = [name for name in names if importlib.util.find_spec(name) is not None]
    return tuple(cast("Reader", importlib.import_module(name)) for name in there)


@functools.cache
def paper_rules() -> tuple[Rule, ...]:
    """Rules that exist on paper only, for `explain`."""
    seen: dict[str, Rule] = {}
    for reader in readers():
        for rule in getattr(reader, "RULES", ()):
            seen.setdefault(rule.id, rule)
    return tuple(seen.values())


def kinds() -> dict[str, str]:
    """Kind -> what it reads, in order."""
    titles: dict[str, list[str]] = {}
    for reader in readers():
        titles.setdefault(reader.KIND, []).append(reader.TITLE)
    return {kind: ", ".join(dict.fromkeys(parts)) for kind, parts in titles.items()}


def best(head: str, kind: str = "") -> Guess | None:
    """The reader that is surest of this beginning of a text; None when nobody is.

    `kind` forces one: then its surest reader is taken however unsure it is.
    """
    head = head[:HEAD_BYTES]
    guesses = [
        Guess(reader, _score(reader, head))
        for reader in readers()
        if kind in ("", reader.KIND)
    ]  # fmt: skip
    guess = max(guesses, key=lambda g: g.score, default=None)
    if guess is None or (not kind and guess.score < LEAST):
        return None
    return guess


def _score(reader: Reader, head: str) -> int:
    return max(0, min(100, reader.sniff(head)))


def known_kind(kind: str) -> str:
    """The kind as registered. Raises UsageError with the nearest one."""
    names = kinds()
    if kind in names:
        return kind
    raise UsageError(f"unknown kind {kind!r}", where="--as", instead=nearest(kind, names))
