"""Majorities of a role, the odd ones, splits, and the site's word before all of them."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.fleet import Fleet
from console.learn import proposal
from inventory.errors import UsageError
from inventory.node import Inventory
from probes.catalog import PROBES
from probes.checks import containers, drift, modules, services, site
from probes.drift import census, odd
from probes.drift_facts import FACTS, of
from probes.event import Finding, Severity, encoder, worst
from probes.expect import peers
from probes.rule import Look
from probes.rules import Rules, load_rules
from probes.sources import cited
from tests.judging.build import NOW, RULES, SLOTS, Built, by_rule, findings

WORDS = ("ro", "iommu=pt", "console=tty0")
OURS = ("drift.", "site.")


def node(number: int, *, words: tuple[str, ...] = WORDS, **changed: Any) -> Built:
    """One of a role of equals."""
    built = Built(f"gpu{number:03}")
    versions: dict[str, Any] = {
        "kernel": "5.15.0-157-generic", "memory_gib": 2015.1, "cpu_count": 112, "nvswitches": 4,
        "numa_nodes": 2, "sysctl.vm.swappiness": "60",
    }  # fmt: skip
    if "swappiness" in changed:
        changed["sysctl.vm.swappiness"] = changed.pop("swappiness")
    rows: list[Any] = [{"word": word} for word in words]
    built.put("versions", "", rows=rows, **{**versions, **changed})
    return built


def role(count: int = 16) -> list[Built]:
    return [node(number) for number in range(1, count + 1)]


def told(one: Built, others: list[Built], rules: Rules = RULES) -> list[Finding]:
    rest = [other for other in others if other is not one]
    return [f for f in findings(one, rest, rules) if f.rule.startswith(OURS)]


def overlay(tmp_path: Path, text: str) -> Rules:
    path = tmp_path / "site.yaml"
    path.write_text(text, encoding="utf-8")
    return load_rules(path)


# ---------------------------------------------------------------------- peers


def test_equal_nodes_say_nothing() -> None:
    nodes = role()
    assert [told(one, nodes) for one in nodes] == [[]] * 16


def test_the_odd_driver_is_named_with_the_majority_and_its_share() -> None:
    nodes = role()
    nodes[6].change("inventory", "", driver_version="570.124.06")
    (found,) = told(nodes[6], nodes)
    assert found.say == "driver 570.124.06; 580.95.05 on 15 of 16 nodes"
    assert (found.severity, found.device, found.value) == (Severity.WARN, "driver", "570.124.06")
    assert told(nodes[0], nodes) == []


def test_differences_that_break_nothing_are_one_line_of_information() -> None:
    nodes = role()
    nodes[2] = node(3, kernel="5.15.0-160-generic", swappiness="10")
    (found,) = told(nodes[2], nodes)
    assert found.severity is Severity.INFO
    assert found.say == (
        "kernel 5.15.0-160-generic; 5.15.0-157-generic on 15 of 16 nodes; "
        "vm.swappiness 10; 60 on 15 of 16 nodes"
    )
    assert len(found.evidence) == 2


def test_half_and_half_is_a_split_and_nobody_is_odd() -> None:
    nodes = role()
    for one in nodes[8:]:
        one.change("inventory", "", driver_version="570.124.06")
    found = {one.facts.node.name: told(one, nodes) for one in nodes}
    (split,) = found.pop("gpu001")
    assert (split.rule, split.severity) == ("drift.split", Severity.INFO)
    assert split.say == (
        "role compute is split over driver: 580.95.05 on gpu[001-008]; 570.124.06 on gpu[009-016]"
    )
    assert set(map(len, found.values())) == {0}


@pytest.mark.parametrize(("old", "grade"), [(3, Severity.WARN), (4, Severity.OK)])
def test_an_upgrade_that_is_half_way_accuses_nobody(old: int, grade: Severity) -> None:
    nodes = role(9)
    for one in nodes[9 - old :]:
        one.change("inventory", "", driver_version="570.124.06")
    assert worst([f.severity for f in told(nodes[-1], nodes)]) is grade
    assert [f.rule for f in told(nodes[0], nodes)] == ([] if old == 3 else ["drift.split"])


def test_missing_gpus_are_not_told_twice() -> None:
    nodes = role()
    nodes[3].inventory(SLOTS[:7])
    found = findings(nodes[3], [one for one in nodes if one is not nodes[3]])
    assert "gpu.count" in by_rule(found)
    assert not [f for f in found if f.rule.startswith("drift.")]


def test_two_nodes_have_no_majority() -> None:
    nodes = [node(1), node(2, kernel="6.1")]
    assert [told(one, nodes) for one in nodes] == [[], []]


@pytest.mark.parametrize(
    ("gib", "severity"), [(1960.0, None), (1900.0, Severity.WARN), (2300.0, Severity.INFO)]
)
def test_memory_is_compared_with_five_per_cent(gib: float, severity: Severity | None) -> None:
    nodes = role(8)
    nodes[3] = node(4, memory_gib=gib)
    assert [f.severity for f in told(nodes[3], nodes)] == ([severity] if severity else [])


def test_nodes_whose_memory_differs_a_little_everywhere_still_have_a_usual_size() -> None:
    nodes = [node(number, memory_gib=2000.0 + number) for number in range(1, 9)]
    nodes[3] = node(4, memory_gib=1750.0)
    (found,) = told(nodes[3], nodes)
    assert found.say == "memory 1750 GiB; 2003 GiB on 7 of 8 nodes"


def test_fewer_cpus_warn() -> None:
    nodes = role(8)
    nodes[0] = node(1, cpu_count=56)
    (found,) = told(nodes[0], nodes)
    assert (found.severity, found.say) == (Severity.WARN, "CPUs 56; 112 on 7 of 8 nodes")


def test_roles_are_not_compared() -> None:
    nodes = role(4)
    other = Built("login1", role="login")
    other.put("versions", "", kernel="4.18")
    assert told(other, nodes) == []


def test_the_odd_gpu_of_a_product_is_named() -> None:
    nodes = role(4)
    for one in nodes:
        for slot in SLOTS:
            one.change("inventory", slot, vbios="96.00.89.00.01")
    nodes[1].change("inventory", SLOTS[5], vbios="96.00.74.00.01")
    (found,) = told(nodes[1], nodes)
    assert (found.rule, found.severity, found.device) == ("drift.gpu", Severity.INFO, SLOTS[5])
    assert found.say == "GPU5: VBIOS 96.00.74.00.01; 96.00.89.00.01 on 31 of 32 GPUs"


def test_all_gpus_of_an_odd_node_are_one_finding() -> None:
    nodes = role(4)
    for number, one in enumerate(nodes):
        for slot in SLOTS:
            one.change("inventory", slot, vbios="96.00.74.00.01" if number == 2 else "96.00.89")
    (found,) = told(nodes[2], nodes)
    assert (found.label, found.device) == ("8 GPUs", "vbios")


def test_products_of_a_mixed_role_are_compared_each_with_its_kind() -> None:
    nodes = role(6)
    for number, one in enumerate(nodes):
        kind, vbios = ("2335", "97.00") if number < 2 else ("2330", "96.00")
        for slot in SLOTS:
            one.change("inventory", slot, vbios=vbios, pci_device_id=kind)
    assert [f for one in nodes for f in told(one, nodes)] == []


def test_adapter_firmware_is_compared_by_type() -> None:
    nodes = role(4)
    for one in nodes:
        for port in range(8):
            hca, fw = ("MT4123", "20.38") if port < 2 else ("MT4129", "28.39.3560")
            one.change("infiniband", f"mlx5_{port}/1", hca=hca, fw=fw)
    nodes[3].change("infiniband", "mlx5_4/1", fw="28.36.1010")
    (found,) = told(nodes[3], nodes)
    assert (found.rule, found.severity) == ("drift.nic_firmware", Severity.WARN)
    assert found.say == "mlx5_4/1: firmware 28.36.1010; 28.39.3560 on 23 of 24 ports"


def test_a_gpu_in_another_clique_of_its_domain() -> None:
    nodes = role(6)
    for number, one in enumerate(nodes):
        for slot in SLOTS:
            rack = "rack-a" if number < 3 else "rack-b"
            clique = 7 if number < 3 else 9
            one.put("fabric", slot, fabric_cluster=rack, fabric_clique=clique)
    assert [f for one in nodes for f in told(one, nodes)] == []
    nodes[0].change("fabric", SLOTS[1], fabric_clique=8)
    (found,) = told(nodes[0], nodes)
    assert (found.severity, found.device) == (Severity.WARN, SLOTS[1])
    assert "fabric clique 8; 7 on 23 of 24 GPUs" in found.say


# ---------------------------------------------------------------------- command line


def test_a_word_that_most_have_and_one_that_nobody_has() -> None:
    nodes = role(8)
    nodes[4] = node(5, words=("ro", "console=tty0", "iommu=off", "quiet"))
    (found,) = told(nodes[4], nodes)
    assert found.rule == "drift.cmdline"
    assert "lacks iommu=pt and has iommu=off, quiet" in found.say


def test_an_option_that_each_node_sets_for_itself_is_none() -> None:
    nodes = [node(n, words=(*WORDS, f"site.id={n}")) for n in range(1, 9)]
    assert [f for one in nodes for f in told(one, nodes)] == []


def test_an_option_of_half_the_nodes_is_a_split() -> None:
    nodes = [node(n, words=(*WORDS, "nokaslr") if n > 4 else WORDS) for n in range(1, 9)]
    found = [f for one in nodes for f in told(one, nodes)]
    assert [f.rule for f in found] == ["drift.split"]
    assert "with nokaslr on gpu[005-008]; without nokaslr on gpu[001-004]" in found[0].say


def test_one_of_three_nodes_is_odd() -> None:
    nodes = [node(1), node(2), node(3, words=(*WORDS, "pcie_aspm=off"))]
    (found,) = told(nodes[2], nodes)
    assert "has pcie_aspm=off" in found.say


# ---------------------------------------------------------------------- the site's word


def test_the_site_goes_before_the_majority(tmp_path: Path) -> None:
    nodes = role(8)
    for one in nodes[1:]:
        one.change("inventory", "", driver_version="570.124.06")
    rules = overlay(tmp_path, 'roles:\n  compute: {driver: "580.95.05"}\n')
    assert told(nodes[0], nodes, rules) == []  # the only one with what the site wants
    (found,) = told(nodes[5], nodes, rules)
    assert (found.rule, found.severity) == ("site.expected", Severity.WARN)
    assert found.say == "driver 570.124.06; site overlay says 580.95.05"
    assert f"{tmp_path / 'site.yaml'}:2" in found.source


def test_a_port_that_the_site_counts_and_nobody_has(tmp_path: Path) -> None:
    nodes = role(4)
    rules = overlay(tmp_path, "roles:\n  compute:\n    ib_ports: 9\n")
    found = by_rule(told(nodes[0], nodes, rules))["site.expected"]
    assert found.say == "8 RDMA ports; site overlay says 9"
    assert found.evidence[0].endswith("site.yaml:3)")


def test_more_than_the_site_expects_is_enough_where_only_fewer_counts(tmp_path: Path) -> None:
    nodes = role(4)
    rules = overlay(tmp_path, "roles:\n  compute: {memory_gib: 1500, cpu_count: 112}\n")
    assert told(nodes[0], nodes, rules) == []


def test_services_and_modules_that_the_site_names(tmp_path: Path) -> None:
    one = node(1)
    rows: list[Any] = [{"service": "slurmd", "running": True, "state": "active"}]
    one.put("services", "", rows=rows, manager="systemd", sees_processes=True)
    one.put("modules", "", gdrdrv=False, nvidia_peermem=True)
    text = "roles:\n  compute:\n    services: [slurmd, dcgm]\n    modules: [gdrdrv]\n"
    found = told(one, role(4), overlay(tmp_path, text))
    assert {f.device for f in found} == {"service.dcgm", "module.gdrdrv"}


def test_a_product_of_the_site(tmp_path: Path) -> None:
    nodes = role(3)
    rules = overlay(tmp_path, "products:\n  H100-SXM5-80: {power_limit_w: 700, vbios: [a, b]}\n")
    nodes[0].change("gpu", SLOTS[2], power_limit_w=500.0)
    nodes[0].change("inventory", SLOTS[2], vbios="b")
    (found,) = told(nodes[0], nodes, rules)
    assert found.say == "GPU2: power limit 500 W; site overlay says 700 W"


def test_the_site_says_what_counts(tmp_path: Path) -> None:
    nodes = role(8)
    nodes[0] = node(1, kernel="6.1", cpu_count=56)
    rules = overlay(tmp_path, "drift:\n  kernel: warn\n  cpu_count: {severity: off}\n")
    found = told(nodes[0], nodes, rules)
    assert [(f.device, f.severity) for f in found] == [("kernel", Severity.WARN)]


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("rolls:\n  compute: {}\n", 1, "did you mean roles?"),
        ("roles:\n  compute: {ib_port: 8}\n", 2, "did you mean ib_ports?"),
        ("roles:\n  compute:\n    gpu_count: eight\n", 3, "a number"),
        ("roles:\n  compute:\n    services: [slurm]\n", 3, "did you mean slurmd?"),
        ("roles:\n  compute:\n    modules: nvidia_peermen\n", 3, "did you mean nvidia_peermem?"),
        ("roles: [compute]\n", 1, "must be a mapping"),
        ("products:\n  H100-SXM-80: {vbios: x}\n", 2, "did you mean H100-SXM5-80?"),
        ("products:\n  L40S: {vbois: x}\n", 2, "did you mean vbios?"),
        ("products:\n  L40S: {kernel: x}\n", 2, "no fact"),
        ("drift:\n  kernell: warn\n", 2, "did you mean kernel?"),
        ("drift:\n  kernel: critical\n", 2, "one of: off, info, warn"),
        ("drift:\n  kernel: {severty: warn}\n", 2, "did you mean severity?"),
    ],
)
def test_what_the_overlay_may_not_say(tmp_path: Path, text: str, line: int, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        overlay(tmp_path, text)
    assert caught.value.where == f"{tmp_path / 'site.yaml'}:{line}"
    assert says in str(caught.value)


def test_an_overlay_may_bring_its_own_product_and_expect_it(tmp_path: Path) -> None:
    text = (
        "products:\n  X900: {power_limit_w: 9}\n"
        "hardware:\n  X900: {pci_ids: ['ABCD'], form: sxm, mem_gb: 10, mem_bw_gb_s: 1, tdp_w: 9,"
        " verified: false, source: sheet}\n"
    )
    assert overlay(tmp_path, text).expected["X900"]["power_limit_w"].values == (9.0,)


# ---------------------------------------------------------------------- the table and the memory


def test_every_fact_has_an_entry_with_a_source() -> None:
    assert set(FACTS) == set(RULES.drift)
    ours = ("our rule", "our estimate", "nvml.h")
    for name, counts in RULES.drift.items():
        assert counts.help, name
        assert cited(counts.source) or any(word in counts.source for word in ours), name


def test_what_did_not_change_is_not_counted_again() -> None:
    nodes = role(6)
    facts = [one.facts for one in nodes]
    before = census("compute", facts)
    for one in nodes:
        one.change("gpu", SLOTS[0], after_s=2.0, util_percent=50)
    assert census("compute", facts) is before
    nodes[1].change("inventory", "", driver_version="1.2.3")
    after = census("compute", facts)
    assert after is not before
    assert after.usual["driver", ""].count == 5
    assert [o.seen.value for o in odd(facts[1], after)] == ["1.2.3"]


def test_a_live_setting_is_looked_at_again_after_a_minute() -> None:
    one = node(1)
    of(one.facts)
    one.at += 61.0
    for slot in SLOTS:
        one.change("gpu", slot, power_limit_w=500.0)
    limits = [seen.value for seen in of(one.facts)[1] if seen.fact == "power_limit_w"]
    assert limits == [500.0] * 8


@given(st.lists(st.sampled_from(["a", "b", "c"]), min_size=3, max_size=9), st.randoms())
def test_order_changes_nothing_and_the_odd_are_the_minority(
    kernels: list[str], rng: random.Random
) -> None:
    nodes = [node(number, kernel=kernel) for number, kernel in enumerate(kernels)]
    facts = [one.facts for one in nodes]
    before = census("a role", facts)
    mixed = list(facts)
    rng.shuffle(mixed)
    after = census("a role", mixed)
    assert before.usual == after.usual
    strange = [f for f in facts if odd(f, before)]
    most, *others = sorted(map(kernels.count, set(kernels)), reverse=True)
    majority = most * 2 > len(kernels) and most >= 2 * max(others, default=0)
    assert len(strange) == (len(kernels) - most if majority else 0)
    assert bool(before.splits) == (not majority)


# ---------------------------------------------------------------------- whatever nodes send

HOSTILE: st.SearchStrategy[Any] = st.one_of(
    st.integers(-3, 300), st.floats(), st.booleans(), st.text(max_size=12),
    st.sampled_from([10**400, float("nan"), float("inf"), "x" * 500, "", "\u00b2,\u0663", "580"]),
)  # fmt: skip
ASKED = ("versions", "services", "modules", "containers", "fabric", "host_slow", "inventory")
METRIC_NAMES = {name: sorted(PROBES[name].metrics) for name in ASKED}


@st.composite
def answer(draw: st.DrawFn) -> tuple[str, str, dict[str, Any], list[Any]]:
    probe = draw(st.sampled_from(ASKED))
    names = st.sampled_from(METRIC_NAMES[probe])
    values = draw(st.dictionaries(names, HOSTILE, max_size=10))
    rows = draw(st.lists(st.dictionaries(names, HOSTILE, max_size=5), max_size=3))
    return probe, draw(st.sampled_from(["", SLOTS[0]])), values, rows


@settings(max_examples=80)
@given(st.lists(st.tuples(st.integers(0, 3), answer()), min_size=1, max_size=16))
def test_no_answer_breaks_the_comparison_or_what_is_learned(
    sent: list[tuple[int, tuple[str, str, dict[str, Any], list[Any]]]],
) -> None:
    nodes = role(4)
    for number, (probe, device, values, rows) in sent:
        nodes[number].put(probe, device, rows=rows, **values)
    everyone = peers(one.facts for one in nodes)
    for one in nodes:
        look = Look(one.facts, everyone["compute"], RULES, NOW)
        for domain in (drift, services, containers, modules, site):
            for finding in domain.check(look):
                encoder.encode(finding)
    fleet = Fleet(Inventory(nodes=tuple(one.facts.node for one in nodes)), one_pass=True)
    for one in nodes:
        fleet.nodes[one.facts.node.name] = one.facts
    fleet.tick(NOW)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "learned.yaml"
        path.write_text(proposal(fleet, "x", NOW), encoding="utf-8")
        assert load_rules(path).overlay == str(path)
