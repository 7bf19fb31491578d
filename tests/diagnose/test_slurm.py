"""Slurm as people paste it: scontrol, sinfo in its forms, squeue, JSON of several releases."""

# ruff: noqa: E501 - pasted output is as wide as its program prints it

from __future__ import annotations

import json
from typing import Any

import pytest

from probes.event import Severity
from tests.diagnose.support import about, case, demand, findings, only, part, rules, ticket, words


def node(name: str, state: str, reason: str = "", **more: str) -> str:
    fields = {
        "NodeName": name,
        "Arch": "x86_64",
        "Gres": "gpu:h100:8(S:0-1)",
        "State": state,
        **more,
    }
    text = " ".join(f"{key}={value}" for key, value in fields.items())
    return f"{text} Partitions=gpu {f'Reason={reason}' if reason else ''}".rstrip() + "\n"


STAMP = "[root@2026-03-03T04:05:06]"


# ------------------------------------------------------------------------------- field cases


def test_compound_states() -> None:
    told = only(case("slurm-compound-states")).facts["by_node"]
    for name, wanted in demand("slurm-compound-states")["facts"].items():
        assert {key: told[name].get(key, False) for key in wanted} == wanted


def test_cloud_nodes_by_design_and_one_that_failed() -> None:
    name = "slurm-cloud-powersave-not-fault"
    told = only(case(name)).facts["by_node"]
    for cloud, phrase in demand(name)["facts"].items():
        core = phrase.partition(" (")[0]
        assert core in told[cloud]["power"], cloud
    (late,) = findings(case(name))
    assert (late.node, late.severity) == ("cloud-004", Severity.WARN)


def test_sinfo_lists() -> None:
    name = "slurm-sinfo-suffixes-and-multipartition"
    found, wanted = only(case(name)).facts, demand(name)["facts"]
    assert found["reasons"]["gpu-a08"] == wanted["reasons"]["gpu-a08"]
    for key, value in wanted.items():
        if key != "reasons":
            assert found[key] == value, key
    assert "7 < 8" in about(case(name), "slurm.registration", node="gpu-a10").say


def test_a_drain_with_a_running_job() -> None:
    name = "slurm-existing-drain-running-job"
    found, wanted = only(case(name)).facts, demand(name)["facts"]
    assert {key: found[key] for key in wanted} == wanted
    said = only(case(name)).say
    for word in ("ops2", "1 March", "bad DIMM", "4711", "Do not reboot", "do not replace"):
        assert word in said


def test_what_slurm_could_not_kill() -> None:
    name = "slurm-kill-task-failed-epilog"
    diagnosis = case(name)
    told = part(diagnosis, "slurm")
    for node_, wanted in demand(name)["facts"].items():
        assert told.facts["by_node"][node_].items() >= wanted.items()
    assert "process 3301 hangs in a network file system call" in told.say
    assert "gpu-a10: the prolog failed" in told.say
    assert not words(diagnosis).lower().startswith("resume")


# -------------------------------------------------------------------------------------- states


@pytest.mark.parametrize(
    ("state", "reason", "rule"),
    [
        ("IDLE", "", None), ("ALLOCATED", "", None), ("MIXED+PLANNED", "", None),
        ("IDLE+CLOUD+POWERED_DOWN", "", None), ("IDLE+POWERING_DOWN", "", None),
        ("ALLOCATED+POWERING_UP+NOT_RESPONDING", "", None), ("IDLE+RESERVED", "", None),
        ("IDLE+MAINTENANCE", "", None), ("IDLE+NEWFLAG_2031", "", None), ("FUTURE", "", None),
        ("IDLE+COMPLETING", "", None), ("IDLE+BLOCKED", "", None),
        ("DOWN", "fan", "slurm.down"), ("DOWN+NOT_RESPONDING", "", "slurm.not_responding"),
        ("IDLE*", "", "slurm.not_responding"), ("IDLE+FAIL", "bad nic", "slurm.failing"),
        ("IDLE+INVALID_REG", "", "slurm.registration"),
        ("IDLE+DRAIN", f"Kill task failed {STAMP}", "slurm.auto_drain"),
        ("IDLE+DRAIN", f"Prolog error {STAMP}", "slurm.auto_drain"),
        ("IDLE+DRAIN", f"Epilog error {STAMP}", "slurm.auto_drain"),
        ("IDLE+DRAIN", f"batch job complete failure {STAMP}", "slurm.auto_drain"),
        ("IDLE+DRAIN", f"NHC: check_fs_mount: /data not mounted {STAMP}", "slurm.auto_drain"),
        ("DOWN", f"Node unexpectedly rebooted {STAMP}", "slurm.auto_drain"),
        ("DOWN+CLOUD+POWERED_DOWN", f"ResumeTimeout reached {STAMP}", "slurm.resume_timeout"),
        ("IDLE+DRAIN", f"gres/gpu count reported lower than configured (6 < 8) {STAMP}",
         "slurm.registration"),
        ("IDLE+DRAIN", f"Low RealMemory (reported:1500000 < 100.00% of configured:2000000) {STAMP}",
         "slurm.registration"),
    ],
)  # fmt: skip
def test_one_node_in_every_state(state: str, reason: str, rule: str | None) -> None:
    diagnosis = ticket(node("gpu-a01", state, reason))
    assert rules(diagnosis) == ({rule} if rule else set())
    assert diagnosis.drain.startswith("no")


