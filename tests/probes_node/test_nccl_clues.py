"""What NCCL's log explains: one sentence a kind, and the reader of pasted logs sees the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.diagnose import nccl_debug
from console.diagnose.nccl_log import Log
from console.diagnose.report import Report
from probes.node.context import Context
from probes.node.nccl_clues import Clues, active_ports

IB = {f"mlx5_{n}/1": ("InfiniBand", "400 Gb/sec (4X NDR)") for n in range(8)}
HCAS = " ".join(f"[{n}]mlx5_{n}:1/IB" for n in range(8))


def line(text: str, host: str = "gpu-a01") -> str:
    return f"{host}:211:240 [0] NCCL {text}"


def clues(*lines: str, several: bool = True, hopper: bool = True, **more: object) -> dict[str, str]:
    """Clue -> its sentence."""
    read = Clues(IB, several, hopper, frozenset(map(str, more)))
    for one in lines:
        read.feed(one)
    return {str(row["clue"]): str(row["text"]) for row in read.rows()}


HEALTHY = (
    line("INFO NET/IB : Using " + HCAS + " [RO]; OOB eth0:10.0.0.1<0>"),
    line("INFO Using network IB"),
    line("INFO NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)"),
    line("INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"),
    line("INFO Channel 00/0 : 7[7] -> 8[0] [send] via NET/IB/0/GDRDMA"),
    line("INFO NCCL_DEBUG set by environment to INFO"),
    line("INFO Connected all rings, use ring PXN 0 GDR 1"),
    "       8388608       2097152     float     sum      -1    120.4   69.67  130.63      0",
)


def test_a_healthy_log_has_no_clue() -> None:
    assert clues(*HEALTHY) == {}


@pytest.mark.parametrize(
    ("text", "clue", "says"),
    [
        ("INFO Using network Socket", "nccl_log.socket", "although mlx5_0/1, mlx5_1/1"),
        ("INFO Channel 00/0 : 7[7] -> 8[0] [send] via NET/Socket/1", "nccl_log.socket", "sockets"),
        ("INFO Channel 00/0 : 7[7] -> 8[0] [send] via NET/IB/3", "nccl_log.no_gdr", "GPUDirect"),
        ("INFO Channel 02 : 3[3] -> 4[4] via SHM/direct/direct", "nccl_log.shm", "ranks 3-4"),
        ("INFO NVLS multicast support is not available on dev 0 (NVLS_NCHANNELS 0)", "nvls_off",
         "NVLS is not available"),
        ("WARN P2P is disabled between NVLINK connected GPUs 5 and 4. This should not be the case",
         "p2p_off", "GPU5 and GPU4"),
        ("INFO NCCL_IB_DISABLE set by environment to 1.", "setting.NCCL_IB_DISABLE", "is set here"),
        ("WARN NET/IB : mlx5_3:1 Got async event : port error", "nccl_log.port_event", "mlx5_3"),
        ("WARN NET/IB : mlx5_3:1 Got async event : local catastrophic error",
         "nccl_log.device_fatal", "mlx5_3"),
        ("WARN NET/IB : Got completion from peer 10.0.0.2<40000> with status=12 opcode=0 len=0 "
         "vendor err 129 (Recv) hca mlx5_3", "nccl_log.completion", "mlx5_3 failed, status 12"),
    ],
)  # fmt: skip
def test_each_kind_has_a_sentence_and_its_first_line(text: str, clue: str, says: str) -> None:
    found = clues(*HEALTHY, line(text), line(text))
    assert list(found) == [clue]
    assert says in found[clue]


def test_both_readers_say_the_same_of_a_log() -> None:
    """Clues are named after the rules of pasted logs; their patterns are written twice."""
    bad = [
        line("INFO Using network Socket", "gpu-a02"),
        line("INFO Channel 00/0 : 7[7] -> 8[0] [send] via NET/IB/3"),
        line("INFO Channel 02 : 3[3] -> 4[4] via SHM/direct/direct"),
        line("WARN NET/IB : mlx5_3:1 Got async event : port error"),
        line("WARN NET/IB : mlx5_3:1 Got async event : local catastrophic error"),
        line("WARN NET/IB : Got completion from peer 10.0.0.2<4> with status=12 hca mlx5_3"),
    ]
    for one in bad:
        log, report = Log(), Report(kind="nccl-debug")
        for each in (*HEALTHY, one):
            log.feed(each)
        nccl_debug.judge(log, report)
        rules = {f.rule for f in report.findings if f.rule.startswith("nccl_log.")}
        assert set(clues(*HEALTHY, one)) <= rules, one


def test_what_the_order_set_itself_is_no_clue() -> None:
    said = line("INFO NCCL_ALGO set by environment to Ring")
    assert clues(said, NCCL_ALGO=1) == {}
    assert list(clues(said)) == ["setting.NCCL_ALGO"]


def test_inside_one_node_the_network_does_not_matter() -> None:
    bad = (line("INFO Using network Socket"), line("INFO NET/IB : No device found."))
    assert clues(*bad, several=False) == {}


def test_adapters_that_are_left_out_or_of_another_kind() -> None:
    seven = "INFO NET/IB : Using " + " ".join(HCAS.split()[:7]) + "; OOB eth0"
    assert (
        "1 of 8 active adapters of one kind are left out: mlx5_7/1" in clues(line(seven)).values()
    )
    mixed = "INFO NET/IB : Using " + HCAS + " [8]mlx5_bond_0:1/RoCE; OOB eth0"
    assert list(clues(line(mixed))) == ["nccl_log.hca"]


def test_cards_that_have_no_nvls_are_not_missing_it() -> None:
    said = line("INFO NVLS multicast support is not available on dev 0")
    assert clues(said, hopper=False) == {}


@given(st.lists(st.text(max_size=200) | st.builds(line, st.text(max_size=80)), max_size=30))
def test_any_text_is_read_and_stays_bounded(lines: list[str]) -> None:
    read = Clues(IB, True, True)
    for one in lines * 3:
        read.feed(one)
    rows = read.rows()
    assert len(rows) <= 64
    assert all(len(str(row["line"])) <= 300 for row in rows)


def test_ports_that_carry_traffic(tmp_path: Path) -> None:
    for name, state in (("mlx5_0", "4: ACTIVE"), ("mlx5_1", "1: DOWN")):
        place = tmp_path / "sys/class/infiniband" / name / "ports/1"
        place.mkdir(parents=True)
        (place / "state").write_text(state + "\n")
        (place / "link_layer").write_text("InfiniBand\n")
        (place / "rate").write_text("400 Gb/sec (4X NDR)\n")
    assert active_ports(Context(str(tmp_path))) == {
        "mlx5_0/1": ("InfiniBand", "400 Gb/sec (4X NDR)")
    }
