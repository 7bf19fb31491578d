"""What the Ledger keeps, shows and forgets."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from probes.checks import RULES as REGISTRY
from probes.checks import healed
from probes.checks.healed import PROOFS
from probes.event import Finding, Severity
from probes.ledger import Ledger
from probes.rules import load_rules
from tests.judging.build import NOW, RULES, SLOTS, Built, findings

GPU = "0000:1b:00.0"


def soft(rule: str = "nvlink.slow", severity: Severity = Severity.WARN, **more: Any) -> Finding:
    return Finding(rule=rule, severity=severity, node="n1", device=GPU, say="slow", **more)


def hard(**more: Any) -> Finding:
    more.setdefault("severity", Severity.CRITICAL)
    return Finding(rule="gpu.lost", node="n1", device=GPU, say="lost", hard=True, **more)


def blind() -> Finding:
    return Finding(
        rule="node.unreachable", severity=Severity.UNKNOWN, node="n1", say="does not answer"
    )


class Watch:
    """A Ledger, a clock and one node."""

    def __init__(self, *, one_pass: bool = False) -> None:
        self.ledger = Ledger(load_rules(), one_pass=one_pass)
        self.now = 1000.0
        self.boot = "boot-1"

    def look(self, *fresh: Finding) -> list[Finding]:
        self.now += 10
        return self.ledger.update("n1", list(fresh), self.now, self.boot)

    def rules(self, *fresh: Finding) -> list[str]:
        return [finding.rule for finding in self.look(*fresh)]


def test_soft_finding_appears_on_the_second_of_three_passes() -> None:
    watch = Watch()
    assert watch.look(soft()) == []
    assert watch.look() == []
    (shown,) = watch.look(soft())
    assert shown.since == 1010
    assert shown.count == 1


def test_one_hit_in_a_while_never_appears() -> None:
    watch = Watch()
    for _ in range(5):
        assert watch.look(soft()) == []
        assert watch.look() == []
        assert watch.look() == []


def test_soft_finding_leaves_after_three_clean_passes() -> None:
    watch = Watch()
    watch.look(soft())
    assert watch.rules(soft()) == ["nvlink.slow"]
    assert watch.rules() == ["nvlink.slow"]
    assert watch.rules() == ["nvlink.slow"]
    assert watch.rules() == []
    assert [(e.finding.rule, e.why) for e in watch.ledger.take_ended()] == [
        ("nvlink.slow", "clean")
    ]
    assert watch.ledger.take_ended() == []


def test_a_hit_starts_the_clean_passes_anew_and_is_counted() -> None:
    watch = Watch()
    watch.look(soft())
    watch.look(soft())
    watch.look()
    watch.look()
    (again,) = watch.look(soft())
    assert again.count == 2
    assert watch.rules() == ["nvlink.slow"]
    assert watch.rules() == ["nvlink.slow"]
    assert watch.rules() == []


@pytest.mark.parametrize(
    "finding",
    [soft(severity=Severity.CRITICAL), soft(severity=Severity.UNKNOWN), hard(), blind()],
    ids=["critical", "unknown", "hard", "node state"],
)
def test_enters_at_once(finding: Finding) -> None:
    assert Watch().rules(finding) == [finding.rule]


def test_node_state_leaves_at_once() -> None:
    watch = Watch()
    watch.look(blind())
    assert watch.look() == []


def test_worse_shows_at_once_with_the_same_beginning() -> None:
    watch = Watch()
    watch.look(soft())
    (shown,) = watch.look(soft(severity=Severity.CRITICAL))
    assert (shown.severity, shown.since) == (Severity.CRITICAL, 1010)


def test_hard_finding_latches_with_its_age() -> None:
    watch = Watch()
    watch.look(hard())
    for _ in range(10):
        (kept,) = watch.look()
        assert (kept.latched, kept.since, kept.severity) == (True, 1010, Severity.CRITICAL)
    (back,) = watch.look(hard())
    assert (back.latched, back.count, back.since) == (False, 2, 1010)


def test_latched_finding_ends_when_acknowledged() -> None:
    watch = Watch()
    watch.look(hard())
    watch.look()
    watch.ledger.acknowledge("n1", "gpu.lost", GPU)
    assert watch.look() == []
    assert [e.why for e in watch.ledger.take_ended()] == ["acknowledged"]


def test_acknowledged_stays_while_seen_and_ends_without_latching() -> None:
    watch = Watch()
    watch.look(hard())
    watch.ledger.acknowledge("n1", "gpu.lost", GPU)
    (seen,) = watch.look(hard())
    assert seen.acknowledged
    assert not seen.latched
    assert watch.look() == []


@pytest.mark.parametrize(
    ("first", "later"),
    [
        (hard(severity=Severity.WARN), hard(severity=Severity.CRITICAL)),
        (hard(count=1), hard(count=2)),
    ],
    ids=["worse", "happened again"],
)
def test_news_undoes_an_acknowledgement(first: Finding, later: Finding) -> None:
    watch = Watch()
    watch.look(first)
    watch.ledger.acknowledge("n1", "gpu.lost", GPU)
    assert watch.look(first)[0].acknowledged
    assert not watch.look(later)[0].acknowledged


def test_acknowledging_what_is_not_there_is_harmless() -> None:
    watch = Watch()
    watch.ledger.acknowledge("n1", "gpu.lost", GPU)
    watch.ledger.acknowledge("other", "gpu.lost", GPU)
    assert watch.look() == []


def test_reboot_clears_everything_and_says_so() -> None:
    watch = Watch()
    watch.look(hard(), soft())
    watch.look(soft())
    watch.boot = "boot-2"
    assert watch.look() == []
    ended = {e.finding.rule: e.why for e in watch.ledger.take_ended()}
    assert ended == {"gpu.lost": "reboot", "nvlink.slow": "reboot"}


def test_what_survives_a_reboot_begins_anew() -> None:
    watch = Watch()
    watch.look(hard())
    watch.boot = "boot-2"
    (anew,) = watch.look(hard())
    assert (anew.since, anew.count, anew.latched) == (1020, 1, False)


class Reset:
    """A node whose fault comes, goes by a reset, and is judged at each step."""

    def __init__(self) -> None:
        self.node = Built()
        self.ledger = Ledger(RULES)
        self.now = NOW

    def put(self, probe: str, device: str, **values: Any) -> None:
        self.now += 1
        self.node.at = self.now
        before = self.node.facts.get(probe, device)
        self.node.put(probe, device, **{**(before.values if before else {}), **values})

    def look(self, rule: str) -> Finding | None:
        facts = self.node.facts
        found = [f for f in findings(self.node) if f.rule == rule]
        self.now += 1
        after = self.ledger.update("gpu001", found, self.now, "b1", partial(healed, facts))
        return next(iter(after), None)

    def passes(self, rule: str, number: int = 4) -> list[str]:
        """Why findings ended within so many passes."""
        for _ in range(number):
            self.look(rule)
        return [ended.why for ended in self.ledger.take_ended()]


@pytest.mark.parametrize(
    ("rule", "fault", "healthy"),
    [
        ("remap.pending", {"remap_pending": True, "remap_uncorrectable": 1},
         {"remap_pending": False}),
        ("ecc.uncorrected", {"ecc_uncorrected_volatile": 3}, {"ecc_uncorrected_volatile": 0}),
        ("gpu.recovery_action", {"recovery_action": 1}, {"recovery_action": 0}),
    ],
)  # fmt: skip
def test_a_reset_clears_what_its_own_reading_shows(
    rule: str, fault: dict[str, Any], healthy: dict[str, Any]
) -> None:
    reset = Reset()
    reset.put("ecc", SLOTS[2], **fault)
    assert reset.look(rule) is not None
    reset.put("ecc", SLOTS[2], **healthy)
    kept = [reset.look(rule) for _ in range(2)]
    assert all(finding is not None and finding.latched for finding in kept)
    assert reset.passes(rule, 1) == ["reset"]


def test_a_flag_that_can_no_longer_be_read_proves_no_reset() -> None:
    reset = Reset()
    reset.put("ecc", SLOTS[2], remap_pending=True)
    reset.look("remap.pending")
    reset.node.drop("ecc", SLOTS[2], "remap_pending")
    assert reset.passes("remap.pending") == []
    latched = reset.look("remap.pending")
    assert latched is not None
    assert latched.latched


@pytest.mark.parametrize(("uuid", "ends"), [("GPU-a", ["reset"]), ("GPU-b", [])])
def test_a_lost_gpu_is_back_when_the_same_card_answers(uuid: str, ends: list[str]) -> None:
    reset = Reset()
    reset.put("inventory", SLOTS[2], uuid="GPU-a")
    reset.put("gpu", SLOTS[2], nvml_rc=15, nvml_call="x")
    assert reset.look("gpu.lost") is not None
    reset.node.drop("gpu", SLOTS[2], "nvml_rc", "nvml_call")
    reset.put("gpu", SLOTS[2])
    assert reset.passes("gpu.lost") == []  # the inventory is from before
    reset.put("inventory", SLOTS[2], uuid=uuid)
    assert reset.passes("gpu.lost") == ends


def test_the_kernel_logs_word_outlives_a_reset() -> None:
    reset = Reset()
    reset.node.kernel("NVRM: Xid (PCI:0000:52:00): 119, pid=1, name=x, Timeout after 6s")
    assert reset.look("xid.119") is not None
    reset.node.facts.kernel.clear()
    reset.put("gpu", SLOTS[2])
    assert reset.passes("xid.119", 6) == []


def test_every_rule_that_a_reset_clears_has_a_proof_and_latches() -> None:
    declared = {rule.id for rule in REGISTRY if rule.clears == "reset"}
    assert declared == set(PROOFS)
    assert all(rule.hard for rule in REGISTRY if rule.clears == "reset")


def test_a_pass_that_could_not_judge_clears_nothing() -> None:
    watch = Watch()
    watch.look(soft())
    watch.look(soft())
    broken = Finding(rule="internal.judge", severity=Severity.UNKNOWN, node="n1", say="ValueError")
    for _ in range(5):
        assert set(watch.rules(broken)) == {"nvlink.slow", "internal.judge"}


def test_unknown_boot_id_is_not_a_reboot() -> None:
    watch = Watch()
    watch.look(hard())
    watch.boot = ""
    assert watch.rules() == ["gpu.lost"]
    watch.boot = "boot-1"
    assert watch.rules() == ["gpu.lost"]
    watch.boot = "boot-2"
    assert watch.rules() == []


def test_unreachable_node_keeps_what_it_had() -> None:
    watch = Watch()
    watch.look(hard(), soft())
    watch.look(hard(), soft())
    for _ in range(10):
        kept = {f.rule: f for f in watch.look(blind())}
        assert set(kept) == {"node.unreachable", "gpu.lost", "nvlink.slow"}
        assert kept["gpu.lost"].latched
        assert kept["nvlink.slow"].latched
    back = {f.rule: f for f in watch.look(soft())}
    assert set(back) == {"gpu.lost", "nvlink.slow"}
    assert not back["nvlink.slow"].latched
    assert back["nvlink.slow"].count == 1


def test_clean_passes_are_counted_only_when_the_node_answers() -> None:
    watch = Watch()
    watch.look(soft())
    watch.look(soft())
    watch.look()
    watch.look()
    watch.look(blind())
    watch.look(blind())
    assert watch.rules() == []


def test_unknown_of_another_domain_does_not_blind() -> None:
    watch = Watch()
    watch.look(soft())
    watch.look(soft())
    other = Finding(rule="ib.saturated", severity=Severity.UNKNOWN, node="n1", say="unknown rate")
    watch.look(other)
    watch.look(other)
    assert watch.rules(other) == ["ib.saturated"]


def test_one_pass_shows_at_once_and_keeps_nothing() -> None:
    watch = Watch(one_pass=True)
    assert watch.rules(soft(), hard()) == ["nvlink.slow", "gpu.lost"]
    assert watch.look() == []


def test_the_checks_own_count_and_beginning_are_kept() -> None:
    watch = Watch()
    (first,) = watch.look(hard(count=4, since=400.0))
    assert (first.count, first.since) == (4, 400.0)
    (later,) = watch.look(hard(count=6, since=900.0))
    assert (later.count, later.since) == (6, 400.0)


def test_two_findings_of_one_rule_and_device_become_the_worst() -> None:
    watch = Watch(one_pass=True)
    (one,) = watch.look(
        soft(evidence=("link 3",)), soft(severity=Severity.CRITICAL, evidence=("link 7", "x"))
    )
    assert (one.severity, one.evidence) == (Severity.CRITICAL, ("link 7", "x", "link 3"))


def test_devices_and_nodes_are_apart() -> None:
    ledger = Ledger(load_rules())
    other = Finding(rule="gpu.lost", severity=Severity.CRITICAL, node="n1", device="b", say="",
                    hard=True)  # fmt: skip
    ledger.update("n1", [hard(), other], 1.0, "x")
    ledger.update("n2", [], 1.0, "x")
    ledger.update("n1", [other], 2.0, "x")
    ledger.acknowledge("n1", "gpu.lost", GPU)
    assert [f.device for f in ledger.update("n1", [other], 3.0, "x")] == ["b"]
    assert ledger.update("n2", [], 3.0, "x") == []