def test_a_persons_drain_is_information_with_an_owner() -> None:
    drained = about(ticket(node("n1", "IDLE+DRAIN", f"xid 79 {STAMP}")), "slurm.drained")
    assert drained.severity is Severity.INFO
    assert "root on 3 March: xid 79" in drained.say
    ours = about(ticket(node("n1", "IDLE+DRAIN", f"gpuconsole: xid 79 {STAMP}")), "slurm.drained")
    assert "by us" in ours.say


def test_healthy_nodes_say_so() -> None:
    diagnosis = ticket("".join(node(f"n{i}", "IDLE") for i in range(3)))
    assert diagnosis.verdict is Severity.OK
    assert only(diagnosis).say == "3 nodes, none out of work."


# --------------------------------------------------------------------------------------- forms


SINFO = """PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST
gpu*         up   infinite      1  down* n3
gpu*         up   infinite      2   idle n[1-2]
all          up   infinite      3   idle n[1-2,4]
"""
LONG = """NODELIST   NODES PARTITION       STATE CPUS    S:C:T MEMORY TMP_DISK WEIGHT AVAIL_FE REASON
n1             1      gpu*        idle 112    2:56:1 200000        0      1   (null) none
n2             1      gpu*     drained 112    2:56:1 200000        0      1   (null) bad DIMM, slot 3
"""
REASONS = """REASON               USER      TIMESTAMP           NODELIST
Not responding       slurm     2026-03-03T04:05:06 n[3-4]
bad cable, see 12    ops2      2026-03-01T10:00:00 n7
"""
SQUEUE = """   JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)
    4711       gpu    train    user1  R 1-02:03:04      2 n[1-2]
    4712       gpu    train    user2 PD       0:00      8 (Resources)
    4713       gpu    train    user2 PD       0:00      1 (ReqNodeNotAvail, UnavailableNodes:n3)
"""


def test_tables_that_sinfo_prints_by_default() -> None:
    found = only(ticket(SINFO)).facts
    assert found["nodes"] == 4
    assert found["partitions"] == {"gpu": {"default": True}, "all": {"default": False}}
    assert found["not_responding"] == ["n3"]
    found = only(ticket(LONG)).facts
    assert found["reasons"] == {"n2": "bad DIMM, slot 3"}
    assert found["drained"] == ["n2"]


def test_sinfo_r_names_reasons_and_owners() -> None:
    diagnosis = ticket(REASONS)
    assert only(diagnosis).facts["reasons"]["n7"] == "bad cable, see 12"
    assert "ops2" in about(diagnosis, "slurm.drained", node="n7").say
    assert {f.node for f in findings(diagnosis) if f.severity is Severity.WARN} == {"n3", "n4"}


def test_squeue_counts_why_jobs_wait() -> None:
    found = only(ticket(SQUEUE))
    assert found.facts["pending"] == {"Resources": 1, "ReqNodeNotAvail": 1}
    assert found.verdict is Severity.OK


def as_json(states: Any, flags: list[str] | None = None, **more: Any) -> str:
    one: dict[str, Any] = {"name": "gpu-a01", "state": states, "gres": "gpu:h100:8(S:0-1)",
                           "partitions": ["gpu"], "slurmd_version": "24.05.2", **more}  # fmt: skip
    if flags is not None:
        one["state_flags"] = flags
    return json.dumps({"meta": {}, "nodes": [one], "errors": []}, indent=1)


@pytest.mark.parametrize(
    "text",
    [
        as_json("idle", ["DRAIN"], reason="bad DIMM", reason_set_by_user="ops2",
                reason_changed_at=1772532306),
        as_json(["IDLE", "DRAIN"], reason="bad DIMM", reason_set_by_user="ops2",
                reason_changed_at={"set": True, "infinite": False, "number": 1772532306}),
        as_json("IDLE+DRAIN", reason="bad DIMM", reason_set_by_user="ops2"),
    ],
)  # fmt: skip
def test_json_of_three_releases(text: str) -> None:
    found = only(ticket(text)).facts
    assert (found["already_drained"], found["by"], found["reason"]) == (True, "ops2", "bad DIMM")
    assert found["drained"] == ["gpu-a01"]


def test_sinfo_json() -> None:
    text = json.dumps({"sinfo": [{
        "node": {"state": ["DOWN", "NOT_RESPONDING"]}, "nodes": {"nodes": ["n1", "n2"]},
        "reason": {"description": "fan"},
    }]}, indent=1)  # fmt: skip
    assert only(ticket(text)).facts["not_responding"] == ["n1", "n2"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("slurm_load_node error: Unable to contact slurm controller (connect failure)",
         "slurmctld does not answer"),
        ("sinfo: error: Munge encode failed: Failed to access socket", "munge does not answer"),
        ("scontrol: error: slurm_update error: Invalid user id", "not permitted"),
    ],
)  # fmt: skip
def test_commands_that_fail_are_unknown(line: str, said: str) -> None:
    diagnosis = ticket(line + "\n")
    assert diagnosis.verdict is Severity.UNKNOWN
    assert said in about(diagnosis, "slurm.controller").say


def test_five_thousand_nodes_are_read_and_named_folded() -> None:
    text = "".join(node(f"gpu{n:04}", "DOWN*" if n % 500 == 0 else "IDLE") for n in range(5000))
    found = only(ticket(text))
    assert found.facts["nodes"] == 5000
    assert len(found.findings) == 10
    assert "gpu[0000,0500" in found.say


def test_a_record_whose_indent_was_eaten() -> None:
    from tests.diagnose.support import path

    whole = path("slurm-existing-drain-running-job").read_text(encoding="utf-8")
    eaten = "\n".join(line.strip() for line in whole.splitlines())
    assert only(ticket(eaten)).facts == only(ticket(whole)).facts
