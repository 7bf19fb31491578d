"""How often a healthy job is said to wait for a rank, and how soon a late one is named.

    python -m benchmarks.late_ranks --hours 200

Healthy: at each look some ranks, drawn anew, are one collective behind. Late: one rank is behind in
a share of the looks, besides those. A look every 12 s; every look is judged. Also prints what it
costs the node to read an answer about 4,096 ranks with four communicators each.
"""

from __future__ import annotations

import argparse
import json
import random
import time

from probes.event import Row, Sample
from probes.node.ras_read import Reader
from probes.node.ras_rows import rows
from probes.ranks import Polls
from probes.ranks_motion import Limits, Motion, verdicts
from probes.rules import load_rules

EVERY_S = 12.0
LIMITS = Limits.of(load_rules())


def poll(polls: Polls, at: float, size: int, done: int, behind: set[int]) -> Motion:
    """One look, judged."""
    late: list[Row] = [
        {"kind": "rank", "comm": "a", "rank": index, "host": "h", "count": done - 1}
        for index in sorted(behind)[:16]
    ]
    head: Row = {"kind": "comm", "comm": "a", "size": size, "seen": size, "basis": "all",
                 "low": done - bool(behind), "mid": done, "high": done, "behind": len(behind),
                 "took_s": 0.001, "job": "1"}  # fmt: skip
    polls.add(Sample(node="n", probe="ras", at=at, rows=[head, *late]))
    (verdict,) = verdicts(polls, LIMITS, at)
    return verdict.motion


def healthy(size: int, share: float, hours: float, seed: int) -> int:
    """Looks at which a healthy job was said to wait for a rank."""
    rng, polls, wrong = random.Random(seed), Polls(), 0
    for look in range(int(hours * 3600 / EVERY_S)):
        behind = set(rng.sample(range(size), max(1, round(share * size))))
        wrong += poll(polls, look * EVERY_S, size, 100 + look * 60, behind) is Motion.LATE
    return wrong


def named_after_s(size: int, often: float, seed: int) -> float | None:
    """Seconds until the late rank is named; None: not within ten minutes."""
    rng, polls = random.Random(seed), Polls()
    for look in range(50):
        behind = {size // 3} if rng.random() < often else {rng.randrange(size)}
        if poll(polls, look * EVERY_S, size, 100 + look * 60, behind) is Motion.LATE:
            return look * EVERY_S
    return None


def answer(ranks: int, comms: int) -> bytes:
    """What NCCL 2.29 says of a job, in its own layout."""
    told = [
        {"hash": f"0x{number + 1:x}", "size": ranks, "ranks_count": ranks,
         "missing_ranks_count": 0, "missing_ranks": [],
         "ranks": [
             {"rank": index, "host": f"10.0.{index >> 11}.{index >> 3 & 255}", "pid": 9000 + index,
              "cuda_dev": index & 7, "nvml_dev": index & 7,
              "status": {"init_state": 0, "async_error": 0, "finalize_called": False,
                         "destroy_flag": False, "abort_flag": False},
              "collective_counts": {"Broadcast": 2, "Reduce": 0, "AllGather": 66021,
                                    "ReduceScatter": 66020, "AllReduce": 441}}
             for index in range(ranks)]}
        for number in range(comms)
    ]  # fmt: skip
    return json.dumps({"nccl_version": "2.29.1", "communicators": told}, indent=2).encode()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=200.0)
    hours: float = parser.parse_args().hours
    for size in (8, 32, 1024):
        for share in (1 / size, 0.2):
            wrong = healthy(size, share, hours / 6, size)
            print(json.dumps({"healthy": size, "behind": share, "hours": hours / 6,
                              "looks_with_alarm": wrong}))  # fmt: skip
    for size in (8, 32, 1024):
        for often in (1.0, 0.85):
            times = [named_after_s(size, often, seed) for seed in range(100)]
            known = sorted(t for t in times if t is not None)
            print(json.dumps({"late": size, "behind_in": often, "named": len(known) / 100,
                              "median_s": known[len(known) // 2] if known else None}))  # fmt: skip
    raw = answer(4096, 4)
    began = time.process_time()
    reader = Reader()
    for at in range(0, len(raw), 65536):
        reader.feed(raw[at : at + 65536])
    reader.end()
    told = rows(reader.comms, {"10.0.0.0"}, {})
    print(json.dumps({"answer_mb": len(raw) / 1e6, "cpu_s": time.process_time() - began,
                      "rows": len(told), "sent_bytes": len(json.dumps(told))}))  # fmt: skip


if __name__ == "__main__":
    main()
