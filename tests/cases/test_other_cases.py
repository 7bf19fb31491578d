"""Cases of Slurm, SSH, inventories and nccl-tests, as far as a node's verdict hangs on them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from inventory.errors import UsageError
from inventory.hosts import load
from inventory.run import Completed
from inventory.scheduler import Allocation
from inventory.slurm import Slurm
from probes.event import Action, NodeState, Severity
from probes.node import nccl, nccl_table
from probes.reasons import read_text
from tests.cases.support import demand, judged, of_kind, severity, text
from tests.judging.build import Built


def allocations(name: str) -> dict[str, Allocation]:
    """Slurm's view of a case through the real adapter; only the program is replaced."""
    nodes = text(name).partition("---\n")[0]

    async def run(argv: Sequence[str], timeout_s: float = 10.0) -> Completed:
        out = nodes if "nodes" in argv or "node" in argv else ""
        return Completed(argv=tuple(argv), rc=0, stdout=out, stderr="")

    return {one.node: one for one in asyncio.run(Slurm(run).allocations())}


def silent(allocation: Allocation) -> Built:
    """A node that does not answer, as its scheduler sees it."""
    node = Built(allocation.node)
    node.facts.latest.clear()
    node.facts.apply(allocation)
    node.status(NodeState.UNREACHABLE, "timeout", "no answer")
    return node


def test_nodes_that_are_off_by_design_are_not_unreachable() -> None:
    name = "slurm-cloud-powersave-not-fault"
    grades = {node: judged(silent(a))[0] for node, a in allocations(name).items()}
    assert grades.pop("cloud-004").rank >= severity(name).rank
    assert set(grades.values()) == {Severity.INFO}
    assert set(grades) < set(demand(name)["facts"])


def test_states_reach_the_console_in_its_own_words() -> None:
    found = allocations("slurm-compound-states")
    facts = demand("slurm-compound-states")["facts"]
    for node, fact in facts.items():
        assert (found[node].state in ("draining", "drained")) is fact.get("drain", False)
        if fact.get("drain") and fact.get("jobs"):
            assert found[node].state == "draining"
        if fact.get("not_responding"):
            assert found[node].responding is False
    assert found["gpu-a05"].state == "off"
    assert "BLOCKED" in found["gpu-a11"].raw, "unknown flags are shown as they are"


@pytest.mark.parametrize("name", of_kind("ssh-transport"))
def test_a_node_that_was_not_read_is_unknown_and_never_drained(name: str) -> None:
    failure = read_text(text(name))
    assert failure is not None
    node = Built()
    node.facts.latest.clear()
    node.status(failure.state, failure.reason, failure.what, hint=failure.hint)
    grade, found = judged(node)
    assert grade is severity(name) is Severity.UNKNOWN
    assert all(f.severity is Severity.UNKNOWN for f in found)
    assert max(f.action.rank for f in found) <= Action.FIX_CONFIG.rank
    assert failure.hint
    assert "hardware" not in failure.what


@pytest.mark.parametrize("line", text("inventory-malformed-must-be-rejected").splitlines())
def test_a_broken_line_names_file_and_line_and_nothing_is_expanded(
    tmp_path: Path, line: str
) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text(f"groups:\n  good:\n    hosts: ok[1-2]\n  bad:\n    hosts: '{line}'\n")
    with pytest.raises(UsageError) as caught:
        load(path)
    assert f"{path}:5" in str(caught.value)
    assert "at column" in str(caught.value)


def test_mixed_lines_are_expanded_in_an_inventory(tmp_path: Path) -> None:
    name = "inventory-mixed-hostlist"
    for number, line in enumerate(text(name).splitlines(), 1):
        path = tmp_path / f"{number}.yaml"
        path.write_text(f"hosts: {line}\n")
        names = [node.name for node in load(path).nodes]
        assert names == demand(name)["facts"][str(number)]


def summary(name: str) -> Built:
    """A healthy node whose test ended with this table, as the agent sends it."""
    table = nccl_table.parse(text(name))
    values: dict[str, Any] = {"id": "t", "ok": bool(table.rows), "engine": "nccl-tests"}
    if table.ranks is not None:
        values["ranks"] = table.ranks
    if table.busbw_means_something:
        values.update(nccl.bandwidths(table))
    node = Built()
    node.put("nccl", "summary", **values)
    return node


@pytest.mark.parametrize(
    "name", [n for n in of_kind("nccl-tests") if severity(n) in (Severity.OK, Severity.UNKNOWN)]
)
def test_no_table_here_accuses_the_hardware(name: str) -> None:
    """Small averages, one rank, a crash of the plugin: none is a slow node."""
    _, found = judged(summary(name))
    assert not [f for f in found if f.rule.startswith("nccl.") and f.action is Action.DRAIN]


def test_the_largest_size_is_judged_not_the_average() -> None:
    found = summary("nccl-tests-small-avg-misleads").facts.get("nccl", "summary")
    assert found is not None
    assert found.values["busbw_max_gb_s"] == 478.3
    slow = text("nccl-tests-small-avg-misleads").replace("478.30", "120.30").replace("462", "118")
    table = nccl_table.parse(slow)
    node = Built()
    best: dict[str, Any] = nccl.bandwidths(table)
    node.put("nccl", "summary", engine="nccl-tests", ranks=8, **best)
    assert [f.rule for f in judged(node)[1]] == ["nccl.busbw"]
