"""All-reduce through torch, for nodes without nccl-tests. Runs under the site's torch.

Each rank runs this source under torch.distributed.run; rank 0 prints the table of nccl-tests, so
that one reader serves both. busbw = algbw * 2(n-1)/n as in nccl-tests' doc/PERFORMANCE.md. Backend
nccl where every local rank has a GPU, else gloo. Nothing is written to disk.
"""

import argparse
import os
import socket
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

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
    """The options of nccl-tests that make sense here."""
    parser = argparse.ArgumentParser()
    for name in ("-b", "-e", "-f", "-n", "-w"):
        parser.add_argument(name, type=int, required=True)
    return parser.parse_args()


def main() -> "None":
    """One rank. Rank 0 prints."""
    import torch
    from torch import distributed

    ask = options()
    local, local_world = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    on_gpu = torch.cuda.is_available() and torch.cuda.device_count() >= local_world
    backend = "nccl" if on_gpu and distributed.is_nccl_available() else "gloo"
    device = torch.device("cuda", local) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    distributed.init_process_group(backend)
    try:
        measure(torch, distributed, device, backend, ask)
    finally:
        distributed.destroy_process_group()


def measure(
    torch: "Any", distributed: "Any", device: "Any", backend: "str", ask: "argparse.Namespace"
) -> "None":
    """All sizes from -b to -e; prints header, rows and footer on rank 0."""
    rank, world = distributed.get_rank(), distributed.get_world_size()
    introduce(torch, distributed, device, backend)
    size, busbws, wrong = ask.b, [], 0
    while size <= ask.e:
        seconds, bad = one_size(torch, distributed, device, size, ask)
        algbw = size / seconds / 1e9
        busbw = algbw * 2 * (world - 1) / world
        busbws.append(busbw)
        wrong += bad
        if rank == 0:
            row = (size, size // FLOAT_BYTES, "float", "sum", -1, seconds * 1e6, algbw, busbw, bad)
            say("%12d %13d %9s %7s %7d %8.2f %7.3f %7.3f %6d" % row)
        size *= max(2, ask.f)
    if rank == 0:
        say("# Out of bounds values : %d %s" % (wrong, "FAILED" if wrong else "OK"))
        say("# Avg bus bandwidth    : %.4f" % (sum(busbws) / max(1, len(busbws))))


def introduce(torch: "Any", distributed: "Any", device: "Any", backend: "str") -> "None":
    """The lines before the table: versions and who takes part."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    me = "Pid %6d on %s device %2d [0000:00:00] %s" % (
        os.getpid(), socket.gethostname(), device.index or 0, name,
    )  # fmt: skip
    everyone = gathered(torch, distributed, device, me)
    if distributed.get_rank() == 0:
        say("# engine torch-%s torch %s" % (backend, torch.__version__))
        for rank, one in enumerate(everyone):
            say("#  Rank %2d Group  0 %s" % (rank, one))
        say(HEADER)


def gathered(torch: "Any", distributed: "Any", device: "Any", text: "str") -> "list[str]":
    """Each rank's text, in rank order; as tensors, because all_gather_object needs NumPy."""
    data = text.encode("utf-8", "replace")[:TEXT_BYTES]
    padded = data + b"\0" * (TEXT_BYTES - len(data))
    mine = torch.tensor(list(padded), dtype=torch.uint8, device=device)
    everyone = [torch.zeros_like(mine) for _ in range(distributed.get_world_size())]
    distributed.all_gather(everyone, mine)
    return [bytes(one.tolist()).rstrip(b"\0").decode("utf-8", "replace") for one in everyone]


def one_size(
    torch: "Any", distributed: "Any", device: "Any", size: "int", ask: "argparse.Namespace"
) -> "tuple[float, int]":
    """(seconds per all-reduce on the slowest rank, wrong values) of one size in bytes."""
    world = distributed.get_world_size()
    data = torch.ones(max(1, size // FLOAT_BYTES), dtype=torch.float32, device=device)
    for _ in range(ask.w):
        data.fill_(1.0)
        distributed.all_reduce(data)
    distributed.barrier()
    data.fill_(0.0)
    seconds = timed(torch, distributed, device, data, ask.n)
    slowest = torch.tensor([seconds], dtype=torch.float64, device=device)
    distributed.all_reduce(slowest, op=distributed.ReduceOp.MAX)
    data.fill_(1.0)
    distributed.all_reduce(data)
    return float(slowest.item()), int((data != float(world)).sum().item())


def timed(torch: "Any", distributed: "Any", device: "Any", data: "Any", repeats: "int") -> "float":
    """Seconds per all-reduce: by CUDA events on a GPU, by the clock elsewhere."""
    if device.type == "cuda":
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(repeats):
            distributed.all_reduce(data)
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3 / repeats
    begin_s = time.perf_counter()
    for _ in range(repeats):
        distributed.all_reduce(data)
    return (time.perf_counter() - begin_s) / repeats


if __name__ == "__main__":
    main()
