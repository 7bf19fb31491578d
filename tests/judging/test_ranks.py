"""Which rank holds a job up, and when that cannot be told: from NCCL's answers to findings."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.event import Action, Finding, Row, Sample, Severity
from probes.jobs_seen import Jobs
from probes.node.ras_read import Reader
from probes.node.ras_rows import rows
from probes.ranks import COMMS_MOST, VIEWS, Polls
from probes.ranks_motion import Limits, Motion, Verdict, verdicts
from tests.judging.build import NOW, RULES, SLOTS, Built
from tests.ras_port import comm, missing, rank, status

LIMITS = Limits.of(RULES)
EVERY_S = 12.0
SPIN: dict[str, Any] = {"util_percent": 100, "power_w": 150.0}


def host(node: int) -> str:
    return f"10.7.0.{node + 1}"


def name(node: int) -> str:
    return f"gpu{node + 1:03}"


class Job:
    """A job on some nodes, eight ranks each, whose RAS port is asked by the first of them."""

    def __init__(self, nodes: int = 4, job: str = "48211") -> None:
        self.nodes, self.job, self.size = nodes, job, nodes * 8
        self.jobs = Jobs()
        self.built = [Built(name(node)) for node in range(nodes)]
        self.at = NOW
        for node in range(nodes):
            self.processes(node)

    def processes(self, node: int, **first: Any) -> None:
        """The processes NVML lists; `first` changes the one on GPU0."""
        found: list[Row] = [
            {"gpu": slot, "pid": 4000 + at, "job": self.job, "command": "python3 train.py",
             "state": "R", "alive": True}
            for at, slot in enumerate(SLOTS)
        ]  # fmt: skip
        found[0].update(first)
        self.built[node].put("processes", "", rows=found)

    def gpus(self, **values: Any) -> None:
        """All GPUs of the job show this."""
        for built in self.built:
            for slot in SLOTS:
                built.change("gpu", slot, **values)

    def ranks(self, counts: Sequence[int]) -> list[dict[str, Any]]:
        return [rank(index, count, host=host(index // 8)) for index, count in enumerate(counts)]

    def poll(self, answer: bytes, asker: int = 0, after_s: float = EVERY_S) -> None:
        """A node asks the port."""
        self.at += after_s
        reader = Reader()
        reader.feed(answer)
        reader.end()
        told = rows(reader.comms, {host(asker)}, {})
        extra = {"took_s": reader.took_s or 0.0, **({"job": self.job} if self.job else {})}
        told = [{**row, **extra} if row["kind"] == "comm" else row for row in told]
        for node in range(self.nodes):
            self.sample(node, told if node == asker else [])

    def sample(self, node: int, told: list[dict[str, Any]]) -> None:
        self.jobs.add(
            Sample(node=name(node), probe="ras", at=self.at,
                   rows=[{"kind": "address", "host": host(node)}, *told])
        )  # fmt: skip

    def counts(self, counts: Sequence[int], **how: Any) -> None:
        self.poll(status(comm(self.ranks(counts))), **how)

    def verdict(self) -> Verdict:
        (one,) = verdicts(self.jobs.polls, LIMITS, self.at)
        return one

    def findings(self) -> list[Finding]:
        facts = tuple(built.facts for built in self.built)
        found = [f for f in self.jobs.in_steps(facts, RULES, self.at) if f is not None]
        return [f for f in found if f.rule.startswith("job.")]


def late(job: Job, looks: int, ranks: Sequence[int] = (17,), lag: int = 1) -> None:
    """A job that moves and waits for these ranks whenever somebody looks."""
    for look in range(1, looks + 1):
        job.counts([look * 60 - lag * (index in ranks) for index in range(job.size)])


def stand(job: Job, looks: int, ranks: Sequence[int] = (17,), lag: int = 1) -> None:
    for _ in range(looks):
        job.counts([9000 - lag * (index in ranks) for index in range(job.size)])


# ------------------------------------------------------------------ a late rank


def test_a_late_rank_is_named_with_node_gpu_and_process() -> None:
    job = Job()
    job.gpus(**SPIN)
    late(job, 8)
    (found,) = job.findings()
    assert (found.rule, found.node, found.severity) == ("job.late_rank", "gpu003", Severity.WARN)
    assert (found.device, found.label) == (SLOTS[1], "GPU1")
    assert "job 48211 waits for rank 17 (gpu003 GPU1, pid 4001): behind in 8 of 8" in found.say
    evidence = "\n".join(found.evidence)
    assert "not these nodes, they wait: gpu001, gpu002, gpu004" in evidence
    assert "1 of 32 ranks are below 482 collectives, the lowest at 481, 5 collectives/s" in evidence
    assert found.action is Action.WATCH
    assert "py-spy dump --nonblocking --pid 4001 twice" in found.next_step
    assert "gpuconsole test gpu003" in found.next_step


def test_where_the_gpus_do_not_wait_it_is_information() -> None:
    job = Job()
    late(job, 8)
    (found,) = job.findings()
    assert found.severity is Severity.INFO
    assert "it may cost the job nothing" in found.evidence[-1]


def test_the_length_of_a_step_is_told_as_an_estimate() -> None:
    power = [650.0 if at % 8 < 6 else 250.0 for at in range(60)]
    job = Job()
    means = [(now + before) / 2 for before, now in pairwise([power[-1], *power])]
    job.jobs = Jobs(lambda _, __, metric: {"power_w": power, "mean_w": means}.get(metric, ()))
    job.built[0].change("gpu", SLOTS[0], after_s=2.0, thermal_hw_ns=1)
    late(job, 8)
    (found,) = job.findings()
    assert any("take 16 s: estimate from the power of gpu001 GPU0" in e for e in found.evidence)


def test_three_looks_are_no_proof_among_few_ranks() -> None:
    job = Job(nodes=1)
    late(job, 3, ranks=(3,))
    assert job.verdict().motion is Motion.MOVES
    late(job, 9, ranks=(3,))
    job = Job(nodes=1)
    late(job, 9, ranks=(3,))
    assert job.verdict().motion is Motion.LATE


def test_ranks_that_are_behind_in_turn_are_fine() -> None:
    job, rng = Job(), random.Random(4)
    for look in range(1, 60):
        behind = rng.sample(range(job.size), 6)
        job.counts([look * 60 - (index in behind) for index in range(job.size)])
        assert job.verdict().motion in (Motion.MOVES, Motion.UNKNOWN)


def test_what_the_time_between_two_answers_explains_is_not_late() -> None:
    """A thousand collectives a second: who is asked a millisecond earlier is always behind."""
    job = Job()
    for look in range(1, 12):
        counts = [look * 12000 - (index == 0) for index in range(job.size)]
        job.poll(status(comm(job.ranks(counts)), took_s=0.004))
    assert job.verdict().motion is Motion.MOVES
    assert job.findings() == []


def test_a_whole_node_is_one_finding() -> None:
    job = Job()
    job.gpus(**SPIN)
    late(job, 16, ranks=range(8, 16))
    (found,) = job.findings()
    assert (found.node, found.device) == ("gpu002", "")
    assert "ranks 8, 9, 10, 11 and 4 more (gpu002)" in found.say


def test_half_of_the_ranks_are_no_late_ranks() -> None:
    job = Job()
    late(job, 12, ranks=range(16))
    assert job.findings() == []


def test_looks_of_several_nodes_count_together_and_only_so_often() -> None:
    job = Job()
    for look in range(1, 21):
        counts = [look * 15 - (index == 17) for index in range(job.size)]
        job.counts(counts, asker=look % 4, after_s=3.0)
    (history,) = job.jobs.polls.comms.values()
    assert len(history.spaced(8.0, 12, 300.0)) == 7
    assert job.verdict().motion is Motion.LATE


# ------------------------------------------------------------------ a job that stands


def test_a_job_that_stands_names_the_lowest_rank_and_clears_the_others() -> None:
    job = Job()
    job.gpus(**SPIN)
    stand(job, 8)
    assert job.findings() == [], "96 s are no hang"
    stand(job, 4)
    (found,) = job.findings()
    assert (found.rule, found.node, found.label) == ("job.hang", "gpu003", "GPU1")
    assert found.severity is Severity.WARN, "the program may be at work on its own"
    assert found.say == (
        "job 48211 stands for 132 s: rank 17 (gpu003 GPU1, pid 4001) is 1 behind; the others "
        "wait for it"
    )
    assert any("not these nodes, they wait: gpu001, gpu002, gpu004" in e for e in found.evidence)
    assert any("32 of 32 GPUs of the job at full utilisation" in e for e in found.evidence)
    assert found.action is Action.RESTART_APP


def test_ten_minutes_are_critical_in_any_case() -> None:
    job = Job()
    stand(job, 52)
    (found,) = job.findings()
    assert found.severity is Severity.CRITICAL


@pytest.mark.parametrize(
    ("process", "words"),
    [
        (
            {"state": "D", "wchan": "nfs_wait_bit_killable", "still_s": 131.0},
            "state D, in nfs_wait_bit_killable, has not run for 131 s",
        ),
        ({"state": "S", "still_s": 131.0}, "has not run for 131 s"),
        ({"state": "T"}, "state T"),
    ],
)
def test_a_suspect_that_does_not_run_is_critical_after_two_minutes(
    process: dict[str, Any], words: str
) -> None:
    job = Job()
    job.processes(2, **process)
    stand(job, 12, ranks=(16,))
    (found,) = job.findings()
    assert (found.node, found.severity) == ("gpu003", Severity.CRITICAL)
    assert any(words in line for line in found.evidence)


@pytest.mark.parametrize(
    ("state", "does"), [("D", "reads or writes, and goes on"), ("R", "runs on the CPU")]
)
def test_a_checkpoint_of_five_minutes_is_no_hang_for_sure(state: str, does: str) -> None:
    """Rank 0 writes, the others wait for it in a barrier: told, and never critical."""
    job = Job()
    job.gpus(**SPIN)
    job.processes(0, state=state)
    stand(job, 25, ranks=(0,))
    (found,) = job.findings()
    assert (found.node, found.severity) == ("gpu001", Severity.WARN)
    assert f"its process {does}" in found.evidence
    assert "checkpoint" in found.cause


@pytest.mark.parametrize("asker", [0, 1])
def test_a_job_that_is_over_stands_not(asker: int) -> None:
    """Its last answer is still fresh, its processes are gone."""
    job = Job()
    for _ in range(60):
        job.counts([9000 - (index == 17) for index in range(32)], asker=asker)
    assert len(job.findings()) == 1
    for built in job.built:
        built.put("processes", "", rows=[])
    assert job.findings() == []


def test_most_ranks_left_and_nobody_waits_for_them() -> None:
    """Rank 0 uploads its results; the others have ended."""
    job = Job()
    job.gpus(util_percent=0, power_w=70.0)
    lost = [missing(index, dead=True, host=host(index // 8)) for index in range(1, 32)]
    for _ in range(12):
        job.poll(status(comm(job.ranks([9000]), lost)))
    assert job.findings() == []
    job.gpus(**SPIN)
    assert len(job.findings()) > 0, "here they wait"


def test_counts_that_cannot_be_read_are_no_counts() -> None:
    job = Job()
    job.gpus(**SPIN)
    for lie in (-5, 1.5, "many", 10**40, None):
        ranks = job.ranks([9000] * 32)
        for one in ranks:
            one["collective_counts"]["AllReduce"] = lie
        for _ in range(12):
            job.poll(status(comm(ranks)))
        assert job.findings() == []


def test_a_job_that_names_new_communicators_each_time_pushes_out_its_own_only() -> None:
    job, polls = Job(), Polls()
    for look in range(120):
        job.at += EVERY_S
        for node, names in ((0, ["same"]), (1, [f"{look}-{at}" for at in range(48)])):
            told: list[Row] = [
                {"kind": "comm", "comm": one, "size": 8, "seen": 8, "mid": look, "low": look,
                 "high": look, "job": str(node)} for one in names
            ]  # fmt: skip
            polls.add(Sample(node=name(node), probe="ras", at=job.at, rows=told))
    assert len(polls.comms) <= COMMS_MOST
    assert polls.comms["same"].last.mid == 119
    assert len(polls.comms["same"].views) == VIEWS


def test_a_dead_rank_is_named() -> None:
    job = Job()
    ranks = [one for one in job.ranks([9000] * 32) if one["rank"] != 17]
    lost = missing(17, dead=True, host=host(2))
    for _ in range(12):
        job.poll(status(comm(ranks, [lost])))
    (found,) = job.findings()
    assert (found.node, found.severity) == ("gpu003", Severity.CRITICAL)
    assert "rank 17 (gpu003 GPU1, pid 4001) is dead, says NCCL" in found.say
    assert "seen 31 of 32 ranks" in found.evidence


def test_an_error_comes_before_the_lowest_count() -> None:
    job = Job()
    ranks = job.ranks([9000 - (index == 3) for index in range(32)])
    ranks[17]["status"]["async_error"] = 6
    for _ in range(12):
        job.poll(status(comm(ranks)))
    (found,) = job.findings()
    assert (found.node, found.severity) == ("gpu003", Severity.CRITICAL)
    assert "reported an error (ncclResult 6)" in found.say


def test_all_equal_and_spinning_is_a_hang_without_suspects() -> None:
    job = Job()
    job.gpus(**SPIN)
    stand(job, 12, ranks=())
    (found,) = job.findings()
    assert (found.rule, found.node, found.device) == ("job.hang", "gpu001", "")
    assert "all ranks have launched the same collectives and none goes on" in found.say
    assert "link" in found.next_step


def test_all_equal_and_at_work_or_idle_cannot_be_told() -> None:
    job = Job()
    stand(job, 60, ranks=())
    assert job.verdict().motion is Motion.SILENT
    assert job.findings() == [], "full power: it computes"
    job.gpus(util_percent=0, power_w=70.0)
    assert job.findings() == [], "idle: it loads or waits for its owner"


def test_traffic_says_that_it_does_not_stand() -> None:
    job = Job()
    job.gpus(**SPIN)
    for number in range(8):
        port = f"mlx5_{number}/1"
        job.built[1].change("infiniband", port, port_xmit_data=0)
        job.built[1].change("infiniband", port, after_s=10.0, port_xmit_data=10**9)
    stand(job, 12)
    assert job.findings() == []


def test_one_communicator_that_moves_is_a_job_that_moves() -> None:
    job = Job()
    job.gpus(**SPIN)
    for look in range(1, 30):
        world, other = job.ranks([3] * 31 + [2]), job.ranks([look * 9] * 8)
        job.poll(status(comm(world), comm(other, name="aa")))
    assert job.verdict().motion is Motion.MOVES
    assert job.findings() == []


def test_ranks_that_disagree_by_halves_are_nobodys_fault() -> None:
    job = Job()
    stand(job, 60, ranks=range(0, 32, 2))
    (found,) = job.findings()
    assert found.node == "gpu001"
    assert "16 of 32 ranks are behind the others" in found.say


def test_a_job_that_ends_hangs_not() -> None:
    job = Job()
    ranks = job.ranks([9000 - (index == 3) for index in range(32)])
    ranks[5]["status"]["finalize_called"] = True
    for _ in range(60):
        job.poll(status(comm(ranks)))
    assert job.verdict().motion is Motion.UNKNOWN
    assert job.findings() == []


def test_an_old_answer_says_nothing() -> None:
    job = Job()
    stand(job, 60)
    job.at += 120.0
    assert verdicts(job.jobs.polls, LIMITS, job.at) == []
    assert job.findings() == []


def test_a_suspect_outside_the_inventory_stands_at_the_node_that_asked() -> None:
    job = Job(nodes=2)
    ranks = [*job.ranks([9000] * 16), rank(16, 8000, host="10.9.9.9")]
    for _ in range(60):
        job.poll(status(comm(ranks)))
    (found,) = job.findings()
    assert found.node == "gpu001"
    assert "rank 16 (10.9.9.9, not in this inventory GPU0" in found.say


def test_an_address_that_many_nodes_have_names_none() -> None:
    polls = Polls()
    for node in ("a", "b"):
        polls.add(
            Sample(node=node, probe="ras", at=NOW, rows=[{"kind": "address", "host": "172.17.0.1"}])
        )
    job = Job()
    stand(job, 1)
    view = next(iter(job.jobs.polls.comms.values())).last
    bridge = next(one for one in view.ranks if one.rank == 17)
    assert job.jobs.polls.node_of(bridge) == "gpu003"
    from msgspec import structs

    assert polls.node_of(structs.replace(bridge, host="172.17.0.1")) == ""


def test_text_answers_are_judged_by_what_they_tell() -> None:
    text = (
        "NCCL version 2.26.2 compiled with CUDA 12.8\n\nCommunicators... (0.00s)\n=============\n\n"
        "    0         1         4         8        32        32   RUNNING  MISMATCH\n\n"
        "Errors\n======\n\nWarnings\n========\n\n#0-0 (27a079b828ff1a75) MISMATCH\n"
        "  Communicator ranks have different AllReduce operation counts\n"
        "  31 ranks have launched up to operation 6650\n"
        "  Rank 17 has launched up to operation 6649 -- GPU 1 managed by process 4001 "
        f"on node {host(2)}\n\n"
    )
    fine = text.partition("    0  ")[0] + "Errors\n======\n\nWarnings\n========\n\n"
    job = Job()
    for _ in range(12):
        job.poll(text.encode())
    (found,) = job.findings()
    assert (found.node, found.rule) == ("gpu003", "job.hang")
    job = Job()
    for look in range(60):
        job.poll(text.replace("665", f"{800 + look}").encode() if look % 3 else fine.encode())
    (found,) = job.findings()
    assert (found.rule, found.severity) == ("job.late_rank", Severity.INFO)
    assert "only in looks where ranks differ" in found.evidence[-2]


# ------------------------------------------------------------------ properties


def _renamed(job: Job, order: Sequence[int], counts: Sequence[int]) -> None:
    ranks = job.ranks(counts)
    job.poll(status(comm([ranks[at] for at in order])))


@given(st.permutations(range(16)), st.integers(0, 15))
@settings(max_examples=25, deadline=None)
def test_the_order_of_ranks_does_not_matter(order: list[int], slow: int) -> None:
    made: list[list[Finding]] = []
    for each in (list(range(16)), order):
        job = Job(nodes=2)
        job.gpus(**SPIN)
        for _ in range(12):
            _renamed(job, each, [9000 - (index == slow) for index in range(16)])
        made.append(job.findings())
    assert made[0] == made[1]
    assert [f.node for f in made[0]] == [name(slow // 8)]


@given(st.sets(st.integers(0, 31), min_size=1, max_size=31), st.data())
@settings(max_examples=30, deadline=None)
def test_a_partial_view_never_blames_whom_it_did_not_see(
    seen: set[int], data: st.DataObject
) -> None:
    counts = {i: 9000 - data.draw(st.integers(0, 2)) for i in seen}
    job = Job()
    ranks = [one for one in job.ranks([counts.get(i, 0) for i in range(32)]) if one["rank"] in seen]
    for _ in range(12):
        answer = comm(ranks)
        answer["size"] = 32
        job.poll(status(answer))
    verdict = job.verdict()
    assert {one.rank for one in verdict.suspects} <= seen
    if len(seen) < 32:
        assert verdict.seen == f"seen {len(seen)} of 32 ranks"


ROW = st.dictionaries(
    st.sampled_from(["kind", "comm", "rank", "size", "seen", "low", "mid", "high", "behind", "job",
                     "host", "pid", "gpu", "count", "dead", "missing", "basis", "took_s", "here"]),
    st.one_of(st.integers(-(1 << 63), 1 << 63), st.floats(allow_nan=False), st.booleans(),
              st.sampled_from(["comm", "rank", "missing", "aa", ""])),
)  # fmt: skip


@given(st.lists(st.lists(ROW, max_size=6), max_size=8))
@settings(max_examples=150, deadline=None)
def test_any_rows_are_survived(polls: list[list[dict[str, Any]]]) -> None:
    job = Job(nodes=1)
    for told in polls:
        job.at += EVERY_S
        job.sample(0, told)
    job.findings()


def test_looks_that_come_out_of_order_are_left_out() -> None:
    job = Job()
    stand(job, 3)
    before = next(iter(job.jobs.polls.comms.values())).last
    job.counts([1] * 32, after_s=-30.0)
    assert next(iter(job.jobs.polls.comms.values())).last is before
