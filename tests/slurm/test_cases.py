"""Slurm's words and reasons: the field cases, and spellings of releases we cannot run here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import pytest

from console.schedulers import schedulers_for
from inventory.errors import SchedulerError, UsageError
from inventory.hosts import load
from inventory.run import Completed, LocalRun
from inventory.scheduler import STATES, Job
from inventory.slurm import Slurm
from inventory.slurm_errors import command_failed, is_about_all
from inventory.slurm_judge import judge_drain, judge_resume
from inventory.slurm_state import SlurmState, parse_state
from inventory.slurm_text import (
    SEPARATOR,
    Gpus,
    SlurmNode,
    read_gpus,
    read_jobs,
    read_nodes,
    read_sinfo,
)

CASES = Path(__file__).parent.parent / "data" / "cases"


def case(name: str) -> str:
    """Input of a field case."""
    return (CASES / f"{name}.txt").read_text()


def answer(rc: int, out: str = "", err: str = "") -> Completed:
    """What a finished scontrol left behind."""
    return Completed(argv=("scontrol",), rc=rc, stdout=out, stderr=err)


def nodes_of(name: str) -> dict[str, SlurmNode]:
    """scontrol's nodes of a case."""
    return {node.name: node for node in read_nodes(case(name))}


def test_compound_states() -> None:
    nodes = nodes_of("slurm-compound-states")
    states = {name.removeprefix("gpu-"): node.state for name, node in nodes.items()}
    assert {n: s.state for n, s in states.items()} == {
        "a01": "drained",
        "a02": "draining",
        "a03": "allocated",
        "a04": "drained",
        "a05": "off",
        "a06": "mixed",
        "a07": "drained",
        "a08": "idle",
        "a09": "draining",
        "a10": "unknown",
        "a11": "idle",
    }
    assert [n for n, s in states.items() if s.drain] == ["a01", "a02", "a04", "a07", "a09"]
    assert [n for n, s in states.items() if s.works] == ["a02", "a03", "a06", "a09"]
    assert [n for n, s in states.items() if not s.responding] == ["a04", "a10"]
    assert (states["a04"].base, states["a01"].base) == ("DOWN", "IDLE")
    assert "MAINTENANCE" in states["a03"].flags
    assert "REBOOT_REQUESTED" in states["a07"].flags
    assert "REBOOT_ISSUED" in states["a09"].flags
    assert {"BLOCKED", "DYNAMIC_NORM"} <= states["a11"].flags
    assert nodes["gpu-a07"].reason == "reboot ASAP : fw update"
    assert nodes["gpu-a07"].reason_by == "root"
    assert nodes["gpu-a07"].reason_at == datetime(2026, 3, 3, 4, 5, 6).timestamp()  # noqa: DTZ001
    assert nodes["gpu-a01"].partitions == ("gpu", "all")


def test_powered_down_is_no_fault() -> None:
    nodes = nodes_of("slurm-cloud-powersave-not-fault")
    assert {n: node.state.state for n, node in nodes.items()} == {
        "cloud-001": "off",
        "cloud-002": "off",
        "cloud-003": "off",
        "cloud-004": "down",
        "cloud-005": "off",
        "cloud-006": "off",
    }
    assert [n for n, node in nodes.items() if not node.state.responding] == ["cloud-004"]
    assert nodes["cloud-004"].reason == "ResumeTimeout reached"


def test_sinfo_suffixes_and_partitions() -> None:
    nodes = {n.name: n for n in read_sinfo(case("slurm-sinfo-suffixes-and-multipartition"))}
    assert len(nodes) == 16
    assert nodes["gpu-a01"].partitions == ("gpu", "all")

    def where(true: Callable[[SlurmState], bool]) -> list[str]:
        return [name.removeprefix("gpu-") for name, node in nodes.items() if true(node.state)]

    assert where(lambda s: not s.responding) == ["a03", "a09"]
    assert where(lambda s: s.state == "draining") == ["a02"]
    assert where(lambda s: s.state == "drained") == ["a08"]
    assert where(lambda s: "MAINTENANCE" in s.flags) == ["a06", "a08"]
    assert where(lambda s: "REBOOT_REQUESTED" in s.flags) == ["a02"]
    assert where(lambda s: "REBOOT_ISSUED" in s.flags) == ["a11"]
    assert where(lambda s: "POWERED_DOWN" in s.flags) == ["a04"]
    assert where(lambda s: "POWERING_UP" in s.flags) == ["a07"]
    assert where(lambda s: "PLANNED" in s.flags) == ["a05", "a13"]
    assert where(lambda s: s.state == "down") == ["a03", "a09", "a10"]
    assert where(lambda s: s.state == "idle") == ["a01", "a13", "a16"]
    assert nodes["gpu-a08"].reason == "hw | see ticket 12"
    assert nodes["gpu-a10"].reason.endswith("(7 < 8)")
    assert nodes["gpu-a01"].reason == ""


def test_short_and_long_words_of_sinfo_agree() -> None:
    for line in case("slurm-sinfo-suffixes-and-multipartition").splitlines():
        _, _, short, long, _ = line.split("|", 4)
        assert parse_state(short).state == parse_state(long).state, line


