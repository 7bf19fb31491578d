"""Automatic drains never exceed the policy's caps, also while others drain at the same time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console import headless_auto, policy
from console.engine import Engine
from console.plan_notes import OUT_OF_WORK
from console.policy import Automatic
from console.settings import Settings
from inventory.errors import UsageError
from inventory.hook import HookScheduler
from inventory.node import Hook, Inventory, Node
from inventory.run import LocalRun
from inventory.scheduler import STATES, Allocation
from probes.event import Action, Finding, NodeState, NodeStatus, Severity

NAMES = [f"n{number}" for number in range(1, 21)]


def engine(*, names: list[str], hook: Hook | None = None) -> Engine:
    nodes = tuple(Node(name=name, scheduler="hook") for name in names)
    found = {} if hook is None else {"hook": HookScheduler(LocalRun(), hook, names)}
    return Engine(Inventory(nodes=nodes, source="test"), Settings(), schedulers=found)


allocations = st.builds(
    Allocation,
    node=st.just(""),
    at=st.just(0.0),
    scheduler=st.just("hook"),
    state=st.sampled_from(STATES),
    reason=st.sampled_from(["", "gpuconsole: xid 79", "bad DIMM"]),
    reason_at=st.none() | st.floats(-7200, 7200).map(lambda ago: time.time() + ago),
)


@given(
    st.lists(allocations, min_size=1, max_size=20),
    st.integers(1, 10),
    st.floats(0.0, 0.5, exclude_min=True),
)
def test_room_and_recent_drains_stay_within_both_caps(
    told: list[Allocation], most: int, share: float
) -> None:
    made = engine(names=NAMES[: len(told)])
    for name, one in zip(NAMES, told, strict=False):
        made.feed(
            Allocation(**{f: getattr(one, f) for f in one.__struct_fields__} | {"node": name})
        )
    room = headless_auto._room(made, Automatic(max_nodes=most, max_share=share))
    out = [a for a in told if a.state in OUT_OF_WORK and a.reason.startswith("gpuconsole:")]
    recent = sum(a.reason_at is None or time.time() - a.reason_at < 3600 for a in out)
    in_work = sum(a.state not in (*OUT_OF_WORK, "unknown") for a in told)
    assert room >= 0
    if room:
        assert recent + room <= most
        assert recent + room <= share * (in_work + recent)


@pytest.fixture
def crowded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """Twenty nodes; with the first drain of ours another console drains n20 too."""
    monkeypatch.setattr(policy, "SITE_FILE", tmp_path / "none.yaml")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    state = (
        'for n; do if [ -s "$0/$n" ]; then echo "$n drained $(cat "$0/$n")"; '
        'else echo "$n idle"; fi; done'
    )
    drain = 'echo "$2" > "$0/$1"; echo "gpuconsole: theirs" > "$0/n20"'
    hook = Hook(
        state=("/bin/sh", "-c", state, str(tmp_path), "{nodes}"),
        drain=("/bin/sh", "-c", drain, str(tmp_path), "{node}", "{reason}"),
        resume=("/bin/true", "{node}"),
    )
    made = engine(names=NAMES, hook=hook)
    for name in NAMES:
        made.feed(NodeStatus(node=name, at=1.0, state=NodeState.UNREACHABLE))
    return made


async def test_room_is_looked_at_before_each_drain(crowded: Engine, tmp_path: Path) -> None:
    await crowded.read_schedulers()
    for name in ("n1", "n2"):
        crowded.fleet.findings[name] = [
            Finding(rule="gpu.lost", severity=Severity.CRITICAL, node=name, say="lost", hard=True,
                    action=Action.DRAIN)
        ]  # fmt: skip
    limits = Automatic(max_nodes=2, max_share=0.5)
    did = await headless_auto.drain_sick(crowded, limits, dry_run=False)
    assert did.drained == ["n1"]
    assert "no room left" in did.refused["n2"]
    assert not (tmp_path / "n2").exists()


async def test_a_hook_that_never_tells_when_fills_the_cap_once(
    crowded: Engine, tmp_path: Path
) -> None:
    """Run after run cron would otherwise take the whole pool, two nodes at a time."""
    (tmp_path / "n18").write_text("gpuconsole: auto: lost")
    (tmp_path / "n19").write_text("gpuconsole: auto: lost")
    await crowded.read_schedulers()
    assert headless_auto._room(crowded, Automatic(max_nodes=2, max_share=0.5)) == 0


def sick(made: Engine, *names: str) -> None:
    for name in names:
        made.fleet.findings[name] = [
            Finding(rule="gpu.lost", severity=Severity.CRITICAL, node=name, say="lost", hard=True,
                    action=Action.DRAIN)
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("share", "names", "says", "not_says"),
    [
        (0.01, ["n1"], "less than one node", "common cause"),
        (0.5, ["n1", "n2", "n3"], "common cause", "less than one node"),
    ],
)
async def test_why_there_is_no_room(
    crowded: Engine, share: float, names: list[str], says: str, not_says: str
) -> None:
    await crowded.read_schedulers()
    sick(crowded, *names)
    limits = Automatic(max_nodes=2, max_share=share)
    did = await headless_auto.drain_sick(crowded, limits, dry_run=True)
    assert did.drained == []
    assert says in did.summary
    assert not_says not in did.summary


@pytest.mark.parametrize("pattern", ["gpu.lots", "xid.7777", "ibs.*"])
def test_a_rule_that_does_not_exist_would_never_drain(pattern: str) -> None:
    limits = Automatic(max_nodes=2, max_share=0.5, rules=("gpu.lost", pattern))
    with pytest.raises(UsageError, match="no rule is called"):
        headless_auto.caps(policy.Policy(path="policy.yaml", automatic=limits))


@pytest.mark.parametrize("pattern", ["*", "gpu.*", "xid.*", "xid.79", "sxid.*"])
def test_rules_that_exist_are_taken(pattern: str) -> None:
    limits = Automatic(max_nodes=2, max_share=0.5, rules=(pattern,))
    assert headless_auto.caps(policy.Policy(automatic=limits)) is limits
