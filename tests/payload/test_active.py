"""Active tests over several agents: torch on loopback, peers that are late, gone or killed."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from probes.node import torch_meet
from probes.node.process_tree import descendants
from tests.payload.rig import AgentProcess, Frame, config, gone, kind, limits, until

SMALL = {"min_bytes": 1 << 16, "max_bytes": 1 << 18, "factor": 4, "iters": 3, "warmup": 1}
JOIN_S = 10
"""Who is to come must have come by then, on a busy machine too."""
SETTLE_S = 8.0
"""The same for who knows better why it failed."""


def torch_python() -> str | None:
    """An interpreter with torch: this one, or the one GPUCONSOLE_TORCH_PYTHON names."""
    if importlib.util.find_spec("torch") is not None:
        return sys.executable
    return os.environ.get("GPUCONSOLE_TORCH_PYTHON")


TORCH = pytest.mark.skipif(torch_python() is None, reason="pip install gpuconsole[torch]")


@pytest.fixture
def port() -> int:
    """Free, and below those of clients: who knocks at such a one may open it to itself."""
    while True:
        number = random.randint(20_000, 29_999)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", number))
            return number


def ended(frame: Frame) -> bool:
    return frame["k"] == "job" and frame["state"] in ("done", "failed", "refused")


def values(node: AgentProcess, device: str = "summary") -> dict[str, Any]:
    found = [f["d"][device] for f in node.frames if f["k"] == "s" and device in f["d"]]
    return dict(found[-1])


@contextlib.contextmanager
def agents(count: int, settle_s: float = 1.0) -> Iterator[list[AgentProcess]]:
    settings = limits(config("agent"), "torch_launch", SETTLE_S=settle_s)
    limits(settings, "torch_meet", ANSWER_S=60.0)
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(AgentProcess(settings)) for _ in range(count)]


def order(nodes: list[AgentProcess], port: int, of: int = 0, **args: Any) -> None:
    """One collective over all of them; `of` nodes are said to come."""
    for rank, node in enumerate(nodes):
        meet = {"nnodes": of or len(nodes), "node_rank": rank, "master_addr": "127.0.0.1",
                "master_port": port, "peers": ["n0", "n1", "n2"][: of or len(nodes)]}  # fmt: skip
        every = {"torch_python": torch_python(), "gpus": 1, "timeout_s": 250, **SMALL, **meet}
        node.order(op="run", id="t", what="nccl", args={**every, **args})


@TORCH
@pytest.mark.torch
@pytest.mark.parametrize("collective", ["all_reduce", "sendrecv"])
def test_nodes_meet_and_every_rank_tells_its_time(port: int, collective: str) -> None:
    with agents(3) as nodes:
        order(nodes, port, collective=collective)
        for node in nodes:
            assert node.wait_for(ended)["state"] == "done", node.frames
    told = values(nodes[0])
    assert (told["engine"], told["ranks"], told["nnodes"]) == ("torch-gloo", 3, 3)
    assert told["busbw_largest_gb_s"] > 0
    assert told["wrong"] == 0
    (ranks,) = [f["r"] for f in nodes[0].frames if f.get("on") == "ranks"]
    assert [(r["rank"], r["host"], r["local_rank"]) for r in ranks] == [
        (0, "n0", 0), (1, "n1", 0), (2, "n2", 0),
    ]  # fmt: skip
    assert all(r["time_us"] > 0 for r in ranks)
    assert values(nodes[1])["ok"] is True
    assert "busbw_largest_gb_s" not in values(nodes[1]), "node rank 0 alone has figures"


@TORCH
@pytest.mark.torch
def test_a_rank_that_is_killed_ends_all_and_is_named_everywhere(port: int) -> None:
    with agents(2, SETTLE_S) as nodes:
        order(nodes, port, iters=1_000_000)
        assert until(lambda: all(len(ranks(node)) == 1 for node in nodes))
        nodes[0].wait_for(lambda f: f["k"] == "job" and f["state"] == "started")
        assert until(lambda: all(busy(pid) for node in nodes for pid in ranks(node)))
        every = [pid for node in nodes for pid in descendants(node.process.pid)]
        os.kill(ranks(nodes[1])[0], signal.SIGKILL)
        for node in nodes:
            over = node.wait_for(ended)
            assert over["state"] == "failed"
            assert "rank 1 (n1, local rank 0) was killed by signal 9" in over["text"], node.frames
        assert gone(*every)


def ranks(node: AgentProcess) -> list[int]:
    """Ranks of a node: what its launcher started."""
    launchers = [p for p in descendants(node.process.pid) if b"--worker" in command(p)]
    below = [pid for launcher in launchers[:1] for pid in descendants(launcher)]
    return [pid for pid in below if b"--worker" not in command(pid)]


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def busy(pid: int) -> bool:
    """Whether torch has been loaded there."""
    try:
        return b"libtorch" in Path(f"/proc/{pid}/maps").read_bytes()
    except OSError:
        return False


@TORCH
@pytest.mark.torch
def test_cancelling_one_node_ends_the_others_and_leaves_no_process(port: int) -> None:
    with agents(2, SETTLE_S) as nodes:
        order(nodes, port, iters=1_000_000)
        assert until(lambda: all(len(ranks(node)) == 1 for node in nodes))
        every = [pid for node in nodes for pid in descendants(node.process.pid)]
        nodes[1].order(op="cancel", id="t")
        assert nodes[1].wait_for(ended)["text"] == "cancelled"
        assert "n1 went away" in nodes[0].wait_for(ended)["text"]
        assert gone(*every)


@TORCH
@pytest.mark.torch
def test_figures_of_this_machines_cpu() -> None:
    with agents(1) as (node,):
        args = {"torch_python": torch_python(), "seconds": 0.05, "what": ["gemm_bf16", "hbm_copy"]}
        node.order(op="run", id="g", what="gpu_test", args=args)
        assert node.wait_for(ended)["state"] == "done", node.frames
    assert values(node)["engine"] == "torch-cpu"
    assert values(node, "cpu")["gemm_bf16_tflops"] > 0
    assert values(node, "cpu")["hbm_copy_gb_s"] > 0


# The meeting needs no torch: any interpreter shows it, with ranks that only sleep or fail.


def meeting(nodes: list[AgentProcess], port: int, of: int = 0, **args: Any) -> None:
    order(nodes, port, of, **{"torch_python": sys.executable, **args})


def test_a_peer_that_never_comes_is_named_within_the_time(port: int) -> None:
    with agents(2) as nodes:
        meeting(nodes, port, of=3, join_s=JOIN_S)
        for node in nodes:
            assert node.wait_for(ended)["text"] == f"n2 never came within {JOIN_S} s"
        assert gone(*descendants(nodes[0].process.pid))


def test_a_first_node_that_never_listens_is_told(port: int) -> None:
    with agents(2) as (first, second):
        args = {"nnodes": 2, "node_rank": 1, "master_addr": "127.0.0.1", "master_port": port}
        args |= {"torch_python": sys.executable, "gpus": 1, "join_s": 1}
        second.order(op="run", id="t", what="nccl", args=args)
        text = second.wait_for(ended)["text"]
        assert text.startswith(f"no answer from node rank 0 at 127.0.0.1:{port}: ")
        assert first.frames is not second.frames


def test_a_port_that_somebody_has_is_told(port: int) -> None:
    with socket.create_server(("127.0.0.1", port)), agents(1) as nodes:
        meeting(nodes, port, of=2, join_s=5)
        text = nodes[0].wait_for(ended)["text"]
        assert text == f"port {port} of 127.0.0.1: address already in use; choose another"


def test_a_stranger_at_the_port_neither_joins_nor_disturbs(port: int) -> None:
    with agents(1) as nodes:
        meeting(nodes, port, of=2, join_s=JOIN_S, token="secret")
        found: list[socket.socket] = []

        def heard() -> bool:
            with contextlib.suppress(OSError):
                if not found:
                    found.append(socket.create_connection(("127.0.0.1", port), 1))
            return bool(found)

        assert until(heard)
        with found.pop() as stranger:
            with contextlib.suppress(OSError):  # the time to come may be over already
                for said in (b"GET / HTTP/1.0\r\n", b'{"node": 1, "ranks": 1, "token": "no"}\n'):
                    stranger.sendall(said)
                stranger.sendall(b"[" * 4000 + b"\n")
            assert nodes[0].wait_for(ended)["text"] == f"n1 never came within {JOIN_S} s"


def test_a_python_without_torch_says_so() -> None:
    python = Path(sys.base_prefix) / "bin" / "python3"
    with agents(1) as (node,):
        args = {"torch_python": str(python), "gpus": 1, "env": {}, **SMALL}
        node.order(op="run", id="t", what="nccl", args=args)
        over = node.wait_for(ended)
    if importlib.util.find_spec("torch") is None:
        assert "No module named 'torch'" in over["text"]


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ({"env": {"PATH": "/tmp"}}, "env may not set 'PATH'"),
        ({"env": {"NCCL_ALGO": "a\nb"}}, "NCCL_ALGO must be one line"),
        ({"command": "docker run x"}, "command must be a list of words"),
        ({"command": ["docker", "exec", "c"]}, "leaves the test running"),
        ({"command": ["docker", "run", "-it", "i"]}, "leave -it out"),
        ({"collective": "broadcast"}, "collective must be one of"),
        ({"nnodes": 2, "node_rank": 2}, "node_rank must be below nnodes"),
        ({"nnodes": 2, "node_rank": 0}, "need master_addr"),
        (
            {"torch_python": None, "binary": "/bin/true", "nnodes": 2},
            "several nodes need torch_python",
        ),
    ],
)
def test_orders_that_make_no_sense_are_refused(args: dict[str, Any], why: str) -> None:
    with agents(1) as (node,):
        every = {"torch_python": "/bin/true", "gpus": 2, **args}
        node.order(op="run", id="t", what="nccl", args=every)
        over = node.wait_for(ended)
    assert over["state"] == "refused"
    assert why in over["text"]


def test_the_gpu_test_needs_torch_and_known_figures() -> None:
    with agents(1) as (node,):
        node.order(op="run", id="a", what="gpu_test", args={})
        assert "torch_python is not set" in node.wait_for(kind("job", id="a"))["text"]
        args = {"torch_python": "/bin/true", "what": ["hbm"]}
        node.order(op="run", id="b", what="gpu_test", args=args)
        assert "'hbm' is none of" in node.wait_for(kind("job", id="b"))["text"]


@pytest.mark.parametrize(
    ("address", "name"),
    [("127.0.0.1", "lo"), ("::1", "lo"), ("192.0.2.77", ""), ("2001:db8::1", "")],
)
def test_the_interface_that_has_an_address(address: str, name: str) -> None:
    assert torch_meet.interface_of(address) == name


def test_a_first_node_whose_name_is_a_loopback_address_listens_on_all(
    monkeypatch: pytest.MonkeyPatch, port: int
) -> None:
    """Debian's hosts file does that to a host's own name: nobody else would get through."""
    entry = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.1.1", port))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *asked: [entry])
    with torch_meet.listen("gpu01", port) as listener:
        assert listener.getsockname()[0] == "0.0.0.0"


@pytest.mark.parametrize(
    ("address", "bound"), [("127.0.0.1", "127.0.0.1"), ("192.0.2.77", "0.0.0.0")]
)
def test_a_first_node_listens_at_the_address_given_if_it_is_its_own(
    port: int, address: str, bound: str
) -> None:
    with torch_meet.listen(address, port) as listener:
        assert listener.getsockname()[0] == bound
