"""No scheduler, but a site command: argv templates that drain, resume and tell the state.

    scheduler: hook
    hook:
      state: [/usr/local/sbin/pool, state, "{nodes}"]     # prints: NODE STATE [REASON], one a line
      drain: [/usr/local/sbin/pool, out, "{node}", "{reason}"]
      resume: [/usr/local/sbin/pool, in, "{node}"]

`{nodes}` becomes one argument a node. Commands run without a shell, so no name and no reason is
ever more than an argument. The guards are those of the other schedulers: the state is read before
and after each write, somebody else's drain is left alone without override.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Sequence

from inventory.errors import SchedulerError
from inventory.expressions import in_order
from inventory.nearest import nearest
from inventory.node import Hook
from inventory.run import Completed, Run
from inventory.scheduler import KEPT, MARKER, STATES, Allocation, Scheduler, Step, step
from inventory.slurm_reason import reason_text
from inventory.slurm_text import clean

NAME = "hook"
TIMEOUT_S = 30.0
AT_ONCE = 500
"""Nodes in one call of `state`."""
OUT = frozenset({"drained", "draining", "down"})
ALL, ONE, WHY = "{nodes}", "{node}", "{reason}"


class HookScheduler(Scheduler):
    """The site's own commands as a scheduler."""

    name = NAME

    def __init__(self, run: Run, hook: Hook, names: Sequence[str]) -> None:
        """`names`: every node of the inventory that it is asked about."""
        self._run = run
        self._hook = hook
        self._names = tuple(names)

    async def allocations(self, names: Sequence[str] | None = None) -> list[Allocation]:
        """State of the named nodes (all when None); one that is not told is "unknown".

        Raises SchedulerError when the command fails or prints something else.
        """
        wanted = list(self._names if names is None else names)
        at = time.time()
        told: dict[str, Allocation] = {}
        for start in range(0, len(wanted), AT_ONCE):
            chunk = wanted[start : start + AT_ONCE]
            argv = [w for word in self._hook.state for w in (chunk if word == ALL else [word])]
            told.update(_read(await self._call(argv), at))
        silent = "the state command does not name it"
        return [
            told.get(name)
            or Allocation(node=name, at=at, scheduler=NAME, state="unknown", raw=silent)
            for name in wanted
        ]

    def drain_commands(self, names: Sequence[str], reason: str) -> list[tuple[str, ...]]:
        """The argv drain() runs. Pure."""
        return [_filled(self._hook.drain, name, reason_text(reason)) for name in in_order(names)]

    def resume_commands(self, names: Sequence[str]) -> list[tuple[str, ...]]:
        """The argv resume() runs. Pure."""
        return [_filled(self._hook.resume, name, "") for name in in_order(names)]

    async def drain(
        self, names: Sequence[str], reason: str, *, override: bool = False
    ) -> AsyncIterator[Step]:
        """Each name ends with a Step done, failed or refused."""
        async for told in self._act(names, reason, override):
            yield told

    async def resume(self, names: Sequence[str], *, override: bool = False) -> AsyncIterator[Step]:
        """Give back what we took; a drain that is not ours alone needs `override`."""
        async for told in self._act(names, "", override):
            yield told

    async def _act(self, names: Sequence[str], reason: str, override: bool) -> AsyncIterator[Step]:
        for name in in_order(names):
            try:
                (before,) = await self.allocations([name])
                judged, text = _judged(before, reason, override)
                yield judged
                if judged.phase != "check":
                    continue
                command = _filled(self._hook.drain if text else self._hook.resume, name, text)
                done = await self._run(command, TIMEOUT_S)
                error = "" if done.rc == 0 else str(_failed(done))
                yield step(name, "write", error, ok=not error, command=command)
                yield await self._seen(name, error, drained=bool(text))
            except SchedulerError as failure:
                yield step(name, "failed", str(failure), ok=False)

    async def _seen(self, name: str, error: str, *, drained: bool) -> Step:
        """The outcome as the state command tells it; what was written is told in any case."""
        try:
            (after,) = await self.allocations([name])
        except SchedulerError as failure:
            why = error or "written"
            text = f"{why}, but its state cannot be read again: {failure}"
            return step(name, "failed", text, ok=False)
        return _outcome(after, error, drained=drained)

    async def _call(self, argv: Sequence[str]) -> str:
        done = await self._run(argv, TIMEOUT_S)
        if done.rc != 0:
            raise _failed(done)
        return done.stdout


