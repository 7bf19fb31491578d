"""The reader of nccl-tests' output on the field cases and on every known form of its rows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.node import nccl_table

CASES = Path(__file__).parents[1] / "data" / "cases"


def case(name: str) -> nccl_table.Table:
    """A field case by its id."""
    path = CASES / f"nccl-tests-{name}.txt"
    if not path.exists():
        pytest.skip(f"no field case {path.name}")
    return nccl_table.parse(path.read_text())


def sizes(table: nccl_table.Table) -> list[Any]:
    """The sizes of the out-of-place rows in bytes."""
    return [row["size_bytes"] for row in table.rows if not row["in_place"]]


def test_per_iteration_columns_and_timestamps() -> None:
    table = case("periter-timestamp-columns")
    assert sizes(table) == [268435456, 536870912, 1073741824]
    row = next(r for r in table.rows if r["size_bytes"] == 1073741824 and not r["in_place"])
    assert (row["busbw_gb_s"], row["i_min_us"]) == (293.1, 4100.9)
    assert (row["i_max_us"], row["i_cv_percent"]) == (41277.0, 128.8)
    assert [r["timestamp"] for r in table.rows if r["in_place"]] == [
        "2026-03-03 04:05:06", "2026-03-03 04:05:07", "2026-03-03 04:05:08",
    ]  # fmt: skip
    in_place = next(r for r in table.rows if r["in_place"])
    assert in_place["time_us"] == 1120.4
    assert (table.version, table.ranks, table.average) == ("2.19.6", 8, 383.1)


def test_a_crash_measured_nothing_and_names_rank_and_frame() -> None:
    table = case("segv-backtrace")
    assert table.ranks == 16
    assert table.rows == []
    assert not table.concluded
    assert (table.signal, table.signal_rank) == (11, 12)
    assert (table.signal_host, table.frame) == ("gpu-a02", "ncclIbIsend")
    assert table.largest() is None
    assert table.average is None


def test_one_rank_says_nothing_about_links() -> None:
    table = case("single-rank-zero-busbw")
    assert table.ranks == 1
    assert len(sizes(table)) == 4
    assert not table.busbw_means_something
    assert table.out_of_bounds == 0
    wide = next(r for r in table.rows if r["in_place"] and r["size_bytes"] == 134217728)
    assert wide["algbw_gb_s"] == 263172.02
    assert "wrong" not in wide


def test_the_average_is_not_the_large_message_rate() -> None:
    table = case("small-avg-misleads")
    assert len(sizes(table)) == 7
    assert table.average == 171.94
    largest = table.largest()
    assert largest is not None
    assert (largest["size_bytes"], largest["busbw_gb_s"]) == (8589934592, 478.3)
    assert sizes(table)[0] == 0


def test_launcher_tags_and_debug_lines() -> None:
    table = case("tagged-mpi-output")
    assert table.ranks == 16
    assert {device["host"] for device in table.devices} == {"gpu-a01", "gpu-a02"}
    assert len(sizes(table)) == 3
    largest = table.largest()
    assert largest is not None
    assert largest["busbw_gb_s"] == 379.4
    assert (table.average, table.transport) == (250.57, "NET/IB/0/GDRDMA")
    assert (table.out_of_bounds, table.errors, table.concluded) == (0, [], True)


def test_a_csv_of_pairs_is_no_table() -> None:
    table = case("pairwise-straggler")
    assert table.rows == []
    assert table.ranks is None
    assert not table.concluded


@pytest.mark.parametrize(
    ("line", "placements"),
    [
        # before 2.13: no root column, error as a float
        ("33554432 8388608 float sum 265.2 126.51 221.40 1e-07 266.0 126.1 220.7 N/A", 2),
        # broadcast before 2.13 and others that print one placement
        ("33554432 8388608 float sum -1 265.2 126.51 221.40 0", 1),
        # sendrecv: no redop
        ("33554432 8388608 float -1 265.2 126.51 221.40 0 266.0 126.1 220.7 0", 2),
        ("33554432 8388608 float 265.2 126.51 221.40 0 266.0 126.1 220.7 0", 2),
        ("33554432 8388608 float none -1 265.2 126.51 221.40 0 266.0 126.1 220.7 0", 2),
        # whole microseconds, exponents
        ("8589934592 2147483648 float sum -1 31428 273.31 478.30 0 31428 273.31 478.30 0", 2),
        ("8589934592 2147483648 float sum -1 3.1e+04 2.7e+02 4.7e+02 0 3.1e+04 273 478 0", 2),
    ],
)
def test_each_form_of_a_row(line: str, placements: int) -> None:
    rows = nccl_table.parse_row(line)
    assert len(rows) == placements
    assert [row["in_place"] for row in rows] == [False, True][:placements]
    for row in rows:
        assert row["dtype"] == "float"
        assert float(str(row["busbw_gb_s"])) > 200


@pytest.mark.parametrize("line", ["12 13", "1 2 3 4 5", "2026-03-03 04:05:06 x", "1 2 float sum"])
def test_what_is_no_row_is_no_row(line: str) -> None:
    assert nccl_table.parse_row(line) == []


def test_failure_lines_are_kept_as_errors() -> None:
    table = nccl_table.parse(
        "gpu-1: Test NCCL failure common.cu:1005 'unhandled system error / x'\n"
        " .. gpu-1 pid 77: Test failure common.cu:891\n"
        "gpu-2: Test timeout (30s) all_reduce.cu\n"
    )
    assert len(table.errors) == 3
    assert "unhandled system error" in table.errors[0]


@given(st.text(alphabet=st.sampled_from("0123456789 .#-N/A[],<>stdou:\tfloatsum\n"), max_size=200))
def test_any_text_is_read_without_an_exception(text: str) -> None:
    table = nccl_table.parse(text)
    for row in table.rows:
        assert re.fullmatch(r"\d+", str(row["size_bytes"]))
