"""Interface statistics from the kernel: the same numbers as the real `ethtool` prints."""

from __future__ import annotations

import errno
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from console.demo import sysfs
from tests.conftest import Lab
from tests.probes_node.rig import REPOSITORY, Machine

READ = """
import json, socket, sys
sys.path.insert(0, sys.argv[1])
from probes.node import ethtool
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
    answer = {}
    for name in sys.argv[2:]:
        try:
            count = ethtool.count_of(handle, name)
            names = ethtool.names_of(handle, name, count)
            numbers = ethtool.statistics(handle, name, count)
            answer[name] = [ethtool.driver(handle, name), list(zip(names, numbers))]
        except OSError as error:
            answer[name] = error.errno
print(json.dumps(answer))
"""
SCRIPT = """
set -e
ip link add v0 type veth peer name v1
ip link set v0 up; ip link set v1 up
for try in 1 2; do ping -c 1 -W 1 -I v0 192.0.2.1 >/dev/null 2>&1 || true; done
"$1" -I -S -c "$2" "$3" v0 v1 lo none0
ethtool -S v0; echo ====; ethtool -i v0
"""


def printed(text: str) -> dict[str, str]:
    pairs = [line.partition(":") for line in text.splitlines()]
    return {name.strip(): value.strip() for name, _, value in pairs if value.strip()}


def test_the_kernel_says_what_the_tool_prints(lab: Lab, node_python: str) -> None:
    """In a network namespace of its own, on each Python a node may have."""
    lab.netns()
    lab.programs("ethtool", "ethtool", package="ethtool")
    words = ["unshare", "-n", "sh", "-c", SCRIPT, "sh", node_python, READ, str(REPOSITORY)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    first, _, rest = done.stdout.partition("\n")
    statistics, _, about = rest.partition("====")
    answer = json.loads(first)
    driver, numbers = answer["v0"]
    want = printed(statistics)
    assert {name: str(number) for name, number in numbers} == want
    assert int(want["peer_ifindex"]) > 0
    assert (driver["driver"], driver["bus"]) == ("veth", printed(about).get("bus-info", ""))
    assert driver["driver_version"] == printed(about)["version"]
    assert answer["lo"] == errno.EOPNOTSUPP
    assert answer["none0"] == errno.ENODEV


def interfaces(machine: Machine, **known: dict[str, Any]) -> None:
    """What the simulated node's kernel answers."""
    (machine.directory / "ethtool.json").write_text(json.dumps(known))


def entry(bus: str = "0000:29:00.0", /, **stats: int) -> dict[str, Any]:
    return {"driver": "mlx5_core", "fw": "26.38.1002 (MT_0000000547)", "bus": bus, "stats": stats}


@pytest.fixture
def node(each_machine: Machine) -> Machine:
    sysfs.build(each_machine.root)
    return each_machine


def test_only_what_is_listed_is_sent(node: Machine) -> None:
    queues = {f"rx{queue}_packets": 7 for queue in range(3000)}
    stats = {**queues, "rx_prio3_pause_duration": 12, "rx_discards_phy": 2**40, "rx_vport_x": 4}
    interfaces(node, ens1f0np0=entry(**stats))
    with node.session() as session:
        values = session.collect("ethtool")
    assert values == {
        "ens1f0np0": {
            "port": "mlx5_8/1", "driver": "mlx5_core", "fw": "26.38.1002 (MT_0000000547)",
            "rx_prio3_pause_duration": 12, "rx_discards_phy": 2**40,
        }
    }  # fmt: skip


def test_names_that_change_their_place_are_read_anew(node: Machine) -> None:
    interfaces(node, ens1f0np0=entry(rx_out_of_buffer=1, rx_discards_phy=2))
    with node.session() as session:
        session.collect("ethtool")
        interfaces(node, ens1f0np0=entry(rx9_packets=9, rx_out_of_buffer=3, rx_discards_phy=4))
        values = session.collect("ethtool")["ens1f0np0"]
    assert (values["rx_out_of_buffer"], values["rx_discards_phy"]) == (3, 4)
    assert "rx9_packets" not in values


@pytest.mark.parametrize("bus", ["0000:99:00.0", "", "29:00.0"])
def test_an_interface_of_another_machine_is_not_read(node: Machine, bus: str) -> None:
    """A container with the host's /sys and a network of its own may have the same names."""
    interfaces(node, ens1f0np0=entry(bus, rx_discards_phy=2))
    with node.session() as session:
        assert session.collect("ethtool") == {}


def test_interfaces_without_kernel_or_driver_are_absent(node: Machine) -> None:
    with node.session() as session:
        assert session.collect("ethtool") == {}
        interfaces(node, ens1f0np0=entry())
        values = session.collect("ethtool")["ens1f0np0"]
    assert set(values) == {"port", "driver", "fw"}


def test_a_driver_that_claims_a_million_statistics_is_not_asked(node: Machine) -> None:
    many = {f"rx{queue}_packets": 1 for queue in range(20_000)}
    interfaces(node, ens1f0np0=entry(rx_discards_phy=2, **many))
    with node.session() as session:
        assert session.collect("ethtool") == {}


def test_a_bond_is_read_by_its_legs(node: Machine) -> None:
    base = "sys/class/infiniband/mlx5_8/ports/1/gid_attrs/ndevs/0"
    sysfs.write(node.root, base, "bond0\n")
    sysfs.write(node.root, "sys/class/net/bond0/bonding/slaves", "ens1f0np0 ens1f1np1\n")
    other = node.root / "sys/class/net/ens1f1np1"
    other.symlink_to("../../devices/pci0000:27/0000:27:01.0/0000:29:00.1/net/ens1f1np1")
    interfaces(node, ens1f0np0=entry(rx_discards_phy=2),
               ens1f1np1=entry("0000:29:00.1", rx_discards_phy=3))  # fmt: skip
    with node.session() as session:
        values = session.collect("ethtool")
    assert {name: (v["bond"], v["port"], v["rx_discards_phy"]) for name, v in values.items()} == {
        "ens1f0np0": ("bond0", "mlx5_8/1", 2),
        "ens1f1np1": ("bond0", "mlx5_8/1", 3),
    }


def test_virtual_functions_are_not_asked(node: Machine) -> None:
    path: Path = node.root / "sys/class/infiniband/mlx5_8/device/physfn"
    path.symlink_to("../0000:29:00.0")
    interfaces(node, ens1f0np0=entry(rx_discards_phy=2))
    with node.session() as session:
        assert session.collect("ethtool") == {}
