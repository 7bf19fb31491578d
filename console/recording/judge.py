"""`gpuconsole replay --json FILE`: the document of one moment of a recording."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from console.launch import inventory_for
from console.output import Stdout, as_json, document, exit_code
from console.recording.course import Course
from console.recording.moment import second_of
from console.recording.tape import Span, Tape, inventory_of
from console.written import say
from probes.rules import load_rules

if TYPE_CHECKING:
    from console.options import Request
    from inventory.node import Inventory


def judge_file(request: Request, path: Path, at: str | None = None) -> int:
    """Judge it up to its end, or up to `at` (moment.second_of). Raises UsageError."""
    tape = Tape(path, say)
    span = Tape(path).span()
    until = span.seconds if at is None else second_of(at, 0, span)
    course = Course(tape, span.start, known(request, path, span), load_rules(request.get("rules")))
    while not course.ended and course.second < until:
        for _ in course.advance():
            pass
    report = document(course.fleet, span.start, course.clock.now)
    Stdout().write(as_json(report, indent=sys.stdout.isatty()))
    return exit_code(report.verdict)


def known(request: Request, path: Path, span: Span) -> Inventory:
    """The recording's nodes, as the inventory named with -i knows them."""
    site = asyncio.run(inventory_for(request)) if request.get("source") else None
    return inventory_of(path, span.names, site)
