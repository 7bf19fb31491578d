"""One pass and the endless stream: the Fleet without a screen."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from typing import TYPE_CHECKING

from msgspec import structs

from console import units
from console.launch import engine_for, inventory_for, narrate, run_async
from console.output import Stdout, as_json, as_ndjson, document, exit_code
from console.written import say
from inventory.expressions import fold
from probes.event import Event, Severity

if TYPE_CHECKING:
    from console.options import Request
    from console.policy import Automatic
    from inventory.node import Inventory

TICK_S = 1.0


def one_pass(
    request: Request, fail_on: str | None, *, drain_on: str | None = None, dry_run: bool = False
) -> int:
    """`gpuconsole --json`: ask every node once, write one document, return the exit code."""
    return run_async(
        _one_pass(request, Severity(fail_on) if fail_on else None, drain_on is not None, dry_run)
    )


async def _one_pass(
    request: Request, fail_on: Severity | None, automatic: bool, dry_run: bool
) -> int:
    started = time.time()
    limits = _limits() if automatic else None
    async with engine_for(request, one_pass=True) as engine:
        await engine.one_pass()
        engine.fleet.tick()
        report = document(engine.fleet, started, time.time())
        if limits is not None:
            from console.headless_auto import drain_sick

            did = await drain_sick(engine, limits, dry_run=dry_run)
            report = structs.replace(report, automatic=did)
            say(f"gpuconsole: {did.summary}")
    counts = ", ".join(f"{number} {name}" for name, number in report.counts.items() if number)
    narrate(f"{units.counted(len(report.nodes), 'node')} in {report.duration_s:.1f} s: {counts}")
    Stdout().write(as_json(report, indent=sys.stdout.isatty()))
    return exit_code(report.verdict, fail_on)


def _limits() -> Automatic:
    """Looked up before a node is asked: without a policy nothing is done at all."""
    from console import policy
    from console.headless_auto import caps

    return caps(policy.load())


def watch(request: Request) -> int:
    """`gpuconsole watch --json`: every Event and every new finding, until interrupted."""
    return run_async(_watch(request))


async def _watch(request: Request) -> int:
    out = Stdout()
    pending: list[Event] = []
    async with engine_for(request) as engine:
        engine.taps.append(pending.append)
        engine.fleet.taps.append(pending.append)
        task = asyncio.ensure_future(engine.run())
        try:
            while not out.closed and not task.done():
                await asyncio.wait([task], timeout=TICK_S)
                engine.fleet.tick(budget_s=TICK_S / 4)
                out.write(as_ndjson(pending))
                pending.clear()
        finally:
            # A recording holds everything up to the moment it was interrupted.
            seen = as_ndjson(pending)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            out.write(seen)
    return 0


async def _inventory(request: Request) -> Inventory:
    if request.get("demo"):
        async with engine_for(request) as engine:
            return engine.inventory
    return await inventory_for(request)


def show_inventory(request: Request, json: bool) -> int:
    """`gpuconsole inventory`: one line per group, or the whole inventory as JSON."""
    inventory = asyncio.run(_inventory(request))
    if json:
        Stdout().write(as_json(inventory, indent=sys.stdout.isatty()))
        return 0
    groups: dict[str, list[str]] = {}
    for node in inventory.nodes:
        groups.setdefault(node.group, []).append(node.name)
    whence = inventory.source or "the command line"
    lines = [f"{units.counted(len(inventory.nodes), 'node')} from {whence}"]
    lines += [f"  {group}: {fold(names)} ({len(names)})" for group, names in groups.items()]
    Stdout().text("\n".join(lines) + "\n")
    return 0
