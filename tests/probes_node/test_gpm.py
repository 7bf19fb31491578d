"""What the units of a GPU did, from two samples; buffers are few and come back."""

from __future__ import annotations

from typing import Any

from probes.node.gpm import METRIC_IDS, METRICS, MIB_PER_S, PERCENT
from tests.probes_node.rig import Machine, Session

BUS = [f"0000:{bus}:00.0" for bus in ("1b", "43", "52", "61", "9d", "c3", "d1", "df")]


def until(session: Session, metric: str, *devices: str) -> dict[str, dict[str, Any]]:
    """Answers until each of these GPUs has a reading; its two samples must lie 0.1 s apart."""
    for _ in range(5000):
        found = session.collect("gpm")
        if all(metric in found[device] for device in devices):
            return found
    raise AssertionError(f"no {metric} in 5000 answers")


def test_readings_of_a_hopper(each_machine: Machine) -> None:
    each_machine.gpu(3, gpm={"2": 41.25, "5": 3.5, "10": 71.0, "60": 2048.0, "12": None})
    with each_machine.session() as session:
        first = session.collect("gpm")
        found = until(session, "tensor_percent", BUS[0], BUS[3])
    assert set(first[BUS[3]]) == {"index"}
    gpu = found[BUS[3]]
    assert (gpu["sm_util_percent"], gpu["tensor_percent"], gpu["dram_percent"]) == (
        41.25, 3.5, 71.0,
    )  # fmt: skip
    assert gpu["nvlink_rx_bytes_per_s"] == 2048 << 20
    assert gpu["window_s"] >= 0.1
    assert "fp32_percent" not in gpu
    assert "nvml_rc" not in gpu
    assert found[BUS[0]]["tensor_percent"] > gpu["tensor_percent"]


def test_a_tick_that_comes_too_soon_waits_for_nothing(machine: Machine) -> None:
    with machine.session() as session:
        answers = [session.collect("gpm") for _ in range(20)]
        assert session.ask(op="samples") == 16
    assert not [v for found in answers for v in found.values() if "nvml_rc" in v]


def test_buffers_are_given_back_when_nvml_closes(each_machine: Machine) -> None:
    with each_machine.session() as session:
        until(session, "tensor_percent", BUS[7])
        assert session.ask(op="samples") == 16
        session.ask(op="nvml", open=False)
        assert session.ask(op="samples") == 0
        session.ask(op="nvml", open=True)
        until(session, "tensor_percent", BUS[7])
        assert session.ask(op="samples") == 16


def test_buffers_of_a_gpu_that_vanished_are_given_back(machine: Machine) -> None:
    with machine.session() as session:
        session.collect("gpm")
        del machine.state["gpus"][2]
        machine.write()
        session.collect("inventory")
        session.collect("gpm")
        assert session.ask(op="samples") == 14


def test_a_reading_is_repeated_until_a_new_one_is_due(machine: Machine) -> None:
    machine.gpu(2, gpm={"5": 10.0})
    with machine.session() as session:
        first = until(session, "tensor_percent", BUS[2])[BUS[2]]
        machine.gpu(2, gpm={"5": 20.0})
        again = session.collect("gpm")[BUS[2]]
        session.advance(7)
        later = until(session, "tensor_percent", BUS[2])[BUS[2]]
    assert again == first
    assert (first["tensor_percent"], later["tensor_percent"]) == (10.0, 20.0)


def test_a_gap_of_minutes_gives_no_average(machine: Machine) -> None:
    with machine.session() as session:
        session.collect("gpm")
        session.advance(600)
        assert set(session.collect("gpm")[BUS[0]]) == {"index"}


def test_older_gpus_have_none_and_no_error(each_machine: Machine) -> None:
    each_machine.gpu(0, device_id="20b210de")
    each_machine.gpu(1, gpm=None)
    each_machine.state["missing"] = ["nvmlGpmMetricsGet"]
    each_machine.write()
    with each_machine.session() as session:
        session.collect("gpm")
        session.advance(1)
        found = session.collect("gpm")
        assert session.ask(op="samples") == 12
    assert found[BUS[0]] == {"index": 0}
    assert found[BUS[1]] == {"index": 1}
    assert found[BUS[2]] == {"index": 2}


def test_no_right_is_a_hint(each_machine: Machine) -> None:
    each_machine.gpu(5, rc={"nvmlGpmSampleGet": 4})
    with each_machine.session() as session:
        found = session.collect("gpm")
    assert "NVreg_RestrictProfilingToAdminUsers" in found[BUS[5]]["hint"]
    assert "nvml_rc" not in found[BUS[5]]
    assert "hint" not in found[BUS[4]]


def test_mig_is_a_hint(machine: Machine) -> None:
    machine.gpu(5, mig=1)
    with machine.session() as session:
        session.collect("inventory")
        found = session.collect("gpm")
        again = session.collect("gpm")
    assert "MIG" in found[BUS[5]]["hint"]
    assert again[BUS[5]] == found[BUS[5]]


def test_a_lost_gpu_costs_itself_only(machine: Machine) -> None:
    with machine.session() as session:
        session.collect("gpm")
        machine.gpu(3, rc={"*": 15})
        found = until(session, "tensor_percent", BUS[0], BUS[7])
    assert found[BUS[3]]["nvml_rc"] == 15


def test_every_reading_is_declared() -> None:
    assert set(PERCENT.values()) | set(MIB_PER_S.values()) <= set(METRICS)
    assert len(METRIC_IDS) == len(set(METRIC_IDS)) == len(PERCENT) + len(MIB_PER_S)
