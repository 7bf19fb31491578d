"""Which nodes may be tested, and how many at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.active import safety
from console.active.ask import Asked
from console.active.results import Group, Level
from inventory.node import Node
from inventory.scheduler import Allocation, Job
from probes.event import NodeState, NodeStatus, Sample
from probes.facts import NodeFacts

IDLE = safety.Claim()
OWNED = safety.Claim(force=True)


def facts(
    state: str = "idle",
    *,
    session: NodeState = NodeState.UP,
    scheduler: str | None = "slurm",
    processes: Sequence[str] | None = (),
    jobs: Sequence[Job] = (),
    **allocation: Any,
) -> NodeFacts:
    """A node with one GPU, as sessions and scheduler have told of it."""
    found = NodeFacts(Node(name="n1", scheduler=scheduler, group="pool"))
    found.apply(NodeStatus(node="n1", at=1.0, state=session))
    found.apply(Sample(node="n1", probe="inventory", at=1.0, values={"driver_version": "1"}))
    found.apply(Sample(node="n1", probe="inventory", device="0000:1b:00.0", at=1.0))
    if processes is not None:
        rows: list[Any] = [{"command": name} for name in processes]
        found.apply(Sample(node="n1", probe="processes", at=1.0, rows=rows))
    if state:
        found.apply(
            Allocation(
                node="n1", at=1.0, scheduler="slurm", state=state, jobs=tuple(jobs), **allocation
            )
        )
    return found


OURS: dict[str, Any] = {"reason": "gpuconsole: slow"}
THEIRS: dict[str, Any] = {"reason": "RMA", "reason_by": "dcops"}


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (facts(), ""),
        (facts("drained", **OURS), ""),
        (facts("", scheduler=None), ""),
        (facts("allocated", jobs=[Job(id="7", user="lin")]), "job 7 lin"),
        (facts("mixed", raw="MIXED"), "MIXED"),
        (facts("draining", jobs=[Job(id="7")], **OURS), "job 7"),
        (facts("drained", **THEIRS), "drained by dcops"),
        (facts("reserved"), "--reservation"),
        (facts("maintenance"), "maintenance"),
        (facts("down"), "down"),
        (facts("unknown"), "unknown"),
        (facts(""), "not read yet"),
        (facts(processes=["python"]), "python on its GPUs"),
        (facts(processes=None), "not read yet"),
        (facts(session=NodeState.UNREACHABLE), "no live session"),
    ],
)
def test_only_idle_nodes_and_our_own_may_be_tested(node: NodeFacts, why: str) -> None:
    refused = safety.judge(node, IDLE).refused
    assert (why in refused) if why else refused == ""


def test_a_scheduler_that_cannot_be_asked_clears_nobody() -> None:
    claim = safety.Claim(errors={"slurm": "no answer"})
    assert "no answer" in safety.judge(facts(), claim).refused


def test_what_a_forced_test_disturbs_is_named() -> None:
    for node in (facts("allocated", jobs=[Job(id="7")]), facts("drained", **THEIRS)):
        answer = safety.judge(node, OWNED)
        assert answer.refused == ""
        assert answer.disturbs
    assert safety.judge(facts(), OWNED).disturbs == ""
    assert safety.judge(facts(processes=None), OWNED).waits, "what it disturbs is worth a moment"
    assert safety.judge(facts(session=NodeState.UNREACHABLE), OWNED).refused


def test_the_named_reservation_is_ours() -> None:
    claim = safety.Claim(reserved=frozenset({"n1"}))
    answer = safety.judge(facts("reserved"), claim)
    assert (answer.refused, answer.counted) == ("", False)
    assert "job 7" in safety.judge(facts("reserved", jobs=[Job(id="7")]), claim).refused


def test_slurm_starts_nothing_on_a_drained_node() -> None:
    claim = safety.Claim(sessions=False, keeps_slurm=True)
    assert "--launch ssh" in safety.judge(facts("drained", **OURS), claim).refused
    assert safety.judge(facts(session=NodeState.PENDING), claim).refused == ""


def test_only_nodes_in_service_count() -> None:
    assert safety.judge(facts(), IDLE).counted
    assert not safety.judge(facts("drained", **OURS), IDLE).counted
    assert not safety.judge(facts(), OWNED).counted


def test_our_own_job_is_no_busy_node() -> None:
    asked = Asked(nodes=("n1",), level=Level.PAIRS, launch="srun")
    claim = safety.claim_of(asked, (), {}, "20261129T235900Z-pairs")
    ours = [Job(id="9", name="gpuconsole-20261129T235900Z-pairs-1")]
    assert safety.ending(facts("allocated", jobs=ours).allocation, claim.jobs)
    assert safety.judge(facts("allocated", jobs=ours), claim).refused == ""
    other = [*ours, Job(id="7", name="gpuconsole-20261129T235901Z-pairs-1")]
    assert not safety.ending(facts("allocated", jobs=other).allocation, claim.jobs)
    assert "job 7" in safety.judge(facts("allocated", jobs=other), claim).refused
    assert "job 9" in safety.judge(facts("allocated", jobs=ours), IDLE).refused


@st.composite
def rounds(draw: st.DrawFn) -> tuple[list[Group], set[str], dict[str, str], dict[str, int]]:
    """Disjoint groups of one or two nodes, who counts, the pool of each, the caps."""
    count = draw(st.integers(1, 24))
    names = [f"n{i}" for i in range(count)]
    pool = {name: draw(st.sampled_from("ab")) for name in names}
    # Others of the inventory are in the pools, too: the caps follow from all of them.
    others = [f"m{i}" for i in range(draw(st.integers(0, 40)))]
    nodes = [Node(name=n, group=pool.get(n, "a")) for n in (*names, *others)]
    counted = set(draw(st.lists(st.sampled_from(names), unique=True)))
    groups, left = [], list(names)
    while left:
        size = min(draw(st.integers(1, 2)), len(left))
        groups.append(Group(nodes=tuple(left[:size])))
        left = left[size:]
    return groups, counted, pool, safety.pools(nodes)


@given(rounds())
def test_never_more_than_the_cap_at_once_and_all_are_covered(
    case: tuple[list[Group], set[str], dict[str, str], dict[str, int]],
) -> None:
    groups, counted, pool, caps = case
    parts, too_large = safety.batches(groups, counted, pool.__getitem__, caps)
    assert too_large == []
    assert sorted(g.nodes for part in parts for g in part) == sorted(g.nodes for g in groups)
    for part in parts:
        names = [name for group in part for name in group.nodes]
        assert len(set(names)) == len(names)
        for key in "ab":
            use = sum(name in counted and pool[name] == key for name in names)
            assert use <= caps.get(key, 0) or (len(part) == 1 and len(names) <= safety.SMALLEST)


def test_nodes_out_of_service_run_side_by_side() -> None:
    groups = [Group(nodes=(f"n{i}", f"n{i + 1}")) for i in range(0, 16, 2)]
    parts, _ = safety.batches(groups, (), lambda name: "a", {"a": 3})
    assert len(parts) == 1
    counted = {f"n{i}" for i in range(16)}
    assert len(safety.batches(groups, counted, lambda name: "a", {"a": 3})[0]) == 8
    assert len(safety.batches(groups, counted, lambda name: "a", {"a": 4})[0]) == 4


def test_a_group_above_the_cap_is_not_run() -> None:
    whole = Group(nodes=tuple(f"n{i}" for i in range(8)))
    assert safety.batches([whole], whole.nodes, lambda name: "a", {"a": 7}) == ([], [whole])
    assert safety.batches([whole], whole.nodes[:7], lambda name: "a", {"a": 7}) == ([[whole]], [])


def mute(**inventory: Any) -> NodeFacts:
    """A busy node whose GPUs nobody has named."""
    found = NodeFacts(Node(name="n1", scheduler="slurm", group="pool"))
    found.apply(NodeStatus(node="n1", at=1.0, state=NodeState.UP))
    found.apply(Allocation(node="n1", at=1.0, scheduler="slurm", state="allocated"))
    if inventory:
        found.apply(Sample(node="n1", probe="inventory", at=1.0, values=inventory))
    return found


def test_force_does_not_test_gpus_that_nobody_counted() -> None:
    """Round 1 of a forced campaign ran one rank a node, as no GPU had been read yet."""
    before = safety.judge(mute(), OWNED)
    assert before.refused
    assert before.waits, "a busy node's inventory is waited for, too"
    stuck = safety.judge(mute(pci_gpu_count=8), OWNED)
    assert "none of its 8 GPUs" in stuck.refused
    assert not safety.judge(mute(pci_gpu_count=0), OWNED).refused, "it is known to have none"


@pytest.mark.parametrize(
    ("driver", "waits"),
    [({}, True), ({"gpu_count": 8}, True), ({"gpu_count": 0}, False), ({"nvml_rc": 999}, False)],
)
def test_a_slow_driver_is_waited_for_and_a_refusing_one_is_not(
    driver: Mapping[str, int], waits: bool
) -> None:
    node = NodeFacts(Node(name="n1", scheduler=None, group="pool"))
    node.apply(NodeStatus(node="n1", at=1.0, state=NodeState.UP))
    told: dict[str, Any] = {"pci_gpu_count": 8, "nvml_library": True, **driver}
    node.apply(Sample(node="n1", probe="inventory", at=1.0, values=told))
    why = safety.judge(node, OWNED).refused
    assert "8 GPUs" in why
    assert why.endswith(safety.NOT_YET) == waits
