"""nccl-tests' JSON report (-J, since 2.17) and which options a binary has.

Of the report only processes and their times are taken: "env" holds every variable of the run,
secrets included, and "args" what was asked. Neither is looked at, and the file is gone afterwards.
"""

import json
import os
import statistics
import subprocess

from probes.node.tool import Patience, read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

REPORT_BYTES = 16 << 20
"""512 processes with 20 iterations of a dozen sizes are 3 MB."""
HELP_BYTES = 65536
HELP_S = 5.0
RANKS_MOST = 1024


def options(binary: "str") -> "list[str]":
    """The long options in its --help, [] when it says nothing. Needs no GPU; bounded in time."""
    nothing = subprocess.DEVNULL
    try:
        child = subprocess.Popen(
            [binary, "--help"], stdin=nothing, stdout=subprocess.PIPE, stderr=nothing
        )
    except OSError:
        return []
    assert child.stdout is not None
    with child.stdout as pipe:
        raw, in_time = read(pipe.fileno(), Patience(child.pid, HELP_S), HELP_BYTES)
    child.kill()
    child.wait()
    if not in_time:
        return []
    told = raw[:HELP_BYTES].decode("utf-8", "replace")
    return [word.split("]")[0].split()[0] for word in told.split("--")[1:] if word.strip()]


def timing_flags(binary: "str", place: "str") -> "list[str]":
    """Flags that make it tell the time of each process, [] where it is too old for that."""
    known = options(binary)
    if "per_iter_timing" not in known or "output_file" not in known:
        return []
    return ["-I", "1", "-J", place]


def rank_times(place: "str") -> "list[dict[str, object]]":
    """{rank, host, local_rank, time_us} of every process for the largest size; [] without."""
    told = _read(place)
    config, results = told.get("config"), told.get("results")
    devices = config.get("devices") if isinstance(config, dict) else None
    if not isinstance(devices, list) or not isinstance(results, list):
        return []
    times = _process_times([one for one in results if isinstance(one, dict)])
    processes = _processes([one for one in devices if isinstance(one, dict)])
    if len(times) != len(processes):
        return []
    return [
        dict(process, time_us=round(time_us, 3))
        for process, time_us in list(zip(processes, times))[:RANKS_MOST]
    ]


def _read(place: "str") -> "dict[str, Any]":
    try:
        if os.path.getsize(place) > REPORT_BYTES:
            return {}
        with open(place, encoding="utf-8", errors="replace") as file:
            told = json.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _process_times(results: "list[dict[str, Any]]") -> "list[float]":
    """Median over the iterations of the largest size, by process; out of place where there is."""
    sizes = [one for one in results if isinstance(one.get("size"), int)]
    for result in sorted(sizes, key=lambda one: -int(one["size"])):
        for name in ("out_of_place_per_iter", "in_place_per_iter"):
            part = result.get(name)
            times = part.get("per_process_max_times_us") if isinstance(part, dict) else None
            if isinstance(times, list) and times:
                return _medians(times)
    return []


def _medians(times: "list[Any]") -> "list[float]":
    found = []
    for one in times:
        numbers = [t for t in one if isinstance(t, (int, float))] if isinstance(one, list) else []
        if not numbers:
            return []
        found.append(float(statistics.median(numbers)))
    return found


def _processes(devices: "list[dict[str, Any]]") -> "list[dict[str, object]]":
    """The first rank of every process, in the order in which nccl-tests counts them."""
    found: "dict[tuple[str, object], dict[str, object]]" = {}
    for device in devices:
        key = (str(device.get("hostname"))[:100], device.get("pid"))
        rank, local = device.get("rank"), device.get("device")
        if isinstance(rank, int) and isinstance(local, int):
            found.setdefault(key, {"rank": rank, "host": key[0], "local_rank": local})
    return sorted(found.values(), key=lambda one: int(str(one["rank"])))
