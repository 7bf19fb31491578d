"""`gpuconsole drain` and `resume` without a screen: plan, confirm, execute, report."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

import click

from console.engine import Engine
from console.launch import engine_for, run_async
from console.output import Exit, Stdout, as_json, say
from inventory.errors import UsageError
from inventory.expressions import expand, fold
from inventory.scheduler import Plan, Step

if TYPE_CHECKING:
    from console.options import Request

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
) -> int:
    """Exit 0 when every node asked for was done (or would be), 3 when any was not."""
    names = expand(nodes_expression)
    if not (yes or dry_run or sys.stdin.isatty()):
        raise UsageError(f"nobody is here to confirm this {verb}", instead="add --yes or --dry-run")
    return run_async(
        _act(request, verb, names, reason, yes, dry_run, override, count, as_json, despite_findings)
    )


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
) -> int:
    out = Stdout()
    quick = request if request.get("timeout_s") else request.over({"timeout_s": LOOK_S})
    # The whole inventory: the cap is a share of the whole pool, not of the nodes named here.
    async with engine_for(quick, one_pass=True) as engine:
        await engine.one_pass(set(names))
        plan = await engine.plan(
            verb, names, reason, override=override, despite_findings=despite_findings
        )
        if json:
            out.write(as_json(plan, indent=False)) if dry_run else None
        else:
            say(plan_text(plan, engine.fleet.errors))
        if dry_run or not plan.nodes:
            return Exit.OK if plan.nodes and not plan.refused else Exit.UNKNOWN
        typed = count if count is not None or yes else _ask(plan)
        steps = await _execute(engine, plan, typed, override, out if json else None)
    failed = {step.node for step in steps if not step.ok} | set(plan.refused)
    return Exit.UNKNOWN if failed else Exit.OK


def _ask(plan: Plan) -> int | None:
    """Ask at the terminal; raises click.Abort for a no."""
    if plan.confirm_count is not None:
        return int(click.prompt(f"Type the number of nodes to {plan.verb}", type=int, err=True))
    click.confirm(f"{plan.verb} {fold(plan.nodes)}?", abort=True, err=True)
    return None


async def _execute(
    engine: Engine, plan: Plan, typed: int | None, override: bool, out: Stdout | None
) -> list[Step]:
    steps: list[Step] = []
    async for step in engine.execute(plan, typed, override=override):
        steps.append(step)
        if out is not None:
            out.write(as_json(step, indent=False))
        elif step.phase in ("done", "refused", "failed"):
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
