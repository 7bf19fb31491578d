"""Active test "nccl": all-reduce over the node's GPUs, by nccl-tests or by torch.

Arguments of the run order, all optional but one of binary and torch_python:
  binary       path of the site's all_reduce_perf        torch_python  interpreter with torch,
                                                         used where the binary is not there
  command      argv prefix, a container's for example     force     run although the GPUs are busy
  gpus         ranks on this node; default: all GPUs NVML lists, 2 without any GPU (gloo)
  min_bytes, max_bytes, factor, iters, warmup, check      timeout_s  the whole test, default 120
  nnodes, node_rank, master_addr, master_port             torch only: ranks on several nodes
Samples: probe "nccl", device "" for each row, then device "summary".
"""

import os
import re

from probes.node import nccl_table, processes
from probes.node.context import Stuck
from probes.node.jobs import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from probes.node.context import Context
    from probes.node.jobs import Job

    Args = dict[str, object]

METRICS = {
    "size_bytes": ("B", "info", "message size"),
    "time_us": ("us", "gauge", "time of one all-reduce"),
    "algbw_gb_s": ("GB/s", "gauge", "size by time; GB are 1e9 bytes"),
    "busbw_gb_s": ("GB/s", "gauge", "algbw * 2(n-1)/n: comparable between numbers of ranks"),
    "wrong": ("", "gauge", "wrong values; absent when not checked"),
    "busbw_max_gb_s": ("GB/s", "gauge", "best row of the run"),
    "busbw_avg_gb_s": ("GB/s", "gauge", "nccl-tests' own average; small sizes pull it down"),
}

GPU_SIZES = {"min_bytes": 256 << 20, "max_bytes": 4 << 30, "factor": 4, "iters": 20, "warmup": 5}
"""Smoke test of about 10 s; below 256 MiB latency rules (our estimate, not measured)."""

CPU_SIZES = {"min_bytes": 1 << 20, "max_bytes": 16 << 20, "factor": 4, "iters": 5, "warmup": 2}
"""Gloo moved 0.4 to 0.8 GB/s between two local ranks (measured): seconds, not minutes."""

CPU_RANKS = 2
TIMEOUT_S = 120.0
TIMEOUT_MOST_S = 7200.0
RANKS_MOST = 64
BYTES_MOST = 64 << 30
NO_DRIVER = frozenset((9, 12))
"""NVML: driver not loaded, library not found."""

ENGINE = re.compile(r"^# engine (torch-\w+)(?: torch (\S+))?")


def run(job: "Job", args: "Args") -> "None":
    """Run the test to its end and send rows, summary and job frames. Raises Refused before it."""
    gpus = gpu_count(job.ctx)
    if not args.get("force"):
        check_idle(job.ctx, gpus)
    argv, engine = command(args, gpus)
    timeout_s = number(args, "timeout_s", TIMEOUT_S, TIMEOUT_MOST_S)
    job.state("started", "%s, at most %g s" % (" ".join(argv[:3]), timeout_s))
    table = nccl_table.Table()
    tail = ""
    try:
        for line in job.lines(argv, timeout_s, environment()):
            found = ENGINE.match(line)
            if found:
                engine, table.version = found.group(1), found.group(2) or ""
            for row in table.feed(line):
                send_row(job, row)
            tail = line.strip() or tail
    except OSError as error:
        raise Refused("%s cannot be started: %s" % (argv[0], error.strerror or error)) from error
    finish(job, table, engine, tail)


def gpu_count(ctx: "Context") -> "int | None":
    """GPUs NVML lists; 0 without a driver, None when it cannot be told."""
    if ctx.nvml is None:
        return 0
    from probes.node.nvml_library import Failed

    try:
        return len(ctx.nvml.gpus(True))
    except Failed as failure:
        return 0 if failure.rc in NO_DRIVER else None
    except Stuck:
        return None


def check_idle(ctx: "Context", gpus: "int | None") -> "None":
    """Raise Refused when a GPU has compute processes, or when nobody can tell."""
    if gpus is None:
        raise Refused("NVML does not answer, so it cannot be told whether the GPUs are busy")
    if gpus == 0 or ctx.nvml is None:
        return
    from probes.node.nvml_library import Failed

    for gpu in ctx.nvml.gpus():
        try:
            busy = processes.running(ctx, gpu) if gpu.handle is not None else []
        except (Failed, Stuck) as error:
            raise Refused("cannot tell whether %s is busy: %s" % (gpu.key, error)) from error
        if busy:
            pids = ", ".join(str(one.pid) for one in busy[:4])
            raise Refused("GPU %s is busy (pid %s); drain first or use force" % (gpu.key, pids))


def command(args: "Args", gpus: "int | None") -> "tuple[list[str], str]":
    """(argv, engine). Never a shell: each argument is one word. Raises Refused."""
    prefix = [str(word) for word in args.get("command") or ()]  # type: ignore[attr-defined]
    ranks = whole(args, "gpus", gpus or CPU_RANKS, RANKS_MOST)
    if has_binary(args):
        if not gpus and "gpus" not in args:
            raise Refused("no GPU is visible; nccl-tests needs one, or say how many with gpus")
        flags = sizes(args, GPU_SIZES) + ["-g", str(ranks), "-c", str(int(bool(args.get("check"))))]
        return prefix + [str(args["binary"])] + flags, "nccl-tests"
    if args.get("torch_python"):
        python = str(args["torch_python"])
        flags = sizes(args, GPU_SIZES if gpus else CPU_SIZES)
        launch = prefix + [python, "-m", "torch.distributed.run"] + rendezvous(args, ranks)
        worker = ["--no-python", python, "-c", source()]
        return launch + worker + flags, "torch-nccl" if gpus else "torch-gloo"
    raise Refused("neither nccl_tests nor torch_python is set for this node's group")


