"""Active test "nccl": a collective over the node's GPUs, or over several nodes'.

Arguments of the order, all optional but one of binary and torch_python:
  binary       path of the site's all_reduce_perf        torch_python  interpreter with torch,
               (its siblings serve other collectives)                  used where that is not there
  collective   all_reduce, all_gather, reduce_scatter, alltoall, sendrecv
  command      argv prefix, a container's for example     force     run although the GPUs are busy
  gpus         ranks on this node; default: all GPUs NVML lists, 2 without any GPU (gloo)
  local_gpu    only the GPU of this index takes part      env       NCCL_* and such, name -> value
  min_bytes, max_bytes, factor, iters, warmup, check      timeout_s  the whole test, default 120
  debug        read NCCL's log for clues                  ring      a second run, as a ring
  nnodes, node_rank, master_addr, master_port             torch only: ranks on several nodes
  join_s       how long node rank 0 waits for the others  peers, token  their names; a shared word
Samples of probe "nccl": device "" for each row, then "ranks" and "clues" (rows), then "summary";
of the second run "ring". Several nodes: rows and ranks come from node rank 0 only.
"""

import re
import time

from probes.node import nccl_clues, nccl_command, nccl_table, order
from probes.node.jobs import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from probes.node.jobs import Job
    from probes.node.nccl_command import Run
    from probes.node.order import Args

METRICS = {
    "size_bytes": ("B", "info", "message size"),
    "time_us": ("us", "gauge", "time of one collective"),
    "algbw_gb_s": ("GB/s", "gauge", "size by time; GB are 1e9 bytes"),
    "busbw_gb_s": ("GB/s", "gauge", "algbw by the collective's factor: comparable between ranks"),
    "wrong": ("", "gauge", "wrong values; absent when not checked"),
    "busbw_max_gb_s": ("GB/s", "gauge", "best row of the run"),
    "busbw_avg_gb_s": ("GB/s", "gauge", "nccl-tests' own average; small sizes pull it down"),
}

RING = {"NCCL_NVLS_ENABLE": "0", "NCCL_ALGO": "Ring"}
RANKS_MOST = 1024
"""Rows of rank times kept; a larger run is judged by its rows."""

ENGINE = re.compile(r"^# engine (torch-\w+)(?: torch (\S+))?")
FAILED = re.compile(r"^# failed (.*)")
RANK_ERROR = re.compile(r"^# rank-error (\d+) (.*)")
RANK_TIME = re.compile(r"^# rank-time (\d+) ([0-9.]+)")


class Heard:
    """What one run printed."""

    def __init__(self, engine: "str", clues: "nccl_clues.Clues | None") -> "None":
        self.table = nccl_table.Table()
        self.engine = engine
        self.clues = clues
        self.tail = ""
        self.failed = ""
        self.rank_error = ""
        self.times: "dict[int, float]" = {}

    def feed(self, line: "str") -> "list[nccl_table.Row]":
        """One line; the table rows in it."""
        if self.clues is not None:
            self.clues.feed(line)
        for form, take in (
            (ENGINE, self._engine), (FAILED, self._failed), (RANK_ERROR, self._rank_error),
            (RANK_TIME, self._rank_time),
        ):  # fmt: skip
            found = form.match(line)
            if found:
                take(*found.groups(""))
        self.tail = line.strip() or self.tail
        return self.table.feed(line)

    def _engine(self, name: "str", version: "str") -> "None":
        self.engine, self.table.version = name, version

    def _failed(self, why: "str") -> "None":
        self.failed = why

    def _rank_error(self, rank: "str", what: "str") -> "None":
        self.rank_error = self.rank_error or "rank %s: %s" % (rank, what)

    def _rank_time(self, rank: "str", time_us: "str") -> "None":
        if len(self.times) < RANKS_MOST:
            self.times[int(rank)] = float(time_us)


def run(job: "Job", args: "Args") -> "None":
    """Run the test to its end and send rows, summary and job frames. Raises Refused before it."""
    gpus = order.gpu_count(job.ctx)
    if not args.get("force"):
        order.check_idle(job.ctx, gpus)
    plan = nccl_command.plan(args, gpus)
    timeout_s = order.number(args, "timeout_s", order.TIMEOUT_S, order.TIMEOUT_MOST_S)
    job.state("started", "%s, at most %g s" % (plan.shown, timeout_s))
    until = time.monotonic() + timeout_s
    clues = _clues(job, plan) if args.get("debug") is True else None
    error, said, rc = _one(job, plan.run(job, timeout_s), clues, plan, "summary")
    left_s = until - time.monotonic()
    if args.get("ring") is True and not error and plan.gpu and left_s > 1.0:
        again = plan.run(job, left_s, RING)
        error, _, rc = _one(job, again, None, plan, "ring")
        said += "; " + (error or "and again as a ring")
    job.state("failed" if error else "done", error or said, rc)


