"""What a port is for, by itself and among peers; and that only like ports are compared."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.derive import SLOW
from probes.event import Scalar, Severity
from probes.ports import port_role
from tests.judging.build import IB, SLOTS, Built, by_rule, findings, fleet

NEAR: dict[str, Any] = {"gpu_distance": "PIX", "gpu_numa": True, "switched_ports": 8,
                        "gpu_side_ports": 9}  # fmt: skip
ETHERNET: dict[str, Any] = {"link_layer": "Ethernet"}
IB_LAYER: dict[str, Any] = {"link_layer": "InfiniBand"}


@pytest.mark.parametrize(
    ("values", "role"),
    [
        ({**IB_LAYER, **NEAR, "default_route": True}, "management"),
        ({**IB_LAYER, **NEAR, "gpu_numa": False, "gpu_distance": "SYS"}, "management"),
        ({**ETHERNET, **NEAR}, "compute"),
        ({**ETHERNET, **NEAR, "gpu_distance": "PXB"}, "compute"),
        ({**ETHERNET, **NEAR, "gpu_distance": "NODE"}, "storage"),
        ({**IB_LAYER, **NEAR, "gpu_distance": "NODE"}, "compute"),
        ({"link_layer": "Unspecified", **NEAR, "gpu_distance": "PHB"}, "compute"),
        ({**ETHERNET, "gpu_distance": "SYS", "switched_ports": 0, "gpu_side_ports": 4}, "compute"),
        ({**ETHERNET, "gpu_distance": "SYS", "gpu_numa": False, "gpu_side_ports": 0}, "compute"),
        ({**ETHERNET}, "compute"),
        ({}, "compute"),
        ({**NEAR, "is_vf": True}, "virtual"),
        ({**IB_LAYER, **NEAR, "nvswitch": True}, "internal"),
        ({**ETHERNET, **NEAR, "representor": True, "is_vf": False}, "internal"),
        ({**ETHERNET, "software": True}, "internal"),
    ],
)  # fmt: skip
def test_role_of_a_port(values: dict[str, Scalar], role: str) -> None:
    assert port_role(values) == role


def test_ports_of_another_role_do_not_set_the_rate() -> None:
    """Eight storage ports of 200 Gb/s say nothing about eight compute ports of 400."""
    nodes = fleet(4)
    for node in nodes:
        for number, port in enumerate(IB):
            node.change("infiniband", port, pci=f"0000:a{number}:00.0", **ETHERNET, **NEAR)
            node.put(
                "infiniband",
                f"sto{number}/1",
                state=4,
                phys_state=5,
                rate_gbps=200.0,
                pci=f"0000:b{number}:00.0",
                **ETHERNET,
                **NEAR | {"gpu_distance": "NODE"},
            )
    assert not findings(nodes[0], nodes[1:])
    nodes[0].change("infiniband", "sto3/1", rate_gbps=100.0)
    rate = by_rule(findings(nodes[0], nodes[1:]))["ib.rate"]
    assert (rate.device, rate.severity) == ("sto3/1", Severity.WARN)
    assert "its peers at 200" in rate.say


def test_a_port_with_its_own_usual_rate_is_compared_with_itself() -> None:
    """The ninth InfiniBand port is a slower one on every node."""
    nodes = fleet(4)
    for node in nodes:
        node.put("infiniband", "mlx5_9/1", state=4, phys_state=5, rate_gbps=200.0,
                 pci="0000:b0:00.0", **IB_LAYER)  # fmt: skip
    assert not findings(nodes[0], nodes[1:])


def test_a_gpu_that_is_gone_does_not_change_what_its_adapter_is_for() -> None:
    nodes = fleet(4)
    for node in nodes:
        for number, port in enumerate(IB):
            node.change("infiniband", port, pci=f"0000:a{number}:00.0", **NEAR)
    broken = nodes[0]
    for port in IB[4:]:
        broken.change("infiniband", port, gpu_numa=False, gpu_distance="SYS", gpu_side_ports=4)
    assert not findings(broken, nodes[1:])
    broken.change("infiniband", IB[6], state=1, state_text="DOWN", phys_state=2)
    assert by_rule(findings(broken, nodes[1:]))["ib.down"].severity is Severity.CRITICAL


def test_a_port_that_one_peer_of_many_uses_is_not_expected() -> None:
    nodes = fleet(8)
    for number, node in enumerate(nodes):
        up = number == 7
        node.put("infiniband", "mlx5_9/1", state=4 if up else 1, phys_state=5 if up else 2,
                 rate_gbps=400.0, **IB_LAYER)  # fmt: skip
    found = by_rule(findings(nodes[0], nodes[1:]))
    assert "ib.down" not in found
    assert found["ib.unused"].say == "mlx5_9/1 is down here and on 6 of 7 peers"


def test_a_port_that_was_active_is_expected_even_when_all_peers_lost_it_too() -> None:
    nodes = fleet(4)
    for node in nodes:
        node.change("infiniband", IB[2], state=1, state_text="DOWN", phys_state=2)
    found = by_rule(findings(nodes[0], nodes[1:]))["ib.down"]
    assert found.severity is Severity.CRITICAL
    assert "switch" in found.cause
    assert "look at the switch first" in found.next_step
    assert str(found.action) != "drain"


def test_a_reboot_forgets_which_ports_were_active() -> None:
    node = Built()
    node.put("hello", "", python="3.9", uid=0, boot_id="b2")
    assert node.facts.used_ports == {}
    assert node.facts.hours == {}


def test_a_missing_storage_adapter_is_a_warning() -> None:
    nodes = fleet(4)
    for node in nodes:
        for port in IB:
            node.change("infiniband", port, **NEAR)
        node.put("infiniband", "sto0/1", state=4, phys_state=5, rate_gbps=200.0,
                 pci="0000:b0:00.0", **ETHERNET, **NEAR | {"gpu_distance": "NODE"})  # fmt: skip
    nodes[0].put("infiniband", "sto0/1", gone=True)
    missing = by_rule(findings(nodes[0], nodes[1:]))["ib.missing"]
    assert (missing.device, missing.severity) == ("sto0/1", Severity.WARN)


VALUES = st.one_of(
    st.integers(min_value=-(10**20), max_value=10**20), st.floats(), st.booleans(),
    st.text(max_size=8), st.sampled_from(["PIX", "SYS", "mlx5_0/1", "Ethernet", 4, 2, 1]),
)  # fmt: skip
NAMES = {
    "ethtool": [*sorted(SLOW), "tx_prio3_pause_duration", "rx_global_pause_duration", "port",
                "outbound_pci_stalled_wr", "rx_bits_phy", "rx_corrected_bits_phy",
                "rx_discards_phy"],
    "topology": ["nic", "nic_distance", "numa"],
    "infiniband": ["state", "phys_state", "gpu_distance", "switched_ports", "bond_legs", "width",
                   "bond_legs_up", "pci_width", "pci_width_max", "carrier_changes", "rate_gbps",
                   "hca", "pci", "link_layer", "port_xmit_wait", "np_cnp_sent", "sm_lid"],
}  # fmt: skip


@given(
    st.sampled_from(sorted(NAMES)).flatmap(
        lambda probe: st.tuples(
            st.just(probe),
            st.lists(
                st.dictionaries(st.sampled_from(NAMES[probe]), VALUES), min_size=2, max_size=4
            ),
        )
    )
)
def test_whatever_a_node_says_can_be_judged(said: tuple[str, list[dict[str, Any]]]) -> None:
    probe, answers = said
    node = Built()
    device = {"ethtool": "eth0", "topology": SLOTS[0], "infiniband": IB[0]}[probe]
    for values in answers:
        node.clock += 15.0
        node.put(probe, device, **values)
    for found in findings(node, OTHERS):
        assert found.say
        assert len(found.evidence) <= 8


OTHERS = fleet(4)[1:]
