"""The whole command against Kubernetes: plan, cordon, state and resume as typed."""

from __future__ import annotations

from typing import Any

from tests.kubernetes.api import Api


def test_plan_drain_and_resume(api: Api, command: Any) -> None:
    rc, (plan,) = command("drain", "gpu3", "-i", "k8s:", "--reason", "xid 79", "--dry-run")
    assert rc == 0, plan
    assert "--context=lab" in plan["commands"][0]
    assert not api.nodes["gpu3"]["spec"], "a dry run writes nothing"
    rc, done = command("drain", "gpu3", "-i", "k8s:lab", "--reason", "xid 79", "--yes")
    assert rc == 0, done
    assert api.nodes["gpu3"]["spec"]["unschedulable"] is True
    rc, done = command("resume", "gpu3", "-i", "k8s:lab", "--yes", "--despite-findings")
    assert rc == 0, done
    assert "unschedulable" not in api.nodes["gpu3"]["spec"]


def test_the_one_pass_document_shows_state_and_work(command: Any) -> None:
    _, (document,) = command("-i", "k8s:", "--timeout", "5")
    nodes = {node["name"]: node for node in document["nodes"]}
    assert nodes["gpu1"]["scheduler"]["state"] == "allocated"
    assert nodes["gpu1"]["scheduler"]["jobs"][0]["id"] == "team-a/Job/train"
    assert nodes["gpu3"]["verdict"] == "unknown", "not reached, so never ok"
