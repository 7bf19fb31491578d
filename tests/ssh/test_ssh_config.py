"""Effective settings: OpenSSH's own answers, asked rarely, and its refusals."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from inventory.errors import UsageError
from inventory.node import Inventory, Node
from inventory.run import Completed, LocalRun, Run
from probes.event import NodeState
from probes.ssh_config import SshConfig, expand
from probes.ssh_files import matches, split
from probes.transport import Failure
from tests.conftest import Lab as Gate
from tests.ssh.agents import Agents
from tests.ssh.lab import Lab
from tests.ssh.record import one_pass

CASES = Path(__file__).parents[1] / "data" / "cases"


@pytest.fixture
def ssh(lab: Gate) -> None:
    """Only OpenSSH's client is needed here."""
    lab.programs("ssh", "ssh", package="openssh-client")


def unpack(name: str, folder: Path) -> Path:
    """Write a case's files; the folder stands for ~/.ssh, so relative Includes become absolute."""
    parts = re.split(r"^### (\S+)\n", (CASES / name).read_text(), flags=re.MULTILINE)[1:]
    for path, text in zip(parts[::2], parts[1::2], strict=True):
        fixed = re.sub(
            r"(?m)^(\s*Include )(.*)$",
            lambda m: m[1] + " ".join(f"{folder}/{p}" for p in m[2].split()),
            text,
        )
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(fixed)
    return folder / "config"


def config_of(path: Path | str, run: Run | None = None) -> SshConfig:
    return SshConfig(Inventory(nodes=(), ssh_config=str(path)), run=run)


def truth(path: Path, host: str) -> dict[str, str]:
    """What ssh itself says, first value of each keyword."""
    text = subprocess.run(
        ["ssh", "-G", "-F", str(path), "--", host], check=True, capture_output=True, text=True
    ).stdout
    pairs = (line.partition(" ")[::2] for line in reversed(text.splitlines()))
    return dict(pairs)


async def test_case_include_leak(ssh: None, tmp_path: Path) -> None:
    config = config_of(unpack("ssh-config-include-leak.txt", tmp_path))
    node = await config.settings("gpu-a01")
    assert (node.user, node.port) == ("ops1", 2222)
    assert len(node.identityfile) == 1
    assert node.identityfile[0].endswith("/.ssh/id_cluster")
    bastion = await config.settings("bastion")
    assert (bastion.user, bastion.port) == ("jump", 22)


async def test_case_nested_include_with_a_loop(ssh: None, tmp_path: Path) -> None:
    path = unpack("ssh-config-nested-include-glob.txt", tmp_path)
    with pytest.raises(UsageError) as error:
        await config_of(path).settings("gpu-a01")
    assert "10-a.conf:3" in str(error.value)
    assert "leads back into its own file" in str(error.value)
    assert "Too many recursive" in str(error.value)
    # Nothing is probed, no node is called unreachable.
    with pytest.raises(BaseExceptionGroup) as group:
        await one_pass(Inventory(nodes=(Node(name="gpu-a01"),), ssh_config=str(path)))
    assert group.group_contains(UsageError)
    loop = tmp_path / "conf.d" / "10-a.conf"
    loop.write_text(loop.read_text().replace("Include", "# Include"))
    config = config_of(path)
    assert (await config.settings("gpu-a01")).user == "ops2"
    assert (await config.settings("gpu-a01")).port == 2222
    assert (await config.settings("gpu-b01")).user == "ops1"


