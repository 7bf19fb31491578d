"""NVML cases: the simulated library, the real binding and probes, then the judge."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from console.demo import sysfs
from probes.event import Action, Finding, Severity
from tests.cases.support import about, demand, dump, judged, severity
from tests.judging.build import SLOTS, Built
from tests.probes_node.rig import Machine
from tests.probes_node.test_nvml_cases import load

LOST = "nvml-one-lost-of-eight"
RENUMBERED = "nvml-renumber-after-loss"
FABRIC = "nvml-fabric-in-progress"
PROBES = {"nvml": "gpu", "inventory": "inventory", "nvlink": "nvlink", "fabric": "fabric"}
Answers = dict[str, dict[str, Any]]


def answers(machine: Machine) -> Answers:
    """What each probe says now: metric name -> {devices, rows}."""
    with machine.session() as session:
        return {PROBES[p]: session.ask(op="collect", probe=p) for p in PROBES}


def put(node: Built, said: Answers) -> None:
    for probe, answer in said.items():
        for known, device in list(node.facts.latest):
            if known == probe and device and device not in answer["devices"]:
                node.put(probe, device, gone=True)
        for device, values in answer["devices"].items():
            node.put(probe, device, rows=answer["rows"] if not device else None, **values)


def machine_of(case: str, path: Path) -> Machine:
    machine = Machine(path / "node", sys.executable)
    sysfs.build(machine.root, gpus=[slot[5:7] for slot in SLOTS])
    load(machine, dump(case))
    return machine


def seen(case: str, path: Path, before: bool = False) -> tuple[Severity, list[Finding], Built]:
    """A node without history (or watched before), judged by the case's answers."""
    node = Built()
    if not before:
        for probe, device in list(node.facts.latest):
            if probe in PROBES.values():
                del node.facts.latest[probe, device]
    put(node, answers(machine_of(case, path)))
    grade, found = judged(node)
    return grade, found, node


def test_one_lost_gpu_hides_no_other(tmp_path: Path) -> None:
    grade, found, node = seen(LOST, tmp_path)
    facts = demand(LOST)["facts"]
    assert grade is severity(LOST)
    lost = about(found, "gpu.lost")
    assert lost.device == facts["lost_pci_by_elimination"]
    assert lost.label == f"GPU{facts['lost'][0]}"
    assert "15" in lost.say
    assert "7 others" in lost.say
    assert lost.action is Action.DRAIN
    readable = [s.values["index"] for _, s in node.facts.devices("gpu") if "temp_c" in s.values]
    assert sorted(readable) == facts["readable"]


@pytest.mark.parametrize("watched", [True, False])
def test_a_missing_gpu_is_named_though_no_call_failed(tmp_path: Path, watched: bool) -> None:
    grade, found, node = seen(RENUMBERED, tmp_path, watched)
    facts = demand(RENUMBERED)["facts"]
    missing = facts["missing"]["pci"].lower()[4:]
    assert grade is severity(RENUMBERED)
    count = about(found, "gpu.count")
    assert "7 of 8" in count.say
    assert missing in count.say
    assert count.action is Action.DRAIN
    moved = {node.facts.value("inventory", slot, "index") for slot in SLOTS[3:]}
    assert moved == set(facts["index_moves"].values()), "history follows the address"
    gone = [f for f in found if f.rule == "gpu.gone"]
    assert [f.device for f in gone] == ([missing] if watched else [])


def test_gpus_that_wait_for_the_fabric_are_no_healthy_node(tmp_path: Path) -> None:
    grade, found, _ = seen(FABRIC, tmp_path)
    assert grade is severity(FABRIC)
    fabric = about(found, "nvlink.fabric")
    assert str(demand(FABRIC)["facts"]["gpus_affected"]) in fabric.say
    assert "in progress" in fabric.say
    assert "802" in fabric.say
    assert "fabricmanager" in fabric.next_step
    assert "version" in fabric.next_step
