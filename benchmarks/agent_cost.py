"""What the agent costs a node: payload bytes, time to hello, CPU and memory with 8 simulated GPUs.

    python benchmarks/agent_cost.py [--seconds 60] [--python PATH ...]

Prints JSON. The node is a tree of /sys and /proc files with 8 GPUs, 9 RDMA adapters and their
counters. The simulated NVML library is Python inside the agent's own process, so its share is part
of `cpu_percent`; the run without GPUs shows the agent alone. Goals: 0.3 % of a core, 30 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Any

from console.demo import sysfs
from console.demo.nvml import state
from probes import bundle

SHIM = Path(__file__).parents[1] / "console" / "demo" / "nvml" / "shim.py"
GPUS, ADAPTERS = 8, 8
"""The tree brings a ninth adapter, for management."""
STARTS = 7
SETTLE_S = 5.0
"""Start-up (compiling, the first answers of the rare probes) is not part of the steady cost."""


def agent(python: str, gpus: str | None, settings: bundle.AgentConfig) -> subprocess.Popen[bytes]:
    """An agent with GPUs simulated from a folder, or without."""
    shim = [str(SHIM), gpus] if gpus else []
    process = subprocess.Popen(
        [python, *shim, "-I", "-S", "-c", bundle.FIRST_STAGE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write(bundle.payload(settings))
    process.stdin.flush()
    return process


def end(process: subprocess.Popen[bytes]) -> None:
    """End of stdin ends the agent."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.wait(10)
    process.stdout.close()


def hello_ms(python: str) -> tuple[float, float]:
    """From the start of the interpreter to the first frame: wall and CPU in milliseconds."""
    begin = time.perf_counter()
    process = agent(python, None, bundle.AgentConfig())
    assert process.stdout is not None
    process.stdout.readline()
    passed, spent = time.perf_counter() - begin, scheduled_s(process.pid)
    end(process)
    return passed * 1e3, spent * 1e3


def scheduled_s(pid: int) -> float:
    """CPU seconds of all threads so far, finer than the clock ticks of /proc/PID/stat."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int, name: str) -> float:
    """A line of /proc/PID/smaps_rollup in MB."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(name + ":"):
            return round(int(line.split()[1]) * 1024 / 1e6, 1)
    return float("nan")


def steady(python: str, gpus: str | None, root: str, seconds: float) -> dict[str, Any]:
    """CPU and memory of an agent at default intervals once it has settled."""
    process = agent(python, gpus, bundle.AgentConfig(root=root))
    assert process.stdout is not None
    sizes: list[int] = []
    reader = threading.Thread(target=read, args=(process.stdout, sizes))
    reader.start()
    time.sleep(SETTLE_S)
    before, frames, begin = cpu_s(process.pid), len(sizes), time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - begin
    told = {
        "cpu_percent": round(100 * (cpu_s(process.pid) - before) / passed, 3),
        "rss_mb": memory_mb(process.pid, "Rss"),
        "pss_mb": memory_mb(process.pid, "Pss"),
        "bytes_per_min": round(60 * sum(sizes[frames:]) / passed),
        "frames_per_s": round((len(sizes) - frames) / passed, 2),
    }
    process.stdin.close()  # type: ignore[union-attr]
    reader.join(10)
    end(process)
    return told


def read(stream: IO[bytes], sizes: list[int]) -> None:
    """Take note of each line's length until the stream ends."""
    sizes.extend(len(line) for line in stream)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--python", action="append", default=[])
    ask = parser.parse_args()
    told: dict[str, Any] = {"payload_bytes": len(bundle.payload(bundle.AgentConfig()))}
    for python in ask.python or [sys.executable]:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder, "root")
            sysfs.build(root, hostname="node", gpus=sysfs.GPU_BUSES[:GPUS], hcas=ADAPTERS)
            Path(folder, "nvml.json").write_text(json.dumps(state.healthy(GPUS)))
            starts = [hello_ms(python) for _ in range(STARTS)]
            told[python] = {
                "start_to_hello_ms": round(statistics.median(wall for wall, _ in starts), 1),
                "start_to_hello_cpu_ms": round(statistics.median(cpu for _, cpu in starts), 1),
                "no_gpu": steady(python, None, str(root), ask.seconds),
                "simulated_8_gpus": steady(python, folder, str(root), ask.seconds),
            }
    print(json.dumps(told, indent=2))


if __name__ == "__main__":
    main()
