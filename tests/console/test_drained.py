"""Helper commands come from the findings of a drain's evidence; nothing of them is run."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from console import evidence
from console.drained import helpers, out_of_work
from console.engine import Engine
from console.settings import Settings
from inventory.node import Inventory, Node
from inventory.scheduler import Allocation
from probes.event import Action, Finding, Severity


def bundle(where: Path, *actions: Action, device: str = "0000:1b:00.0") -> None:
    made = Engine(Inventory(nodes=(Node(name="gpu1"),), source="t"), Settings(), schedulers={})
    made.fleet.findings["gpu1"] = [
        Finding(rule="x.y", severity=Severity.WARN, node="gpu1", device=device, say="x",
                action=action)
        for action in actions
    ]  # fmt: skip
    evidence.write(made, "gpu1", {}, "", "why", where)


RESET = "ssh gpu1 sudo nvidia-smi --gpu-reset -i 0000:1b:00.0"


@pytest.mark.parametrize(
    ("actions", "commands"),
    [
        ((), []),
        ((Action.WATCH, Action.DRAIN), []),
        ((Action.RESET_GPU, Action.RESET_GPU), [RESET]),
        ((Action.RESET_GPU, Action.REBOOT), [RESET, "ssh gpu1 sudo systemctl reboot"]),
    ],
)
def test_what_the_findings_ask_for(
    tmp_path: Path, actions: tuple[Action, ...], commands: list[str]
) -> None:
    bundle(tmp_path, *actions)
    assert helpers("gpu1", tmp_path) == commands


def test_without_evidence_there_is_nothing_to_print(tmp_path: Path) -> None:
    assert helpers("gpu1", tmp_path) == []
    (tmp_path / "gpu1-20260303T040506Z.tar.gz").write_bytes(b"broken")
    assert helpers("gpu1", tmp_path) == []


def test_a_device_is_a_word_never_a_command(tmp_path: Path) -> None:
    """The node sent it; the operator pastes the line."""
    device = "0; touch /tmp/x $(reboot)"
    bundle(tmp_path, Action.RESET_GPU, device=device)
    (command,) = helpers("gpu1", tmp_path)
    words = shlex.split(command)
    assert words[:2] == ["ssh", "gpu1"]
    assert shlex.split(" ".join(words[2:])) == ["sudo", "nvidia-smi", "--gpu-reset", "-i", device]


def test_a_bundle_of_another_node_or_with_flipped_bytes_asks_for_nothing(tmp_path: Path) -> None:
    bundle(tmp_path, Action.RESET_GPU)
    (path,) = tmp_path.iterdir()
    path.with_name(path.name.replace("gpu1-", "gpu2-")).write_bytes(path.read_bytes())
    assert helpers("gpu2", tmp_path) == []
    raw = bytearray(path.read_bytes())
    for at in range(20, len(raw)):
        raw[at] ^= 0x55
    path.write_bytes(bytes(raw))
    assert helpers("gpu1", tmp_path) == []


def test_evidence_of_another_state_folder_is_not_asked(tmp_path: Path) -> None:
    """The demo's nodes have names that real ones may have."""
    nodes = Inventory(nodes=(Node(name="gpu1", scheduler="slurm"),), source="t")
    allocation = Allocation(node="gpu1", at=1.0, scheduler="slurm", state="drained")
    for folder, asked in (("real", [RESET]), ("demo", [])):
        made = Engine(nodes, Settings(), schedulers={}, state=tmp_path / folder)
        made.feed(allocation)
        if folder == "real":
            made.bundles.mkdir(parents=True)
            bundle(made.bundles, Action.RESET_GPU)
        (entry,) = out_of_work(made, 2.0)
        assert entry.commands == asked
