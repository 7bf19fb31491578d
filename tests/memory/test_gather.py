"""Which readings become rows, and of which series."""

from __future__ import annotations

import pytest

from console.memory.gather import DEVICES, STEP_S, Gather, Row
from console.memory.metrics import GPU, PORT, unpack
from probes.event import Event, Sample, Scalar
from tests.memory.build import PCI, T0, gpu, inventory


def gathered(*events: Event, now: float | None = None) -> list[Row]:
    """All rows, whether their interval ended or not."""
    gather = Gather()
    for event in events:
        assert isinstance(event, Sample)
        gather.add(event, good=True)
    return gather.rows(now or T0, all_of_them=True)


def clock_of(row: Row) -> float:
    return unpack(GPU, row.thin.packed)[0]


def test_an_interval_is_the_median_of_its_readings() -> None:
    (row,) = gathered(
        *inventory(), *(gpu(T0 + i, clock=c) for i, c in enumerate((1700, 1900, 1755)))
    )
    assert (row.at, row.thin.n, clock_of(row)) == (int(T0), 3, 1755)
    assert row.series[:7] == ("n1", PCI, GPU, "111", "H100", "580", 700)
    assert row.label == "GPU3"


@pytest.mark.parametrize(
    "idle", [gpu(T0, util=3), gpu(T0, reasons=1), gpu(T0, util=True), gpu(T0, util="98")]
)
def test_a_gpu_that_does_not_work_is_no_baseline(idle: Sample) -> None:
    assert gathered(*inventory(), idle) == []


def test_readings_wait_for_their_card_to_be_known() -> None:
    gather = Gather()
    gather.add(gpu(T0), good=True)
    assert gather.rows(T0, all_of_them=True) == []
    for event in inventory():
        assert isinstance(event, Sample)
        gather.add(event, good=True)
    assert len(gather.rows(T0, all_of_them=True)) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"serial": "222"},
        {"driver": "590.1"},
    ],
)
def test_another_card_or_driver_is_another_series(change: dict[str, str]) -> None:
    told = gathered(*inventory(), gpu(T0), *inventory(**change), gpu(T0 + 60, clock=1900))  # type: ignore[arg-type]
    assert [clock_of(row) for row in told] == [1755, 1900]
    assert len({row.series for row in told}) == 2


def test_a_driver_of_the_same_branch_is_the_same_series() -> None:
    told = gathered(*inventory(), gpu(T0), *inventory(driver="580.105.08"), gpu(T0 + 60))
    assert len(told) == 1


def test_another_power_limit_is_another_series() -> None:
    told = gathered(*inventory(), gpu(T0), gpu(T0 + 60, power_limit_w=500.0))
    assert [row.series.limit_w for row in told] == [700, 500]


def test_a_row_that_grows_is_told_again_with_more_readings() -> None:
    gather = Gather()
    for event in (*inventory(), gpu(T0)):
        assert isinstance(event, Sample)
        gather.add(event, good=True)
    assert gather.rows(T0 + 59) == []
    (first,) = gather.rows(T0 + 60)
    gather.add(gpu(T0 + 90, clock=1900), good=True)
    (second,) = gather.rows(T0 + 150)
    assert (first.at, first.series) == (second.at, second.series)
    assert (first.thin.n, second.thin.n) == (1, 2)


def test_the_next_interval_ends_the_one_before() -> None:
    gather = Gather()
    for event in (*inventory(), gpu(T0), gpu(T0 + STEP_S)):
        assert isinstance(event, Sample)
        gather.add(event, good=True)
    (row,) = gather.rows(T0 + STEP_S)
    assert row.at == int(T0)


def test_one_bad_reading_spoils_its_interval_only() -> None:
    gather = Gather()
    for event in inventory():
        assert isinstance(event, Sample)
        gather.add(event, good=True)
    for at, good in ((T0, True), (T0 + 60, False), (T0 + STEP_S, True)):
        gather.add(gpu(at), good=good)
    rows = gather.rows(T0, all_of_them=True)
    assert sorted((row.at, row.thin.good) for row in rows) == [
        (int(T0), False), (int(T0) + STEP_S, True),
    ]  # fmt: skip


def port(at: float, words: int, clock: float) -> Sample:
    values: dict[str, Scalar] = {
        "port_rcv_data": words, "port_xmit_data": 2 * words, "rate_gbps": 400.0, "state": 4,
    }  # fmt: skip
    return Sample(
        node="n1", probe="infiniband", device="mlx5_0/1", at=at, clock=clock, values=values
    )


def test_a_port_is_known_by_its_rates() -> None:
    (row,) = gathered(port(T0, 0, 10.0), port(T0 + 30, 7_500_000_000, 40.0))
    assert row.series.kind == PORT
    assert unpack(PORT, row.thin.packed) == pytest.approx((1e9, 2e9), rel=1e-3)


@pytest.mark.parametrize(
    "after",
    [
        port(T0 + 30, 100, 40.0),  # idle
        port(T0 + 30, 7_500_000_000, 5.0),  # another boot
        port(T0 + 3000, 7_500_000_000, 3000.0),  # a gap
        port(T0 + 30, 0, 40.0),
    ],
)
def test_a_port_that_says_nothing_is_not_kept(after: Sample) -> None:
    assert gathered(port(T0, 50, 10.0), after) == []


def test_activity_counts_while_the_gpu_works() -> None:
    values: dict[str, Scalar] = {"tensor_percent": 61, "nvlink_tx_bytes_per_s": 120e9}
    busy = Sample(node="n1", probe="gpm", device=PCI, at=T0 + 1, values=values)
    idle = Sample(node="n1", probe="gpm", device=PCI, at=T0 + 3, values={"tensor_percent": 0})
    (row,) = gathered(*inventory(), gpu(T0), busy, gpu(T0 + 2, util=0), idle)
    found = unpack(GPU, row.thin.packed)
    assert found[6] == 61
    assert found[9] == pytest.approx(120e9, rel=1e-3)


def test_a_node_cannot_name_devices_without_end() -> None:
    events: list[Event] = [inventory()[1]]
    for number in range(3 * DEVICES):
        device = f"{number:04x}"
        events += [inventory(device=device)[0], gpu(T0, device=device)]
        events += [port(T0, 0, 10.0), gpu(T0, node="other")]
    assert len({row.series.device for row in gathered(*events)}) <= DEVICES


def test_hostile_names_are_made_harmless_and_short() -> None:
    (row,) = gathered(*inventory(serial="\x1b[2J" + "9" * 5000), gpu(T0))
    assert row.series.card.isprintable()
    assert len(row.series.card) <= 80
