"""`--json --drain-on critical`: off without a policy, hard caps, hardware evidence only."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.lab import QUICK, Site

pytestmark = [pytest.mark.sshd, pytest.mark.slurm]

AUTO = ("--json", "--drain-on", "critical", "-x", "n[5-8]", *QUICK)
"""The four nodes that answer: the others are unknown, which drains nobody."""
LOST = 15


def policy(site: Site, text: str) -> None:
    """The operator's own policy file."""
    path = site.home / "config" / "gpuconsole" / "policy.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o600)


def lose(site: Site, *names: str) -> None:
    """A GPU of each falls off the bus."""
    for name in names:
        site.gpus[name].change(2, rc={"*": LOST})


def report(done: Any) -> dict[str, Any]:
    found: dict[str, Any] = done.document["automatic"]
    return found


def test_without_a_policy_nothing_is_even_asked(site: Site) -> None:
    lose(site, "n1")
    done = site.run(*AUTO)
    assert done.code == 64
    assert "no policy allows automatic drains" in done.err
    assert done.out == ""
    assert site.slurm.words()["n1"] == "idle"


def test_a_node_with_a_lost_gpu_is_drained_with_its_evidence(site: Site) -> None:
    policy(site, "automatic: {max_nodes: 1, max_share: 0.5}\n")
    lose(site, "n3")
    dry = site.run(*AUTO, "--dry-run")
    assert report(dry)["drained"] == ["n3"]
    assert report(dry)["dry_run"] is True
    assert site.slurm.words()["n3"] == "idle"
    assert site.audit == []
    done = site.run(*AUTO)
    assert done.code == 2, "the node is sick, drained or not"
    assert report(done)["drained"] == ["n3"]
    assert site.slurm.words()["n3"] == "drained"
    intend = site.audit[0]
    assert intend["reason"].startswith("auto: ")
    assert "GPU2" in intend["reason"]
    assert "sha256=" in intend["evidence"]
    assert "drained n3" in done.err.splitlines()[-1]
    again = site.run(*AUTO)
    assert report(again)["drained"] == []
    assert len(site.audit) == 3, "what is out already is left alone"


def test_more_sick_nodes_than_the_caps_leave_room_for(site: Site) -> None:
    policy(site, "automatic: {max_nodes: 1, max_share: 0.5}\n")
    lose(site, "n1", "n3")
    done = site.run(*AUTO)
    assert report(done)["drained"] == []
    assert set(report(done)["refused"]) == {"n1", "n3"}
    assert "common cause" in done.err
    assert {site.slurm.words()[name] for name in ("n1", "n3")} == {"idle"}


def test_drains_of_people_count(site: Site) -> None:
    policy(site, "automatic: {max_nodes: 1, max_share: 0.5}\n")
    assert site.run("drain", "n4", "--reason", "swap", "--yes", *QUICK).code == 0
    lose(site, "n1")
    assert report(site.run(*AUTO))["drained"] == []
    assert site.slurm.words()["n1"] == "idle"


def test_rules_that_the_policy_does_not_name(site: Site) -> None:
    policy(site, "automatic: {max_nodes: 2, max_share: 0.5, rules: [xid.79]}\n")
    lose(site, "n1")
    assert report(site.run(*AUTO))["drained"] == []


def test_what_is_soft_or_unknown_drains_nobody(site: Site) -> None:
    """A hot GPU is warn, and a node that does not answer is unknown: neither is evidence."""
    policy(site, "automatic: {max_nodes: 4, max_share: 0.5}\n")
    site.gpus["n1"].change(0, temp=95, reasons=0x20)
    done = site.run("--json", "--drain-on", "critical", *QUICK)
    assert report(done)["drained"] == []
    assert "nothing" in report(done)["summary"]


def test_read_only_wins(site: Site) -> None:
    policy(site, "automatic: {max_nodes: 1, max_share: 0.5}\n")
    lose(site, "n1")
    done = site.run(*AUTO, "--read-only")
    assert report(done)["drained"] == []
    assert "--read-only" in report(done)["refused"]["n1"]
    assert site.slurm.words()["n1"] == "idle"


def test_a_wrong_policy_stops_every_drain(site: Site) -> None:
    policy(site, "automatic: {max_nodes: lots, max_share: 0.5}\n")
    assert site.run(*AUTO).code == 64
    done = site.run("drain", "n1", "--reason", "x", "--yes", *QUICK)
    assert done.code == 64
    assert "policy.yaml:1" in done.err
    assert site.slurm.words()["n1"] == "idle"
