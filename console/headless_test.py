"""`gpuconsole test` without a screen: plan, ask, run with progress on stderr, report."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from console import prompt
from console.active import planning, safety, store
from console.active.ask import Asked, CampaignPlan
from console.active.campaign import settled
from console.active.cells import ascii_only
from console.active.progress import Narrator
from console.active.results import Campaign
from console.engine import Engine
from console.launch import chosen, engine_for, run_async
from console.output import Exit, Stdout, as_json, exit_code, only_ascii
from console.settings import demo_dir, state_dir
from console.written import say
from inventory.errors import ConsoleError, UsageError
from inventory.expressions import expand, fold
from probes.event import Severity

if TYPE_CHECKING:
    from console.options import Request

READY_S = 30.0
"""How long a node may take until its session is up and its GPU processes were read."""
JUDGE_S = 2.0
"""Between two looks at the findings, which take a tenth of it at most."""
WIDTH = 100
"""Of the report where stdout is no terminal."""


class How(Struct, frozen=True, kw_only=True):
    """What the command line says beside what is tested."""

    yes: bool = False
    json: bool = False
    html: Path | None = None
    dry_run: bool = False
    manifest: bool = False


def start(request: Request, asked: Asked, nodes_expression: str, how: How) -> int:
    """A new campaign. Exit by the worst verdict; a node without a figure counts as unknown."""
    asked = structs.replace(asked, nodes=tuple(expand(nodes_expression)))
    return run_async(_run(request, asked, how, None))


def go_on(request: Request, name: str, how: How) -> int:
    """An interrupted campaign, from where it was."""
    kept = store.load(_folder(request), name)
    return run_async(_run(request, kept.asked, how, kept))


def listed(request: Request, *, json: bool) -> int:
    """The campaigns that are kept here, newest first."""
    found = [kept.campaign for kept in store.listed(_folder(request))]
    if json:
        Stdout().write(as_json(found, indent=sys.stdout.isatty()))
        return Exit.OK
    lines = [
        f"{c.id}  {c.verdict:8}  {fold(c.nodes) if c.nodes else '-'}"
        + ("  interrupted" if c.interrupted else "")
        for c in found
    ]
    Stdout().text("".join(f"{line}\n" for line in lines or ["no campaign yet"]))
    return Exit.OK


def _folder(request: Request) -> Path:
    return (demo_dir() if request.get("demo") else state_dir()) / "tests"


async def _run(request: Request, asked: Asked, how: How, kept: store.Kept | None) -> int:
    check_page(how)
    # The whole inventory: the cap is a share of the whole pool, not of the nodes named here.
    async with engine_for(request, one_pass=True) as engine:
        engine.check_may_write("test")
        chosen(engine.inventory.nodes, list(asked.nodes))
        async with _sessions(engine, asked):
            plan = await planning.plan(engine, asked, kept)
            if how.dry_run or how.manifest:
                _dry(engine, plan, how)
                return Exit.OK if plan.willing and not plan.refused else Exit.UNKNOWN
            await _confirm(plan, how)
            if not plan.willing:
                return _refused(plan, how)
            return await _measure(engine, plan, how, kept)


@contextlib.asynccontextmanager
async def _sessions(engine: Engine, asked: Asked) -> AsyncIterator[None]:
    """Live agents on the nodes for the length of the block, where the test needs them."""
    if asked.launch != "ssh":
        yield
        return
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(engine.run(set(asked.nodes)))
        claim = safety.Claim(force=asked.force)
        await settled(engine, asked.nodes, claim, READY_S)
        judging = tasks.create_task(_judged(engine))
        yield
        judging.cancel()
        watching.cancel()


async def _judged(engine: Engine) -> None:
    """Findings of now: verdicts tell what else is known of a node."""
    while True:
        engine.fleet.tick(budget_s=JUDGE_S / 10)
        await asyncio.sleep(JUDGE_S)


def check_page(how: How) -> None:
    """Before anything runs: after an hour of tests is too late. Raises UsageError."""
    if how.html is None or how.dry_run or how.manifest:
        return
    new = not how.html.exists()
    try:
        how.html.open("a").close()
    except OSError as error:
        raise UsageError(f"{how.html}: {error.strerror}", where="--html") from None
    if new:
        how.html.unlink(missing_ok=True)


async def _confirm(plan: CampaignPlan, how: How) -> None:
    """Say what would be done; where running work is disturbed, somebody has to say yes."""
    for name, why in plan.refused.items():
        say(f"{name}: left alone: {why}")
    for note in plan.notes:
        say(f"note: {note}")
    for name, what in plan.disturbs.items():
        say(f"{name}: this test disturbs what is there: {what}")
    if not plan.disturbs or how.yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(
            f"this test disturbs {fold(list(plan.disturbs))}, and nobody is here to confirm it",
            instead="add --yes",
        )  # fmt: skip
    if not await prompt.agreed(f"test {fold(plan.willing)} all the same?"):
        raise ConsoleError("nothing was done")


def _refused(plan: CampaignPlan, how: How) -> int:
    """No node may be tested: the document says why, and no campaign is kept."""
    campaign = Campaign(
        schema=store.SCHEMA, id=plan.id, level=plan.asked.level, nodes=tuple(plan.refused),
        at=time.time(), duration_s=0.0, interrupted=False, refused=plan.refused, rounds=0, runs=(),
        verdicts=(), verdict=Severity.UNKNOWN, drain="", exclude="",
    )  # fmt: skip
    _report(campaign, how)
    return Exit.UNKNOWN


async def _measure(engine: Engine, plan: CampaignPlan, how: How, kept: store.Kept | None) -> int:
    """The campaign with its progress; interrupted, what there is is reported all the same."""
    campaigner = planning.campaigner(engine, plan, kept)
    narrator = Narrator(campaigner)
    try:
        campaign = await campaigner.run()
    except asyncio.CancelledError:
        narrator.close()
        _report(campaigner.campaign, how)
        say(f"interrupted; `gpuconsole test --resume {plan.id}` goes on")
        raise
    finally:
        narrator.close()
        if campaigner.record.trouble:
            say(campaigner.record.trouble)
    engine.fleet.tick()
    _report(campaign, how)
    if campaign.interrupted:
        return max(Exit.UNKNOWN, exit_code(campaign.verdict))
    return exit_code(campaign.verdict)


def _report(campaign: Campaign, how: How) -> None:
    """Text or JSON on stdout, and the page where one is asked for."""
    from console.active import text

    if how.html is not None:
        from console.active import html

        try:
            how.html.write_text(html.render(campaign), encoding="utf-8")
        except OSError as error:
            say(f"{how.html}: {error.strerror}")
    if how.json:
        Stdout().write(as_json(campaign, indent=sys.stdout.isatty()))
        return
    width = shutil.get_terminal_size((WIDTH, 24)).columns if sys.stdout.isatty() else WIDTH
    Stdout().text(text.render(campaign, width, only_ascii()).rstrip("\n") + "\n")


def _dry(engine: Engine, plan: CampaignPlan, how: How) -> None:
    """Show the plan and its first orders, as JSON or for a person."""
    from console.active.dry import document, manifests, told

    if how.manifest:
        Stdout().write(manifests(engine, plan).encode())
    elif how.json:
        Stdout().write(as_json(document(engine, plan), indent=sys.stdout.isatty()))
    else:
        text = told(engine, plan)
        Stdout().text(ascii_only(text) if only_ascii() else text)
