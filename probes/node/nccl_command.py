"""How a collective test is run: which engine, which argv, which environment. Never a shell."""

import os
import shutil
import tempfile

from probes.node import nccl_clues, nccl_report, order, wrapped
from probes.node.jobs import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from probes.node.jobs import Job
    from probes.node.nccl import Heard
    from probes.node.order import Args

GPU_SIZES = {"min_bytes": 256 << 20, "max_bytes": 4 << 30, "factor": 4, "iters": 20, "warmup": 5}
"""Smoke test of about 10 s; below 256 MiB latency rules (our estimate, not measured)."""

CPU_SIZES = {"min_bytes": 1 << 20, "max_bytes": 16 << 20, "factor": 4, "iters": 5, "warmup": 2}
"""Gloo moved 0.4 to 0.8 GB/s between two local ranks (measured): seconds, not minutes."""

CPU_RANKS = 2
RANKS_MOST = 64
NODES_MOST = 4096
BYTES_MOST = 64 << 30
LOG_BYTES = 8 << 20
"""Read of NCCL's log of one rank: its initialisation is the first 100 KB."""
LOGS_MOST = 64
JOIN_S = 60.0
SHM = "/dev/shm"

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv")


class Run:
    """One child: what to start, and what it leaves behind."""

    def __init__(self, engine: "str", timeout_s: "float") -> "None":
        self.engine = engine
        self.timeout_s = timeout_s
        self.argv: "list[str]" = []
        self.env: "dict[str, str]" = {}
        self.bury: "list[str]" = []
        self.ranks: "list[dict[str, object]]" = []
        self.folder = ""
        self.report = ""

    def after(self, heard: "Heard") -> "None":
        """Read the files of a run that has ended."""
        if self.report:
            self.ranks = nccl_report.rank_times(self.report)
        if self.folder and heard.clues is not None:
            logs = sorted(name for name in os.listdir(self.folder) if name.startswith("log."))
            for name in logs[:LOGS_MOST]:
                with open(os.path.join(self.folder, name), "rb") as log:
                    for line in log.read(LOG_BYTES).decode("utf-8", "replace").splitlines():
                        heard.clues.feed(line)

    def clean(self) -> "None":
        """Nothing stays on the node: the report holds the whole environment."""
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)


