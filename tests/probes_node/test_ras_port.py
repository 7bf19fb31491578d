"""The RAS port of a job on real sockets: asked politely, seldom, and safely of anybody."""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from console.demo import sysfs
from probes.node import ras_talk
from probes.node.context import Context
from probes.node.listeners import addresses, listening
from probes.node.ras import ASKING, EVERY_S, REST_S, turn_s, wanted
from probes.node.ras_read import Reader
from probes.node.ras_talk import ANSWER_BYTES, Unanswered, ask
from tests.payload.rig import AgentProcess, config, limits, sample
from tests.probes_node.rig import Machine, Session
from tests.probes_node.test_with_agent import shimmed
from tests.ras_port import HOSTS, RasPort, comm, on_node, rank, status

PIDS = range(4000, 4008)
GOOD = status(comm([rank(index, 6649 if index == 3 else 6650) for index in range(16)]))


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port of good manners may stand still for a while."""
    for name in ("CONNECT_S", "QUIET_S"):
        monkeypatch.setattr(ras_talk, name, 60.0)


def conversation(port: RasPort, budget_s: float = 60.0) -> Reader:
    """One conversation as the probe has it, with much time on a slow machine."""
    reader, until = Reader(), time.monotonic() + budget_s
    family = socket.AF_INET6 if ":" in port.address else socket.AF_INET
    try:
        ask((family, port.address, port.port), "", reader, lambda: until - time.monotonic())
    finally:
        reader.end()
    return reader


def job(machine: Machine, port: int, **env: str) -> None:
    """A job of eight ranks on the machine's GPUs whose processes share the port."""
    for index, pid in enumerate(PIDS):
        machine.gpu(index, procs=[[pid, 60000]])
        told = {"NCCL_RAS_ADDR": f"localhost:{port}", "SLURM_JOB_ID": "48211", **env}
        sysfs.process(machine.root, pid, ("python3", "train.py"), environment=told)
    on_node(machine.root, port, PIDS)


# ------------------------------------------------------------------ manners of the other side


def test_json_and_text_are_asked_alike() -> None:
    with RasPort(GOOD) as port:
        reader = conversation(port)
        assert (reader.format, reader.complete, len(reader.comms[0].ranks)) == ("json", True, 16)
        assert port.commands == [
            "CLIENT PROTOCOL 2", "TIMEOUT 2", "SET FORMAT json", "VERBOSE STATUS",
        ]  # fmt: skip
    text = b"NCCL version 2.24.3 compiled with CUDA 12.4\n\nWarnings\n========\n\n"
    with RasPort(text, "text") as port:
        reader = conversation(port)
        assert (reader.format, reader.version, reader.complete) == ("text", "2.24.3", True)


def test_over_ipv6() -> None:
    try:
        with RasPort(GOOD, address="::1") as port:
            assert conversation(port).complete
    except OSError:
        pytest.skip("no IPv6 on loopback")


@pytest.mark.parametrize(
    ("manners", "words"), [("ssh", "not NCCL: 'SSH-2.0-"), ("closes", "hangs up")]
)
def test_strangers_are_asked_for_their_protocol_and_nothing_else(manners: str, words: str) -> None:
    with RasPort(b"", manners) as port, pytest.raises(Unanswered, match=words):
        conversation(port)
    assert port.commands in ([], ["CLIENT PROTOCOL 2\n"])


@pytest.mark.parametrize("manners", ["silent", "mute"])
def test_silence_has_an_end(manners: str) -> None:
    with RasPort(b"", manners) as port, pytest.raises(Unanswered, match="does not answer in time"):
        conversation(port, budget_s=0.3)


def test_nobody_listens() -> None:
    with RasPort(b"") as port:
        pass
    with pytest.raises(Unanswered, match="refused"):
        conversation(port)


def test_a_trickle_is_cut_and_what_came_is_kept() -> None:
    reader, looks = Reader(), itertools.count()

    def left_s() -> float:
        """None after thirty bytes: by the clock a busy machine may not get so far."""
        return 60.0 if not reader.format or next(looks) < 30 else 0.0

    with RasPort(GOOD, "trickle") as port:
        ask((socket.AF_INET, port.address, port.port), "", reader, left_s)
    reader.end()
    assert reader.format == "json"
    assert not reader.complete


