"""`gpuconsole evidence`: look at the nodes once, then gather a bundle of each."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from console.evidence import Kept, collect
from console.headless_act import LOOK_S
from console.launch import engine_for, run_async
from console.output import Exit, Stdout, as_json
from console.settings import private
from console.written import say
from inventory.errors import ConsoleError, UsageError
from inventory.expressions import expand, fold
from inventory.paths import is_folder, is_written

if TYPE_CHECKING:
    from console.options import Request


def run(
    request: Request,
    nodes_expression: str,
    *,
    into: Path | None,
    why: str,
    bug_report: bool,
    as_json: bool,
) -> int:
    """Exit 0 when every node gave all of its part, 3 when any did not."""
    if into is not None and is_written(into) and not is_folder(into):
        raise UsageError(f"{into} is not a folder", where="-o", instead="name a folder")
    names = expand(nodes_expression)
    if into is not None:
        try:
            private(into)
        except OSError as error:
            instead = "name a folder that you may write"
            what = f"cannot make {into}: {error.strerror}"
            raise UsageError(what, where="-o", instead=instead) from None
    return run_async(_run(request, names, into, why, bug_report, as_json))


async def _run(
    request: Request, names: list[str], into: Path | None, why: str, bug_report: bool, json: bool
) -> int:
    out = Stdout()
    quick = request if request.get("timeout_s") else request.over({"timeout_s": LOOK_S})
    whole = True
    async with engine_for(quick, one_pass=True, only=fold(names)) as engine:
        await engine.one_pass()
        engine.fleet.tick()
        try:
            async for kept in collect(engine, names, why=why, into=into, bug_report=bug_report):
                whole = whole and kept.answered
                out.write(as_json(kept, indent=False) if json else os.fsencode(f"{kept.path}\n"))
                _tell(kept)
        except OSError as error:
            place = error.filename or into or engine.state / "evidence"
            raise ConsoleError(f"evidence not kept in {place}: {error.strerror}") from error
    return Exit.OK if whole else Exit.UNKNOWN


def _tell(kept: Kept) -> None:
    said = f"{kept.files} files" + (f"; {kept.note}" if kept.note else "")
    say(f"{kept.node}: {said}")