def _clues(job: "Job", plan: "nccl_command.Plan") -> "nccl_clues.Clues":
    ports = nccl_clues.active_ports(job.ctx)
    ours = frozenset(plan.env)
    return nccl_clues.Clues(ports, plan.nnodes > 1, nccl_clues.has_nvls(job.ctx), ours)


def _one(
    job: "Job",
    asked: "Run",
    clues: "nccl_clues.Clues | None",
    plan: "nccl_command.Plan",
    device: "str",
) -> "tuple[str, str, int]":
    """One run to its end: (why it failed or "", a line for the screen, exit status)."""
    heard = Heard(asked.engine, clues)
    job.bury = asked.bury
    try:
        for line in job.lines(asked.argv, asked.timeout_s, asked.env):
            for row in heard.feed(line):
                if device == "summary":
                    send_row(job, row)
        asked.after(heard)
    except OSError as error:
        raise Refused("%s cannot start: %s" % (asked.argv[0], error.strerror or error)) from error
    finally:
        asked.clean()
    job.bury = []
    return finish(job, heard, plan, device, asked.ranks)


def send_row(job: "Job", row: "nccl_table.Row") -> "None":
    """One table row as a sample and as progress."""
    job.sample("", dict(row, id=job.name))
    job.state(
        "progress", "%(size_bytes)s B: %(busbw)s GB/s" % dict(row, busbw=row.get("busbw_gb_s"))
    )


def finish(
    job: "Job",
    heard: "Heard",
    plan: "nccl_command.Plan",
    device: "str",
    ranks: "list[dict[str, object]]",
) -> "tuple[str, str, int]":
    """Send what the run gave. The exit status decides before any printed average."""
    assert job.child is not None
    rc, table = job.child.returncode, heard.table
    error = trouble(job, heard, rc, plan)
    values: "dict[str, object]" = {
        "id": job.name,
        "ok": not error,
        "engine": heard.engine,
        "rc": rc,
    }
    values.update(version=table.version, collective=plan.collective, nnodes=plan.nnodes)
    if any("wrong" in row for row in table.rows):
        values["wrong"] = table.wrong()
    if error:
        values["error"] = error[:400]
    if table.ranks is not None:
        values["ranks"] = table.ranks
    if table.busbw_means_something:
        values.update(bandwidths(table))
    if device == "summary":
        send_lists(job, heard, ranks or torch_ranks(heard))
    job.sample(device, values)
    return error, summary_line(values, plan), rc


def send_lists(job: "Job", heard: "Heard", ranks: "list[dict[str, object]]") -> "None":
    """What each rank needed, and what NCCL's log says."""
    clues = [] if heard.clues is None else heard.clues.rows()
    for name, rows in (("ranks", ranks), ("clues", clues)):
        if rows or (name == "clues" and heard.clues is not None):
            job.sample(name, {"id": job.name, "count": len(rows)}, rows)


def torch_ranks(heard: "Heard") -> "list[dict[str, object]]":
    """Our own worker's times with the place of each rank, as the header lists it."""
    found = []
    for device in heard.table.devices:
        rank = device["rank"]
        if isinstance(rank, int) and rank in heard.times:
            place = {"rank": rank, "host": device["host"], "local_rank": device["device"]}
            found.append(dict(place, time_us=heard.times[rank]))
    return found


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


def trouble(job: "Job", heard: "Heard", rc: "int", plan: "nccl_command.Plan") -> "str":
    """Why the run is no valid measurement, or ""."""
    table = heard.table
    if job.cancelled.is_set():
        return "cancelled"
    if job.timed_out.is_set():
        return "timed out after %d rows" % len(table.rows)
    if heard.failed:
        symptom = "failed with exit status" in heard.failed and heard.rank_error
        return heard.failed + (": %s" % heard.rank_error if symptom else "")
    if table.errors:
        return table.errors[0]
    if table.signal is not None or rc < 0:
        return "crashed with signal %d %s" % (table.signal or -rc, table.frame)
    if table.wrong() or table.out_of_bounds:
        return "%d wrong values" % (table.wrong() or table.out_of_bounds or 0)
    if rc != 0:
        return "exit status %d: %s" % (rc, heard.tail)
    if plan.node_rank:
        return ""
    return "" if table.rows else "it measured nothing: %s" % heard.tail


def summary_line(values: "dict[str, object]", plan: "nccl_command.Plan") -> "str":
    """One line for the screen."""
    if plan.node_rank:
        return "took part; node rank 0 has the figures"
    if "busbw_max_gb_s" not in values:
        return "only one rank took part: this says nothing about links"
    return "%s GB/s bus bandwidth at %s bytes" % (
        values["busbw_max_gb_s"],
        values["busbw_at_size_bytes"],
    )
