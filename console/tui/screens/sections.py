"""Screens of a sheet in sections that fold, listed at the side where there is room."""

from __future__ import annotations

from textual import on

from console.tui.node_view import FOLDED, NodeSheet
from console.tui.screens.searching import SearchingScreen
from console.tui.text import Cell, Line, cut, fit, plain
from console.tui.widgets.sheet import Lines
from console.tui.words import t

PANEL = 18
PANEL_FROM = 120
"""From this width on, the sections are listed at the side."""


class SectionedScreen(SearchingScreen):
    """A `#sheet` with its `#sections` in `#body`; tab goes through them."""

    DEFAULT_CSS = f"""
    SectionedScreen #body {{ height: 1fr; }}
    SectionedScreen #sections {{ width: {PANEL}; height: 1fr; overflow: hidden hidden; }}
    """

    def __init__(self) -> None:
        """Nothing drawn yet; `about` stands above the list of sections."""
        super().__init__()
        self.sheet = NodeSheet([], [], [])
        self.folded = FOLDED
        self.section = ""
        """Id of the section the operator is at."""

    def draw_sheet(self) -> None:
        """Make the sheet anew and show it."""
        raise NotImplementedError

    def draw_found(self) -> None:
        """See SearchingScreen."""
        self.draw_sheet()

    def draw_panel(self) -> None:
        """Show the sections, where they are listed."""
        panel = self.query_one("#sections", Lines)
        if panel.display:
            panel.show(self._panel(panel.size.width))

    def on_resize(self) -> None:
        """A narrow terminal has no room for the list of sections."""
        self._fit_panel()

    def _fit_panel(self) -> None:
        self.query_one("#sections", Lines).display = self.app.size.width >= PANEL_FROM

    def _panel(self, width: int) -> list[Line]:
        """The sections; the one the operator is at has the pointer."""
        pointer = self.console_app.look.glyphs.pointer
        lines: list[Line] = [(Cell(fit(plain(self.about), width - 1), "title"),), ()]
        for place in self.sheet.sections[1:]:
            here = place.id == self.section
            folded = "+" if place.id in self.folded and not self.find else " "
            name = cut(place.title.split(":")[0].split(",")[0], width - 4)
            style = "key" if here else "dim" if folded == "+" else "text"
            lines.append((Cell(f"{pointer if here else ' '}{folded} ", "key"), Cell(name, style)))
        keys = t("tab next  z fold")
        return [*lines, (), (Cell(fit(cut(keys, width - 1), width), "dim"),)]

    @on(Lines.Clicked, "#sections")
    def _section_clicked(self, event: Lines.Clicked) -> None:
        at = event.y - 2 + 1
        if 1 <= at < len(self.sheet.sections):
            self._go_to(self.sheet.sections[at].id)

    @on(Lines.Clicked, "#sheet")
    def _title_clicked(self, event: Lines.Clicked) -> None:
        place = next((p for p in self.sheet.sections[1:] if p.first == event.y), None)
        if place is not None:
            self.section = place.id
            self.action_fold()

    def action_next_section(self) -> None:
        """To the next section, around the end."""
        self._step(1)

    def action_previous_section(self) -> None:
        """To the section before."""
        self._step(-1)

    def _step(self, step: int) -> None:
        places = [place.id for place in self.sheet.sections]
        if not places:  # a key typed ahead of the first drawing
            return
        at = places.index(self._here())
        self._go_to(places[(at + step) % len(places)])

    def _here(self) -> str:
        """The section the operator is at, while it is on the screen; else the topmost there."""
        sections, top = self.sheet.sections, int(self.body.scroll_offset.y)
        if not sections:
            return ""
        ends = [place.first for place in sections[1:]] + [len(self.sheet.lines)]
        seen = [
            place.id
            for place, end in zip(sections, ends, strict=True)
            if end > top and place.first < top + self.body.size.height
        ]
        return self.section if self.section in seen else seen[0] if seen else ""

    def _go_to(self, section: str) -> None:
        self.section = section
        self.draw_sheet()
        place = next(p for p in self.sheet.sections if p.id == section)
        self.body.scroll_to(y=place.first, animate=False, force=True)

    def action_fold(self) -> None:
        """Fold the section the operator is at, or open it."""
        self.section = self._here()
        if self.section:
            self.folded = self.folded ^ {self.section}
            self._go_to(self.section)
