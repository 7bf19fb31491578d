"""Nodes with other RDMA adapters than the usual eight, and changes over time."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from console.demo import sysfs, sysfs_rdma
from console.demo.sysfs_rdma import CX7_NDR, Product
from tests.scenes.rig import Scene

Make = Callable[..., Scene]


def place(index: int, function: int = 0) -> str:
    """Where the adapter of GPU `index` sits: behind the GPU's PCIe switch."""
    bus = int(sysfs.NIC_BUSES[index], 16)
    root, upstream, inner = (f"{bus - up:02x}" for up in (3, 2, 1))
    return (
        f"pci0000:{root}/0000:{root}:01.0/0000:{upstream}:00.0/0000:{inner}:00.0/"
        f"0000:{bus:02x}:00.{function}"
    )


def address(index: int) -> str:
    return place(index).rsplit("/", 1)[1]


def add(scene: Scene, where: str, name: str, product: Product = CX7_NDR, **more: Any) -> None:
    sysfs_rdma.adapter(scene.root, where, name, product, **more)


def fabric(scenes: Make, product: Product, name: str = "rdma{}", **node: Any) -> Scene:
    """Eight adapters of a product instead of the usual ones, each near its GPU."""
    scene = scenes(hcas=0, **node)
    for index in range(8):
        netdevs = [] if product.driver == "efa" else [f"eth{index}"]
        add(scene, place(index), name.format(index), product, netdevs=netdevs, numa=index // 4,
            lid=16 + index if product.layer == "InfiniBand" else 0)  # fmt: skip
    return scene


def port(scene: Scene, device: str, **files: str) -> None:
    """Files of a port."""
    sysfs.port_state(scene.root, device, files)


def down(scene: Scene, device: str, phys: str = "2: Polling", state: str = "1: DOWN") -> None:
    port(scene, device, state=state, phys_state=phys)


def statistics(scene: Scene, **interfaces: dict[str, int]) -> None:
    """What the drivers count, by interface; its bus address is that of the tree."""
    known = {
        name: {"driver": "mlx5_core", "fw": "28.39.3560", "bus": bus(scene, name), "stats": stats}
        for name, stats in interfaces.items()
    }
    (scene.machine.directory / "ethtool.json").write_text(json.dumps(known))


def bus(scene: Scene, netdev: str) -> str:
    return (scene.root / "sys/class/net" / netdev).resolve().parents[1].name


def grow(scene: Scene, device: str, counter: str, step: int, intervals: int = 2) -> None:
    """A counter rises by `step` in each of some intervals."""
    (files,) = (scene.root / "sys/class/infiniband" / device.replace("/", "/ports/")).glob(
        f"*/{counter}"
    )
    for _ in range(intervals):
        files.write_text(f"{int(files.read_text()) + step}\n")
        scene.interval()


def bonded(scene: Scene) -> None:
    """The management adapter's two ports as mlx5_bond_0."""
    base = "sys/class/infiniband/mlx5_8/ports/1/gid_attrs/ndevs/0"
    scene.write(base, "bond0\n")
    scene.write("sys/class/net/bond0/operstate", "up\n")
    scene.write("sys/class/net/bond0/bonding/slaves", "ens1f0np0 ens1f1np1\n")
    scene.write("proc/net/route", (scene.root / "proc/net/route").read_text().replace(
        "ens1f0np0", "bond0"))  # fmt: skip
    (scene.root / "sys/class/net/bond0/lower_ens1f0np0").mkdir()
    scene.write("sys/class/net/ens1f0np0/bonding_slave/mii_status", "up\n")
    scene.write("sys/class/net/ens1f1np1/bonding_slave/mii_status", "up\n")


def functions(scene: Scene) -> None:
    """Two unused virtual functions of mlx5_0: down, each with its interface here."""
    for number in (1, 2):
        add(scene, place(0, number), f"ibp24s0v{number}", netdevs=[f"ibv{number}"],
            function_of=address(0))  # fmt: skip
        down(scene, f"ibp24s0v{number}/1", "3: Disabled")
