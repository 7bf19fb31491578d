"""What is ordered for a run, and what is made of the answers: nodes are hostile."""

from __future__ import annotations

import math
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from console.active.ask import Asked
from console.active.measured import run_of
from console.active.orders import lacking, orders
from console.active.printed import Printed, flags
from console.active.results import Group, Level, Progress, Run
from inventory.host_settings import TEST_ENV
from inventory.node import Node
from probes.event import Sample
from probes.node.order import ENVIRONMENT

PAIR = Group(nodes=("n1", "n2"))
ONE = Group(nodes=("n1",))
NODES = [
    Node(name="n1", address="10.0.0.1", torch_python="/t/python", test_env={"NCCL_IB_HCA": "mlx5"}),
    Node(name="n2", torch_python="/t/python", nccl_tests="/x/all_reduce_perf"),
]


def sample(device: str, node: str = "n1", probe: str = "nccl", **values: Any) -> Sample:
    return Sample(node=node, probe=probe, device=device, at=1.0, values={"id": "t", **values})


def run(group: Group = PAIR) -> Run:
    return Run(group=group, round=1, state=Progress.RUNNING)


def test_several_nodes_meet_at_the_first_under_one_word() -> None:
    asked = Asked(nodes=PAIR.nodes, level=Level.PAIRS, limit_s=30.0, min_bytes=1 << 20)
    found = orders(PAIR, NODES, asked, {"n1": 8, "n2": 8}, 20005, "test-1")
    args: list[Any] = [found[name]["args"] for name in PAIR.nodes]
    assert [one["node_rank"] for one in args] == [0, 1]
    assert {one["master_addr"] for one in args} == {"10.0.0.1"}
    assert {one["master_port"] for one in args} == {20005}
    assert len({one["token"] for one in args}) == 1
    assert {one["timeout_s"] for one in args} == {30.0}
    assert args[0]["env"] == {"NCCL_IB_HCA": "mlx5"}
    assert "binary" not in args[1], "nccl-tests alone cannot meet another node"
    again = orders(PAIR, NODES, asked, {}, 20005, "test-1")["n1"]["args"]
    assert isinstance(again, dict)
    assert again["token"] != args[0]["token"]
    assert again["gpus"] == 1, "without GPUs one rank a node: two would measure the loopback"


def test_rails_take_one_gpu_of_each_node() -> None:
    asked = Asked(nodes=PAIR.nodes, level=Level.RAILS)
    group = Group(nodes=PAIR.nodes, rail=3)
    found = orders(group, NODES, asked, {"n1": 8, "n2": 8}, 1, "t")
    assert all(order["args"]["local_gpu"] == 3 for order in found.values())  # type: ignore[index]


def test_what_the_inventory_lacks_is_said() -> None:
    bare = Node(name="n3", group="lab")
    assert "torch_python" in lacking(bare, Asked(nodes=("n3",), level=Level.GPU))
    assert "nccl_tests" in lacking(bare, Asked(nodes=("n3",), level=Level.NODE))
    only_nccl = Node(name="n3", nccl_tests="/x")
    assert lacking(only_nccl, Asked(nodes=("n3",), level=Level.NODE)) == ""
    assert "srun" in lacking(only_nccl, Asked(nodes=("n3",), level=Level.PAIRS))
    forced = Asked(nodes=("n3",), level=Level.PAIRS, engine="nccl-tests")
    assert "MPI" in lacking(NODES[1], forced)


def test_the_agent_and_the_inventory_allow_the_same_environment() -> None:
    assert TEST_ENV.pattern == ENVIRONMENT.pattern


def test_a_run_is_read_from_its_first_node() -> None:
    samples = [
        sample("", size_bytes=1024, busbw_gb_s=10.0, time_us=5.0, in_place=False),
        sample("", size_bytes=1024, busbw_gb_s=12.0, time_us=4.0, in_place=True),
        sample("", size_bytes=4096, busbw_gb_s=40.0),
        msgspec.structs.replace(
            sample("ranks"),
            rows=[
                {"rank": 0, "host": "n1", "local_rank": 0, "time_us": 4.0},
                {"rank": 3, "host": "elsewhere", "local_rank": 1, "time_us": 9.0},
            ],
        ),
        msgspec.structs.replace(
            sample("clues"), rows=[{"clue": "x", "text": "sockets"}, {"text": "sockets"}]
        ),
        sample("summary", node="n2", ok=True, busbw_largest_gb_s=1.0),
        sample("summary", ok=True, engine="torch-nccl", ranks=4, busbw_largest_gb_s=40.0),
    ]
    found = run_of(run(), samples, Progress.DONE)
    assert (found.state, found.busbw_gb_s, found.ranks) == (Progress.DONE, 40.0, 4)
    assert [(row.size_bytes, row.busbw_gb_s) for row in found.rows] == [(1024, 12.0), (4096, 40.0)]
    assert [(one.rank, one.node) for one in found.rank_times] == [(0, "n1"), (3, "n2")]
    assert found.clues == ("sockets",)


