"""nccl-tests of every release and launcher, and NCCL's own log."""

# ruff: noqa: E501 - pasted output is as wide as its program prints it

from __future__ import annotations

import json
from typing import Any

import pytest

from probes.event import Severity
from tests.diagnose.support import about, case, demand, facts, findings, only, rules, ticket, words

H100 = "NVIDIA H100 80GB HBM3"
SLOTS = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")
NEW = "   out-of-place                       in-place"
HEADS = {
    "2.10": "#       size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error",
    "2.13": "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong",
}  # fmt: skip


def device(rank: int, host: str, name: str = H100) -> str:
    slot = SLOTS[rank % 8]
    return f"#  Rank {rank:2} Group  0 Pid  {21000 + rank} on {host:>10} device  {rank % 8} [0000:{slot}:00] {name}"


def row(size: int, busbw: float, tail: str = "0", root: str = "      -1") -> str:
    algbw = busbw / 1.75
    time = size / 1000 / max(algbw, 0.01)
    half = f"  {time:8.1f} {algbw:7.2f} {busbw:7.2f} {tail:>6}"
    return f"{size:12} {size // 4:13}     float     sum{root}{half}{half}"


def run(
    hosts: list[str],
    rows: list[str],
    *,
    name: str = H100,
    release: str = "2.17.6",
    head: str = HEADS["2.13"],
    foot: bool = True,
    test: str = "all_reduce_perf",
    ranks: int = 0,
) -> str:
    lines = [f"# nccl-tests version {release} nccl-headers=22807 nccl-library=22807"]
    lines += [f"# Collective test starting: {test}", "# nThread 1 nGpus 1 minBytes 8 maxBytes 8"]
    lines += ["#", "# Using devices"]
    count = ranks or 8 * len(hosts)
    lines += [device(n, hosts[n * len(hosts) // count], name) for n in range(count)]
    lines += ["#", f"#{NEW}", head, *rows]
    if foot:
        lines += ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 200.0 ", "#"]
        lines += [f"# Collective test concluded: {test}"]
    return "\n".join(lines) + "\n"


SIZES = [row(1 << 20, 38.0), row(1 << 30, 460.0), row(8 << 30, 478.0)]


# ------------------------------------------------------------------------------- field cases


def test_pairs_accuse_the_common_node_and_no_missing_pair() -> None:
    name = "nccl-tests-pairwise-straggler"
    part, wanted = only(case(name)), demand(name)["facts"]
    assert {key: part.facts[key] for key in wanted} == wanted
    (slow,) = [f for f in part.findings if f.severity is Severity.WARN]
    assert (slow.node, slow.rule) == ("gpu-a03", "nccl_tests.pair")
    assert "56" in slow.say


def test_iterations_beside_the_averages() -> None:
    name = "nccl-tests-periter-timestamp-columns"
    part, wanted = only(case(name)), demand(name)["facts"]
    assert part.facts["row_1073741824"].items() >= wanted["row_1073741824"].items()
    for key in ("rows", "columns", "timestamps"):
        assert part.facts[key] == wanted[key]
    assert "41 ms against 4.1 ms" in part.say
    assert "129 %" in part.say
    assert "293" in part.say


@pytest.mark.parametrize(
    "name",
    ["nccl-tests-segv-backtrace", "nccl-tests-single-rank-zero-busbw",
     "nccl-tests-small-avg-misleads", "nccl-tests-tagged-mpi-output"],
)  # fmt: skip
def test_facts_of_cases(name: str) -> None:
    found = only(case(name)).facts
    wanted = demand(name)["facts"]
    assert {key: found.get(key) for key in wanted} == wanted


def test_the_average_is_explained_not_compared() -> None:
    part = only(case("nccl-tests-small-avg-misleads"))
    assert part.findings == []
    assert "478 GB/s at 8 GiB" in part.say
    assert "normal for 8x H100" in part.say
    assert "172" in part.say


# -------------------------------------------------------------------- releases and launchers


@pytest.mark.parametrize("release", ["2.10", "2.13"])
def test_columns_of_old_and_new_releases(release: str) -> None:
    old = release == "2.10"
    rows = [row(s, b, "1e-07" if old else "0", "" if old else "      -1")
            for s, b in ((1 << 20, 38.0), (8 << 30, 478.0))]  # fmt: skip
    part = only(ticket(run(["a1"], rows, head=HEADS[release])))
    assert part.facts["rows"] == 2
    assert part.facts["large_message_busbw"] == 478.0
    assert part.facts["wrong"] == 0
    assert part.verdict is Severity.OK


@pytest.mark.parametrize(
    "tag",
    ["[1,0]<stdout>:", " 0: ", "0: ", "2026-03-03T04:05:06.123456789Z ",
     "2026-03-03T04:05:06.1+00:00 stdout F ", "\x1b[0m", "[1,0]<stdout>: "],
)  # fmt: skip
def test_what_launchers_put_in_front_changes_nothing(tag: str) -> None:
    text = run(["a1", "a2"], SIZES)
    part = only(ticket("".join(f"{tag}{line}\n" for line in text.splitlines())))
    assert (part.facts["ranks"], part.facts["nodes"], part.facts["rows"]) == (16, 2, 3)
    assert part.facts["max_busbw"] == 478.0


def test_windows_line_ends_gzip_and_utf16() -> None:
    import gzip

    text = run(["a1"], SIZES)
    plain = only(ticket(text)).facts
    assert only(ticket(text.replace("\n", "\r\n"))).facts == plain
    assert only(ticket(text.encode("utf-16"))).facts == plain
    from tests.diagnose.test_framework import written

    assert only(written(gzip.compress(text.encode()))).facts == plain


def test_values_of_any_width_and_n_a() -> None:
    rows = [row(8 << 30, 478.0, "N/A"), "  8589934592    2147483648     float     sum      -1"
            "   3.1e+04   2.7e+02   4.8e+02    N/A   3.1e+04   2.7e+02   4.8e+02    N/A"]  # fmt: skip
    part = only(ticket(run(["a1"], rows)))
    assert part.facts["rows"] == 2
    assert part.facts["max_busbw"] == 480.0


def test_a_node_below_its_products_floor() -> None:
    diagnosis = ticket(run(["gpu-a07"], [row(1 << 30, 210.0), row(8 << 30, 212.0)]))
    slow = about(diagnosis, "nccl.busbw")
    assert (slow.severity, slow.node) == (Severity.WARN, "gpu-a07")
    assert "212" in slow.say
    assert "460" in slow.say
    assert "[az]" in slow.source
    assert diagnosis.drain == "after running jobs"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"name": "NVIDIA Hypothetical X1"}, "not in hardware.yaml"),
        ({"test": "alltoall_perf"}, "not alltoall_perf"),
        ({"ranks": 4}, "no published figure for 4"),
    ],
)
def test_without_a_figure_nothing_is_judged(change: dict[str, Any], why: str) -> None:
    part = only(ticket(run(["a1"], [row(8 << 30, 21.0)], **change)))
    assert part.findings == []
    assert why in " ".join(part.unknown)


