"""Whatever a node sends, judging gives findings that can be shown and never raises."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from probes.catalog import PROBES
from probes.checks import judge, peers, verdict
from probes.event import NodeState, NodeStatus, Sample, Severity, encoder
from probes.facts import NodeFacts
from probes.ledger import Ledger
from probes.straggler import compare
from tests.judging.build import IB, NOW, RULES, SLOTS, Built, fleet

SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.integers(min_value=-(10**30), max_value=10**30),
    st.integers(min_value=-3, max_value=300),
    st.floats(),
    st.booleans(),
    st.text(max_size=20),
    st.sampled_from([10**400, -1, float("nan"), float("inf"), -float("inf"), "N/A", "x" * 500, ""]),
)
EXTRA = {
    "gpu": ("nvml_rc", "nvml_call"),
    "nvlink": ("link_up", "linkX_up", "link7_mbps", "link7_up", "link0_crc", "link99999_up"),
    "infiniband": ("link_downed", "symbol_error", "roce_slow_restart", "pci"),
    "ethtool": ("tx_prio3_pause_duration", "rx_discards_phy", "link_down_events_phy"),
    "hello": ("wall_skew_s", "boot_id", "missing.kernel_log"),
    "nccl": ("wrong", "busbw_max_gb_s", "ranks", "rc", "ok", "error", "engine", "nnodes", "text"),
    "gpu_test": (
        "engine",
        "error",
        "gemm_bf16_tflops",
        "hbm_copy_gb_s",
        "h2d_gb_s",
        "p2p_gb_s",
        "reasons",
        "sm_clock_mhz",
        "pcie_gen",
        "pcie_width",
        "name",
    ),
    "kernel_log": ("mono", "text", "prio"),
    "processes": ("gpu", "pid", "job", "rank", "alive"),
    "inventory": ("pci", "in_nvml", "config_ok"),
}
NAMES = {name: sorted({*probe.metrics, *EXTRA.get(name, ())}) for name, probe in PROBES.items()}
NAMES |= {name: sorted(EXTRA[name]) for name in ("hello", "nccl", "gpu_test")}
OTHERS = fleet(4)[1:]
DEVICES = ("", SLOTS[0], SLOTS[1], IB[0], "summary", "index:3", "x" * 300)
LINES = (
    "NVRM: Xid (PCI:0000:1b:00): 154, GPU recovery action changed from 0x0 (None) to 0x{} (X)",
    "NVRM: Xid (PCI:0000:1b:00): {}, pid={}, name={}, Ch 00000010",
    "[Tue Mar {} 04:05:06 2026] NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.",
    "2026-{}-99T04:05:06+00:00 h kernel: nfs: server {} not responding",
    "[{}.000000] nvidia-nvswitch{}: SXid (PCI:0000:06:00.0): 20034, Fatal, Link {} LTSSM",
    "nvidia 0000:1b:00.0: PCIe Bus Error: severity=Corrected, type={}, (Receiver ID)",
    "EDAC MC0: {} CE memory", "mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank {}: {}",
    "task {}:{} blocked for more than {} seconds.",
    "BUG: soft lockup - CPU#{} stuck for {}s! [{}:1]",
    "Lustre: {}-OST0003-osc: Connection to {} was lost", "nvme nvme{}: I/O {} timeout, aborting",
    "mlx5_core 0000:ab:00.0 {}: Port: {} Link DOWN", "NVRM: API mismatch: client version {}",
)  # fmt: skip


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    probe = draw(st.sampled_from(sorted(NAMES)))
    values = draw(st.dictionaries(st.sampled_from(NAMES[probe]), SCALARS, max_size=8))
    rows = draw(st.lists(st.dictionaries(st.sampled_from(NAMES[probe]), SCALARS), max_size=3))
    if probe == "kernel_log":
        rows = [{"mono": draw(SCALARS), "text": draw(line())} for _ in range(4)]
    clock = draw(st.one_of(st.floats(), st.sampled_from([0.0, 1000.0, 1030.0])))
    return Sample(
        node="gpu001", probe=probe, device=draw(st.sampled_from(DEVICES)), at=NOW,
        clock=clock, values=values, rows=rows,
    )  # fmt: skip


def line() -> st.SearchStrategy[str]:
    filler = st.one_of(st.text(max_size=8), st.integers(-5, 10**40).map(str))
    shape, fill = st.sampled_from(LINES), st.lists(filler, min_size=4, max_size=4)
    return st.builds(lambda form, words: form.format(*words)[:500], shape, fill)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(samples(), min_size=1, max_size=12))
@example(
    [Sample(node="gpu001", probe="nvlink", device=SLOTS[0], at=NOW, values={"linkX_up": True})]
)
@example([Sample(node="gpu001", probe="nvlink", device=SLOTS[0], at=NOW, values={"link1_mbps": 0})])
@example([Sample(node="gpu001", probe="gpu", device=SLOTS[0], at=NOW,
                 values={"reasons": "0x40", "thermal_margin_c": float("nan")})])  # fmt: skip
def test_judging_never_raises_and_its_findings_can_be_written(sent: list[Sample]) -> None:
    node = Built()
    for sample in sent:
        node.facts.apply(sample)
    everyone = [built.facts for built in (node, *OTHERS)]
    found = judge(node.facts, peers(everyone)["compute"], RULES, NOW)
    found += compare(everyone, RULES, NOW)
    after = Ledger(RULES).update("gpu001", found, NOW, "b1")
    assert verdict(node.facts, after, NOW) in Severity
    for finding in (*found, *after):
        assert len(finding.say) <= 500
        assert len(finding.evidence) <= 8
        assert all(len(text) <= 500 for text in finding.evidence)
        assert max(len(finding.device), len(finding.label)) <= 120
        assert msgspec.json.decode(encoder.encode(finding))["say"] == finding.say


@pytest.mark.parametrize("since_s", [float("nan"), float("inf"), -1.0, None])
def test_a_hung_call_may_claim_any_age(since_s: float | None) -> None:
    facts: NodeFacts = Built().facts
    hung = NodeStatus(node="gpu001", at=NOW, state=NodeState.HUNG, probe="gpu", device="x" * 300,
                      text="t" * 600, since_s=since_s)  # fmt: skip
    facts.apply(hung)
    found = judge(facts, peers([facts])["compute"], RULES, NOW)
    assert any(finding.rule == "driver.hung" for finding in found)
    assert all(len(finding.label) <= 120 for finding in found)