def test_existing_drain_is_left_alone() -> None:
    (node,) = read_nodes(case("slurm-existing-drain-running-job"))
    assert (node.reason, node.reason_by) == ("bad DIMM, waiting for part", "ops2")
    assert node.state.state == "draining"
    step, _ = judge_drain(node.name, node, "xid 94", override=False)
    assert (step.phase, step.ok) == ("refused", False)
    assert "ops2: bad DIMM, waiting for part" in step.detail
    step, text = judge_drain(node.name, node, "xid 94", override=True)
    assert step.phase == "check"
    assert text == "gpuconsole: xid 94 (kept from ops2: bad DIMM, waiting for part)"
    ours = SlurmNode(name=node.name, state=node.state, reason=text, reason_by="root")
    assert judge_resume(node.name, ours, override=False).phase == "refused"
    assert "ops2" in judge_resume(node.name, ours, override=False).detail


def test_slurms_own_drains_are_foreign() -> None:
    nodes = nodes_of("slurm-kill-task-failed-epilog")
    assert {n: node.reason for n, node in nodes.items()} == {
        "gpu-a09": "Kill task failed",
        "gpu-a10": "Prolog error",
    }
    for name, node in nodes.items():
        assert judge_resume(name, node, override=False).phase == "refused"


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("IDLE*+DRAIN", "drained"),
        ("DRAIN+MIXED", "draining"),
        ("idle+drain", "drained"),
        ("IDLE+COMPLETING+DRAIN", "draining"),
        ("IDLE+COMPLETING", "allocated"),
        ("IDLE+MAINTENANCE", "maintenance"),
        ("IDLE+MAINT", "maintenance"),
        ("IDLE+RESERVED", "reserved"),
        ("IDLE+FAIL", "down"),
        ("ALLOCATED+FAIL", "draining"),
        ("IDLE+INVALID_REG", "down"),
        ("IDLE+NOT_RESPONDING", "idle"),
        ("ERROR", "down"),
        ("FUTURE", "unknown"),
        ("IDLE+NEWFLAG_2031", "idle"),
        ("SOMETHING_NEW", "unknown"),
        ("", "unknown"),
        ("drng", "draining"),
        ("boot", "off"),
        ("IDLE+DRAIN+POWERED_DOWN", "off"),
    ],
)
def test_states(text: str, state: str) -> None:
    assert parse_state(text).state == state
    assert parse_state(text).raw == text


def test_every_state_is_in_the_vocabulary_whatever_the_order() -> None:
    flags = ["", "DRAIN", "MAINTENANCE", "COMPLETING", "POWERED_DOWN", "FAIL", "RESERVED", "ODD"]
    for base in ("IDLE", "ALLOCATED", "MIXED", "DOWN", "UNKNOWN", "FUTURE", "ODD2"):
        for one in flags:
            for two in flags:
                words = [word for word in (base, one, two) if word]
                there = parse_state("+".join(words))
                back = parse_state("+".join(reversed(words)))
                assert there.state in STATES
                assert there.state == back.state


STAMP = "[root@2026-03-03T04:05:06]"


@pytest.mark.parametrize(
    ("tail", "reason", "by"),
    [
        (f"Reason=plain {STAMP}", "plain", "root"),
        (f"Reason=a [b@2020-01-01T00:00:00] c {STAMP}", "a [b@2020-01-01T00:00:00] c", "root"),
        (f"Reason=Comment=x {STAMP} Comment=real", "Comment=x", "root"),
        (f"Reason=x {STAMP} Comment=say [z@2020-01-01T00:00:00] no", "x", "root"),
        (f"Reason=one {STAMP}           two         three", "one two three", "root"),
        (f"Reason=one {STAMP}           two Comment=no", "one two", "root"),
        ("Reason=without stamp", "without stamp", ""),
        ("Reason=relative [ops@Tue 04:05]", "relative", "ops"),
        ("", "", ""),
    ],
)
def test_reasons_on_one_line(tail: str, reason: str, by: str) -> None:
    (node,) = read_nodes(f"NodeName=n1 State=IDLE+DRAIN Partitions=gpu {tail}\n")
    assert (node.reason, node.reason_by, node.state.state) == (reason, by, "drained")


def test_gres() -> None:
    assert read_gpus("gpu:h100:8(S:0-1)") == Gpus(8, "h100")
    assert read_gpus("gpu:4") == Gpus(4, "")
    assert read_gpus("shard:8,gpu:a100:4(S:0,1),gpu:v100:2") == Gpus(6, "a100+v100")
    assert read_gpus("gpu:1g.10gb:7") is None
    assert read_gpus("fpga:2") is None
    assert read_gpus("") is None


