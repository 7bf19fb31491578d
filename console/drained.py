"""`gpuconsole drained`: nodes out of work, whose decision that was, since when, and what is next.

Only the scheduler is asked, no node: it answers in a second, also about nodes that are dead.
"""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from console import units
from console.engine import Engine
from console.launch import engine_for, run_async
from console.output import Exit, Stdout, as_json
from console.plan_notes import OUT_OF_WORK
from console.since import UNREADABLE, newest, read
from console.written import say
from inventory.expressions import fold
from inventory.scheduler import Allocation
from probes.event import SCHEMA, Action

if TYPE_CHECKING:
    from console.options import Request

FORGOTTEN_S = 7 * 86400.0
"""A drain older than a week is asked about; our estimate, not measured."""


class OutOfWork(Struct, frozen=True, kw_only=True):
    """One node that takes no work."""

    node: str
    state: str
    raw: str
    since_s: float | None
    """How long, where the scheduler knows."""
    by: str
    reason: str
    ours: bool
    jobs: list[str]
    """Still running there."""
    next: str
    commands: list[str] = []
    """What the findings of its last evidence bundle ask for; printed, never run."""


class DrainedDocument(Struct, frozen=True, kw_only=True):
    """What `gpuconsole drained --json` writes."""

    schema: int
    at: float
    nodes: list[OutOfWork]
    errors: list[str]


def run(request: Request, *, as_json: bool) -> int:
    """Exit 0, or 3 when a scheduler could not be asked."""
    return run_async(_run(request, as_json))


async def _run(request: Request, json: bool) -> int:
    async with engine_for(request, one_pass=True) as engine:
        await engine.read_schedulers()
        found = out_of_work(engine, time.time())
        errors = [f"{name}: {text}" for name, text in engine.fleet.errors.items()]
    for error in errors:
        say(f"gpuconsole: {error}")
    document = DrainedDocument(schema=SCHEMA, at=time.time(), nodes=found, errors=errors)
    if json:
        Stdout().write(as_json(document, indent=sys.stdout.isatty()))
    else:
        Stdout().text(_text(found))
    return Exit.UNKNOWN if errors else Exit.OK


def out_of_work(engine: Engine, now: float) -> list[OutOfWork]:
    """In the inventory's order."""
    known = [engine.fleet.nodes[node.name].allocation for node in engine.inventory.nodes]
    return [
        entry(one, now, [] if one.jobs else helpers(one.node, engine.bundles))
        for one in known
        if one is not None and one.state in OUT_OF_WORK
    ]


def entry(one: Allocation, now: float, commands: list[str]) -> OutOfWork:
    """One node that is out of work. Pure."""
    since_s = None if one.reason_at is None else max(0.0, now - one.reason_at)
    return OutOfWork(
        node=one.node, state=one.state, raw=one.raw, since_s=since_s, by=one.reason_by,
        reason=one.reason, ours=one.ours, jobs=[job.id for job in one.jobs],
        next=_next(one, since_s), commands=commands,
    )  # fmt: skip


def helpers(node: str, where: Path) -> list[str]:
    """Commands for a person at the node, from the findings at the time of its drain.

    A device is a word that the node sent: quoted for the shell here and for the one there.
    """
    path = newest(node, where)
    try:
        before = read(path) if path is not None else None
    except UNREADABLE:
        return []
    if before is None or before.manifest.node != node:
        return []
    found = before.findings
    resets = sorted({f.device for f in found if f.action is Action.RESET_GPU and f.device})
    reset = ("sudo", "nvidia-smi", "--gpu-reset", "-i")
    commands = [shlex.join(("ssh", node, *reset, shlex.quote(device))) for device in resets]
    if any(finding.action is Action.REBOOT for finding in found):
        commands.append(f"ssh {node} sudo systemctl reboot")
    return commands


def _next(one: Allocation, since_s: float | None) -> str:
    """What may be done with it now."""
    if one.state == "off":
        return "powered off by the scheduler"
    if one.jobs:
        ends = [job.end_at for job in one.jobs if job.end_at]
        until = f", until {time.strftime('%a %H:%M', time.localtime(max(ends)))}" if ends else ""
        return f"still runs {', '.join(job.id for job in one.jobs[:3])}{until}"
    if one.state == "draining":
        return "waits for its jobs"
    if since_s is not None and since_s > FORGOTTEN_S:
        return f"out for {units.age(since_s)}: forgotten? ask {one.reason_by or 'around'}"
    return "idle: safe to work on" if one.state == "drained" else "down: see its console"


def _text(nodes: list[OutOfWork]) -> str:
    """Nodes that tell the same are one line."""
    groups: dict[tuple[str, ...], list[OutOfWork]] = {}
    for node in nodes:
        age = units.age(node.since_s)
        key = (node.state, age, node.by or units.ABSENT, node.next, node.reason or "no reason")
        groups.setdefault(key, []).append(node)
    if not groups:
        return "no node is out of work\n"
    lines = []
    for (state, age, by, after, reason), members in groups.items():
        names = fold([member.node for member in members])
        lines.append(f"{names}  {state}  {age:>4}  {by}  {after}\n    {reason}")
        lines += [f"    $ {command}" for member in members for command in member.commands]
    return "\n".join(lines) + "\n"
