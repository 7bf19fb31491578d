"""Scenario files: what is read, and where the complaint points when it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.demo.scenario import DEFAULT, KINDS, load, resized
from inventory.errors import UsageError

GOOD = """\
nodes: gpu[01-04]
seed: 3
jobs:
  - {id: "7", user: ann, nodes: "gpu[01-02]", load: waiting, for_s: 5}
faults:
  - node: gpu02
    kind: ib_flap
    port: mlx5_3/1
    at_s: 4
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "story.yaml"
    path.write_text(text)
    return path


def complaint(tmp_path: Path, text: str) -> str:
    path = write(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        load(path)
    message = str(caught.value)
    assert message.startswith(str(path)), message
    assert "\n" not in message
    return message.removeprefix(str(path))


def test_what_was_written_is_read(tmp_path: Path) -> None:
    scenario = load(write(tmp_path, GOOD))
    assert scenario.nodes == ("gpu01", "gpu02", "gpu03", "gpu04")
    assert scenario.seed == 3
    assert scenario.jobs[0].nodes == ("gpu01", "gpu02")
    assert (scenario.jobs[0].runs(4.9), scenario.jobs[0].runs(5.0)) == (True, False)
    fault = scenario.faults[0]
    assert (fault.kind, fault.port, fault.present(3.9), fault.present(4)) == (
        "ib_flap", "mlx5_3/1", False, True,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("seed: 3", "sed: 3", 2, ("'sed'", "seed")),
        ("kind: ib_flap", "kind: ib_flop", 7, ("'ib_flop'", "ib_flap")),
        ("    at_s: 4", "    at: 4", 9, ("'at'", "at_s")),
        ("at_s: 4", "at_s: soon", 9, ("soon", "seconds")),
        ("at_s: 4", "at_s: -1", 9, ("-1",)),
        ("at_s: 4", "at_s: nan", 9, ("nan",)),
        ("node: gpu02", "node: gpu2", 6, ("'gpu2'", "gpu02")),
        ("gpu[01-02]", "gpu[01-09]", 4, ("gpu05",)),
        ("gpu[01-04]", "gpu[04-01]", 1, ("descending",)),
        ("load: waiting", "load: wating", 4, ("waiting",)),
        ("port: mlx5_3/1", "port: mlx5_30/1", 8, ("mlx5_3/1",)),
        ("    port: mlx5_3/1\n", "", 7, ("port",)),
        ("seed: 3", "seed: 3\nseed: 4", 3, ("again",)),
        ("seed: 3", "\tseed: 3", 2, ("tab",)),
        ("seed: 3", "seed: [", None, ()),
        ("kind: ib_flap", "kind: xid\n    gpu: 8\n    xid: 79", 8, ("0 to 7",)),
        ("kind: ib_flap", "kind: xid\n    gpu: 1", 7, ("xid",)),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_with_its_place(
    tmp_path: Path, old: str, new: str, line: int | None, words: tuple[str, ...]
) -> None:
    assert old in GOOD
    message = complaint(tmp_path, GOOD.replace(old, new, 1))
    if line is not None:
        assert message.startswith(f":{line}: ")
    for word in words:
        assert word in message


@pytest.mark.parametrize("text", ["", "# nothing\n", "- a list\n", "nodes:\n", "seed: 1\n"])
def test_a_file_that_is_no_scenario_is_refused(tmp_path: Path, text: str) -> None:
    complaint(tmp_path, text)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent\.yaml"):
        load(tmp_path / "absent.yaml")


def test_more_nodes_continue_the_series_and_fewer_take_their_faults_along() -> None:
    story = load()
    assert resized(story, 18).nodes[-2:] == ("gpu017", "gpu018")
    small = resized(story, 4)
    assert small.nodes == story.nodes[:4]
    assert {fault.node for fault in small.faults} <= set(small.nodes)
    assert small.drains == ()
    assert all(set(job.nodes) <= set(small.nodes) and job.nodes for job in small.jobs)
    with pytest.raises(UsageError):
        resized(story, 0)


def test_the_default_story_has_what_it_promises() -> None:
    story = load(DEFAULT)
    kinds = {fault.kind for fault in story.faults}
    assert {"thermal", "gpu_lost", "ib_flap", "driver_hang", "row_remap", "unreachable"} <= kinds
    assert kinds <= set(KINDS)
    assert len(story.nodes) == 16
    assert any(job.load == "waiting" for job in story.jobs)
    assert story.drains
    assert any(fault.at_s == 0 for fault in story.faults)
    assert any(fault.at_s > 0 for fault in story.faults)
    assert all(fault.at_s <= 120 for fault in story.faults)
