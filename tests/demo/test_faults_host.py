"""Each fault of the host and each new one of a GPU, told by the console in one pass of real agents.

One scenario with one node per fault and healthy peers: the command line, SSH, the agents and the
judge are the real ones. A fault must lead to its finding, and to no other above info.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from console.demo import faults_host
from console.demo.machine import Machine
from console.demo.scenario import Fault, Scenario
from console.demo.story import Story
from console.demo.tree import Template

EXPECTED = {
    "service_down": {"service.fabricmanager"},
    "clock": {"time.daemon", "service.failed"},
    "drift": {"drift.node", "drift.nic_firmware"},
    "nfs_hang": {"storage.nfs"},
    "read_only": {"storage.read_only"},
    "dimm": {"host.edac_ce"},
    "memlock": {"host.memlock"},
    "swapping": {"host.swap_storm"},
    "unowned": {"processes.unowned_memory"},
}
"""Kind -> rules above info."""
ECHOES = {"read_only": {"storage.filesystem", "storage.nvme"}}
"""What the same fault may say besides: the file system and the disk in the kernel log."""
PEERS = 9
"""Healthy nodes: drift needs a majority."""

Findings = dict[str, list[dict[str, Any]]]


def name(kind: str) -> str:
    return kind.replace("_", "")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    """Node -> its findings."""
    names = [name(kind) for kind in EXPECTED] + [f"well{i}" for i in range(PEERS)]
    faults = [
        f"  - {{node: {name(kind)}, kind: {kind}{', gpu: 2' if kind == 'unowned' else ''}}}\n"
        for kind in EXPECTED
    ]
    path = tmp_path_factory.mktemp("scenario") / "faults.yaml"
    path.write_text(f"nodes: {','.join(names)}\nfaults:\n{''.join(faults)}")
    # Rates need a step of every node's story between the two samples.
    words = ["--demo", "--scenario", str(path), "--json", "--window", "8", "--timeout", "200"]
    command = [sys.executable, "-m", "console.cli", *words]
    done = subprocess.run(command, capture_output=True, timeout=250, check=False)
    document = json.loads(done.stdout)
    return {node["name"]: node["findings"] for node in document["nodes"]}


def test_every_fault_of_the_host_is_expected_here() -> None:
    assert EXPECTED.keys() == faults_host.KINDS | {"unowned"}


@pytest.mark.parametrize("kind", EXPECTED)
def test_a_fault_leads_to_its_finding_and_to_no_other(found: Findings, kind: str) -> None:
    told = found[name(kind)]
    rules = {f["rule"] for f in told if f["severity"] != "info"}
    assert rules - ECHOES.get(kind, set()) == EXPECTED[kind]


def test_the_peers_are_well(found: Findings) -> None:
    assert [f for i in range(PEERS) for f in found[f"well{i}"]] == []


def test_findings_name_what_is_at_fault(found: Findings) -> None:
    says = {node: " | ".join(f["say"] for f in told) for node, told in found.items()}
    assert faults_host.DIMM_LABEL in says["dimm"]
    assert faults_host.SERVER in says["nfshang"]
    assert "/scratch" in says["readonly"]
    assert faults_host.OTHER_DRIVER in says["drift"]
    assert "GPU2: 40.0 GiB" in says["unowned"]


def test_a_stopped_service_has_no_process_until_it_is_back(
    own_places: Path, tmp_path: Path
) -> None:
    from console.demo.hardware import HARDWARE

    fault = Fault(node="m", kind="service_down", at_s=10.0, for_s=10.0)
    story = Story(Scenario(name="t", seed=1, nodes=("m",), hardware="h100", faults=(fault,)))
    node = Machine("m", own_places / "m", tmp_path / "bin", story)
    node.build(Template(own_places / "template", HARDWARE["h100"]), 1)
    comm = node.root / "proc/1201/comm"
    node.advance(5.0, 1.0, 0.0)
    healthy = comm.read_text()
    node.advance(15.0, 1.0, 0.0)
    assert not comm.exists()
    node.advance(25.0, 1.0, 0.0)
    assert comm.read_text() == healthy


def test_who_waits_for_the_file_server_sleeps_where_it_was(
    own_places: Path, tmp_path: Path
) -> None:
    from console.demo.hardware import HARDWARE

    fault = Fault(node="m", kind="nfs_hang")
    story = Story(Scenario(name="t", seed=1, nodes=("m",), hardware="h100", faults=(fault,)))
    node = Machine("m", own_places / "m", tmp_path / "bin", story)
    node.build(Template(own_places / "template", HARDWARE["h100"]), 1)
    node.advance(5.0, 1.0, 0.0)
    for pid in faults_host.STUCK_PIDS:
        place = node.root / "proc" / str(pid)
        assert " D " in (place / "stat").read_text()
        assert (place / "wchan").read_text() == "rpc_wait_bit_killable"
        assert (place / "cwd").readlink().parts[:2] == ("/", "home")