def test_small_sizes_only_are_not_compared_with_a_large_figure() -> None:
    part = only(ticket(run(["a1"], [row(8, 0.0), row(1 << 20, 38.0)])))
    assert part.verdict is Severity.OK
    assert "1 MiB" in " ".join(part.unknown)


def test_wrong_data_is_critical() -> None:
    text = run(["a1"], [row(8 << 30, 478.0, "12")]).replace("values : 0 OK", "values : 24 FAILED")
    diagnosis = ticket(text)
    assert about(diagnosis, "nccl.wrong").severity is Severity.CRITICAL
    assert diagnosis.drain == "now"


def test_a_run_that_stops_in_the_middle_is_unknown() -> None:
    part = only(ticket(run(["a1"], SIZES, foot=False)))
    assert part.verdict is Severity.UNKNOWN
    assert part.facts["completed"] is False
    assert "ends after 3 sizes" in part.say


def test_header_and_nothing_is_not_zero_bandwidth() -> None:
    part = only(ticket(run(["a1"], [], foot=False)))
    assert part.verdict is Severity.UNKNOWN
    assert "GB/s" not in part.say


def test_two_nodes_over_sockets() -> None:
    noise = "a1:21000:21090 [0] NCCL INFO Using network Socket\n"
    noise += "a1:21003:21200 [3] NCCL INFO Channel 00/0 : 3[3] -> 8[0] [send] via NET/Socket/0\n"
    diagnosis = ticket(noise + run(["a1", "a2"], [row(1 << 30, 4.0), row(8 << 30, 4.2)]))
    assert {"nccl_log.socket", "nccl_tests.multi_node"} <= rules(diagnosis)


