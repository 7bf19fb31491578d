"""Who else tells what the memory knows: doctor, and the plan of a resume."""

from __future__ import annotations

from pathlib import Path

import pytest

from console import since
from console.doctor import _memory
from console.engine import Engine
from console.memory import schema, store
from console.settings import Settings
from inventory.node import Inventory, Node
from inventory.scheduler import Allocation
from probes.event import Sample, Severity
from tests.memory.build import T0, Clock, memory
from tests.memory.test_memory import campaign


def test_doctor_says_size_and_reach(tmp_path: Path) -> None:
    path = tmp_path / "memory.sqlite"
    assert _memory(path).note, "none yet is no fault"
    ours = memory(path, Clock(T0))
    for node in ("n1", "n2"):
        ours.tap(Sample(node=node, probe="host", at=T0))
    assert ours.close(200)
    line = _memory(path)
    assert line.ok
    assert ", 2 nodes since" in line.what
    path.with_name(f"{path.name}.broken-20260101T000000Z").touch()
    assert "1 damaged" in _memory(path).advice


def test_doctor_says_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "memory.sqlite"
    db = store.connect(path, 1 << 20)
    db.execute(f"PRAGMA user_version={schema.VERSION + 1}")
    db.close()
    assert not _memory(path).ok
    assert "newer" in _memory(path).advice
    path.write_bytes(b"no database" * 1000)
    assert not _memory(path).ok


@pytest.mark.parametrize(
    ("verdict", "node", "after_s", "passed"),
    [
        (Severity.OK, "n1", -3600.0, True),
        (Severity.CRITICAL, "n1", -3600.0, False),
        (Severity.OK, "n1", 3600.0, False),
        (Severity.OK, "n2", -3600.0, False),
        (None, "n1", -3600.0, False),
    ],
    ids=["passed", "ran but failed", "before the drain", "another node", "never"],
)
def test_a_resume_asks_the_memory(
    tmp_path: Path, verdict: Severity | None, node: str, after_s: float, passed: bool
) -> None:
    ours = memory(tmp_path / "memory.sqlite", Clock(T0))
    if verdict is not None:
        ours.add_campaign(campaign(400.0, T0, verdict))
    nodes = Inventory(nodes=(Node(name=node),), source="test")
    engine = Engine(nodes, Settings(), schedulers={}, state=tmp_path)
    engine.feed(
        Allocation(node=node, at=T0, scheduler="slurm", state="drained", reason="GPU5 is slow",
                   reason_at=T0 + after_s)
    )  # fmt: skip
    (said,) = since.retest(engine.fleet.nodes[node], ours)
    assert ("has passed a test since" in said) is passed
    ours.close()
