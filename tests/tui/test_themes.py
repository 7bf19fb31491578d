"""Each theme can be read and told apart; themes change while the console runs."""

from __future__ import annotations

import itertools

import pytest
from rich.style import Style

from console.tui.app import ConsoleApp
from console.tui.palettes import HEAT, MONO, THEMES
from console.tui.theme import ASCII, UNICODE, Depth, Look, ground_of, look_here
from console.tui.views import VIEW_IDS
from inventory.errors import UsageError
from tests.tui.colour import SIGHT, Rgb, contrast, distance, lab, seen
from tests.tui.conftest import Opener

GROUNDS: dict[str, tuple[tuple[Rgb, Rgb], ...]] = {
    "dark": (((229, 229, 229), (0, 0, 0)), ((131, 148, 150), (0, 43, 54))),
    "light": (((0, 0, 0), (255, 255, 255)), ((88, 110, 117), (253, 246, 227))),
}
"""(letters, ground) a theme assumes: xterm's own, and Solarized's, the least contrast that is in
common use. What a style leaves to the terminal is the terminal's own contrast."""
SEVERITIES = ("ok", "info", "warn", "critical", "unknown")
CASES = [
    (theme, ground, colours)
    for theme in THEMES
    for ground in ("dark", "light")
    for colours in (16, 256)
]


def looks(theme: str, ground: str, colours: int) -> tuple[Look, tuple[tuple[Rgb, Rgb], ...]]:
    """The look and the grounds it may stand on."""
    fixed = {"dark": "dark", "light": "light", "high-contrast": "dark"}
    places = GROUNDS[fixed.get(theme, ground)]
    if theme == "high-contrast":
        places = (((255, 255, 255), (0, 0, 0)),)
    return Look(UNICODE, Depth(colours), theme, ground), places[: 1 if colours == 16 else 2]


@pytest.mark.parametrize(("theme", "ground", "colours"), CASES)
@pytest.mark.parametrize("name", MONO)
def test_contrast(theme: str, ground: str, colours: int, name: str) -> None:
    """Every style reaches WCAG AA on each ground its theme assumes; high contrast AAA."""
    look, places = looks(theme, ground, colours)
    least = 7.0 if theme == "high-contrast" else 4.5
    for style in (look.style(name), look.cursor(name)):
        for letters, back in places:
            if style.color is None and style.bgcolor is None:
                continue
            assert contrast(*seen(style, letters, back)) >= least, (name, str(style))


@pytest.mark.parametrize(("theme", "ground", "colours"), CASES)
def test_severities_differ(theme: str, ground: str, colours: int) -> None:
    """Severities are told apart with every common sight; in the theme made for it at a glance."""
    look, places = looks(theme, ground, colours)
    least = {256: 20.0, 16: 18.0}[colours] if theme == "colour-blind" else 10.0
    letters, back = places[0]
    for one, two in itertools.combinations(SEVERITIES[1:], 2):
        styles = look.style(one), look.style(two)
        if len({_shape(style) for style in styles}) == 2:
            continue
        fronts = [seen(style, letters, back)[0] for style in styles]
        for sight in SIGHT:
            assert distance(fronts[0], fronts[1], sight) >= least, (one, two, sight)


def _shape(style: Style) -> tuple[bool, bool]:
    return bool(style.underline), style.reverse or style.bgcolor is not None


@pytest.mark.parametrize(("theme", "ground", "colours"), CASES)
@pytest.mark.parametrize("sight", SIGHT)
def test_heat_is_a_ramp(theme: str, ground: str, colours: int, sight: str) -> None:
    """Lightness goes one way only, whoever looks: up on dark grounds, down on bright ones."""
    look, places = looks(theme, ground, colours)
    letters, back = places[0]
    lightness = [lab(seen(look.style(name), letters, back)[1], sight)[0] for name in HEAT]
    if back != (0, 0, 0):
        lightness.reverse()
    steps = [after - before for before, after in itertools.pairwise(lightness)]
    assert min(steps) > (5 if colours == 256 else 0), lightness


@pytest.mark.parametrize("theme", THEMES)
def test_no_colour_in_any_theme(theme: str) -> None:
    """NO_COLOR wins over a theme."""
    look = Look(UNICODE, Depth(0), theme)
    styles = [f(name) for name in MONO for f in (look.style, look.cursor)]
    assert all(style.color is None and style.bgcolor is None for style in styles)


def test_ground_by_environment() -> None:
    """COLORFGBG as rxvt, Konsole and iTerm2 write it; anything else is taken for dark."""
    told = {"0;15": "light", "15;0": "dark", "0;default;15": "light", "12;8": "dark"}
    assert {text: ground_of({"COLORFGBG": text}) for text in told} == told
    assert {ground_of(env) for env in ({}, {"COLORFGBG": ";"}, {"COLORFGBG": "x;99"})} == {"dark"}


def test_look_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Theme and ASCII as the operator wants them, the rest as the terminal is."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORFGBG", "0;15")
    monkeypatch.delenv("NO_COLOR", raising=False)
    look = look_here("utf-8", theme="colour-blind", ascii=True)
    assert (look.glyphs, look.theme, look.depth) == (ASCII, "colour-blind", Depth(256))
    light = Look(UNICODE, Depth(256), "colour-blind", "light")
    assert look.style("warn") == light.style("warn")


@pytest.mark.parametrize("name", VIEW_IDS)
async def test_change_while_running(console: Opener, name: str) -> None:
    """Everything on the screen, blank cells too, follows a new theme, also below a node."""
    async with console(size=(80, 24)) as c:
        c.app.go(name)
        await c.tick()
        c.app.open_node("gpu017")
        c.app.set_theme("high-contrast")
        await c.press()
        assert "default" not in _grounds(c.app)
        await c.press("escape")
        await c.tick()
        assert "default" not in _grounds(c.app)
        c.app.set_theme("auto")
        await c.tick()
        assert "color(16)" not in _grounds(c.app)
        with pytest.raises(UsageError, match="pink"):
            c.app.set_theme("pink")


def _grounds(app: ConsoleApp) -> set[str]:
    """Names of all grounds on the screen but the scroll bar's."""
    strips = app.screen._compositor.render_strips()
    segments = [segment for strip in strips for segment in strip.crop(0, 79)]
    colours = [segment.style.bgcolor if segment.style else None for segment in segments]
    return {"default" if colour is None else colour.name for colour in colours}
