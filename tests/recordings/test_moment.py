"""What people write for a moment."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.recording.moment import clock, second_of
from console.recording.tape import Span
from inventory.errors import UsageError

START = 1_796_000_400.0  # 2026-11-30 01:00:00 UTC
DAY = Span(("n1",), START, START + 7 * 3600 - 0.5)


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


@pytest.mark.parametrize(
    ("text", "second"),
    [
        ("03:12", 192), ("1:03:12", 3792), ("90", 90), ("90s", 90), ("5m", 300), ("1h5m", 3900),
        ("1h2m3s", 3723), ("+5m", 1300), ("-30s", 970), ("-5h", 0), ("+9h", 25200), ("50%", 12600),
        ("start", 0), ("end", 25200), ("@01:00", 0), ("@03:04:05", 7445), (" 90 ", 90),
        ("@00:30", 25200),
    ],
)  # fmt: skip
def test_a_moment(text: str, second: int) -> None:
    assert second_of(text, 1000, DAY) == second


def test_a_clock_time_may_be_of_the_next_day() -> None:
    night = Span(("n1",), START + 22 * 3600, START + 26 * 3600)  # 23:00 to 03:00
    assert second_of("@23:30", 0, night) == 1800
    assert second_of("@02:15", 0, night) == 3 * 3600 + 900


@pytest.mark.parametrize(
    "text", ["", "x", "1x", "+", "3:", ":30", "@", "@25:00", "@1", "%", "-%", "1e9", "²", "9" * 50]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no time of a recording"):
        second_of(text, 0, DAY)


@given(st.integers(0, DAY.seconds))
def test_what_the_bar_shows_can_be_typed(second: int) -> None:
    assert second_of(clock(second), 0, DAY) == second


@given(st.text(max_size=12), st.integers(0, DAY.seconds))
def test_no_text_leaves_the_recording(text: str, here: int) -> None:
    try:
        second = second_of(text, here, DAY)
    except UsageError:
        return
    assert 0 <= second <= DAY.seconds
