"""`gpuconsole drained` against a real Slurm: owners, ages, running jobs, nobody else's business."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.lab import QUICK, Site, ended
from tests.slurm.lab import wait_until

pytestmark = [pytest.mark.sshd, pytest.mark.slurm]


def listed(site: Site) -> dict[str, dict[str, Any]]:
    done = site.run("drained", "--json")
    assert done.code == 0, done.err
    return {node["node"]: node for node in done.document["nodes"]}


def test_nothing_is_out(site: Site) -> None:
    done = site.run("drained")
    assert done.code == 0
    assert done.out == "no node is out of work\n"


def test_ours_theirs_and_the_busy_one(site: Site) -> None:
    job = site.slurm.submit("n2")
    site.run("drain", "n1", "--reason", "xid 79", "--yes", "--no-evidence", *QUICK)
    site.run("drain", "n2", "--reason", "slow", "--yes", "--count", "1", "--no-evidence", *QUICK)
    site.slurm.ok("scontrol", "update", "NodeName=n4", "State=DRAIN", "Reason=bad DIMM")
    found = listed(site)
    assert set(found) == {"n1", "n2", "n4"}
    assert (found["n1"]["state"], found["n1"]["ours"]) == ("drained", True)
    assert found["n1"]["next"] == "idle: safe to work on"
    assert found["n1"]["since_s"] < 600
    assert (found["n2"]["state"], found["n2"]["jobs"]) == ("draining", [job])
    assert job in found["n2"]["next"]
    assert (found["n4"]["reason"], found["n4"]["ours"]) == ("bad DIMM", False)
    text = site.run("drained").out
    assert "gpuconsole: xid 79" in text
    assert "bad DIMM" in text


def test_a_scheduler_that_does_not_answer_is_no_empty_list(site: Site) -> None:
    path = site.file("elsewhere.yaml", "hosts: n1\nscheduler: kubernetes:no-such-context\n")
    done = site.run("drained", "--json", inventory=path)
    assert done.code == 3
    assert done.document["errors"]


def test_waiting_for_the_jobs_of_a_drained_node(site: Site) -> None:
    """The job ends while we wait: the command ends then, and says that the node is free."""
    job = site.slurm.submit("n2")
    words = ("drain", "n2", "--reason", "swap", "--yes", "--no-evidence", *QUICK)
    late = site.run(*words, "--wait", "1")
    assert late.code == 3
    assert "still draining" in late.err
    site.slurm.ok("scontrol", "update", "NodeName=n2", "State=RESUME")
    with site.started(*words, "--wait", "100") as console:
        wait_until(lambda: site.slurm.words()["n2"].startswith("drain"), "the drain")
        site.slurm.ok("scancel", job)
        code, _, err = ended(console)
    assert code == 0, err
    assert "n2: drained: safe to work on" in err
