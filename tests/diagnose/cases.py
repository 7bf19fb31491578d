"""Field cases by name, read as a ticket's text."""

from __future__ import annotations

from console.diagnose.command import Diagnosis
from tests.diagnose.support import demand, path, ticket


def case(name: str) -> Diagnosis:
    """A case's input, diagnosed as if it came from stdin."""
    return ticket(path(name).read_bytes())


def drain_begins(name: str) -> str:
    """First word of the drain advice that a case demands: "no", "now", "after"."""
    return str(demand(name)["drain"]).partition(" ")[0].rstrip(",")
