"""`gpuconsole --json` over a cluster of real parts, half of it broken as clusters do break."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import msgspec
import pytest

from console.output import Document
from tests.e2e.lab import HEALTHY, QUICK, SICK, Site

pytestmark = [pytest.mark.sshd, pytest.mark.slurm]


def rules(node: dict[str, Any]) -> set[str]:
    return {finding["rule"] for finding in node["findings"]}


def test_every_node_is_named_with_its_reason_and_delays_nobody(site: Site) -> None:
    job = site.slurm.submit("n1", name="train")
    done = site.run("--json", "--timeout", "60")
    document = done.document
    assert done.code == 3
    assert done.err == ""
    assert [node["name"] for node in document["nodes"]] == [*HEALTHY, *SICK]
    assert document["counts"] == {"ok": 4, "info": 0, "warn": 0, "critical": 0, "unknown": 4}
    reasons = {name: done.node(name)["status"]["reason"] for name in SICK}
    assert reasons == {"n5": "silent", "n6": "refused", "n7": "host_key", "n8": "no_python"}
    for name in SICK:
        node = done.node(name)
        assert node["verdict"] == "unknown"
        assert node["status"]["text"]
        assert node["status"]["hint"]
        assert node["gpus"] == []
    for name in HEALTHY:
        assert len(done.node(name)["gpus"]) == 8
        assert done.node(name)["verdict"] == "ok"
    assert document["duration_s"] < 2 * 60
    assert document["cluster"] == "lab"
    assert document["errors"] == []
    busy = done.node("n1")["scheduler"]
    assert busy["state"] == "mixed"
    assert [(j["id"], j["user"], j["name"]) for j in busy["jobs"]] == [(job, "root", "train")]
    assert all(done.node(name)["scheduler"]["state"] == "idle" for name in (*HEALTHY[1:], *SICK))


def test_the_document_has_the_published_shape(site: Site) -> None:
    done = site.run("-w", "n[1-2]", "--json", *QUICK)
    assert done.code == 0
    document = msgspec.json.decode(done.out, type=Document)
    assert [node.name for node in document.nodes] == ["n1", "n2"]
    schema = site.run("schema").document
    assert set(schema["$defs"]["Document"]["properties"]) == set(done.document)
    assert set(schema["$defs"]["Document"]["required"]) <= set(done.document)


@pytest.mark.parametrize(
    ("fault", "verdict", "rule", "code"),
    [
        ({"rc": {"*": 15}}, "critical", "gpu.lost", 2),
        ({"remap": [0, 1, 1, 0]}, "warn", "remap", 1),
        ({"ecc_vol_ue": 3, "ecc_agg_ue": 3}, "critical", "ecc", 2),
    ],
)
def test_one_sick_gpu_decides_about_its_node_only(
    site: Site, fault: dict[str, Any], verdict: str, rule: str, code: int
) -> None:
    site.gpus["n4"].change(3, **fault)
    done = site.run("-w", "n[3-4]", "--json", *QUICK)
    assert done.node("n3")["verdict"] == "ok"
    assert len(done.node("n4")["gpus"]) == 8, "one GPU never hides the others"
    assert done.node("n4")["verdict"] == verdict
    assert any(rule in name for name in rules(done.node("n4")))
    assert done.code == code


def test_a_hung_driver_call_is_named_and_the_pass_ends(site: Site) -> None:
    site.gpus["n4"].change(2, hang={"nvmlDeviceGetPowerUsage": 3600})
    done = site.run("-w", "n[3-4]", "--json", "--timeout", "200", "--window", "0.1")
    sick = done.node("n4")
    assert done.node("n3")["verdict"] == "ok"
    assert sick["verdict"] in ("critical", "unknown")
    (finding,) = [finding for finding in sick["findings"] if finding["rule"] == "driver.hung"]
    assert "nvmlDeviceGetPowerUsage" in " ".join(finding["evidence"])
    assert done.document["duration_s"] < 150
    site.nothing_left()


def test_fail_on_and_a_missing_gpu(site: Site) -> None:
    gpus = site.gpus["n4"]
    gpus.state["gpus"] = gpus.state["gpus"][:7]
    gpus.change()
    done = site.run("-w", "n4", "--json", *QUICK)
    assert done.node("n4")["verdict"] == "critical"
    assert done.code == 2
    assert site.run("-w", "n4", "--json", "--fail-on", "unknown", *QUICK).code in (0, 2)


def test_a_silent_slurm_costs_its_column_only(site: Site) -> None:
    """slurmctld stopped: nodes are judged as ever, and the trouble is told."""
    with site.slurm.suspended("slurmctld"):
        done = site.run("-w", "n[1-3]", "--json", *QUICK)
    assert [node["verdict"] for node in done.document["nodes"]] == ["ok", "ok", "ok"]
    assert [node["scheduler"] for node in done.document["nodes"]] == [None, None, None]
    (error,) = done.document["errors"]
    assert error.startswith("slurm: ")
    assert done.code == 3, "half an answer is not a good one"


def test_a_reader_that_left_ends_it_quietly(site: Site) -> None:
    read, write = os.pipe()
    os.close(read)
    argv = site.argv(["-w", "n1", "--json", *QUICK])
    with os.fdopen(write, "wb") as out:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE, timeout=280,
            check=False, env=site.environment,
        )  # fmt: skip
    assert done.returncode == 0
    assert done.stderr == b""
    site.nothing_left()
