"""Figures of one GPU through torch, or of all pairs: a child of gpu_torch.py.

One process for each GPU, because a GPU that is lost or out of memory takes its process with it.
TFLOPS are dense; GB are 1e9 bytes; a memory copy counts bytes read and written.
"""

import argparse
import statistics
import sys
import time

from probes.node.torch_place import near, pci_address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

BATCHES = 10
"""The median of so many is the figure."""
WARM_SHARE = 0.4
"""Of the seconds, before: clocks and power settle (our estimate)."""
COPY_SHARE = 0.3
"""Host copies are steady at once."""
GEMM_N = 8192
GEMM_CPU_N = 384
HBM_BYTES = 4 << 30
HOST_BYTES = 512 << 20
PAIR_BYTES = 512 << 20
PAIR_COPIES = 10
CPU_BYTES = 32 << 20
PAIRS_MOST = 96
"""All pairs up to ten GPUs."""


def say(line: "str") -> "None":
    """One line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Gpu:
    """One device and how long things take on it."""

    def __init__(self, torch: "Any", index: "int", seconds: "float") -> "None":
        self.torch = torch
        self.on_gpu = index >= 0
        self.device = torch.device("cuda", index) if self.on_gpu else torch.device("cpu")
        self.seconds = seconds
        if self.on_gpu:
            torch.cuda.set_device(self.device)

    def sync(self) -> "None":
        """Wait for everything that was started."""
        if self.on_gpu:
            self.torch.cuda.synchronize(self.device)

    def per_call(self, call: "Callable[[], object]", share: "float" = 1.0) -> "float":
        """Seconds of one call: median of batches after a warm-up."""
        seconds = self.seconds * share
        call()
        self.sync()
        once, warm_until, calls = 0.0, time.perf_counter() + WARM_SHARE * seconds, 0
        began = time.perf_counter()
        while calls < 3 or time.perf_counter() < warm_until:
            call()
            calls += 1
            if calls % 8 == 0:
                self.sync()
        self.sync()
        once = (time.perf_counter() - began) / calls
        each = max(1, int(seconds / BATCHES / once))
        return float(statistics.median(self._batch(call, each) for _ in range(BATCHES)))

    def _batch(self, call: "Callable[[], object]", calls: "int") -> "float":
        if not self.on_gpu:
            began = time.perf_counter()
            for _ in range(calls):
                call()
            return (time.perf_counter() - began) / calls
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        return 1e-3 * float(begin.elapsed_time(end)) / calls

    def free_bytes(self) -> "int":
        """Memory that nobody has."""
        return int(self.torch.cuda.mem_get_info(self.device)[0]) if self.on_gpu else 1 << 30

    def gemm_bf16(self) -> "float":
        """TFLOPS of a square bf16 product of random numbers."""
        n = self._side(2)
        a, b = (self._random(n, n).to(self.torch.bfloat16) for _ in range(2))
        out = self.torch.empty_like(a)
        return 2.0 * n**3 / self.per_call(lambda: self.torch.mm(a, b, out=out)) / 1e12

    def gemm_fp8(self) -> "float | None":
        """The same in fp8 (e4m3); None where GPU or torch has none."""
        fp8 = getattr(self.torch, "float8_e4m3fn", None)
        product = getattr(self.torch, "_scaled_mm", None)
        if not self.on_gpu or fp8 is None or product is None:
            return None
        if self.torch.cuda.get_device_capability(self.device) < (8, 9):
            return None
        n = self._side(4)  # the float it is made from counts, too
        a, b = self._random(n, n).to(fp8), self._random(n, n).to(fp8).t()
        one = self.torch.ones((), dtype=self.torch.float32, device=self.device)
        how: "dict[str, Any]" = {"scale_a": one, "scale_b": one, "out_dtype": self.torch.bfloat16}

        for more in ({"use_fast_accum": True}, {}):
            how.update(more)
            try:
                product(a, b, **how)
                return 2.0 * n**3 / self.per_call(lambda: product(a, b, **how)) / 1e12
            except (TypeError, NotImplementedError):
                how.pop("use_fast_accum", None)
            except RuntimeError as error:
                if "support" not in str(error):
                    raise
        return None

    def _random(self, *shape: "int") -> "Any":
        return self.torch.randn(*shape, dtype=self.torch.float32, device=self.device)

    def _side(self, cell_bytes: "int") -> "int":
        """Rows of a square matrix of which five fit."""
        n = GEMM_N if self.on_gpu else GEMM_CPU_N
        while n > 1024 and 5 * n * n * cell_bytes > self.free_bytes():
            n //= 2
        return n

    def _bytes(self, most: "int") -> "int":
        return max(1 << 20, min(most, self.free_bytes() // 4) & ~0xFFF)

    def _space(self, count: "int", **how: "Any") -> "Any":
        return self.torch.ones(count, dtype=self.torch.uint8, **how)

    def hbm_copy(self) -> "float":
        """GB/s read and written by a copy inside the device's memory."""
        count = self._bytes(HBM_BYTES if self.on_gpu else CPU_BYTES)
        source, target = (self._space(count, device=self.device) for _ in range(2))
        return 2.0 * count / self.per_call(lambda: target.copy_(source)) / 1e9

    def h2d(self) -> "float | None":
        """GB/s from pinned host memory to the GPU."""
        return self._host_copy(True)

    def d2h(self) -> "float | None":
        """The other way round."""
        return self._host_copy(False)

    def _host_copy(self, down: "bool") -> "float | None":
        if not self.on_gpu:
            return None
        count = self._bytes(HOST_BYTES)
        host = self._space(count, pin_memory=True)
        there = self._space(count, device=self.device)
        target, source = (there, host) if down else (host, there)
        call: "Callable[[], object]" = lambda: target.copy_(source, non_blocking=True)  # noqa: E731
        return float(count) / self.per_call(call, COPY_SHARE) / 1e9


