"""The probes inside the real agent, with the simulated library in place of the driver's."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest

from console.demo import sysfs
from probes.catalog import PROBES
from tests.payload.rig import AgentProcess, config, kind, sample
from tests.probes_node.rig import SHIM, Machine

NAMES = ("gpu", "gpm", "ecc", "pcie", "nvlink", "infiniband", "inventory", "processes")


def shimmed(machine: Machine) -> str:
    """A python3 for this machine."""
    path = machine.directory / "python3"
    words = shlex.join([machine.python, str(SHIM), str(machine.directory)])
    path.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    os.chmod(path, 0o755)
    return str(path)


def test_one_pass(each_machine: Machine) -> None:
    sysfs.build(each_machine.root)
    settings = config(*NAMES, mode="pass", window_s=1.0, root=str(each_machine.root))
    with AgentProcess(settings, python=shimmed(each_machine)) as agent:
        frames = agent.collect(lambda found: any(f["k"] == "end" for f in found))
        assert agent.finish() == 0
    for probe, devices in zip(NAMES, (8, 8, 8, 8, 8, 9, 9, 9), strict=True):
        answers = [f for f in frames if f["k"] == "s" and f["p"] == probe]
        assert len(answers) == (2 if PROBES[probe].counters else 1), probe
        assert {len(answer["d"]) for answer in answers} == {devices}, probe
    assert not [f for f in frames if f["k"] in ("err", "hung")]


def test_a_hung_gpu_is_reported_and_left_out(each_machine: Machine) -> None:
    each_machine.gpu(3, hang={"nvmlDeviceGetPowerUsage": 3600})
    settings = config("gpu", fast_s=0.2, deadline_s=2.0, root=str(each_machine.root))
    with AgentProcess(settings, python=shimmed(each_machine)) as agent:
        hung = agent.wait_for(kind("hung"))
        gpus = agent.wait_for(sample("gpu"))["d"]
        each_machine.gpu(3, hang={})
        agent.wait_for(kind("unhung", dev="0000:61:00.0"))
        agent.wait_for(lambda f: sample("gpu")(f) and "0000:61:00.0" in f["d"])
    assert (hung["p"], hung["dev"]) == ("gpu", "0000:61:00.0")
    assert hung["call"] == "nvmlDeviceGetPowerUsage"
    assert len(gpus) == 7
    assert "0000:61:00.0" not in gpus


def test_a_card_that_vanishes_is_gone(machine: Machine) -> None:
    settings = config("inventory", rare_s=0.2, root=str(machine.root))
    with AgentProcess(settings, python=shimmed(machine)) as agent:
        agent.wait_for(sample("inventory"))
        del machine.state["gpus"][2]
        machine.write()
        gone = agent.wait_for(lambda f: sample("inventory")(f) and "gone" in f)
    assert gone["gone"] == ["0000:52:00.0"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs a Linux dynamic linker")
def test_a_node_without_a_driver(tmp_path: Path) -> None:
    """No shim at all: the real dynamic linker says that there is no library."""
    sysfs.build(tmp_path)
    settings = config("gpu", "inventory", mode="pass", root=str(tmp_path))
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("this machine has a driver")
    with AgentProcess(settings, python=sys.executable) as agent:
        frames = agent.collect(lambda found: any(f["k"] == "end" for f in found))
    (inventory,) = filter(sample("inventory"), frames)
    assert inventory["d"][""]["nvml_library"] is False
    assert inventory["d"][""]["pci_gpu_count"] == 8
