"""RDMA ports of a whole node: each fault is found within two intervals, no healthy way is one."""

from __future__ import annotations

import shutil

import pytest

from console.demo.sysfs_rdma import CX6_ROCE, CX7_ROCE, EFA
from probes.event import Action, Severity
from tests.scenes import rdma
from tests.scenes.rdma import Make, add, bonded, down, fabric, functions, grow, place, port
from tests.scenes.rig import Scene

NET = "sys/class/net"
CLASS = "sys/class/infiniband"


# --- a port that is not active: cause and next step by its state


@pytest.mark.parametrize(
    ("state", "phys", "cause", "step"),
    [
        ("1: DOWN", "2: Polling", "no signal", "switch port"),
        ("1: DOWN", "3: Disabled", "switched off", "who disabled it"),
        ("1: DOWN", "4: PortConfigurationTraining", "does not come up", "same speed"),
        ("1: DOWN", "6: LinkErrorRecovery", "lost its signal", "exchange cable"),
        ("1: DOWN", "7: Phy Test", "test mode", "end the test"),
        ("2: INIT", "5: LinkUp", "no subnet manager", "opensm"),
        ("3: ARMED", "5: LinkUp", "not activated", "subnet manager's log"),
    ],
)
def test_a_port_that_goes_down(scene: Scene, state: str, phys: str, cause: str, step: str) -> None:
    scene.interval()
    down(scene, "mlx5_3/1", phys, state)
    scene.interval(2)
    assert scene.rules() == {"ib.down"}
    found = scene.rule("ib.down")
    assert (found.severity, found.action) == (Severity.CRITICAL, Action.DRAIN)
    assert found.device == "mlx5_3/1"
    assert phys.split()[1] in found.say
    assert cause in found.cause
    assert step in found.next_step


def test_the_subnet_manager_is_gone_everywhere(scene: Scene) -> None:
    for index in range(8):
        port(scene, f"mlx5_{index}/1", state="2: INIT", sm_lid="0x0", lid="0xffff")
    scene.interval(2)
    assert scene.rules() == {"ib.no_manager"}
    found = scene.rule("ib.no_manager", "mlx5_0")
    assert found.severity is Severity.CRITICAL
    assert "do not drain" in found.next_step
    assert "sm_lid 0" in found.evidence[0]


def test_a_port_that_was_active_here_and_is_alone_with_it(scenes: Make) -> None:
    scene = scenes(peers=0).interval()
    down(scene, "mlx5_3/1")
    scene.interval(2)
    assert scene.rule("ib.down").severity is Severity.CRITICAL


def test_a_port_beside_a_gpu_that_never_had_a_link_on_a_node_without_peers(scenes: Make) -> None:
    scene = scenes(peers=0)
    down(scene, "mlx5_3/1")
    add(scene, "pci0000:27/0000:27:02.0/0000:2a:00.0", "mlx5_9", lid=99)
    down(scene, "mlx5_9/1")
    scene.interval(2)
    assert scene.rules() == {"ib.down"}
    assert scene.rule("ib.down").device == "mlx5_3/1"
    assert scene.rule("ib.down").severity is Severity.WARN
    assert scene.rule("ib.unused").device == "mlx5_9/1"


def test_an_adapter_that_falls_off_the_bus(scene: Scene) -> None:
    scene.interval()
    scene.remove(f"{CLASS}/mlx5_5")
    scene.remove(f"sys/bus/pci/devices/{rdma.address(5)}")
    scene.interval(2)
    assert scene.rules() == {"ib.missing", "affinity.far"}
    found = scene.rule("ib.missing")
    assert (found.device, found.severity) == ("mlx5_5/1", Severity.CRITICAL)
    assert rdma.address(5) in found.say


