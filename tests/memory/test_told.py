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
from probes.event import Sample, Severity, encoder
from tests.memory.build import T0, Clock, memory
from tests.memory.test_memory import campaign


def test_doctor_says_size_and_reach(tmp_path: Path) -> None:
    path = tmp_path / "memory.sqlite"
    assert _memory(path).note, "none yet is no fault"
    ours = memory(path, Clock(T0))
    for node in ("n1", "n2"):
        ours.tap(Sample(node=node, probe="host", at=T0))
    assert ours.close()
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
    ("verdict", "file_says", "passed"),
    [
        (Severity.OK, False, True),
        (Severity.CRITICAL, True, False),
        (None, True, True),
        (None, False, False),
    ],
    ids=["passed", "ran but failed", "known to the file only", "never"],
)
def test_a_resume_asks_the_memory_first(
    tmp_path: Path, verdict: Severity | None, file_says: bool, passed: bool
) -> None:
    results = tmp_path / "tests.ndjson"
    if file_says:
        summary = Sample(node="n1", probe="nccl", device="summary", at=T0, values={"ok": True})
        results.write_bytes(encoder.encode(summary) + b"\n")
    ours = memory(tmp_path / "memory.sqlite", Clock(T0))
    if verdict is not None:
        ours.add_campaign(campaign(400.0, T0, verdict))
    nodes = Inventory(nodes=(Node(name="n1"),), source="test")
    engine = Engine(nodes, Settings(), schedulers={}, state=tmp_path)
    engine.feed(
        Allocation(node="n1", at=T0, scheduler="slurm", state="drained", reason="GPU5 is slow",
                   reason_at=T0 - 3600)
    )  # fmt: skip
    (said,) = since.retest(engine.fleet.nodes["n1"], results, ours)
    assert ("has passed a test since" in said) is passed
    ours.close()
