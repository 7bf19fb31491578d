"""What several looks make of what one look found: when it appears, when it ends, when it drains."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.fleet import Fleet
from inventory.node import Inventory, Node
from probes.event import Action, Finding, NodeState, Severity
from probes.loaded import HW_SLOWDOWN_BIT, HW_THERMAL_BIT, POWER_CAP_BIT
from probes.own import NONE, Baseline, Own
from probes.slow_time import Streaks
from probes.straggler import Comparison
from tests.judging.build import NOW, RULES, SLOTS, Built

STEP_S = 5.0
HOT = HW_THERMAL_BIT | HW_SLOWDOWN_BIT
ENTER_S = RULES.limit("straggler.enter_s").value
APART_S = RULES.limit("straggler.drain_apart_s").value
KEEP_S = RULES.limit("straggler.keep_idle_s").value


class Watch:
    """One node looked at again and again."""

    def __init__(self, own: Own = NONE, *, one_pass: bool = False) -> None:
        self.node, self.now, self.own = Built(), NOW, own
        self.streaks = Streaks(RULES, one_pass=one_pass)
        for slot in SLOTS:  # at the power limit: the catalogue cannot tell
            self.set(slot, power_w=690.0, reasons=POWER_CAP_BIT)

    def set(self, slot: str, **values: float) -> None:
        self.node.change("gpu", slot, **values)

    def clock(self, mhz: float, reasons: int = 0, watts: float = 500.0) -> None:
        self.set(SLOTS[5], sm_clock_mhz=mhz, reasons=reasons, power_w=watts)

    def fine(self) -> None:
        self.clock(1755, POWER_CAP_BIT, 690.0)

    def look(self, times: int = 1) -> list[Finding]:
        found: list[Finding] = []
        for _ in range(times):
            self.now += STEP_S
            look = Comparison(RULES, self.now, self.own, self.streaks.watched)
            steps = [step for step in look.steps([self.node.facts]) if step is not None]
            boots = {"gpu001": self.node.facts.boot_id}
            found = self.streaks.settle(steps, look.compared, self.now, boots)
        return found


def rules(found: Iterable[Finding]) -> list[str]:
    return [finding.rule for finding in found]


MINUTE = int(ENTER_S / STEP_S) + 1


def test_two_comparisons_appear_after_a_minute_and_not_before() -> None:
    watch = Watch()
    watch.clock(1200)
    assert watch.look(MINUTE - 1) == []
    (finding,) = watch.look()
    assert finding.rule == "straggler.gpu"
    text = " ".join(finding.evidence)
    assert "confidence likely: two of three comparisons agree" in text
    assert f"seen in {MINUTE} passes over {ENTER_S:.0f} s" in text


def test_hardware_evidence_needs_no_waiting() -> None:
    watch = Watch()
    watch.clock(1200, HOT)
    (finding,) = watch.look()
    assert finding.rule == "straggler.gpu"
    assert "confidence certain" in " ".join(finding.evidence)
    assert finding.action is Action.WATCH
    (finding,) = watch.look(MINUTE)
    assert finding.action is Action.DRAIN
    assert finding.severity is Severity.WARN


def test_a_clean_look_in_between_begins_anew() -> None:
    watch = Watch()
    watch.clock(1200)
    watch.look(MINUTE - 1)
    watch.fine()
    assert watch.look() == []
    watch.clock(1200)
    assert watch.look(MINUTE - 1) == []
    assert rules(watch.look()) == ["straggler.gpu"]


def test_a_reading_between_half_and_the_whole_limit_is_neither_slow_nor_clean() -> None:
    watch = Watch()
    watch.clock(1200)
    watch.look(5)
    watch.clock(1690)  # 4 % low: nothing by itself
    assert watch.look(3) == []
    watch.clock(1200)
    assert rules(watch.look(MINUTE - 8)) == ["straggler.gpu"]
    watch.clock(1690)
    assert rules(watch.look(20)) == ["straggler.gpu"]


def test_it_is_over_after_three_clean_looks() -> None:
    watch = Watch()
    watch.clock(1200)
    watch.look(MINUTE)
    watch.fine()
    assert [rules(watch.look()) for _ in range(3)] == [["straggler.gpu"], ["straggler.gpu"], []]


def test_readings_near_the_limit_alone_never_enter() -> None:
    watch = Watch()
    watch.clock(1690)
    assert watch.look(50) == []


def test_one_slow_look_among_near_ones_never_enters() -> None:
    watch = Watch()
    watch.clock(1200)
    watch.look()
    watch.clock(1690)
    assert watch.look(3 * MINUTE) == []


def test_without_hardware_evidence_a_drain_needs_two_looks_ten_minutes_apart() -> None:
    watch = Watch()
    watch.clock(1200)
    (early,) = watch.look(int(APART_S / STEP_S))
    assert (early.severity, early.action) == (Severity.WARN, Action.WATCH)
    (late,) = watch.look()
    assert (late.severity, late.action) == (Severity.CRITICAL, Action.DRAIN)
    assert "drain after the job" in late.next_step


def test_single_looks_at_a_noisy_reading_propose_no_drain() -> None:
    """8 % slow, and now and then a reading that alone would be very slow."""
    watch = Watch()
    found: list[Finding] = []
    for look in range(int(3 * APART_S / STEP_S)):
        watch.clock(1560 if look % 3 == 0 else 1620)
        found = watch.look()
    assert [(f.severity, f.action) for f in found] == [(Severity.WARN, Action.WATCH)]


def test_one_comparison_alone_never_drains() -> None:
    watch = Watch()
    watch.clock(1300, POWER_CAP_BIT, 690.0)
    found = watch.look(int(3 * APART_S / STEP_S))
    assert [(f.rule, f.severity, f.action) for f in found] == [
        ("straggler.suspect", Severity.INFO, Action.WATCH)
    ]


def test_a_verdict_that_loses_a_vote_stays_a_suspicion() -> None:
    watch = Watch()
    watch.clock(1200)
    watch.look(MINUTE)
    watch.clock(1300, POWER_CAP_BIT, 690.0)  # at its limit now: the catalogue cannot tell
    told = [rules(watch.look()) for _ in range(4)]
    assert told[-1] == ["straggler.suspect"]
    assert [] not in told


def test_a_suspicion_that_gains_a_vote_is_no_verdict_at_once() -> None:
    watch = Watch()
    watch.clock(1300, POWER_CAP_BIT, 690.0)
    assert rules(watch.look(MINUTE)) == ["straggler.suspect"]
    watch.clock(1200)
    (finding,) = watch.look()
    assert finding.rule == "straggler.suspect"
    assert "not for long enough yet" in " ".join(finding.evidence)
    assert rules(watch.look(MINUTE)) == ["straggler.gpu"]


def test_the_end_of_the_load_is_no_recovery() -> None:
    watch = Watch()
    watch.clock(1200)
    watch.look(MINUTE)
    for slot in SLOTS:
        watch.set(slot, util_percent=0, sm_clock_mhz=345, reasons=1, power_w=70.0)
    (finding,) = watch.look(10)
    assert "not under load for 50 s, so not seen again" in " ".join(finding.evidence)
    assert finding.say.startswith("GPU5 ran at 1.20 of 1.98 GHz")
    assert finding.say.endswith("not under load now")
    assert watch.look(int(KEEP_S / STEP_S)) == []


def test_a_good_look_before_the_load_ends_makes_nothing_present() -> None:
    watch = Watch()
    watch.clock(1200)
    watch.look(MINUTE)
    watch.fine()
    (finding,) = watch.look()
    assert finding.say.startswith("GPU5 runs at")
    for slot in SLOTS:
        watch.set(slot, util_percent=0, sm_clock_mhz=345, reasons=1, power_w=70.0)
    (finding,) = watch.look(10)
    assert "not under load for 50 s, so not seen again" in " ".join(finding.evidence)
    assert finding.say.startswith("GPU5 ran at")
    assert finding.say.endswith("not under load now")


def test_a_reboot_ends_what_idles() -> None:
    watch = Watch()
    watch.clock(1200)
    watch.look(MINUTE)
    watch.node.put("hello", "", python="3.9", boot_id="b2")
    assert watch.look() == []


def test_a_suspicion_ends_with_the_load() -> None:
    watch = Watch()
    watch.clock(1300, POWER_CAP_BIT, 690.0)
    assert rules(watch.look(MINUTE)) == ["straggler.suspect"]
    for slot in SLOTS:
        watch.set(slot, util_percent=0, sm_clock_mhz=345, reasons=1, power_w=70.0)
    assert watch.look(3) == []


def test_one_pass_tells_at_once_and_is_certain_of_nothing() -> None:
    watch = Watch(one_pass=True)
    watch.clock(1200, HOT)
    (finding,) = watch.look()
    text = " ".join(finding.evidence)
    assert "confidence likely" in text
    assert "seen in one look" in text


def test_a_power_limit_is_a_setting_and_waits_for_nothing() -> None:
    watch = Watch()
    watch.set(SLOTS[2], power_limit_w=350.0, power_w=345.0)
    assert rules(watch.look()) == ["straggler.power_limit"]


@given(st.lists(st.sampled_from([1755.0, 1690.0, 1200.0]), min_size=1, max_size=40))
def test_a_slower_gpu_is_never_told_later(clocks: list[float]) -> None:
    """Making every slow reading slower still, nothing that was told is not."""
    first, second = Watch(), Watch()
    for mhz in clocks:
        told = []
        for watch, lower in ((first, 0.0), (second, 200.0)):
            watch.clock(mhz - lower) if mhz < 1755 else watch.fine()
            told.append(set(rules(watch.look())))
        assert told[0] <= told[1] | {"straggler.suspect"}


# In the Fleet


@pytest.mark.parametrize("one_pass", [False, True])
def test_the_fleet_waits_unless_it_looks_once(one_pass: bool) -> None:
    clock = [NOW]
    fleet = Fleet(Inventory(nodes=(Node(name="gpu001"),)), one_pass=one_pass,
                  clock=lambda: clock[0])  # fmt: skip
    node = Watch().node
    node.change("gpu", SLOTS[5], sm_clock_mhz=1200, reasons=0, power_w=500.0)
    fleet.nodes["gpu001"] = node.facts
    seen = []
    for _ in range(20):
        fleet.tick()
        seen.append("straggler.gpu" in rules(fleet.findings["gpu001"]))
        clock[0] += STEP_S
    assert seen[0] is one_pass
    assert seen[-1] is True


def test_the_fleet_hands_on_what_was_usual() -> None:
    """Alone on its node: catalogue and own past agree."""
    fleet = Fleet(Inventory(nodes=(Node(name="gpu001"),)), one_pass=True, clock=lambda: NOW)
    node = Built()
    for slot in SLOTS[1:]:
        node.put("gpu", slot, gone=True)
    node.change("gpu", SLOTS[0], sm_clock_mhz=1500, reasons=0, power_w=500.0)
    node.status(NodeState.UP)
    fleet.nodes["gpu001"] = node.facts
    fleet.own = {("gpu001", SLOTS[0], "sm_clock_mhz"): Baseline(1950.0, 20, NOW - 1e6)}
    fleet.tick()
    assert "straggler.gpu" in rules(fleet.findings["gpu001"])
