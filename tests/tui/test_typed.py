"""Typing and pasting are told apart: pure."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from console.tui.typed import FLOOD_CHARS, FLOOD_S, Typed

CALM = 10 * FLOOD_S


def test_typing_goes_through_and_a_key_alone_is_deliberate() -> None:
    typed = Typed()
    for number, key in enumerate("Dy"):
        assert typed.take(key, number * 1.0) == key
        assert typed.deliberate
    assert typed.take("state:crit\r", 3.0) == "state:crit\r"
    assert not typed.deliberate


def test_a_flood_is_left_out_to_its_last_byte_and_typing_goes_on_after_it() -> None:
    typed = Typed()
    assert typed.take("D\n" * FLOOD_CHARS, 0.0) == ""
    assert typed.take("D\ny", FLOOD_S / 2) == ""
    assert typed.floods == 1
    assert typed.take("q", CALM) == "q"


PIECES = st.lists(st.text(st.sampled_from("Dy\n\r x"), min_size=2, max_size=4095), max_size=40)


@given(PIECES)
def test_nothing_of_a_paste_without_brackets_is_a_confirmation(pieces: list[str]) -> None:
    """However a terminal cuts it, as long as no piece is a single key."""
    typed = Typed()
    typed.take("D", 0.0)
    for number, piece in enumerate(pieces, 1):
        typed.take(piece, number * FLOOD_S / 20)
        assert not typed.deliberate


@given(st.text(st.sampled_from("Dy\n x"), min_size=1, max_size=9000), st.data())
def test_a_bracketed_paste_reaches_the_parser_whole(text: str, data: st.DataObject) -> None:
    """In whatever pieces: half of it would leave the parser waiting for the end."""
    whole = f"\x1b[200~{text}\x1b[201~"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    typed, seen = Typed(), ""
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        if start < end:
            seen += typed.take(whole[start:end], start * 1e-6)
    assert seen == whole
    assert typed.take("q", CALM) == "q"
    assert typed.deliberate


def test_what_the_terminal_reports_is_no_key() -> None:
    typed = Typed()
    typed.take("\x1b[I", 0.99)
    typed.take("y", 1.0)
    assert typed.deliberate
    typed.take("\x1b[O", 1.01)
    assert typed.deliberate
