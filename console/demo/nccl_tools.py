"""nccl-tests of a simulated node: `PYTHON nccl_tools.py NAME DIR OPTIONS...`.

Prints the table of all_reduce_perf and its siblings at the level that DIR/nccl.json gives, in the
form of the release it names under "nccl_tests": before 2.13 with a column "error", until 2.16
without a version line, then with one; since 2.17 it knows -J, since 2.19 -I as well. Under an MPI
launcher (OMPI_COMM_WORLD_SIZE) it speaks as rank 0 for all processes. Alone in one file: it is
started with -I -S.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

SIZES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
HALF_SPEED_BYTES = 12 << 20
"""Message size at which half of the final bandwidth is reached; plausible for 8 GPUs with NVLS."""
LAUNCH_US = 11.0
"""Time of the smallest all-reduce; plausible."""
ROW_S = 0.05
"""Pause between two rows, so that progress can be seen."""
FAILED = 3
"""Exit status of nccl-tests after an NCCL error."""
ITERATIONS = 5
NAMES = (
    "all_reduce_perf", "all_gather_perf", "reduce_scatter_perf", "alltoall_perf", "sendrecv_perf",
)  # fmt: skip
DEBUG = (
    "NCCL INFO NCCL version 2.27.3+cuda12.9",
    "NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_2:1/IB [3]mlx5_3:1/IB "
    "[4]mlx5_4:1/IB [5]mlx5_5:1/IB [6]mlx5_6:1/IB [7]mlx5_7:1/IB; OOB eth0",
    "NCCL INFO Using network IB",
    "NCCL INFO NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)",
    "NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
)
FIXED = {"all_reduce": 2.0, "sendrecv": 0.0}


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class Printer:
    """One run of one program of one release."""

    def __init__(self, name: str, node: Path, words: Sequence[str]) -> None:
        told = json.loads((node / "nccl.json").read_text())
        self.name = name
        self.node = node
        self.options = dict(zip(words[::2], words[1::2], strict=False))
        self.release = str(told.get("nccl_tests", "2.13"))
        self.minor = int(self.release.split(".")[1])
        ring = os.environ.get("NCCL_ALGO", "").lower() == "ring"
        self.busbw = float(told.get("ring_gb_s" if ring else "", told["busbw_gb_s"]))
        self.processes = int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))
        self.gpus = json.loads((node / "nvml.json").read_text())["gpus"]
        self.gpus = self.gpus[: int(self.options.get("-g", "1")) * self.processes]
        self.iterations = self.options.get("-I") == "1"
        self.late = told.get("late_process")
        """Process that comes last and so waits least, if any."""
        self.results: list[dict[str, Any]] = []

    def run(self) -> int:
        """Print everything; its exit status."""
        low, high = _bytes(self.options.get("-b", "32M")), _bytes(self.options.get("-e", "32M"))
        step = max(2, int(self.options.get("-f", "2")))
        self._head(low, high, step)
        self._log()
        if self.busbw <= 0:
            _say(f"{self.node.name}: Test NCCL failure common.cu:1012 'unhandled cuda error'")
            return FAILED
        self._columns()
        reached = [self._row(size) for size in _sizes(low, high, step)]
        _say("# Out of bounds values : 0 OK")
        _say(f"# Avg bus bandwidth    : {sum(reached) / len(reached):g} \n#")
        if self.minor >= 17:
            _say(f"# Collective test concluded: {self.name}")
        self._report()
        return 0

    def _head(self, low: int, high: int, step: int) -> None:
        if self.minor >= 17:
            _say(f"# nccl-tests version {self.release} nccl-headers=22703 nccl-library=22703")
            _say(f"# Collective test starting: {self.name}")
        _say(
            f"# nThread 1 nGpus {len(self.gpus)} minBytes {low} maxBytes {high} step: "
            f"{step}(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0\n#"
        )
        if self.iterations:
            _say("# Per-Iteration Report: CUDA event timing; i_* uses max over process rows ")
        _say("# Using devices")
        group = " Group  0" if self.minor >= 13 else ""
        for rank, gpu in enumerate(self.gpus):
            pid = os.getpid() + rank * (self.processes > 1)
            place = f"Pid {pid:6d} on {self.node.name:>10} device {rank:2d}"
            bus = gpu["pci"].split(":")[1]
            _say(f"#  Rank {rank:2d}{group} {place} [0x{bus}] {gpu['name']}")

    def _log(self) -> None:
        if os.environ.get("NCCL_DEBUG") != "INFO":
            return
        lines = [f"{self.node.name}:{os.getpid()}:{os.getpid()} [0] {line}" for line in DEBUG]
        place = os.environ.get("NCCL_DEBUG_FILE", "")
        place = place.replace("%h", self.node.name).replace("%p", str(os.getpid()))
        if place:
            Path(place).write_text("\n".join(lines) + "\n")
        else:
            _say("\n".join(lines))

    def _columns(self) -> None:
        per = "    i_min    i_max    i_p99    i_cv%" if self.iterations else ""
        wrong, root = ("#wrong", "    root") if self.minor >= 13 else (" error", "")
        cell = f"     time   algbw   busbw {wrong}{per}"
        _say("#\n#                                    out-of-place                       in-place")
        _say(f"#       size         count      type   redop{root}{cell}{cell}")
        _say("#        (B)    (elements)                     (us)  (GB/s)  (GB/s)")

    def _row(self, size: int) -> float:
        """Print one size; its bus bandwidth in GB/s."""
        ranks = len(self.gpus)
        factor = FIXED.get(self.name.removesuffix("_perf"), 1.0) * (ranks - 1) / ranks or 1.0
        algbw = self.busbw / factor * size / (size + HALF_SPEED_BYTES)
        time_us = LAUNCH_US + size / algbw / 1e3
        algbw = size / time_us / 1e3
        wrong = "     0" if self.minor >= 13 else " 0e+00"
        cell = f"{time_us:8.2f} {algbw:7.2f} {algbw * factor:7.2f} {wrong}"
        if self.iterations:
            cell += (
                f" {time_us * 0.99:8.2f} {time_us * 1.02:8.2f} {time_us * 1.02:8.2f} {0.81:8.2f}"
            )
        root = f" {-1:7d}" if self.minor >= 13 else ""
        time.sleep(ROW_S)
        _say(f"{size:12d} {size // 4:13d} {'float':>9} {'sum':>7}{root} {cell} {cell}")
        self.results.append(self._result(size, time_us, algbw, algbw * factor))
        return algbw * factor

    def _result(self, size: int, time_us: float, algbw: float, busbw: float) -> dict[str, Any]:
        cells = {"time": time_us, "alg_bw": algbw, "bus_bw": busbw, "nwrong": 0.0}
        found = {
            "size": size, "count": size // 4, "type": "float", "redop": "sum", "root": "    -1",
            "out_of_place": cells, "in_place": cells,
        }  # fmt: skip
        if self.iterations and self.processes > 1:
            times = [
                [time_us * (0.6 if process == self.late else 1.0)] * ITERATIONS
                for process in range(self.processes)
            ]
            found["out_of_place_per_iter"] = {"per_process_max_times_us": times}
        return found

    def _report(self) -> None:
        """The file of -J, with all of the environment, as the real one writes it."""
        place = self.options.get("-J")
        if place is None or self.minor < 17:
            return
        devices = [
            {"rank": rank, "group": 0, "pid": os.getpid() + rank * (self.processes > 1),
             "hostname": self.node.name, "device": rank, "device_info": gpu["name"]}
            for rank, gpu in enumerate(self.gpus)
        ]  # fmt: skip
        told = {
            "version": 4, "args": sys.argv, "env": [f"{k}={v}" for k, v in os.environ.items()],
            "nccl_version": 22703, "config": {"devices": devices}, "results": self.results,
        }  # fmt: skip
        Path(place).write_text(json.dumps(told))


def usage(release: str) -> str:
    """What --help says of the options that matter here."""
    minor = int(release.split(".")[1])
    words = ["[-b,--minbytes <min size in bytes>]", "[-e,--maxbytes <max size in bytes>]"]
    words += ["[-J,--output_file <file> write output to filepath]"] if minor >= 17 else []
    words += ["[-I,--per_iter_timing <0/1>]"] if minor >= 19 else []
    return "USAGE: all_reduce_perf \n\t" + " \n\t".join(words)


def _sizes(low: int, high: int, factor: int) -> Iterator[int]:
    size = max(4, low)
    while size <= max(high, low):
        yield size
        size *= factor


def _bytes(text: str) -> int:
    unit = text[-1:].upper() if text[-1:].upper() in SIZES else ""
    return int(text[: len(text) - len(unit)]) * SIZES[unit]


def main(argv: Sequence[str]) -> int:
    """Run the program named argv[1] on the node directory argv[2]."""
    name, node, words = argv[1], Path(argv[2]), argv[3:]
    if "--help" in words or "-h" in words:
        _say(usage(str(json.loads((node / "nccl.json").read_text()).get("nccl_tests", "2.13"))))
        return 0
    try:
        return Printer(name, node, words).run()
    except (BrokenPipeError, KeyboardInterrupt):
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))
