"""RDMA adapters of a simulated node: InfiniBand, RoCE, EFA and Omni-Path as sysfs shows them.

Values are as we know them of such ports, not copied from a real node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from console.demo.sysfs_files import aer, link, many, pci, write
from console.demo.sysfs_text import (
    COUNTERS,
    EFA_COUNTERS,
    HFI1_COUNTERS,
    HW_COUNTERS,
    UP,
)

CLASS = "sys/class/infiniband"
INFINIBAND = "InfiniBand"


class Product(NamedTuple):
    """An adapter model with its driver."""

    vendor: str
    device: str
    pci_class: str
    hca: str
    firmware: str
    board: str
    driver: str
    layer: str
    rate: str
    gen: str = "32.0"
    counters: Sequence[str] = COUNTERS
    hw_counters: Sequence[str] = HW_COUNTERS


CX7_NDR = Product("0x15b3", "0x1021", "0x020700", "MT4129", "28.39.3560", "MT_0000000838",
                  "mlx5_core", INFINIBAND, UP["rate"])  # fmt: skip
CX7_ROCE = CX7_NDR._replace(pci_class="0x020000", layer="Ethernet")
CX6_HDR = CX7_NDR._replace(device="0x101b", hca="MT4123", firmware="20.35.1012", gen="16.0",
                           board="MT_0000000223", rate="200 Gb/sec (4X HDR)")  # fmt: skip
CX6_ROCE = CX6_HDR._replace(pci_class="0x020000", layer="Ethernet")
CX6LX = CX7_ROCE._replace(device="0x101f", hca="MT4127", firmware="26.38.1002", gen="8.0",
                          board="MT_0000000531", rate="25 Gb/sec (1X EDR)")  # fmt: skip
EFA = Product("0x1d0f", "0xefa2", "0x020000", "", "0.0.0.0", "", "efa", "Unspecified",
              "100 Gb/sec (4X EDR)", "16.0", (), EFA_COUNTERS)  # fmt: skip
HFI1 = Product("0x8086", "0x24f0", "0x020800", "", "1.27.0", "", "hfi1", INFINIBAND,
               "100 Gb/sec (4X EDR)", "8.0", COUNTERS, ())  # fmt: skip
BNXT = Product("0x14e4", "0x1760", "0x020000", "", "230.0.157.0", "", "bnxt_en", "Ethernet",
               "400 Gb/sec (4X NDR)", "32.0", (), ("rx_pkts", "oos_drop_count"))  # fmt: skip


def adapter(
    root: Path,
    place: str,
    name: str,
    product: Product = CX7_NDR,
    *,
    netdevs: Sequence[str] = (),
    guid: str = "",
    lid: int = 0,
    numa: int = 0,
    ports: int = 1,
    function_of: str = "",
) -> None:
    """A healthy adapter at `place` below /sys/devices ("pci0000:15/0000:15:01.0/0000:18:00.0").

    All ports are active and all counters 0; `netdevs` are its interfaces by port, and
    `function_of` is the address of the physical function when this one is virtual.
    """
    base = pci(root, place, product.vendor, product.device, product.pci_class, gen=product.gen,
               numa=numa)  # fmt: skip
    aer(root, base)
    (root / "sys/bus/pci/drivers" / product.driver).mkdir(parents=True, exist_ok=True)
    link(root, f"{base}/driver", f"sys/bus/pci/drivers/{product.driver}")
    if function_of:
        (root / base / "physfn").symlink_to(f"../{function_of}")
    device = f"{base}/infiniband/{name}"
    about = {"hca_type": product.hca, "board_id": product.board}
    many(root, device, {
        "node_guid": guid, "sys_image_guid": guid, "node_type": "1: CA",
        "fw_ver": product.firmware, "node_desc": name,
        **{file: text for file, text in about.items() if text},
    })  # fmt: skip
    for port in range(1, ports + 1):
        netdev = netdevs[port - 1] if port <= len(netdevs) else ""
        _port(root, device, port, product, netdev, lid)
        if netdev:
            _interface(root, base, netdev, port)
    link(root, f"{device}/device", base)
    link(root, f"{CLASS}/{name}", device)


def _port(root: Path, device: str, port: int, product: Product, netdev: str, lid: int) -> None:
    base = f"{device}/ports/{port}"
    manager = "0x1" if product.layer == INFINIBAND else "0x0"
    many(root, base, {
        **UP, "rate": product.rate, "link_layer": product.layer, "lid": hex(lid),
        "sm_lid": manager,
    })  # fmt: skip
    if product.counters:
        many(root, f"{base}/counters", dict.fromkeys(product.counters, 0))
    if product.hw_counters:
        settings = {"lifespan": 10} if "lifespan" in product.hw_counters else {}
        many(root, f"{base}/hw_counters", {**dict.fromkeys(product.hw_counters, 0), **settings})
    elif product.driver == "hfi1":
        many(root, f"{device}/hw_counters", {**dict.fromkeys(HFI1_COUNTERS, 0), "lifespan": 10})
    if netdev:
        many(root, f"{base}/gid_attrs/types", {"0": "IB/RoCE v1"})
        many(root, f"{base}/gid_attrs/ndevs", {"0": netdev})


def _interface(root: Path, base: str, netdev: str, port: int) -> None:
    many(root, f"{base}/net/{netdev}", {
        "operstate": "up", "carrier": 1, "carrier_changes": 2, "dev_port": port - 1, "mtu": 4092,
    })  # fmt: skip
    link(root, f"sys/class/net/{netdev}", f"{base}/net/{netdev}")


# ---------------------------------------------------------------------- changes


def counter(root: Path, port: str, name: str, value: int) -> None:
    """Set a counter of a port ("mlx5_0/1"), wherever it lives."""
    known = (HW_COUNTERS, EFA_COUNTERS)
    directory = "hw_counters" if any(name in names for names in known) else "counters"
    write(root, f"{_port_dir(port)}/{directory}/{name}", f"{value}\n")


def port_state(root: Path, port: str, values: Mapping[str, str]) -> None:
    """Set files of a port: UP, DOWN, or any of state, phys_state, rate, lid."""
    for name, text in values.items():
        write(root, f"{_port_dir(port)}/{name}", f"{text}\n")


def _port_dir(port: str) -> str:
    device, _, number = port.partition("/")
    return f"{CLASS}/{device}/ports/{number}"
