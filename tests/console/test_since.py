"""The plan of a resume tells what changed since the evidence of the drain was taken."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from console import evidence, since
from console.engine import Engine
from console.settings import Settings
from inventory.node import Inventory, Node
from inventory.scheduler import Allocation
from probes.event import (
    Action,
    Finding,
    NodeState,
    NodeStatus,
    Sample,
    Scalar,
    Severity,
    encoder,
)

PCI = "0000:61:00.0"


def engine(boot: str, serial: str, driver: str = "580.95.05") -> Engine:
    made = Engine(Inventory(nodes=(Node(name="gpu1"),), source="test"), Settings(), schedulers={})
    made.feed(NodeStatus(node="gpu1", at=1.0, state=NodeState.UP))
    made.feed(Sample(node="gpu1", probe="hello", at=1.0, values={"boot_id": boot}))
    made.feed(
        Sample(node="gpu1", probe="inventory", device=PCI, at=1.0,
               values={"index": 3, "serial": serial})
    )  # fmt: skip
    made.feed(Sample(node="gpu1", probe="inventory", at=1.0, values={"driver_version": driver}))
    return made


@pytest.fixture
def drained(tmp_path: Path) -> Path:
    """A bundle of boot b1 with card 111 and a finding."""
    made = engine("b1", "111")
    made.fleet.findings["gpu1"] = [
        Finding(rule="xid.79", severity=Severity.CRITICAL, node="gpu1", say="GPU3: Xid 79",
                action=Action.DRAIN)
    ]  # fmt: skip
    evidence.write(made, "gpu1", {}, "", "xid 79", tmp_path)
    return tmp_path


def told(made: Engine, where: Path) -> str:
    return " | ".join(since.notes(made.fleet.nodes["gpu1"], time.time(), where))


def test_nothing_happened(drained: Path) -> None:
    said = told(engine("b1", "111"), drained)
    assert "GPU3: Xid 79" in said
    assert "not rebooted since" in said
    assert "another card" not in said
    assert "driver" not in said


def test_a_new_card_after_a_reboot(drained: Path) -> None:
    said = told(engine("b2", "222", "580.105.08"), drained)
    assert "gpu1: rebooted since" in said
    assert "GPU3 at 0000:61:00.0 is another card: 111 then, 222 now" in said
    assert "driver 580.95.05 then, 580.105.08 now" in said


def test_a_card_that_is_missing_is_only_claimed_when_cards_were_read(drained: Path) -> None:
    made = engine("b1", "111")
    facts = made.fleet.nodes["gpu1"]
    facts.latest.pop(("inventory", PCI))
    assert "not there" not in told(made, drained)
    made.feed(
        Sample(node="gpu1", probe="inventory", device="0000:1b:00.0", at=2.0,
               values={"index": 0, "serial": "000"})
    )  # fmt: skip
    assert f"at {PCI} is not there any more" in told(made, drained)


def test_the_newest_bundle_counts(drained: Path) -> None:
    evidence.write(engine("b2", "222"), "gpu1", {}, "", "again", drained)
    assert "another card" not in told(engine("b2", "222"), drained)


def test_without_a_bundle_nothing_is_told(tmp_path: Path) -> None:
    assert since.notes(engine("b1", "111").fleet.nodes["gpu1"], time.time(), tmp_path) == []


@pytest.mark.parametrize("size", [0, 1, 20, 200, 600])
def test_a_broken_bundle_says_so(drained: Path, size: int) -> None:
    path = since.newest("gpu1", drained)
    assert path is not None
    path.write_bytes(path.read_bytes()[:size])
    assert "cannot be read" in told(engine("b1", "111"), drained)


def result(path: Path, node: str, at: float, *, ok: bool) -> None:
    values: dict[str, Scalar] = {"ok": ok, "busbw_max_gb_s": 458.0}
    sample = Sample(node=node, probe="nccl", device="summary", at=at, values=values)
    with path.open("ab") as file:
        file.write(encoder.encode(sample) + b"\n")


def slow(reason: str = "gpuconsole: GPU5 36 % slow") -> Engine:
    made = engine("b1", "111")
    made.feed(
        Allocation(node="gpu1", at=2.0, scheduler="slurm", state="drained", reason=reason,
                   reason_at=1000.0)
    )  # fmt: skip
    return made


@pytest.mark.parametrize(
    ("node", "at", "ok", "passed"),
    [
        ("gpu1", 2000.0, True, True),
        ("gpu1", 2000.0, False, False),
        ("gpu1", 500.0, True, False),
        ("gpu2", 2000.0, True, False),
    ],
    ids=["passed", "failed", "before the drain", "another node"],
)
def test_a_slow_node_wants_a_passing_test(
    tmp_path: Path, node: str, at: float, ok: bool, passed: bool
) -> None:
    path = tmp_path / "tests.ndjson"
    path.write_bytes(b"not json\n")
    result(path, node, at, ok=ok)
    (said,) = since.retest(slow().fleet.nodes["gpu1"], path)
    assert ("has passed a test since" in said) is passed
    assert ("gpuconsole test gpu1" in said) is not passed


def test_other_reasons_want_none(tmp_path: Path) -> None:
    made = slow("gpuconsole: Xid 79 on GPU3")
    assert since.retest(made.fleet.nodes["gpu1"], tmp_path / "none") == []
