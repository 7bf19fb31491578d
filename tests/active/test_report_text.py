"""The report for the terminal and the picture of the pairs: goldens, widths, hostile words.

`GPUCONSOLE_GOLDENS=write pytest tests/active` rewrites the goldens.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len

from console.active import cells, figures, matrix, text
from console.active.results import (
    Campaign,
    Confidence,
    Group,
    Level,
    Progress,
    RankTime,
    Verdict,
)
from inventory.expressions import expand
from probes.event import Severity
from tests.active import campaigns
from tests.active.strategies import any_campaign

GOLDENS = Path(__file__).parent / "goldens"


def compare(name: str, found: str) -> None:
    """Equal to the golden file, or rewrite it when asked to."""
    path = GOLDENS / f"{name}.txt"
    if os.environ.get("GPUCONSOLE_GOLDENS") == "write":
        path.write_text(found, encoding="utf-8")
    assert path.exists(), f"{path.name} is missing; GPUCONSOLE_GOLDENS=write makes it"
    assert found == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("level", campaigns.LEVELS)
def test_each_level_reads_like_its_golden(level: str) -> None:
    compare(f"{level}_80", text.render(campaigns.LEVELS[level]()))


def test_narrow_and_ascii() -> None:
    found = text.render(campaigns.pairs(), 46, ascii=True)
    assert found.isascii()
    compare("pairs_46_ascii", found)


def test_a_large_campaign_is_folded_to_what_is_to_be_seen() -> None:
    found = text.render(campaigns.round_robin(64))
    compare("pairs_64_nodes", found)
    assert len(found.splitlines()) < 80


def body(found: str) -> list[str]:
    """The lines, without those that are for copying."""
    return found.partition("\nReady commands\n")[0].splitlines()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(any_campaign(), st.integers(20, 200))
def test_any_campaign_is_told_in_the_width_and_without_a_control_character(
    campaign: Campaign, width: int
) -> None:
    found = text.render(campaign, width)
    assert all(char == "\n" or char.isprintable() for char in found)
    assert max(cells.width(line) for line in body(found)) <= width
    plain = text.render(campaign, width, ascii=True)
    assert plain.isascii()
    # The last column is where cutting hides a difference of widths; all others must line up.
    assert max(map(len, body(plain))) <= width


@given(st.text(alphabet="gpu01-節点가각ｇé日本 ", max_size=60), st.integers(2, 40))
def test_cells_count_as_the_terminal_library_counts(given_text: str, room: int) -> None:
    shown = cells.safe(given_text)
    assert cells.width(shown) == cell_len(shown)
    assert cell_len(cells.fit(shown, room)) == room
    rows = cells.wrap(shown, room)
    assert all(cell_len(row) <= room for row in rows)
    assert "".join(rows).replace(" ", "") == shown.replace(" ", "")
    assert len(cells.ascii_only(shown)) == cell_len(shown)


def test_wide_names_stay_in_their_column() -> None:
    names = ["gpu-節点一", "gpu-two", "ｇｐｕ３", "n4"]
    runs = [campaigns.run(pair, 100.0) for r in campaigns.rounds(names) for pair in r]
    found = text.render(campaigns.campaign(Level.PAIRS, names, runs), 80)
    rows = found.partition("over their runs\n")[2].partition("\n\n")[0].splitlines()
    assert len({cell_len(row) for row in rows}) == 1


def test_colour_only_when_asked() -> None:
    campaign = campaigns.pairs()
    assert "\x1b" not in text.render(campaign)
    coloured = text.render(campaign, colour=True)
    assert "\x1b[1;31m✗ crit" in coloured
    stripped = coloured
    for code in ("1", "4", "2", "33", "1;31", "35", "36", "0"):
        stripped = stripped.replace(f"\x1b[{code}m", "")
    assert stripped == text.render(campaign)


def test_verdicts_come_worst_first_and_unknown_before_warn() -> None:
    def told(name: str, severity: Severity, sure: Confidence = Confidence.CERTAIN) -> Verdict:
        return Verdict(
            kind="node", name=name, nodes=(name,), verdict=severity, confidence=sure, say=name
        )

    verdicts = (
        told("n1", Severity.OK),
        told("n2", Severity.WARN),
        told("n3", Severity.UNKNOWN),
        told("n4", Severity.CRITICAL, Confidence.SUSPECTED),
        told("n5", Severity.CRITICAL),
    )
    campaign = replace(campaigns.pairs(), verdicts=verdicts)
    assert [v.name for v in figures.worst_first(campaign)] == ["n5", "n4", "n3", "n2"]
    assert figures.fine_nodes(campaign) == ["n1"]


def test_no_verdict_is_never_ok() -> None:
    campaign = campaigns.campaign(
        Level.NODE, ["n1"], [campaigns.run(("n1",), 10.0)], verdict=Severity.UNKNOWN
    )
    found = text.render(campaign)
    assert "? unkn" in found
    assert "✓" not in found


def test_figures_without_a_measure_are_not_called_too_few() -> None:
    done = campaigns.campaign(Level.NODE, ["n1"], [campaigns.run(("n1",), 10.0)])
    none = campaigns.campaign(Level.NODE, ["n1"], [campaigns.run(("n1",), None)])
    assert "nothing to judge these figures by" in figures.unjudged(done)
    assert "nothing was measured" in figures.unjudged(none)
    assert figures.unjudged(campaigns.pairs()) == ""


@given(st.text(max_size=80), st.text(max_size=80))
def test_a_ready_command_is_three_words_whatever_the_names(drain: str, say: str) -> None:
    bad = Verdict(
        kind="node", name="n", nodes=("n",), verdict=Severity.CRITICAL,
        confidence=Confidence.CERTAIN, say=say,
    )  # fmt: skip
    campaign = replace(campaigns.pairs(), drain=drain, exclude="", verdicts=(bad,))
    for line in figures.commands(campaign):
        words = shlex.split(line, comments=True)
        if words:
            assert words[:3] == ["gpuconsole", "drain", drain]
            assert words[3] == "--reason"
            assert len(words) == 5


def test_the_drain_line_names_the_nodes_of_the_campaign() -> None:
    line = figures.commands(replace(campaigns.pairs(), drain="gpu[007,012]"))[0]
    words = shlex.split(line)
    assert expand(words[2]) == ["gpu007", "gpu012"]
    assert "'gpu[007,012]'" in line


def test_what_was_not_tested_is_said_with_its_reason() -> None:
    told = dict(figures.missing(campaigns.pairs()))
    assert told["gpu[009-010]"] == "busy: 812 alice"
    assert told["gpu002+gpu005"] == "timed out: no answer from rank 9 within 60 s"
    assert figures.missing(campaigns.rails()) == []


def test_an_interrupted_campaign_says_how_much_is_missing() -> None:
    whole = campaigns.pairs()
    waiting = [replace(run, state=Progress.WAITING) for run in whole.runs[:5]]
    part = replace(whole, interrupted=True, runs=(*waiting, *whole.runs[5:]))
    assert "5 of 28 runs are missing" in text.render(part, 160)


def test_the_yardstick_needs_four_runs_or_an_expectation() -> None:
    few = campaigns.campaign(Level.PAIRS, ["a", "b"], [campaigns.run(("a", "b"), 5.0)])
    assert figures.yardstick(few).value is None
    assert matrix.matrix(few) is None
    told = campaigns.campaign(
        Level.PAIRS, ["a", "b"], [campaigns.run(("a", "b"), 5.0, expect=10.0)]
    )
    found = matrix.matrix(told)
    assert found is not None
    assert found.cell("b", "a") == 0.5


def test_a_pair_run_twice_shows_its_lowest_figure() -> None:
    runs = [campaigns.run(("a", "b"), value, expect=100.0) for value in (99.0, 40.0, 97.0)]
    found = matrix.matrix(campaigns.campaign(Level.PAIRS, ["a", "b"], runs))
    assert found is not None
    assert found.cell("a", "b") == 0.4


def test_glyphs_tell_tenths() -> None:
    shown = [matrix.cell_glyph(part) for part in (None, matrix.FAILED, 0.0, 0.29, 0.94, 0.95, 1.4)]
    assert shown == [" ", "✗", "0", "2", "9", "·", "·"]


def test_a_share_beyond_all_measure_is_drawn() -> None:
    """Ten times it is no number any more; a damaged result may hold such a figure."""
    huge = 1.7e308
    assert [matrix.cell_glyph(part) for part in (-huge, huge, float("nan"))] == ["0", "·", "0"]
    assert [cells.bar(share, 4) for share in (-huge, huge)] == ["····", "████"]


def test_a_folded_picture_names_the_ends_of_a_bad_path_and_nothing_else() -> None:
    base = campaigns.round_robin(100, slow=())
    runs = tuple(
        replace(run, busbw_gb_s=60.0) if run.group.nodes == ("gpu020", "gpu080") else run
        for run in base.runs
    )
    found = matrix.matrix(replace(base, runs=runs))
    assert found is not None
    drawn = matrix.picture(found, 60)
    assert [row.node for row in drawn.rows] == ["gpu020", "gpu080"]
    assert (drawn.rows[0].worst_with, drawn.rows[0].below, drawn.rows[0].run) == ("gpu080", 1, 99)
    assert sum(len(block) for block in drawn.columns) == 100


def test_a_failed_pair_is_seen_in_a_folded_picture() -> None:
    base = campaigns.round_robin(80, slow=())
    dead = Group(nodes=("gpu003", "gpu004"))
    runs = tuple(
        replace(run, state=Progress.FAILED, busbw_gb_s=None) if run.group == dead else run
        for run in base.runs
    )
    shown = matrix.text(replace(base, runs=runs))
    assert [line[:6] for line in shown.splitlines() if "✗" in line] == [
        "gpu003",
        "gpu004",
        "· 95% ",
    ]


@pytest.mark.parametrize("severity", list(Severity))
def test_only_what_is_wrong_has_a_word_for_how_sure_it_is(severity: Severity) -> None:
    one = Verdict(
        kind="node", name="n1", nodes=("n1",), verdict=severity,
        confidence=Confidence.SUSPECTED, say="n1: so it is",
    )  # fmt: skip
    told = text.render(replace(campaigns.pairs(), verdicts=(one,)))
    wrong = severity in (Severity.INFO, Severity.WARN, Severity.CRITICAL)
    assert ("(suspected)" in told) == wrong


@pytest.mark.parametrize(("slowest_us", "shown"), [(1020.0, False), (1200.0, True)])
def test_ranks_are_shown_where_they_differ_and_something_is_wrong(
    slowest_us: float, shown: bool
) -> None:
    times = tuple(
        RankTime(rank=i, node="n1", local_rank=i, time_us=us)
        for i, us in enumerate((1000.0, 1010.0, slowest_us))
    )
    run = replace(campaigns.run(("n1",), 10.0), rank_times=times)
    fine = Verdict(
        kind="node", name="n1", nodes=("n1",), verdict=Severity.OK,
        confidence=Confidence.LIKELY, say="n1",
    )  # fmt: skip
    campaign = campaigns.campaign(Level.NODE, ["n1"], [run])
    bad = replace(fine, verdict=Severity.WARN)
    assert ("Ranks at" in text.render(replace(campaign, verdicts=(bad,)))) == shown
    assert "Ranks at" not in text.render(replace(campaign, verdicts=(fine,)))
