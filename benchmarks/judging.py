"""CPU of what happens to an answer after SSH: taking it in, judging its node, comparing peers.

    python -m benchmarks.judging [--nodes 100] [--runs 9]

Frames are those of a recorded agent (8 GPUs with 18 links each, 8 ports). Prints JSON: lists of
microseconds per node, one per run.

fast        a tick of gpu, gpm and host
judge       the node after it, with nothing else new
slow        one answer of each slow and rare probe
judge_all   the node after all of them
decode      the JSON of a fast tick alone
peers       counting the role after that
compare     one node of a fleet's comparison
"""

from __future__ import annotations

import argparse
import json
import random
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import straggler_speed
from benchmarks.tape import MARKER, Frame, Tape, record
from console.fleet import Fleet
from inventory.node import Inventory, Node
from probes.checks import peers
from probes.rules import load_rules
from probes.straggler import compare
from probes.talk import Talk
from probes.wire import read_frame

MARK = MARKER.encode() + b" "


class Bench:
    """A Fleet fed by hand."""

    def __init__(self, tape: Tape, count: int) -> None:
        """All nodes have said hello."""
        nodes = tuple(Node(name=f"gpu{i + 1:04d}", gpus=8) for i in range(count))
        self.fleet = Fleet(Inventory(nodes=nodes))
        self.talks = [Talk(node, MARKER, self.fleet.apply) for node in nodes]
        self.now = time.monotonic()
        hello = re.sub(rb'"mono":[0-9.]+', b'"mono":%.3f' % self.now, tape.hello)
        for talk in self.talks:
            talk.data(MARK + hello + b"\n")

    def spent_us(self, work: Callable[[], object]) -> float:
        """CPU per node."""
        began = time.process_time()
        work()
        return 1e6 * (time.process_time() - began) / len(self.talks)

    def lines(self, answers: dict[str, list[Frame]], step: int) -> list[list[bytes]]:
        """What each node says a second later."""
        self.now += 1
        return [
            [MARK + said[(i + step) % len(said)].at(self.now) + b"\n" for said in answers.values()]
            for i in range(len(self.talks))
        ]

    def hear(self, lines: list[list[bytes]]) -> None:
        """Take them in."""
        for talk, said in zip(self.talks, lines, strict=True):
            for line in said:
                talk.data(line)


def run(nodes: int, runs: int) -> dict[str, list[float]]:
    """Microseconds per node, `runs` of each kind, in turn."""
    with tempfile.TemporaryDirectory() as folder:
        tape = record(Path(folder))
    bench, rng, rules = Bench(tape, nodes), random.Random(7), load_rules()
    busy = [straggler_speed.node(number, rng) for number in range(nodes)]
    told: dict[str, list[float]] = {}
    for step in range(runs + 1):
        fast, slow = bench.lines(tape.fast, step), bench.lines(tape.slow, step)
        work: dict[str, Callable[[], object]] = {
            "fast": lambda said=fast: bench.hear(said),  # type: ignore[misc]
            "judge": bench.fleet.tick,
            "slow": lambda said=slow: bench.hear(said),  # type: ignore[misc]
            "decode": lambda said=fast: [  # type: ignore[misc]
                read_frame(line[len(MARK) :]) for lines in said for line in lines
            ],
            "judge_all": bench.fleet.tick,
            "peers": lambda: peers(bench.fleet.nodes.values()),
            "compare": lambda: list(compare(busy, rules, straggler_speed.NOW)),
        }
        for kind, do in work.items():
            told.setdefault(kind, []).append(round(bench.spent_us(do), 1))
    return {kind: found[1:] for kind, found in told.items()}  # the first has nothing to compare


def main() -> None:
    """Command line; see the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--runs", type=int, default=9)
    options = parser.parse_args()
    print(json.dumps(run(options.nodes, options.runs)))


if __name__ == "__main__":
    main()
