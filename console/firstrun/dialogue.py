"""The dialogue of the first start: a list, a digit, the file, a yes.

Plain lines on the terminal instead of a screen: it works at any size and over any line, and what
was said stays in the scrollback.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from console.firstrun import propose
from console.firstrun.found import DEADLINE_S, Offer, look
from console.firstrun.keys import ENTER, ERASE, ESCAPE, Keys
from console.firstrun.write import write_new
from console.tui.text import cut, fit, wrap
from console.tui.words import t
from inventory.errors import UsageError
from inventory.expressions import expand
from inventory.run import LocalRun, Run
from inventory.source import default_file, user_file
from probes.sanitise import clean

if TYPE_CHECKING:
    from console.options import Request

LINE_CHARS = 500
"""Of one line of what a scheduler said."""
AROUND_LINES = 8
"""Of the terminal, kept for what stands around the file."""
NAMES_CHARS = 4000


class Chosen(Struct, frozen=True):
    """How the console opens."""

    options: dict[str, Any] = {}
    """Over what the command line said."""
    tour: bool = False


Answer = Callable[[], Awaitable[Chosen | None]]
"""What a digit does; None goes back to the list."""


class _Entry(Struct, frozen=True):
    title: str
    told: str
    answer: Answer


def wanted(request: Request) -> bool:
    """Whether nothing says which nodes: no option and no file."""
    named = any(request.get(name) for name in ("source", "hosts", "demo", "scenario", "nodes"))
    return not named and default_file() is None


async def ask(run: Run | None = None) -> Chosen | None:
    """Ask until something is chosen; None when the operator leaves. Nothing is written unasked."""
    with Keys() as keys:
        try:
            return await _Dialogue(keys, run or LocalRun()).hold()
        except EOFError:
            return None


class _Dialogue:
    """What was found, and the keys."""

    def __init__(self, keys: Keys, run: Run) -> None:
        self.keys = keys
        self.run = run
        self.offers: list[Offer] = []

    async def hold(self) -> Chosen | None:
        """From looking around to a choice."""
        _say(t("gpuconsole has no inventory yet ({path}).", path=_file()))
        _say(t("Looking for nodes, {seconds} s at most ...", seconds=f"{DEADLINE_S:g}"))
        if not await self._looked():
            return None
        while True:
            answer = await self._choice()
            if answer is None:
                return None
            chosen = await answer()
            if chosen is not None:
                return chosen

    async def _looked(self) -> bool:
        """Whether the offers are there; False when the operator left before."""
        looking = asyncio.create_task(look(self.run))
        leaving = asyncio.create_task(self._key(ESCAPE, "q"))
        try:
            await asyncio.wait((looking, leaving), return_when=asyncio.FIRST_COMPLETED)
            if leaving.done():
                leaving.result()
                return False
            self.offers = looking.result()
            return True
        finally:
            for task in (looking, leaving):
                task.cancel()
            await asyncio.gather(looking, leaving, return_exceptions=True)

    async def _key(self, *keys: str) -> str:
        """The first of these keys. Several characters at once are a paste, and no answer."""
        while True:
            typed = await self.keys.typed()
            if typed in keys:
                return typed

    def _entries(self) -> list[_Entry]:
        found = [
            _Entry(offer.title, offer.told, partial(self._confirm, offer))
            for offer in self.offers
            if offer.source
        ]
        return [
            *found,
            _Entry(t("hosts you name"), "gpu[001-064]", self._names),
            _Entry(t("the demo"), t("16 simulated nodes with real faults"), _demo),
            _Entry(t("a guided tour"), t("two minutes, in the demo"), partial(_demo, tour=True)),
        ]

    async def _choice(self) -> Answer | None:
        """Show the list; what the digit stands for, None to leave."""
        entries = self._entries()
        _say("")
        for number, entry in enumerate(entries, 1):
            _row(str(number), entry.title, entry.told)
        for offer in self.offers:
            if not offer.source:
                _row("-", offer.title, offer.told)
        _say("")
        _say(t("A digit chooses, esc leaves; nothing is written before you say y."))
        digits = {str(number): entry for number, entry in enumerate(entries, 1)}
        key = await self._key(*digits, ESCAPE, "q")
        return digits[key].answer if key in digits else None

    async def _confirm(self, offer: Offer) -> Chosen | None:
        """Show the file and ask; writing that fails is told, and asked again."""
        _say("")
        for line in _shown(offer.text):
            _echo(f"    {line}\n")
        _say("")
        while True:
            _say(t("y  write it to {path} and open the console", path=_file()))
            _say(t("o  only open the console, write nothing     esc  back"))
            key = await self._key("y", "o", ESCAPE)
            if key == ESCAPE:
                return None
            if key == "o":
                return Chosen(_without_file(offer))
            try:
                write_new(user_file(), offer.text)
            except (UsageError, OSError) as error:
                _say(t("not written: {why}", why=str(error)))
                continue
            _say(t("written: {path}", path=_file()))
            return Chosen()

    async def _names(self) -> Chosen | None:
        """Hosts by name; what is wrong with them is told, and they are asked for again."""
        while True:
            _say(t("Hosts, e.g. gpu[001-064],login1; enter ends, esc goes back:"))
            text = await self._line()
            if text is None:
                return None
            try:
                names = expand(text, where=t("hosts"))
            except UsageError as error:
                _say(str(error))
                continue
            if names:
                break
        told = t("{n} hosts", n=len(names))
        proposed = propose.of_hosts(names, t("Hosts named at the first start"))
        return await self._confirm(Offer("", told, f"-w {text}", proposed))

    async def _line(self) -> str | None:
        """A line with echo; a paste is welcome here. None after escape."""
        text = ""
        while True:
            typed = await self.keys.typed()
            if typed == ESCAPE:
                _say("")
                return None
            for char in typed:
                if char == ENTER:
                    _say("")
                    return text
                text = _edited(text, char)


async def _demo(*, tour: bool = False) -> Chosen:
    return Chosen({"demo": True}, tour)


def _without_file(offer: Offer) -> dict[str, Any]:
    """The options that mean the same nodes."""
    flag, _, hosts = offer.source.partition(" ")
    return {"hosts": hosts} if flag == "-w" else {"source": offer.source}


def _edited(text: str, char: str) -> str:
    """The line after one character, which is echoed."""
    if char in ERASE:
        if text:
            _echo("\b \b")
        return text[:-1]
    if not char.isprintable() or len(text) >= NAMES_CHARS:
        return text
    _echo(char)
    return text + char


def _shown(text: str) -> list[str]:
    """The lines of a file that fit the terminal, and how many more there are."""
    width, height = shutil.get_terminal_size()
    lines = [cut(clean(line, NAMES_CHARS), max(20, width - 5)) for line in text.splitlines()]
    room = max(6, height - AROUND_LINES)
    if len(lines) <= room:
        return lines
    return [*lines[: room - 1], t("... and {n} more lines", n=len(lines) - room + 1)]


def _row(mark: str, title: str, told: str) -> None:
    """One line of the list; what does not fit goes on below its text."""
    head = f"  {mark}  {fit(title, 15)} "
    lines = wrap(clean(told, LINE_CHARS), _width() - len(head))
    for number, line in enumerate(lines):
        _echo(f"{' ' * len(head) if number else head}{line}\n")


def _say(text: str) -> None:
    """A sentence, broken between words."""
    for line in wrap(text, _width()):
        _echo(f"{line}\n")


def _width() -> int:
    # The last column is left free: some terminals go to the next line there, and some do not.
    return max(40, shutil.get_terminal_size().columns) - 1


def _file() -> str:
    """The user's inventory, as people write it."""
    path, home = str(user_file()), os.path.expanduser("~")
    return f"~{path[len(home) :]}" if path.startswith(f"{home}/") else path


def _echo(text: str) -> None:
    """On stderr, where the console draws too: stdout is for data."""
    encoding = sys.stderr.encoding or "ascii"
    sys.stderr.write(text.encode(encoding, "replace").decode(encoding))
    sys.stderr.flush()