class Plan:
    """What the order asks for, checked. Raises Refused."""

    def __init__(self, args: "Args", gpus: "int | None") -> "None":
        self.args = args
        self.gpu = bool(gpus)
        self.prefix = order.words(args, "command")
        self.env = order.environment(args)
        self.collective = str(args.get("collective") or COLLECTIVES[0])
        if self.collective not in COLLECTIVES:
            raise Refused("collective must be one of %s" % ", ".join(COLLECTIVES))
        self.nnodes = order.whole(args, "nnodes", 1, NODES_MOST)
        self.node_rank = order.whole(args, "node_rank", 0, NODES_MOST)
        if self.nnodes < 1 or self.node_rank >= self.nnodes:
            raise Refused("node_rank must be below nnodes")
        self.ranks = order.whole(args, "gpus", gpus or CPU_RANKS, RANKS_MOST)
        if args.get("local_gpu") is not None:
            self.env["CUDA_VISIBLE_DEVICES"] = str(order.whole(args, "local_gpu", 0, RANKS_MOST))
            self.ranks = 1
        self.binary = self._binary(gpus)
        self.sizes = sizes(args, GPU_SIZES if gpus or self.binary else CPU_SIZES)
        self.python = "" if self.binary else str(args.get("torch_python") or "")
        if not self.binary and not self.python:
            raise Refused(self._nothing())

    def _binary(self, gpus: "int | None") -> "str":
        """The nccl-tests program: where it is there, inside a container, or the only choice."""
        given, torch = str(self.args.get("binary") or ""), self.args.get("torch_python")
        if not given or self.nnodes > 1:
            return ""
        name = self.collective + "_perf"
        path = os.path.join(os.path.dirname(given), name)
        if self.collective == COLLECTIVES[0]:
            path = given
        if torch and not wrapped.contained(self.prefix) and not os.access(path, os.X_OK):
            return ""
        if not gpus and "gpus" not in self.args and self.args.get("local_gpu") is None:
            raise Refused("no GPU is visible; nccl-tests needs one, or say how many with gpus")
        return path

    def _nothing(self) -> "str":
        if self.args.get("binary"):
            return "several nodes need torch_python: nccl-tests alone cannot start ranks elsewhere"
        return "neither nccl_tests nor torch_python is set for this node's group"

    @property
    def shown(self) -> "str":
        """For the operator."""
        where = " on %d nodes" % self.nnodes if self.nnodes > 1 else ""
        return "%s by %s%s" % (self.collective, self.binary or self.python, where)

    def run(self, job: "Job", timeout_s: "float", more: "dict[str, str] | None" = None) -> "Run":
        """One child that runs it, with more settings."""
        run = Run("nccl-tests" if self.binary else self._torch_engine(), timeout_s)
        settings = dict(self.env, **(more or {}))
        outside = not wrapped.contained(self.prefix)
        debug = self.args.get("debug") is True and not more
        if outside and (debug or wrapped.spreads(self.prefix)):
            run.folder = job.folder = private_folder()
        if debug:
            settings = dict(nccl_clues.DEBUG, **settings)
            if run.folder:
                settings.setdefault("NCCL_DEBUG_FILE", os.path.join(run.folder, "log.%h.%p"))
        argv = self._nccl_tests(run) if self.binary else self._torch(timeout_s)
        own = dict(order.quiet(), **settings)
        run.argv, run.bury = wrapped.wrapped(self.prefix, own, argv)
        run.env = own
        return run

    def _torch_engine(self) -> "str":
        return "torch-nccl" if self.gpu else "torch-gloo"

    def _nccl_tests(self, run: "Run") -> "list[str]":
        each = 1 if wrapped.spreads(self.prefix) else self.ranks
        flags = ["-g", str(each), "-c", str(int(bool(self.args.get("check"))))]
        if wrapped.spreads(self.prefix) and run.folder:
            place = os.path.join(run.folder, "report.json")
            timing = nccl_report.timing_flags(self.binary, place)
            run.report = place if timing else ""
            flags += timing
        return [self.binary] + self.sizes + flags

    def _torch(self, timeout_s: "float") -> "list[str]":
        from probes.node import nccl_torch, torch_launch, torch_meet, torch_place

        args = self.args
        flags = ["--nproc", str(self.ranks), "--limit-s", "%g" % timeout_s]
        if self.nnodes > 1:
            if not args.get("master_addr"):
                raise Refused("several nodes need master_addr: where node rank 0 listens")
            join_s = order.number(args, "join_s", min(JOIN_S, timeout_s / 2), timeout_s)
            port = order.whole(args, "master_port", 29500, 65535)
            flags += ["--nnodes", str(self.nnodes), "--node-rank", str(self.node_rank)]
            flags += ["--master-addr=%s" % args["master_addr"], "--master-port", str(port)]
            flags += ["--join-s", "%g" % join_s, "--token=%s" % (args.get("token") or "")]
            flags += ["--names=%s" % ",".join(order.words(args, "peers"))]
        worker = ["--worker", order.program(torch_place, nccl_torch), "--"] + self.sizes
        launcher = [self.python, "-c", order.program(torch_meet, torch_launch)]
        worker += ["--collective", self.collective] + (["--gpu"] if self.gpu else [])
        return launcher + flags + worker


def plan(args: "Args", gpus: "int | None") -> "Plan":
    """The order, checked. Raises Refused."""
    return Plan(args, gpus)


def sizes(args: "Args", default: "dict[str, int]") -> "list[str]":
    """-b -e -f -n -w as nccl-tests spells them."""
    flags = []
    for flag, name in zip("befnw", ("min_bytes", "max_bytes", "factor", "iters", "warmup")):
        flags += ["-" + flag, str(order.whole(args, name, default[name], BYTES_MOST))]
    return flags


def private_folder() -> "str":
    """In memory, readable by us only; "" where there is no such place."""
    try:
        return tempfile.mkdtemp(prefix="gpuconsole-", dir=SHM)
    except OSError:
        return ""