def _read(text: str, at: float) -> dict[str, Allocation]:
    found: dict[str, Allocation] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = clean(line).split(maxsplit=2)
        if not words:
            continue
        if len(words) < 2 or words[1].lower() not in STATES:
            shown = words[1] if len(words) > 1 else ""
            hint = nearest(shown, STATES) if shown else "print: NODE STATE [REASON]"
            raise SchedulerError(f"the state command's line {number}: no state {shown!r}", hint)
        found[words[0]] = Allocation(
            node=words[0], at=at, scheduler=NAME, state=words[1].lower(), raw=words[1],
            reason=words[2] if len(words) > 2 else "",
        )  # fmt: skip
    return found


def _failed(done: Completed) -> SchedulerError:
    if done.missing:
        return SchedulerError(f"{done.argv[0]} is not here", "see hook: in the inventory")
    said = clean(done.stderr or done.stdout)[:200] or "without a word"
    return SchedulerError(f"{done.argv[0]}: exit status {done.rc}: {said}")


def _judged(now: Allocation, reason: str, override: bool) -> tuple[Step, str]:
    """A check Step and the reason to write ("" to resume), or a final Step."""
    out, theirs = now.state in OUT, _foreign(now)
    if now.state == "unknown":
        return step(now.node, "refused", now.raw, ok=False), ""
    if not reason and not out:
        return step(now.node, "done", f"nothing to resume: {now.state}"), ""
    if theirs and not override:
        word = "left alone" if reason else "not ours to resume"
        return step(now.node, "refused", f"{word}: {theirs}", ok=False), ""
    text = reason_text(reason, _kept(now) if theirs else "") if reason else ""
    if reason and out and now.state != "down" and (now.ours or now.reason == text):
        # Another console of ours was faster: its reason stays.
        return step(now.node, "done", f"already {_told(now)}"), ""
    return step(now.node, "check", _told(now)), text


def _foreign(now: Allocation) -> str:
    """Why its being out of work is not ours alone; "" when it is, or when it is not out."""
    if now.state not in OUT or now.ours:
        return ""
    if now.reason:
        return f"{now.state} by somebody else: {now.reason}"
    return f"{now.state} by somebody without a reason"


def _kept(now: Allocation) -> str:
    if now.reason.startswith(MARKER):
        return now.reason[now.reason.find(KEPT) :] if KEPT in now.reason else ""
    return f"{KEPT}somebody: {now.reason or 'no reason'})"


def _outcome(after: Allocation, error: str, *, drained: bool) -> Step:
    by_others = drained and after.reason and not after.reason.startswith(MARKER)
    if (after.state in OUT) is drained and after.state != "unknown" and not by_others:
        return step(after.node, "done", _told(after))
    if by_others:
        error = error or "somebody else was faster"
    why = error or "the command had no effect"
    return step(after.node, "failed", f"{why}; now {_told(after)}", ok=False)


def _told(now: Allocation) -> str:
    return f"{now.state}: {now.reason}" if now.reason else now.state


_PLACE = re.compile(re.escape(ONE) + "|" + re.escape(WHY))


def _filled(argv: Sequence[str], node: str, reason: str) -> tuple[str, ...]:
    """Both at once: a reason that holds "{node}" stays as it is."""
    parts = {ONE: node, WHY: reason}
    return tuple(_PLACE.sub(lambda match: parts[match[0]], word) for word in argv)
