"""Slurm's reservations: whether one is ours to test in now, and which nodes it holds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from inventory.account import account
from inventory.errors import SchedulerError, UsageError
from inventory.expressions import expand
from inventory.run import LocalRun, Run

if TYPE_CHECKING:
    from console.engine import Engine

NAME = re.compile(r"[A-Za-z0-9_][\w.+@:-]{0,200}", re.ASCII)
FIELD = re.compile(r"(\w+)=(\S*)")
TIMEOUT_S = 20.0


def read(text: str) -> dict[str, str]:
    """`scontrol show reservation NAME -o` as fields. Pure."""
    return dict(FIELD.findall(text))


def refusal(fields: dict[str, str], user: str) -> str:
    """Why this user may not test in it now; "" when they may. Pure."""
    if fields.get("State") != "ACTIVE":
        return f"is {fields.get('State', 'unknown').lower()}, not active"
    users = [name for name in fields.get("Users", "").split(",") if name not in ("", "(null)")]
    if user != "root" and users and user not in users:
        return f"is for {', '.join(users)}, not for {user}"
    return ""


async def nodes_of(engine: Engine, name: str, run: Run | None = None) -> list[str]:
    """Inventory names of its nodes. UsageError when it is not there or not ours."""
    if not NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no reservation", where="--reservation")
    argv = ("scontrol", "-o", "show", "reservation", name)
    done = await (run or LocalRun())(argv, TIMEOUT_S)
    fields = read(done.stdout)
    if done.rc != 0 or fields.get("ReservationName") != name:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise SchedulerError(f"reservation {name}: {said[0][:200] if said else 'not known'}")
    if why := refusal(fields, account()):
        raise UsageError(f"{name} {why}", where="--reservation")
    listed = set(expand(fields.get("Nodes", "")))
    nodes = engine.inventory.nodes
    return [
        n.name
        for n in nodes
        if (n.scheduler or "").startswith("slurm") and n.scheduled_as in listed
    ]