def has_binary(args: "Args") -> "bool":
    """Whether to run nccl-tests: when it is there, inside a container, or the only choice."""
    binary = args.get("binary")
    if not binary:
        return False
    there = bool(args.get("command")) or os.access(str(binary), os.X_OK)
    return there or not args.get("torch_python")


def rendezvous(args: "Args", ranks: "int") -> "list[str]":
    """torch.distributed.run's options: one node on loopback, or several at a master address."""
    flags = ["--nproc-per-node", str(ranks), "--max-restarts", "0"]
    if "master_addr" not in args:
        return flags + ["--standalone"]
    return flags + [
        "--nnodes", str(whole(args, "nnodes", 1, 4096)),
        "--node-rank", str(whole(args, "node_rank", 0, 4095)),
        "--master-addr", str(args["master_addr"]),
        "--master-port", str(whole(args, "master_port", 29500, 65535)),
    ]  # fmt: skip


def sizes(args: "Args", default: "dict[str, int]") -> "list[str]":
    """-b -e -f -n -w as nccl-tests spells them."""
    flags = []
    for flag, name in zip("befnw", ("min_bytes", "max_bytes", "factor", "iters", "warmup")):
        flags += ["-" + flag, str(whole(args, name, default[name], BYTES_MOST))]
    return flags


def environment() -> "dict[str, str]":
    """torch's launcher wants a scratch folder: in memory, as nothing goes to the node's disk."""
    env = {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "LC_ALL": "C"}
    if os.access("/dev/shm", os.W_OK):
        env["TMPDIR"] = "/dev/shm"
    return env


def source() -> "str":
    """The torch worker's source, from wherever this payload's modules come."""
    from probes.node import nccl_torch

    loader = nccl_torch.__spec__.loader
    text = loader.get_source("probes.node.nccl_torch")  # type: ignore[union-attr]
    assert isinstance(text, str)
    return text


def send_row(job: "Job", row: "nccl_table.Row") -> "None":
    """One table row as a sample and as progress."""
    job.sample("", dict(row, id=job.name))
    job.state(
        "progress", "%(size_bytes)s B: %(busbw)s GB/s" % dict(row, busbw=row.get("busbw_gb_s"))
    )


def finish(job: "Job", table: "nccl_table.Table", engine: "str", tail: "str") -> "None":
    """The summary and the last job frame. The exit status decides before any printed average."""
    assert job.child is not None
    rc = job.child.returncode
    error = trouble(job, table, rc, tail)
    values: "dict[str, object]" = {"id": job.name, "ok": not error, "engine": engine, "rc": rc}
    values["version"] = table.version
    if any("wrong" in row for row in table.rows):
        values["wrong"] = table.wrong()
    if error:
        values["error"] = error[:400]
    if table.ranks is not None:
        values["ranks"] = table.ranks
    if table.busbw_means_something:
        values.update(bandwidths(table))
    job.sample("summary", values)
    job.state("failed" if error else "done", error or summary_line(values), rc)


def bandwidths(table: "nccl_table.Table") -> "dict[str, object]":
    """Best row, its size, the largest size's own, the printed average; what is absent is absent."""
    found: "dict[str, object]" = {}
    rows = [row for row in table.rows if isinstance(row.get("busbw_gb_s"), float)]
    if rows:
        best = max(rows, key=lambda row: row["busbw_gb_s"])  # type: ignore[arg-type, return-value]
        found["busbw_max_gb_s"] = best["busbw_gb_s"]
        found["busbw_at_size_bytes"] = best["size_bytes"]
    largest = table.largest()
    if largest is not None and "busbw_gb_s" in largest:
        found["busbw_largest_gb_s"] = largest["busbw_gb_s"]
    if table.average is not None:
        found["busbw_avg_gb_s"] = table.average
    return found


def trouble(job: "Job", table: "nccl_table.Table", rc: "int", tail: "str") -> "str":
    """Why the run is no valid measurement, or ""."""
    if job.cancelled.is_set():
        return "cancelled"
    if job.timed_out.is_set():
        return "timed out after %d rows" % len(table.rows)
    if table.errors:
        return table.errors[0]
    if table.signal is not None or rc < 0:
        return "crashed with signal %d %s" % (table.signal or -rc, table.frame)
    if table.wrong() or table.out_of_bounds:
        return "%d wrong values" % (table.wrong() or table.out_of_bounds or 0)
    if rc != 0:
        return "exit status %d: %s" % (rc, tail)
    return "" if table.rows else "it measured nothing: %s" % tail


def summary_line(values: "dict[str, object]") -> "str":
    """One line for the screen."""
    if "busbw_max_gb_s" not in values:
        return "only one rank took part: this says nothing about links"
    return "%s GB/s bus bandwidth at %s bytes" % (
        values["busbw_max_gb_s"],
        values["busbw_at_size_bytes"],
    )


def whole(args: "Args", name: "str", default: "int", most: "int") -> "int":
    """An argument as a whole number from 0 to `most`. Raises Refused."""
    value = args.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise Refused("%s must be a whole number up to %d, not %r" % (name, most, value))
    return value


def number(args: "Args", name: "str", default: "float", most: "float") -> "float":
    """An argument as a number above 0 and up to `most`. Raises Refused."""
    value = args.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= most:
        raise Refused("%s must be above 0 and at most %g, not %r" % (name, most, value))
    return float(value)
