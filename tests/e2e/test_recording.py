"""`watch --json > FILE`, then `replay --json FILE`: the same cluster, the same verdicts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.lab import Site

pytestmark = [pytest.mark.sshd, pytest.mark.slurm]

SICK = {("n4", "gpu.lost"), ("n6", "node.unreachable"), ("n7", "node.host_key")}


def record(site: Site, number: signal.Signals = signal.SIGINT) -> Path:
    """Watch until every trouble of the cluster was told and all nodes answered twice."""
    path = site.folder / "run.ndjson"
    seen: set[tuple[str, str]] = set()
    looks: dict[str, int] = {}
    with site.started("-w", "n[1-4,6-7]", "watch", "--json") as console, path.open("wb") as out:
        assert console.stdout is not None
        for line in console.stdout:
            out.write(line)
            event = json.loads(line)
            if event["type"] == "finding":
                seen.add((event["node"], event["rule"]))
            if event["type"] == "sample" and event["probe"] == "host":
                looks[event["node"]] = looks.get(event["node"], 0) + 1
            if seen >= SICK and len(looks) == 4 and min(looks.values()) >= 2:
                break
        os.kill(console.pid, number)
        out.write(console.stdout.read())
        console.wait(250)
    return path


def recorded(path: Path) -> dict[str, set[tuple[str, str]]]:
    """Findings in force at the end of a recording: node -> (rule, severity)."""
    force: dict[tuple[str, str, str], str] = {}
    for line in path.read_text().splitlines():
        event = json.loads(line)
        if event["type"] == "finding":
            force[event["node"], event["rule"], event.get("device", "")] = event["severity"]
    found: dict[str, set[tuple[str, str]]] = {}
    for (node, rule, _), severity in force.items():
        if severity != "ok":
            found.setdefault(node, set()).add((rule, severity))
    return found


def judged(document: dict[str, Any]) -> dict[str, set[tuple[str, str]]]:
    """The same of a document."""
    return {
        node["name"]: {(f["rule"], f["severity"]) for f in node["findings"]}
        for node in document["nodes"]
        if node["findings"]
    }


def test_a_recording_is_judged_as_it_was(site: Site) -> None:
    site.gpus["n4"].change(3, rc={"*": 15})
    job = site.slurm.submit("n1")
    path = record(site)
    site.nothing_left()
    done = site.run("replay", "--json", str(path))
    assert judged(done.document) == recorded(path)
    verdicts = {node["name"]: node["verdict"] for node in done.document["nodes"]}
    assert [verdicts[name] for name in ("n4", "n6", "n7")] == ["critical", "unknown", "unknown"]
    assert {verdicts[name] for name in ("n1", "n2", "n3")} <= {"ok", "info"}
    assert done.code == 2
    assert [j["id"] for j in done.node("n1")["scheduler"]["jobs"]] == [job]

    whole = path.read_bytes()
    cut = whole[: whole.rindex(b"\n", 0, -1) + 40]
    path.write_bytes(cut)
    done = site.run("replay", "--json", str(path))
    assert done.code == 2
    lines = cut.count(b"\n") + 1
    assert done.err == f"{path}:{lines}: the last line is cut short; read up to there\n"
    path.write_bytes(cut + b"\n" + whole)
    done = site.run("replay", "--json", str(path))
    assert done.code == 64, "a broken line in the middle is no crash of the recorder"
    assert f"{path}:{lines}:" in done.err


def test_an_empty_or_foreign_file_is_one_line(desk: Site) -> None:
    for text, says in (("", "no Events"), ("{}", ":1"), ("half a li", ":1"), ("\n\n", "no Events")):
        done = desk.run("replay", "--json", desk.file("odd.ndjson", text))
        assert done.code == 64, text
        assert len(done.err.splitlines()) == 1
        assert says in done.err


@pytest.mark.parametrize("command", [("--json",), ("watch", "--json"), ("schema",)])
def test_stdout_on_a_full_disk_is_told(desk: Site, command: tuple[str, ...]) -> None:
    argv = desk.argv(["-w", "n1", *command])
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, timeout=250,
            check=False, env=desk.environment, text=True,
        )  # fmt: skip
    assert done.returncode == 3
    assert len(done.stderr.splitlines()) == 1
    assert "No space left" in done.stderr
    desk.nothing_left()
