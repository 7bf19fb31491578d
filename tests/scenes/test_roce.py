"""Interfaces of RoCE ports: what their drivers count, judged; and congestion, only told."""

from __future__ import annotations

import pytest

from console.demo.sysfs_rdma import BNXT, CX7_ROCE
from probes.event import Action, Severity
from tests.scenes import rdma
from tests.scenes.rdma import Make, fabric
from tests.scenes.rig import INTERVAL_S, Scene

HEALTHY = {
    "rx_prio3_pause": 1200, "rx_prio3_pause_duration": 900, "tx_prio3_pause": 3,
    "tx_prio3_pause_duration": 40, "tx_pause_storm_error_events": 0, "rx_discards_phy": 17,
    "link_down_events_phy": 2, "rx_bits_phy": 10**15, "rx_corrected_bits_phy": 10**8,
    "rx_pcs_symbol_err_phy": 400, "rx_err_lane_0_phy": 5000, "outbound_pci_stalled_wr": 3,
    "outbound_pci_stalled_rd": 0, "module_high_temp": 1, "module_unplug": 0, "rx0_packets": 12,
}  # fmt: skip
"""A port with a life behind it."""
BITS = int(400e9 * INTERVAL_S)
"""What 400 Gb/s brings in one interval."""


class Counting:
    """A node with eight RoCE adapters whose interface eth3 can count."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.totals = dict(HEALTHY)
        self._write()

    def interval(self, count: int = 1, **growth: int) -> Scene:
        """Intervals in each of which the counters of eth3 rise."""
        for _ in range(count):
            for name in growth:
                self.totals[name] += growth[name]
            self._write()
            self.scene.interval()
        return self.scene

    def _write(self) -> None:
        others = {f"eth{index}": HEALTHY for index in range(8) if index != 3}
        rdma.statistics(self.scene, eth3=self.totals, **others)


@pytest.fixture
def node(scenes: Make) -> Counting:
    made = Counting(fabric(scenes, CX7_ROCE))
    made.interval()
    return made


def test_a_port_with_a_life_behind_it_is_healthy(node: Counting) -> None:
    busy = {"rx_bits_phy": BITS, "rx_corrected_bits_phy": BITS // 10**7, "rx_prio3_pause": 100,
            "rx_prio3_pause_duration": 20_000, "tx_prio3_pause_duration": 1000}  # fmt: skip
    scene = node.interval(4, **busy)
    assert scene.findings() == []
    sent = scene.sample("ethtool", "eth3").values
    assert sent["rx_corrected_bits_phy"] == 10**8 + 4 * (BITS // 10**7)
    assert "rx0_packets" not in sent


@pytest.mark.parametrize(
    ("growth", "rule", "severity", "says"),
    [
        ({"tx_pause_storm_error_events": 1}, "roce.pause_storm", Severity.CRITICAL, "+2"),
        ({"rx_discards_phy": 900}, "roce.discards", Severity.WARN, "60 packets/s"),
        ({"link_down_events_phy": 1}, "roce.link_down_events", Severity.WARN, "+2"),
        ({"module_high_temp": 1}, "roce.module", Severity.WARN, "module_high_temp"),
        ({"module_unplug": 1}, "roce.module", Severity.WARN, "module_unplug"),
        ({"rx_bits_phy": BITS, "rx_pcs_symbol_err_phy": 60}, "roce.post_fec_errors", Severity.WARN,
         "1.0e-11"),
        ({"rx_bits_phy": BITS, "rx_corrected_bits_phy": BITS // 5000}, "roce.pre_fec_errors",
         Severity.WARN, "2.0e-04"),
    ],
)  # fmt: skip
def test_a_fault_of_the_interface(
    node: Counting, growth: dict[str, int], rule: str, severity: Severity, says: str
) -> None:
    scene = node.interval(2, **growth)
    assert scene.rules() == {rule}
    found = scene.rule(rule)
    assert (found.severity, found.device) == (severity, "rdma3/1")
    assert "eth3" in found.say
    assert says in scene.rule(rule).say or says in scene.rule(rule).evidence[0]


def test_a_host_that_takes_data_too_slowly(node: Counting) -> None:
    node.totals["outbound_pci_stalled_wr"] = 62
    scene = node.interval(2)
    assert scene.rules() == {"roce.pci_stalled"}
    found = scene.rule("roce.pci_stalled")
    assert "62 % of the time (writes)" in found.say
    assert "the fabric is not the cause" in found.next_step


def test_the_one_host_that_sends_pause_is_the_cause(node: Counting) -> None:
    scene = node.interval(2, tx_prio3_pause_duration=3_000_000)
    assert scene.rules() == {"congestion.host_pause"}
    found = scene.rule("congestion.host_pause")
    assert (found.severity, found.action) == (Severity.WARN, Action.WATCH)
    assert "20% of the time; 0 of 3 peers" in found.say


def test_pause_of_a_node_without_peers_is_only_told(scenes: Make) -> None:
    node = Counting(fabric(scenes, CX7_ROCE, peers=0))
    node.interval()
    scene = node.interval(2, tx_prio3_pause_duration=3_000_000)
    assert scene.rules() == set()
    assert scene.rule("congestion.host_pause").severity is Severity.INFO


@pytest.mark.parametrize(
    ("counter", "step", "says"),
    [
        ("np_cnp_sent", 90_000, "a congested receiver"),
        ("rp_cnp_handled", 90_000, "a throttled sender"),
        ("out_of_sequence", 90_000, "out of order"),
        ("roce_adp_retrans", 30_000, "retransmits"),
        ("port_xmit_wait", 900_000_000, "waits for credits"),
    ],
)
def test_congestion_is_evidence_and_names_the_port(
    scenes: Make, counter: str, step: int, says: str
) -> None:
    scene = fabric(scenes, CX7_ROCE).interval()
    rdma.grow(scene, "rdma2/1", counter, step)
    assert scene.rules() == set()
    found = scene.rule("congestion.evidence")
    assert (found.severity, found.action) == (Severity.INFO, Action.NONE)
    assert "rdma2/1" in found.say
    assert "rdma3/1" not in found.say
    assert says in found.evidence[0]
    assert "do not drain" in found.next_step
    assert "adaptive routing" in found.next_step


def test_received_pause_is_evidence(node: Counting) -> None:
    scene = node.interval(2, rx_prio3_pause_duration=6_000_000)
    assert scene.rules() == set()
    assert "wait 40% of the time" in scene.rule("congestion.evidence").evidence[0]


def test_waiting_everywhere_is_load(scenes: Make) -> None:
    scene = fabric(scenes, CX7_ROCE).interval()
    for _ in range(2):
        for index in range(8):
            scene.counter(f"rdma{index}/1", "port_xmit_wait", int(scene.clock) * 10**3)
        scene.interval()
    assert scene.findings() == []


def test_another_driver_counts_other_things(scenes: Make) -> None:
    scene = fabric(scenes, BNXT, "bnxt_re{}")
    for total in (0, 3000, 6000):
        rdma.statistics(scene, eth3={"rx_pause_frames": 9, "rx_total_discard_pkts": total,
                                     "link_down_events": 1})  # fmt: skip
        scene.interval()
    assert scene.rules() == {"roce.discards"}
    assert scene.rule("roce.discards").device == "bnxt_re3/1"


def test_a_driver_that_is_loaded_anew_counts_from_zero(node: Counting) -> None:
    node.totals = dict.fromkeys(HEALTHY, 0)
    node.totals["link_down_events_phy"] = 1
    assert node.interval(3).rules() == set()


def test_the_interface_of_a_management_port_may_drop(scene: Scene) -> None:
    for total in (0, 3000, 6000, 9000):
        rdma.statistics(scene, ens1f0np0={"rx_discards_phy": total, "rx_bits_phy": total})
        scene.interval()
    assert scene.rules() == set()
