"""The filter language on one subject."""

from __future__ import annotations

import pytest

from console.tui.filter import Filter, FilterError
from console.tui.summary import Gpus, Summary
from probes.event import NodeState, Severity

SICK = Summary(
    name="gpu017",
    severity=Severity.CRITICAL,
    status=NodeState.UP,
    group="h100",
    sched="draining",
    gpus=Gpus(answering=7, expected=8, temp_c=88.0, util_percent=12.5),
    jobs=("812",),
    users=("alice",),
    findings=2,
    rules=("xid.79", "gpu.lost"),
    xids=("79",),
    latest=100.0,
    now=130.0,
    text="gpu017 h100 critical up gpu3 is lost [red] draining 812 alice",
)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "state:crit",
        "state:critical",
        "state:draining",
        "state:ok,crit",
        "node:gpu0*",
        "node:017",
        "xid:79",
        "xid:48,79",
        "job:812",
        "user:alice",
        "rule:gpu",
        "group:h100",
        "temp>85",
        "temp>=88",
        "temp>85C",
        "util<13",
        "gpus<8",
        "findings=2",
        "age>20",
        "!state:ok",
        "!temp>90",
        "lost",
        "LOST",
        '"is lost"',
        "[red]",
        "state:crit temp>85 !user:bob lost",
        "!power>100",
    ],
)
def test_matches(text: str) -> None:
    """Each of these finds the sick node."""
    assert Filter(text)(SICK)


@pytest.mark.parametrize(
    "text",
    [
        "state:ok",
        "node:gpu1*",
        "xid:7",
        "job:81",
        "user:ali",
        "temp>88",
        "temp<88",
        "!lost",
        "state:crit temp>90",
        "power>100",
        "power<100",
        "nowhere",
    ],
)
def test_does_not_match(text: str) -> None:
    """None of these does; an unknown reading satisfies no comparison."""
    assert not Filter(text)(SICK)


@pytest.mark.parametrize(
    ("text", "column", "says"),
    [
        ("tmp>85", 1, "temp"),
        ("state:crit tmp>85", 12, "temp"),
        ("temp>hot", 6, "number"),
        ("temp>", 6, "value"),
        ('lost "never closed', 6, "not closed"),
        ("node>3", 5, "colon"),
        ("!", 1, "nothing"),
        ("nonsense:3", 1, "fields"),
    ],
)
def test_errors_are_one_sentence_with_a_position(text: str, column: int, says: str) -> None:
    """What is wrong, where, and what to write instead."""
    with pytest.raises(FilterError) as raised:
        Filter(text)
    assert raised.value.at == column
    assert f"column {column}" in str(raised.value)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)
