"""The demo remembers in its own state, and `gpuconsole history` reads it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path


def console(state: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "console.cli", *arguments], capture_output=True, timeout=250,
        check=False, env={**os.environ, "XDG_STATE_HOME": str(state)}, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_two_passes_are_one_history(tmp_path: Path) -> None:
    rules = set()
    for _ in range(2):
        done = console(
            tmp_path, "--demo", "--nodes", "6", "--json", "--read-only", "--timeout", "200"
        )
        assert done.returncode == 2, done.stderr
        nodes = {node["name"]: node for node in json.loads(done.stdout)["nodes"]}
        rules = {finding["rule"] for finding in nodes["gpu005"]["findings"]}
    assert "gpu.lost" in rules
    state = tmp_path / "gpuconsole"
    assert (state / "demo" / "memory.sqlite").stat().st_mode & 0o777 == 0o600
    assert not (state / "memory.sqlite").exists(), "what the demo shows is of no real node"

    told = console(tmp_path, "history", "gpu[001-006]", "--demo", "--json")
    assert told.returncode == 0, told.stderr
    history = {node["node"]: node for node in json.loads(told.stdout)["nodes"]}
    found = {one["rule"]: one for one in history["gpu005"]["findings"]}
    assert rules <= found.keys()
    assert found["gpu.lost"]["times"] == 1
    assert found["gpu.lost"]["open"] is True
    assert history["gpu005"]["lemon"]["now"] >= 100
    points = {name: node["lemon"]["points"] for name, node in history.items()}
    assert max(points, key=lambda name: points[name]) == "gpu005"
    assert all(0 < node["watched_s"] <= 1200 for node in history.values())
    events = [event["what"] for node in history.values() for event in node["events"]]
    assert "boot" not in events, "a second look at the story is no reboot"

    page = console(tmp_path, "history", "gpu005", "--demo")
    assert page.returncode == 0
    assert b"gpu.lost" in page.stdout
    assert b"watched" in page.stdout
    assert console(tmp_path, "history", "gpu[", "--demo").returncode == 64
    never = console(tmp_path, "history", "gpu016", "--demo")
    assert never.returncode == 0, "the story has it, though nobody looked at it"
    slip = console(tmp_path, "history", "gpu0016", "--demo")
    assert slip.returncode == 64
    assert b"no node gpu0016 in the memory; did you mean gpu016?" in slip.stderr
    assert b"--days N" in console(tmp_path, "history", "--help").stdout
    real = console(tmp_path, "history", "gpu005")
    assert real.returncode == 0
    assert b"nothing is recorded yet" in real.stdout
