"""Work in pieces: a generator that pauses after each, so that a screen can answer keys between."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

_T = TypeVar("_T")


def at_once(pieces: Generator[None, None, _T]) -> _T:
    """All of it without a pause; its result."""
    while True:
        try:
            next(pieces)
        except StopIteration as done:
            found: _T = done.value
            return found
