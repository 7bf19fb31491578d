"""A Plan and its outcome as lines for the confirmation. Pure."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence

from console.fleet import Fleet
from console.plan_notes import timeless
from console.tui.text import Cell, Line, cut, plain, width_of
from console.tui.text import labelled as _labelled
from console.tui.theme import Glyphs
from console.tui.view import SCHED_WORDS
from console.tui.words import N_, spoken, t, tn
from inventory.expressions import fold
from inventory.scheduler import Allocation, Plan, Step
from probes.event import Finding

ACTS = {"drain": N_("Drain"), "resume": N_("Resume")}
COLUMN = 6
"""Cells of a label, its gap included."""
BEFORE_SHOWN = 12
"""Nodes listed one by one; the rest is folded."""


def title(act: str, names: Sequence[str]) -> str:
    """`Drain 3 nodes: gpu[003-005]`, of `Drain` in the operator's language."""
    if not names:
        return t("{act}: no node", act=act)
    told = fold(names)
    return tn("{act} 1 node: {names}", "{act} {n} nodes: {names}", len(names), act=act, names=told)


def act(verb: str) -> str:
    """What a verb of a plan is called."""
    return t(ACTS.get(verb, verb))


def plan_lines(plan: Plan, glyphs: Glyphs, width: int) -> list[Line]:
    """What would happen, to which nodes, with which exact commands, and what is left alone."""
    lines: list[Line] = [(Cell(cut(title(act(plan.verb), plan.nodes), width), "title"),)]
    before = {allocation.node: allocation for allocation in plan.before}
    lines += _before(plan, before, width)
    for command in plan.commands:
        lines += labelled(t("run"), plain(shlex.join(command)), width, "text")
    for warning in plan.warnings:
        lines += labelled(glyphs.warn, plain(spoken(warning)), width, "warn")
    for why, names in grouped(plan.refused).items():
        lines += labelled(t("leave"), f"{fold(names)}: {plain(spoken(why))}", width, "unknown")
    if not plan.nodes:
        lines += labelled("", t("Nothing would be done."), width, "title")
    return lines


def labelled(label: str, text: str, width: int, style: str, column: int = COLUMN) -> list[Line]:
    """A label and wrapped text beside it."""
    return _labelled(label, text, width, style, column)


def _before(plan: Plan, before: Mapping[str, Allocation], width: int) -> Iterable[Line]:
    for name in plan.nodes[:BEFORE_SHOWN]:
        yield from labelled(t("now"), f"{name} {_state(before.get(name))}", width, "text")
    if len(plan.nodes) > BEFORE_SHOWN:
        rest = plan.nodes[BEFORE_SHOWN:]
        yield from labelled(t("now"), t("and {names}", names=fold(rest)), width, "text")


def _state(allocation: Allocation | None, *, reason: bool = True) -> str:
    if allocation is None:
        return t("unknown to the scheduler")
    told = [SCHED_WORDS.get(allocation.state, allocation.state)]
    told += [
        tn(
            "job {id} {user} on 1 node",
            "job {id} {user} on {n} nodes",
            job.nodes,
            id=job.id,
            user=job.user,
        )
        for job in allocation.jobs
    ]
    told += [f'"{allocation.reason}"'] if reason and allocation.reason else []
    return plain(", ".join(told))


def grouped(refused: Mapping[str, str]) -> dict[str, list[str]]:
    """Reason -> the nodes that are refused for it."""
    groups: dict[str, list[str]] = {}
    for name, why in refused.items():
        groups.setdefault(why, []).append(name)
    return groups


def outcome_lines(
    plan: Plan, steps: Sequence[Step], fleet: Fleet, glyphs: Glyphs, width: int, *, over: bool
) -> list[Line]:
    """Each node's last step, its evidence, and what the scheduler now says to the Fleet."""
    last = {step.node: step for step in steps}
    kept = {step.node: step for step in steps if step.phase == EVIDENCE}
    lines: list[Line] = [(Cell(_head(plan, glyphs, over), "title"),)]
    for name in dict.fromkeys((*plan.nodes, *last)):
        step = last.get(name)
        allocation = fleet.nodes[name].allocation if name in fleet.nodes else None
        now = _now(allocation) if over else _under_way(step)
        lines.append(_outcome(name, now, step, glyphs, width))
        if name in kept:
            lines += _evidence(kept[name], width)
        if step is not None and step.phase != EVIDENCE and step.detail and not (step.ok and over):
            lines += labelled("", plain(step.detail), width, "text" if step.ok else "warn")
    folders = dict.fromkeys(
        shown_path(folder) for step in kept.values() if (folder := _folder(step))
    )
    for folder in folders:
        lines += labelled("", plain(t("evidence is in {folder}", folder=folder)), width, "dim")
    return lines


EVIDENCE = "evidence"
"""Phase of the Step that tells where a bundle is, or why there is none (console/act.py)."""
_SUFFIX = ".tar.gz"


def _head(plan: Plan, glyphs: Glyphs, over: bool) -> str:
    if over:
        return t("drain finished") if plan.verb == "drain" else t("resume finished")
    n, more = len(plan.nodes), glyphs.more
    if plan.verb == "drain":
        return tn("draining 1 node{more}", "draining {n} nodes{more}", n, more=more)
    return tn("resuming 1 node{more}", "resuming {n} nodes{more}", n, more=more)


def _now(allocation: Allocation | None) -> str:
    return t("now {state}", state=_state(allocation, reason=False))


def _under_way(step: Step | None) -> str:
    if step is None:
        return t("waiting")
    return t("evidence taken") if step.phase == EVIDENCE else step.phase


def _outcome(name: str, now: str, step: Step | None, glyphs: Glyphs, width: int) -> Line:
    waits = step is None or step.phase == EVIDENCE
    sign = glyphs.more if waits else glyphs.ok if step and step.ok else glyphs.critical
    return (
        Cell(f"{sign} ", "critical" if sign == glyphs.critical else "ok"),
        Cell(f"{name} ", "title"),
        Cell(cut(now, max(0, width - width_of(name) - 3)), "text"),
    )


def _evidence(step: Step, width: int) -> list[Line]:
    """The bundle's file name and, where the node did not give its part, why."""
    folder = _folder(step)
    told = step.detail.removeprefix(f"{folder}/") if folder else step.detail
    return labelled("", plain(t("evidence {told}", told=told)), width, "dim" if step.ok else "warn")


def _folder(step: Step) -> str:
    """Where the bundle lies; "" when there is none."""
    path, suffix, _ = step.detail.partition(_SUFFIX)
    return os.path.dirname(path + suffix) if suffix else ""


def shown_path(path: str) -> str:
    """A path as people type it: their home is ~."""
    home = os.path.expanduser("~")
    return path.replace(home, "~", 1) if home != "/" and path.startswith(f"{home}/") else path


def proposed_reason(names: Sequence[str], findings: Mapping[str, Sequence[Finding]]) -> str:
    """A reason from the worst findings of the nodes; empty when there is none."""
    tops = [found[0] for name in names if (found := findings.get(name))]
    says = dict.fromkeys(f"{plain(timeless(f.say))} ({f.rule})" for f in tops)
    shown = list(says)[:2]
    more = f" and {len(says) - 2} more" if len(says) > 2 else ""
    return "; ".join(shown) + more
