"""Wall time of starting: `--help`, `--json` with one local node, its bare imports, first paint.

python -m benchmarks.startup [--runs 9]
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.children import CLI, ROOT, environment, measured
from inventory.hosts import local_node

IMPORTS = (
    sys.executable,
    "-c",
    "import console.headless, probes.ssh, probes.session, inventory.source",
)
PAINT_S = 20.0


def contenders(folder: Path) -> dict[str, tuple[str, ...]]:
    """Name -> argv. The local pass waits `--window 0.05` s by itself."""
    return {
        "python": (sys.executable, "-c", "pass"),
        "help": (*CLI, "--help"),
        "json_imports": IMPORTS,
        "json_local": (*CLI, "-i", "local:", "--json", "--window", "0.05"),
    }


def first_paint_ms(env: Mapping[str, str]) -> float:
    """From the start of the console on this machine to its name in a pty of 80x24."""
    master, slave = pty.openpty()
    shell = ("sh", "-c", 'stty rows 24 cols 80 && exec "$@"', "sh", *CLI, "-i", "local:")
    began = time.perf_counter()
    console = subprocess.Popen(
        shell, stdin=slave, stdout=slave, stderr=slave, cwd=ROOT, start_new_session=True,
        env={**env, "TERM": "xterm-256color"},
    )  # fmt: skip
    os.close(slave)
    seen, name = b"", local_node().name[:8].encode()
    try:
        while name not in seen:
            left = began + PAINT_S - time.perf_counter()
            if left <= 0 or not select.select([master], [], [], left)[0]:
                sys.exit(f"startup: nothing painted within {PAINT_S} s: {seen[-500:]!r}")
            seen += os.read(master, 1 << 16)
        return 1e3 * (time.perf_counter() - began)
    finally:
        console.terminate()
        while select.select([master], [], [], 1.0)[0]:
            try:
                os.read(master, 1 << 16)
            except OSError:  # it has left the terminal
                break
        console.wait()
        os.close(master)


def main() -> None:
    """Interleaved runs, medians in ms."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=9)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as name:
        env = environment(XDG_STATE_HOME=name, XDG_CACHE_HOME=name, XDG_CONFIG_HOME=name)
        walls: dict[str, list[float]] = {}
        for _ in range(runs + 1):
            for contender, argv in contenders(Path(name)).items():
                cost, _ = measured(argv, env, ends=(0, 1, 2, 3))
                walls.setdefault(contender, []).append(1e3 * cost.wall_s)
            walls.setdefault("first_paint", []).append(first_paint_ms(env))
    # The first run compiles the byte code.
    print(json.dumps({key: round(statistics.median(found[1:]), 1) for key, found in walls.items()}))


if __name__ == "__main__":
    main()
