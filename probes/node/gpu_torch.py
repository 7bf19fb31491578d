"""The GPU test as a program: figures of all GPUs of a node, by a child for each (gpu_worker.py).

Runs under the site's torch. GEMM and memory run on all GPUs at once, as a job would; host and peer
copies one after the other, because GPUs share switches. Without a GPU two small figures of the CPU
show that the test works. Lines for the agent:
  # engine torch-cuda torch 2.7.1     # gpu INDEX PCI NAME       # begin WHAT   # end WHAT
  # figure INDEX WHAT VALUE           # pair FROM TO VALUE PEER  # trouble INDEX WHAT TEXT
  # failed TEXT
"""

import argparse
import os
import select
import subprocess
import sys
import time

TOGETHER = ("gemm_bf16", "gemm_fp8", "hbm_copy")
ONE_BY_ONE = ("h2d", "d2h")
READY_S = 120.0
"""Without persistence mode CUDA needs about 20 s for 8 GPUs; torch may come from a cold Lustre."""
SLACK_S = 30.0
"""Over the wanted seconds until a GPU that does not answer is given up."""
ANSWERS = (b"ready ", b"= ", b"! ")
REAP_S = 1.0
"""A child in an uninterruptible driver call outlives SIGKILL: it is left, never waited for."""


def say(line: "str") -> "None":
    """One line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Child:
    """The child of one GPU as its starter sees it."""

    def __init__(self, source: "str", index: "int", seconds: "float") -> "None":
        argv = [sys.executable, "-c", source, "--gpu", str(index), "--seconds", "%g" % seconds]
        self.index = index
        self.lost = False
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        assert self.process.stdout is not None
        self.output = self.process.stdout.fileno()
        self._partial = b""

    def ask(self, what: "str") -> "None":
        """Order a figure."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(what.encode() + b"\n")
        except OSError:
            self.lost = True

    def read(self) -> "str | None":
        """An answer, None while there is none; `lost` is set at the end.

        Libraries print, too: what is no answer is passed over.
        """
        data = os.read(self.output, 4096)
        self.lost = not data
        lines = (self._partial + data).split(b"\n")
        self._partial = lines.pop()
        answers = [line for line in lines if line.startswith(ANSWERS)]
        return answers[0].decode("utf-8", "replace") if answers else None

    def end(self) -> "str":
        """Kill it if it still runs; how it ended."""
        if self.lost:  # its output ended: so does it, in a moment
            try:
                self.process.wait(REAP_S)
            except subprocess.TimeoutExpired:
                pass
        ended = self.process.poll()
        if ended is None:
            self.process.kill()
        try:
            self.process.wait(REAP_S)
        except subprocess.TimeoutExpired:
            return "hangs in the driver"
        return "did not answer" if ended is None else "ended with status %d" % ended


class Round:
    """All GPUs of the node."""

    def __init__(self, source: "str", indexes: "list[int]", seconds: "float") -> "None":
        self.source = source
        self.seconds = seconds
        self.children = [Child(source, index, seconds) for index in indexes]

    def ready(self) -> "None":
        """Wait until they are, and say who is there."""
        for child, line in self._answers(self.children, READY_S, "start"):
            address, _, name = line.partition(" ")[2].partition(" ")
            say("# gpu %d %s %s" % (child.index, address, name))

    def figure(self, what: "str") -> "None":
        """One figure of all at once, or of one after the other."""
        groups = [self.children] if what in TOGETHER else [[child] for child in self.children]
        say("# begin %s" % what)
        for group in groups:
            for child in group:
                child.ask(what)
            for child, line in self._answers(group, self.seconds * 3 + SLACK_S, what):
                if line.startswith("!"):
                    say("# trouble %d %s %s" % (child.index, what, line[2:]))
                elif line != "= -":
                    say("# figure %d %s %s" % (child.index, what, line[2:]))
        say("# end %s" % what)

    def _answers(
        self, group: "list[Child]", limit_s: "float", what: "str"
    ) -> "list[tuple[Child, str]]":
        """One line of each; who gives none in time is left out from then on."""
        waiting, found, until = list(group), [], time.monotonic() + limit_s
        while waiting and time.monotonic() < until:
            outputs = {child.output: child for child in waiting}
            for output in select.select(list(outputs), [], [], 0.5)[0]:
                child = outputs[output]
                line = child.read()
                if line is not None:
                    found.append((child, line))
                if line is not None or child.lost:
                    waiting.remove(child)
        silent = [child for child in group if child not in [one for one, _ in found]]
        for child in silent:
            say("# trouble %d %s its process %s" % (child.index, what, child.end()))
            self.children.remove(child)
        return found

    def end(self) -> "list[int]":
        """End all; the GPUs that answered to the last."""
        for child in self.children:
            child.end()
        return [child.index for child in self.children]


def everything(ask: "argparse.Namespace") -> "int":
    """The program: all figures asked for, GPU by GPU."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if ask.need and not count:
        built = torch.version.cuda or "none: a CPU build"
        say("# failed torch %s sees no GPU (CUDA %s)" % (torch.__version__, built))
        return 1
    say("# engine torch-%s torch %s" % ("cuda" if count else "cpu", torch.__version__))
    round_of_all = Round(ask.worker, list(range(count)) or [-1], ask.seconds)
    round_of_all.ready()
    wanted = ask.what.split(",")
    for what in [one for one in TOGETHER + ONE_BY_ONE if one in wanted]:
        round_of_all.figure(what)
    left = round_of_all.end()
    if "p2p" in wanted and len(left) > 1:
        say("# begin p2p")
        indexes = ",".join(str(index) for index in left)
        ended = subprocess.call([sys.executable, "-c", ask.worker, "--pairs", indexes])
        if ended:
            say("# trouble -1 p2p its process ended with status %d" % ended)
        say("# end p2p")
    return 0


def main() -> "int":
    """Exit status 0 when every figure was tried on every GPU."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--need", action="store_true", help="without a GPU there is nothing to do")
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--what", default=",".join(TOGETHER + ONE_BY_ONE))
    parser.add_argument("--worker", required=True)
    return everything(parser.parse_args())


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # torch takes seconds to leave
