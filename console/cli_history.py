"""`gpuconsole history`: what is remembered of a node."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path

import click

from console.options import HOSTS, JSON, Number, Request
from inventory.errors import UsageError

NODES_MOST = 10_000


@click.command()
@click.argument("nodes_expression", metavar="HOSTS", shell_complete=HOSTS)
@click.option(
    "--days",
    type=Number(0.01, 400),
    default=28.0,
    show_default=True,
    metavar="N",
    help="How far back to look.",
)
@click.option(
    "-i",
    "--inventory",
    "source",
    metavar="FILE|slurm:|k8s:|ssh:|local:",
    help="Whose nodes are known although nothing is recorded of them.",
)
@click.option("--demo", is_flag=True, help="What is remembered of the embedded cluster.")
@JSON
@click.pass_context
def history(
    context: click.Context,
    /,
    nodes_expression: str,
    days: float,
    source: str | None,
    demo: bool,
    as_json: bool,
) -> None:
    """Lemon score, findings, drains, boots, tests and trends of a node, from our own records."""
    from console.memory.memory import NAME
    from console.settings import demo_dir, state_dir

    root: Request = context.find_object(Request) or Request({})
    request = root.over({"source": source, "demo": demo})
    folder = demo_dir() if request.get("demo") else state_dir()
    sys.exit(
        run(folder / NAME, nodes_expression, days, json=as_json, named=_inventory_names(request))
    )


def _inventory_names(request: Request) -> list[str]:
    """Nodes of the inventory on the command line; [] when there is none."""
    if request.get("demo"):
        from console.demo.scenario import load, resized

        scenario, count = load(request.get("scenario")), request.get("nodes")
        return list((resized(scenario, count) if count else scenario).nodes)
    if not request.get("source"):
        return []
    import asyncio

    from console.launch import inventory_for

    return [node.name for node in asyncio.run(inventory_for(request)).nodes]


def run(
    path: Path, expression: str, days: float, *, json: bool, named: Collection[str] = ()
) -> int:
    """Print it; exit 0 also when nothing is recorded of a node in `named`, 3 where the file cannot
    be read: then nothing is said of any node. UsageError for a wrong expression, and for a node
    that neither the memory nor `named` knows."""
    from console.memory import read, store
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
                if named:
                    _refuse_missing(set(names).difference(named), list(named), "in the inventory")
            else:
                with contextlib.closing(db), db:
                    missing = {n for n in names if n not in named and not read.is_known(db, n)}
                    if missing:
                        _refuse_missing(missing, [*read.names(db), *named], "in the memory")
                    told = histories(db, names, days, now)
    except store.Unusable as error:
        note, code, told = f"{error}; what it holds is not known", Exit.UNKNOWN, []
    document = History(schema=SCHEMA, at=now, days=days, nodes=told, note=note)
    if json:
        Stdout().write(as_json(document, indent=sys.stdout.isatty()))
    else:
        Stdout().text(_text(document))
    return code


def _refuse_missing(missing: Collection[str], known: Sequence[str], where: str) -> None:
    """A name that nobody has is a slip of the pen, not a node without faults."""
    if not missing:
        return
    from inventory.expressions import natural_key
    from inventory.nearest import nearest

    first = min(missing, key=natural_key)
    more = f" and {len(missing) - 1} more of these" if len(missing) > 1 else ""
    hint = nearest(first, dict.fromkeys(known)) or "nothing is recorded yet"
    raise UsageError(f"no node {first[:80]} {where}{more}", instead=hint)


def _text(document: object) -> str:
    from console.memory.history import History
    from console.memory.page import page
    from console.output import only_ascii

    assert isinstance(document, History)
    lines = [document.note] if document.note else []
    for one in document.nodes:
        lines += ["", *page(one, document.days, ascii_only=only_ascii())]
    return "\n".join(lines).lstrip("\n") + "\n"
