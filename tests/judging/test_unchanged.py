"""Skipping checks for which nothing changed never changes what is found."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec import structs

from inventory.scheduler import Allocation, Job
from probes.checks import Peers, Quiet, judge, peers
from probes.event import Finding, NodeState
from probes.rule import Look
from tests.judging.build import IB, NOW, RULES, SLOTS, Built, fleet

STEPS = 60
WORDS = ("down", "failed", "", "4 LinkErrorRecovery", "x", "Ethernet")


class Twice:
    """One node judged at every step with and without the memory."""

    def __init__(self) -> None:
        self.node, *self.others = fleet(4)
        self.quiet = Quiet()
        self.now = NOW
        self.role = self.majority()

    def majority(self) -> Peers:
        return peers(built.facts for built in (self.node, *self.others))[self.node.facts.node.role]

    def look(self) -> list[Finding]:
        kept = judge(self.node.facts, self.role, RULES, self.now, self.quiet)
        assert kept == judge(self.node.facts, self.role, RULES, self.now)
        return kept


@pytest.fixture
def twice() -> Twice:
    made = Twice()
    assert {f.rule for f in made.look()} == {f.rule for f in made.look()}
    return made


@pytest.mark.parametrize("seed", range(12))
def test_whatever_changes_both_find_the_same(twice: Twice, seed: int) -> None:
    rng = random.Random(seed)
    found = 0
    for _ in range(STEPS):
        twice.node.clock += 2.0
        twice.now += 2.0
        _change(twice, rng)
        found += len(twice.look())
    assert found > STEPS / 2  # else nothing was broken and this test would prove little


def _change(twice: Twice, rng: random.Random) -> None:
    """One thing happens to the node, of those that a Fleet hears of."""
    node = twice.node
    kind = rng.randrange(9)
    if kind < 4:
        probe, device = rng.choice([key for key in node.facts.latest if key[0] != "hello"])
        names = list(node.facts.latest[probe, device].values)
        told: dict[str, Any] = {rng.choice(names): _value(rng) for _ in range(3)} if names else {}
        node.change(probe, device, **told)
    elif kind == 4:
        state = rng.choice((NodeState.HUNG, NodeState.DEGRADED, NodeState.UP))
        probe = rng.choice(("gpu", "infiniband", "storage", "disks", "timesync", "kernel_log"))
        node.status(state, probe=probe, device=rng.choice(("", SLOTS[0], "/home")), since_s=20.0)
    elif kind == 5:
        node.put(rng.choice(("gpu", "inventory")), rng.choice(SLOTS), gone=True)
    elif kind == 6:
        node.kernel("NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.", ago_s=1.0)
    elif kind == 7:
        node.facts.apply(_allocation(twice.now, str(rng.randrange(3))))
    else:
        rng.choice(twice.others).change("infiniband", rng.choice(IB), state=1)
        twice.role = twice.majority()


def _allocation(at: float = NOW, job: str = "1") -> Allocation:
    jobs = (Job(id=job, user="u", name="n"),)
    return Allocation(node="gpu001", at=at, scheduler="slurm", state="allocated", jobs=jobs)


def _value(rng: random.Random) -> float | bool | str:
    numbers = (0, 1, 4, 98, 15, 79.0, 1 << 40, -1, True, False)
    return rng.choice(numbers) if rng.random() < 0.8 else rng.choice(WORDS)


def test_what_reads_only_what_did_not_change_is_not_run_again(twice: Twice) -> None:
    ran: list[str] = []

    def slow(look: Look) -> Iterator[Finding]:
        ran.append("slow")
        for _device, _sample in look.facts.devices("infiniband"):
            look.facts.rates.get(("infiniband", _device))
        yield from ()

    def one(look: Look) -> Iterator[Finding]:
        ran.append("one")
        look.facts.value("gpu", SLOTS[0], "power_limit_w")
        yield from ()

    def timed(look: Look) -> Iterator[Finding]:
        ran.append("timed")
        assert look.now
        yield from ()

    def role(look: Look) -> Iterator[Finding]:
        ran.append("role")
        assert look.peers.nodes
        yield from ()

    checks, quiet = (slow, one, timed, role), Quiet()

    def runs() -> list[str]:
        ran.clear()
        quiet.run(checks, Look(twice.node.facts, twice.role, RULES, NOW))
        return list(ran)

    assert runs() == ["slow", "one", "timed", "role"]
    twice.node.change("gpu", SLOTS[0], after_s=2.0, temp_c=61)
    assert runs() == ["timed"]
    twice.node.change("gpu", SLOTS[0], after_s=2.0, power_limit_w=500.0)
    assert runs() == ["one", "timed"]
    twice.node.change("infiniband", IB[0], after_s=2.0)
    assert runs() == ["slow", "timed"]
    twice.role = structs.replace(twice.role, nodes=3)
    assert runs() == ["timed", "role"]
    twice.node.put("hello", "", python="3.9", uid=0, boot_id="b2", wall_skew_s=0.1)
    assert runs() == ["slow", "one", "timed", "role"]


def test_a_finding_that_lasts_is_found_each_time_with_the_time(twice: Twice) -> None:
    twice.node.change("pcie", SLOTS[3], after_s=30.0, width=8)
    first = [f.since for f in twice.look() if f.rule == "pcie.width"]
    twice.now += 2.0
    assert [f.since for f in twice.look() if f.rule == "pcie.width"] == [first[0] + 2.0]


def test_kernel_lines_grow_old_without_any_news(twice: Twice) -> None:
    twice.node.kernel("NVRM: Xid (PCI:0000:1b:00): 31, pid=7, name=x, MMU Fault", ago_s=1.0)
    assert twice.look()
    for _ in range(30):
        twice.now += 3600.0
        twice.look()


@pytest.mark.parametrize(
    ("topic", "event"),
    [
        ("gone", lambda node: node.put("pcie", SLOTS[1], gone=True)),
        ("gone", lambda node: node.put("gpu", SLOTS[7])),
        ("hung", lambda node: node.status(NodeState.HUNG, probe="gpu", device=SLOTS[0])),
        ("troubles", lambda node: node.status(NodeState.DEGRADED, probe="dns", text="x")),
        ("troubles", lambda node: node.put("ecc", SLOTS[2])),
        ("allocation", lambda node: node.facts.apply(_allocation())),
        ("used_ports", lambda node: node.change("infiniband", IB[0], rate_gbps=800.0)),
        ("rates", lambda node: node.change("ecc", SLOTS[0], after_s=30.0)),
    ],
)
def test_each_part_of_the_facts_is_read_anew_when_it_changes(
    topic: str, event: Callable[[Built], None]
) -> None:
    node = fleet(1)[0]
    node.put("gpu", SLOTS[7], gone=True)
    node.status(NodeState.DEGRADED, probe="ecc", text="x")
    ran: list[str] = []

    def check(look: Look) -> Iterator[Finding]:
        ran.append(topic)
        told = getattr(look.facts, topic)
        if topic == "rates":
            told.get(("ecc", SLOTS[0]))
        yield from ()

    quiet, role = Quiet(), peers([node.facts])["compute"]
    for _ in range(2):
        quiet.run((check,), Look(node.facts, role, RULES, NOW))
    assert ran == [topic]
    event(node)
    quiet.run((check,), Look(node.facts, role, RULES, NOW))
    assert ran == [topic, topic]


def test_a_gpu_that_gets_another_index_is_named_anew() -> None:
    node = fleet(1)[0]
    names: list[str] = []

    def check(look: Look) -> Iterator[Finding]:
        names.append(look.facts.gpu_label(SLOTS[4]))
        yield from ()

    quiet, role = Quiet(), peers([node.facts])["compute"]
    for index in (4, 4, 3):
        node.change("gpu", SLOTS[4], after_s=2.0, index=index)
        quiet.run((check,), Look(node.facts, role, RULES, NOW))
    assert names == ["GPU4", "GPU3"]


def test_a_check_that_raised_is_run_again_and_so_is_what_came_after_it(twice: Twice) -> None:
    broken, ran = [True], []

    def fragile(look: Look) -> Iterator[Finding]:
        if broken and len(list(look.facts.devices("pcie"))) == len(SLOTS):
            raise ValueError("not today")
        yield from ()

    def after(look: Look) -> Iterator[Finding]:
        ran.append(look.facts.value("ecc", SLOTS[0], "ecc_mode"))
        yield from ()

    quiet, facts = Quiet(), twice.node.facts

    def judged() -> None:
        quiet.run((fragile, after), Look(facts, twice.role, RULES, NOW))

    for _ in range(2):
        with pytest.raises(ValueError, match="not today"):
            judged()
    assert not ran
    twice.node.change("ecc", SLOTS[0], after_s=30.0, ecc_mode=False)
    broken.clear()
    judged()
    judged()
    assert ran == [False]
