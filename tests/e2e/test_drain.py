"""`gpuconsole drain` and `resume` against a real slurmctld, with real nodes behind it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.e2e.lab import QUICK, Site
from tests.slurm.lab import wait_until

pytestmark = [pytest.mark.sshd, pytest.mark.slurm]

NOBODY = 65534


def reason(site: Site, node: str) -> str:
    """The reason as sinfo has it."""
    return site.slurm.ok("sinfo", "-h", "-N", "-p", "gpu", "-n", node, "-o", "%E").strip("\n")


def audited(site: Site) -> list[tuple[str, str, str]]:
    """What, verb and node of every audit line."""
    return [(line["what"], line["verb"], line["node"]) for line in site.audit]


def test_dry_run_shows_the_plan_and_does_nothing(site: Site) -> None:
    done = site.run("drain", "n1", "--reason", "xid 79 on GPU3", "--dry-run", *QUICK)
    assert done.code == 0
    assert done.out == ""
    assert "scontrol update NodeName=n1 State=DRAIN" in done.err
    assert "looks healthy" in done.err
    assert site.slurm.words()["n1"] == "idle"
    assert site.audit == []
    plan = site.run("drain", "n1", "--reason", "x", "--dry-run", "--json", *QUICK).document
    assert plan["nodes"] == ["n1"]
    assert plan["commands"] == [
        ["scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=gpuconsole: x"]
    ]


def test_drain_and_resume_of_a_healthy_node_leave_an_audit_trail(site: Site) -> None:
    done = site.run("drain", "n1", "--reason", "row remap", "--yes", *QUICK)
    assert done.code == 0, done.err
    assert "n1: done: drained" in done.err
    assert site.slurm.words()["n1"] == "drained"
    assert reason(site, "n1") == "gpuconsole: row remap"
    assert audited(site) == [
        ("intend", "drain", "n1"), ("outcome", "drain", "n1"), ("reading", "drain", "n1"),
    ]  # fmt: skip
    intend, outcome, reading = site.audit
    assert intend["who"]["user"]
    assert intend["reason"] == "row remap"
    assert intend["allocation"]["state"] == "idle"
    path, _, digest = intend["evidence"].partition(" sha256=")
    assert hashlib.sha256(Path(path).read_bytes()).hexdigest() == digest
    with tarfile.open(path) as bundle:
        names = {member.name.partition("/")[2] for member in bundle}
    assert {"manifest.json", "findings.json", "node/port-counters.txt"} <= names
    assert outcome["ok"] is True
    assert reading["allocation"]["state"] == "drained"
    assert os.stat(site.home / "state" / "gpuconsole" / "audit.jsonl").st_mode & 0o077 == 0

    done = site.run("resume", "n1", "--yes", "--json", *QUICK)
    assert done.code == 0, done.err
    assert {step["type"] for step in done.lines} == {"step"}
    assert [step["phase"] for step in done.lines if step["node"] == "n1"][-1] == "done"
    assert site.slurm.words()["n1"].rstrip("*") == "idle"
    assert audited(site)[3:] == [
        ("intend", "resume", "n1"), ("outcome", "resume", "n1"), ("reading", "resume", "n1"),
    ]  # fmt: skip


def test_a_busy_node_is_draining_until_its_job_ends(site: Site) -> None:
    job = site.slurm.submit("n2")
    done = site.run("drain", "n2", "--reason", "slow", "--yes", "--json", *QUICK)
    assert done.code == 0, done.err
    assert done.lines[-1]["detail"].startswith("draining")
    assert f"still runs {job} (root)" in done.lines[-1]["detail"]
    assert site.slurm.words()["n2"] == "draining"
    again = site.run("drain", "n2", "--reason", "slow", "--yes", *QUICK)
    assert "already draining by us" in again.err
    site.slurm.cancel(job)
    wait_until(lambda: site.slurm.words()["n2"] == "drained", "drained after the job")
    assert site.run("-w", "n2", "--json", *QUICK).node("n2")["scheduler"]["state"] == "drained"


def test_somebody_elses_reason_is_kept(site: Site) -> None:
    site.slurm.ok("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=bad DIMM, ordered")
    done = site.run("drain", "n1", "--reason", "xid 94", "--yes", *QUICK)
    assert done.code == 3
    assert "bad DIMM, ordered" in done.err
    assert reason(site, "n1") == "bad DIMM, ordered"
    assert site.audit == []
    done = site.run("resume", "n1", "--yes", *QUICK)
    assert done.code == 3
    assert "not by us" in done.err
    assert site.slurm.words()["n1"] == "drained"
    done = site.run("drain", "n1", "--reason", "xid 94", "--yes", "--override", *QUICK)
    assert done.code == 0, done.err
    assert reason(site, "n1") == "gpuconsole: xid 94 (kept from root: bad DIMM, ordered)"


def test_nothing_to_do_is_told_in_json_too(site: Site) -> None:
    site.slurm.ok("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=theirs")
    done = site.run("drain", "n1", "--reason", "x", "--yes", "--json", *QUICK)
    assert done.code == 3
    assert [(s["node"], s["phase"], s["ok"]) for s in done.lines] == [("n1", "refused", False)]
    assert "theirs" in done.lines[0]["detail"]


def test_only_part_of_the_nodes_can_be_drained(site: Site) -> None:
    """One foreign node among two: the other is drained, the exit status says not all."""
    site.slurm.ok("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=theirs")
    done = site.run("drain", "n[1-2]", "--reason", "x", "--yes", "--json", *QUICK)
    assert done.code == 3
    assert {step["node"]: step["phase"] for step in done.lines} == {"n1": "refused", "n2": "done"}
    assert site.slurm.words()["n2"] == "drained"
    assert reason(site, "n1") == "theirs"


def test_above_the_cap_the_number_must_be_typed(site: Site) -> None:
    """Two of eight nodes are more than a fifth."""
    for typed in ((), ("--count", "3")):
        done = site.run("drain", "n[1-2]", "--reason", "x", "--yes", *typed, *QUICK)
        assert done.code == 64
        assert "--count 2" in done.err.splitlines()[-1]
    assert set(site.slurm.words().values()) == {"idle"}
    assert site.audit == []
    done = site.run("drain", "n1", "--reason", "x", "--yes", "--count", "2", *QUICK)
    assert done.code == 64, "a number that is wrong is a mistake, asked for or not"
    assert set(site.slurm.words().values()) == {"idle"}
    done = site.run("drain", "n[1-2]", "--reason", "x", "--yes", "--count", "2", *QUICK)
    assert done.code == 0, done.err
    assert site.slurm.words()["n2"] == "drained"


@pytest.mark.parametrize("verb", [("drain", "--reason", "x"), ("resume",)])
def test_a_node_that_is_not_in_the_inventory_is_a_typing_error(
    site: Site, verb: tuple[str, ...]
) -> None:
    done = site.run(verb[0], "n[1,12]", *verb[1:], "--yes", *QUICK)
    assert done.code == 64
    assert len(done.err.splitlines()) == 1
    assert "n12" in done.err
    assert set(site.slurm.words().values()) == {"idle"}


@pytest.mark.parametrize("verb", [("drain", "--reason", "x"), ("resume",)])
def test_read_only_refuses(site: Site, verb: tuple[str, ...]) -> None:
    done = site.run("--read-only", verb[0], "n1", *verb[1:], "--yes", *QUICK)
    assert done.code == 64
    assert len(done.err.splitlines()) == 1
    assert "--read-only" in done.err


def test_slurm_refuses_an_ordinary_user(site: Site) -> None:
    """scontrol gives up its rights; the interpreter may lie where only root can run it."""
    programs = site.folder / "programs"
    programs.mkdir(exist_ok=True)
    real = subprocess.run(["which", "scontrol"], capture_output=True, text=True, check=True)
    wrapper = programs / "scontrol"
    drop = f"setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups"
    wrapper.write_text(f'#!/bin/sh\nexec {drop} {real.stdout.strip()} "$@"\n')
    wrapper.chmod(0o755)
    path = f"{programs}:{site.environment['PATH']}"
    done = site.run("drain", "n1", "--reason", "x", "--yes", *QUICK, env={"PATH": path})
    assert done.code == 3
    assert "not permitted to change nodes" in done.err
    assert site.slurm.words()["n1"] == "idle"
    outcome = [line for line in site.audit if line["what"] == "outcome"]
    assert [line["ok"] for line in outcome] == [False]


def test_slurm_down_is_one_line_and_exit_3(site: Site) -> None:
    site.slurm.stop("slurmctld")
    for verb in (("drain", "n1", "--reason", "x"), ("resume", "n1")):
        done = site.run(*verb, "--yes", *QUICK)
        assert done.code == 3
        assert len(done.err.splitlines()) == 1, done.err
        assert "slurmctld does not answer" in done.err
    assert site.audit == []


def test_resume_asks_the_node_first(site: Site) -> None:
    site.run("drain", "n4", "--reason", "gpu lost", "--yes", *QUICK)
    site.gpus["n4"].change(3, rc={"*": 15})
    done = site.run("resume", "n4", "--yes", *QUICK)
    assert done.code == 3
    assert "still critical" in done.err
    assert site.slurm.words()["n4"] == "drained"
    site.gpus["n4"].heal()
    done = site.run("resume", "n4", "--yes", *QUICK)
    assert done.code == 0, done.err
    assert site.slurm.words()["n4"].rstrip("*") == "idle"


def test_a_node_that_does_not_answer_is_drained_but_not_resumed(site: Site) -> None:
    done = site.run("drain", "n6", "--reason", "dead", "--yes", *QUICK)
    assert done.code == 0, done.err
    done = site.run("resume", "n6", "--yes", *QUICK)
    assert done.code == 3
    assert "still unknown" in done.err
    assert site.slurm.words()["n6"] == "drained"
    done = site.run("resume", "n6", "--yes", "--despite-findings", *QUICK)
    assert done.code == 0, done.err
    assert site.slurm.words()["n6"].rstrip("*") == "idle"


def test_a_state_folder_that_is_a_file_stops_the_drain(site: Site) -> None:
    blocked = site.file("blocked", "")
    env = {"XDG_STATE_HOME": blocked}
    done = site.run("drain", "n1", "--reason", "x", "--yes", *QUICK, env=env)
    assert done.code == 3
    assert done.err.splitlines()[-1].endswith("nothing was done")
    assert site.slurm.words()["n1"] == "idle"
    assert site.run("-w", "n1", "--json", *QUICK, env=env).code == 0, (
        "looking needs no state folder"
    )


def test_a_full_disk_stops_the_drain_before_it_does_anything(site: Site) -> None:
    """A file system of one page, filled to the last byte."""
    state = site.folder / "tiny"
    state.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(state)], check=True)
    try:
        (state / "gpuconsole").mkdir()
        subprocess.run(
            ["dd", "if=/dev/zero", f"of={state}/filler", "bs=4k"], check=False, capture_output=True
        )
        env = {"XDG_STATE_HOME": str(state)}
        done = site.run("drain", "n1", "--reason", "x", "--yes", *QUICK, env=env)
        assert done.code == 3
        assert "audit" in done.err.splitlines()[-1]
        assert "nothing was done" in done.err
        assert site.slurm.words()["n1"] == "idle"
        assert (state / "gpuconsole" / "audit.jsonl").read_bytes() == b""
    finally:
        subprocess.run(["umount", str(state)], check=True)


def test_a_disk_that_gets_full_on_the_way_is_told_and_spoils_no_line(site: Site) -> None:
    """Room for what is intended, not for how it went: it is done, and said to be unrecorded."""
    site.run("drain", "n1", "--reason", "first", "--yes", *QUICK)
    file = site.home / "state" / "gpuconsole" / "audit.jsonl"
    intended = len(file.read_bytes().splitlines(keepends=True)[0])
    room = file.stat().st_size + intended + 60
    done = site.run(
        "drain", "n3", "--reason", "first", "--yes", "--count", "1", *QUICK,
        before=("prlimit", f"--fsize={room}"),
    )  # fmt: skip
    assert site.slurm.words()["n3"] == "drained"
    assert done.code == 3
    assert "n3: done" in done.err
    assert "not recorded" in done.err
    assert file.read_bytes().endswith(b"\n"), "no part of a line stays"
    done = site.run("resume", "n3", "--yes", *QUICK)
    assert done.code == 0, done.err
    whole = [json.loads(line) for line in file.read_bytes().splitlines()]
    assert [line["what"] for line in whole if line["node"] == "n3"] == [
        "intend", "intend", "outcome", "reading",
    ]  # fmt: skip
