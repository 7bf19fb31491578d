"""`gpuconsole drain` and `resume` without a screen: plan, confirm, execute, report."""

from __future__ import annotations

import asyncio
import shlex
import sys
import time
from typing import TYPE_CHECKING

from console import prompt
from console.act import FINAL_PHASES
from console.engine import Engine
from console.launch import chosen, engine_for, run_async
from console.output import Exit, Stdout, as_json
from console.written import say
from inventory.errors import ConsoleError, UsageError
from inventory.expressions import expand, fold
from inventory.scheduler import Plan, Step

if TYPE_CHECKING:
    from console.options import Request
    from inventory.kube_evict import Eviction

FIRST_LOOK_S = 2.0
LAST_LOOK_S = 60.0
"""Between two looks while waiting for jobs; our estimates."""
LOOK_S = 6.0
"""For the look before a drain or resume: nobody waits 12 s for the dead."""


def act(
    request: Request,
    verb: str,
    nodes_expression: str,
    *,
    reason: str,
    yes: bool,
    dry_run: bool,
    override: bool,
    count: int | None,
    as_json: bool,
    despite_findings: bool = False,
    evidence: bool = True,
    evict: Eviction | None = None,
    wait_s: float | None = None,
) -> int:
    """Exit 0 when every node asked for was done (or would be), 3 when any was not."""
    names = expand(nodes_expression)
    if not (yes or dry_run or sys.stdin.isatty()):
        raise UsageError(f"nobody is here to confirm this {verb}", instead="add --yes or --dry-run")
    return run_async(
        _act(
            request, verb, names, reason, yes, dry_run, override, count, as_json,
            despite_findings, evidence, evict, wait_s,
        )
    )  # fmt: skip


async def _act(
    request: Request,
    verb: str,
    names: list[str],
    reason: str,
    yes: bool,
    dry_run: bool,
    override: bool,
    count: int | None,
    json: bool,
    despite_findings: bool,
    evidence: bool,
    evict: Eviction | None,
    wait_s: float | None,
) -> int:
    out = Stdout() if json else None
    quick = request if request.get("timeout_s") else request.over({"timeout_s": LOOK_S})
    # The whole inventory: the cap is a share of the whole pool, not of the nodes named here.
    async with engine_for(quick, one_pass=True) as engine:
        engine.check_may_write(verb)
        chosen(engine.inventory.nodes, names)
        await engine.read_schedulers()
        _check_schedulers(engine, names)
        await engine.one_pass(set(names))
        plan = await engine.plan(
            verb, names, reason, override=override, despite_findings=despite_findings, evict=evict
        )
        _check_schedulers(engine, names)
        if out is not None:
            _write_plan(out, plan, whole=dry_run)
        else:
            say(plan_text(plan, engine.fleet.errors))
        if dry_run or not plan.nodes:
            return Exit.OK if plan.nodes and not plan.refused else Exit.UNKNOWN
        typed = count if yes else await _ask(plan, count)
        steps = await _execute(engine, plan, typed, override, evidence, evict, out)
        if wait_s is not None and not await until_drained(engine, _done(steps), wait_s):
            return Exit.UNKNOWN
    good = _went_well(steps)
    whole = all(good.get(name, False) for name in plan.nodes)
    return Exit.OK if whole and not plan.refused else Exit.UNKNOWN


def _check_schedulers(engine: Engine, names: list[str]) -> None:
    """Raise the trouble with the scheduler of any of these nodes: nothing can be done there."""
    for name in names:
        scheduler = engine.fleet.nodes[name].node.scheduler or ""
        if scheduler in engine.fleet.errors:
            raise ConsoleError(f"{scheduler}: {engine.fleet.errors[scheduler]}; nothing was done")


def _done(steps: list[Step]) -> list[str]:
    return [step.node for step in steps if step.phase == "done"]


