"""Steps that a job tells: files of /dev/shm and datagrams, honest and not."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.demo import sysfs
from probes.node.steps import GROUP, UDP_PORT, line
from tests.probes_node.rig import Machine, Session

LINE = b"job=48211 rank=3 step=120 t_total=1.25 t_data=0.1 t_comm=0.3 tokens=65536\n"


def shm(machine: Machine, name: str = "gpuconsole.step.48211.3", text: bytes = LINE) -> Path:
    path = machine.root / "dev/shm" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)
    return path


@pytest.fixture
def busy(each_machine: Machine) -> Machine:
    """One process of ours on a GPU."""
    each_machine.gpu(0, procs=[[4000, 60000]])
    sysfs.process(each_machine.root, 4000, ("python3", "train.py"), uid=os.getuid(),
                  environment={"SLURM_JOB_ID": "48211"})  # fmt: skip
    return each_machine


@pytest.fixture
def session(busy: Machine) -> Iterator[Session]:
    with busy.session() as made:
        yield made


def told(session: Session) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    answer = session.ask(op="collect", probe="steps")
    return answer["devices"][""], answer["rows"]


def test_a_file_of_every_rank(busy: Machine, session: Session) -> None:
    shm(busy)
    shm(busy, "gpuconsole.step.48211.4", b'{"step": 119, "t_total": 1.5, "secret": "x"}\nmore')
    values, rows = told(session)
    assert (values["ranks"], values["foreign"], values["broken"]) == (2, 0, 0)
    first, second = sorted(rows, key=lambda row: row["rank"])
    assert first.pop("age_s") < 3600
    assert first == {
        "job": "48211", "rank": "3", "step": 120, "t_total": 1.25, "t_data": 0.1, "t_comm": 0.3,
        "tokens": 65536, "source": "file",
    }  # fmt: skip
    assert (second["job"], second["rank"], second["step"]) == ("48211", "4", 119)
    assert "secret" not in second


def test_links_other_owners_and_left_overs_are_not_read(busy: Machine, session: Session) -> None:
    secret = busy.directory / "secret"
    secret.write_bytes(LINE)
    (busy.root / "dev/shm").mkdir(parents=True)
    (busy.root / "dev/shm/gpuconsole.step.1.1").symlink_to(secret)
    os.mkfifo(busy.root / "dev/shm/gpuconsole.step.1.2")
    os.utime(shm(busy, "gpuconsole.step.1.3"), (1.0, 1.0))
    if os.geteuid() == 0:
        os.chown(shm(busy, "gpuconsole.step.1.4"), 4711, -1)
    values, rows = told(session)
    assert rows == []
    assert values["foreign"] == (4 if os.geteuid() == 0 else 3)


def test_nothing_is_read_while_no_process_is_on_a_gpu(machine: Machine) -> None:
    shm(machine)
    with machine.session() as session:
        assert told(session) == ({}, [])


def test_many_names_and_large_files_are_bounded(busy: Machine, session: Session) -> None:
    for number in range(400):
        shm(busy, f"gpuconsole.step.48211.{number}", LINE.replace(b"rank=3", b"") + b"x" * 9999)
    for number in range(300):
        shm(busy, f"torch_{number}")
    values, rows = told(session)
    assert 0 < len(rows) <= 128
    assert values["broken"] == 0


def send(*lines: bytes) -> None:
    """As a training script would: to the group, over loopback, no further."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        link.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        link.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 0)
        for one in lines:
            link.sendto(one, (GROUP, UDP_PORT))


@pytest.mark.xdist_group("multicast on loopback")
def test_two_agents_hear_every_datagram(busy: Machine) -> None:
    """The group is one for the whole machine: what another run of this says is heard here too."""
    with busy.session() as first, busy.session() as second:
        if told(first)[0].get("udp") is False or told(second)[0].get("udp") is False:
            pytest.skip("no multicast on loopback here")
        try:
            send(LINE, LINE.replace(b"step=120", b"step=121"), b"job=666 rank=1 step=1", b"\xff")
        except OSError:
            pytest.skip("no multicast on loopback here")
        for session in (first, second):
            values, rows = told(session)
            assert [(r["rank"], r["step"], r["source"]) for r in rows] == [("3", 121, "udp")]
            assert (values["foreign"], values["broken"]) == (1, 1)


@given(st.binary(max_size=2000), st.text(max_size=80), st.text(max_size=20))
def test_any_line_is_survived(raw: bytes, job: str, rank: str) -> None:
    for text in (raw, b"step=1 rank=1 " + raw, b"{" + raw):
        row = line(text, job, rank)
        if row is not None:
            assert row["rank"]
            json.dumps(row, allow_nan=False)
            assert all(isinstance(v, int | float) for k, v in row.items() if k not in NAMES)


NAMES = ("job", "rank")


@pytest.mark.parametrize(
    "raw", [b"", b"step=x rank=1", b"rank=1", b"[1,2]", b'{"step":', b"step=1e400 rank=1",
            b"step=nan rank=1", b"step=-1 rank=1", b'{"step": true, "rank": 1}', b"{" * 900],
)  # fmt: skip
def test_lines_that_say_nothing(raw: bytes) -> None:
    assert line(raw, "7", "") is None
