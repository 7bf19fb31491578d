"""Healthy nodes with every kind of RDMA adapter: nothing above info."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from console.demo import sysfs_rdma
from console.demo.sysfs_rdma import CX6_HDR, CX6_ROCE, CX6LX, CX7_NDR, CX7_ROCE, EFA, HFI1
from probes.event import Action
from tests.scenes.rdma import Make, add, bonded, down, fabric, functions, place
from tests.scenes.rig import Scene

NET = "sys/class/net"
CLASS = "sys/class/infiniband"


def infiniband_only(scenes: Make) -> Scene:
    scene = scenes()
    scene.remove(f"{CLASS}/mlx5_8")
    return scene


def roce_only(scenes: Make) -> Scene:
    return fabric(scenes, CX7_ROCE, "rocep{}s0")


def bond(scenes: Make) -> Scene:
    scene = scenes()
    bonded(scene)
    return scene


def efa(scenes: Make) -> Scene:
    return fabric(scenes, EFA, "rdmap{}s0")


def omni_path(scenes: Make) -> Scene:
    return fabric(scenes, HFI1, "hfi1_{}")


def mixed(scenes: Make) -> Scene:
    """Compute InfiniBand, HDR for storage, RoCE for storage, Ethernet management."""
    scene = scenes()
    add(scene, "pci0000:27/0000:27:02.0/0000:2a:00.0", "mlx5_9", CX6_ROCE, netdevs=["sto0"])
    add(scene, "pci0000:27/0000:27:03.0/0000:2b:00.0", "mlx5_10", CX6_HDR, netdevs=["ib10"], lid=99)
    return scene


def virtual_functions(scenes: Make) -> Scene:
    scene = scenes()
    functions(scene)
    return scene


def no_rdma(scenes: Make) -> Scene:
    scene = scenes(hcas=0)
    scene.remove(CLASS)
    return scene


def dual_port(scenes: Make) -> Scene:
    """The second port has no cable, here and on all peers."""
    scene = scenes(hcas=0)
    for index in range(8):
        add(scene, place(index), f"mlx5_{index}", ports=2, lid=16, netdevs=[f"ib{index}"],
            numa=index // 4)  # fmt: skip
        down(scene, f"mlx5_{index}/2")
    return scene


def dual_port_alone(scenes: Make) -> Scene:
    scene = scenes(hcas=0, peers=0)
    add(scene, place(0), "mlx5_0", ports=2, lid=16, netdevs=["ib0"])
    down(scene, "mlx5_0/2")
    return scene


def no_pma(scenes: Make) -> Scene:
    scene = scenes()
    for counter in sysfs_rdma.CX7_NDR.counters:
        scene.write(f"{CLASS}/mlx5_1/ports/1/counters/{counter}", "N/A (no PMA)\n")
    scene.remove(f"{CLASS}/mlx5_2/ports/1/counters")
    return scene


def old_life(scenes: Make) -> Scene:
    """Counters that were full, or high, before we came."""
    scene = scenes()
    for name, value in (("symbol_error", 65535), ("link_downed", 255), ("port_rcv_errors", 4000),
                        ("local_link_integrity_errors", 15), ("port_xmit_wait", 2**32 - 1),
                        ("rnr_nak_retry_err", 7)):  # fmt: skip
        scene.counter("mlx5_1/1", name, value)
    return scene


def switch_inside(scenes: Make) -> Scene:
    """Management functions of NVSwitches: InfiniBand to sysfs, no port of the node."""
    scene = scenes()
    for number in range(4):
        where = f"pci0000:27/0000:27:04.0/0000:3{number}:00.0"
        add(scene, where, f"mlx5_1{number}", CX7_NDR)
        down(scene, f"mlx5_1{number}/1", state="2: INIT", phys="5: LinkUp")
        scene.write(f"sys/devices/{where}/vpd", b"\x82\x10\x00ConnectX-7\x90V3\x0bSMDL=SW_MNG\x78")
    return scene


def representors(scenes: Make) -> Scene:
    """Switch mode: the device has a port for each function, with a stand-in interface."""
    scene = scenes()
    add(scene, place(0, 1), "rocep24s0f1", CX7_ROCE, ports=3, netdevs=["p0", "pf0vf0", "pf0vf1"])
    for number in (0, 1):
        scene.write(f"{NET}/pf0vf{number}/phys_port_name", f"pf0vf{number}\n")
        down(scene, f"rocep24s0f1/{number + 2}", "3: Disabled")
    return scene


def grace(scenes: Make) -> Scene:
    """Four adapters on NUMA nodes and roots of their own: everything is SYS."""
    scene = scenes(hcas=0)
    for index in range(4):
        where = f"pci000{index + 1}:00/000{index + 1}:00:00.0/000{index + 1}:01:00.0"
        add(scene, where, f"mlx5_{index}", CX7_ROCE, netdevs=[f"eth{index}"], numa=index % 2)
    return scene


def virtual_machine(scenes: Make) -> Scene:
    """A flat bus without NUMA."""
    scene = scenes(hcas=0)
    for index in range(8):
        add(scene, f"pci0000:00/0000:00:{index + 16:02x}.0", f"mlx5_{index}", CX7_NDR,
            netdevs=[f"ib{index}"], lid=20 + index, numa=-1)  # fmt: skip
    return scene


def without_netdev(scenes: Make) -> Scene:
    scene = scenes(hcas=0)
    for index in range(8):
        add(scene, place(index), f"ibp{index}s0", lid=16 + index, numa=index // 4)
    return scene


def other_card_in_management(scenes: Make) -> Scene:
    scene = scenes()
    add(scene, "pci0000:27/0000:27:02.0/0000:2a:00.0", "mlx5_9", CX6LX, netdevs=["eth9"])
    return scene


def in_software(scenes: Make) -> Scene:
    """rxe over the management interface, down on this node since its start."""
    scene = scenes()
    base = "sys/devices/virtual/infiniband/rxe0"
    for file, text in (("state", "1: DOWN"), ("phys_state", "3: Disabled"),
                       ("link_layer", "Ethernet")):  # fmt: skip
        scene.write(f"{base}/ports/1/{file}", text + "\n")
    (scene.root / CLASS / "rxe0").symlink_to("../../devices/virtual/infiniband/rxe0")
    return scene


HEALTHY: tuple[Callable[[Make], Scene], ...] = (
    infiniband_only, roce_only, bond, efa, omni_path, mixed, virtual_functions, no_rdma, dual_port,
    dual_port_alone, no_pma, old_life, switch_inside, representors, grace, virtual_machine,
    without_netdev, other_card_in_management, in_software,
)  # fmt: skip


@pytest.mark.parametrize("variant", HEALTHY, ids=lambda variant: variant.__name__)
def test_a_healthy_node(scenes: Make, variant: Callable[[Make], Scene]) -> None:
    scene = variant(scenes).interval(4)
    assert scene.rules() == set()
    assert all(f.action is Action.NONE for f in scene.findings() if f.rule.startswith("ib."))
