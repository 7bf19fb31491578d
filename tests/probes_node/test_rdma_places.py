"""RDMA ports: what kind, where among the GPUs, and how much of it an answer holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from console.demo import sysfs, sysfs_rdma
from probes.answers import DEVICES_MAX, METRICS_MAX
from probes.node import infiniband
from tests.probes_node.rig import Machine
from tests.probes_node.test_infiniband import collect


def test_facts_that_tell_one_adapter_from_its_peers(tmp_path: Path) -> None:
    sysfs.build(tmp_path, number=3)
    port = collect(tmp_path)["mlx5_2/1"]
    assert (port["fw"], port["board"]) == ("28.39.3560", "MT_0000000838")
    assert (port["driver"], port["width"], port["sm_lid"]) == ("mlx5_core", 4, 1)
    management = collect(tmp_path)["mlx5_8/1"]
    assert management["width"] == 1
    assert not {"lid", "sm_lid"} & set(management), "Ethernet has neither"


def test_where_an_adapter_is_among_the_gpus(tmp_path: Path) -> None:
    sysfs.build(tmp_path)
    ports = collect(tmp_path)
    near = {"gpu_distance": "PIX", "gpu_numa": True, "switched_ports": 8, "gpu_side_ports": 9}
    assert {name: ports["mlx5_5/1"][name] for name in near} == near
    assert ports["mlx5_8/1"]["gpu_distance"] == "NODE"


def test_without_gpus_nothing_is_said_about_their_distance(tmp_path: Path) -> None:
    sysfs.build(tmp_path, gpus=())
    port = collect(tmp_path)["mlx5_5/1"]
    assert not {"gpu_near", "gpu_distance", "gpu_numa", "switched_ports"} & set(port)


def test_the_numa_node_of_an_adapter_may_be_unknown(tmp_path: Path) -> None:
    sysfs.build(tmp_path)
    sysfs.write(tmp_path, "sys/class/infiniband/mlx5_8/device/numa_node", "-1\n")
    port = collect(tmp_path)["mlx5_8/1"]
    assert not {"numa", "gpu_numa", "gpu_distance"} & set(port)


def test_stand_ins_of_virtual_functions_are_marked(tmp_path: Path) -> None:
    sysfs_rdma.adapter(tmp_path, "pci0000:00/0000:00:01.0/0000:01:00.0", "rocep1s0",
                       sysfs_rdma.CX7_ROCE, ports=3, netdevs=["p0", "pf0vf0", "c1pf0"])  # fmt: skip
    for name in ("p0", "pf0vf0", "c1pf0"):
        sysfs.write(tmp_path, f"sys/class/net/{name}/phys_port_name", f"{name}\n")
    marked = {port: values.get("representor") for port, values in collect(tmp_path).items()}
    assert marked == {"rocep1s0/1": None, "rocep1s0/2": True, "rocep1s0/3": True}


def test_the_physical_port_among_its_representors(tmp_path: Path) -> None:
    """Without a GID table the device lists them all, with the same number."""
    sysfs_rdma.adapter(tmp_path, "pci0000:00/0000:00:01.0/0000:01:00.0", "mlx5_0",
                       sysfs_rdma.CX7_ROCE, netdevs=["eth2"])  # fmt: skip
    base = tmp_path / "sys/class/infiniband/mlx5_0"
    sysfs.write(tmp_path, "sys/class/net/eth2/phys_port_name", "p0\n")
    (base / "ports/1/gid_attrs/ndevs/0").unlink()
    for number in range(3):
        sysfs.write(base / "device", f"net/eth1_{number}/dev_port", "0\n")
        sysfs.write(tmp_path, f"sys/class/net/eth1_{number}/phys_port_name", f"pf0vf{number}\n")
    assert collect(tmp_path)["mlx5_0/1"]["netdev"] == "eth2"


def test_a_driver_with_more_counters_than_an_answer_holds(tmp_path: Path) -> None:
    sysfs_rdma.adapter(tmp_path, "pci0000:00/0000:00:01.0/0000:01:00.0", "hfi1_0",
                       sysfs_rdma.HFI1, lid=7)  # fmt: skip
    for number in range(250):
        name = f"sys/class/infiniband/hfi1_0/hw_counters/Ctx{number},U"
        sysfs.write(tmp_path, name, "1\n")
    port = collect(tmp_path)["hfi1_0/1"]
    assert len(port) <= METRICS_MAX
    assert set(sysfs_rdma.HFI1.counters) <= set(port)


@pytest.mark.parametrize(
    ("rate", "gbps", "width"),
    [
        ("400 Gb/sec (4X NDR)", 400.0, 4), ("200 Gb/sec (2X NDR)", 200.0, 2),
        ("2.5 Gb/sec (1X SDR)", 2.5, 1), ("800 Gb/sec (4X XDR)", 800.0, 4),
        ("100 Gb/sec", 100.0, None), ("1200 Gb/sec (12X EDR)", 1200.0, 12),
        ("-1 Gb/sec", None, None), ("8X", None, None),
    ],
)  # fmt: skip
def test_rates(tmp_path: Path, rate: str, gbps: float | None, width: int | None) -> None:
    sysfs.build(tmp_path, hcas=1)
    sysfs.port_state(tmp_path, "mlx5_0/1", {"rate": rate})
    port = collect(tmp_path)["mlx5_0/1"]
    assert (port.get("rate_gbps"), port.get("width")) == (gbps, width)


def test_more_ports_than_an_answer_holds(tmp_path: Path) -> None:
    for number in range(140):
        sysfs.write(tmp_path, f"sys/class/infiniband/mlx5_{number:03}/ports/1/state", "1: DOWN\n")
    assert len(collect(tmp_path)) == infiniband.PORTS_MAX < DEVICES_MAX


def test_rdma_in_software_is_marked(tmp_path: Path) -> None:
    for name, files in (("siw0", {}), ("rxe7", {"parent": "eth0\n"}), ("mlx5_0", {})):
        where = "virtual/net/eth0/infiniband" if name == "siw0" else "pci0000:00/0000:00:01.0/ib"
        base = f"sys/devices/{where}/{name}"
        for file, text in {"ports/1/state": "4: ACTIVE\n", **files}.items():
            sysfs.write(tmp_path, f"{base}/{file}", text)
        (tmp_path / "sys/class/infiniband").mkdir(parents=True, exist_ok=True)
        (tmp_path / f"sys/class/infiniband/{name}").symlink_to(f"../../../{base}")
    marked = {port: values.get("software") for port, values in collect(tmp_path).items()}
    assert marked == {"siw0/1": True, "rxe7/1": True, "mlx5_0/1": None}


def test_each_python_reads_the_same(each_machine: Machine) -> None:
    sysfs.build(each_machine.root)
    here = collect(each_machine.root)
    with each_machine.session() as session:
        there = session.collect("infiniband")
        gpus = session.collect("topology")
    assert {port: _still(v) for port, v in there.items()} == {
        port: _still(v) for port, v in here.items()
    }
    assert [v["nic"] for v in gpus.values()] == [f"mlx5_{index}" for index in range(8)]


def _still(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in infiniband.METRICS}
