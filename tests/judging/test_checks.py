"""Each fault is found with the right severity; each trap for a judge stays quiet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from probes.checks import RULES as REGISTRY
from probes.event import Action, NodeState, Severity
from tests.judging.build import (
    IB,
    RULES,
    SLOTS,
    Built,
    by_rule,
    findings,
    fleet,
    grade,
    nvlink,
    with_limit,
)

NOTABLE = (Severity.WARN, Severity.CRITICAL, Severity.UNKNOWN)


def notable(node: Built, others: list[Built] | None = None) -> set[str]:
    return {f.rule for f in findings(node, others) if f.severity in NOTABLE}


def test_a_healthy_node_has_no_findings_and_is_ok() -> None:
    node = Built()
    found = findings(node)
    assert found == []
    assert grade(node, found) is Severity.OK


def test_every_rule_is_documented() -> None:
    assert len({rule.id for rule in REGISTRY}) == len(REGISTRY)
    for rule in REGISTRY:
        for field in ("title", "reads", "cause", "next_step", "source", "example", "others"):
            assert getattr(rule, field), (rule.id, field)
        assert rule.action is not Action.NONE or rule.severity is Severity.INFO, rule.id


def test_every_limit_a_rule_names_exists_and_has_a_source() -> None:
    for rule in REGISTRY:
        for name in rule.limits:
            assert RULES.limit(name).source, (rule.id, name)


def test_a_lost_gpu_is_named_and_the_other_seven_stay_readable() -> None:
    node = Built()
    node.put("gpu", SLOTS[3], index=3, nvml_rc=15, nvml_call="nvmlDeviceGetUtilizationRates")
    lost = by_rule(findings(node))["gpu.lost"]
    assert lost.severity is Severity.CRITICAL
    assert lost.label == "GPU3"
    assert SLOTS[3] in lost.say
    assert "7 others" in lost.say
    assert "15" in lost.evidence[0]
    assert lost.action is Action.DRAIN
    assert lost.hard


def test_a_missing_gpu_is_named_by_slot_when_nvml_hides_it() -> None:
    node = Built()
    kept = tuple(slot for slot in SLOTS if slot != SLOTS[2])
    for probe in ("gpu", "ecc", "pcie", "nvlink", "inventory"):
        node.put(probe, SLOTS[2], gone=True)
    node.inventory(kept)
    found = by_rule(findings(node))
    assert found["gpu.count"].say.startswith("7 of 8 GPUs present")
    assert SLOTS[2] in found["gpu.count"].say
    assert "gpu.gone" in found
    assert grade(node, findings(node)) is Severity.CRITICAL


def test_the_sites_word_beats_the_majority() -> None:
    node = Built(gpus=8)
    others = fleet(4)[1:]
    for other in [node, *others]:
        other.inventory(SLOTS[:7], pci_gpu_count=7)
        other.facts.gone.clear()
    assert "gpu.count" in notable(node, others)
    assert "gpu.count" not in notable(others[0], [node, *others[1:]])


@pytest.mark.parametrize("code", [9, 12, 18])
def test_a_driver_that_does_not_start_is_critical_where_gpus_are_expected(code: int) -> None:
    node = Built()
    node.inventory((), nvml_rc=code, nvml_call="nvmlInit")
    node.drop("inventory", "", "gpu_count")
    found = findings(node)
    assert "driver.unusable" in by_rule(found)
    assert str(code) in by_rule(found)["driver.unusable"].evidence[0]
    assert grade(node, found) is Severity.CRITICAL


def test_a_node_of_another_kind_is_not_called_broken() -> None:
    """A login node in the list of GPU nodes: it may be that, or a board without power."""
    node = Built()
    for probe in ("gpu", "ecc", "pcie", "nvlink", "inventory"):
        for slot in SLOTS:
            node.facts.latest.pop((probe, slot))
    node.facts._order.clear()
    node.put("inventory", "", nvml_library=False, pci_gpu_count=0)
    found = by_rule(findings(node))
    assert found["driver.unusable"].severity is Severity.UNKNOWN
    assert "gpus: 0" in found["driver.unusable"].next_step
    assert grade(node, list(found.values())) is Severity.UNKNOWN


def test_a_hung_call_is_named_with_its_age() -> None:
    node = Built()
    node.status(NodeState.HUNG, "hung", "hung in nvmlDeviceGetPowerUsage for 25 s",
                probe="gpu", device=SLOTS[5], since_s=25.0)  # fmt: skip
    hung = by_rule(findings(node))["driver.hung"]
    assert "25 s" in hung.say
    assert "GPU5" in hung.say
    assert "nvmlDeviceGetPowerUsage" in hung.evidence[0]


@pytest.mark.parametrize(
    ("probe", "change", "rule", "severity"),
    [
        ("ecc", {"ecc_uncorrected_volatile": 2}, "ecc.uncorrected", Severity.CRITICAL),
        ("ecc", {"remap_pending": True}, "remap.pending", Severity.WARN),
        ("ecc", {"remap_failure": True}, "remap.failure", Severity.CRITICAL),
        ("ecc", {"remap_uncorrectable": 512}, "remap.rows_used", Severity.CRITICAL),
        ("ecc", {"recovery_action": 2}, "gpu.recovery_action", Severity.CRITICAL),
        ("ecc", {"recovery_action": 3}, "gpu.recovery_action", Severity.WARN),
        ("ecc", {"recovery_action": 4}, "gpu.recovery_action", Severity.WARN),
        ("pcie", {"width": 8}, "pcie.width", Severity.CRITICAL),
        ("pcie", {"gen": 2}, "pcie.generation", Severity.WARN),
        ("gpu", {"nvml_rc": 16, "nvml_call": "x"}, "gpu.reset_required", Severity.CRITICAL),
        ("gpu", {"nvml_rc": 999, "nvml_call": "x"}, "gpu.nvml_error", Severity.WARN),
        ("gpu", {"thermal_margin_c": -1, "temp_c": 88}, "thermal.margin", Severity.WARN),
    ],
)
def test_one_changed_reading_gives_one_finding(
    probe: str, change: dict[str, Any], rule: str, severity: Severity
) -> None:
    node = Built()
    node.change(probe, SLOTS[1], **change)
    found = [f for f in findings(node) if f.severity in NOTABLE]
    assert [(f.rule, f.severity, f.label) for f in found] == [(rule, severity, "GPU1")]


def test_time_in_thermal_slowdown_is_a_share_of_time() -> None:
    node = Built()
    node.change("gpu", SLOTS[5], after_s=2.0, thermal_hw_ns=int(0.68e9), reasons=0x40,
                sm_clock_mhz=1200, temp_c=91)  # fmt: skip
    slow = by_rule(findings(node))["thermal.hw_slowdown"]
    assert slow.severity is Severity.WARN
    assert slow.value == pytest.approx(0.34)
    assert "1.20 of 1.98 GHz" in slow.say


@pytest.mark.parametrize(("share", "slow"), [(0.05, False), (0.15, True)])
def test_software_slowdown_has_its_own_share(share: float, slow: bool) -> None:
    node = Built()
    node.change("gpu", SLOTS[5], after_s=2.0, thermal_sw_ns=int(share * 2e9), reasons=0x20)
    found = by_rule(findings(node))
    assert ("thermal.sw_slowdown" in found) is slow
    if slow:
        assert found["thermal.sw_slowdown"].value == pytest.approx(share)
        assert found["thermal.sw_slowdown"].limit == RULES.limit("thermal.sw_share_warn").value


def test_hot_memory_is_judged_by_its_product_then_by_the_general_limit() -> None:
    node = Built()
    node.change("gpu", SLOTS[5], mem_temp_c=94)
    assert not notable(node)
    node.change("gpu", SLOTS[5], mem_temp_c=95)
    found = by_rule(findings(node))["thermal.memory"]
    assert (found.severity, found.label) == (Severity.WARN, "GPU5")
    assert "memory 95 °C of 95 °C, core 60 °C" in found.evidence[0]
    lowered = with_limit("thermal.mem_temp_c", 90)
    node.change("gpu", SLOTS[5], mem_temp_c=91)
    assert "thermal.memory" not in by_rule(findings(node, rules=lowered))
    node.inventory(device_id="ffff")
    assert by_rule(findings(node, rules=lowered))["thermal.memory"].limit == 90


def test_corrected_errors_count_by_rate_not_as_total() -> None:
    node = Built()
    node.change("ecc", SLOTS[2], after_s=30.0, ecc_corrected_volatile=50_000_000)
    node.facts.rates.clear()
    assert findings(node) == []
    node.change("ecc", SLOTS[2], after_s=30.0, ecc_corrected_volatile=50_000_060)
    assert findings(node) == []
    node.change("ecc", SLOTS[2], after_s=30.0, ecc_corrected_volatile=50_000_360)
    found = by_rule(findings(node))["ecc.corrected"]
    assert (found.severity, found.value) == (Severity.INFO, 36_000)
    node.change("ecc", SLOTS[2], after_s=30.0, ecc_corrected_volatile=50_000_360 + 17_657 * 30)
    storm = by_rule(findings(node))["ecc.corrected"]
    assert (storm.severity, storm.value) == (Severity.WARN, 17_657)


def test_a_driver_reload_is_no_storm_of_corrected_errors() -> None:
    node = Built()
    node.change("ecc", SLOTS[2], after_s=30.0, ecc_corrected_volatile=90_000_000)
    node.change("ecc", SLOTS[2], after_s=30.0, ecc_corrected_volatile=80_000_000)
    assert "ecc.corrected" not in by_rule(findings(node))


@pytest.mark.parametrize(
    ("generation", "replays", "found"),
    [(5, 15, False), (5, 16, True), (3, 4, False), (3, 5, True), (4, 7, False), (4, 8, True)],
)
def test_pcie_replays_are_judged_per_lane_and_minute(
    generation: int, replays: int, found: bool
) -> None:
    node = Built()
    node.change("pcie", SLOTS[4], gen=1, gen_max=generation)  # idle: the link shows Gen1
    node.change("gpu", SLOTS[4], util_percent=0)
    node.change("pcie", SLOTS[4], after_s=30.0, replays=replays)
    assert ("pcie.replays" in notable(node)) is found


def test_a_narrow_link_may_replay_less() -> None:
    node = Built()
    node.change("pcie", SLOTS[4], width=8, width_max=8)
    node.change("pcie", SLOTS[4], after_s=30.0, replays=8)
    assert by_rule(findings(node))["pcie.replays"].limit == pytest.approx(1.92 * 8)


def test_one_replay_in_a_short_pass_is_no_rate() -> None:
    node = Built()
    node.change("pcie", SLOTS[4], after_s=1.0, replays=1)
    assert not notable(node)


def test_wrong_data_of_the_all_reduce() -> None:
    node = Built()
    node.put("nccl", "summary", wrong=0)
    assert not notable(node)
    node.put("nccl", "summary", wrong=128)
    wrong = by_rule(findings(node))["nccl.wrong"]
    assert (wrong.severity, wrong.value, wrong.limit) == (Severity.CRITICAL, 128, 0)


def test_a_reason_bit_without_time_counter_is_never_critical() -> None:
    node = Built()
    node.drop("gpu", SLOTS[5], "thermal_hw_ns")
    node.facts.rates.pop(("gpu", SLOTS[5]), None)
    node.drop("gpu", SLOTS[5], "thermal_hw_ns")
    node.change("gpu", SLOTS[5], reasons=0x40, sm_clock_mhz=300)
    assert by_rule(findings(node))["thermal.hw_slowdown"].severity is Severity.WARN


def test_the_power_brake_on_all_gpus_is_one_finding_about_the_node() -> None:
    node = Built()
    for slot in SLOTS:
        node.change("gpu", slot, after_s=0.0, reasons=0x80)
        node.facts.rates.pop(("gpu", slot), None)
    brakes = [f for f in findings(node) if f.rule == "power.brake"]
    assert len(brakes) == 1
    assert brakes[0].device == ""
    assert "8 GPUs" in brakes[0].say


def test_one_link_down_is_named() -> None:
    node = Built()
    node.change("nvlink", SLOTS[3], link11_up=False)
    down = by_rule(findings(node))["nvlink.down"]
    assert down.label == "GPU3"
    assert "NVLink 11 down, 17 of 18 up" in down.say


def test_a_slow_link_is_below_its_siblings() -> None:
    node = Built()
    node.change("nvlink", SLOTS[3], link7_mbps=19922)
    assert "link 7 at 19.92 GB/s" in by_rule(findings(node))["nvlink.slow"].say


def test_link_errors_count_as_growth_not_as_total() -> None:
    node = Built()
    node.put("nvlink", SLOTS[0], index=0, **nvlink(link4_crc=500))
    node.facts.rates.clear()
    assert "nvlink.errors" not in notable(node)
    node.change("nvlink", SLOTS[0], after_s=30.0, link4_crc=537)
    assert "link4 crc +37" in by_rule(findings(node))["nvlink.errors"].say


def test_gpus_waiting_for_the_fabric_cannot_run_cuda() -> None:
    node = Built()
    for slot in SLOTS:
        node.change("nvlink", slot, fabric_state=2)
    fabric = by_rule(findings(node))["nvlink.fabric"]
    assert fabric.severity is Severity.CRITICAL
    assert "8 GPUs" in fabric.say
    assert "802" in fabric.say


def test_a_port_that_is_down_here_and_active_on_the_peers() -> None:
    node = Built()
    node.change("infiniband", IB[3], state=1, state_text="DOWN", phys_state=2, phys_text="Polling")
    down = by_rule(findings(node))["ib.down"]
    assert down.severity is Severity.CRITICAL
    assert "Polling" in down.say
    assert "3 of 4" in down.evidence[0]


def test_a_kernel_log_without_any_answer_is_said() -> None:
    node = Built()
    del node.facts.latest["kernel_log", ""]
    silent = by_rule(findings(node))["kernel_log.unreadable"]
    assert silent.severity is Severity.INFO
    assert silent.say.startswith("not checked: Xids")


def test_a_port_below_the_peers_rate() -> None:
    node = Built()
    node.change("infiniband", IB[2], rate_gbps=200.0, rate_text="200 Gb/sec (4X HDR)")
    rate = by_rule(findings(node))["ib.rate"]
    assert rate.say == "mlx5_2/1 runs at 200 Gb/s, its peers at 400"


def test_a_link_that_dropped_is_counted_between_two_answers() -> None:
    node = Built()
    node.change("infiniband", IB[0], link_downed=3)
    node.facts.rates.clear()
    assert not notable(node)
    node.change("infiniband", IB[0], after_s=30.0, link_downed=5)
    down = by_rule(findings(node))["ib.link_downed"]
    assert down.severity is Severity.CRITICAL
    assert "link_downed 3 -> 5" in down.evidence[0]


def test_symbol_errors_have_a_rate_limit() -> None:
    node = Built()
    node.change("infiniband", IB[0], after_s=30.0, symbol_error=200)
    assert "ib.symbol_error" not in notable(node)
    node.change("infiniband", IB[0], after_s=30.0, symbol_error=800)
    assert by_rule(findings(node))["ib.symbol_error"].value == pytest.approx(20.0)


@pytest.mark.parametrize(
    ("counter", "limit", "severity"),
    [
        ("local_link_integrity_errors", "ib.local_link_integrity", Severity.CRITICAL),
        ("excessive_buffer_overrun_errors", "ib.excessive_buffer_overrun", Severity.CRITICAL),
        ("rnr_nak_retry_err", "ib.rnr_nak_retry", Severity.WARN),
        ("req_transport_retries_exceeded", "ib.transport_retries_exceeded", Severity.WARN),
    ],
)
def test_each_fatal_counter_has_its_own_limit(counter: str, limit: str, severity: Severity) -> None:
    node = Built()
    node.change("infiniband", IB[0], after_s=30.0, **{counter: 0})
    assert not notable(node)
    node.change("infiniband", IB[0], after_s=30.0, **{counter: 2})
    found = by_rule(findings(node))[f"ib.{counter}"]
    assert (found.severity, found.value) == (severity, 2)
    raised = with_limit(limit, 2)
    assert f"ib.{counter}" not in by_rule(findings(node, rules=raised))


def test_a_counter_at_its_maximum_has_an_unknown_rate() -> None:
    node = Built()
    node.change("infiniband", IB[0], after_s=1.0, symbol_error=65535)
    node.change("infiniband", IB[0], after_s=30.0)
    found = by_rule(findings(node))
    assert "ib.saturated" in found
    assert "ib.symbol_error" not in found


@pytest.mark.parametrize(
    ("state", "rule"),
    [
        (NodeState.UNREACHABLE, "node.unreachable"), (NodeState.AUTH_FAILED, "node.auth_failed"),
        (NodeState.HOST_KEY_CHANGED, "node.host_key"), (NodeState.NO_PYTHON, "node.no_python"),
        (NodeState.STALE, "node.stale"), (NodeState.HUNG, "node.hung"),
    ],
)  # fmt: skip
def test_a_node_we_cannot_talk_to_is_unknown_with_its_own_words(
    state: NodeState, rule: str
) -> None:
    node = Built()
    node.status(state, "x", "what the session said", hint="what to do")
    found = by_rule(findings(node))
    assert found[rule].say == "what the session said"
    assert found[rule].next_step == "what to do"
    assert grade(node, list(found.values())) is Severity.UNKNOWN


def test_a_probe_that_failed_is_not_silence() -> None:
    node = Built()
    node.status(NodeState.DEGRADED, "probe", "PermissionError", probe="infiniband")
    failed = by_rule(findings(node))["node.probe_failed"]
    assert failed.severity is Severity.WARN
    assert failed.label == "infiniband"


def test_a_pass_that_ended_without_its_gpus_says_so() -> None:
    node = Built()
    node.put("hello", "", python="3.9", uid=0, boot_id="b1")
    node.status(NodeState.ENDED, "ended")
    found = findings(node)
    assert by_rule(found)["node.not_read"].severity is Severity.UNKNOWN
    assert grade(node, found) is Severity.UNKNOWN


def test_a_new_agent_leaves_nothing_old_as_current() -> None:
    node = Built()
    node.put("hello", "", python="3.9", uid=0, boot_id="b1")
    node.put("gpu", SLOTS[0], index=0, util_percent=1)
    assert [device for device, _ in node.facts.devices("gpu")] == [SLOTS[0]]
    assert node.facts.rates == {}


def test_a_core_probe_that_failed_makes_the_node_unknown() -> None:
    node = Built()
    node.status(NodeState.DEGRADED, "probe", "boom", probe="gpu")
    assert grade(node, findings(node)) is Severity.UNKNOWN


def test_an_unreadable_kernel_log_is_said_and_costs_no_verdict() -> None:
    node = Built()
    node.put("kernel_log", "", source="", readable=False)
    found = findings(node)
    assert by_rule(found)["kernel_log.unreadable"].severity is Severity.INFO
    assert grade(node, found) is Severity.INFO


# --- traps: none of these is a fault -------------------------------------------------------------


def idle(node: Built) -> None:
    for slot in SLOTS:
        node.change("gpu", slot, util_percent=0, power_w=70.0, sm_clock_mhz=345, reasons=0x1)
        node.change("pcie", slot, gen=1)


def mig(node: Built) -> None:
    for slot in SLOTS:
        node.drop("gpu", slot, "util_percent", "mem_util_percent")
        node.drop("ecc", slot, "remap_pending", "remap_failure", "remap_uncorrectable")


def pcie_cards(node: Built) -> None:
    node.inventory(device_id="2331")
    for slot in SLOTS:
        node.put("nvlink", slot, **nvlink(12, **{f"link{n}_up": False for n in range(12)}))


def management(node: Built) -> None:
    node.put("infiniband", "mlx5_8/1", state=1, state_text="DOWN", phys_state=3, rate_gbps=25.0,
             link_layer="Ethernet", is_vf=False, default_route=True,
             has_counters=False)  # fmt: skip


def unused_vf(node: Built) -> None:
    node.put("infiniband", "mlx5_9v0/1", state=1, state_text="DOWN", phys_state=3, is_vf=True,
             link_layer="InfiniBand", rate_gbps=10.0, default_route=False)  # fmt: skip


def roce_without_lid(node: Built) -> None:
    node.drop("infiniband", IB[0], "lid")


def no_counters(node: Built) -> None:
    node.put("infiniband", "rdmap79s0/1", state=4, state_text="ACTIVE", phys_state=5,
             rate_gbps=100.0, link_layer="Unspecified", is_vf=False, default_route=False,
             has_counters=False)  # fmt: skip


def congestion(node: Built) -> None:
    node.change("infiniband", IB[0], after_s=30.0, np_cnp_sent=90000)


def power_cap(node: Built) -> None:
    for slot in SLOTS:
        node.change("gpu", slot, reasons=0x4, power_w=699.0)


def reboot_resets_counters(node: Built) -> None:
    node.change("infiniband", IB[0], after_s=10.0, link_downed=7)
    node.facts.rates.clear()
    node.change("infiniband", IB[0], after_s=10.0, link_downed=0)


@pytest.mark.parametrize(
    "trap",
    [idle, mig, pcie_cards, management, unused_vf, roce_without_lid,
     no_counters, congestion, power_cap, reboot_resets_counters],
)  # fmt: skip
def test_traps_are_not_findings(trap: Callable[[Built], None]) -> None:
    node = Built()
    trap(node)
    assert notable(node) == set()


def test_a_port_down_on_all_nodes_is_probably_not_cabled() -> None:
    nodes = fleet(4)
    for node in nodes:
        node.put("infiniband", "mlx5_8/1", state=1, state_text="DOWN", phys_state=2,
                 phys_text="Polling", link_layer="InfiniBand", rate_gbps=10.0, is_vf=False,
                 default_route=False)  # fmt: skip
    found = by_rule(findings(nodes[0], nodes[1:]))
    assert found["ib.unused"].severity is Severity.INFO
    assert "ib.down" not in found
    assert "ib.rate" not in found


def test_links_that_are_down_on_all_nodes_are_so_by_design() -> None:
    nodes = fleet(4)
    for node in nodes:
        for slot in SLOTS:
            node.change("nvlink", slot, **{f"link{n}_up": False for n in range(12, 18)})
    assert notable(nodes[0], nodes[1:]) == set()


def test_a_link_down_on_every_gpu_of_one_node_is_seen_by_its_peers() -> None:
    node = Built()
    for slot in SLOTS:
        node.change("nvlink", slot, link3_up=False, link3_mbps=0)
    found = [f for f in findings(node) if f.severity in NOTABLE]
    assert {f.rule for f in found} == {"nvlink.down"}
    assert len(found) == 8
    assert "NVLink 3 down, 17 of 18 up" in found[0].say
    assert "peers have 18" in found[0].evidence[0]


def test_peers_of_another_product_do_not_accuse() -> None:
    node = Built()
    node.inventory(device_id="20b2")  # A100: 12 links
    for slot in SLOTS:
        node.put("nvlink", slot, **nvlink(12, 25781))
    assert notable(node) == set()


def test_a_link_that_is_down_is_not_also_slow() -> None:
    node = Built()
    node.change("nvlink", SLOTS[3], link11_up=False, link11_mbps=0)
    assert notable(node) == {"nvlink.down"}


@pytest.mark.parametrize(("alone", "whose"), [(False, "most peers"), (True, "hardware.yaml")])
def test_links_that_are_all_slow_are_below_peers_or_catalogue(alone: bool, whose: str) -> None:
    node = Built()
    for slot in SLOTS:
        node.put("nvlink", slot, **nvlink(18, 19922))
    slow = by_rule(findings(node, [] if alone else None))["nvlink.slow"]
    assert "all 18 active links at 19.92 GB/s" in slow.say
    assert whose in slow.say


def test_link_states_that_cannot_be_read_are_said() -> None:
    node = Built()
    node.drop("nvlink", SLOTS[3], *(f"link{n}_up" for n in range(18)))
    found = by_rule(findings(node))
    assert found["nvlink.unreadable"].severity is Severity.INFO
    assert "GPU3" in found["nvlink.unreadable"].say
    assert "nvlink.down" not in found


def without(node: Built, *ports: str) -> None:
    for port in ports:
        node.put("infiniband", port, gone=True)


def at_places(nodes: list[Built]) -> None:
    for node in nodes:
        for number, port in enumerate(IB):
            node.change("infiniband", port, pci=f"0000:a{number}:00.0")


def test_an_adapter_that_vanished_is_named() -> None:
    nodes = fleet(4)
    at_places(nodes)
    without(nodes[0], IB[5])
    found = [f for f in findings(nodes[0], nodes[1:]) if f.rule == "ib.missing"]
    assert [(f.severity, f.device) for f in found] == [(Severity.CRITICAL, IB[5])]
    assert "3 of 3 peers" in found[0].say
    assert "0000:a5:00.0" in found[0].say


def test_an_adapter_missing_since_boot_is_told_by_its_address() -> None:
    nodes = fleet(4)
    at_places(nodes)
    without(nodes[0], IB[7])  # mlx5_2 is gone, and the later names moved down
    for number, port in enumerate(IB[2:7]):
        nodes[0].change("infiniband", port, pci=f"0000:a{number + 3}:00.0")
    found = [f.device for f in findings(nodes[0], nodes[1:]) if f.rule == "ib.missing"]
    assert found == [IB[2]]


def test_all_adapters_gone_is_not_silence() -> None:
    node = Built()
    without(node, *IB)
    assert sum(f.rule == "ib.missing" for f in findings(node)) == len(IB)


def test_fewer_ports_count_where_names_differ() -> None:
    nodes = fleet(5)
    for number, node in enumerate(nodes):
        without(node, *IB)
        for port in range(7 if number == 0 else 8):
            node.put("infiniband", f"ibp{number}s{port}/1", state=4, phys_state=5)
    missing = by_rule(findings(nodes[0], nodes[1:]))["ib.missing"]
    assert missing.say == "7 of 8 RDMA ports are there"
    assert "ib.missing" not in notable(nodes[1], [nodes[0], *nodes[2:]])


@pytest.mark.parametrize("case", ["few nodes", "mixed hardware", "not asked yet"])
def test_a_port_is_not_missed_without_clear_peers(case: str) -> None:
    nodes = fleet(2 if case == "few nodes" else 5)
    if case == "not asked yet":
        for key in [key for key in nodes[0].facts.latest if key[0] == "infiniband"]:
            del nodes[0].facts.latest[key]
    else:
        without(nodes[0], IB[5])
    if case == "mixed hardware":
        without(nodes[1], IB[5])
    assert "ib.missing" not in notable(nodes[0], nodes[1:])


def test_the_last_drop_before_a_full_counter_is_known() -> None:
    node = Built()
    node.change("infiniband", IB[0], link_downed=254)
    node.facts.rates.clear()
    node.change("infiniband", IB[0], after_s=30.0, link_downed=255)
    found = by_rule(findings(node))
    assert found["ib.link_downed"].severity is Severity.CRITICAL
    assert "or more" in found["ib.link_downed"].say
    assert "ib.saturated" in found


@pytest.mark.parametrize("spent_s", [3600.0, -5.0])
def test_time_since_the_driver_was_loaded_is_no_share(spent_s: float) -> None:
    node = Built()
    node.change("gpu", SLOTS[5], after_s=2.0, thermal_hw_ns=int(1e12))
    node.change("gpu", SLOTS[5], after_s=2.0, thermal_hw_ns=int(1e12 + spent_s * 1e9))
    assert "thermal.hw_slowdown" not in by_rule(findings(node))


def test_all_links_down_on_an_sxm_board_is_a_dead_fabric() -> None:
    node = Built()
    for slot in SLOTS:
        node.change("nvlink", slot, **{f"link{n}_up": False for n in range(18)})
    assert by_rule(findings(node))["nvlink.down"].say == "no NVLink is up on any of 8 GPUs"


def test_the_clock_of_a_node() -> None:
    node = Built()
    node.change("hello", "", wall_skew_s=-73.0)
    assert "73 s behind" in by_rule(findings(node))["host.clock"].say


def test_an_idle_card_is_not_slow() -> None:
    """Its low clock is by design: heat that lasts is told, but is no reason to drain."""
    node = Built()
    busy = {"reasons": 0x40, "sm_clock_mhz": 345, "thermal_hw_ns": 0, "util_percent": 98}
    for values in (busy, {**busy, "util_percent": 0}, {**busy, "reasons": 0x41}):
        node.change("gpu", SLOTS[5], **values)
        node.change("gpu", SLOTS[5], after_s=10.0, **{**values, "thermal_hw_ns": 8_000_000_000})
        told = by_rule(findings(node))["thermal.hw_slowdown"]
        expected = Severity.CRITICAL if values is busy else Severity.WARN
        assert told.severity is expected, values
