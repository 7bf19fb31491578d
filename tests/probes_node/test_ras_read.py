"""NCCL's RAS answers as text and JSON, whole, in pieces, cut short, and made up by an enemy."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.node.ras_comm import Comm
from probes.node.ras_read import Reader
from probes.node.ras_rows import COMMS, ROWS, hosts, rows
from tests.ras_port import COMM, HOSTS, comm, missing, rank, status

HEAD = """\
NCCL version 2.26.2 compiled with CUDA 12.8
CUDA runtime version 12080, driver version 12080

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... (0.01s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
"""
FINE = (
    HEAD
    + """\
    0         8         4         1         4        32   RUNNING      OK

Errors
======

Warnings
========

"""
)
MISMATCH_2_24 = (
    HEAD.replace("2.26.2", "2.24.3")
    + """\
    0         1         4         8        32        32   RUNNING  MISMATCH

Errors
======

Warnings
========

#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different collective operation counts
  26 ranks have launched up to operation 6650
  6 ranks have launched up to operation 6649
  Rank 0 -- GPU 0 managed by process 483072 on node 172.16.64.210
  Rank 2 -- GPU 2 managed by process 483074 on node 172.16.64.210
  Rank 3 -- GPU 3 managed by process 483075 on node 172.16.64.210
  Rank 4 -- GPU 4 managed by process 483076 on node 172.16.64.210
  Rank 5 -- GPU 5 managed by process 483077 on node 172.16.64.210
  Rank 7 -- GPU 7 managed by process 483079 on node 172.16.64.210

"""
)
TWO_OPERATIONS = (
    HEAD
    + """\
    0         1         4         8        32        32   RUNNING  MISMATCH

Errors
======

Warnings
========

#0-0 (00000000ff1a75) MISMATCH
  Communicator ranks have different AllGather operation counts
  31 ranks have launched up to operation 120
  Rank 9 has launched up to operation 119 -- GPU 1 (NVML 5) managed by process 77 on node fd00::2

  Communicator ranks have different AllReduce operation counts
  31 ranks have launched up to operation 6650
  Rank 9 has not launched any operations -- GPU 1 (NVML 5) managed by process 77 on node fd00::2

"""
)
DEAD = (
    HEAD
    + """\
    0         1         4       7-8        32        32   RUNNING  INCOMPLETE

Errors
======

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 3487984 on node 172.16.64.213 managing GPU 5

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 21 -- GPU 5 managed by process 3487984 on node 172.16.64.213

Warnings
========

TIMEOUT
  Encountered 2 communication timeouts while gathering communicator data

"""
)
LISTED = (
    HEAD
    + """\
    0         1         4       7-8        32        32   RUNNING  INCOMPLETE

Errors
======

INCOMPLETE
  Missing communicator data from 1 job process
  Process 3487984 on node 172.16.64.213 managing GPU 5

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  The missing rank: 21

Warnings
========

"""
)
ERROR = (
    HEAD
    + """\
    0         1         4         8        32        32   RUNNING  ERROR

Errors
======

#0-0 (cf264af53edbe986) ERROR
  Asynchronous errors on 3 ranks
  2 ranks reported Remote process error
  Rank 3 -- GPU 3 managed by process 11 on node 172.16.64.213
  Rank 4 -- GPU 4 managed by process 12 on node 172.16.64.213
  Rank 9 reported System error -- GPU 1 managed by process 13 on node 172.16.64.214

Warnings
========

"""
)
TEARDOWN = (
    HEAD
    + """\
    0         1         4       1-2        32        32  FINALIZE  MISMATCH

Errors
======

Warnings
========

#0-0 (9e17999afaa87dbb) MISMATCH
  Communicator ranks have different status
  26 ranks have status UNKNOWN
  4 ranks have status RUNNING
  Rank 0 -- GPU 0 managed by process 507285 on node 172.16.64.210
  Rank 8 -- GPU 0 managed by process 1598388 on node 172.16.64.212
  2 ranks have status FINALIZE
  Rank 4 -- GPU 4 managed by process 507289 on node 172.16.64.210

"""
)


def read(answer: bytes | str, piece: int = 1 << 20) -> Reader:
    raw = answer.encode() if isinstance(answer, str) else answer
    reader = Reader()
    for at in range(0, len(raw), piece):
        reader.feed(raw[at : at + piece])
    reader.end()
    return reader


def told(answer: bytes | str, *own: str) -> list[dict[str, Any]]:
    return rows(read(answer).comms, set(own), {})


def summary(answer: bytes | str) -> dict[str, Any]:
    (one,) = [row for row in told(answer) if row["kind"] == "comm"]
    return one


def test_text_while_all_agree_names_no_communicator() -> None:
    reader = read(FINE)
    assert (reader.format, reader.version, reader.took_s) == ("text", "2.26.2", 0.01)
    assert (reader.complete, reader.odd, reader.comms) == (True, False, [])


def test_text_of_2_24_names_the_ranks_behind() -> None:
    found = told(MISMATCH_2_24, "172.16.64.210")
    head = found[0]
    assert {k: head[k] for k in ("comm", "size", "seen", "low", "mid", "high", "behind")} == {
        "comm": COMM, "size": 32, "seen": 32, "low": 6649, "mid": 6650, "high": 6650, "behind": 6,
    }  # fmt: skip
    assert head["basis"] == "collective"
    assert [row["rank"] for row in found[1:]] == [0, 2, 3, 4, 5, 7]
    assert found[1] == {
        "kind": "rank", "comm": COMM, "rank": 0, "host": "172.16.64.210", "pid": 483072,
        "gpu": 0, "here": True, "count": 6649, "ops": "collective 6649",
    }  # fmt: skip


def test_of_several_operations_the_first_counts() -> None:
    head, late = told(TWO_OPERATIONS)
    assert (head["comm"], head["basis"], head["low"], head["mid"]) == (
        "0000000000ff1a75", "AllGather", 119, 120,
    )  # fmt: skip
    assert (late["rank"], late["host"], late["gpu"], late["count"]) == (9, "fd00::2", 5, 119)


def test_text_knows_who_is_dead() -> None:
    reader = read(DEAD)
    assert reader.timeouts == 2
    head, lost = rows(reader.comms, set(), {})
    assert (head["size"], head["seen"], head["missing"]) == (32, 31, 1)
    assert "mid" not in head, "text tells no counts while they agree"
    assert (lost["kind"], lost["rank"], lost["dead"], lost["pid"]) == ("missing", 21, True, 3487984)


def test_text_that_only_lists_the_missing() -> None:
    head, lost = told(LISTED)
    assert (head["missing"], lost["rank"], lost["silent"], lost["dead"]) == (1, 21, True, False)


def test_text_errors() -> None:
    found = {row["rank"]: row["error"] for row in told(ERROR)[1:]}
    assert found == {3: 6, 4: 6, 9: 2}


def test_ranks_of_different_status_are_no_counts() -> None:
    assert "mid" not in summary(TEARDOWN)


def test_json_counts_every_rank() -> None:
    ranks = [rank(index, 6649 if index == 17 else 6650) for index in range(31)]
    found = told(status(comm(ranks, [missing(31, dead=True)])), HOSTS[0])
    head = found[0]
    assert (head["size"], head["seen"], head["missing"], head["hosts"]) == (32, 31, 1, 4)
    assert (head["low"], head["mid"], head["behind"], head["own"]) == (6651, 6652, 1, 8)
    late = found[1]
    assert (late["rank"], late["pid"], late["count"]) == (17, 4001, 6651)
    assert late["ops"] == "Broadcast 2, AllReduce 6649"
    assert [row["rank"] for row in found if row.get("here")] == list(range(8))
    assert [(row["rank"], row["dead"]) for row in found if row["kind"] == "missing"] == [(31, True)]


def test_json_errors_and_ends() -> None:
    ranks = [rank(0, 5, async_error=6), rank(1, 5, abort_flag=True), rank(2, 5, init_state=7)]
    head, failed = told(status(comm(ranks)))
    assert (head["failed"], head["ending"], head["starting"]) == (1, 1, 1)
    assert (failed["rank"], failed["error"]) == (0, 6)


def test_a_communicator_without_ranks_and_one_of_another_version() -> None:
    strange = {**comm([rank(0, 7, uuid="x", extra={"deep": 1})]), "name": "world"}
    reader = read(status(comm([], [], "ff"), strange))
    assert [(one.name, one.size, len(one.ranks)) for one in reader.comms] == [
        ("00000000000000ff", 0, 0), (COMM, 1, 1),
    ]  # fmt: skip


@given(st.integers(1, 200))
@settings(max_examples=25, deadline=None)
def test_pieces_do_not_matter(piece: int) -> None:
    whole = status(comm([rank(index, index) for index in range(20)], [missing(20)]))
    for answer in (whole, MISMATCH_2_24.encode(), DEAD.encode()):
        assert rows(read(answer, piece).comms, set(HOSTS), {}) == told(answer, *HOSTS)


@given(st.integers(0, 4000))
@settings(max_examples=40, deadline=None)
def test_half_an_answer_is_never_called_complete(cut: int) -> None:
    whole = status(comm([rank(index, 9) for index in range(8)]))
    reader = read(whole[: min(cut, len(whole) - 4)])
    assert not reader.complete
    for one in reader.comms:
        assert len(one.ranks) <= 8
        assert all(found.count == 11 for found in one.ranks)


@given(st.one_of(st.binary(max_size=600), st.text(max_size=300).map(str.encode)))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_survived(noise: bytes) -> None:
    for raw in (noise, b"{" + noise, HEAD.encode() + noise, MISMATCH_2_24.encode() + noise):
        rows(read(raw).comms, {"10.0.0.1"}, {})


@pytest.mark.parametrize(
    "answer",
    ["", "HTTP/1.1 400 Bad Request\r\n\r\n", "{" * 100_000, "}" * 10, "x" * 300_000, "\0" * 50],
)
def test_what_is_not_nccl_is_odd(answer: str) -> None:
    assert read(answer, 4096).odd


def test_numbers_of_an_enemy() -> None:
    bad = json.dumps({"rank": 10**400, "host": "\x1b[31m", "pid": -1, "nvml_dev": True,
                      "status": [], "collective_counts": {"A" * 999: 1, "B": -3, "C": 1e400,
                                                          "\x07": 5}})  # fmt: skip
    text = status(comm([rank(0, 1)])).decode().replace('"ranks": [', '"ranks": [' + bad + ",", 1)
    (comm_,) = read(text.replace('"size": 1', '"size": 2')).comms
    first = comm_.ranks[0]
    assert (first.rank, first.host, first.pid, first.gpu) == (None, "", None, None)
    assert first.count is None, "a sum of what can be read would stand still"
    assert "\x07" not in first.ops


def test_a_large_job_stays_few_rows() -> None:
    rng = random.Random(3)
    comms = []
    for number in range(200):
        one = Comm(f"{number:016x}", 4096)
        reader = read(status(comm([rank(i, rng.randrange(50)) for i in range(64)])))
        one.ranks = reader.comms[0].ranks
        comms.append(one)
    found = rows(comms, set(HOSTS), {})
    assert len(found) <= ROWS
    assert sum(row["kind"] == "comm" for row in found) == COMMS
    assert len(json.dumps(found)) < 100_000


def test_hosts_are_in_order_of_their_lowest_rank_on_every_node() -> None:
    ranks = [rank(index, 1) for index in range(32)]
    random.Random(1).shuffle(ranks)
    assert hosts(read(status(comm(ranks))).comms) == list(HOSTS)