def one_gpu(index: "int", seconds: "float") -> "None":
    """A child: answers each name on stdin with "= VALUE", "= -" for none, "! WHY" for failed."""
    address = pci_address(index) if index >= 0 else "cpu"
    near(address)
    import torch

    gpu = Gpu(torch, index, seconds)
    name = torch.cuda.get_device_name(gpu.device) if gpu.on_gpu else "cpu"
    if gpu.on_gpu:
        torch.zeros(1, device=gpu.device)
    say("ready %s %s" % (address or "?", name))
    for line in iter(sys.stdin.readline, ""):
        try:
            value = getattr(gpu, line.strip())()
            say("= -" if value is None else "= %.6g" % value)
        except Exception as error:
            say("! %s" % first_line(error))
        if gpu.on_gpu:
            try:
                torch.cuda.empty_cache()
            except Exception as error:  # the context is lost: the next figure says so, too
                sys.stderr.write("%s\n" % error)


def pairs(indexes: "list[int]") -> "None":
    """A child: "# pair" for each pair of GPUs, one after the other, one way."""
    import torch

    for source, target in chosen(indexes):
        try:
            rate = pair(torch, source, target)
            peer = int(bool(torch.cuda.can_device_access_peer(source, target)))
            say("# pair %d %d %.6g %d" % (source, target, rate, peer))
        except Exception as error:
            say("# trouble %d p2p to GPU%d: %s" % (source, target, first_line(error)))


def pair(torch: "Any", source: "int", target: "int") -> "float":
    """GB/s of copies from one GPU to another."""
    count = min(PAIR_BYTES, int(torch.cuda.mem_get_info(target)[0]) // 8)
    a = torch.ones(count, dtype=torch.uint8, device="cuda:%d" % source)
    b = torch.zeros(count, dtype=torch.uint8, device="cuda:%d" % target)

    def batch() -> "float":
        for one in (source, target):
            torch.cuda.synchronize(one)
        began = time.perf_counter()
        for _ in range(PAIR_COPIES):
            b.copy_(a, non_blocking=True)
        for one in (source, target):
            torch.cuda.synchronize(one)
        return (time.perf_counter() - began) / PAIR_COPIES

    batch()
    return float(count) / float(statistics.median(batch() for _ in range(3))) / 1e9


def chosen(indexes: "list[int]") -> "list[tuple[int, int]]":
    """All ordered pairs, or of many GPUs those at distance 1, 2, 4 ... in a ring."""
    every = [(a, b) for a in indexes for b in indexes if a != b]
    if len(every) <= PAIRS_MOST:
        return every
    number, step = len(indexes), 1
    found: "list[tuple[int, int]]" = []
    while step < number and len(found) + number <= PAIRS_MOST:
        found += [(indexes[at], indexes[(at + step) % number]) for at in range(number)]
        step *= 2
    return found


def first_line(error: "Exception") -> "str":
    """What an exception says, in one line."""
    lines = str(error).strip().splitlines() or [""]
    return "%s: %s" % (type(error).__name__, lines[0][:300])


def main() -> "None":
    """One GPU, the CPU (-1), or pairs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpu", type=int)
    parser.add_argument("--pairs")
    parser.add_argument("--seconds", type=float, default=1.5)
    ask = parser.parse_args()
    if ask.pairs:
        pairs([int(index) for index in ask.pairs.split(",")])
    else:
        one_gpu(ask.gpu, ask.seconds)


if __name__ == "__main__":
    main()