def test_an_adapter_that_is_on_the_bus_without_rdma(scene: Scene) -> None:
    """A pod has it, or the driver's RDMA part failed: no lost card."""
    scene.interval()
    scene.remove(f"{CLASS}/mlx5_5")
    scene.interval(2)
    assert scene.rules() == {"ib.missing", "affinity.far"}
    found = scene.rule("ib.missing")
    assert (found.severity, found.action) == (Severity.WARN, Action.WATCH)
    assert f"{rdma.address(5)} mlx5_core" in found.evidence[1]
    assert "network namespace" in found.cause


def test_a_storage_port_that_goes_down_is_a_warning(scene: Scene) -> None:
    add(scene, "pci0000:27/0000:27:02.0/0000:2a:00.0", "mlx5_9", CX6_ROCE, netdevs=["sto0"])
    scene.interval()
    down(scene, "mlx5_9/1")
    scene.interval(2)
    assert scene.rules() == {"ib.down"}
    assert scene.rule("ib.down").severity is Severity.WARN
    assert scene.rule("ib.down").action is Action.WATCH


def test_an_interface_that_somebody_switched_off(scenes: Make) -> None:
    scene = fabric(scenes, CX7_ROCE).interval()
    down(scene, "rdma3/1", "3: Disabled")
    scene.write(f"{NET}/eth3/operstate", "down\n")
    scene.interval(2)
    assert scene.rules() == {"ib.down"}
    assert "ip link set eth3 up" in scene.rule("ib.down").next_step


# --- rate, lanes, bonds, flaps


@pytest.mark.parametrize(
    ("rate", "cause"),
    [("200 Gb/sec (2X NDR)", "2 of 4 lanes"), ("200 Gb/sec (4X HDR)", "lower-speed")],
)
def test_a_slow_port(scene: Scene, rate: str, cause: str) -> None:
    scene.interval()
    port(scene, "mlx5_2/1", rate=rate)
    scene.interval(2)
    assert scene.rules() == {"ib.rate"}
    assert scene.rule("ib.rate").device == "mlx5_2/1"
    assert cause in scene.rule("ib.rate").cause


def test_a_port_that_was_faster_on_a_node_with_no_other(scenes: Make) -> None:
    scene = scenes(peers=0, hcas=1).interval()
    port(scene, "mlx5_0/1", rate="100 Gb/sec (2X HDR)")
    scene.interval(2)
    assert scene.rules() == {"ib.rate"}
    assert "runs at 100 Gb/s, before at 400" in scene.rule("ib.rate").say


def test_an_adapter_with_half_its_pcie_lanes(scene: Scene) -> None:
    scene.write(f"sys/bus/pci/devices/{rdma.address(6)}/current_link_width", "8\n")
    scene.interval(2)
    assert "ib.pcie_width" in scene.rules()
    assert scene.rule("ib.pcie_width").device == "mlx5_6/1"
    assert "7 like adapters have x16" in scene.rule("ib.pcie_width").evidence[0]


def test_a_bond_loses_a_leg(scene: Scene) -> None:
    bonded(scene)
    scene.interval()
    assert scene.rules() == set()
    scene.write(f"{NET}/ens1f1np1/bonding_slave/mii_status", "down\n")
    scene.interval(2)
    assert scene.rules() == {"ib.bond_leg"}
    assert "1 of 2 legs of bond0" in scene.rule("ib.bond_leg").say


def test_a_link_that_flaps(scene: Scene) -> None:
    scene.interval()
    scene.write(f"{NET}/ens1f0np0/carrier_changes", "6\n")
    scene.interval(2)
    assert scene.rules() == {"ib.flaps"}
    assert "+4 in the last hour" in scene.rule("ib.flaps").say


def test_one_maintenance_of_the_link_is_no_flapping(scene: Scene) -> None:
    scene.interval()
    scene.write(f"{NET}/ens1f0np0/carrier_changes", "4\n")
    scene.interval(3)
    assert scene.rules() == set()


# --- counters


