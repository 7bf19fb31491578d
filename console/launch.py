"""From a command line to a ready Engine: real inventory or the embedded cluster."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Coroutine
from typing import TYPE_CHECKING, Any

from console import leaving
from console.engine import Engine
from console.fleet import Fleet
from console.output import Exit
from console.settings import demo_dir
from console.written import say
from inventory.errors import UsageError
from inventory.node import Inventory, Node
from probes.rules import load_rules

if TYPE_CHECKING:
    from console.options import Request


@contextlib.asynccontextmanager
async def engine_for(
    request: Request, *, one_pass: bool = False, only: str | None = None
) -> AsyncIterator[Engine]:
    """Yield an Engine whose cluster exists for the length of the block.

    `only` narrows the inventory to a host expression. Raises UsageError for wrong input.
    """
    settings = request.settings()
    rules = load_rules(request.get("rules"))
    if request.get("demo"):
        from console.demo.cluster import DemoCluster

        demo = DemoCluster(nodes=request.get("nodes"), scenario=request.get("scenario"))
        async with demo:
            inventory = _narrowed(demo.inventory, request, only)
            fleet = Fleet(inventory, rules, one_pass=one_pass)
            scheduler = demo.scheduler
            schedulers = {scheduler.name: scheduler}
            engine = Engine(
                inventory, settings, fleet=fleet, schedulers=schedulers, state=demo_dir()
            )
            async with engine.remembering(settled=one_pass):
                yield _recording(engine, request)
        return
    for name in ("scenario", "nodes"):
        if request.get(name):
            raise UsageError("only the demo has one", where=f"--{name}", instead="add --demo")
    inventory = _narrowed(await inventory_for(request), None, only)
    engine = Engine(inventory, settings, fleet=Fleet(inventory, rules, one_pass=one_pass))
    async with engine.remembering(settled=one_pass):
        yield _recording(engine, request)


def _recording(engine: Engine, request: Request) -> Engine:
    """The engine, writing the file of --record if there is one."""
    if path := request.get("record"):
        most_mib = request.get("record_max")
        engine.record(path, int(most_mib * (1 << 20)) if most_mib else None)
    elif request.get("record_max"):
        raise UsageError("is for --record FILE", where="--record-max")
    return engine


async def inventory_for(request: Request) -> Inventory:
    """The real inventory that the command line means."""
    from inventory.run import LocalRun
    from inventory.source import resolve

    return await resolve(
        request.get("source"),
        hosts=request.get("hosts"),
        exclude=request.get("exclude"),
        group=request.get("group"),
        run=LocalRun(),
    )


def _narrowed(inventory: Inventory, request: Request | None, only: str | None) -> Inventory:
    """Apply -w/-x/-g (demo only; real sources did it) and a command's own host expression."""
    import msgspec

    from inventory.expressions import expand

    nodes: tuple[Node, ...] = inventory.nodes
    for expression in (request.get("hosts") if request else None, only):
        if expression:
            nodes = chosen(nodes, expand(expression))
    if request and request.get("exclude"):
        gone = set(expand(request.get("exclude")))
        nodes = tuple(node for node in nodes if node.name not in gone)
    if request and request.get("group"):
        nodes = tuple(node for node in nodes if node.group == request.get("group"))
    if not nodes:
        raise UsageError("no node is left", instead="check -w, -x and -g")
    return msgspec.structs.replace(inventory, nodes=nodes)


def chosen(nodes: tuple[Node, ...], names: list[str]) -> tuple[Node, ...]:
    """These nodes of the inventory. Raises UsageError for a name that it does not have."""
    import difflib

    known = {node.name: node for node in nodes}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise UsageError(
                f"node {name} is not in the inventory",
                instead=f"did you mean {near[0]}?" if near else "`gpuconsole inventory` lists them",
            )
    wanted = set(names)
    return tuple(node for node in nodes if node.name in wanted)


def run_async(main: Coroutine[Any, Any, int]) -> int:
    """Run to the end with SIGTERM and SIGHUP cancelling it, so that agents are told to leave."""

    async def guarded() -> int:
        task = asyncio.current_task()
        assert task is not None
        with leaving.heard(asyncio.get_running_loop(), task.cancel):
            code = await main
        return Exit.INTERRUPTED if leaving.was_cut() else code

    try:
        with asyncio.Runner() as runner:
            return runner.run(guarded())
    except asyncio.CancelledError:
        return Exit.INTERRUPTED
    except BaseExceptionGroup as group:
        raise _first(group) from group


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def narrate(text: str) -> None:
    """One line on stderr when a person is looking."""
    if sys.stderr.isatty():
        say(text)