async def until_drained(engine: Engine, names: list[str], wait_s: float) -> bool:
    """Wait for the jobs of drained nodes to end; False when some still run after `wait_s`.

    One batched reading at a time, further and further apart: nobody hammers the controller.
    """
    until, pause_s = time.monotonic() + wait_s, FIRST_LOOK_S
    waiting = list(names)
    while True:
        await engine.read_schedulers()
        known = {name: engine.fleet.nodes[name].allocation for name in waiting}
        for name, now in known.items():
            if now is not None and now.state != "draining":
                free = "safe to work on" if now.state == "drained" else now.raw
                say(f"{name}: {now.state}: {free}")
        waiting = [name for name, now in known.items() if now is None or now.state == "draining"]
        left_s = until - time.monotonic()
        if not waiting or left_s <= 0:
            break
        await asyncio.sleep(min(pause_s, left_s))
        pause_s = min(LAST_LOOK_S, pause_s * 1.5)
    for name in waiting:
        say(f"{name}: still draining after {wait_s:g} s")
    return not waiting


def _write_plan(out: Stdout, plan: Plan, *, whole: bool) -> None:
    """The plan as JSON, or only a Step for each node that it leaves alone."""
    if whole:
        out.write(as_json(plan, indent=False))
        return
    for name, why in plan.refused.items():
        step = Step(node=name, at=time.time(), phase="refused", ok=False, detail=str(why))
        out.write(as_json(step, indent=False))


def _went_well(steps: list[Step]) -> dict[str, bool]:
    """Node -> whether its last word was a good one. A write that failed may be tried again."""
    words = {step.node: step.ok for step in steps if step.phase in (*FINAL_PHASES, "evict")}
    unrecorded = {step.node: False for step in steps if step.phase == "audit" and not step.ok}
    return words | unrecorded


async def _ask(plan: Plan, count: int | None) -> int | None:
    """Ask at the terminal; the number typed, if any. Raises ConsoleError for a no."""
    if plan.confirm_count is None:
        if not await prompt.agreed(f"{plan.verb} {fold(plan.nodes)}?"):
            raise ConsoleError("nothing was done")
    elif count is None:
        return await prompt.number(f"Type the number of nodes to {plan.verb}")
    return count


async def _execute(
    engine: Engine,
    plan: Plan,
    typed: int | None,
    override: bool,
    evidence: bool,
    evict: Eviction | None,
    out: Stdout | None,
) -> list[Step]:
    steps: list[Step] = []
    async for step in engine.execute(
        plan, typed, override=override, evidence=evidence, evict=evict
    ):
        steps.append(step)
        if out is not None:
            out.write(as_json(step, indent=False))
        elif step.phase in (*FINAL_PHASES, "evidence", "evict") or not step.ok:
            say(f"{step.node}: {step.phase}{': ' + step.detail if step.detail else ''}")
    return steps


def plan_text(plan: Plan, errors: dict[str, str]) -> str:
    """The plan as a person reads it before saying yes."""
    lines = [
        f"{plan.verb} {fold(plan.nodes)} ({len(plan.nodes)})" if plan.nodes else "nothing to do"
    ]
    for allocation in plan.before:
        jobs = ", ".join(f"{job.id} {job.user}".strip() for job in allocation.jobs) or "no jobs"
        reason = f", reason: {allocation.reason}" if allocation.reason else ""
        lines.append(f"  {allocation.node}: {allocation.raw or allocation.state}, {jobs}{reason}")
    lines += [f"  $ {shlex.join(command)}" for command in plan.commands]
    lines += [f"  left alone: {name}: {why}" for name, why in plan.refused.items()]
    lines += [f"  note: {warning}" for warning in plan.warnings]
    lines += [f"  {source}: {text}" for source, text in errors.items()]
    if plan.confirm_count is not None:
        lines.append(f"  above the cap: needs the number typed (--count {plan.confirm_count})")
    return "\n".join(lines)
