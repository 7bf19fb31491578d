"""RDMA ports: field cases as trees below a root, and what the probe must never do."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from console.demo import sysfs
from probes.node import infiniband
from probes.node.context import Context
from tests.probes_node.rig import case, facts

Ports = dict[str, dict[str, Any]]


def tree(root: Path, name: str) -> dict[str, Any]:
    """A case's dump as files; its extra knowledge (vendor, physfn, pods) as sysfs shows it."""
    dump: dict[str, Any] = case(name)
    for path, content in dump["files"].items():
        sysfs.write(root, f"sys/class/infiniband/{path}", content + "\n")
    devices = sorted({path.split("/")[0] for path in dump["files"]})
    for number, device in enumerate(devices):
        function = root / f"sys/devices/pci0000:00/0000:{number + 1:02x}:00.0"
        (function / "net").mkdir(parents=True)
        vendor = dump.get("vendor_ids", {}).get(device, "0x15b3")
        (function / "vendor").write_text(vendor + "\n")
        (root / "sys/class/infiniband" / device / "device").symlink_to(function)
        if device in dump.get("physfn", {}):
            (function / "physfn").symlink_to("../0000:01:00.0")
        if device not in dump.get("in_use_by_pod", []):
            (function / "net" / f"net{number}").mkdir()
    return dump


def collect(root: Path) -> Ports:
    """One tick of a new agent."""
    return infiniband.collect(Context(str(root)))[0]


def test_efa(tmp_path: Path) -> None:
    name = "ib-sysfs-efa-rdmap"
    tree(tmp_path, name)
    wanted, ports = facts(name), collect(tmp_path)
    assert len(ports) == wanted["devices"]
    assert {values["vendor"] for values in ports.values()} == {"1d0f"}
    for counter, value in wanted["rdmap79s0"].items():
        assert ports["rdmap79s0/1"][counter] == value
        assert [ports[p][counter] for p in ports if p != "rdmap79s0/1"] == [0, 0, 0]
    assert {values["state"] for values in ports.values()} == {4}
    assert not [p for p, values in ports.items() if "lid" in values]
    assert all(values["has_counters"] for values in ports.values())


def test_no_pma_and_names_with_commas(tmp_path: Path) -> None:
    name = "ib-sysfs-na-no-pma-and-hfi1-commas"
    dump = tree(tmp_path, name)
    wanted, ports = facts(name), collect(tmp_path)
    mlx4, hfi1 = ports["mlx4_0/1"], ports["hfi1_0/1"]
    assert (mlx4["state_text"].lower(), mlx4["has_counters"]) == (wanted["mlx4_0"]["state"], False)
    assert hfi1["state_text"].lower() == wanted["hfi1_0"]["state"]
    assert hfi1["has_counters"] is True
    names = {path.rsplit("/", 1)[1] for path in dump["files"] if "/counters/" in path}
    assert not names & set(mlx4)
    assert len(names & set(hfi1)) == wanted["hfi1_0"]["counters"]
    for counter, value in wanted["hfi1_0"]["device_counters"].items():
        assert hfi1[counter] == value
        assert counter not in mlx4
    assert hfi1["port_rcv_data"] == 118203344121


def test_roce_and_bonds_have_no_lid(tmp_path: Path) -> None:
    name = "ib-sysfs-roce-bond-no-lid"
    tree(tmp_path, name)
    wanted, ports = facts(name), collect(tmp_path)
    for device, expected in wanted.items():
        port = ports[f"{device}/1"]
        assert port["link_layer"] == expected["layer"]
        assert port.get("lid") == expected["lid"]
        assert port["bond"] is expected.get("bond", False)
        assert port["rate_gbps"] == expected.get("rate_gbps", port["rate_gbps"])
        assert (port["state"], port["phys_state"]) == (4, 5)
    assert ports["rocep65s0f0/1"]["np_cnp_sent"] == 1201


