"""The newest kernel lines of a node, of every family some: a flood must not push out an Xid."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from probes.event import Row

if TYPE_CHECKING:
    from probes.kernel_lines import KernelEvent

FAMILIES = (
    re.compile(r"Bus Error|\bAER\b|error status/mask|: +\[ ?\d{1,2}\] [A-Z]"),
    re.compile(r"NVRM|SXid"),
    re.compile(r"mlx5|NETDEV|\befa\b|rdmap|ixgbe|\bice\b|Link"),
    re.compile(r"nfs|Lustre|LNet|nvme|I/O error|EXT4|XFS"),
    re.compile(r"Hardware Error|EDAC|mce"),
)
"""What floods, apart from each other; the rest is one more family."""


class KernelRing:
    """Rows in the order they came, at most so many; the largest family gives way."""

    __slots__ = ("_families", "_held", "_most", "_number", "told")

    def __init__(self, most: int) -> None:
        self._most = most
        self._families: tuple[deque[tuple[int, Row]], ...] = tuple(
            deque() for _ in range(len(FAMILIES) + 1)
        )
        self._held = 0
        self._number = 0
        self.told: tuple[float, list[KernelEvent]] | None = None
        """What a reader made of these lines and with which gap; forgotten when they change."""

    def copy(self) -> KernelRing:
        """The same rows, apart from then on."""
        other = KernelRing(self._most)
        other._families = tuple(family.copy() for family in self._families)
        other._held, other._number, other.told = self._held, self._number, self.told
        return other

    def extend(self, rows: Iterable[Row]) -> None:
        """Take in new rows."""
        self.told = None
        for row in rows:
            self._families[_family(str(row.get("text", "")))].append((self._number, row))
            self._number += 1
            self._held += 1
            if self._held > self._most:
                max(self._families, key=len).popleft()
                self._held -= 1

    def clear(self) -> None:
        """Forget all: another agent tells them anew."""
        self.told = None
        for family in self._families:
            family.clear()
        self._held = 0

    def __iter__(self) -> Iterator[Row]:
        """Oldest first."""
        numbered = sorted((pair for family in self._families for pair in family), key=_place)
        return (row for _, row in numbered)

    def __len__(self) -> int:
        return self._held


def _place(pair: tuple[int, Row]) -> int:
    return pair[0]


def _family(text: str) -> int:
    for number, words in enumerate(FAMILIES):
        if words.search(text):
            return number
    return len(FAMILIES)
