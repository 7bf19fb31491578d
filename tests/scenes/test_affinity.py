"""How far each GPU is from its RDMA adapter, and whether that is usual."""

from __future__ import annotations

import shutil

from console.demo import sysfs
from console.demo.sysfs_rdma import CX7_NDR
from probes.event import Severity
from tests.scenes import rdma
from tests.scenes.rdma import Make, add, place
from tests.scenes.rig import Scene

GPUS = [f"0000:{bus}:00.0" for bus in sysfs.GPU_BUSES]


def nearest(scene: Scene) -> list[tuple[object, object]]:
    samples = [scene.sample("topology", gpu).values for gpu in GPUS]
    return [(values.get("nic"), values.get("nic_distance")) for values in samples]


def test_each_gpu_has_its_adapter_behind_its_own_switch(scene: Scene) -> None:
    scene.interval(2)
    assert nearest(scene) == [(f"mlx5_{index}", "PIX") for index in range(8)]
    rows = {(row["gpu"], row["nic"]): row["distance"] for row in _rows(scene)}
    assert rows[GPUS[0], "mlx5_1"] == "NODE"
    assert rows[GPUS[0], "mlx5_7"] == "SYS"
    assert len(rows) == 8 * 9
    assert scene.findings() == []


def _rows(scene: Scene) -> list[dict[str, object]]:
    session = scene.machine.session()
    with session:
        return session.rows("topology")


def test_an_adapter_in_another_slot(scene: Scene) -> None:
    scene.interval()
    scene.remove("sys/class/infiniband/mlx5_2")
    scene.remove("sys/class/net/ib2")
    shutil.rmtree(scene.root / f"sys/devices/{place(2)}")
    add(scene, "pci0000:27/0000:27:03.0/0000:2b:00.0", "mlx5_2", netdevs=["ib2"], lid=18)
    scene.interval(2)
    assert scene.rules() == {"affinity.far"}
    found = scene.rule("affinity.far")
    assert (found.severity, found.device, found.label) == (Severity.WARN, GPUS[2], "GPU2")
    assert "PIX on the peers" in found.say
    assert "at NODE" in found.say


def test_every_adapter_far_away_everywhere_is_the_product(scenes: Make) -> None:
    scene = scenes(hcas=0)
    for index in range(4):
        add(scene, f"pci000{index + 1}:00/000{index + 1}:00:00.0/000{index + 1}:01:00.0",
            f"mlx5_{index}", numa=2)  # fmt: skip
    scene.remove("sys/class/infiniband/mlx5_8")
    scene.interval(4)
    assert scene.rules() == set()
    assert nearest(scene) == [("mlx5_0,mlx5_1,mlx5_2,mlx5_3", "SYS")] * 8


def test_unknown_numa_nodes_are_no_distance(scenes: Make) -> None:
    scene = scenes(hcas=0)
    add(scene, "pci0001:00/0001:00:00.0/0001:01:00.0", "mlx5_0", numa=-1)
    scene.remove("sys/class/infiniband/mlx5_8")
    scene.interval(2)
    assert nearest(scene) == [(None, None)] * 8
    assert scene.sample("topology", GPUS[0]).values["numa"] == 0


def test_access_control_is_information(scene: Scene) -> None:
    """Root can read it; a bridge that redirects peer-to-peer is counted, not judged."""
    upstream = place(3).split("/")[2]
    head = (scene.root / f"sys/bus/pci/devices/{upstream}/config").read_bytes()[:64]
    chain = (0x0001 | 1 << 16 | 0x148 << 20).to_bytes(4, "little")
    acs = (0x000D | 1 << 16).to_bytes(4, "little") + b"\x5f\x00" + b"\x1d\x00"
    config = head.ljust(0x100, b"\0") + chain.ljust(0x48, b"\0") + acs.ljust(0x40, b"\0")
    scene.write(f"sys/bus/pci/devices/{upstream}/config", config)
    scene.interval(2)
    assert scene.sample("topology", GPUS[3]).values["acs_redirect"] == 1
    assert "acs_redirect" not in scene.sample("topology", GPUS[4]).values
    assert scene.rules() == set()


def test_two_functions_of_one_card_are_equally_near(scenes: Make) -> None:
    scene = scenes(hcas=0)
    for function in (0, 1):
        add(scene, place(0, function), f"mlx5_{function}", CX7_NDR, lid=16 + function)
    scene.interval()
    assert nearest(scene)[0] == ("mlx5_0,mlx5_1", "PIX")
    assert scene.sample("topology", GPUS[0]).values["nic_pci"] == (
        f"{rdma.address(0)},{rdma.address(0)[:-1]}1"
    )
