"""The commands that act on nodes or tell what was done: registered by console.cli."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from console.options import JSON, Number, Request, evicting, eviction, with_request


@click.command()
@click.argument("nodes_expression", metavar="HOSTS")
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
@click.argument("nodes_expression", metavar="HOSTS")
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
@click.argument("nodes_expression", metavar="HOSTS")
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
@click.argument("nodes", default="", metavar="[HOSTS]")
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


@click.command()
@click.argument("nodes_expression", metavar="HOSTS")
@with_request
@click.option(
    "--level",
    type=click.Choice(["node"]),
    default="node",
    show_default=True,
    help="node: all-reduce over the GPUs of each node.",
)
@click.option("--i-own-these-nodes", "force", is_flag=True, help="Also nodes that look busy.")
@click.option(
    "--limit",
    "limit_s",
    type=Number(5, 3600),
    default=120.0,
    show_default=True,
    metavar="S",
    help="Hard time limit of one node's test.",
)
@JSON
def test(request: Request, /, nodes_expression: str, level: str, **options: Any) -> None:
    """Run an NCCL (or gloo) all-reduce on idle nodes and show the bus bandwidth."""
    from console.headless_test import run

    sys.exit(run(request, nodes_expression, **options))


@click.command()
@with_request
@JSON
def drained(request: Request, /, as_json: bool) -> None:
    """Nodes out of work: whose decision, since when, and whether they are safe to work on."""
    from console.drained import run

    sys.exit(run(request, as_json=as_json))


COMMANDS = (drain, resume, drained, evidence, audit, test)