def test_virtual_functions(tmp_path: Path) -> None:
    name = "ib-sysfs-vf-down"
    tree(tmp_path, name)
    wanted, ports = facts(name), collect(tmp_path)
    functions: dict[str, list[str]] = {"pf": [], "vf": []}
    for port, values in ports.items():
        functions["vf" if values["is_vf"] else "pf"].append(port.split("/")[0])
    assert functions == {kind: wanted[kind] for kind in functions}
    in_use_down = [
        port.split("/")[0]
        for port, values in ports.items()
        if values.get("vf_in_use") and values["state_text"] == "DOWN"
    ]
    assert in_use_down == wanted["vf_in_use_down"]
    assert ports["ibp24s0v1/1"]["vf_in_use"] is False
    assert "vf_in_use" not in ports["ibp24s0/1"]


def test_use_of_a_function_without_interfaces_is_unknown(tmp_path: Path) -> None:
    tree(tmp_path, "ib-sysfs-vf-down")
    (tmp_path / "sys/class/infiniband/ibp24s0v2/device/net").rmdir()
    assert "vf_in_use" not in collect(tmp_path)["ibp24s0v2/1"]


def test_a_whole_node(tmp_path: Path) -> None:
    sysfs.build(tmp_path, number=3)
    sysfs.counter(tmp_path, "mlx5_2/1", "symbol_error", 4242)
    sysfs.counter(tmp_path, "mlx5_2/1", "out_of_sequence", 7)
    sysfs.port_state(tmp_path, "mlx5_6/1", sysfs.DOWN)
    ports = collect(tmp_path)
    assert len(ports) == 9
    port = ports["mlx5_2/1"]
    assert (port["symbol_error"], port["out_of_sequence"]) == (4242, 7)
    assert (port["pci"], port["gpu_near"]) == ("0000:4f:00.0", "0000:52:00.0")
    assert (port["netdev"], port["netdev_up"], port["lid"]) == ("ib2", True, 50)
    assert (port["hca"], port["rate_gbps"], port["numa"]) == ("MT4129", 400.0, 0)
    assert (port["pci_width"], port["pci_width_max"]) == (16, 16)
    assert [p for p, values in ports.items() if values["default_route"]] == ["mlx5_8/1"]
    assert "gpu_near" not in ports["mlx5_8/1"]
    down = ports["mlx5_6/1"]
    assert (down["state"], down["phys_text"], down["rate_gbps"]) == (1, "Polling", 10.0)


def test_metrics_that_are_ours_are_declared(tmp_path: Path) -> None:
    sysfs.build(tmp_path)
    port = collect(tmp_path)["mlx5_0/1"]
    counters = {
        name
        for kind in ("counters", "hw_counters")
        for name in os.listdir(tmp_path / "sys/class/infiniband/mlx5_0/ports/1" / kind)
    }
    assert set(port) - counters <= set(infiniband.METRICS)
    assert counters <= set(port)


def test_default_route_through_a_bond_and_a_vlan(tmp_path: Path) -> None:
    sysfs.build(tmp_path)
    route = (tmp_path / "proc/net/route").read_text().replace("ens1f0np0", "bond0.100")
    sysfs.write(tmp_path, "proc/net/route", route)
    for above, below in (("bond0.100", "bond0"), ("bond0", "ens1f0np0")):
        (tmp_path / "sys/class/net" / above / f"lower_{below}").mkdir(parents=True)
    ports = collect(tmp_path)
    assert [p for p, values in ports.items() if values["default_route"]] == ["mlx5_8/1"]


def test_default_route_of_the_host_not_of_the_container(tmp_path: Path) -> None:
    sysfs.build(tmp_path)
    route = (tmp_path / "proc/net/route").read_text()
    sysfs.write(tmp_path, "proc/1/net/route", route.replace("ens1f0np0", "ib4"))
    ports = collect(tmp_path)
    assert [p for p, values in ports.items() if values["default_route"]] == ["mlx5_4/1"]


def test_default_route_in_ipv6_only(tmp_path: Path) -> None:
    sysfs.build(tmp_path)
    sysfs.write(tmp_path, "proc/net/route", "Iface\tDestination\n")
    zero, gateway = "0" * 32, "fe80" + "0" * 27 + "1"
    lines = [
        f"{zero} 00 {zero} 00 {gateway} 00000400 00000001 00000000 00000003 ens1f0np0",
        f"{zero} 00 {zero} 00 {zero} ffffffff 00000001 00000000 00200200       lo",
    ]
    sysfs.write(tmp_path, "proc/net/ipv6_route", "\n".join(lines) + "\n")
    ports = collect(tmp_path)
    assert [p for p, values in ports.items() if values["default_route"]] == ["mlx5_8/1"]


