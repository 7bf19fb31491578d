"""The plan of a resume tells what changed since the evidence of the drain was taken."""

from __future__ import annotations

import io
import os
import tarfile
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
    Severity,
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


def slow(reason: str = "gpuconsole: GPU5 36 % slow") -> Engine:
    made = engine("b1", "111")
    made.feed(
        Allocation(node="gpu1", at=2.0, scheduler="slurm", state="drained", reason=reason,
                   reason_at=1000.0)
    )  # fmt: skip
    return made


def test_a_slow_node_without_a_memory_wants_a_test() -> None:
    (said,) = since.retest(slow().fleet.nodes["gpu1"], None)
    assert "gpuconsole test gpu1" in said


def test_other_reasons_want_none() -> None:
    made = slow("gpuconsole: Xid 79 on GPU3")
    assert since.retest(made.fleet.nodes["gpu1"], None) == []


def hostile(path: Path, made: object) -> None:
    """A tar.gz with one odd thing in it, in place of the bundle."""
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        assert callable(made)
        made(tar)


def added(tar: tarfile.TarFile, name: str, data: bytes = b"", **more: object) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in more.items():
        setattr(info, key, value)
    tar.addfile(info, io.BytesIO(data))


class Zeros(io.RawIOBase):
    """Endless."""

    def read(self, size: int = -1) -> bytes:
        return b"\0" * size


def bomb(tar: tarfile.TarFile) -> None:
    info = tarfile.TarInfo("x/padding")
    info.size = 1 << 28
    tar.addfile(info, Zeros())


MANIFEST = (
    b'{"schema":1,"node":"gpu1","at":%s,"by":{"user":"u"},"why":"","verdict":"ok",'
    b'"answered":true,"note":"","files":[]}'
)
FACTS = b'{"samples":[],"kernel":[],"status":null}'


def whole(at: bytes, findings: bytes = b"[]") -> object:
    def made(tar: tarfile.TarFile) -> None:
        added(tar, "x/manifest.json", MANIFEST % at)
        added(tar, "x/facts.json", FACTS)
        added(tar, "x/findings.json", findings)

    return made


@pytest.mark.parametrize(
    "made",
    [
        bomb,
        lambda tar: added(tar, "/etc/manifest.json", b"{}"),
        lambda tar: added(tar, "x/manifest.json", type=tarfile.SYMTYPE, linkname="/etc/shadow"),
        lambda tar: added(tar, "x/manifest.json", type=tarfile.LNKTYPE, linkname="x/facts.json"),
        lambda tar: added(tar, "x/manifest.json", b"[" * 1_000_000),
        lambda tar: added(tar, "x/manifest.json", b'"\xff\xfe"'),
        lambda tar: added(tar, "x/manifest.json", b"[1, 2]"),
        whole(b"1e300"),
        whole(b"-1e18"),
        whole(b"1", b"[1]"),
    ],
    ids=["bomb", "absolute", "link", "hard link", "deep", "no text", "a list", "far", "early",
         "findings"],
)  # fmt: skip
def test_hostile_bundles_are_only_unreadable(drained: Path, made: object) -> None:
    path = since.newest("gpu1", drained)
    assert path is not None
    hostile(path, made)
    said = told(engine("b1", "111"), drained)
    assert "cannot be read" in said or "evidence of" in said


def test_every_flipped_byte_is_survived(drained: Path) -> None:
    path = since.newest("gpu1", drained)
    assert path is not None
    raw = path.read_bytes()
    for at in range(0, len(raw), 3):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 0x55]) + raw[at + 1 :])
        assert told(engine("b1", "111"), drained)


def test_a_pipe_or_a_folder_in_its_place(drained: Path) -> None:
    path = since.newest("gpu1", drained)
    assert path is not None
    path.unlink()
    os.mkfifo(path)
    assert "cannot be read" in told(engine("b1", "111"), drained)
    path.unlink()
    path.mkdir()
    assert "cannot be read" in told(engine("b1", "111"), drained)


def test_a_bundle_of_another_node_is_not_taken_for_its_own(drained: Path) -> None:
    """Names that differ in odd characters only lead to one file name."""
    path = since.newest("gpu1", drained)
    assert path is not None
    path.rename(path.with_name(path.name.replace("gpu1", "gpu_1")))
    made = Engine(Inventory(nodes=(Node(name="gpu/1"),), source="test"), Settings(), schedulers={})
    (said,) = since.notes(made.fleet.nodes["gpu/1"], time.time(), drained)
    assert "is of gpu1" in said


def test_words_of_a_bundle_drive_no_terminal(drained: Path) -> None:
    made = engine("b1", "111")
    made.fleet.findings["gpu1"] = [
        Finding(rule="xid.79", severity=Severity.CRITICAL, node="gpu1", say="\x1b[2J\u202egone",
                action=Action.DRAIN)
    ]  # fmt: skip
    evidence.write(made, "gpu1", {}, "", "x", drained)
    assert told(made, drained).isprintable()