def test_a_summary_that_is_not_ok_gives_no_figure() -> None:
    samples = [sample("summary", ok=False, error="7 wrong values", busbw_largest_gb_s=40.0)]
    found = run_of(run(ONE), samples, Progress.DONE)
    assert (found.state, found.busbw_gb_s) == (Progress.FAILED, None)
    assert "wrong" in found.error


def test_figures_of_each_gpu() -> None:
    gpu, other = "0000:1b:00.0", "0000:43:00.0"
    samples = [
        sample(gpu, probe="gpu_test", index=0, gemm_bf16_tflops=700.0, power_w=690.0),
        sample(other, probe="gpu_test", index=1, gemm_bf16_tflops=640.0),
        sample(f"{gpu}>{other}", probe="gpu_test", p2p_gb_s=300.0),
        sample("summary", probe="gpu_test", ok=True, engine="torch-cuda"),
    ]
    found = run_of(run(ONE), samples, Progress.DONE).readings
    assert [(one.what, one.label, one.value) for one in found] == [
        ("gemm_bf16", "GPU0", 700.0), ("gemm_bf16", "GPU1", 640.0), ("p2p", "GPU0>GPU1", 300.0),
    ]  # fmt: skip


scalars = st.one_of(st.floats(), st.integers(-(2**70), 2**70), st.booleans(), st.text(max_size=40))
names = st.sampled_from(
    ("size_bytes", "busbw_gb_s", "time_us", "wrong", "ok", "engine", "ranks", "version", "error",
     "busbw_largest_gb_s", "busbw_max_gb_s", "index", "gemm_bf16_tflops", "p2p_gb_s", "id")
)  # fmt: skip
rows = st.dictionaries(
    st.sampled_from(("rank", "host", "local_rank", "time_us", "text", "clue")), scalars
)
hostile = st.builds(
    Sample,
    node=st.sampled_from(("n1", "n2")),
    probe=st.sampled_from(("nccl", "gpu_test", "job")),
    device=st.sampled_from(("", "summary", "ring", "ranks", "clues", "x>y", ">", "x")),
    at=st.just(1.0),
    values=st.dictionaries(names, scalars),
    rows=st.lists(rows, max_size=4),
)


@given(st.lists(hostile, max_size=12), st.sampled_from(Progress))
def test_whatever_nodes_answer_becomes_a_run_that_can_be_kept(
    samples: list[Sample], state: Progress
) -> None:
    found = run_of(run(), samples, state, "why")
    assert found.busbw_gb_s is None or math.isfinite(found.busbw_gb_s)
    assert (found.busbw_gb_s is None) or found.state is Progress.DONE
    assert {one.node for one in found.rank_times} <= set(PAIR.nodes)
    assert "\x1b" not in found.error + found.engine + found.version + "".join(found.clues)
    decoded = msgspec.json.decode(msgspec.json.encode(found), type=Run)
    assert decoded == found


@given(st.lists(st.text(max_size=80), max_size=30), st.integers(-1, 255))
def test_whatever_a_program_prints_is_a_figure_or_a_reason(lines: list[str], rc: int) -> None:
    printed = Printed()
    for line in lines:
        printed.feed(line)
    made = printed.samples(ONE, "t", rc, 1.0)
    found = run_of(run(ONE), made, Progress.DONE)
    assert found.state is Progress.DONE or printed.trouble(rc)
    assert "\x1b" not in found.error


def test_sizes_of_a_scheduled_run() -> None:
    words = flags(1 << 20, None, 8)
    assert words[words.index("-b") + 1] == str(1 << 20)
    assert words[-4:] == ["-g", "8", "-c", "0"]
    assert flags(8 << 30, None, 1)[3] == str(8 << 30), "the largest is never below the smallest"
