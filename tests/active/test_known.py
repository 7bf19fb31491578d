"""Verdicts tell what else is known of their node, and take it as cause where it explains them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from console.active import known
from console.active.expect import Expected, NodeSpec
from console.active.localise import localiser
from console.active.pair_words import GENERAL, SLOW_NICS
from console.active.results import Confidence, Level, Row, Verdict
from probes.event import Finding, Severity
from tests.active.campaigns import run

PAIRS = Verdict(
    kind="node", name="n1", nodes=("n1",), verdict=Severity.CRITICAL,
    confidence=Confidence.CERTAIN, say="n1: 192 of 388 GB/s with 3 known-good partners",
    evidence=("round 1 with n2: 192 GB/s",), cause=SLOW_NICS, next_step="drain n1; look",
)  # fmt: skip


def finding(rule: str, label: str = "", say: str = "it is bad", **more: Any) -> Finding:
    fields: dict[str, Any] = {"severity": Severity.WARN, "device": label, "next_step": "see it"}
    return Finding(rule=rule, node="n1", label=label, say=say, **{**fields, **more})


HOT = finding("thermal.hw_slowdown", "GPU5", "it slows down for heat", next_step="look at the fans")
FLAP = finding("ib.link_downed", "mlx5_3/1", "went down 6 times", next_step="change the cable")
DISK = finding("storage.full", say="/ is full")


def one(*found: Finding, verdict: Verdict = PAIRS, level: Level = Level.PAIRS) -> Verdict:
    (told,) = known.told(level, [verdict], {"n1": found})
    return told


def test_a_flapping_port_is_the_cause_of_a_slow_pair() -> None:
    told = one(DISK, HOT, FLAP)
    assert told.evidence[:2] == (
        *PAIRS.evidence,
        "also: mlx5_3/1: went down 6 times (ib.link_downed)",
    )
    assert told.cause.startswith("mlx5_3/1: went down 6 times")
    assert told.next_step == "drain n1; change the cable"
    assert any("/ is full" in line for line in told.evidence), "told, but no cause"
    assert "/ is full" not in told.cause


def test_heat_is_not_its_nics() -> None:
    told = one(HOT)
    assert told.cause == "GPU5: it slows down for heat"
    assert "NIC" not in told.next_step


def test_what_explains_nothing_leaves_the_cause() -> None:
    told = one(DISK)
    assert (told.cause, told.next_step) == (SLOW_NICS, PAIRS.next_step)


def test_a_cause_from_the_runs_stays_in_front() -> None:
    own = structs.replace(PAIRS, cause="sockets instead of InfiniBand")
    told = one(FLAP, verdict=own)
    assert told.cause == "sockets instead of InfiniBand; mlx5_3/1: went down 6 times"
    assert told.next_step == own.next_step


def test_findings_of_the_same_figures_and_of_other_gpus_are_no_second_word() -> None:
    gpu = structs.replace(PAIRS, kind="gpu", name="n1 GPU3")
    assert one(finding("gpu_test.gemm", "GPU3"), HOT, verdict=gpu, level=Level.GPU) == gpu
    assert one(finding("nccl.busbw")) == PAIRS
    mine = finding("ecc.dbe", "GPU3", "3 double-bit errors")
    assert "3 double-bit errors" in one(mine, verdict=gpu, level=Level.GPU).cause


@pytest.mark.parametrize("kind", ["fabric", "rail", "group"])
def test_what_is_about_no_single_node_is_left_alone(kind: str) -> None:
    other = structs.replace(PAIRS, kind=kind)
    assert one(FLAP, verdict=other) == other


def test_a_healthy_verdict_has_evidence_and_no_cause() -> None:
    told = one(FLAP, verdict=structs.replace(PAIRS, verdict=Severity.OK, cause=""))
    assert "went down 6 times" in told.evidence[-1]
    assert (told.cause, told.verdict) == ("", Severity.OK)


@given(
    st.lists(
        st.builds(
            finding, st.sampled_from(["ib.x", "thermal.x", "storage.x", "gpu_test.x"]),
            st.text(max_size=20), st.text(max_size=400),
            severity=st.sampled_from(list(Severity)), next_step=st.text(max_size=400),
        ), max_size=30,
    ),
    st.sampled_from(list(Level)),
)  # fmt: skip
def test_who_is_named_and_how_surely_stays(found: list[Finding], level: Level) -> None:
    """Whatever hostile words a finding carries: bounded, clean, and no judgement of its own."""
    told = one(*found, verdict=PAIRS, level=level)
    kept = {name: getattr(told, name) for name in ("kind", "nodes", "verdict", "confidence", "say")}
    assert kept == {name: getattr(PAIRS, name) for name in kept}
    assert len(told.evidence) <= len(PAIRS.evidence) + known.SHOWN + 1
    assert all(len(line) < 300 and line.isprintable() for line in told.evidence)
    assert told.cause in GENERAL or len(told.cause) <= 2 * known.CHARS + 2


def test_two_slow_nodes_alone_are_one_pair_and_what_is_known_of_them_tells_more() -> None:
    nodes = ("n1", "n2")
    expected = Expected(nodes={n: NodeSpec(nic_gb_s=400.0) for n in nodes})
    found = localiser(Level.PAIRS, nodes, seed=1, expected=expected, labels={})
    slow = run(nodes, 192.0, rows=(Row(size_bytes=1 << 30),))
    (verdict,) = [v for v in found.verdicts([slow]) if v.verdict is not Severity.UNKNOWN]
    assert (verdict.kind, verdict.name, verdict.confidence) == (
        "path", "n1-n2", Confidence.SUSPECTED,
    )  # fmt: skip
    assert "all" not in verdict.say
    assert not verdict.drains
    assert "third" in verdict.next_step
    (told,) = known.told(Level.PAIRS, [verdict], {"n1": [FLAP]})
    assert told.cause == "n1 mlx5_3/1: went down 6 times"


HUNG = finding(
    "driver.hung", "GPU1", "driver hangs on GPU1 for 26 s", severity=Severity.CRITICAL,
    next_step="drain, then reboot the node",
)  # fmt: skip


def test_a_node_that_is_critical_now_is_never_just_fine() -> None:
    fine = structs.replace(PAIRS, verdict=Severity.OK, cause="", say="n1: 388 GB/s with n2")
    told = one(HUNG, verdict=fine)
    assert told.verdict is Severity.WARN
    assert told.say == "n1: 388 GB/s with n2: ok in this test; but: driver hangs on GPU1 for 26 s"
    assert told.next_step == "drain, then reboot the node"
    assert not told.drains
    other = structs.replace(fine, name="n2", nodes=("n2",))
    both = known.told(Level.PAIRS, [fine, other], {"n1": [HUNG], "n2": [FLAP]})
    assert {v.name: v.verdict for v in both} == {"n1": Severity.WARN, "n2": Severity.OK}


def test_fine_gpus_of_a_critical_node_do_not_make_it_fine() -> None:
    gpus = [
        structs.replace(PAIRS, kind="gpu", name=f"n1 GPU{i}", verdict=Severity.OK) for i in (0, 1)
    ]
    port = finding("ib.down", "mlx5_3/1", "is not active", severity=Severity.CRITICAL)
    told = known.told(Level.GPU, gpus, {"n1": [port], "n2": [HUNG]})
    assert [(v.kind, v.name, v.verdict) for v in told[2:]] == [("node", "n1", Severity.WARN)]
    assert "is not active" in told[2].say


def test_what_is_wrong_already_is_not_told_twice() -> None:
    assert one(HUNG).say == PAIRS.say