async def test_many_hosts_cost_two_questions(ssh: None, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("Host gpu*\n  User ops\n  ProxyJump bastion\nHost *\n  Port 2200\n")
    config = config_of(path)
    for index in range(256):
        settings = await config.settings(f"gpu{index:03}")
        assert (settings.hostname, settings.user) == (f"gpu{index:03}", "ops")
        assert (settings.port, settings.proxyjump) == (2200, ("bastion",))
    assert config.runs == 2, "one for the class, one for the defaults"
    other = await config.settings("login1")
    assert (other.user != "ops", other.proxyjump, config.runs) == (True, (), 3)


TRICKY = [
    "Host n1 n2\n HostName %h.lan\n",
    "Host n1\n HostName 10.0.0.1\nHost n*\n User a\n",
    "Match host n1\n User m\nMatch all\n Port 77\n",
    "Host n? !n2\n User q\n",
    "Match originalhost n2 exec true\n User x\n",
    "Host *\n UserKnownHostsFile /tmp/kh-%h\n",
    "Host=n1\n User=eq\n",
    'host "n1" n3\n user "quoted" # comment\n',
    "Host [n]1\n User bracket\nHost n1\n Port 5\n",
]


@pytest.mark.parametrize("text", TRICKY)
async def test_answers_equal_ssh_itself(ssh: None, tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    config = config_of(path)
    for host in ("n1", "n2", "n3", "x9", "n10"):
        mine, real = await config.settings(host), truth(path, host)
        assert (mine.hostname, mine.user, str(mine.port)) == (
            real["hostname"],
            real["user"],
            real["port"],
        )
        assert " ".join(mine.userknownhostsfile) == real["userknownhostsfile"]


async def test_answers_are_kept_on_disk_until_a_file_changes(ssh: None, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("Include inner\nHost a\n User one\n".replace("inner", f"{tmp_path}/inner"))
    first = config_of(path)
    assert (await first.settings("a")).user == "one"
    first.save()
    again = config_of(path)
    assert (await again.settings("a")).user == "one"
    assert again.runs == 0
    (tmp_path / "inner").write_text("User two\n")
    changed = config_of(path)
    assert (await changed.settings("a")).user == "two"
    assert changed.runs > 0


async def test_match_exec_is_never_kept_on_disk(ssh: None, tmp_path: Path) -> None:
    flag, path = tmp_path / "flag", tmp_path / "config"
    path.write_text(f'Match exec "test -e {flag}"\n  User there\nMatch all\n  User gone\n')
    for user in ("gone", "there"):
        config = config_of(path)
        assert (await config.settings("a")).user == user
        config.save()
        flag.touch()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Nonsense yes\n", "Bad configuration option: nonsense"),
        ("Port many\n", "line 1"),
    ],
)
async def test_bad_file_is_one_usage_error(ssh: None, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(UsageError) as error:
        await config_of(tmp_path / "config").settings("a")
    assert said.lower() in str(error.value).lower()


async def test_missing_file_is_a_usage_error(ssh: None, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        await config_of(tmp_path / "absent").settings("a")


async def test_bad_host_name_is_that_hosts_failure(ssh: None, tmp_path: Path) -> None:
    (tmp_path / "config").write_text("")
    config = config_of(tmp_path / "config")
    with pytest.raises(Failure) as failure:
        await config.settings("a b;rm")
    assert failure.value.reason == "ssh_config"
    assert (await config.settings("fine")).hostname == "fine"


async def test_ignored_keywords_are_named(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(
        "Host *\n  ForwardAgent yes\n  KnownHostsCommand /bin/kh %H\n  RevokedHostKeys /x\n"
    )
    found = config_of(path).ignored_keywords()
    assert [(place.keyword, place.line) for place in found] == [
        ("knownhostscommand", 3),
        ("revokedhostkeys", 4),
    ]
    assert str(found[0]) == f"{path}:3"


async def test_without_ssh_asyncssh_reads_the_files(
    sshd: Lab, agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = sshd.serve("n1", 1)
    config = sshd.ssh_config(
        f"Host somewhere\n  HostName {server.address}\n  Port {server.port}\n  User {sshd.user}\n"
    )
    node = Node(name="somewhere", python=agents.script("hello(); end(); until_eof()"))
    files = sshd.known_hosts(
        f"[somewhere]:{server.port},[{server.address}]:{server.port} " + server.public_key,
        name="kh",
    )
    monkeypatch.setattr("probes.ssh_config.shutil.which", lambda _name: None)
    inventory = sshd.inventory(node, config=config, known_hosts=(str(files),))
    record = await one_pass(inventory)
    assert record.last("somewhere").state is NodeState.ENDED, record.last("somewhere")


def test_host_patterns_and_lines() -> None:
    assert matches(["gpu*", "!gpu9"], "gpu1")
    assert not matches(["gpu*", "!gpu9"], "gpu9")
    assert not matches(["!gpu9"], "other")
    assert not matches(["[g]pu1"], "gpu1")
    assert split("  HostName = x y ") == ("hostname", ["x", "y"])
    assert split("# User x") == ("", [])
    assert split('User "a b"') == ("user", ["a b"])


async def test_tokens(ssh: None, tmp_path: Path) -> None:
    (tmp_path / "config").write_text("Host n1\n  HostName real\n  HostKeyAlias al\n")
    settings = await config_of(tmp_path / "config").settings("n1")
    assert expand("%h %n %p %r %k %% %z", "n1", settings, "me", 5) == "real n1 5 me al % %z"


async def test_runs_are_bounded(ssh: None, tmp_path: Path) -> None:
    """Two hundred different hosts at once never start more than a few ssh processes together."""
    path = tmp_path / "config"
    path.write_text("Match host n*\n  User ops\n")
    running = most = 0
    real = LocalRun()

    async def run(argv: Sequence[str], timeout_s: float = 10.0) -> Completed:
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            return await real(argv, timeout_s)
        finally:
            running -= 1

    config = config_of(path, run=run)
    found = await asyncio.gather(*(config.settings(f"n{i}") for i in range(100)))
    assert {settings.user for settings in found} == {"ops"}
    assert most <= 16
    assert config.runs == 101
