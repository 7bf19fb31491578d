"""`gpuconsole doctor`: what is missing on this machine, and what each gap costs."""

from __future__ import annotations

import asyncio
import locale
import os
import platform
import resource
import shutil
import time
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from console import charset, units
from console.launch import inventory_for
from console.memory.memory import NAME
from console.output import Exit, Stdout
from console.schedulers import schedulers_for
from console.settings import log_path, private, state_dir
from inventory.errors import ConsoleError
from inventory.node import Inventory

if TYPE_CHECKING:
    from console.options import Request

DESCRIPTORS_PER_NODE = 3


class Line(Struct, frozen=True):
    """One statement: it is fine, or what to do; a note costs little and is no fault."""

    ok: bool
    what: str
    advice: str = ""
    note: bool = False


def run(request: Request) -> int:
    """Print every statement; exit 0 when all is well, 1 otherwise."""
    from console import doctor_screen

    lines = [
        *_machine(),
        *doctor_screen.judge(doctor_screen.here()),
        doctor_screen.preferences(),
        *asyncio.run(_cluster(request)),
    ]
    Stdout().text("".join(_text(line) for line in lines))
    return Exit.OK if all(line.ok for line in lines) else Exit.WARN


def _text(line: Line) -> str:
    mark = "note" if line.note else "ok  " if line.ok else "FIX "
    return f"{mark} {line.what}{': ' + line.advice if line.advice else ''}\n"


def _machine() -> Iterable[Line]:
    yield Line(True, f"Python {platform.python_version()}, gpuconsole {version('gpuconsole')}")
    for name in ("textual", "asyncssh", "nvidia-ml-py"):
        yield Line(True, f"{name} {version(name)}")
    found = shutil.which("ssh")
    yield Line(
        found is not None,
        f"ssh client {found or 'not found'}",
        "" if found else "install openssh-client: without it some ssh_config keywords are missed",
    )
    agent = os.environ.get("SSH_AUTH_SOCK")
    yield Line(True, "ssh agent in use" if agent else "no ssh agent: keys are read from files")
    encoding = locale.getpreferredencoding(False)
    utf8 = charset.is_utf8(encoding)
    yield Line(
        utf8,
        f"locale encoding {encoding}",
        "" if utf8 else "set terminal and LANG to UTF-8 (C.UTF-8), or live with ASCII signs",
    )
    yield _writable("state directory", str(state_dir()))
    yield _writable("log directory", str(log_path().parent))
    yield _memory(state_dir() / NAME)


def _memory(path: Path) -> Line:
    """Size and reach of the memory, or what is wrong with it."""
    from console.memory import read, store

    try:
        with store.translated(path):
            db = store.for_reading(path)
            if db is None:
                return Line(True, "no memory yet", "begins with the first look", note=True)
            count, first_at = read.span(db)
            db.close()
    except store.Unusable as error:
        return Line(False, "memory", f"{error}; without it there are no baselines and no history")
    since = "" if first_at is None else f" since {time.strftime('%d %b', time.localtime(first_at))}"
    size = units.size(sum(p.stat().st_size for p in path.parent.glob(f"{NAME}*")))
    broken = sorted(path.parent.glob(f"{NAME}.broken-*"))
    advice = f"{len(broken)} damaged ones beside it may be deleted" if broken else ""
    return Line(
        True,
        f"memory {path}: {size}, {units.counted(count, 'node')}{since}",
        advice,
        note=bool(broken),
    )


def _writable(what: str, path: str) -> Line:
    try:
        ok, why = os.access(private(Path(path)), os.W_OK), "not writable"
    except OSError as error:
        ok, why = False, str(error.strerror)
    return Line(ok, f"{what} {path}", "" if ok else f"{why}: drains need the audit file there")


async def _cluster(request: Request) -> list[Line]:
    if request.get("demo"):
        return [Line(True, "inventory: the demo brings its own")]
    try:
        inventory = await inventory_for(request)
    except ConsoleError as error:
        return [Line(False, "inventory", str(error))]
    lines = [
        Line(True, f"inventory {inventory.source}: {units.counted(len(inventory.nodes), 'node')}")
    ]
    lines.append(_descriptors(inventory))
    lines += _ssh_keywords(inventory)
    for name, scheduler in schedulers_for(inventory).items():
        try:
            found = await scheduler.allocations()
        except ConsoleError as error:
            lines.append(Line(False, f"scheduler {name}", str(error)))
            continue
        ours = {node.scheduled_as for node in inventory.nodes if node.scheduler == name}
        missing = sorted(ours - {allocation.node for allocation in found})
        advice = f"does not know {', '.join(missing[:5])}: set scheduler_name" if missing else ""
        lines.append(
            Line(not missing, f"scheduler {name}: {units.counted(len(found), 'node')}", advice)
        )
    if not any(node.scheduler for node in inventory.nodes):
        advice = "set `scheduler: slurm` in the inventory to see jobs and to drain"
        lines.append(Line(True, "no scheduler", advice, note=True))
    return lines


def _descriptors(inventory: Inventory) -> Line:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = len(inventory.nodes) * DESCRIPTORS_PER_NODE + 64
    return Line(
        hard == resource.RLIM_INFINITY or hard >= need,
        f"open files limit {hard}",
        "" if hard == resource.RLIM_INFINITY or hard >= need else f"raise it to {need} (ulimit -n)",
    )


def _ssh_keywords(inventory: Inventory) -> Iterable[Line]:
    if not any(node.transport == "ssh" for node in inventory.nodes):
        return
    from probes.ssh_config import SshConfig

    for place in SshConfig(inventory).ignored_keywords():
        advice = "not used here, though ssh honours it"
        yield Line(True, f"{place}: keyword {place.keyword}", advice, note=True)