def test_dip_at_a_large_size() -> None:
    rows = [row(256 << 20, 440.0), row(1 << 30, 460.0), row(4 << 30, 240.0), row(8 << 30, 478.0)]
    dip = about(ticket(run(["a1"], rows)), "nccl_tests.dip")
    assert "4 GiB" in dip.say
    assert "240" in dip.say


def test_several_runs_are_compared_by_their_median() -> None:
    speeds = {"n1": 470.0, "n2": 478.0, "n3": 476.0, "n4": 415.0}
    text = "\n".join(run([n], [row(8 << 30, s)]) for n, s in speeds.items())
    slow = about(ticket(text), "nccl_tests.peer")
    assert slow.node == "n4"
    assert len(only(ticket(text)).facts["runs"]) == 4


def test_files_of_one_node_each_are_compared(tmp_path: Any) -> None:
    from console.diagnose.command import diagnose
    from console.diagnose.text import open_input

    for node, speed in (("n1", 470.0), ("n2", 300.0), ("n3", 476.0)):
        (tmp_path / node).write_text(run([node], [row(8 << 30, speed)]))
    files = [open_input(str(path)) for path in sorted(tmp_path.iterdir())]
    diagnosis = diagnose(files)
    assert diagnosis.inputs[-1].facts["slow_nodes"] == ["n2"]


@pytest.mark.parametrize(
    ("lines", "signal", "host", "rank"),
    [
        ("srun: error: gpu-a02: task 12: Segmentation fault (core dumped)", 11, "gpu-a02", 12),
        ("srun: error: gpu-a02: tasks 8-15: Killed", 9, "gpu-a02", 8),
        ("[gpu-a02:21012] *** Process received signal ***\n[gpu-a02:21012] Signal: Bus error (7)",
         7, "gpu-a02", None),
        ("mpirun noticed that process rank 3 with PID 0 on node gpu-a01 exited on signal 6 "
         "(Aborted).", 6, "gpu-a01", 3),
        ("prterun noticed that process rank 12 with PID 21012 on node gpu-a02 exited on\n"
         "signal 11 (Segmentation fault).", 11, "gpu-a02", 12),
    ],
)  # fmt: skip
def test_crashes_name_signal_host_and_rank(
    lines: str, signal: int, host: str, rank: int | None
) -> None:
    diagnosis = ticket(run(["gpu-a01", "gpu-a02"], [], foot=False) + lines + "\n")
    found = only(diagnosis).facts
    assert (found["signal"], found["host"], found.get("rank")) == (signal, host, rank)
    assert diagnosis.verdict is Severity.UNKNOWN
    assert diagnosis.drain == "no"


