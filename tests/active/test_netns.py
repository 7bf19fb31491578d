"""Real agents over real sshd on nodes of their own network, real all-reduces, a link that is slow.

What is asserted is who is named and what is left behind, never how fast it was.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.active.netlab import MARK, NetLab
from tests.ssh.lab import wait_for

pytestmark = [
    pytest.mark.netns,
    pytest.mark.sshd,
    pytest.mark.torch,
    # The longest took 56 s on two cores that others used too: eight runs, each starts torch twice.
    pytest.mark.timeout(900),
]

WORKER = "--collective"
"""In the command line of a rank."""
WAIT_S = 250.0


def kept(net: NetLab) -> dict[str, Any]:
    """The campaign as it lies in its file; {} before there is one."""
    for path in net.tests.glob("*.json"):
        found: dict[str, Any] = json.loads(path.read_bytes())["campaign"]
        return found
    return {}


def done(net: NetLab) -> int:
    """Runs that are done, by the file."""
    return sum(run["state"] == "done" for run in kept(net).get("runs", []))


def ranks(net: NetLab, name: str) -> list[int]:
    """Ranks that run on a node."""
    mark = f"{MARK}={net.spaces[name]}".encode()
    found = []
    for pid in net.left(WORKER):
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if mark in environment and any(word.startswith(b"RANK=") for word in environment):
            found.append(pid)
    return found


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=WAIT_S)
    return process.returncode, out.decode(), err.decode()


def test_a_rank_that_is_killed_fails_its_run_and_is_named(net: NetLab) -> None:
    process = net.start(net.inventory(), "n[1-2]", "--level", "pairs", "--size", "1G", "--json")
    wait_for(lambda: ranks(net, "n1") and ranks(net, "n2"), WAIT_S, "ranks on both nodes")
    os.kill(ranks(net, "n2")[0], signal.SIGKILL)
    wait_for(
        lambda: any(run["state"] == "failed" for run in kept(net).get("runs", [])),
        WAIT_S, f"a failed run in {kept(net)}",
    )  # fmt: skip
    first = next(run for run in kept(net)["runs"] if run["state"] == "failed")
    assert "n2" in first["error"]
    process.send_signal(signal.SIGTERM)
    assert ended(process)[0] in (130, 2, 3)
    net.nothing_left()


def test_interrupted_it_leaves_nothing_goes_on_later_and_names_the_slow_node(net: NetLab) -> None:
    """One campaign for both: each of its runs starts torch twice, which is what takes the time."""
    net.slow("n2")
    inventory = net.inventory()
    process = net.start(
        inventory, "n[1-3]", "--level", "pairs", "--size", "1M", "--seed", "1", "--json"
    )
    wait_for(lambda: done(net) >= 1 and net.left(WORKER), WAIT_S, "a first and a second run")
    os.kill(process.pid, signal.SIGINT)
    code, out, err = ended(process)
    document = json.loads(out)
    assert code == 130, err
    assert document["interrupted"]
    states = [run["state"] for run in document["runs"]]
    assert "done" in states
    assert "--resume" in err
    net.nothing_left()

    code, found, err = net.run(inventory, "--resume", "last")
    assert found["id"] == document["id"]
    assert not found["interrupted"]
    before = [run for run in document["runs"] if run["state"] == "done"]
    assert found["runs"][: len(before)] == before, "what was done is not run again"
    assert {run["state"] for run in found["runs"]} == {"done"}, err
    assert {run["engine"] for run in found["runs"]} == {"torch-gloo"}
    met = {tuple(sorted(run["group"]["nodes"])) for run in found["runs"]}
    assert met == {("n1", "n2"), ("n1", "n3"), ("n2", "n3")}
    bad = [v for v in found["verdicts"] if v["verdict"] in ("warn", "critical")]
    assert [(v["kind"], v["nodes"]) for v in bad] == [("node", ["n2"])], bad
    assert found["exclude"] == "n2"
    assert code == 2
    assert kept(net)["verdict"] == "critical"
    net.nothing_left()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
def test_nothing_runs_on_once_the_console_is_gone(net: NetLab, number: signal.Signals) -> None:
    process = net.start(net.inventory(), "n[1-2]", "--level", "pairs", "--size", "1G")
    wait_for(lambda: ranks(net, "n1") and ranks(net, "n2"), WAIT_S, "ranks on both nodes")
    os.kill(process.pid, number)
    net.nothing_left()
    assert ended(process)[0] == (130 if number is signal.SIGHUP else -signal.SIGKILL)
