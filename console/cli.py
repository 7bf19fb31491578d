"""The command line. Parsing imports no heavy library; each command imports what it needs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from console.cli_act import COMMANDS
from console.cli_history import history
from console.options import JSON, THEMES, Number, Request, common, offers, with_request
from inventory.errors import ConsoleError, UsageError

KINDS = (
    "kernel-log, nccl-tests, nccl-debug, nvidia-smi, nvlink, topo, nvml, ib-tools, ib-sysfs, "
    "slurm, kubernetes, drain, host, ssh-transport, ssh-config, inventory, evidence"
)
"""Of `diagnose`; written out, as --help loads no reader."""
MESSAGE_CHARS = 2000
"""Longest message of ours; it may quote what a program or a file said."""


THEME = click.option("--theme", type=click.Choice(THEMES), help="Instead of the one you prefer.")


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@common
@JSON
@click.option(
    "--fail-on",
    type=click.Choice(["warn", "critical", "unknown"]),
    help="Exit 0 below this severity.",
)
@click.option(
    "--drain-on",
    type=click.Choice(["critical"]),
    help="With --json: drain nodes with hardware faults, as the policy file allows.",
)
@click.option("--dry-run", is_flag=True, help="With --drain-on: only say what would be drained.")
@click.option("--no-mouse", is_flag=True, help="Leave the mouse to the terminal.")
@THEME
@click.option(
    "--record",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write a recording for `replay`: a new file, packed if it ends in .gz.",
)
@click.option(
    "--record-max", type=Number(1, 1_000_000), metavar="MIB", help="Where it stops [1024]."
)
@click.option("--tour", is_flag=True, help="With --demo: a guided tour of two minutes.")
@click.version_option(package_name="gpuconsole")
@click.pass_context
def cli(
    context: click.Context,
    /,
    as_json: bool,
    fail_on: str | None,
    drain_on: str | None,
    dry_run: bool,
    no_mouse: bool,
    theme: str | None,
    tour: bool,
    **options: Any,
) -> None:
    """Which GPU nodes are sick, which are slow, why, and what to do.

    Without a command: the live console; with --json one pass over all nodes and one document.
    """
    request = Request(options)
    context.obj = request
    _check_json(context.invoked_subcommand, as_json, fail_on, drain_on, dry_run)
    alone = context.invoked_subcommand is None
    _check_screen(alone and not as_json, no_mouse=no_mouse, theme=theme, tour=tour)
    if request.get("record") and not alone and context.invoked_subcommand != "watch":
        raise UsageError("is for the console, --json and watch", where="--record")
    if tour and not request.get("demo"):
        raise UsageError(
            "drains a node, so it is for the demo", where="--tour", instead="add --demo"
        )
    if not alone:
        return
    if as_json:
        from console.headless import one_pass

        sys.exit(one_pass(request, fail_on, drain_on=drain_on, dry_run=dry_run))
    _need_terminal()
    from console import firstrun

    request, tour = firstrun.chosen(request, tour=tour)
    from console.screen import run_screen

    sys.exit(run_screen(request, mouse=not no_mouse, tour=tour, theme=theme))


def _check_json(
    command: str | None, as_json: bool, fail_on: str | None, drain_on: str | None, dry_run: bool
) -> None:
    """What would be left out in silence is said instead."""
    if command is not None and as_json:
        raise UsageError(
            f"belongs behind {command}", where="--json", instead=f"gpuconsole {command} --json"
        )
    if dry_run and not drain_on:
        raise UsageError("is for --drain-on", where="--dry-run")
    for name, given in (("--fail-on", fail_on), ("--drain-on", drain_on)):
        if given and not as_json:
            raise UsageError("is for --json", where=name)


def _check_screen(screen: bool, **given: object) -> None:
    for name, value in given.items():
        if value and not screen:
            raise UsageError("is for the console alone", where=f"--{name.replace('_', '-')}")


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
@click.option(
    "--at", metavar="TIME", help="Begin there, e.g. 03:12 from the start, @14:03, 50%, end."
)
@click.option("--no-mouse", is_flag=True, help="Leave the mouse to the terminal.")
@THEME
def replay(
    request: Request,
    /,
    file: Path,
    as_json: bool,
    speed: float,
    at: str | None,
    no_mouse: bool,
    theme: str | None,
) -> None:
    """Judge a recording again: the console, or with --json the document of its end or --at.

    In the console: . and , one second on and back, > and < 10 seconds, + and - the speed, p pause,
    :seek TIME.
    """
    if as_json:
        from console.recording.judge import judge_file

        sys.exit(judge_file(request, file, at))
    _need_terminal()
    from console.screen import replay_screen

    sys.exit(replay_screen(request, file, speed, at, mouse=not no_mouse, theme=theme))


@cli.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...|-")
@click.option("--as", "kind", metavar="KIND", help=f"Read it as: {KINDS}.")
@click.option("--rules", type=click.Path(path_type=Path), metavar="FILE", help="Overlay of limits.")
@JSON
def diagnose(files: tuple[str, ...], kind: str | None, rules: Path | None, as_json: bool) -> None:
    """What pasted text means: kernel logs, nccl-tests, nvidia-smi, InfiniBand tools, Slurm ...

    Formats are told by their shape; several in one file are read one by one. "-" is stdin.
    """
    from console.diagnose.command import run

    sys.exit(run(files, kind, json=as_json, rules=rules))


@cli.command()
@click.argument("topic", default="", shell_complete=offers("topics"))
@click.option("--rules", type=click.Path(path_type=Path), metavar="FILE", help="Overlay of limits.")
def explain(topic: str, rules: Path | None) -> None:
    """What a rule id, xid:79 or nvml:15 means and who says so; empty lists all.

    Also: lemon, how that score is counted; test, what its levels are; sources.
    """
    from console.diagnose.detect import paper_rules
    from console.output import Stdout
    from console.topics import pages
    from probes.checks import RULES
    from probes.checks.explain import explain as text
    from probes.rules import load_rules

    registry = (*RULES, *paper_rules())
    Stdout().text(f"{text(topic, registry, load_rules(rules), pages())}\n")


@cli.command(name="inventory")
@with_request
@JSON
def show_inventory(request: Request, /, as_json: bool) -> None:
    """The nodes this command line means, and where they come from."""
    from console.headless import show_inventory as run

    sys.exit(run(request, as_json))


@cli.command()
@with_request
@click.option("--learn", is_flag=True, help="Ask the nodes; propose an overlay for --rules.")
@click.option(
    "-o", "output", type=click.Path(path_type=Path), metavar="FILE", help="A new file for it."
)
def doctor(request: Request, /, learn: bool, output: Path | None) -> None:
    """What is missing here, and what would make the answers better."""
    if learn:
        from console import learn as learning

        sys.exit(learning.run(request, output))
    if output is not None:
        raise UsageError("only a proposal is written to a file", where="-o", instead="add --learn")
    from console.doctor import run

    sys.exit(run(request))


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """A script for tab completion, e.g. in ~/.bashrc: eval "$(gpuconsole completion bash)"."""
    from console.completion import script
    from console.output import Stdout

    Stdout().write(f"{script(shell, cli)}\n".encode())


@cli.command()
def schema() -> None:
    """JSON Schema of the document and of the Events."""
    from console.output import Stdout, as_json
    from console.output import schema as of_everything

    Stdout().write(as_json(of_everything(), indent=True))


for _command in (*COMMANDS, history):
    cli.add_command(_command)


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
        _leave(_with_hint(error), 64)
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


def _with_hint(error: click.ClickException) -> str:
    """What click says, and what to write instead where it does not tell."""
    said = error.format_message()
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None or "Did you mean" in said or "is not" in said:
        return said
    if "unexpected extra argument" in said and any(
        p.metavar == "HOSTS" for p in context.command.params
    ):
        return f"{said}; several HOSTS are one word: gpu005,gpu006 or 'gpu[005-006]'"
    return f"{said.removesuffix('.')}; `{context.command_path} --help` lists what it takes"


def _leave(text: str, code: int) -> NoReturn:
    from console.written import say
    from probes.sanitise import clean

    say(f"gpuconsole: {clean(text, MESSAGE_CHARS)}")
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
