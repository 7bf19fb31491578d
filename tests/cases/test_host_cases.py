"""Cases of the host that are no kernel log: a dead card on the bus list, hung nvidia-smi."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from console.demo import sysfs
from probes.event import Action, NodeState, Severity
from tests.cases.support import about, demand, judged, severity, text
from tests.judging.build import Built
from tests.probes_node.rig import Machine

DEAD = "host-lspci-rev-ff"
STUCK = "host-nvidia-smi-d-state"


def test_a_dead_card_on_the_bus_list(tmp_path: Path) -> None:
    """The real inventory probe on a root with the case's cards, then the judge."""
    cards = re.findall(r"^(\S+) 3D controller.*\(rev (\w+)\)", text(DEAD), re.MULTILINE)
    machine = Machine(tmp_path / "node", sys.executable)
    buses = [address[:2] for address, _ in cards]
    sysfs.build(machine.root, gpus=buses)
    dead = [f"0000:{address}" for address, revision in cards if revision == "ff"]
    for address in dead:
        config = machine.root / "sys/bus/pci/devices" / address / "config"
        config.write_bytes(b"\xff" * 64)
    machine.state["gpus"] = [g for g in machine.state["gpus"] if g["pci"][5:7] in buses]
    machine.state["gpus"] = [g for g in machine.state["gpus"] if g["pci"] not in dead]
    machine.write()
    with machine.session() as session:
        answer = session.ask(op="collect", probe="inventory")
    node = Built()
    for probe, device in list(node.facts.latest):
        if device.startswith("0000:") and device not in answer["devices"]:
            node.facts.latest.pop((probe, device))
    for device, values in answer["devices"].items():
        node.put("inventory", device, rows=answer["rows"] if not device else None, **values)
    node.kernel(*text(DEAD).split("---\n")[-1].splitlines())
    grade, found = judged(node, others=[])
    facts = demand(DEAD)["facts"]
    inventory = node.facts.get("inventory")
    assert inventory is not None
    assert inventory.values["pci_gpu_count"] == facts["lspci_gpus"], "a switch is no GPU"
    assert inventory.values["gpu_count"] == facts["nvml_gpus"]
    assert grade is severity(DEAD)
    assert [f"0000:{a}" for a in facts["rev_ff"]] == [about(found, "gpu.config_space").device]
    assert "3 of 4" in about(found, "gpu.count").say
    assert about(found, "driver.init_failed").device == facts["init_failed"][0]
    assert max(f.action.rank for f in found) >= Action.DRAIN.rank


def test_stuck_nvidia_smi_is_a_hung_driver_and_old_numbers_are_not_current() -> None:
    rows = re.findall(r"^\d+ D\S* +(\d+) +(\S+) +(\S+)$", text(STUCK), re.MULTILINE)
    node = Built()
    node.status(NodeState.HUNG, probe="gpu", since_s=float(max(int(age) for age, _, _ in rows)))
    node.change("host", "", dstate_nvidia=len(rows))
    grade, found = judged(node)
    assert grade is severity(STUCK)
    assert node.facts.state is NodeState.HUNG, "shown as stale, not as up"
    stuck = about(found, "host.dstate_nvidia")
    assert str(len(rows)) in stuck.say
    assert stuck.action is Action.DRAIN
    assert "kill" not in stuck.next_step.replace("cannot be killed", "")
    hung = about(found, "driver.hung")
    assert hung.severity is Severity.CRITICAL


@pytest.mark.parametrize("count", [1, 2])
def test_one_process_is_not_called_processes(count: int) -> None:
    node = Built()
    node.change("host", "", dstate_nvidia=count)
    say = about(judged(node)[1], "host.dstate_nvidia").say
    assert ("1 process hangs" in say) is (count == 1)
