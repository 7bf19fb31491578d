"""`gpuconsole --json --drain-on critical`: cron takes nodes with hardware faults out of work.

Off without `automatic:` in the policy. Only findings of this very pass, critical and with hardware
evidence, count; nodes that are unknown, already out of work or somebody else's are left alone. More
sick nodes than the caps allow look like one common cause: then none is drained.
"""

from __future__ import annotations

import fnmatch
import functools
from typing import TYPE_CHECKING

from console import act
from console.output import AutomaticReport
from console.plan import pool
from console.plan_notes import OUT_OF_WORK, timeless
from console.policy import SITE_FILE, Automatic, Policy
from inventory.errors import ConsoleError, UsageError
from inventory.expressions import fold
from inventory.nearest import nearest
from probes.event import Finding, Severity

if TYPE_CHECKING:
    from console.engine import Engine


def caps(policy: Policy) -> Automatic:
    """The caps. UsageError when the policy allows no automatic drains, or names no rule of ours."""
    if policy.automatic is None:
        path = policy.path or SITE_FILE
        raise UsageError(
            "no policy allows automatic drains", where="--drain-on",
            instead=f"write automatic: {{max_nodes: 2, max_share: 0.05}} into {path}",
        )  # fmt: skip
    for pattern in policy.automatic.rules:
        if not fnmatch.filter(_rules(), pattern):
            raise UsageError(
                f"automatic.rules: no rule is called {pattern!r}", where=policy.path,
                instead=nearest(pattern, _rules()),
            )  # fmt: skip
    return policy.automatic


@functools.cache
def _rules() -> tuple[str, ...]:
    """What a finding's rule can be; those of Xids carry the number."""
    from probes.checks import RULES
    from probes.rules import load_rules

    known = load_rules(None)
    numbered = [f"xid.{code}" for code in known.xids] + [f"sxid.{code}" for code in known.sxids]
    return (*(rule.id for rule in RULES), *numbered)


async def drain_sick(engine: Engine, limits: Automatic, *, dry_run: bool) -> AutomaticReport:
    """What was done, or would be. Raises UsageError in read-only mode."""
    sick = candidates(engine, limits)
    room = _room(engine, limits)
    if len(sick) > room:
        return AutomaticReport(
            dry_run=dry_run, refused=dict.fromkeys(sick, f"{len(sick)} sick, room for {room}"),
            summary=f"nothing drained: {len(sick)} sick ({fold(sick)}) and the policy leaves "
            f"room for {room}; {_why(engine, limits, len(sick))}",
        )  # fmt: skip
    done: list[str] = []
    refused: dict[str, str] = {}
    for name, finding in sick.items():
        why = await _drain(engine, name, finding, limits, dry_run)
        if why:
            refused[name] = why
        else:
            done.append(name)
    return AutomaticReport(
        dry_run=dry_run, drained=done, refused=refused, summary=_summary(done, refused, dry_run)
    )


def candidates(engine: Engine, limits: Automatic) -> dict[str, Finding]:
    """Node -> the finding that it would be drained for, in natural order."""
    found: dict[str, Finding] = {}
    for node in engine.inventory.nodes:
        now = engine.fleet.nodes[node.name].allocation
        if now is None or now.state in OUT_OF_WORK or now.state == "unknown":
            continue
        proof = next((f for f in engine.fleet.findings[node.name] if _proves(f, limits)), None)
        if proof is not None:
            found[node.name] = proof
    return found


def _proves(finding: Finding, limits: Automatic) -> bool:
    """Hardware evidence of this pass, critical, of a rule that the policy names."""
    seen = not (finding.latched or finding.acknowledged)
    severe = finding.severity is Severity.CRITICAL and finding.hard
    return seen and severe and limits.wants(finding.rule)


def _room(engine: Engine, limits: Automatic) -> int:
    """How many more may go within the hour; drains of people count."""
    healthy, recent = pool(engine.fleet)
    return max(0, min(limits.max_nodes, int(limits.max_share * (healthy + recent))) - recent)


def _why(engine: Engine, limits: Automatic, sick: int) -> str:
    """What the operator makes of too little room."""
    healthy, recent = pool(engine.fleet)
    if limits.max_share * (healthy + recent) < 1:
        return f"max_share {limits.max_share:g} of {healthy + recent} nodes is less than one node"
    went = f"{recent} went within the hour; " if recent else ""
    return f"{went}{'a common cause is likely, ' if sick + recent > 1 else ''}look at it"


async def _drain(
    engine: Engine, name: str, finding: Finding, limits: Automatic, dry_run: bool
) -> str:
    """Why this node was not drained; "" when it was (or would be)."""
    try:
        plan = await engine.plan("drain", [name], f"auto: {timeless(finding.say)}")
        if plan.refused:
            return str(plan.refused[name])
        if _room(engine, limits) < 1:
            return "no room left: somebody else drains too"  # the plan has just asked anew
        if plan.confirm_count is not None:
            return "above the cap for drains of any kind"
        if dry_run:
            return ""
        steps = [step async for step in engine.execute(plan)]
    except ConsoleError as error:
        return str(error)
    last = [step for step in steps if step.phase in act.FINAL_PHASES]
    return "" if last and last[-1].ok else (last[-1].detail if last else "no outcome")


def _summary(done: list[str], refused: dict[str, str], dry_run: bool) -> str:
    word = "would drain" if dry_run else "drained"
    text = f"{word} {fold(done)}" if done else f"nothing {'to drain' if dry_run else 'drained'}"
    left = [f"{name}: {why}" for name, why in refused.items()]
    return f"{text}; left alone: {'; '.join(left)}" if left else text
