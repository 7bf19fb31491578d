"""More runs: wrong data in pairs, runs that did not start, newer wordings of completion errors."""

from __future__ import annotations

from tests.diagnose.support import findings
from tests.diagnose.variants import Variant, check, table

HEAD = "node_a,node_b,max_busbw,out_of_bounds,status\n"
ALL = [(a, b) for a in range(1, 6) for b in range(a + 1, 6)]
WRONG = HEAD + "".join(f"g{a},g{b},88.0,{7 if 2 in (a, b) else 0},ok\n" for a, b in ALL)
PATH = HEAD + "".join(f"g{a},g{b},{50.0 if (a, b) == (2, 3) else 88.0},0,ok\n" for a, b in ALL)
COMPLETION = (
    "gpu-a02:4411:4450 [0] transport/net_ib.cc:1234 NCCL WARN NET/IB : Got completion from peer "
    "10.0.0.2<44321> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) reqSize=0 "
    "vendor_err=129 req_type=Send localGid fe80:: remoteGid fe80:: hca mlx5_3\n"
)
LIBRARY = (
    "./build/all_reduce_perf: error while loading shared libraries: libnccl.so.2: cannot open "
    "shared object file: No such file or directory\n"
)
SLOTS = """\
--------------------------------------------------------------------------
There are not enough slots available in the system to satisfy the 16
slots that were requested by the application:

  ./build/all_reduce_perf
--------------------------------------------------------------------------
"""
FABRIC = (
    "gpu-a01: Test CUDA failure common.cu:901 'system not yet initialized'\n"
    " .. gpu-a01 pid 4411: Test failure common.cu:891\n"
)


@table(
    Variant("wrong-pairs", WRONG, "critical", "now", ("wrong data in 4 pairs", "g2 is in all"),
            ("within 10 %",)),
    Variant("one-path", PATH, "warn", "no", ("g2 to g3",)),
    Variant("completion", COMPLETION, "warn", "", ("mlx5_3", "12", "10.0.0.2<44321>"),
            ("does not name",)),
    Variant("library", LIBRARY, "unknown", "no", ("library is missing",)),
    Variant("slots", SLOTS, "unknown", "no", ("not enough slots",)),
    Variant("no-fabric", FABRIC, "critical", "now", ("gpu-a01", "fabric manager"),
            ("on gpu-a01",)),
)  # fmt: skip
def test_the_verdict(variant: Variant) -> None:
    check(variant)


def test_no_node_is_drained_for_a_run_that_did_not_start() -> None:
    for text in (LIBRARY, SLOTS):
        assert all(f.action != "drain" for f in findings(check(Variant("", text, "unknown", "no"))))
