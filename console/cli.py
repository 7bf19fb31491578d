"""The command line. Parsing imports no heavy library; each command imports what it needs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from console.options import JSON, Number, Request, common, with_request
from inventory.errors import ConsoleError, UsageError

MESSAGE_CHARS = 2000
"""Longest message of ours; it may quote what a program or a file said."""


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@common
@JSON
@click.option(
    "--fail-on",
    type=click.Choice(["warn", "critical", "unknown"]),
    help="Exit 0 below this severity.",
)
@click.option("--no-mouse", is_flag=True, help="Leave the mouse to the terminal.")
@click.version_option(package_name="gpuconsole")
@click.pass_context
def cli(
    context: click.Context, /, as_json: bool, fail_on: str | None, no_mouse: bool, **options: Any
) -> None:
    """Which GPU nodes are sick, which are slow, why, and what to do.

    Without a command: the live console; with --json one pass over all nodes and one document.
    """
    request = Request(options)
    context.obj = request
    if context.invoked_subcommand is not None:
        return
    if as_json:
        from console.headless import one_pass

        sys.exit(one_pass(request, fail_on))
    _need_terminal()
    from console.screen import run_screen

    sys.exit(run_screen(request, mouse=not no_mouse))


def _need_terminal() -> None:
    # Textual draws on stderr.
    if not (sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()):
        raise UsageError("the console needs a terminal", instead="use --json for pipes and cron")
    if os.environ.get("TERM", "dumb") in ("dumb", ""):
        raise UsageError("TERM=dumb cannot show the console", instead="set TERM, or use --json")


@cli.command()
@with_request
@click.option("--json", "as_json", is_flag=True, required=True, help="NDJSON of Events on stdout.")
def watch(request: Request, /, as_json: bool) -> None:
    """Endless NDJSON of Events, findings included."""
    from console.headless import watch as run

    sys.exit(run(request))


@cli.command()
@click.argument("file", type=click.Path(path_type=Path))
@with_request
@JSON
@click.option("--speed", type=Number(0.01, 10_000), default=1.0, help="1 is as recorded.")
def replay(request: Request, /, file: Path, as_json: bool, speed: float) -> None:
    """Judge a recording again: the console, or with --json its final document."""
    from console import recording

    if as_json:
        sys.exit(recording.judge_file(request, file))
    _need_terminal()
    from console.screen import replay_screen

    sys.exit(replay_screen(request, file, speed))


@cli.command()
@click.argument("nodes_expression", metavar="HOSTS")
@with_request
@click.option("--reason", required=True, help="Why; shown by the scheduler to everybody.")
@click.option("--yes", is_flag=True, help="Do it without asking.")
@click.option("--dry-run", is_flag=True, help="Show the plan and stop.")
@click.option(
    "--override", is_flag=True, help="Also nodes drained by others; their reason is kept in ours."
)
@click.option("--count", type=int, metavar="N", help="Number of nodes, needed above the cap.")
@JSON
def drain(request: Request, /, nodes_expression: str, **options: Any) -> None:
    """Take nodes out of work; running jobs end by themselves."""
    from console.headless_act import act

    sys.exit(act(request, "drain", nodes_expression, **options))


@cli.command()
@click.argument("nodes_expression", metavar="HOSTS")
@with_request
@click.option("--reason", default="", help="For the audit file.")
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


@cli.command()
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


@cli.command()
@click.argument("topic", default="")
@click.option("--rules", type=click.Path(path_type=Path), metavar="FILE", help="Overlay of limits.")
def explain(topic: str, rules: Path | None) -> None:
    """What a rule id, xid:79 or nvml:15 means and who says so; empty lists all; also: sources."""
    from console.output import Stdout
    from probes.checks import explain as text
    from probes.rules import load_rules

    Stdout().write(f"{text(topic, load_rules(rules))}\n".encode())


@cli.command(name="inventory")
@with_request
@JSON
def show_inventory(request: Request, /, as_json: bool) -> None:
    """The nodes this command line means, and where they come from."""
    from console.headless import show_inventory as run

    sys.exit(run(request, as_json))


@cli.command()
@with_request
def doctor(request: Request, /) -> None:
    """What is missing here, and what would make the answers better."""
    from console.doctor import run

    sys.exit(run(request))


@cli.command()
def schema() -> None:
    """JSON Schema of the document and of the Events."""
    from console.output import Stdout, as_json
    from console.output import schema as of_everything

    Stdout().write(as_json(of_everything(), indent=True))


def main() -> NoReturn:
    """Entry point: one line for the operator's mistakes, one line and a log path for ours."""
    _fill_closed_streams()
    try:
        cli.main(standalone_mode=False)
    except (click.exceptions.Abort, KeyboardInterrupt):
        _leave("interrupted", 130)
    except click.exceptions.Exit as exit_:
        sys.exit(exit_.exit_code)
    except click.ClickException as error:
        _leave(error.format_message(), 64)
    except UsageError as error:
        _leave(str(error), 64)
    except ConsoleError as error:
        _leave(str(error), 3)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(0)
    except Exception as error:  # noqa: BLE001 - the last line of defence writes a log and exits 70
        _leave(_logged(error), 70)
    sys.exit(0)


def _fill_closed_streams() -> None:
    """Started with `>&-` a stream is None, and the next file opened would become stdout."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - for good


def _leave(text: str, code: int) -> NoReturn:
    from probes.sanitise import clean

    click.echo(f"gpuconsole: {clean(text, MESSAGE_CHARS)}", err=True)
    sys.exit(code)


def _logged(error: Exception) -> str:
    import traceback

    from console.settings import log_path, private

    what = f"internal error: {type(error).__name__}: {error}"
    path = log_path()
    try:
        private(path.parent)
        with path.open("a", encoding="utf-8") as log:
            traceback.print_exception(error, file=log)
    except OSError as unwritable:
        traceback.print_exception(error)
        return f"{what} (details above: {path}: {unwritable.strerror})"
    return f"{what} (details in {path})"


if __name__ == "__main__":
    main()
