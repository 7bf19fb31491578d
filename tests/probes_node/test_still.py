"""A process that has not run since the look before, and one that has."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.demo import sysfs
from probes.node.context import Context
from probes.node.still import still


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ctx(tmp_path: Path, clock: Clock) -> Context:
    return Context(str(tmp_path), clock=clock)


def process(
    ctx: Context, state: str = "S", switches: int = 7, start: int = 55, wchan: str = ""
) -> str:
    """Write a process; its stat."""
    root = Path(ctx.root)
    sysfs.process(root, 4000, ("python3", "train.py"), state=state, wchan=wchan)
    status = root / "proc/4000/status"
    status.write_text(status.read_text().replace("\t812", f"\t{switches}"))
    return f"4000 (py) {state} {' '.join(['1'] * 18)} {start} 0"


def test_still_since_the_look_before(ctx: Context, clock: Clock) -> None:
    assert still(ctx, "4000", process(ctx)) == {}, "one look tells nothing"
    clock.now += 40
    assert still(ctx, "4000", process(ctx)) == {"still_s": 40.0}
    clock.now += 40
    assert still(ctx, "4000", process(ctx)) == {"still_s": 80.0}
    assert still(ctx, "4000", process(ctx, switches=8)) == {}, "it was woken"


@pytest.mark.parametrize("changes", [{"start": 56}, {"switches": 8}, {"state": "R"}])
def test_another_process_or_one_that_runs_is_not_still(
    ctx: Context, clock: Clock, changes: dict[str, str]
) -> None:
    still(ctx, "4000", process(ctx))
    clock.now += 40
    assert still(ctx, "4000", process(ctx, **changes)) == {}  # type: ignore[arg-type]


def test_what_it_waits_for_is_told_where_it_says_something(ctx: Context) -> None:
    stuck = still(ctx, "4000", process(ctx, "D", wchan="nfs_wait_bit_killable\x1b[m"))
    assert stuck == {"wchan": "nfs_wait_bit_killable[m"}
    assert still(ctx, "4000", process(ctx, "S", 8, wchan="futex_wait_queue")) == {}
    assert still(ctx, "4000", process(ctx, "D", 9, wchan="0")) == {}


@pytest.mark.parametrize("stat", ["", "4000 (py) S 1", "x", "4000 (a b) c) D"])
def test_a_stat_that_makes_no_sense(ctx: Context, stat: str) -> None:
    assert still(ctx, "4000", stat) == {}


def test_the_number_of_processes_remembered_is_bounded(ctx: Context) -> None:
    stat = process(ctx)
    for pid in range(3000):
        sysfs.write(Path(ctx.root), f"proc/{pid}/status", "voluntary_ctxt_switches:\t1\n")
        still(ctx, str(pid), stat)
    assert len(ctx.memory("still")) <= 1025