def test_unknown_routes_are_absent(tmp_path: Path) -> None:
    sysfs.build(tmp_path)
    (tmp_path / "proc/net/route").unlink()
    assert not [v for v in collect(tmp_path).values() if "default_route" in v]


def test_a_bond_shows_its_lost_leg(tmp_path: Path) -> None:
    sysfs.build(tmp_path)
    base = "sys/class/infiniband/mlx5_8/ports/1/gid_attrs/ndevs/0"
    sysfs.write(tmp_path, base, "bond0\n")
    sysfs.write(tmp_path, "sys/class/net/bond0/operstate", "up\n")
    sysfs.write(tmp_path, "sys/class/net/bond0/bonding/slaves", "eth2 eth3\n")
    sysfs.write(tmp_path, "sys/class/net/eth2/bonding_slave/mii_status", "up\n")
    sysfs.write(tmp_path, "sys/class/net/eth3/bonding_slave/mii_status", "down\n")
    port = collect(tmp_path)["mlx5_8/1"]
    assert (port["bond"], port["bond_legs"], port["bond_legs_up"]) == (True, 2, 1)
    assert (port["netdev"], port["netdev_up"]) == ("bond0", True)


def test_an_nvswitch_management_function_is_never_asked_for_counters(tmp_path: Path) -> None:
    """Each read would put an ACCESS_REG line into the kernel log."""
    sysfs.build(tmp_path)
    vpd = b"\x82\x10\x00ConnectX-7\x90V3\x0bSMDL=SW_MNG\x78"
    sysfs.write(tmp_path, "sys/class/infiniband/mlx5_1/device/vpd", vpd)
    counters = tmp_path / "sys/class/infiniband/mlx5_1/ports/1/counters"
    before = counters.stat().st_atime_ns
    os.utime(counters / "symbol_error", ns=(1, 1))
    ports = collect(tmp_path)
    assert ports["mlx5_1/1"]["nvswitch"] is True
    assert ports["mlx5_1/1"]["has_counters"] is False
    assert "symbol_error" not in ports["mlx5_1/1"]
    assert (counters / "symbol_error").stat().st_atime_ns == 1
    assert counters.stat().st_atime_ns == before
    assert "nvswitch" not in ports["mlx5_0/1"]


def test_no_rdma_at_all(tmp_path: Path) -> None:
    assert collect(tmp_path) == {}


@pytest.mark.parametrize("text", ["", "garbage", "-", "\x00\xff", "4"])
def test_hostile_texts_are_absent(tmp_path: Path, text: str) -> None:
    sysfs.build(tmp_path)
    for file in ("state", "phys_state", "rate", "lid", "link_layer"):
        sysfs.write(tmp_path, f"sys/class/infiniband/mlx5_0/ports/1/{file}", text)
    port = collect(tmp_path)["mlx5_0/1"]
    assert not {"state", "phys_state", "rate_gbps", "lid"} & set(port)
    assert port["symbol_error"] == 0


def test_two_ports_of_one_adapter(tmp_path: Path) -> None:
    for port, interface, state in ((1, "eth0", "4: ACTIVE"), (2, "eth1", "1: DOWN")):
        base = f"sys/class/infiniband/mlx4_0/ports/{port}"
        sysfs.write(tmp_path, f"{base}/state", state + "\n")
        sysfs.write(tmp_path, f"{base}/counters/link_downed", f"{port}\n")
        net = f"sys/class/infiniband/mlx4_0/device/net/{interface}/dev_port"
        sysfs.write(tmp_path, net, f"{port - 1}\n")
    sysfs.write(tmp_path, "sys/class/infiniband/mlx4_0/hw_counters/RcvOverflow", "3\n")
    ports = collect(tmp_path)
    assert {p: (v["state"], v["link_downed"], v["netdev"]) for p, v in ports.items()} == {
        "mlx4_0/1": (4, 1, "eth0"),
        "mlx4_0/2": (1, 2, "eth1"),
    }
    assert ports["mlx4_0/1"]["RcvOverflow"] == 3
    assert "RcvOverflow" not in ports["mlx4_0/2"]
