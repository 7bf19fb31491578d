"""What a view of rows tells its screen. Rows have keys; a row is about some nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol, runtime_checkable

from console.tui.text import Cell, Column, Line
from console.tui.theme import Glyphs
from console.tui.words import t
from inventory.errors import UsageError
from probes.event import Finding, Severity


class Table(Protocol):
    """A pure model over the Fleet. Drawing never reads the Fleet: a paused screen stays still."""

    @property
    def empty(self) -> str:
        """One sentence for a table without rows: what that means."""
        ...

    def update(self, names: Collection[str], now: float) -> None:
        """Take in nodes with news since the last call; the first call names all of them.

        Called once a second with thousands of names at most: a few microseconds a node.
        """
        ...

    def rows(self, shown: Sequence[str], now: float) -> list[str]:
        """Keys in order, of what concerns the nodes that the filter shows (natural order)."""
        ...

    def columns(self, width: int) -> list[Column]:
        """Columns for a grid `width` cells wide; kept or dropped whole (text.choose)."""
        ...

    def cells(self, key: str, columns: Sequence[Column], glyphs: Glyphs, now: float) -> list[Cell]:
        """One cell a column, each exactly as wide as its column (text.fit)."""
        ...

    def nodes(self, key: str) -> Sequence[str]:
        """Nodes that an action on the row is about; () when about none."""
        ...

    def severity(self, key: str) -> Severity:
        """For jumping between faults."""
        ...

    def findings(self, key: str) -> Sequence[Finding]:
        """What the row tells, worst first; acknowledging takes the first open one."""
        ...

    def why(self, key: str, glyphs: Glyphs, width: int) -> Line:
        """Cause and next step of the row, in one line."""
        ...

    def headline(self) -> str:
        """A few words for the status line, e.g. "5 kinds on 9 nodes"."""
        ...


@runtime_checkable
class Ordered(Table, Protocol):
    """A model with several orders."""

    @property
    def orders(self) -> Sequence[str]:
        """Their names, for `:sort`."""
        ...

    def sort_by(self, name: str = "") -> None:
        """The named order, or the next. Raises UsageError for an unknown one."""
        ...


def chosen_order(orders: Sequence[str], now: str, name: str) -> str:
    """The named order, or without a name the one after `now`. Raises UsageError."""
    if name:
        check_order(orders, name)
    return name or orders[(orders.index(now) + 1) % len(orders)]


def check_order(orders: Iterable[str], name: str) -> None:
    """Raises UsageError for a name that is none of the orders."""
    if name not in orders:
        raise UsageError(
            t("there is no order {name}", name=repr(name)),
            instead=t("one of {names}", names=" ".join(orders)),
        )
