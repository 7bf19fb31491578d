"""One dead node among many: errors name it, one run is lost, and the others get their figures."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from benchmarks.fabric import Fabric, Outcome
from console.active.blame import blamed
from console.active.expect import Expected
from console.active.localise import localiser
from console.active.pair_words import cut
from console.active.results import Confidence, Group, Level, Progress, Run, Verdict
from probes.event import Severity

NODES = tuple(f"gpu{i:03}" for i in range(1, 17))
SAYS = "{by}: rank 4 ({dead}, local rank 0) failed with exit status 1: CUDA: device lost"


def failed(nodes: tuple[str, ...], error: str, state: Progress = Progress.FAILED) -> Run:
    return Run(group=Group(nodes=nodes, rail=0), round=1, state=state, error=error)


def played(
    fabric: Fabric, level: Level, seed: int = 1, says: str = SAYS, victim: str = ""
) -> Outcome:
    """A campaign in which errors name the dead node; the first one names `victim` instead."""
    found = localiser(level, fabric.nodes, seed=seed, expected=Expected(), labels={})
    rng, runs, number = random.Random(seed), list[Run](), 0
    while groups := found.next_round(runs):
        number += 1
        assert number < 60
        for run in fabric.round(groups, number, rng):
            dead = [n for n in run.group.nodes if n in fabric.mute]
            if dead and run.state is Progress.TIMED_OUT:
                first = victim and victim in run.group.nodes and not any(r.error for r in runs)
                named = victim if first else dead[0]
                error = says.format(by=run.group.nodes[-1], dead=named)
                run = structs.replace(run, state=Progress.FAILED, error=error)
            runs.append(run)
    return Outcome(number, runs, found.verdicts(runs))


def of(outcome: Outcome, node: str) -> Verdict:
    (found,) = [v for v in outcome.verdicts if v.kind == "node" and v.name == node]
    return found


def by_verdict(outcome: Outcome) -> dict[Severity, set[str]]:
    found: dict[Severity, set[str]] = {}
    for v in outcome.verdicts:
        if v.kind == "node":
            found.setdefault(v.verdict, set()).update(v.nodes)
    return found


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("level", [Level.RAILS, Level.CLUSTER])
def test_one_dead_node_of_16_is_named_and_the_others_get_their_figures(
    level: Level, seed: int
) -> None:
    outcome = played(Fabric(nodes=NODES, sigma=0.02, mute=frozenset({"gpu005"})), level, seed)
    others = {*NODES} - {"gpu005"}
    assert by_verdict(outcome) == {Severity.CRITICAL: {"gpu005"}, Severity.OK: others}
    verdict = of(outcome, "gpu005")
    assert verdict.drains
    assert any("gpu005, local rank 0" in line for line in (verdict.say, *verdict.evidence))
    whole = [r for r in outcome.runs if set(r.group.nodes) == others and r.busbw_gb_s]
    assert {r.group.rail for r in whole} == (set(range(8)) if level is Level.RAILS else {None})


def test_the_rails_say_what_its_rank_said_and_who_else_is_fine() -> None:
    outcome = played(Fabric(nodes=NODES, sigma=0.02, mute=frozenset({"gpu005"})), Level.RAILS)
    assert of(outcome, "gpu005").say.startswith("gpu005: its rank fails: ")
    assert {v.verdict for v in outcome.verdicts if v.kind == "rail"} == {Severity.OK}
    assert sum(len(r.group.nodes) == 16 for r in outcome.runs) == 1, "one run is lost, not eight"


@pytest.mark.parametrize("seed", range(5))
def test_a_victim_that_is_named_first_is_not_drained(seed: int) -> None:
    fabric = Fabric(nodes=NODES, sigma=0.02, mute=frozenset({"gpu005"}))
    outcome = played(fabric, Level.RAILS, seed, victim="gpu013")
    assert [v.name for v in outcome.verdicts if v.drains] == ["gpu005"]
    told = of(outcome, "gpu013")
    assert told.verdict is Severity.UNKNOWN
    assert "fine in pairs" in told.say
    cluster = played(fabric, Level.CLUSTER, seed, victim="gpu007")
    assert [v.name for v in cluster.verdicts if v.drains] == ["gpu005"]
    assert of(cluster, "gpu007").verdict is Severity.OK


def test_dead_and_slow_nodes_are_all_left_out_of_the_cluster() -> None:
    fabric = Fabric(
        nodes=NODES, sigma=0.01, mute=frozenset({"gpu005"}), bad={"gpu003": 0.6, "gpu011": 0.5}
    )
    outcome = played(fabric, Level.CLUSTER)
    bad = {"gpu003", "gpu005", "gpu011"}
    assert by_verdict(outcome) == {Severity.CRITICAL: bad, Severity.OK: {*NODES} - bad}
    assert any(set(r.group.nodes) == {*NODES} - bad and r.busbw_gb_s for r in outcome.runs)
    assert "without gpu[003,005,011]" in outcome.verdicts[0].say


def test_failures_that_name_nobody_end_in_a_command_with_the_hosts() -> None:
    says = "rank 4 failed with exit status 1"
    fabric = Fabric(nodes=NODES, mute=frozenset({"gpu005"}))
    outcome = played(fabric, Level.RAILS, says=says)
    assert not any(v.drains for v in outcome.verdicts)
    assert "`gpuconsole test 'gpu[001-016]' --level pairs`" in outcome.verdicts[0].next_step


def test_many_deaths_end_in_time_and_none_is_called_fine() -> None:
    fabric = Fabric(nodes=NODES, sigma=0.02, mute=frozenset(NODES[3:10]))
    for level in (Level.RAILS, Level.CLUSTER):
        told = by_verdict(played(fabric, level))
        assert not told.get(Severity.OK, set()) & fabric.mute


def test_a_node_that_got_a_job_is_left_out_and_accused_of_nothing() -> None:
    fabric = Fabric(nodes=NODES, sigma=0.02)
    for level in (Level.RAILS, Level.CLUSTER):
        found = localiser(level, NODES, seed=1, expected=Expected(), labels={})
        runs, number = list[Run](), 0
        while groups := found.next_round(runs):
            number += 1
            for run in fabric.round(groups, number, random.Random(number)):
                if "gpu009" in run.group.nodes:
                    run = failed(run.group.nodes, "gpu009: busy: job 1", Progress.REFUSED)
                    run = structs.replace(
                        run,
                        round=number,
                        group=structs.replace(run.group, rail=0 if level is Level.RAILS else None),
                    )
                runs.append(run)
        told = by_verdict(Outcome(number, runs, found.verdicts(runs)))
        assert told == {Severity.UNKNOWN: {"gpu009"}, Severity.OK: {*NODES} - {"gpu009"}}


# Who is named


@pytest.mark.parametrize(
    ("error", "named"),
    [
        ("gpu012: rank 4 (gpu005, local rank 0) failed with exit status 1", ("gpu005",)),
        ("gpu012: gpu005 went away", ("gpu005",)),
        ("gpu012: gpu005.example.org did not answer.", ("gpu005",)),
        ("gpu005: the session ended: unreachable", ("gpu005",)),
        ("gpu001: rank 1 (gpu002, local rank 0) failed, rank 9 (gpu003, x)", ("gpu002", "gpu003")),
        ("rank 4 (gpu099, local rank 0) failed", ()),
        ("gpu0055 and xgpu005 and gpu005-ib", ()),
        (", ".join(NODES[:12]), ()),
        ("", ()),
    ],
)
def test_only_nodes_of_the_group_are_named(error: str, named: tuple[str, ...]) -> None:
    assert blamed(failed(NODES, error)) == named


def test_who_waited_until_the_end_names_nobody() -> None:
    assert blamed(failed(NODES, "gpu003: timed out after 60 s", Progress.TIMED_OUT)) == ()


@given(st.text(max_size=300), st.sampled_from(list(Progress)))
def test_any_error_names_nobody_outside_the_group(error: str, state: Progress) -> None:
    assert set(blamed(failed(NODES[:3], error, state))) <= set(NODES[:3])


# Words


@given(st.text(max_size=60), st.integers(2, 40))
def test_a_cut_is_short_enough_and_says_so(text: str, chars: int) -> None:
    found = cut(text, chars)
    assert len(found) <= chars
    assert found == text or (found.endswith("…") and text.startswith(found[:-1]))


def test_a_cut_ends_with_a_whole_word() -> None:
    assert cut("NCCL error: unhandled cuda error (gpu004)", 30) == "NCCL error: unhandled cuda…"


def test_no_rank_is_sure_before_good_partners_tried_it() -> None:
    found = localiser(Level.RAILS, NODES, seed=1, expected=Expected(), labels={})
    (group,) = found.next_round([])
    error = SAYS.format(by="gpu012", dead="gpu005")
    runs = [Run(group=group, round=1, state=Progress.FAILED, error=error)]
    (again,) = found.next_round(runs)
    assert set(again.nodes) == {*NODES} - {"gpu005"}
    (verdict,) = [v for v in found.verdicts(runs) if v.name == "gpu005"]
    assert (verdict.verdict, verdict.confidence) == (Severity.WARN, Confidence.SUSPECTED)


def test_a_node_that_dies_between_sizes_is_left_out_of_the_largest() -> None:
    """Its halves were fine while it lived, so nothing but the error accuses it."""
    found = localiser(Level.CLUSTER, NODES, seed=1, expected=Expected(), labels={})
    alive = Fabric(nodes=NODES, sigma=0.01)
    dead = structs.replace(alive, mute=frozenset({"gpu013"}))
    rng, runs, number = random.Random(1), list[Run](), 0
    while groups := found.next_round(runs):
        number += 1
        large = any(len(run.group.nodes) == 8 for run in runs)
        for run in (dead if large else alive).round(groups, number, rng):
            error = SAYS.format(by="gpu001", dead="gpu013") if run.error else ""
            runs.append(structs.replace(run, error=error))
    outcome = Outcome(number, runs, found.verdicts(runs))
    assert by_verdict(outcome) == {
        Severity.CRITICAL: {"gpu013"},
        Severity.OK: {*NODES} - {"gpu013"},
    }
    assert any(len(r.group.nodes) == 15 and r.busbw_gb_s for r in runs)


@pytest.mark.parametrize("level", [Level.RAILS, Level.CLUSTER])
def test_a_named_node_whose_pairs_are_refused_is_suspected(level: Level) -> None:
    """A driver that hangs: the first error names it, then it has no session any more."""
    found = localiser(level, NODES, seed=1, expected=Expected(), labels={})
    fabric = Fabric(nodes=NODES, sigma=0.01, refusing=frozenset({"gpu013"}))
    rng, runs, number = random.Random(1), list[Run](), 0
    while groups := found.next_round(runs):
        number += 1
        for run in fabric.round(groups, number, rng):
            if run.state is Progress.REFUSED and not any(r.error for r in runs):
                error = SAYS.format(by="gpu001", dead="gpu013")
                run = structs.replace(run, state=Progress.FAILED, error=error)
            elif run.state is Progress.REFUSED:
                run = structs.replace(run, error="gpu013: no live session (hung)")
            runs.append(run)
    verdict = of(Outcome(number, runs, found.verdicts(runs)), "gpu013")
    assert (verdict.verdict, verdict.drains) == (Severity.WARN, False)
    assert verdict.say.startswith("gpu013: its rank fails: rank 4")
