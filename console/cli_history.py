"""`gpuconsole history`: what is remembered of a node."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from console.options import JSON, Number, Request

NODES_MOST = 10_000


@click.command()
@click.argument("nodes_expression", metavar="HOSTS")
@click.option(
    "--days", type=Number(0.01, 400), default=28.0, show_default=True, help="How far back to look."
)
@click.option("--demo", is_flag=True, help="What is remembered of the embedded cluster.")
@JSON
@click.pass_context
def history(
    context: click.Context, /, nodes_expression: str, days: float, demo: bool, as_json: bool
) -> None:
    """Lemon score, findings, drains, boots, tests and trends of a node, from our own records."""
    from console.memory.memory import NAME
    from console.settings import demo_dir, state_dir

    root: Request = context.find_object(Request) or Request({})
    folder = demo_dir() if demo or root.get("demo") else state_dir()
    sys.exit(run(folder / NAME, nodes_expression, days, json=as_json))


def run(path: Path, expression: str, days: float, *, json: bool) -> int:
    """Print it; exit 0 also when nothing is known, 3 where the file cannot be read: then nothing
    is said of any node. UsageError for a wrong expression."""
    from console.memory import store
    from console.memory.history import History, histories, unknown
    from console.output import Exit, Stdout, as_json
    from inventory.expressions import expand
    from probes.event import SCHEMA

    names = expand(expression)[:NODES_MOST]
    now, note, code = time.time(), "", Exit.OK
    told = [unknown(name, days, now) for name in names]
    try:
        with store.translated(path):
            db = store.for_reading(path)
            if db is None:
                note = f"nothing is recorded yet: there is no {path}"
            else:
                with db:
                    told = histories(db, names, days, now)
                db.close()
    except store.Unusable as error:
        note, code, told = f"{error}; what it holds is not known", Exit.UNKNOWN, []
    document = History(schema=SCHEMA, at=now, days=days, nodes=told, note=note)
    if json:
        Stdout().write(as_json(document, indent=sys.stdout.isatty()))
    else:
        Stdout().write(_text(document))
    return code


def _text(document: object) -> bytes:
    from console.memory.history import History
    from console.memory.page import page

    assert isinstance(document, History)
    plain = (sys.stdout.encoding or "ascii").lower().replace("-", "") != "utf8"
    lines = [document.note] if document.note else []
    for one in document.nodes:
        lines += ["", *page(one, document.days, ascii_only=plain)]
    return ("\n".join(lines).lstrip("\n") + "\n").encode()
