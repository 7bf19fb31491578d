"""What an operator takes away from any screen: copies, screenshots, the whole kernel log.

What it takes to make them is imported when it is first asked for: 20 ms of the first frame.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

from textual import work

from console.tui.plan_view import shown_path
from console.tui.screens.playing import Playing
from console.tui.text import plain
from console.tui.words import t
from inventory.errors import UsageError
from inventory.expressions import fold

SLICE = 20
"""Nodes described between two chances for a key: some 5 ms."""
BREATH_S = 0.004
TOLD_CHARS = 60
"""A host list that is shown whole where it is told that it was copied."""
PATH_SHOWN_S = 8.0
"""A path takes longer to read than a word."""


class TakingScreen(Playing):
    """Copies the chosen nodes and pictures itself."""

    SCREEN_NAME = ""
    """Key into Command.screens."""

    def chosen(self) -> list[str]:
        """Nodes an action is about."""
        raise NotImplementedError

    def some(self) -> list[str]:
        """Nodes an action is about; says so when there are none."""
        names = self.chosen()
        if not names:
            self.notify(t("no node is chosen"), severity="warning")
        return names

    def named(self, name: str) -> str:
        """A node named after a command, else the one in hand; "" when there is none here."""
        if not name:
            return next(iter(self._one()), "")
        if name in self.console_app.fleet.nodes:
            return name
        self.notify(t("no node {name} here", name=name), severity="error", markup=False)
        return ""

    def _one(self) -> Sequence[str]:
        return self.chosen()[:1]

    def steady(self) -> bool:
        """Whether what a key is about is what the operator saw when pressing it."""
        return True

    def action_copy(self, form: str = "hosts") -> None:
        """Copy the chosen nodes. Raises UsageError for a form that is none."""
        from console.tui import copying

        if form not in copying.FORMATS:
            raise UsageError(
                t("there is no form {form!r}", form=form),
                instead=t("one of {forms}", forms=" ".join(copying.FORMATS)),
            )
        if names := self.some():
            self._copy(form, names)

    @work(exit_on_error=False, group="copy", exclusive=True)
    async def _copy(self, form: str, names: Sequence[str]) -> None:
        """In slices, with room for keys between."""
        from importlib.metadata import version

        from console.tui import copying

        app, parts = self.console_app, []
        fleet, now, ours = app.roster.fleet, app.now(), version("gpuconsole")
        for number, name in enumerate(names, 1):
            parts.append(copying.part(form, fleet, name, now, ours))
            if number % SLICE == 0 and form != "hosts":
                await asyncio.sleep(BREATH_S)
        # A thread only for what takes long: a host list is copied before the next key.
        if len(parts) > SLICE and form != "hosts":
            cluster = fleet.inventory.cluster
            text = await asyncio.to_thread(copying.whole, form, parts, cluster, now, ours)
        else:
            text = copying.whole(form, parts, fleet.inventory.cluster, now, ours)
        told = fold(names)
        if len(told) > TOLD_CHARS:
            told = t("{n} nodes", n=len(names))
        self._carry(text, form, told)

    def _carry(self, text: str, form: str, told: str) -> None:
        """To the clipboard, or to a file where that is too much for a terminal."""
        from console.tui import copying, shots

        app = self.console_app
        sequence = copying.osc52(text, os.environ)
        if not sequence:
            try:
                path = shots.keep(app.engine.state / "copies", "nodes", copying.ENDINGS[form],
                                  text.encode(), app.clock())  # fmt: skip
            except OSError as error:
                self.notify(_why(error), severity="error", markup=False)
                return
            where = shown_path(str(path))
            self.notify(
                t("{what}: too long for the clipboard, written to {path}", what=told, path=where),
                timeout=PATH_SHOWN_S, markup=False,
            )  # fmt: skip
            return
        app.copy_to_clipboard(text)
        shown = told if form == "hosts" else t("{what} as {form}", what=told, form=form)
        self.notify(t("copied {what}", what=shown), markup=False)

    def action_copy_as(self) -> None:
        """Ask in which form."""
        from console.tui.screens.copies import CopyMenu

        if names := self.some():
            told = fold(names) if len(names) == 1 else t("{n} nodes", n=len(names))
            self.app.push_screen(CopyMenu(told), self._copied_as)

    def _copied_as(self, form: str | None) -> None:
        if form:
            self.action_copy(form)

    def action_screenshot(self, text: str = "") -> None:
        """Write the screen, as SVG and text or as one of them. Raises UsageError."""
        from console.tui import shots

        form, _, place = text.strip().partition(" ")
        if form and form not in shots.FORMS:
            raise UsageError(
                t("a screenshot is svg or text, not {form!r}", form=form),
                instead=":screenshot svg|text [PATH]",
            )
        app = self.console_app
        forms = (form,) if form else shots.FORMS
        stem = "-".join(part for part in (self.SCREEN_NAME, *self._about()) if part)
        folder = app.engine.state / "screenshots"
        try:
            written = [
                shots.keep(
                    folder, stem, shots.ENDINGS[one], shots.picture(app, one), app.clock(),
                    place.strip(),
                )
                for one in forms
            ]  # fmt: skip
        except OSError as error:
            self.notify(_why(error), severity="error", markup=False)
            return
        told = shown_path(str(written[0]))
        if len(written) > 1:
            told = t("{path} and {ending}", path=told, ending=written[1].suffix)
        self.notify(t("screenshot: {path}", path=told), timeout=PATH_SHOWN_S, markup=False)

    def _about(self) -> Sequence[str]:
        """What tells this screen from others of its kind."""
        node = getattr(self, "node", "")
        return (node,) if isinstance(node, str) and node else ()

    def action_kernel_log(self, name: str = "") -> None:
        """Show a node's whole kernel log."""
        if target := self.named(name):
            from console.tui.screens.kernel import KernelScreen

            self.app.push_screen(KernelScreen(target))


def _why(error: OSError) -> str:
    """A full disk names no file."""
    return plain(": ".join(filter(None, (error.filename, error.strerror))) or str(error))