@pytest.mark.parametrize(
    ("counter", "step", "rule", "severity"),
    [
        ("symbol_error", 300, "ib.symbol_error", Severity.WARN),
        ("symbol_error", 130, "ib.symbol_error_hour", Severity.WARN),
        ("link_error_recovery", 3, "ib.link_error_recovery", Severity.WARN),
        ("link_downed", 1, "ib.link_downed", Severity.CRITICAL),
        ("local_link_integrity_errors", 1, "ib.local_link_integrity_errors", Severity.CRITICAL),
        ("excessive_buffer_overrun_errors", 1, "ib.excessive_buffer_overrun_errors",
         Severity.CRITICAL),
        ("port_rcv_errors", 200, "ib.port_rcv_errors", Severity.WARN),
        ("port_xmit_discards", 2000, "ib.port_xmit_discards", Severity.WARN),
        ("local_ack_timeout_err", 30, "ib.local_ack_timeout_err", Severity.WARN),
        ("rnr_nak_retry_err", 1, "ib.rnr_nak_retry_err", Severity.WARN),
        ("roce_slow_restart", 200, "ib.roce_slow_restart", Severity.WARN),
        ("rx_icrc_encapsulated", 2, "ib.rx_icrc_encapsulated", Severity.WARN),
    ],
)  # fmt: skip
def test_a_counter_that_rises(
    scene: Scene, counter: str, step: int, rule: str, severity: Severity
) -> None:
    scene.interval()
    grow(scene, "mlx5_4/1", counter, step)
    assert scene.rules() == {rule}
    assert (scene.rule(rule).device, scene.rule(rule).severity) == ("mlx5_4/1", severity)


@pytest.mark.parametrize("counter", ["local_link_integrity_errors", "rnr_nak_retry_err"])
def test_one_event_is_told_though_it_is_over(scene: Scene, counter: str) -> None:
    scene.interval()
    grow(scene, "mlx5_4/1", counter, 1, intervals=1)
    scene.interval()
    assert scene.rules() == {f"ib.{counter}"}


def test_a_counter_that_fills_up_while_we_look(scene: Scene) -> None:
    scene.counter("mlx5_4/1", "link_downed", 253)
    scene.interval()
    scene.counter("mlx5_4/1", "link_downed", 255)
    scene.interval(2)
    assert scene.rules() == {"ib.saturated", "ib.link_downed"}


def test_efa_that_resends(scenes: Make) -> None:
    scene = fabric(scenes, EFA, "rdmap{}s0").interval()
    grow(scene, "rdmap3s0/1", "retrans_timeout_events", 40)
    assert scene.rules() == {"ib.retrans_timeout_events", "ib.efa_totals"}
    assert scene.rule("ib.efa_totals").device == "rdmap3s0/1"


def test_a_driver_that_is_loaded_anew_counts_from_zero(scene: Scene) -> None:
    scene.counter("mlx5_1/1", "link_downed", 7)
    scene.counter("mlx5_1/1", "symbol_error", 4000)
    scene.interval()
    scene.counter("mlx5_1/1", "link_downed", 1)
    scene.counter("mlx5_1/1", "symbol_error", 300)
    scene.interval(3)
    assert scene.rules() == set()
    assert scene.sample("infiniband", "mlx5_1/1").values["symbol_error"] == 300


# --- virtual functions


def test_a_virtual_function_handed_to_a_pod_and_down(scene: Scene) -> None:
    functions(scene)
    shutil.rmtree(scene.root / f"sys/devices/{place(0, 2)}/net/ibv2")
    scene.interval(2)
    assert scene.rules() == {"ib.vf_down"}
    assert scene.rule("ib.vf_down").device == "ibp24s0v2/1"


def test_a_driver_without_its_rdma_part_is_one_fault(scene: Scene) -> None:
    """All cards are on the bus; nothing is to be reseated."""
    scene.interval()
    scene.remove("sys/class/infiniband")
    scene.interval(2)
    found = scene.rule("ib.missing")
    assert found.severity is Severity.WARN
    assert found.value == 9
    assert "mlx5_0/1, mlx5_1/1, mlx5_2/1, mlx5_3/1 and 5 more" in found.say
    assert "reseat" not in found.next_step
    assert scene.rules() == {"ib.missing"}