@pytest.mark.parametrize(
    ("line", "rule", "grade"),
    [
        ("gpu-a03: Test CUDA failure common.cu:594 'uncorrectable ECC error encountered'",
         "nccl_log.hardware", Severity.CRITICAL),
        ("gpu-a03: Test CUDA failure common.cu:892 'system not yet initialized'",
         "nccl_log.fabric", Severity.CRITICAL),
        ("gpu-a03: Test NCCL failure common.cu:1005 'unhandled system error (run with "
         "NCCL_DEBUG=INFO for details) / '", "nccl_log.failed", Severity.UNKNOWN),
        ("gpu-a03: Test NCCL failure all_reduce.cu:44 'remote process exited or there was a "
         "network error / '", "nccl_log.failed", Severity.UNKNOWN),
        ("gpu-a03: Test timeout (600s) .. abort", "nccl_log.failed", Severity.UNKNOWN),
        ("gpu-a03: Test CUDA failure common.cu:300 'out of memory'", "nccl_log.config",
         Severity.WARN),
    ],
)  # fmt: skip
def test_errors_are_told_apart(line: str, rule: str, grade: Severity) -> None:
    diagnosis = ticket(
        run(["gpu-a03"], [], foot=False) + line + "\n .. gpu-a03 pid 21: Test failure common.cu:1"
    )
    finding = next(f for f in findings(diagnosis) if f.rule == rule)
    assert (finding.severity, finding.node) == (grade, "gpu-a03")
    assert diagnosis.verdict.rank >= grade.rank


def test_pairs_with_two_bad_nodes_and_a_bad_path() -> None:
    names = [f"n{i}" for i in range(1, 9)]
    lines = ["node_a,node_b,busbw"]
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            slow = {a, b} & {"n3", "n6"} or (a, b) == ("n1", "n8")
            lines.append(f"{a},{b},{40 if slow else 88}")
    part = only(ticket("\n".join(lines)))
    assert sorted(part.facts["slow_nodes"]) == ["n3", "n6"]
    paths = [f for f in part.findings if f.rule == "nccl_tests.path"]
    assert [f.device for f in paths] == ["n1-n8"]


# --------------------------------------------------------------------------------------- JSON


def report(**changed: Any) -> dict[str, Any]:
    cells = {"time": 31428.8, "alg_bw": 273.3, "bus_bw": 478.3, "nwrong": 0}
    devices = [{"rank": n, "hostname": "gpu-a01", "device": n, "device_hex": f"0000:{s}:00",
                "device_info": H100} for n, s in enumerate(SLOTS)]  # fmt: skip
    return {
        "version": "2.17.6", "args": ["/opt/all_reduce_perf", "-g", "8"], "nccl_version": 22807,
        "env": ["AWS_SECRET_ACCESS_KEY=hunter2", "HF_TOKEN=hf_abc"],
        "config": {"devices": devices},
        "results": [{"size": 8 << 30, "type": "float", "root": "    -1", "out_of_place": cells,
                     "in_place": {**cells, "nwrong": None}}],
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": 478.3, "okay": "unchecked"}, "errors": [],
    } | changed  # fmt: skip


def test_json_reports_are_judged_like_their_text() -> None:
    part = only(ticket(json.dumps(report(), indent=2)))
    assert part.kind == "nccl-tests"
    assert part.verdict is Severity.OK
    assert (part.facts["ranks"], part.facts["test"]) == (8, "all_reduce_perf")
    assert "478 GB/s at 8 GiB: normal" in part.say


def test_secrets_of_the_environment_are_never_repeated() -> None:
    diagnosis = ticket(json.dumps(report()))
    from console.output import as_json

    for word in (b"hunter2", b"hf_abc", b"AWS_SECRET"):
        assert word not in as_json(diagnosis, indent=False)


def test_an_unfinished_json_report_gives_what_is_whole() -> None:
    text = json.dumps(report(), indent=1)
    part = only(ticket(text[: text.index('"out_of_bounds"')]))
    assert part.facts["large_message_busbw"] == 478.3
    assert part.facts["ranks"] == 8
    assert any("cut short" in sentence for sentence in part.unknown)


def test_json_names_the_process_that_comes_last() -> None:
    whole = report()
    times = [[4400.0] * 5, [4410.0] * 5, [3100.0] * 5, [4405.0] * 5]
    for size in (1 << 30, 2 << 30):
        whole["results"].append({
            "size": size, "out_of_place": {"time": 1.0, "alg_bw": 260.0, "bus_bw": 460.0},
            "out_of_place_per_iter": {"min_us": 4300.0, "max_us": 4500.0, "cv_pct": 1.0,
                                      "per_process_max_times_us": times},
        })  # fmt: skip
    late = about(ticket(json.dumps(whole)), "nccl_tests.late_process")
    assert "process 2" in late.say