def test_jobs() -> None:
    def line(*fields: str) -> str:
        return SEPARATOR.join(fields)

    text = "\n".join(
        [
            line(
                "7_3",
                "al",
                "2",
                "2026-03-03T04:05:06",
                "2026-03-02T04:05:06",
                "h100",
                "n[1-2]",
                f"odd{SEPARATOR}name",
            ),
            line("8", "bo", "1", "UNLIMITED", "N/A", "h100", "n2", "x\x1b[31m"),
            line("9", "cy", "1", "N/A", "N/A", "h100", "", "waiting"),
            line("10", "di", "1", "N/A", "N/A", "h100", "n[", "broken"),
            "second line of a name",
        ]
    )
    jobs = read_jobs(text)
    end = datetime(2026, 3, 3, 4, 5, 6).timestamp()  # noqa: DTZ001
    first = Job(
        id="7_3", user="al", name="odd name", nodes=2, end_at=end, start_at=end - 86400,
        partition="h100",
    )  # fmt: skip
    second = Job(id="8", user="bo", name="x [31m", partition="h100")
    assert jobs == {"n1": [first], "n2": [first, second]}


def test_commands_are_argv_that_slurms_host_lists_take() -> None:
    slurm = Slurm(LocalRun())
    names = ["n2-ib", "n1-ib", "gpu10", "gpu9", "r1n1", "r2n1", "gpu9"]
    where = "NodeName=gpu[9-10],r1n1,r2n1,n1-ib,n2-ib"
    assert slurm.resume_commands(names) == [("scontrol", "update", where, "State=RESUME")]
    assert slurm.drain_commands(names, " xid 79\n--help ") == [
        ("scontrol", "update", where, "State=DRAIN", "Reason=gpuconsole: xid 79 --help")
    ]
    (argv,) = Slurm(LocalRun(), cluster="east").resume_commands(["n1"])
    assert argv == ("scontrol", "-M", "east", "update", "NodeName=n1", "State=RESUME")
    many = [f"gpu{i:05}" for i in range(2500)]
    assert [argv[2] for argv in slurm.resume_commands(many)] == [
        "NodeName=gpu[00000-00999]",
        "NodeName=gpu[01000-01999]",
        "NodeName=gpu[02000-02499]",
    ]
    assert slurm.drain_commands([], "x") == []


@pytest.mark.parametrize(
    ("done", "message", "about_all"),
    [
        (answer(1, err="Unable to contact slurm controller (connect failure)\n"),
         "slurmctld does not answer", True),
        (answer(1, err="slurm_load_node error: Socket timed out on send/recv operation\n"),
         "slurmctld does not answer in time", True),
        (answer(1, err="sinfo: error: Munge encode failed: Failed to access socket\nslurm_load"
                       " error: Protocol authentication error\n"), "munge does not answer", True),
        (answer(1, err="slurm_update error: Invalid user id\n"), "not permitted", True),
        (answer(1, err="slurm_update error: Access/permission denied\n"), "not permitted", True),
        (answer(1, err="slurm_update error: Invalid node name specified\n"), "know a node", False),
        (answer(1, out="Node nope not found\n"), "Node nope not found", False),
        (answer(1), "exit status 1 without a word", False),
        (answer(1, err="new \x1b[31mtrouble\n"), "scontrol: new  [31mtrouble", False),
    ],
)  # fmt: skip
def test_what_slurm_says_when_it_fails(done: Completed, message: str, about_all: bool) -> None:
    error = command_failed(done)
    assert message in str(error)
    assert str(error).isprintable()
    assert is_about_all(error) is about_all


@pytest.mark.parametrize("out", ["", "No nodes in the system\n", "garbage\0\n"])
async def test_an_answer_without_nodes_is_an_error(out: str) -> None:
    async def run(argv: Sequence[str], timeout_s: float = 10.0) -> Completed:
        return answer(0, out=out)

    with pytest.raises(SchedulerError, match="Slurm names no nodes"):
        await Slurm(run).allocations()
    with pytest.raises(SchedulerError, match="Slurm names no nodes"):
        await Slurm(run).inventory()


class Recorded:
    """Answers one node to every question, and remembers the questions."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    async def __call__(self, argv: Sequence[str], timeout_s: float = 10.0) -> Completed:
        self.asked.append(tuple(argv))
        text = "NodeName=n1 State=IDLE Partitions=gpu Gres=gpu:h100:8\n"
        return Completed(argv=tuple(argv), rc=0, stdout=text if "nodes" in argv else "", stderr="")


async def test_one_of_several_clusters_is_asked_and_remembered_by_its_nodes() -> None:
    run = Recorded()
    found = await Slurm(run).inventory("gpu@east")
    assert all(argv[1:3] == ("-M", "east") for argv in run.asked if argv[0] == "scontrol")
    assert [node.scheduler for node in found.nodes] == ["slurm@east"]
    (scheduler,) = schedulers_for(found).values()
    assert scheduler.name == "slurm@east"
    (argv,) = scheduler.resume_commands(["n1"])
    assert argv[:3] == ("scontrol", "-M", "east")


def test_the_cluster_may_stand_in_the_inventory(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text("hosts: n1\nscheduler: slurm@east\n")
    assert set(schedulers_for(load(path))) == {"slurm@east"}
    path.write_text("hosts: n1\nscheduler: slurm@\n")
    with pytest.raises(UsageError, match="unknown scheduler"):
        load(path)
