"""`gpuconsole doctor --learn`: what it proposes, from whom, and that it is a valid overlay."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from console.fleet import Fleet
from console.learn import proposal
from inventory.node import Inventory
from probes.event import NodeState, Severity
from probes.rules import Rules, load_rules
from tests.judging.build import NOW, SLOTS, Built

COMMAND = [sys.executable, "-m", "console.cli"]
Change = Callable[[Built], None]


def node(number: int) -> Built:
    """One healthy node with software on it."""
    built = Built(f"gpu{number:03}")
    rows: list[Any] = [{"word": "ro"}]
    built.put("versions", "", rows=rows, kernel="5.15", memory_gib=2015.1, cpu_count=112)
    services: list[Any] = [
        {"service": name, "running": True, "state": "active"} for name in ("slurmd", "munge")
    ]
    built.put("services", "", rows=services, manager="systemd", sees_processes=True)
    built.put("modules", "", nvidia_peermem=True, gdrdrv=False, dmabuf=False)
    return built


def fleet(nodes: list[Built], rules: Rules | None = None) -> Fleet:
    """A Fleet after one pass in which they said what they know."""
    made = Fleet(
        Inventory(nodes=tuple(one.facts.node for one in nodes)), rules, one_pass=True,
        clock=lambda: NOW,
    )  # fmt: skip
    for one in nodes:
        if one.facts.status is not None:
            made.apply(one.facts.status)
        for sample in one.facts.latest.values():
            made.apply(sample)
    made.tick()
    return made


def learned(nodes: list[Built], tmp_path: Path) -> tuple[str, Rules]:
    text = proposal(fleet(nodes), "a cluster", NOW)
    path = tmp_path / "site.yaml"
    path.write_text(text, encoding="utf-8")
    return text, load_rules(path)


def test_what_all_have_is_proposed_and_comes_back_through_rules(tmp_path: Path) -> None:
    _, rules = learned([node(number) for number in range(1, 5)], tmp_path)
    role = rules.roles["compute"]
    assert role["gpu_count"].values == (8.0,)
    assert role["ib_ports"].values == (8.0,)
    assert role["memory_gib"].values == (2015.1,)
    assert role["services"].values == ("slurmd", "munge")
    assert role["modules"].values == ("nvidia_peermem",)
    assert rules.expected["H100-SXM5-80"]["power_limit_w"].values == (700.0,)
    assert rules.expected["H100-SXM5-80"]["gpu_memory_bytes"].values == (float(80 << 30),)


def test_the_taught_nodes_pass_and_a_node_that_lacks_something_is_found(tmp_path: Path) -> None:
    nodes = [node(number) for number in range(1, 5)]
    _, rules = learned(nodes, tmp_path)
    nodes[3].put("infiniband", "mlx5_7/1", gone=True)
    rest: list[Any] = [{"service": "slurmd", "running": True, "state": "active"}]
    nodes[3].put("services", "", rows=rest, manager="systemd", sees_processes=True)
    judged = fleet(nodes, rules)
    told = {
        name: [f.say for f in found if f.rule == "site.expected"]
        for name, found in judged.findings.items()
    }
    assert told == {
        "gpu001": [], "gpu002": [], "gpu003": [],
        "gpu004": [
            "7 RDMA ports; site overlay says 8",
            "service munge does not run; site overlay says it runs",
        ],
    }  # fmt: skip


def sick(one: Built) -> None:
    one.change("inventory", "", gpu_count=7)


def hot(one: Built) -> None:
    one.change("ecc", SLOTS[0], remap_pending=True)


def silent(one: Built) -> None:
    one.status(NodeState.UNREACHABLE, "refused", "refuses connections")


@pytest.mark.parametrize("change", [sick, hot, silent], ids=lambda change: change.__name__)
def test_a_sick_node_teaches_nothing_and_is_named(change: Change, tmp_path: Path) -> None:
    nodes = [node(number) for number in range(1, 6)]
    nodes[2].change("versions", "", memory_gib=1000.0)
    change(nodes[2])
    text, rules = learned(nodes, tmp_path)
    assert "# left out: gpu003, " in text
    assert rules.roles["compute"]["gpu_count"].values == (8.0,)
    (line,) = [line for line in text.splitlines() if "memory_gib" in line]
    assert line == "    memory_gib: 2015.1  # 4 of 4 nodes"


def test_what_they_do_not_agree_on_is_a_comment_with_the_odd_ones(tmp_path: Path) -> None:
    nodes = [node(number) for number in range(1, 9)]
    for one in nodes[:3]:
        one.change("versions", "", cpu_count=128)
    for one in nodes[:1]:
        one.change("versions", "", kernel="6.1")
    text, rules = learned(nodes, tmp_path)
    assert "    # cpu_count: 112  # 5 of 8 nodes; odd: 128 on gpu[001-003]" in text.splitlines()
    assert "cpu_count" not in rules.roles["compute"]
    assert '    # kernel: "5.15"  # 7 of 8 nodes; odd: 6.1 on gpu001' in text.splitlines()


def test_a_gpu_that_the_catalogue_lacks_is_named(tmp_path: Path) -> None:
    nodes = [node(number) for number in range(1, 5)]
    for one in nodes:
        for slot in SLOTS:
            one.change("inventory", slot, pci_device_id="ffff", name="NVIDIA X900")
    text, rules = learned(nodes, tmp_path)
    assert "  # NVIDIA X900, PCI id ffff: not in the catalogue" in text
    assert rules.expected == {}


def test_two_nodes_are_too_few(tmp_path: Path) -> None:
    text, rules = learned([node(1), node(2)], tmp_path)
    assert "2 healthy nodes are too few" in text
    assert rules.roles == {}


def test_nothing_that_a_node_says_can_break_the_file(tmp_path: Path) -> None:
    nodes = [node(number) for number in range(1, 5)]
    for one in nodes:
        one.change("versions", "", kernel='x\n"evil: [', cpu_model="a\n# b: {\x1b[31m")
    _, rules = learned(nodes, tmp_path)
    assert rules.roles["compute"]["cpu_model"].values == ("a?# b: {?[31m",)


# ---------------------------------------------------------------------- the command


DEMO = ("--demo", "--timeout", "200")
"""A busy machine has its time: a node that did not answer teaches nothing."""


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, timeout=250, check=False
    )


def test_from_the_command_line_to_an_overlay_in_force(tmp_path: Path) -> None:
    path = tmp_path / "learned.yaml"
    done = run("doctor", "--learn", *DEMO, "-o", str(path))
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    rules = load_rules(path)
    assert rules.roles["compute"]["ib_ports"].values == (8.0,)
    assert "fabricmanager" in rules.roles["compute"]["services"].values
    before = path.read_text(encoding="utf-8")
    assert "# left out: gpu005, critical" in before
    again = run("doctor", "--learn", *DEMO, "-o", str(path))
    assert again.returncode == 64
    assert again.stderr == f"gpuconsole: {path}: it exists already; -o a new file\n"
    assert path.read_text(encoding="utf-8") == before
    judged = run(*DEMO, "-w", "gpu001,gpu002", "--rules", str(path), "--json")
    document = json.loads(judged.stdout)
    rules_told = {f["rule"] for one in document["nodes"] for f in one["findings"]}
    assert "site.expected" not in rules_told
    assert document["verdict"] in (Severity.OK, Severity.INFO)


def test_nothing_learned_is_not_success(tmp_path: Path) -> None:
    path = tmp_path / "learned.yaml"
    done = run("doctor", "--learn", *DEMO, "-w", "gpu001,gpu014", "-o", str(path))
    assert done.returncode == 3
    assert "nothing to hold any role to: 1 of 2 nodes unknown\n" in done.stderr
    assert load_rules(path).roles == {}


def test_a_file_without_learning_is_the_operators_mistake(tmp_path: Path) -> None:
    done = run("doctor", "-o", str(tmp_path / "x"))
    assert done.returncode == 64
    assert "add --learn" in done.stderr