# ---------------------------------------------------------------------------------- NCCL_DEBUG


def log(*texts: str, host: str = "gpu-a01", level: str = "INFO") -> str:
    return "".join(f"{host}:21000:2109{n % 10} [0] NCCL {level} {t}\n" for n, t in enumerate(texts))


HEALTHY = log(
    "NCCL version 2.22.3+cuda12.5",
    "NET/Plugin: Failed to find ncclNetPlugin_v10 symbol.",
    "NET/Plugin: Could not find: libnccl-net.so. Using internal net plugin.",
    "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:192.0.2.11<0>",
    "Using network IB",
    "GPU Direct RDMA Enabled for HCA 0 'mlx5_0'",
    "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
    "Channel 00/0 : 7[7] -> 8[0] [send] via NET/IB/0/GDRDMA",
    "ncclCommInitRankConfig comm 0x1 rank 0 nranks 16 cudaDev 0 nvmlDev 0 busId 1b000 commId 0x2 - Init START",
    "ncclCommInitRankConfig comm 0x1 rank 0 nranks 16 cudaDev 0 nvmlDev 0 busId 1b000 commId 0x2 - Init COMPLETE",
    "Init timings - ncclCommInitRankConfig: rank 0 nranks 16 total 3.49 (kernels 0.2, alloc 1.1, bootstrap 1.0)",
)


def test_a_healthy_log_says_so() -> None:
    part = only(ticket(HEALTHY))
    assert (part.kind, part.verdict, part.findings) == ("nccl-debug", Severity.OK, [])
    assert part.facts["ranks"] == 16
    assert part.facts["transports"] == {"P2P/CUMEM": 1, "NET/IB/0/GDRDMA": 1}
    assert "GPUDirect" in part.say


@pytest.mark.parametrize(
    ("text", "rule", "said"),
    [
        (log("NET/IB : No device found.", "Using network Socket",
             "Channel 00/0 : 7[7] -> 8[0] [send] via NET/Socket/0"), "nccl_log.socket", "gpu-a01"),
        (log("Using network IB", "GPU Direct RDMA Disabled for HCA 0 'mlx5_0'",
             "Channel 00/0 : 7[7] -> 8[0] [send] via NET/IB/0"), "nccl_log.no_gdr", "without"),
        (log("Channel 00/0 : 0[0] -> 1[1] via P2P/IPC", "Channel 00/0 : 3[3] -> 4[4] via "
             "SHM/direct/direct"), "nccl_log.shm", "3-4"),
        (log("NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_bond_0:1/RoCE [RO]; OOB eth0:1<0>"),
         "nccl_log.hca", "Ethernet"),
        (log("NET/IB : Got completion from peer 192.0.2.12<40000> with status=IBV_WC_RETRY_EXC_ERR"
             "(12) opcode=IBV_WC_RDMA_WRITE(1) len=0 vendor err 129 (Send) localGid fe80::1 "
             "remoteGids fe80::2 hca mlx5_3", level="WARN"), "nccl_log.completion", "mlx5_3"),
        (log("NET/IB : Got completion from peer 192.0.2.12<40000> with error 12, opcode 0, len 0, "
             "vendor err 129", level="WARN"), "nccl_log.completion", "12"),
        (log("NET/IB : mlx5_3:1 Got async event : port error", level="WARN"),
         "nccl_log.port_event", "mlx5_3"),
        (log("NET/IB : mlx5_3:1 Got async event : local catastrophic error", level="WARN"),
         "nccl_log.device_fatal", "mlx5_3"),
        (log("Error while creating shared memory segment /dev/shm/nccl-Ab3 (size 9637888)",
             level="WARN"), "nccl_log.config", "/dev/shm"),
        (log("Call to ibv_reg_mr failed with error Cannot allocate memory", level="WARN"),
         "nccl_log.config", "registered"),
        (log("Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000", level="WARN"),
         "nccl_log.config", "same GPU"),
        (log("NCCL version 2.22.3+cuda12.5") + log("NCCL version 2.19.4+cuda12.2", host="gpu-a02"),
         "nccl_log.versions", "gpu-a02"),
        (log("Cuda failure 'uncorrectable ECC error encountered'", level="WARN"),
         "nccl_log.hardware", "ECC"),
    ],
)  # fmt: skip
def test_what_a_log_tells(text: str, rule: str, said: str) -> None:
    diagnosis = ticket(text)
    assert said in about(diagnosis, rule).say
    assert rule in rules(diagnosis)


