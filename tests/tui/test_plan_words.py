"""A plan's own sentences: English as data, in the operator's language on the screen."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from console import plan as planning
from console.active import safety, store
from console.active.ask import Asked
from console.active.results import Campaign, Level
from console.output import as_json
from console.said import Said, plainly, said
from console.tui import words
from console.tui.plan_view import plan_lines
from console.tui.text import line_text
from console.tui.theme import UNICODE
from console.tui.words import spoken
from inventory.scheduler import Plan
from probes.event import Severity
from tests.console.test_plan import SLURM, State, allocation, allocations, fleet, wanted

FIELD = re.compile(r"\{\w+\}")
HAN = re.compile(r"[\u4e00-\u9fff]")


@pytest.fixture
def _zh() -> Iterator[None]:
    words.use("zh")
    yield
    words.use("en")


def pieces(text: str) -> Iterator[Said]:
    """A sentence and those inside it."""
    if isinstance(text, Said):
        yield text
        for value in text.values.values():
            if isinstance(value, str):
                yield from pieces(value)


def in_english() -> Plan:
    held = allocation("n2", "drained", "bad DIMM {0} {who}")
    return planning.plan(
        "drain", ["n1", "n2", "n3"], "why", fleet({"n1": allocation("n1", jobs=1), "n2": held}),
        SLURM,
    )  # fmt: skip


@given(allocations, wanted, st.sampled_from(["drain", "resume"]))
def test_every_sentence_is_spoken(state: State, names: list[str], verb: str) -> None:
    plan = planning.plan(verb, names, "why", fleet(state), SLURM)
    own = [one for text in (*plan.warnings, *plan.refused.values()) for one in pieces(text)]
    assert all(text in own for text in plan.refused.values())
    words.use("zh")
    try:
        assert [one for one in own if re.search("[A-Za-z]", FIELD.sub("", one.pattern))
                and not HAN.search(spoken(one))] == []  # fmt: skip
    finally:
        words.use("en")


@pytest.mark.usefixtures("_zh")
def test_the_screen_speaks_and_the_document_does_not() -> None:
    plan = in_english()
    drawn = "".join(line_text(line).strip() for line in plan_lines(plan, UNICODE, 200))
    assert "n1 没有应答：计划只依据调度器" in drawn
    assert "作业 0（u）2 个节点中的 1 个：它继续运行直到结束" in drawn
    assert "n2: 已由 他人 置为 drained：bad DIMM {0} {who}" in drawn
    document = msgspec.json.decode(as_json(plan, indent=False))
    assert "n1 has not answered: the plan rests on the scheduler alone" in document["warnings"]
    assert document["refused"]["n2"] == "already drained by somebody else: bad DIMM {0} {who}"


def test_in_english_it_is_what_it_was_as_data() -> None:
    plan = in_english()
    assert [spoken(text) for text in plan.warnings] == [*plan.warnings]
    assert spoken("Xid 79 {gpu}") == "Xid 79 {gpu}"


@pytest.mark.usefixtures("_zh")
def test_what_keeps_a_node_from_a_test_is_spoken() -> None:
    """Until it ends the console looks again by the English."""
    answer = safety.judge(fleet({}).nodes["n1"], safety.Claim())
    assert answer.waits
    assert answer.refused == "no live session (pending), not read yet"
    assert spoken(answer.refused) == "没有活动会话（pending），尚未读取"


def test_a_campaign_keeps_why_a_node_was_refused(tmp_path: Path) -> None:
    why = said("{person} may not {verb} {node} ({path})", person="a", verb="test", node="n1",
               path=Path("/etc/p.yaml"))  # fmt: skip
    campaign = Campaign(
        schema=store.SCHEMA, id="20261130T000000Z-pairs", level=Level.PAIRS, nodes=("n1",), at=0.0,
        duration_s=0.0, interrupted=False, refused={"n1": why}, rounds=0, runs=(), verdicts=(),
        verdict=Severity.UNKNOWN, drain="", exclude="",
    )  # fmt: skip
    store.save(
        tmp_path, store.Kept(asked=Asked(level=Level.PAIRS, nodes=("n1",)), campaign=campaign)
    )
    (kept,) = store.listed(tmp_path)
    assert kept.campaign.refused == {"n1": "a may not test n1 (/etc/p.yaml)"}


def test_an_encoder_still_refuses_what_is_no_sentence() -> None:
    with pytest.raises(TypeError, match="PosixPath"):
        msgspec.json.encode(Path("/"), enc_hook=plainly)
