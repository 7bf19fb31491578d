"""CPU and wall time of starting: `--help`, `--json` with one local node, the bare imports of it.

python -m benchmarks.startup [--runs 9]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.children import CLI, environment, measured

IMPORTS = (
    sys.executable,
    "-c",
    "import console.headless, probes.ssh, probes.session, inventory.source",
)


def contenders(folder: Path) -> dict[str, tuple[str, ...]]:
    """Name -> argv. The local pass waits `--window 0.05` s by itself."""
    return {
        "python": (sys.executable, "-c", "pass"),
        "help": (*CLI, "--help"),
        "json_imports": IMPORTS,
        "json_local": (*CLI, "-i", "local:", "--json", "--window", "0.05"),
    }


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
    # The first run compiles the byte code.
    print(json.dumps({key: round(statistics.median(found[1:]), 1) for key, found in walls.items()}))


if __name__ == "__main__":
    main()