def test_quiet_events_and_plugins_are_noise() -> None:
    text = HEALTHY + log("NET/IB : mlx5_0:1 Got async event : GID table change",
                         "NET/IB : mlx5_0:1 Got async event : client reregistration", level="WARN")  # fmt: skip
    assert only(ticket(text)).findings == []


def test_hosts_with_other_adapters_than_most() -> None:
    usual = "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:1<0>"
    text = "".join(log(usual, host=f"n{i}") for i in range(3))
    text += log("NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:1<0>", host="n9")
    odd = about(ticket(text), "nccl_log.hca")
    assert odd.node == "n9"
    assert "mlx5_1:1/IB" in odd.say


def waiting(rank: int, seq: int = 4711, op: str = "ALLREDUCE") -> str:
    return (
        f"[rank{rank}]:[E303 04:05:06.123 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught "
        f"collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn=1, NumelOut=1, "
        f"Timeout(ms)=600000) ran for 600029 milliseconds before timing out.\n"
    )


def test_the_silent_rank_is_the_suspect() -> None:
    diagnosis = ticket("".join(waiting(rank) for rank in range(8) if rank != 5))
    found = facts(diagnosis)
    assert found["suspect_ranks"] == [5]
    assert found["timeouts"]["3"] == {
        "seq": 4711, "op": "ALLREDUCE", "timeout_ms": 600000, "ran_ms": 600029,
    }  # fmt: skip
    assert "rank 5" in about(diagnosis, "nccl_log.hang").say


def test_the_rank_that_is_behind_is_the_suspect() -> None:
    state = "[rank{0}]:[E ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0 Rank {0}] Exception (either an error or timeout) detected by watchdog at work: {1}, last enqueued NCCL work: {1}, last completed NCCL work: {2}.\n"
    text = "".join(state.format(r, 100, 99) for r in range(7)) + state.format(7, 42, 41)
    assert facts(ticket(text))["suspect_ranks"] == [7]


def test_different_collectives_are_the_programs_fault() -> None:
    text = "".join(waiting(r) for r in range(3)) + waiting(3, op="ALLGATHER")
    diagnosis = ticket(text)
    assert "ALLGATHER on rank 3" in about(diagnosis, "nccl_log.desync").say
    assert "not a fault of a node" in words(diagnosis)


def test_processes_that_are_all_rank_0_of_their_own() -> None:
    """mpirun of a build without MPI: every process prints a table of one rank."""
    heads = [line.replace(f"Rank {n:2}", "Rank  0") for n in range(8) for line in [device(n, "a1")]]
    text = "# nThread 1 nGpus 1\n# Using devices\n" + "\n".join(heads) + "\n" + HEADS["2.13"] + "\n"
    part = only(ticket(text + row(8 << 30, 0.0) + "\n# Avg bus bandwidth    : 0 \n"))
    assert part.verdict is Severity.UNKNOWN
    assert part.facts["busbw_meaningful"] is False
    assert "without MPI" in part.say


def test_cycles_that_differ_are_named() -> None:
    rows = [row(8 << 30, speed) for speed in (478.0, 476.0, 210.0, 477.0)]
    dip = about(ticket(run(["a1"], rows)), "nccl_tests.dip")
    assert "4 cycles of 8 GiB reach from 210 to 478 GB/s" in dip.say
    rows = [row(8 << 30, speed) for speed in (478.0, 476.0, 470.0, 477.0)]
    assert only(ticket(run(["a1"], rows))).verdict is Severity.OK
