"""Any campaign at all, as a hostile or broken node, engine or file could make it."""

from __future__ import annotations

from hypothesis import strategies as st

from console.active.results import (
    Campaign,
    Confidence,
    Group,
    Level,
    Progress,
    RankTime,
    Reading,
    Row,
    Run,
    Verdict,
)
from probes.event import Severity

WORDS = st.one_of(
    st.sampled_from(
        [
            "", "gpu001", "gpu002", "gpu010", "節点七", "<script>alert(1)</script>", "a'b\"c & d",
            "\x1b[31mred\x1b[0m", "]]>", "-->", "line\nbreak\r", "\u202egpu\u2066", "x" * 500,
            "javascript:alert(1)", "&lt;b&gt;", "é\u0301\u0301", "\ud800", "\x00", "</style><b>",
        ]
    ),
    st.text(max_size=40),
)  # fmt: skip
FLOATS = st.one_of(st.floats(), st.sampled_from([0.0, 41.2, 185.5, 1e308, -1e308, 5e-324]))
MAYBE = st.one_of(st.none(), FLOATS)
WHOLE = st.integers(-(2**62), 2**62)
SEVERITIES = st.sampled_from(list(Severity))


def groups(level: Level) -> st.SearchStrategy[Group]:
    """Mostly of the shape the level has."""
    names = st.lists(WORDS, max_size=2 if level is Level.PAIRS else 4).map(tuple)
    return st.builds(Group, nodes=names, rail=st.one_of(st.none(), WHOLE), why=WORDS)


def runs(level: Level) -> st.SearchStrategy[Run]:
    """One run."""
    reading = st.builds(
        Reading,
        what=st.one_of(st.sampled_from(["busbw", "busbw_ring", "wire_per_gpu", "p2p"]), WORDS),
        value=FLOATS, unit=WORDS, node=WORDS, device=WORDS, label=WORDS, expected=MAYBE,
        provenance=WORDS, verdict=SEVERITIES,
    )  # fmt: skip
    row = st.builds(
        Row, size_bytes=WHOLE, time_us=MAYBE, algbw_gb_s=MAYBE, busbw_gb_s=MAYBE,
        wrong=st.one_of(st.none(), WHOLE),
    )  # fmt: skip
    rank = st.builds(RankTime, rank=WHOLE, node=WORDS, local_rank=WHOLE, time_us=FLOATS)
    return st.builds(
        Run,
        group=groups(level), round=WHOLE, state=st.sampled_from(list(Progress)),
        started_at=FLOATS, duration_s=FLOATS, engine=WORDS, version=WORDS,
        ranks=st.one_of(st.none(), WHOLE), busbw_gb_s=MAYBE,
        rows=st.lists(row, max_size=4).map(tuple), rank_times=st.lists(rank, max_size=3).map(tuple),
        readings=st.lists(reading, max_size=4).map(tuple),
        clues=st.lists(WORDS, max_size=3).map(tuple), error=WORDS,
    )  # fmt: skip


VERDICTS = st.builds(
    Verdict,
    kind=st.sampled_from(["node", "gpu", "path", "rail", "group", "fabric", "job", "<kind>"]),
    name=WORDS, nodes=st.lists(WORDS, max_size=3).map(tuple), verdict=SEVERITIES,
    confidence=st.sampled_from(list(Confidence)), say=WORDS,
    evidence=st.lists(WORDS, max_size=12).map(tuple), cause=WORDS, next_step=WORDS,
    expected=MAYBE, unit=WORDS, provenance=WORDS,
)  # fmt: skip


@st.composite
def any_campaign(draw: st.DrawFn) -> Campaign:
    """Anything the type allows."""
    level = draw(st.sampled_from(list(Level)))
    return Campaign(
        schema=1,
        id=draw(WORDS),
        level=level,
        nodes=tuple(draw(st.lists(WORDS, max_size=6))),
        at=draw(FLOATS),
        duration_s=draw(FLOATS),
        interrupted=draw(st.booleans()),
        refused=draw(st.dictionaries(WORDS, WORDS, max_size=3)),
        rounds=draw(WHOLE),
        runs=tuple(draw(st.lists(runs(level), max_size=8))),
        verdicts=tuple(draw(st.lists(VERDICTS, max_size=4))),
        verdict=draw(SEVERITIES),
        drain=draw(WORDS),
        exclude=draw(WORDS),
    )
