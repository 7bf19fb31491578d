"""Options that many commands share, before or after the command's name."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import click

from console.settings import Settings

P = ParamSpec("P")
R = TypeVar("R")


class Number(click.FloatRange):
    """A number in a range. FloatRange lets nan through: it is neither below nor above."""

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> float:
        """Raises click.BadParameter."""
        number: float = super().convert(value, parameter, context)
        if math.isnan(number):
            self.fail(f"{value} is not a number", parameter, context)
        return number


def offers(what: str) -> Callable[..., Any]:
    """`shell_complete` of an option or argument: hosts, groups or topics, looked up only then."""

    def ask(context: click.Context, parameter: click.Parameter, incomplete: str) -> Any:
        from console import completion

        return getattr(completion, what)(context, parameter, incomplete)

    return ask


HOSTS = offers("hosts")
WHERE = (
    click.option(
        "-i",
        "--inventory",
        "source",
        metavar="FILE|slurm:|k8s:|ssh:|local:",
        help="Which nodes exist: a file, a scheduler's, those of ssh_config, or this machine.",
    ),
    click.option(
        "-w",
        "hosts",
        metavar="HOSTS",
        shell_complete=HOSTS,
        help="Only these nodes, e.g. gpu[001-016].",
    ),
    click.option("-x", "exclude", metavar="HOSTS", shell_complete=HOSTS, help="Not these nodes."),
    click.option(
        "-g",
        "group",
        metavar="GROUP",
        shell_complete=offers("groups"),
        help="Only this group of the inventory.",
    ),
    click.option(
        "--demo", is_flag=True, help="The embedded cluster; needs nothing but this program."
    ),
    click.option(
        "--scenario",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Story of the demo instead of its own.",
    ),
    click.option(
        "--nodes", type=click.IntRange(1, 256), metavar="N", help="Nodes of the demo [16]."
    ),
)
HOW = (
    click.option(
        "--timeout",
        "timeout_s",
        type=Number(0.5, 600),
        metavar="S",
        help="For each node in one pass [12].",
    ),
    click.option(
        "--fanout", type=click.IntRange(1, 1024), metavar="N", help="SSH handshakes at a time [64]."
    ),
    click.option(
        "--window",
        "window_s",
        type=Number(0.05, 60),
        metavar="S",
        help="Between the two counter samples of a pass [1].",
    ),
    click.option(
        "--rules",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Overlay of limits and of what nodes should have.",
    ),
    click.option(
        "--read-only",
        is_flag=True,
        default=None,
        help="Refuse everything that changes the cluster.",
    ),
)
THEMES = ("auto", "dark", "light", "high-contrast", "colour-blind")
"""Names of console.tui.palettes, which no --help and no --json has to load."""
JSON = click.option("--json", "as_json", is_flag=True, help="Machine-readable on stdout.")


def common(function: Callable[P, R]) -> Callable[P, R]:
    """Options that choose nodes and how to ask them, before or after the command's name."""
    for option in reversed((*WHERE, *HOW)):
        function = option(function)
    return function


_EVICTION = (
    click.option("--evict", is_flag=True, help="Kubernetes: also evict the pods; jobs are lost."),
    click.option("--evict-local-data", is_flag=True, help="Also pods with emptyDir data."),
    click.option("--evict-unmanaged", is_flag=True, help="Also pods that no controller restarts."),
    click.option(
        "--evict-grace", type=click.IntRange(0, 86400), metavar="S", help="Instead of each pod's."
    ),
    click.option(
        "--evict-deadline",
        type=Number(1, 86400),
        default=300.0,
        show_default=True,
        metavar="S",
        help="How long a disruption budget is waited for.",
    ),
)


def eviction(function: Callable[P, R]) -> Callable[P, R]:
    """Options of a drain that evicts."""
    for option in reversed(_EVICTION):
        function = option(function)
    return function


def evicting(options: dict[str, Any]) -> dict[str, Any]:
    """The options with the eviction as one value; UsageError for one of them without --evict."""
    from inventory.errors import UsageError

    names = {
        "evict_local_data": "local_data", "evict_unmanaged": "unmanaged",
        "evict_grace": "grace_s", "evict_deadline": "deadline_s",
    }  # fmt: skip
    wish = {new: options.pop(old) for old, new in names.items()}
    if not options.pop("evict"):
        for old, new in names.items():
            if wish[new] and new != "deadline_s":
                raise UsageError("needs --evict", where=f"--{old.replace('_', '-')}")
        return {**options, "evict": None}
    from inventory.kube_evict import Eviction

    return {**options, "evict": Eviction(**wish)}


class Request:
    """The common options, root's first, the command's on top."""

    def __init__(self, options: dict[str, Any]) -> None:
        """`options` are click's parameters; None and False mean not typed."""
        self.options = {k: v for k, v in options.items() if v not in (None, False)}

    def over(self, options: dict[str, Any]) -> Request:
        """The same with the options typed after the command's name on top."""
        return Request({**self.options, **Request(options).options})

    def get(self, name: str) -> Any:
        """The option's value, None when it was not typed."""
        return self.options.get(name)

    def settings(self) -> Settings:
        """Flags over defaults."""
        names = Settings.__struct_fields__
        return Settings(**{k: v for k, v in self.options.items() if k in names})


def with_request(function: Callable[..., R]) -> Callable[..., R]:
    """Give the command a Request made of root's and its own common options."""

    @common
    @click.pass_context
    @functools.wraps(function)
    def wrapper(context: click.Context, /, **parameters: Any) -> R:
        names = {option.name for option in _parameters(context.command)}
        own = {k: parameters.pop(k) for k in list(parameters) if k in COMMON and k in names}
        root: Request = context.find_object(Request) or Request({})
        return function(root.over(own), **parameters)

    return wrapper


COMMON = frozenset(
    (
        "source",
        "hosts",
        "exclude",
        "group",
        "demo",
        "scenario",
        "nodes",
        "timeout_s",
        "fanout",
        "window_s",
        "rules",
        "read_only",
    )
)


def _parameters(command: click.Command) -> list[click.Parameter]:
    return command.params
