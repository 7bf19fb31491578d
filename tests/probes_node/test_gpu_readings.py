"""Readings of the gpu probe that not every card or driver has."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from probes.node.context import Context
from probes.node.nvml_places import NAME, PLACES, load
from tests.conftest import Lab
from tests.probes_node.rig import REPOSITORY, Machine

BUS = [f"0000:{bus}:00.0" for bus in ("1b", "43", "52", "61", "9d", "c3", "d1", "df")]


def test_power_energy_and_times(each_machine: Machine) -> None:
    fields = {"270": 5, "269": 6, "271": 7, "74": 8, "77": 9, "79": 10, "75": 11}
    each_machine.gpu(2, power_w=500.25, power_instant_w=612.5, energy_mj=2**41, fields=fields)
    with each_machine.session() as session:
        gpu = session.collect("nvml")[BUS[2]]
    assert (gpu["power_w"], gpu["power_average_w"], gpu["power_instant_w"]) == (
        500.25, 500.25, 612.5,
    )  # fmt: skip
    assert gpu["energy_mj"] == 2**41
    names = ("thermal_hw_ns", "thermal_sw_ns", "power_brake_ns", "power_cap_ns", "board_limit_ns",
             "reliability_ns")  # fmt: skip
    assert [gpu[name] for name in names] == [5, 6, 7, 8, 9, 10]
    assert "thermal_ns" not in gpu


def test_an_older_driver_counts_heat_as_a_whole(machine: Machine) -> None:
    machine.gpu(2, fields={"270": "!3", "269": "!3", "271": "!2", "75": 77})
    with machine.session() as session:
        gpu = session.collect("nvml")[BUS[2]]
    assert gpu["thermal_ns"] == 77
    assert not {"thermal_hw_ns", "thermal_sw_ns", "power_brake_ns", "nvml_rc"} & set(gpu)


def test_fields_that_do_not_exist_are_not_asked_again(machine: Machine) -> None:
    machine.gpu(2, fields={"83": "!3"})
    with machine.session() as session:
        assert "energy_mj" not in session.collect("nvml")[BUS[2]]
        machine.gpu(2, fields={"83": 4000})
        assert "energy_mj" not in session.collect("nvml")[BUS[2]]
        assert "energy_mj" in session.collect("nvml")[BUS[3]]


def test_a_module_has_no_fan_and_a_card_has(each_machine: Machine) -> None:
    each_machine.gpu(1, fan=63, fan_rpm=4100)
    each_machine.gpu(2, fan=40)
    with each_machine.session() as session:
        gpus = session.collect("nvml")
    assert (gpus[BUS[1]]["fan_percent"], gpus[BUS[1]]["fan_rpm"]) == (63, 4100)
    assert gpus[BUS[2]]["fan_percent"] == 40
    assert not {"fan_rpm", "nvml_rc"} & set(gpus[BUS[2]])
    assert not {"fan_percent", "fan_rpm", "nvml_rc"} & set(gpus[BUS[0]])


def test_idle_time_counts_from_the_last_work(machine: Machine) -> None:
    machine.gpu(1, util=0)
    with machine.session() as session:
        assert session.collect("nvml")[BUS[1]]["idle_s"] < 5
        session.advance(700)
        machine.gpu(2, util=4)
        later = session.collect("nvml")
        assert 700 <= later[BUS[1]]["idle_s"] < 760
        assert 700 <= later[BUS[2]]["idle_s"] < 760
        assert later[BUS[0]]["idle_s"] == 0
        machine.gpu(1, util=5)
        assert session.collect("nvml")[BUS[1]]["idle_s"] == 0


def test_the_slowest_call_is_named(each_machine: Machine) -> None:
    with each_machine.session() as session:
        session.collect("nvml")  # the first look-up of handles, and whatever else starts
        each_machine.gpu(4, hang={"nvmlDeviceGetPowerUsage": 1.5})
        gpus = session.collect("nvml")
        each_machine.gpu(4, hang={})
        after = session.collect("nvml")
    assert gpus[BUS[4]]["nvml_slowest_s"] >= 0.7
    assert gpus[BUS[4]]["nvml_slowest_call"] == "nvmlDeviceGetPowerUsage"
    assert after[BUS[4]]["nvml_slowest_s"] < gpus[BUS[4]]["nvml_slowest_s"]


def test_another_probes_slow_call_counts_too(machine: Machine) -> None:
    with machine.session() as session:
        session.collect("nvml")
        machine.gpu(4, hang={"nvmlDeviceGetEccMode": 0.7})
        session.collect("ecc")
        machine.gpu(4, hang={})
        gpu = session.collect("nvml")[BUS[4]]
    assert gpu["nvml_slowest_call"] == "nvmlDeviceGetEccMode"


def test_memory_that_gpu_and_cpu_share_has_no_figure(machine: Machine) -> None:
    machine.gpu(0, mem_total_mib=None, temp_max=None)
    with machine.session() as session:
        gpu = session.collect("nvml")[BUS[0]]
    assert not {"mem_used_bytes", "mem_total_bytes", "thermal_margin_c", "nvml_rc"} & set(gpu)
    assert gpu["temp_c"] == 55


LOAD = """
import ctypes, sys
sys.path.insert(0, sys.argv[1])
from probes.node.context import Context
from probes.node.nvml_places import NAME, load
load(Context(sys.argv[2]))
print(ctypes.CDLL(NAME).nvmlInitWithFlags(0))
"""
"""A library opened by its path is the one that the binding gets by its name."""


@pytest.mark.parametrize("place", PLACES)
def test_a_library_outside_the_linkers_path(
    lab: Lab, node_python: str, tmp_path: Path, place: str
) -> None:
    lab.programs("C compiler", "cc", package="gcc")
    (tmp_path / place).mkdir(parents=True)
    source = tmp_path / "nvml.c"
    source.write_text("int nvmlInitWithFlags(unsigned flags) { return 42; }")
    target = tmp_path / place / NAME
    words = ["-shared", "-fPIC", f"-Wl,-soname,{NAME}", "-o", str(target), str(source)]
    subprocess.run(["cc", *words], check=True)
    words = [node_python, "-c", LOAD, str(REPOSITORY), str(tmp_path)]
    assert subprocess.run(words, check=True, capture_output=True, text=True).stdout == "42\n"


def test_a_library_that_is_none_is_the_linkers_error(tmp_path: Path) -> None:
    (tmp_path / PLACES[0]).mkdir(parents=True)
    (tmp_path / PLACES[0] / NAME).write_text("not a library")
    with pytest.raises(OSError, match=r"libnvidia-ml\.so\.1: cannot open"):
        load(Context(str(tmp_path)))
