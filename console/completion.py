"""What the shell offers after tab: hosts and groups of the inventory file, topics of `explain`.

Never the network and never a scheduler: tab must answer at once, also when those do not. Whatever
goes wrong, nothing is offered and nothing is said: a line half typed is no place for an error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

if TYPE_CHECKING:
    from inventory.node import Inventory

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_GPUCONSOLE_COMPLETE"
"""click's: set by the script when the shell asks."""
MOST = 500
"""Offered at once; a shell asks before it lists more than a hundred."""

Offer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def script(shell: str, cli: click.Command) -> str:
    """The text that the shell evaluates."""
    found = get_completion_class(shell)
    assert found is not None
    made = found(cli, {}, "gpuconsole", VARIABLE)
    # Not made.source(): it starts this machine's bash to look at its version first.
    return made.source_template % made.source_vars()


def _quiet(names: Callable[[click.Context, str], Iterable[str]]) -> Offer:
    def offered(
        context: click.Context, parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        try:
            begun = [name for name in names(context, incomplete) if name.startswith(incomplete)]
        except Exception:  # noqa: BLE001 - an error message here would break the line being typed
            return []
        return [CompletionItem(name) for name in begun[:MOST]]

    return offered


def _inventory(context: click.Context) -> Inventory | None:
    """The file that the command line means; None where nodes come from elsewhere."""
    from inventory.hosts import load
    from inventory.source import default_file

    here: click.Context | None = context
    while here is not None:
        if source := here.params.get("source"):
            return None if str(source).endswith(":") else load(Path(source))
        here = here.parent
    path = default_file()
    return load(path) if path else None


def _hosts(context: click.Context, incomplete: str) -> list[str]:
    """The last name of a list joined by commas; brackets are left to the operator."""
    found = _inventory(context)
    before, comma, _ = incomplete.rpartition(",")
    if comma and os.environ.get(VARIABLE, "").startswith("fish"):
        # click's script for fish cuts what is offered at a comma.
        return []
    return [f"{before}{comma}{node.name}" for node in found.nodes] if found else []


def _groups(context: click.Context, incomplete: str) -> list[str]:
    found = _inventory(context)
    return sorted({node.group for node in found.nodes}) if found else []


def _topics(context: click.Context, incomplete: str) -> list[str]:
    from console.diagnose.detect import paper_rules
    from console.topics import pages
    from probes.checks import RULES

    rules = [rule.id for rule in (*RULES, *paper_rules())]
    return sorted({*rules, *pages(), "sources"})


hosts = _quiet(_hosts)
groups = _quiet(_groups)
topics = _quiet(_topics)
