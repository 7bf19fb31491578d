"""One rank of a collective test through torch, for nodes without nccl-tests.

Runs under the site's torch, started by torch_launch.py. Rank 0 prints the table of nccl-tests, so
that one reader serves both, then how long each rank needed ("# rank-time"). Bus bandwidth is algbw
times the factor of nccl-tests' doc/PERFORMANCE.md. Backend nccl where every local rank has a GPU,
else gloo. Nothing is written to disk.
"""

import argparse
import datetime
import os
import sys
import time
import traceback

from probes.node.torch_place import pci_address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

TEXT_BYTES = 256
"""Room for what a rank says of itself."""
FLOAT_BYTES = 4

HEADER = """#
#                                                              out-of-place
#       size         count      type   redop    root     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)"""


def say(line: "str") -> "None":
    """One line at once: whoever reads the table reads it as it grows."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def options() -> "argparse.Namespace":
    """The options of nccl-tests that make sense here, and which collective."""
    parser = argparse.ArgumentParser()
    for name in ("-b", "-e", "-f", "-n", "-w"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--collective", choices=sorted(FACTORS), default="all_reduce")
    parser.add_argument("--gpu", action="store_true", help="never on the CPU instead")
    return parser.parse_args()


FACTORS: "dict[str, Callable[[int], float]]" = {
    "all_reduce": lambda n: 2.0 * (n - 1) / n,
    "all_gather": lambda n: (n - 1.0) / n,
    "reduce_scatter": lambda n: (n - 1.0) / n,
    "alltoall": lambda n: (n - 1.0) / n,
    "sendrecv": lambda n: 1.0,
}
"""Bus bandwidth over algorithm bandwidth for n ranks."""


class Rank:
    """This rank, its device and what it runs."""

    def __init__(self, ask: "argparse.Namespace") -> "None":
        import torch
        from torch import distributed

        self.torch: "Any" = torch
        self.dist: "Any" = distributed
        self.ask = ask
        local, local_world = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if ask.gpu and count < local_world:
            raise RuntimeError(
                "torch %s sees %d of %d GPUs (CUDA %s)"
                % (torch.__version__, count, local_world, torch.version.cuda or "none: a CPU build")
            )
        on_gpu = count >= local_world
        self.backend = "nccl" if on_gpu and distributed.is_nccl_available() else "gloo"
        self.local = local
        self.device = torch.device("cuda", local) if self.backend == "nccl" else torch.device("cpu")
        if self.backend == "nccl":
            torch.cuda.set_device(self.device)
        else:
            torch.set_num_threads(1)
        limit = datetime.timedelta(seconds=float(os.environ["LIMIT_S"]))
        distributed.init_process_group(self.backend, timeout=limit)
        self.rank, self.world = distributed.get_rank(), distributed.get_world_size()

    def measure(self) -> "None":
        """All sizes from -b to -e; prints header, rows and footer on rank 0."""
        self._introduce()
        factor = FACTORS[self.ask.collective](self.world)
        size, wrong = self.ask.b, 0
        busbws: "list[float]" = []
        times: "list[float]" = []
        while size <= self.ask.e:
            times, bad = self._one_size(size)
            seconds = max(times)
            algbw = size / seconds / 1e9
            busbws.append(algbw * factor)
            wrong += bad
            row = (size, size // FLOAT_BYTES, "float", "sum", -1, seconds * 1e6, algbw)
            self._say("%12d %13d %9s %7s %7d %8.2f %7.3f" % row + " %7.3f %6d" % (busbws[-1], bad))
            size *= max(2, self.ask.f)
        self._say("# Out of bounds values : %d %s" % (wrong, "FAILED" if wrong else "OK"))
        self._say("# Avg bus bandwidth    : %.4f" % (sum(busbws) / max(1, len(busbws))))
        for rank, one in enumerate(times):
            self._say("# rank-time %d %.3f" % (rank, one * 1e6))

    def _say(self, line: "str") -> "None":
        if self.rank == 0:
            say(line)

    def _introduce(self) -> "None":
        """Who takes part, and versions: those by the first rank of every node."""
        gpu = self.backend == "nccl"
        name = self.torch.cuda.get_device_name(self.device) if gpu else "cpu"
        me = "Pid %6d on %s device %2d [%s] %s" % (
            os.getpid(), os.environ["NODE_NAME"] or "?", self.local,
            pci_address(self.local) if gpu else "0000:00:00", name,
        )  # fmt: skip
        everyone = self._gathered(me)
        if self.local == 0:
            say("# engine torch-%s torch %s" % (self.backend, self.torch.__version__))
        for rank, one in enumerate(everyone):
            self._say("#  Rank %2d Group  0 %s" % (rank, one))
        self._say(HEADER)

    def _gathered(self, text: "str") -> "list[str]":
        """Each rank's text, in rank order; as tensors, because all_gather_object needs NumPy."""
        data = text.encode("utf-8", "replace")[:TEXT_BYTES]
        padded = data + b"\0" * (TEXT_BYTES - len(data))
        mine = self.torch.tensor(list(padded), dtype=self.torch.uint8, device=self.device)
        everyone = [self.torch.zeros_like(mine) for _ in range(self.world)]
        self.dist.all_gather(everyone, mine)
        return [bytes(one.tolist()).rstrip(b"\0").decode("utf-8", "replace") for one in everyone]

    def _one_size(self, size: "int") -> "tuple[list[float], int]":
        """(seconds of one collective by rank, wrong values of all ranks) of one size in bytes."""
        call, wrong = COLLECTIVES[self.ask.collective](self, max(self.world, size // FLOAT_BYTES))
        for _ in range(self.ask.w):
            call()
        self.dist.barrier()
        mine = self.torch.tensor([self._timed(call)], dtype=self.torch.float64, device=self.device)
        times = [self.torch.zeros_like(mine) for _ in range(self.world)]
        self.dist.all_gather(times, mine)
        bad = self.torch.tensor([wrong()], dtype=self.torch.int64, device=self.device)
        self.dist.all_reduce(bad)
        return [float(one.item()) for one in times], int(bad.item())

    def _timed(self, call: "Callable[[], None]") -> "float":
        """Seconds per collective: by CUDA events on a GPU, by the clock elsewhere."""
        if self.backend == "nccl":
            begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(self.ask.n):
                call()
            end.record()
            end.synchronize()
            return 1e-3 * float(begin.elapsed_time(end)) / int(self.ask.n)
        begin_s = time.perf_counter()
        for _ in range(self.ask.n):
            call()
        return (time.perf_counter() - begin_s) / int(self.ask.n)

    def zeros(self, count: "int") -> "Any":
        """Floats on the device."""
        return self.torch.zeros(count, dtype=self.torch.float32, device=self.device)


def all_reduce(rank: "Rank", count: "int") -> "tuple[Callable[[], None], Callable[[], int]]":
    """(the collective on zeros, a check of one on ones: wrong values here)."""
    data = rank.zeros(count)

    def wrong() -> "int":
        data.fill_(1.0)
        rank.dist.all_reduce(data)
        return int((data != float(rank.world)).sum().item())

    return lambda: rank.dist.all_reduce(data), wrong


def all_gather(rank: "Rank", count: "int") -> "tuple[Callable[[], None], Callable[[], int]]":
    """As all_reduce; `count` is of the result, every rank gives its own number."""
    part = count // rank.world
    mine, got = rank.zeros(part).fill_(rank.rank), rank.zeros(part * rank.world)
    parts = list(got.chunk(rank.world))

    def call() -> "None":
        if rank.backend == "nccl":  # gloo knows the list form only, which costs a copy on a GPU
            rank.dist.all_gather_into_tensor(got, mine)
        else:
            rank.dist.all_gather(parts, mine)

    def wrong() -> "int":
        return sum(int((one != float(at)).sum().item()) for at, one in enumerate(parts))

    return call, wrong


def reduce_scatter(rank: "Rank", count: "int") -> "tuple[Callable[[], None], Callable[[], int]]":
    """As all_reduce; `count` is of what each rank gives."""
    part = count // rank.world
    mine, sent = rank.zeros(part), rank.zeros(part * rank.world).fill_(1.0)
    parts = list(sent.chunk(rank.world))

    def call() -> "None":
        if rank.backend == "nccl":
            rank.dist.reduce_scatter_tensor(mine, sent)
        else:
            rank.dist.reduce_scatter(mine, parts)

    return call, lambda: int((mine != float(rank.world)).sum().item())


def alltoall(rank: "Rank", count: "int") -> "tuple[Callable[[], None], Callable[[], int]]":
    """As all_gather, every rank giving its own number to all."""
    part = count // rank.world
    sent, got = rank.zeros(part * rank.world).fill_(rank.rank), rank.zeros(part * rank.world)

    def wrong() -> "int":
        parts = got.reshape(rank.world, part)
        return sum(int((parts[at] != float(at)).sum().item()) for at in range(rank.world))

    return lambda: rank.dist.all_to_all_single(got, sent), wrong


def sendrecv(rank: "Rank", count: "int") -> "tuple[Callable[[], None], Callable[[], int]]":
    """Every rank sends to the next one and receives from the one before."""
    after, before = (rank.rank + 1) % rank.world, (rank.rank - 1) % rank.world
    sent, got = rank.zeros(count).fill_(rank.rank), rank.zeros(count)

    def call() -> "None":
        both = [
            rank.dist.P2POp(rank.dist.isend, sent, after),
            rank.dist.P2POp(rank.dist.irecv, got, before),
        ]
        for one in rank.dist.batch_isend_irecv(both):
            one.wait()

    return call, lambda: int((got != float(before)).sum().item())


COLLECTIVES = {
    "all_reduce": all_reduce,
    "all_gather": all_gather,
    "reduce_scatter": reduce_scatter,
    "alltoall": alltoall,
    "sendrecv": sendrecv,
}


def main() -> "int":
    """One rank. Rank 0 prints; whoever fails says so in one line."""
    try:
        rank = Rank(options())
        rank.measure()
        rank.dist.destroy_process_group()
    except Exception as error:
        traceback.print_exc()
        lines = str(error).strip().splitlines() or [""]
        told = (os.environ.get("RANK", "?"), type(error).__name__, lines[0])
        say("# rank-error %s %s: %s" % told)
        return 1
    return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    # After an error a collective of another thread may never come back.
    os._exit(status)
