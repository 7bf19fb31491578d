"""The rules about calls in flight: one per device, no waiting beyond the deadline, no stacking."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from probes.node.context import Context, Stuck


class Clock:
    """A monotonic clock the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def hanging(ctx: Context, call: str, device: str) -> Iterator[None]:
    """A call in another thread that returns when the block ends."""
    inside, back = threading.Event(), threading.Event()

    def work() -> None:
        with ctx.busy(call, device):
            inside.set()
            back.wait(30)

    thread = threading.Thread(target=work)
    thread.start()
    assert inside.wait(30)
    try:
        yield
    finally:
        back.set()
        thread.join(30)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ctx(clock: Clock, tmp_path: Path) -> Context:
    return Context(str(tmp_path), 5.0, clock)


def test_a_late_call_refuses_a_second_one_on_its_device_only(ctx: Context, clock: Clock) -> None:
    with hanging(ctx, "nvmlDeviceGetTemperature", "gpu0"):
        clock.now += 5.0
        with pytest.raises(Stuck, match="nvmlDeviceGetTemperature"), ctx.busy("nvmlX", "gpu0"):
            raise AssertionError("stacked")
        with ctx.busy("nvmlX", "gpu1"):
            assert ctx.stuck() == {"gpu0"}
    with ctx.busy("nvmlX", "gpu0"):
        assert ctx.stuck() == set()


def test_two_late_devices_refuse_the_driver_until_one_returns(ctx: Context, clock: Clock) -> None:
    with hanging(ctx, "nvmlX", "gpu0"):
        with hanging(ctx, "nvmlX", "gpu1"):
            clock.now += 5.0
            assert ctx.driver_stuck
            with pytest.raises(Stuck), ctx.busy("nvmlX", "gpu2"):
                raise AssertionError("stacked")
            with ctx.busy("read", "mlx5_0"):
                pass
        assert not ctx.driver_stuck
        with ctx.busy("nvmlX", "gpu2"):
            pass


def test_a_late_call_without_a_device_refuses_the_driver(ctx: Context, clock: Clock) -> None:
    with hanging(ctx, "nvmlInit", ""):
        assert not ctx.driver_stuck
        clock.now += 5.0
        assert ctx.driver_stuck


def test_a_second_caller_waits_for_a_call_that_is_not_late(tmp_path: Path) -> None:
    ctx = Context(str(tmp_path), 30.0)
    entered = threading.Event()

    def second() -> None:
        with ctx.busy("nvmlX", "gpu0"):
            entered.set()

    thread = threading.Thread(target=second)
    with hanging(ctx, "nvmlX", "gpu0"):
        thread.start()
        assert not entered.wait(0.05)
    assert entered.wait(30)
    thread.join(30)


def test_a_waiting_caller_gives_up_when_the_first_is_late(tmp_path: Path) -> None:
    ctx = Context(str(tmp_path), 0.05)
    with hanging(ctx, "nvmlX", "gpu0"), pytest.raises(Stuck), ctx.busy("nvmlX", "gpu0"):
        raise AssertionError("stacked")


def test_calls_nest_in_one_thread(ctx: Context) -> None:
    with ctx.busy("nvmlOuter", "gpu0"):
        with ctx.busy("nvmlInner", "gpu0"):
            pass
        with ctx.busy("nvmlInner", "gpu1"):
            pass
    assert ctx.stuck() == set()


def test_an_abandoned_thread_makes_no_more_calls(ctx: Context) -> None:
    me = threading.get_ident()
    ctx.abandon(me)
    with pytest.raises(Stuck), ctx.busy("nvmlX", "gpu0"):
        raise AssertionError("called")
    ctx.release(me)
    with ctx.busy("nvmlX", "gpu0"):
        pass


@pytest.mark.parametrize("beats", [True, False])
def test_seconds_in_which_the_agent_could_not_run_are_no_calls_fault(
    ctx: Context, clock: Clock, beats: bool
) -> None:
    ctx.beat(0.25)
    spent_s = ctx.timer()
    with hanging(ctx, "nvmlX", "gpu0"):
        for _ in range(24):
            clock.now += 0.25
            if beats:
                ctx.beat(0.25)
        assert ctx.stuck() == ({"gpu0"} if beats else set())
        assert spent_s() == (6.0 if beats else 0.25)


def test_after_a_stall_a_call_has_the_rest_of_its_deadline(ctx: Context, clock: Clock) -> None:
    ctx.beat(1.0)
    with hanging(ctx, "nvmlX", "gpu0"):
        clock.now += 60.0
        ctx.beat(1.0)
        for _ in range(3):
            clock.now += 1.0
            ctx.beat(1.0)
        assert ctx.stuck() == set()  # 4 of 5 s: one period of the stall counts
        clock.now += 1.0
        assert ctx.stuck() == {"gpu0"}


def test_without_a_watch_that_beats_all_time_counts(ctx: Context, clock: Clock) -> None:
    spent_s = ctx.timer()
    clock.now += 60.0
    assert spent_s() == 60.0


def test_what_cannot_be_read_is_none(ctx: Context, tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    (tmp_path / "sys" / "n").write_text("0x10\n")
    (tmp_path / "sys" / "m").write_text("08\n")
    (tmp_path / "sys" / "t").write_text("text\n")
    assert ctx.read("/sys/t") == ctx.read("sys", "t") == "text"
    assert ctx.read_int("sys/n") == 16
    assert ctx.read_int("sys/m") == 8
    assert ctx.read_int("sys/t") is None
    assert ctx.read("sys/absent") is None
    assert ctx.read("sys") is None
    assert ctx.listdir("sys") == ["m", "n", "t"]
    assert ctx.listdir("absent") == []
    assert ctx.readlink("sys/t") is None
