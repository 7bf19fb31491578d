"""A node's whole kernel log, followed: read over a connection of our own and made harmless.

Not a pager with the app suspended: a pager shows what the node sends, and a node sends what it
likes. Here collecting goes on and is seen, new lines come by themselves, and troubles have a key.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from console.node_log import NodeLog
from console.tui import commands
from console.tui.kernel_view import TROUBLE, boot_at, log_lines
from console.tui.screens.searching import SearchingScreen
from console.tui.text import Cell, Line, cut, plain, width_of
from console.tui.widgets.prompt import Prompt
from console.tui.widgets.sheet import Lines, Sheet
from console.tui.words import t, tn
from inventory.errors import ConsoleError

if TYPE_CHECKING:
    from probes.transport import Transport

LOOK_S = 0.25
"""Between two looks at what came: a log that is followed should feel alive."""


class KernelScreen(SearchingScreen):
    """Lines, newest at the bottom."""

    SCREEN_NAME = "kernel"
    BINDINGS: ClassVar[list[BindingType]] = commands.bindings("kernel")

    def __init__(self, node: str) -> None:
        """`node` is a name of the inventory."""
        super().__init__()
        self.node = node
        self.log_of: NodeLog | None = None
        self.following = True
        self.trouble = ""
        """Why the node was not asked."""
        self._lines: list[Line] = []
        self._marks: list[int] = []
        """Lines at which troubles begin."""
        self._taken = 0
        self._width = 0

    def compose(self) -> ComposeResult:
        """What it is, the log, the keys."""
        look = self.console_app.look
        yield Lines(look, id="status")
        yield Sheet(look, id="sheet")
        yield Prompt(id="prompt")
        yield Lines(look, id="keys")

    def chosen(self) -> list[str]:
        """The node."""
        return [self.node]

    def on_mount(self) -> None:
        """Begin to read."""
        self.body.focus()
        self.opened_in = self.console_app.paused_at  # it is read now, whatever the other views show
        self.run_worker(self._read(), group="log", exit_on_error=False)
        self.set_interval(LOOK_S, self._look)
        self.draw_lines()

    async def _read(self) -> None:
        import asyncio

        transport: Transport | None = None
        log = NodeLog(self.console_app.fleet.nodes[self.node].node)
        try:
            transport = self.console_app.engine.transport()
            await log.follow(transport)
            self.log_of = log
            await asyncio.Event().wait()
        except ConsoleError as error:
            self.trouble = plain(str(error))
            self._from_agent()
        finally:
            with contextlib.suppress(Exception):
                await log.close()
            if transport is not None:
                await transport.close()

    def _from_agent(self) -> None:
        """What its agent sent while it could: better than nothing, and said to be less."""
        facts = self.console_app.still.nodes[self.node]
        held = NodeLog(facts.node)
        for row in facts.kernel:
            mono = row.get("mono")
            stamp = f"[{float(mono):.6f}] " if isinstance(mono, int | float) else ""
            held.data(f"{stamp}{row.get('text', '')}\n".encode())
        held.ended = t("only what the agent found relevant")
        self.log_of = held
        self._look()

    def _look(self) -> None:
        """Take in what came since."""
        log = self.log_of
        if log is None or not self.is_mounted or self.stands:
            return
        if self.console_app.screen is self and (log.count != self._taken or log.ended):
            self.draw_lines()

    @on(Lines.Resized)
    def _resized(self) -> None:
        self.draw_lines()

    def redraw(self, now: float) -> None:
        """One tick."""
        widget = self.body
        width = widget.scrollable_size.width
        if not width:
            return
        if not self.stands or width != self._width:
            self._take(width, now)
            at_end = widget.scroll_offset.y >= widget.max_scroll_y
            self.following = self.following and (at_end or not widget.max_scroll_y)
            self._show(widget)
        self._status()
        self.draw_keys()

    def _take(self, width: int, now: float) -> None:
        log = self.log_of
        if log is None:
            return
        count = self._taken if self.stands else log.count
        kept = list(log.lines)[: max(0, len(log.lines) - (log.count - count))]
        if width != self._width:
            self._width, self._lines, self._marks, self._taken = width, [], [], 0
        fresh = min(count - self._taken, len(kept))
        if fresh < count - self._taken or len(self._lines) > 4 * len(kept) + 100:
            # Lines were lost, or most of ours are of lines no longer kept.
            self._lines, self._marks, fresh = [], [], len(kept)
        boot = boot_at(self.console_app.still.nodes[self.node])
        for text in kept[len(kept) - fresh :]:
            if TROUBLE.search(text):
                self._marks.append(len(self._lines))
            self._lines += log_lines(text, boot, now, width)
        self._taken = count
        log.looked()

    def _show(self, widget: Sheet) -> None:
        lines = self.lit(self._lines)
        follow = self.following and not self.find
        widget.show(lines)
        if follow:
            widget.scroll_to(y=max(0, len(lines) - widget.size.height), animate=False, force=True)

    def _status(self) -> None:
        lines = self.query_one("#status", Lines)
        log, count = self.log_of, len(self._marks)
        told = tn("1 line", "{n} lines", self._taken) if log else t("asking the node")
        parts = [Cell(t("kernel log of {node}", node=plain(self.node)), "title"),
                 Cell(f"  {told}", "text")]  # fmt: skip
        if self.trouble or (log is not None and log.ended):
            why = " ".join(part for part in (self.trouble, log.ended if log else "") if part)
            parts.append(Cell("  " + plain(why), "unknown"))
        elif self.console_app.paused:
            parts.append(self.paused_cell())
        elif log is not None:
            word = t("following") if self.following else t("not following (f)")
            parts.append(Cell(f"  {word}", "dim" if self.following else "key"))
        if count:
            parts.insert(2, Cell("  " + t("{n} to look at (n)", n=count), "warn"))
        if self.find:
            parts.append(Cell(f"  /{plain(self.find)} {len(self._hits)}", "key"))
        room, shown = lines.size.width, []
        for part in parts:
            shown.append(Cell(cut(part.text, room), part.style))
            room = max(0, room - width_of(shown[-1].text))
        lines.show([tuple(shown)])

    def action_follow(self) -> None:
        """Stay at the newest line, or stop it."""
        self.following = not self.following
        if self.following:
            self.body.action_edge(1)
        self.draw_lines()

    def draw_found(self) -> None:
        """See SearchingScreen."""
        if self.stands:  # else drawing shows it
            self._show(self.body)
        self.draw_lines()

    def begin(self) -> None:
        """To the newest place."""
        if self._hits:
            self._reveal(self._hits[-1])

    def action_next_fault(self) -> None:
        """To the next line that stands out, or that has what is searched for."""
        self._step(1)

    def action_previous_fault(self) -> None:
        """To the one before."""
        self._step(-1)

    def _step(self, step: int) -> None:
        places = self._hits if self.find else self._marks
        if not places:
            self.notify(t("nothing here has it") if self.find else t("nothing stands out here"))
            return
        top = int(self.body.scroll_offset.y)
        after = [place for place in places if place > top]
        before = [place for place in places if place < top]
        self._reveal((after or places)[0] if step > 0 else (before or places)[-1])

    def _reveal(self, line: int) -> None:
        self.following = False
        self.body.scroll_to(y=line, animate=False, force=True)
        self._status()

    def leave(self) -> None:
        """To the screen below."""
        self.app.pop_screen()
