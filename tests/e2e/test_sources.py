"""Where nodes come from, end to end: files, Slurm, this machine; and everything written wrong."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from tests.e2e.lab import HEALTHY, QUICK, SICK, Site

pytestmark = [pytest.mark.sshd, pytest.mark.slurm]


@pytest.fixture
def known_by_ssh(site: Site) -> list[str]:
    """argv in front of a command whose /etc/ssh/ssh_config knows the lab's nodes by their names."""
    config = site.folder / "system_ssh_config"
    known = site.ssh.folder / "known_hosts"
    config.write_text(f"UserKnownHostsFile {known}\n{site.ssh_config.read_text()}")
    script = f'mount --bind {config} /etc/ssh/ssh_config && exec "$@"'
    return ["unshare", "-m", "sh", "-c", script, "sh"]


def names(document: dict[str, object]) -> list[str]:
    nodes = document["nodes"]
    assert isinstance(nodes, list)
    return [node["name"] for node in nodes]


def test_slurm_names_the_nodes_and_ssh_config_finds_them(
    site: Site, known_by_ssh: list[str]
) -> None:
    done = site.run("inventory", inventory="slurm:")
    assert done.code == 0
    assert "8 nodes from slurm:" in done.out
    listed = site.run("inventory", "--json", inventory="slurm:gpu")
    assert names(listed.document) == [*HEALTHY, *SICK]
    done = site.run(
        "-w", "n[1,6]", "--json", *QUICK, inventory="slurm:gpu", before=known_by_ssh
    )  # fmt: skip
    assert done.node("n1")["status"]["state"] == "ended", done.node("n1")["status"]
    assert done.node("n6")["status"]["reason"] == "refused"
    assert done.node("n1")["scheduler"]["state"] == "idle"
    assert done.document["cluster"] == "testlab"


@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        (("-w", "n[2-4]", "-x", "n3"), ["n2", "n4"]),
        (("-g", "gpu", "-x", "n[2-4]"), ["n1"]),
        (("-g", "sick", "-w", "n[4-6]"), ["n5", "n6"]),
        (("-w", "n1", "inventory", "-w", "n2"), ["n2"]),
    ],
)
def test_selections(desk: Site, arguments: tuple[str, ...], left: list[str]) -> None:
    command = arguments if "inventory" in arguments else (*arguments, "inventory")
    assert names(desk.run(*command, "--json").document) == left


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("-w", "n12", "--json"), ["-w", "n12"]),
        (("-w", "n[1-", "--json"), ["-w", "column"]),
        (("-x", "n[1-8]", "--json"), ["no node is left"]),
        (("-g", "gup", "--json"), ["did you mean gpu"]),
        (("--rules", "/nonexistent/rules.yaml", "--json"), ["/nonexistent/rules.yaml"]),
        (("test", "n12"), ["n12"]),
    ],
)
def test_a_wrong_choice_is_one_line(
    desk: Site, arguments: tuple[str, ...], says: list[str]
) -> None:
    done = desk.run(*arguments)
    assert done.code == 64
    assert done.out == ""
    assert len(done.err.splitlines()) == 1
    assert all(word in done.err for word in says), done.err


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("", 1, "empty"),
        ("hosts: n[1-4]\nhost: n5\n", 2, "did you mean hosts"),
        ("groups:\n  gpu:\n    hosts: n[4-1]\n", 3, "descending"),
        ("groups:\n\tgpu: n1\n", 2, "tab"),
        ("groups:\n  a: n[1-3]\n  b: n[3-4]\n", 3, "n3"),
        ("hosts: n1\nssh: {config: nowhere}\n", 2, "no file"),
        ('groups:\n  a: {hosts: n1, python: "py\\tthon"}\n', 2, "python"),
    ],
)
@pytest.mark.parametrize("command", [("--json",), ("drain", "n1", "--reason", "x", "--yes")])
def test_a_wrong_inventory_is_one_line_with_its_place(
    desk: Site, text: str, line: int, says: str, command: tuple[str, ...]
) -> None:
    path = desk.file("wrong.yaml", text)
    done = desk.run(*command, inventory=path)
    assert done.code == 64
    assert done.out == ""
    assert len(done.err.splitlines()) == 1
    assert f"{path}:{line}" in done.err
    assert says in done.err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("Include {path}\n", "include"),
        ("Host n1\n  NoSuchKeyword yes\n", "NoSuchKeyword"),
        ("Host n1\n  Port 0x\n", "line 2"),
    ],
)
@pytest.mark.parametrize("command", [("--json",), ("watch", "--json"), ("test", "n1")])
def test_a_broken_ssh_config_is_one_line(
    desk: Site, text: str, says: str, command: tuple[str, ...]
) -> None:
    path = desk.folder / "broken_config"
    path.write_text(text.format(path=path))
    inventory = desk.file("with-broken.yaml", f"hosts: n[1-3]\nssh: {{config: {path}}}\n")
    done = desk.run(*command, inventory=inventory)
    assert done.code == 64, done.err
    assert done.out == ""
    assert len(done.err.splitlines()) == 1, done.err
    assert says.lower() in done.err.lower()


