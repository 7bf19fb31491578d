"""`gpuconsole test`: the all-reduce on idle nodes of the real cluster, and what it leaves."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys

import pytest

from console.demo import sysfs
from tests.e2e.lab import QUICK, Site, ended, until
from tests.ssh.lab import alive

pytestmark = [pytest.mark.sshd, pytest.mark.slurm]


def test_an_idle_node_is_measured(site: Site) -> None:
    done = site.run("test", "n1", "--json", *QUICK)
    document = done.document
    (run,) = document["runs"]
    assert (run["group"]["nodes"], run["engine"], run["ranks"]) == (["n1"], "nccl-tests", 8)
    assert (run["state"], run["busbw_gb_s"]) == ("done", 458.31)
    assert done.code == 0, json.dumps(document["verdicts"])
    assert "busbw 458.31" in done.err, "progress is told while it runs"
    state = site.home / "state" / "gpuconsole"
    kept = json.loads((state / "tests" / f"{document['id']}.json").read_bytes())
    assert kept["campaign"]["runs"] == document["runs"]
    assert [line["what"] for line in site.audit] == ["intend", "outcome"]
    site.nothing_left()


def test_busy_nodes_are_refused_with_the_job(site: Site) -> None:
    job = site.slurm.submit("n1")
    gpu = site.gpus["n4"]
    sysfs.process(gpu.root, 4242, ["python", "train.py"])
    gpu.change(0, procs=[[4242, 40_000]])
    done = site.run("test", "n[1,3-4,6]", "--json", *QUICK)
    refused = done.document["refused"]
    assert job in refused["n1"]
    assert "python" in refused["n4"]
    assert "nccl_tests" in refused["n6"], "nothing to run there, so it is not even asked"
    assert [run["group"]["nodes"] for run in done.document["runs"]] == [["n3"]]
    assert done.code == 3
    asked = site.run("test", "n4", "--i-own-these-nodes", "--json", *QUICK)
    assert (asked.code, asked.out) == (64, ""), "nobody is there to confirm it"
    assert "python" in asked.err
    forced = site.run("test", "n4", "--i-own-these-nodes", "--yes", "--json", *QUICK)
    assert forced.document["runs"][0]["busbw_gb_s"] == 458.31


def test_a_dry_run_shows_the_order_and_sends_none(site: Site) -> None:
    done = site.run("test", "n[1-2]", "--dry-run", *QUICK)
    assert '"what":"nccl"' in done.out
    assert "all_reduce_perf" in done.out
    assert "no campaign" in site.run("test", "--list").out
    assert site.audit == []
    assert done.code == 0


def test_what_was_kept_is_listed(site: Site) -> None:
    assert "no campaign" in site.run("test", "--list").out
    done = site.run("test", "n1", "--json", *QUICK)
    assert done.document["id"] in site.run("test", "--list").out
    again = site.run("test", "--resume", "last")
    assert (again.code, again.out) == (64, ""), "none was interrupted"


def test_a_node_without_a_test_program_says_what_to_set(site: Site) -> None:
    text = site.inventory.read_text()
    cut = [line.partition(", nccl_tests")[0] + ("}" if ", nccl_tests" in line else "")
           for line in text.splitlines()]  # fmt: skip
    path = site.file("untested.yaml", "\n".join(cut) + "\n")
    done = site.run("test", "n1", "--json", *QUICK, inventory=path)
    assert "nccl_tests" in done.document["refused"]["n1"]
    assert done.code == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_test_that_is_broken_off_leaves_nothing_on_the_node(
    site: Site, number: signal.Signals
) -> None:
    text = site.inventory.read_text().replace("bin/all_reduce_perf", "bin/slow_all_reduce_perf")
    path = site.file("slow.yaml", text)
    with site.started("test", "n1", *QUICK, inventory=path) as console:
        until(lambda: len(site.named("sleep 30")) == 2, "the test and its child")
        pids = site.processes()
        assert len(pids) >= 4, "agent, program, two children"
        os.kill(console.pid, number)
        code, _, err = ended(console)
    assert code == (130 if number != signal.SIGKILL else -signal.SIGKILL)
    if number is signal.SIGINT:
        assert err.splitlines()[-1] == "gpuconsole: interrupted"
    site.nothing_left()
    assert not any(alive(pid) for pid in pids)


def torch_python() -> str | None:
    """An interpreter with torch: this one, or the one GPUCONSOLE_TORCH_PYTHON names."""
    if importlib.util.find_spec("torch") is not None:
        return sys.executable
    return os.environ.get("GPUCONSOLE_TORCH_PYTHON")


@pytest.mark.torch
@pytest.mark.skipif(torch_python() is None, reason="no torch here: pip install gpuconsole[torch]")
def test_a_real_all_reduce(site: Site) -> None:
    """Gloo over loopback, by the agent on this machine: torch may be readable by us only."""
    path = site.file("torch.yaml", f"defaults: {{torch_python: {torch_python()}}}\nlocal: true\n")
    here = site.run("inventory", "--json", inventory=path).document["nodes"][0]["name"]
    done = site.run("test", here, "--json", inventory=path)
    (run,) = done.document["runs"]
    assert (run["engine"], run["ranks"]) == ("torch-gloo", 2), run
    assert run["busbw_gb_s"] > 0
