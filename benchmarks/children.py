"""Child processes that are measured: their environment, wall time, CPU time of the whole tree."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
BYTECODE = Path(tempfile.gettempdir()) / f"gpuconsole-bench-bytecode-{os.getuid()}"
CLI = (sys.executable, "-c", "from console.cli import main; main()")
"""`gpuconsole` as the entry point starts it."""


class Cost(NamedTuple):
    """What one child took."""

    wall_s: float
    cpu_s: float
    """User and system time of the child and of everything it waited for."""


def environment(**more: str) -> dict[str, str]:
    """Ours, with byte code kept as after an installation, in a folder of our own."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(BYTECODE), "PYTHONPATH": str(ROOT), **more}


def measured(
    argv: Sequence[str], env: Mapping[str, str], ends: Collection[int] = (0,)
) -> tuple[Cost, str]:
    """Run a child to its end; its cost and stdout. SystemExit when it ends otherwise."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    done = subprocess.run(
        argv, check=False, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        cwd=ROOT,
    )  # fmt: skip
    wall_s = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in ends:
        sys.exit(f"benchmarks: {argv} ended with {done.returncode}: {done.stderr[-2000:]}")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(wall_s, cpu_s), done.stdout