@pytest.mark.parametrize(
    ("hosts", "verdict", "code"),
    [("local: true", "ok", 0), ("defaults: {gpus: 8}\nlocal: true", "critical", 2)],
)
def test_this_machine_without_ssh(desk: Site, hosts: str, verdict: str, code: int) -> None:
    """No GPU is fine where none is expected, and never where eight are."""
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has GPUs")
    done = desk.run("--json", *QUICK, inventory=desk.file("here.yaml", f"{hosts}\n"))
    (node,) = done.document["nodes"]
    assert node["name"] == socket.gethostname().split(".")[0]
    assert node["status"]["state"] == "ended"
    assert node["gpus"] == []
    shown = [(f["rule"], f["severity"], f["say"]) for f in node["findings"]]
    if verdict == "critical":
        assert node["verdict"] in ("critical", "unknown"), shown
        assert done.code in (2, 3)
        assert any("GPU" in say for _, _, say in shown), shown
    else:
        assert not [rule for rule, severity, _ in shown if severity in ("critical", "unknown")]
        assert node["verdict"] in ("ok", "info", "warn"), shown


def test_local_as_a_source(desk: Site) -> None:
    done = desk.run("--json", *QUICK, inventory="local:")
    assert done.node(socket.gethostname().split(".")[0])["status"]["state"] == "ended"
    desk.nothing_left()


def test_doctor_with_a_scheduler_and_without(site: Site) -> None:
    done = site.run("doctor")
    assert "ok   scheduler slurm: 8 nodes" in done.out
    assert done.code in (0, 1)
    done = site.run("doctor", inventory=site.file("bare.yaml", "hosts: n1\n"))
    assert "note no scheduler: set" in done.out
    strange = site.file("strange.yaml", "scheduler: slurm\nhosts: [n1, elsewhere]\n")
    done = site.run("doctor", inventory=strange)
    assert "does not know elsewhere" in done.out
    wrong = site.run("doctor", inventory=site.file("wrong2.yaml", "hots: n1\n"))
    assert "did you mean hosts" in wrong.out
    assert wrong.code == 1
    site.slurm.stop("slurmctld")
    done = site.run("doctor")
    assert "slurmctld does not answer" in done.out
    assert done.code == 1


def test_names_in_slurm_may_differ(site: Site) -> None:
    """scheduler_name: Slurm's n3 is our east; drains and reports use each side's own name."""
    text = site.inventory.read_text()
    path = site.file(
        "renamed.yaml",
        text.split("groups:")[0] + "groups:\n  gpu:\n    hosts:\n"
        "      east: {scheduler_name: n3, address: n3}\n",
    )
    done = site.run("--json", *QUICK, inventory=path)
    assert done.node("east")["scheduler"]["node"] == "east"
    done = site.run("drain", "east", "--reason", "x", "--yes", "--json", *QUICK, inventory=path)
    assert done.code == 0, done.err
    assert {step["node"] for step in done.lines} == {"east"}
    assert site.slurm.words()["n3"] == "drained"
    written = [step["command"] for step in done.lines if step.get("command")]
    assert written == [["scontrol", "update", "NodeName=n3", "State=DRAIN", "Reason=gpuconsole: x"]]


def test_unknown_to_slurm_is_not_drained(site: Site) -> None:
    path = site.file("strange.yaml", "scheduler: slurm\nhosts: [n1, elsewhere]\n")
    done = site.run(
        "drain", "elsewhere", "--reason", "x", "--yes", "--json", *QUICK, inventory=path
    )
    assert done.code == 3, done.err
    assert done.out, done.err
    (step,) = [json.loads(line) for line in done.out.splitlines()]
    assert (step["node"], step["phase"], step["ok"]) == ("elsewhere", "refused", False)
