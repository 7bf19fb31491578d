"""`gpuconsole --json` on the embedded cluster: real command line, real SSH, real agents."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from console.output import Document
from tests.payload.rig import until
from tests.processes import alive, descendants, gone

Answer = tuple[int, dict[str, Any]]
Start = Callable[..., subprocess.Popen[bytes]]
COMMAND = [sys.executable, "-m", "console.cli", "--demo", "--nodes", "16"]


@pytest.fixture(scope="module")
def answer() -> tuple[int, dict[str, Any]]:
    """Exit code and document of one pass over the default story; a busy machine has its time."""
    command = [*COMMAND, "--json", "--timeout", "200"]
    done = subprocess.run(command, capture_output=True, timeout=280, check=False)
    return done.returncode, json.loads(done.stdout)


def verdicts(document: dict[str, Any]) -> dict[str, str]:
    return {node["name"]: node["verdict"] for node in document["nodes"]}


def rules(document: dict[str, Any], name: str) -> set[str]:
    (node,) = [node for node in document["nodes"] if node["name"] == name]
    return {finding["rule"] for finding in node["findings"]}


def test_every_node_is_there_in_natural_order(answer: Answer) -> None:
    _, document = answer
    assert [node["name"] for node in document["nodes"]] == [f"gpu{n:03}" for n in range(1, 17)]
    assert sum(document["counts"].values()) == 16


def test_the_exit_code_is_the_verdict(answer: Answer) -> None:
    code, document = answer
    assert document["verdict"] == "critical"
    assert code == 2


def test_the_faults_of_the_story_are_named_and_nothing_else(answer: Answer) -> None:
    _, document = answer
    found = verdicts(document)
    assert found["gpu005"] == "critical"  # fell off the bus
    assert found["gpu014"] == "unknown"  # refuses connections
    assert found["gpu003"] == "warn"  # thermal straggler
    assert found["gpu012"] == "warn"  # row remap pending
    assert found["gpu008"] in ("warn", "critical")  # link flaps
    healthy = {name for name, verdict in found.items() if verdict in ("ok", "info")}
    assert healthy == {f"gpu{n:03}" for n in (1, 2, 4, 6, 7, 9, 10, 11, 13, 15)}


def test_a_finding_carries_evidence_cause_next_step_and_source(answer: Answer) -> None:
    _, document = answer
    for node in document["nodes"]:
        for finding in node["findings"]:
            if finding["severity"] in ("warn", "critical", "unknown"):
                for field in ("say", "evidence", "cause", "next_step", "source"):
                    assert finding.get(field), (node["name"], finding)


def test_the_unreachable_node_says_why(answer: Answer) -> None:
    _, document = answer
    (node,) = [node for node in document["nodes"] if node["name"] == "gpu014"]
    assert node["status"]["state"] == "unreachable"
    assert node["status"]["reason"] == "refused"
    assert node["status"]["hint"]
    assert node["gpus"] == []


def test_the_document_is_of_the_published_shape(answer: Answer) -> None:
    import msgspec

    _, document = answer
    assert msgspec.convert(document, Document).schema == document["schema"]


def test_efficiency_is_an_estimate_and_absent_where_nothing_is_known(answer: Answer) -> None:
    _, document = answer
    told = {node["name"]: node.get("efficiency") for node in document["nodes"]}
    busy = told["gpu001"]
    assert busy["note"].startswith("estimate")
    assert busy["gpus"] == 8
    assert 0 < busy["hfu_est_percent"] <= 100
    assert busy["tflops"] / busy["watts"] == pytest.approx(busy["tflops_per_w"], abs=0.001)
    absent = {node["name"] for node in document["nodes"] if "efficiency" not in node}
    assert {"gpu014", "gpu016"} <= absent, "one does not answer, one has no work"


def test_fail_on_turns_lesser_trouble_into_zero() -> None:
    done = subprocess.run(
        [*COMMAND, "-w", "gpu012", "--json", "--fail-on", "critical", "--timeout", "200"],
        capture_output=True,
        timeout=280,
        check=False,
    )
    assert verdicts(json.loads(done.stdout)) == {"gpu012": "warn"}
    assert done.returncode == 0


def lines_of(process: subprocess.Popen[bytes]) -> Iterator[bytes]:
    """Its lines; an end before the test has seen enough is a failure that shows stderr."""
    assert process.stdout is not None
    while line := process.stdout.readline():
        yield line
    assert process.stderr is not None
    pytest.fail(f"it ended: {process.stderr.read().decode(errors='replace')}")


@pytest.fixture
def console() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts command lines and leaves none behind."""
    running: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        running.append(
            subprocess.Popen(
                [*COMMAND, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        )
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.communicate(timeout=250)


def test_a_reader_that_leaves_early_ends_it_quietly(console: Start) -> None:
    process = console("watch", "--json")
    assert next(lines_of(process)).startswith(b"{")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=250) == 0
    process.stdout = None


def test_watch_streams_events_and_findings(console: Start) -> None:
    process = console("-w", "gpu005", "watch", "--json")
    kinds: dict[str, list[dict[str, Any]]] = {}
    for line in lines_of(process):
        event = json.loads(line)
        kinds.setdefault(event["type"], []).append(event)
        if "finding" in kinds and "allocation" in kinds:
            break
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=250)
    assert process.returncode == 130
    assert {event["node"] for events in kinds.values() for event in events} == {"gpu005"}
    assert any(finding["severity"] == "critical" for finding in kinds["finding"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_no_agent_is_left_whatever_ends_it(console: Start, number: signal.Signals) -> None:
    process = console("watch", "--json")
    for line in lines_of(process):
        if b'"probe":"gpu"' in line:
            break
    assert until(lambda: len(descendants(process.pid)) >= 10)
    agents = descendants(process.pid)
    os.kill(process.pid, number)
    process.communicate(timeout=250)
    assert gone(agents), [pid for pid in agents if alive(pid)]
