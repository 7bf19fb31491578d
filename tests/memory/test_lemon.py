"""Which node comes first, and what counts for nothing."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from console.memory.lemon import (
    HARD_NOW,
    HISTORY_MOST,
    WINDOW_S,
    Failure,
    Incident,
    Lemon,
    Outage,
    score,
)
from probes.event import Severity
from tests.memory.build import T0

DAY = 86400.0


def incident(
    rule: str = "xid.79", begin: float = 0.0, over: float | None = None, **more: object
) -> Incident:
    """Days before T0; `over` None is open."""
    told: dict[str, object] = {
        "device": "d", "label": "GPU3", "severity": Severity.CRITICAL, "say": "", "count": 1,
        "hard": rule.startswith("xid."), **more,
    }  # fmt: skip
    end = None if over is None else T0 - over * DAY
    return Incident(
        rule=rule, begin=T0 - begin * DAY, seen=end or T0, over=end, **told  # type: ignore[arg-type]
    )  # fmt: skip


def outage(begin: float, over: float | None, reason: str = "xid 79") -> Outage:
    end = None if over is None else T0 - over * DAY
    return Outage(
        state="drained", reason=reason, by="mara", begin=T0 - begin * DAY, seen=end or T0, over=end
    )


def lemon(
    incidents: list[Incident] | None = None, outages: list[Outage] | None = None,
    failures: list[Failure] | None = None,
) -> Lemon:  # fmt: skip
    return score("n1", incidents or [], outages or [], failures or [], T0)


def test_nothing_is_no_lemon() -> None:
    assert (lemon().points, lemon().reasons) == (0, ())


def test_the_worse_comes_first() -> None:
    nodes = [
        lemon([incident(begin=1)]),
        lemon([incident("ib.link_downed", begin=1), incident("gpu.ecc", begin=1)]),
        lemon([incident(begin=9, over=8), incident(begin=7, over=6)], [outage(8, 7)]),
        lemon([incident(begin=9, over=8)]),
        lemon([incident("thermal.hot", begin=1, severity=Severity.WARN)]),
        lemon([incident("thermal.hot", begin=9, over=8, severity=Severity.WARN)]),
        lemon(),
    ]
    points = [node.points for node in nodes]
    assert points == sorted(points, reverse=True)
    assert len(set(points)) == len(points) - 1, "one past fault weighs as much as one warning now"
    assert points[0] == HARD_NOW
    assert str(nodes[0]).startswith("lemon score 100: now: xid.79 on GPU3 since ")


def test_what_nobody_looked_at_for_days_is_not_told_as_now() -> None:
    stale = incident(begin=20)
    stale = msgspec.structs.replace(stale, seen=T0 - 9 * DAY)
    found = lemon([stale])
    assert found.now == 0
    assert 0 < found.history <= HISTORY_MOST
    assert not any(line.startswith("now") for line in found.reasons)


def test_a_return_that_did_not_hold_is_told_with_its_days() -> None:
    held = lemon([incident(begin=20, over=19)], [outage(20, 19)])
    back = lemon([incident(begin=20, over=19), incident(begin=16, over=15)], [outage(20, 19)])
    assert back.points > held.points
    assert any(line.startswith("back ") and "again" in line for line in back.reasons)
    assert not any("again" in line for line in held.reasons)


def test_a_burst_counts_whether_in_one_finding_or_many() -> None:
    one = lemon([incident(begin=9, over=8, count=3)])
    many = lemon([incident(begin=9 - i, over=8.5 - i) for i in range(3)])
    assert any("burst" in line for line in one.reasons)
    assert any("burst" in line for line in many.reasons)
    assert not any("burst" in line for line in lemon([incident(begin=9, over=8)]).reasons)


def test_what_was_planned_is_no_fault() -> None:
    assert (
        lemon(outages=[outage(9, 1, "kernel upgrade"), outage(20, 19, "Maintenance")]).points == 0
    )
    assert lemon(outages=[outage(9, 8, "gpuconsole: Xid 79")]).points > 0


def test_long_out_of_work_weighs_more() -> None:
    assert lemon(outages=[outage(20, 10)]).points > lemon(outages=[outage(20, 19)]).points


def test_failed_tests_count() -> None:
    found = lemon(failures=[Failure(at=T0 - DAY, say="41 of 188 GB/s")])
    assert found.points > 0
    assert "41 of 188 GB/s" in found.reasons[0]


def test_what_is_older_than_the_window_is_forgotten() -> None:
    old = WINDOW_S / DAY + 1
    assert lemon(
        [incident(begin=old + 1, over=old)], [outage(old + 1, old)],
        [Failure(at=T0 - old * DAY, say="")],
    ).points == 0  # fmt: skip


times = st.floats(0.0, 40.0)
past = st.builds(
    lambda rule, a, b, sev, open_: incident(
        rule, max(a, b), None if open_ else min(a, b), severity=sev
    ),
    st.sampled_from(["xid.79", "thermal.hot", "ib.down"]), times, times,
    st.sampled_from(list(Severity)), st.booleans(),
)  # fmt: skip
outs = st.builds(lambda a, b: outage(max(a, b), min(a, b)), times, times)


@given(st.lists(past, max_size=8), st.lists(outs, max_size=5), past)
def test_more_evidence_never_makes_a_better_node(
    incidents: list[Incident], outages: list[Outage], more: Incident
) -> None:
    before, after = lemon(incidents, outages), lemon([*incidents, more], outages)
    assert after.points >= before.points
    assert 0 <= after.history <= HISTORY_MOST
    assert after.points == after.now + after.history
    assert bool(after.points) == bool(after.reasons)
