"""Helper commands come from the findings of a drain's evidence; nothing of them is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from console import evidence
from console.drained import helpers
from console.engine import Engine
from console.settings import Settings
from inventory.node import Inventory, Node
from probes.event import Action, Finding, Severity


def bundle(where: Path, *actions: Action) -> None:
    made = Engine(Inventory(nodes=(Node(name="gpu1"),), source="t"), Settings(), schedulers={})
    made.fleet.findings["gpu1"] = [
        Finding(rule="x.y", severity=Severity.WARN, node="gpu1", device="0000:1b:00.0", say="x",
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