def test_half_an_answer() -> None:
    with RasPort(GOOD[: len(GOOD) // 2]) as port:
        reader = conversation(port)
    assert not reader.complete
    assert 0 < len(reader.comms[0].ranks) < 16


@pytest.mark.parametrize("answer", [b"x" * 65536, b'{"rank":1},' * 6000])
def test_an_endless_answer_ends_at_the_cap(answer: bytes) -> None:
    with RasPort(answer, "endless") as port:
        reader = conversation(port)
    assert not reader.complete
    assert len(reader._rest) <= ANSWER_BYTES


# ------------------------------------------------------------------ who is asked, and how often


def test_the_places_that_nccl_understands() -> None:
    assert wanted("") == ("", 28028)
    assert wanted("localhost:7000") == ("", 7000)
    assert wanted("[fd00::2]:7000") == ("fd00::2", 7000)
    assert wanted("10.0.0.7:7000") == ("10.0.0.7", 7000)
    assert wanted("node7.cluster:7000") == ("", 7000)
    assert wanted("nonsense") == ("", 28028)
    assert wanted(":" + "9" * 40) == ("", 28028)


def test_four_hosts_of_a_job_keep_asking() -> None:
    names = [f"10.0.{n // 250}.{n % 250}" for n in range(512)]
    often = [name for name in names if turn_s(names, {name}) == EVERY_S]
    assert len(often) == ASKING
    assert often[0] == names[0]
    assert {turn_s(names, {name}) for name in names} == {EVERY_S, REST_S}
    assert turn_s(names, {"10.9.9.9"}) == EVERY_S, "who does not know its place asks"
    assert {turn_s(names[:4], {name}) for name in names[:4]} == {EVERY_S}


def test_this_machine_listens_where_it_says() -> None:
    ctx = Context("/")
    with RasPort(b"") as port:
        mine = [one for one in listening(ctx, "self") if one.port == port.port]
        assert [(one.address, one.uid) for one in mine] == [("127.0.0.1", str(os.getuid()))]
    assert not [one for one in addresses(ctx, "self") if one.startswith("127.")]


@pytest.fixture
def offered(each_machine: Machine) -> Iterator[tuple[Machine, RasPort]]:
    with RasPort(GOOD) as port:
        job(each_machine, port.port)
        yield each_machine, port


def answer(session: Session) -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]]]:
    told = session.ask(op="collect", probe="ras")
    return told["devices"], [row for row in told["rows"] if row["kind"] != "address"]


def own(session: Session) -> list[str]:
    rows = session.ask(op="collect", probe="ras")["rows"]
    return [row["host"] for row in rows if row["kind"] == "address"]


def test_every_python_asks_the_port_of_a_job(offered: tuple[Machine, RasPort]) -> None:
    machine, port = offered
    with machine.session() as session:
        devices, rows = answer(session)
        assert port.connections == 1, "eight ranks share one port"
        assert own(session) == [HOSTS[0]]
    node, told = devices[""], devices[f"127.0.0.1:{port.port}"]
    assert (node["processes"], node["covered"]) == (8, 8)
    assert (told["answered"], told["format"], told["nccl"], told["job"]) == (
        True, "json", "2.29.1", "48211",
    )  # fmt: skip
    head, late = rows[:2]
    assert (head["job"], head["size"], head["behind"], head["own"]) == ("48211", 16, 1, 8)
    assert (late["rank"], late["pid"], late["here"]) == (3, 4003, True)


