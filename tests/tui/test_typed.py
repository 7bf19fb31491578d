"""Typing and pasting are told apart: pure."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual._xterm_parser import XTermParser
from textual.events import Key, Paste
from textual.message import Message

from console.tui.typed import FLOOD_CHARS, FLOOD_S, READ_S, Typed

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


def test_only_what_could_be_read_is_confirmed() -> None:
    """A paste that comes in single keys opens a plan and answers it in no time; people do not."""
    typed = Typed()
    typed.take("D", 0.0)
    typed.take("y", 0.05)
    assert typed.deliberate
    assert not typed.confirms(shown_at=0.02)
    typed.take("y", 0.02 + READ_S)
    assert typed.confirms(shown_at=0.02)
    assert not typed.confirms(shown_at=float("inf"))


def keys(reads: Sequence[tuple[float, str]], escape_s: float = 0.05) -> list[str]:
    """What Textual's parser makes of reads at these times."""
    typed, parser = Typed(escape_s), XTermParser()
    events = [e for at, text in reads for e in parser.feed(typed.take(text, at))]
    return [event.key for event in events if isinstance(event, Key)]


@pytest.mark.parametrize("key", "aejqsyz019:/? ")
def test_an_escape_and_the_next_key_are_two_keys(key: str) -> None:
    """Together, as a slow line brings them, or one shortly after the other."""
    alone = keys([(0.0, key)])
    assert keys([(0.0, f"\x1b{key}")]) == ["escape", *alone]
    assert keys([(0.0, "\x1b"), (0.04, key)]) == ["escape", *alone]


def test_alt_stays_where_it_has_a_meaning() -> None:
    """An operator's own keys."""
    assert Typed(0.0).take("\x1bj", 0.0) == "\x1bj"


@pytest.mark.parametrize("sequence", ["\x1b[A", "\x1bOP", "\x1b[<0;3;4M", "\x1b[27u", "\x1b[1;5C"])
def test_a_sequence_is_one_key_however_it_is_cut(sequence: str) -> None:
    """Also right after its escape."""
    whole = keys([(0.0, sequence)])
    assert len(whole) == (0 if sequence.endswith("M") else 1)
    assert keys([(0.0, "\x1b"), (0.01, sequence[1:])]) == whole


@given(st.text(st.sampled_from("Dyq\n[201~\x1b"), max_size=60), st.data())
def test_an_escape_in_a_paste_makes_no_key(text: str, data: st.DataObject) -> None:
    """The parser takes all of it for one paste, however it is cut: coloured output, too."""
    whole = f"\x1b[200~{text.replace(chr(27) + '[201~', '')}\x1b[201~"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    typed, parser = Typed(0.05), XTermParser()
    events: list[Message] = []
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        if start < end and (kept := typed.take(whole[start:end], start * 1e-6)):
            events += parser.feed(kept)
    assert [type(event) for event in events] == [Paste]
    events += parser.feed(typed.take("q", CALM))
    assert [event.key for event in events if isinstance(event, Key)] == ["q"]


def test_two_pastes_in_one_read() -> None:
    """And what is typed between them stays typed."""
    one = "\x1b[200~a\x1by\x1b[201~"
    assert Typed().take(f"{one}j{one}", 0.0) == "\x1b[200~ay\x1b[201~j\x1b[200~ay\x1b[201~"
