"""What one node may make us remember, and what its odd frames read as."""

from __future__ import annotations

import msgspec
import pytest

from inventory.node import Node
from probes.answers import ALL_DEVICES_MAX, Answers, events_of
from probes.event import Event, NodeStatus
from probes.talk import Talk
from probes.wire import LINE_BYTES, Err, Hung, Job, Tick


def talk(*lines: bytes) -> tuple[Talk, list[Event]]:
    """A conversation in which the node sent these lines before any hello."""
    events: list[Event] = []
    found = Talk(Node(name="n1"), "MARK", events.append)
    for line in lines:
        found.data(line + b"\n")
    return found, events


def test_a_node_cannot_make_us_remember_without_end() -> None:
    answers = Answers("n1")
    frames: list[Tick | Hung | Err | Job] = []
    for i in range(2000):
        frames += [
            Hung(p="gpu", t=5.0, dev=f"d{i}", since=1.0),
            Err(p=f"p{i}", t=5.0, text="x"),
            Job(id=f"j{i}", state="done"),
            Tick(p=f"q{i % 20}", t=5.0, d={f"d{i}": {"x": 1}}),
        ]
    events = [event for frame in frames for event in events_of(answers, frame, 1.0, 1.0)]
    assert len({(type(e), getattr(e, "probe", ""), getattr(e, "device", "")) for e in events}) > 0
    assert len(events) <= ALL_DEVICES_MAX
    assert answers.over > 0


def test_known_devices_are_heard_when_there_is_no_room_for_more() -> None:
    answers = Answers("n1")
    for i in range(2000):
        list(answers.tick(Tick(p=f"q{i % 20}", t=5.0, d={f"d{i}": {"x": 1}}), 1.0, 1.0))
    again = list(answers.tick(Tick(p="q0", t=6.0, d={"d0": {"x": 2}}), 2.0, 2.0))
    assert [sample.values for sample in again] == [{"x": 2}]


@pytest.mark.parametrize("since", [-1e308, 1e308, float("nan"), float("-inf")])
def test_a_call_cannot_have_hung_longer_than_a_machine_runs(since: float) -> None:
    [event] = events_of(Answers("n1"), Hung(p="gpu", t=5.0, call="c", since=since), 1.0, 1.0)
    assert isinstance(event, NodeStatus)
    assert event.since_s is None
    assert event.text == "hung in c"


def test_a_line_that_was_dropped_is_not_silence() -> None:
    found, _ = talk(b"x" * (LINE_BYTES + 1))
    assert "dropped" in found.said


def test_a_frame_before_the_hello_is_not_silence() -> None:
    frame = msgspec.json.encode({"k": "end", "t": 1.0})
    found, _ = talk(b"MARK " + frame)
    assert '"end"' in found.said