@pytest.mark.parametrize("version", ["3.6", "3.13"])
def test_the_agent_asks_again_and_again(
    version: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    from tests.conftest import interpreter

    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    machine = Machine(tmp_path / "node", python)
    with RasPort(GOOD) as port:
        job(machine, port.port)
        settings = limits(config("ras", root=str(machine.root)), "ras", LOOK_S=60.0)
        limits(settings, "ras_talk", CONNECT_S=60.0, QUIET_S=60.0)
        with AgentProcess(settings, python=shimmed(machine)) as agent:
            first = agent.wait_for(sample("ras"))
            assert [row["kind"] for row in first["r"]][:3] == ["address", "comm", "rank"]
            assert port.connections == 1
            second = agent.wait_for(sample("ras"), after=agent.frames.index(first) + 1)
            assert second["r"][1]["comm"] == first["r"][1]["comm"]
            assert second.get("at", {}).get("", second["t"]) > first["t"]
            assert port.connections == 2


def test_a_port_of_another_user_is_not_ours(offered: tuple[Machine, RasPort]) -> None:
    machine, port = offered
    on_node(machine.root, port.port, PIDS, uid=0)
    with machine.session() as session:
        devices, rows = answer(session)
    assert (rows, port.connections) == ([], 0)
    assert "another job or user has the port" in devices[""]["why"]


def test_ras_off_is_said_and_never_fine(machine: Machine) -> None:
    job(machine, 28028, NCCL_RAS_ENABLE="0")
    with machine.session() as session:
        devices, rows = answer(session)
    assert rows == []
    assert "NCCL_RAS_ENABLE=0" in devices[""]["why"]
    assert set(devices) == {""}


def test_nothing_is_asked_while_no_job_runs(machine: Machine) -> None:
    with RasPort(GOOD) as port:
        on_node(machine.root, port.port, [1])
        with machine.session() as session:
            devices, rows = answer(session)
    assert (rows, port.connections) == ([], 0)
    assert devices[""]["processes"] == 0


@pytest.mark.parametrize("manners", ["ssh", "silent", "closes"])
def test_a_bad_port_is_absent_with_a_reason(machine: Machine, manners: str) -> None:
    with RasPort(GOOD, manners) as port:
        job(machine, port.port)
        with machine.session() as session:
            session.ask(op="ras", seconds=0.5)
            devices, rows = answer(session)
    told = devices[f"127.0.0.1:{port.port}"]
    assert rows == []
    assert told["answered"] is False
    assert told["why"]


def test_two_jobs_with_a_port_each(machine: Machine) -> None:
    other = status(comm([rank(index, 5) for index in range(4, 8)], name="beef"))
    with RasPort(GOOD) as first, RasPort(other) as second:
        job(machine, first.port)
        for pid in PIDS[4:]:
            told = {"NCCL_RAS_ADDR": f"[::1]:{second.port}", "SLURM_JOB_ID": "48230"}
            sysfs.process(machine.root, pid, ("python3", "tune.py"), environment=told)
        on_node(machine.root, second.port, PIDS[4:])
        with machine.session() as session:
            devices, rows = answer(session)
    assert {row["comm"]: row["job"] for row in rows if row["kind"] == "comm"} == {
        "27a079b828ff1a75": "48211", "000000000000beef": "48230",
    }  # fmt: skip
    assert len(devices) == 3


def test_processes_in_containers_are_named_as_the_node_knows_them(machine: Machine) -> None:
    inner = status(comm([rank(index, 7, pid=100 + index) for index in range(8)]))
    with RasPort(inner) as port:
        job(machine, port.port)
        for index, pid in enumerate(PIDS):
            path = machine.root / f"proc/{pid}/status"
            path.write_text(path.read_text() + f"NSpid:\t{pid}\t{100 + index}\n")
        with machine.session() as session:
            _, rows = answer(session)
    assert [row["pid"] for row in rows if row["kind"] == "rank"] == list(PIDS)


# ------------------------------------------------------------------ another network


@pytest.mark.netns
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root and network namespaces")
def test_a_port_in_a_containers_network_is_reached_and_left(tmp_path: Path) -> None:
    script = tmp_path / "serve.py"
    script.write_text(
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from tests.ras_port import RasPort, comm, rank, status\n"
        "with RasPort(status(comm([rank(0, 5)]))) as port:\n"
        "    print(port.port, flush=True); sys.stdin.read()\n"
    )
    root = str(Path(__file__).parents[2])
    words = ["unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$0" "$@"']
    words += [sys.executable, str(script), root]
    inside = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert inside.stdout is not None
    number = inside.stdout.readline()
    if not number:
        inside.communicate()
        pytest.skip("no network namespaces here")
    ours = os.readlink("/proc/thread-self/ns/net")
    place, reader = (socket.AF_INET, "127.0.0.1", int(number)), Reader()
    with pytest.raises(Unanswered, match="refused"):
        ask(place, "", Reader(), lambda: 60.0)
    found: list[str] = []

    def enter() -> None:
        ask(place, f"/proc/{inside.pid}/ns/net", reader, lambda: 60.0)
        found.append(os.readlink("/proc/thread-self/ns/net"))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    inside.communicate("")
    reader.end()
    assert reader.complete
    assert found == [ours], "the thread is back in its own network"


def test_a_network_that_cannot_be_entered() -> None:
    with pytest.raises(Unanswered, match="cannot be entered"):
        ask((socket.AF_INET, "127.0.0.1", 1), "/proc/1/no-such", Reader(), lambda: 1.0)
