"""The commands that act on nodes or tell what was done: registered by console.cli."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from console.options import HOSTS, JSON, Number, Request, evicting, eviction, with_request
from inventory.errors import UsageError


@click.command()
@click.argument("nodes_expression", metavar="HOSTS", shell_complete=HOSTS)
@with_request
@click.option("--reason", required=True, help="Why; shown by the scheduler to everybody.")
@click.option("--yes", is_flag=True, help="Do it without asking.")
@click.option("--dry-run", is_flag=True, help="Show the plan and stop.")
@click.option(
    "--override", is_flag=True, help="Also nodes drained by others; their reason is kept in ours."
)
@click.option("--count", type=int, metavar="N", help="Number of nodes, needed above the cap.")
@click.option(
    "--no-evidence",
    "evidence",
    flag_value=False,
    default=True,
    help="Take no evidence bundle first.",
)
@click.option(
    "--wait",
    "wait_s",
    type=Number(1, 604800),
    metavar="S",
    help="Then wait up to S for their jobs to end.",
)
@eviction
@JSON
def drain(request: Request, /, nodes_expression: str, **options: Any) -> None:
    """Take nodes out of work; running jobs end by themselves."""
    from console.headless_act import act

    sys.exit(act(request, "drain", nodes_expression, **evicting(options)))


@click.command()
@click.argument("nodes_expression", metavar="HOSTS", shell_complete=HOSTS)
@with_request
@click.option("--reason", default="", metavar="TEXT", help="For the audit file.")
@click.option("--yes", is_flag=True, help="Do it without asking.")
@click.option("--dry-run", is_flag=True, help="Show the plan and stop.")
@click.option("--override", is_flag=True, help="Also nodes that others drained.")
@click.option(
    "--despite-findings", is_flag=True, help="Also nodes that a fresh pass finds sick or silent."
)
@click.option("--count", type=int, metavar="N", help="Number of nodes, needed above the cap.")
@JSON
def resume(request: Request, /, nodes_expression: str, **options: Any) -> None:
    """Give nodes that we drained back to work, after a fresh pass over them."""
    from console.headless_act import act

    sys.exit(act(request, "resume", nodes_expression, **options))


@click.command()
@click.argument("nodes_expression", metavar="HOSTS", shell_complete=HOSTS)
@with_request
@click.option(
    "-o",
    "into",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where to put it [our state directory].",
)
@click.option("--why", default="", metavar="TEXT", help="Noted in the bundle.")
@click.option("--bug-report", is_flag=True, help="Also run nvidia-bug-report.sh there (minutes).")
@JSON
def evidence(request: Request, /, nodes_expression: str, **options: Any) -> None:
    """Gather what a repair needs from each node into one tar.gz, secrets struck out."""
    from console.headless_evidence import run

    sys.exit(run(request, nodes_expression, **options))


@click.command()
@click.argument("nodes", default="", metavar="[HOSTS]", shell_complete=HOSTS)
@click.option("--verify", is_flag=True, help="Check that no line was changed, added or removed.")
@click.option("--file", "path", type=click.Path(path_type=Path), help="Another audit file.")
@click.option("--demo", is_flag=True, help="What was done to the embedded cluster.")
@JSON
@click.pass_context
def audit(
    context: click.Context,
    /,
    nodes: str,
    verify: bool,
    path: Path | None,
    demo: bool,
    as_json: bool,
) -> None:
    """What was drained and resumed from here, by whom, when, and with which outcome."""
    from console.audit_read import run
    from console.settings import demo_dir, state_dir

    root: Request = context.find_object(Request) or Request({})
    folder = demo_dir() if demo or root.get("demo") else state_dir()
    sys.exit(run(path or folder / "audit.jsonl", nodes=nodes, verify=verify, json=as_json))


class Size(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.3 on
    """MIN[:MAX] in bytes with K, M or G, which are powers of two as in nccl-tests."""

    name = "size"
    FORM = re.compile(r"(\d{1,15})([KMG]?)(?::(\d{1,15})([KMG]?))?", re.IGNORECASE)

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> tuple[int, int]:
        """(smallest, largest). Raises click.BadParameter."""
        found = self.FORM.fullmatch(str(value))
        if found is None:
            self.fail(f"{value!r} is no size; write 8M, or 8M:4G", parameter, context)
        low, unit, high, high_unit = found.groups()
        smallest = _bytes(low, unit)
        return smallest, smallest if high is None else _bytes(high, high_unit)


def _bytes(number: str, unit: str) -> int:
    return int(number) << {"": 0, "K": 10, "M": 20, "G": 30}[unit.upper()]


_TEST = (
    click.option(
        "--level",
        type=click.Choice(["gpu", "node", "pairs", "rails", "cluster"]),
        default="node",
        show_default=True,
        help="Each GPU alone, the GPUs of each node, pairs of nodes, one GPU of each, all.",
    ),
    click.option(
        "--scheme",
        type=click.Choice(["auto", "shift", "full"]),
        default="auto",
        help="Of pairs: random ones and then suspects, a sample of all, every pair.",
    ),
    click.option("--seed", type=click.IntRange(0, 2**31), metavar="N", help="Of random pairs."),
    click.option(
        "--limit", "limit_s", type=Number(5, 3600), metavar="S", help="Hard limit of one run [120]."
    ),
    click.option(
        "--total-limit", "total_s", type=Number(5, 86400), metavar="S", help="And of all together."
    ),
    click.option(
        "--i-own-these-nodes", "force", is_flag=True, help="Also busy or foreign nodes; no cap."
    ),
    click.option("--yes", is_flag=True, help="Disturb what runs there without asking."),
    click.option(
        "--engine",
        type=click.Choice(["auto", "nccl-tests", "torch"]),
        default="auto",
        help="Whose all-reduce.",
    ),
    click.option(
        "--launch",
        type=click.Choice(["ssh", "srun", "kubectl"]),
        default="ssh",
        help="Who starts it: our own sessions, Slurm, Kubernetes.",
    ),
    click.option("--reservation", default="", metavar="NAME", help="Slurm's; its nodes are ours."),
    click.option("--partition", default="", metavar="NAME", help="With --launch srun."),
    click.option("--mpi", default="", metavar="TYPE", help="With --launch srun, e.g. pmix."),
    click.option("--size", type=Size(), metavar="MIN[:MAX]", help="Of messages, e.g. 8M:4G."),
    click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Also a page."),
    click.option("--dry-run", is_flag=True, help="Show nodes, time and exact orders, and stop."),
    click.option("--print-manifest", "manifest", is_flag=True, help="Of --launch kubectl."),
    click.option("--resume", metavar="ID|last", help="Go on with an interrupted campaign."),
    click.option("--list", "listing", is_flag=True, help="The campaigns kept here."),
)


def _testing(function: Any) -> Any:
    for option in reversed(_TEST):
        function = option(function)
    return function


@click.command()
@click.argument("nodes_expression", default="", metavar="HOSTS", shell_complete=HOSTS)
@with_request
@_testing
@JSON
def test(request: Request, /, nodes_expression: str, **options: Any) -> None:
    """Test idle nodes: which is slow, by how much, and is it the node or the path."""
    from console import headless_test
    from console.active.ask import Asked
    from console.active.results import Level

    how = headless_test.How(
        json=options.pop("as_json"),
        **{name: options.pop(name) for name in ("yes", "html", "dry_run", "manifest")},
    )
    name, listing, size = options.pop("resume"), options.pop("listing"), options.pop("size")
    if listing:
        sys.exit(headless_test.listed(request, json=how.json))
    if name:
        if nodes_expression:
            raise UsageError("its nodes are those of the campaign", where="--resume")
        if given := _given({*options, "seed", "size"}):
            raise UsageError(f"{given} is that of the campaign", where="--resume")
        sys.exit(headless_test.go_on(request, name, how))
    if not nodes_expression:
        raise UsageError("no HOSTS", instead="e.g. gpuconsole test gpu[001-008]")
    low, high = size or (None, None)
    seed = options.pop("seed")
    asked = Asked(
        nodes=(), level=Level(options.pop("level")), min_bytes=low, max_bytes=high,
        seed=random.randrange(2**31) if seed is None else seed, **options,
    )  # fmt: skip
    sys.exit(headless_test.start(request, asked, nodes_expression, how))


def _given(names: Collection[str]) -> str:
    """The first of these options that is on the command line, as it is written there."""
    context = click.get_current_context()
    for option in context.command.params:
        told = context.get_parameter_source(option.name or "")
        if option.name in names and told is ParameterSource.COMMANDLINE:
            return option.opts[0]
    return ""


@click.command()
@with_request
@JSON
def drained(request: Request, /, as_json: bool) -> None:
    """Nodes out of work: whose decision, since when, and whether they are safe to work on."""
    from console.drained import run

    sys.exit(run(request, as_json=as_json))


COMMANDS = (drain, resume, drained, evidence, audit, test)
