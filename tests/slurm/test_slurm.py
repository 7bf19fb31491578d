"""Slurm for real: slurmctld, slurmd and munged started for these tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from inventory.errors import SchedulerError, UsageError
from inventory.run import Completed, LocalRun
from inventory.scheduler import Allocation, Step
from inventory.slurm import Slurm
from inventory.source import resolve
from tests.conftest import Lab
from tests.slurm.lab import PATH, As, SlurmLab, wait_until

pytestmark = pytest.mark.slurm

NOBODY = 65534
SYSTEM_CONF = Path("/etc/slurm/slurm.conf")


async def one(slurm: Slurm, name: str) -> Allocation:
    """What the scheduler says about one node."""
    (allocation,) = await slurm.allocations([name])
    return allocation


async def steps(generator: AsyncIterator[Step]) -> list[Step]:
    """All steps of an action."""
    return [step async for step in generator]


def last(told: list[Step], node: str) -> Step:
    """The final step of one node."""
    return [step for step in told if step.node == node][-1]


def reason_of(cluster: SlurmLab, node: str) -> str:
    """The reason as sinfo has it, asked past the code under test."""
    return cluster.ok("sinfo", "-h", "-N", "-p", "gpu", "-n", node, "-o", "%E").strip("\n")


async def test_idle_and_busy_nodes(cluster: SlurmLab, slurm: Slurm) -> None:
    job = cluster.submit("n2", name="odd|name x")
    found = {a.node: a for a in await slurm.allocations()}
    assert list(found) == ["n1", "n2", "n3", "n4"]
    assert found["n1"].state == "idle"
    assert not found["n1"].busy
    busy = found["n2"]
    assert busy.state in ("mixed", "allocated")
    assert busy.busy
    assert [(j.id, j.user, j.name, j.nodes) for j in busy.jobs] == [(job, "root", "odd|name x", 1)]
    assert busy.jobs[0].end_at == pytest.approx(busy.at + 600, abs=60)
    assert busy.partitions == ("gpu", "small")


async def test_filters_in_the_shell_hide_no_jobs(cluster: SlurmLab) -> None:
    job = cluster.submit("n2")
    env = {"SLURM_CONF": str(cluster.conf), "PATH": PATH}
    slurm = Slurm(LocalRun({**env, "SQUEUE_USERS": "nobody", "SLURM_TIME_FORMAT": "relative"}))
    allocation = await one(slurm, "n2")
    assert [j.id for j in allocation.jobs] == [job]
    assert allocation.jobs[0].end_at is not None


async def test_drain_idle_nodes_and_resume(cluster: SlurmLab, slurm: Slurm) -> None:
    told = await steps(slurm.drain(["n3", "n1"], "xid 79 on gpu3"))
    commands = {step.command for step in told if step.phase == "write"}
    assert commands == set(slurm.drain_commands(["n1", "n3"], "xid 79 on gpu3"))
    assert commands == {
        ("scontrol", "update", "NodeName=n[1,3]", "State=DRAIN",
         "Reason=gpuconsole: xid 79 on gpu3"),
    }  # fmt: skip
    assert [(s.phase, s.ok) for s in told if s.node == "n1"][-1] == ("done", True)
    assert cluster.words() == {"n1": "drained", "n2": "idle", "n3": "drained", "n4": "idle"}
    drained = await one(slurm, "n1")
    assert (drained.state, drained.raw) == ("drained", "IDLE+DRAIN")
    assert drained.reason == reason_of(cluster, "n1") == "gpuconsole: xid 79 on gpu3"
    assert drained.ours
    assert drained.reason_by == "root"
    assert drained.reason_at == pytest.approx(drained.at, abs=60)

    told = await steps(slurm.resume(["n1", "n3"]))
    assert {(s.node, s.phase, s.ok) for s in told if s.phase == "done"} == {
        ("n1", "done", True),
        ("n3", "done", True),
    }
    assert (await one(slurm, "n1")).state == "idle"
    assert (await one(slurm, "n1")).reason == ""


async def test_drain_busy_node_lets_the_job_end(cluster: SlurmLab, slurm: Slurm) -> None:
    job = cluster.submit("n2")
    told = await steps(slurm.drain(["n2"], "row remap pending"))
    assert last(told, "n2").phase == "done"
    assert f"still runs {job} (root)" in last(told, "n2").detail
    draining = await one(slurm, "n2")
    assert draining.state == "draining"
    assert [j.id for j in draining.jobs] == [job]
    assert cluster.ok("squeue", "-h", "-j", job, "-o", "%T").strip() == "RUNNING"
    cluster.cancel(job)
    wait_until(lambda: cluster.words()["n2"] == "drained", "drained after the job")
    after = await one(slurm, "n2")
    assert (after.state, after.jobs, after.busy) == ("drained", (), False)


async def test_foreign_drain_is_refused_and_kept_with_override(
    cluster: SlurmLab, slurm: Slurm
) -> None:
    cluster.ok("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=bad DIMM, part ordered")
    told = await steps(slurm.drain(["n1", "n2"], "xid 94"))
    assert last(told, "n1").phase == "refused"
    assert not last(told, "n1").ok
    assert "bad DIMM, part ordered" in last(told, "n1").detail
    assert last(told, "n2").phase == "done"
    assert reason_of(cluster, "n1") == "bad DIMM, part ordered"
    refused = await steps(slurm.resume(["n1"]))
    assert [(s.phase, s.ok) for s in refused] == [("refused", False)]
    assert cluster.words()["n1"] == "drained"

    told = await steps(slurm.drain(["n1"], "xid 94", override=True))
    assert last(told, "n1").phase == "done"
    kept = "gpuconsole: xid 94 (kept from root: bad DIMM, part ordered)"
    assert reason_of(cluster, "n1") == kept
    # It is still the other person's drain: only override writes again, and keeps it again.
    assert not (await one(slurm, "n1")).ours
    assert last(await steps(slurm.drain(["n1"], "xid 95")), "n1").phase == "refused"
    await steps(slurm.drain(["n1"], "xid 95", override=True))
    assert reason_of(cluster, "n1") == kept.replace("94", "95")
    refused = await steps(slurm.resume(["n1"]))
    assert [s.phase for s in refused] == ["refused"]
    assert "bad DIMM" in refused[0].detail
    told = await steps(slurm.resume(["n1"], override=True))
    assert last(told, "n1").phase == "done"
    assert cluster.words()["n1"].startswith("idle")


async def test_draining_twice_writes_once(cluster: SlurmLab, slurm: Slurm) -> None:
    await steps(slurm.drain(["n1"], "same"))
    told = await steps(slurm.drain(["n1"], "same"))
    assert [(s.phase, s.ok) for s in told] == [("done", True)]
    told = await steps(slurm.resume(["n2"]))
    assert [(s.phase, s.ok) for s in told] == [("done", True)]
    assert "nothing to resume: idle" in told[0].detail


async def test_unknown_node_is_told_and_the_others_drained(cluster: SlurmLab, slurm: Slurm) -> None:
    told = await steps(slurm.drain(["n1", "nope", "ALL"], "x"))
    for name in ("nope", "ALL"):
        assert [(s.phase, s.ok) for s in told if s.node == name] == [("refused", False)]
        assert "not known to Slurm" in last(told, name).detail
    assert last(told, "n1").phase == "done"
    assert cluster.words() == {"n1": "drained", "n2": "idle", "n3": "idle", "n4": "idle"}
    assert (await one(slurm, "nope")).state == "unknown"


class Typo(LocalRun):
    """Adds a node that does not exist to every list of more than one, as a race would."""

    async def __call__(self, argv: Sequence[str], timeout_s: float = 10.0) -> Completed:
        argv = [a.replace("n[1-3]", "n[1,9,3]") if a.startswith("NodeName") else a for a in argv]
        return await super().__call__(argv, timeout_s)


async def test_list_that_fails_in_part_is_finished_node_by_node(cluster: SlurmLab) -> None:
    slurm = Slurm(Typo({"SLURM_CONF": str(cluster.conf), "PATH": PATH}))
    told = await steps(slurm.drain(["n1", "n2", "n3"], "x"))
    assert {s.node for s in told if s.phase == "write" and not s.ok} == {"n1", "n2", "n3"}
    assert {s.node: s.ok for s in told if s.phase == "done"} == {"n1": True, "n2": True, "n3": True}
    assert cluster.words() == {"n1": "drained", "n2": "drained", "n3": "drained", "n4": "idle"}
    single = [s.command for s in told if s.phase == "write" and "NodeName=n2" in s.command]
    assert len(single) == 1


async def test_ordinary_user_is_refused_and_told(cluster: SlurmLab) -> None:
    slurm = Slurm(As(cluster, NOBODY))
    assert (await one(slurm, "n1")).state == "idle"
    told = await steps(slurm.drain(["n1", "n2"], "x"))
    for name in ("n1", "n2"):
        final = last(told, name)
        assert (final.phase, final.ok) == ("failed", False)
        assert "not permitted" in final.detail
        assert "Invalid user id" in final.detail
    # One try for the list; a second one node by node would be no use.
    assert len({s.command for s in told if s.phase == "write"}) == 1
    assert set(cluster.words().values()) == {"idle"}


async def test_controller_down(cluster: SlurmLab, slurm: Slurm, run: LocalRun) -> None:
    cluster.stop("slurmctld")
    with pytest.raises(SchedulerError, match="slurmctld does not answer"):
        await slurm.allocations()
    told = await steps(slurm.drain(["n1"], "x"))
    assert [(s.node, s.phase, s.ok) for s in told] == [("n1", "failed", False)]
    assert "slurmctld" in told[0].detail
    with pytest.raises(SchedulerError, match="slurmctld does not answer"):
        await resolve("slurm:", run=run)


async def test_munge_hung_ends_at_the_timeout(cluster: SlurmLab, run: LocalRun) -> None:
    slurm = Slurm(run, timeout_s=1.0)
    with cluster.suspended("munged"), pytest.raises(SchedulerError, match="no answer within 1 s"):
        await slurm.allocations()
    assert len(await Slurm(run).allocations()) == 4


@pytest.mark.skipif(SYSTEM_CONF.exists(), reason="this machine has a Slurm of its own")
async def test_no_configuration_here(lab: Lab) -> None:
    lab.slurm()
    with pytest.raises(SchedulerError, match=r"no slurm\.conf here"):
        await Slurm(LocalRun({"PATH": PATH})).allocations()


async def test_no_client_commands_here(tmp_path: Path) -> None:
    (tmp_path / "env").symlink_to("/usr/bin/env")
    with pytest.raises(SchedulerError, match="scontrol is not installed here"):
        await Slurm(LocalRun({"PATH": str(tmp_path)})).allocations()


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("pipe | and 'quotes' é ✓", "pipe | and 'quotes' é ✓"),
        ('say "no" now', 'say "no" now'),
        ("stamp [bob@2020-01-01T00:00:00] inside", "stamp [bob@2020-01-01T00:00:00] inside"),
        ("first\nState=IDLE\n   NodeName=n4", "first State=IDLE NodeName=n4"),
        ("Comment=x State=IDLE Reason=y", "Comment=x State=IDLE Reason=y"),
        ("esc \x1b[31mred\x07", "esc  [31mred"),
        ("-M other", "-M other"),
    ],
)
async def test_reasons_of_others_are_read_whole(
    cluster: SlurmLab, slurm: Slurm, written: str, shown: str
) -> None:
    cluster.ok("scontrol", "update", "NodeName=n3", "State=DRAIN", f"Reason={written}")
    cluster.ok("scontrol", "update", "NodeName=n3", "Comment=a Reason=b State=DOWN")
    allocation = await one(slurm, "n3")
    assert (allocation.state, allocation.reason) == ("drained", shown)
    assert allocation.reason_by == "root"
    assert allocation.reason_at == pytest.approx(allocation.at, abs=60)
    assert [a.node for a in await slurm.allocations()] == ["n1", "n2", "n3", "n4"]
    cluster.ok("scontrol", "update", "NodeName=n3", "Comment=")


@pytest.mark.parametrize(
    "written",
    [
        '"quoted"',
        "two\nlines\r\x1b[31m",
        "State=IDLE NodeName=n4",
        "é ✓ | x",
        "--help",
        "x" * 5000,
        "a [b@c] d",
    ],
)
async def test_our_reason_is_one_marked_line(cluster: SlurmLab, slurm: Slurm, written: str) -> None:
    told = await steps(slurm.drain(["n3"], written))
    assert last(told, "n3").phase == "done"
    reason = (await one(slurm, "n3")).reason
    assert reason == reason_of(cluster, "n3")
    assert reason.startswith("gpuconsole: ")
    assert len(reason) <= 220
    assert reason.isprintable()
    assert not set(reason) & set('[]"')
    expected = f"Reason={reason}"
    assert [s.command[-1] for s in told if s.phase == "write"] == [expected]
    assert cluster.words() == {"n1": "idle", "n2": "idle", "n3": "drained", "n4": "idle"}
    assert last(await steps(slurm.resume(["n3"])), "n3").phase == "done"


async def test_lost_slurmd_is_not_responding(cluster: SlurmLab, slurm: Slurm) -> None:
    cluster.stop("n4")
    with cluster.soon_down():
        wait_until(lambda: cluster.words()["n4"] == "down*", "n4 down")
    lost = await one(slurm, "n4")
    assert (lost.state, lost.responding) == ("down", False)
    assert lost.reason == "Not responding"
    assert (await one(slurm, "n1")).responding
    # Nobody drained it, so it is not ours to resume; but it may be drained.
    assert last(await steps(slurm.resume(["n4"])), "n4").phase == "refused"
    told = await steps(slurm.drain(["n4"], "dead"))
    assert last(told, "n4").phase == "done"
    assert reason_of(cluster, "n4") == "gpuconsole: dead"
    dead = await one(slurm, "n4")
    assert (dead.state, dead.raw.split("+")[0], dead.responding) == ("drained", "DOWN", False)


async def test_source_names_nodes_gpus_and_roles(cluster: SlurmLab, run: LocalRun) -> None:
    whole = await resolve("slurm:", run=run)
    assert [node.name for node in whole.nodes] == ["n1", "n2", "n3", "n4"]
    assert whole.cluster == "testlab"
    node = whole.nodes[0]
    assert (node.target, node.gpus, node.role) == ("n1", 8, "h100x8")
    assert (node.scheduler, node.scheduled_as) == ("slurm", "n1")
    small = await resolve("slurm:small", run=run)
    assert [node.name for node in small.nodes] == ["n1", "n2"]
    chosen = await resolve("slurm:", hosts="n[2-4]", exclude="n3", group="gpu", run=run)
    assert [node.name for node in chosen.nodes] == ["n2", "n4"]
    grouped = await resolve("slurm:", group="small", run=run)
    assert [node.name for node in grouped.nodes] == ["n1", "n2"]
    with pytest.raises(UsageError, match=r"no partition 'smal'.*did you mean small\?"):
        await resolve("slurm:smal", run=run)


class Killer(LocalRun):
    """Ends the controller just before a write, or just after it."""

    def __init__(self, cluster: SlurmLab, *, after: bool) -> None:
        super().__init__({"SLURM_CONF": str(cluster.conf), "PATH": PATH})
        self.cluster = cluster
        self.after = after

    async def __call__(self, argv: Sequence[str], timeout_s: float = 10.0) -> Completed:
        writes = "update" in argv and "slurmctld" in self.cluster.daemons
        if writes and not self.after:
            self.cluster.stop("slurmctld")
        done = await super().__call__(argv, timeout_s)
        if writes and self.after:
            self.cluster.stop("slurmctld")
        return done


async def test_controller_killed_before_the_write(cluster: SlurmLab) -> None:
    told = await steps(Slurm(Killer(cluster, after=False)).drain(["n1", "n2"], "never written"))
    for name in ("n1", "n2"):
        assert (last(told, name).phase, last(told, name).ok) == ("failed", False)
        assert "slurmctld does not answer" in last(told, name).detail
    cluster.start_controller()
    # Killed, it may have forgotten what it was told a moment before: that is not ours to judge.
    assert not any("never written" in reason_of(cluster, name) for name in ("n1", "n2"))


async def test_controller_killed_after_the_write(cluster: SlurmLab, slurm: Slurm) -> None:
    """Written, but not seen: no success is claimed, and a second drain finds ours and ends."""
    told = await steps(Slurm(Killer(cluster, after=True)).drain(["n1"], "x"))
    assert (last(told, "n1").phase, last(told, "n1").ok) == ("failed", False)
    assert "cannot be read again" in last(told, "n1").detail
    cluster.start_controller()
    again = await steps(slurm.drain(["n1"], "x"))
    assert last(again, "n1").ok
    assert (await one(slurm, "n1")).ours


async def test_a_node_that_waits_for_its_reboot(cluster: SlurmLab, slurm: Slurm) -> None:
    """Its jobs go on, so it is not idle to us; the reboot is told in Slurm's words."""
    job = cluster.submit("n3")
    cluster.ok("scontrol", "reboot", "ASAP", "nextstate=RESUME", "reason=kernel", "n3")
    try:
        seen = await one(slurm, "n3")
        assert "REBOOT" in seen.raw
        assert seen.busy
        assert [j.id for j in seen.jobs] == [job]
        told = await steps(slurm.drain(["n3"], "x"))
        assert last(told, "n3").phase == "refused", "somebody else has decided about this node"
    finally:
        cluster.call("scontrol", "cancel_reboot", "n3")
