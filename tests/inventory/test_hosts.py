"""The inventory file: what it gives, and for everything wrong the line and what to write."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

import inventory.hosts
from inventory.errors import UsageError
from inventory.hosts import load
from inventory.marked import MAX_BYTES
from inventory.node import Node

Write: TypeAlias = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes an inventory and gives its path."""

    def make(text: str) -> Path:
        path = tmp_path / "inventory.yaml"
        path.write_text(textwrap.dedent(text))
        return path

    return make


def test_smallest(write: Write) -> None:
    found = load(write("hosts: gpu[001-064]"))
    assert [n.name for n in found.nodes] == [f"gpu{i:03}" for i in range(1, 65)]
    assert found.nodes[0] == Node(name="gpu001")
    assert (found.host_keys, found.ssh_config, found.known_hosts) == ("strict", None, ())


def test_the_example_of_the_documentation(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = str(inventory.hosts.__doc__)
    text = text.split("Everything there is:")[1].split("Host keys win")[0]
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "cluster_config").write_text("")
    known = tmp_path / "known"
    known.write_text("")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr("socket.gethostname", lambda: "bastion.example.org")
    found = load(write(text.replace("/etc/ssh/known", str(known))))
    assert found.cluster == "alpha"
    assert found.ssh_config == str(home / ".ssh" / "cluster_config")
    assert found.known_hosts == (str(known),)
    nodes = {n.name: n for n in found.nodes}
    assert len(nodes) == 31 + 5 + 2 + 1
    assert list(nodes)[:2] == ["bastion", "gpu001"]
    assert "gpu007" not in nodes
    assert nodes["gpu032"] == Node(
        name="gpu032",
        group="h100",
        user="ops",
        become=("sudo", "-n"),
        port=2222,
        jump=("ops@bastion:22",),
        identity=str(home / ".ssh" / "cluster"),
        python="/opt/python/bin/python3",
        root="/",
        role="train",
        labels={"rack": "r1"},
        hardware="h100-sxm",
        gpus=8,
        scheduler="slurm",
        torch_python="/opt/torch/bin/python",
        nccl_tests="/opt/nccl-tests/build/all_reduce_perf",
        test_env={"NCCL_IB_HCA": "mlx5"},
        test_command=("apptainer", "exec", "--nv", "/images/torch.sif"),
        test_image="nvcr.io/nvidia/pytorch:24.10-py3",
    )
    lab1 = nodes["lab1"]
    assert (lab1.target, lab1.port, lab1.scheduled_as) == ("127.0.0.2", 2201, "n1")
    assert (lab1.role, lab1.group) == ("lab", "lab")
    assert [nodes[f"lab{i}"].target for i in (2, 3, 4, 5)] == [
        "10.0.0.2", "10.0.0.3", "10.0.0.4", "lab5",
    ]  # fmt: skip
    assert (nodes["login1"].group, nodes["login1"].role) == ("default", "compute")
    assert (nodes["bastion"].transport, nodes["login1"].transport) == ("local", "ssh")


def test_settings_nearest_to_the_host_win(write: Write) -> None:
    found = load(
        write("""\
            scheduler: slurm
            defaults: {user: a, port: 1, labels: {x: '1', y: '1'}}
            groups:
              g:
                port: 2
                labels: {y: '2'}
                hosts:
                  - n1
                  - n2: {port: 3, labels: {z: '3'}, scheduler: none, become: [doas, -n]}
              bare: m[1-2]
            """)
    )
    n1, n2, m1 = found.nodes[2], found.nodes[3], found.nodes[0]
    assert (m1.name, m1.group, m1.user, m1.port) == ("m1", "bare", "a", 1)
    assert (n1.user, n1.port, n1.labels, n1.scheduler) == ("a", 2, {"x": "1", "y": "2"}, "slurm")
    assert (n2.port, n2.scheduler, n2.become) == (3, None, ("doas", "-n"))
    assert n2.labels == {"x": "1", "y": "2", "z": "3"}


WRONG = [
    # text, line, what the message says, what it offers
    ("", 1, "empty inventory", "write hosts: gpu[001-064]"),
    ("# nothing\n---\n", 1, "empty inventory", "write hosts: gpu[001-064]"),
    ("{}", 1, "no hosts in it", "write hosts:"),
    ("cluster: x\nhosts: []\n", 1, "no hosts in it", "write hosts:"),
    ("gpu[001-064]\n", 1, "the inventory must be a mapping, not text", "write `key: value`"),
    ("- gpu1\n- gpu2\n", 1, "the inventory must be a mapping, not a list", "write `key: value`"),
    ("cluster: x\nhost: gpu1\n", 2, "unknown key 'host'", "did you mean hosts?"),
    ("hosts: n1\nuser: root\n", 2, "unknown key 'user'", "write it under defaults:"),
    ("hosts: n1\nzzz: 1\n", 2, "unknown key 'zzz'", "one of: cluster, hosts, groups"),
    ("groups:\n  a:\n    hosts: n1\n    usr: x\n", 4, "unknown key 'usr' in group a",
     "did you mean user?"),
    ("groups:\n  a:\n    hosts:\n      n1: {adress: x}\n", 4, "unknown key 'adress' in host n1",
     "did you mean address?"),
    ("defaults:\n  hosts: n1\nhosts: n2\n", 2, "unknown key 'hosts' in defaults", "one of: user"),
    ("hosts: n1\nssh:\n  host_key: strict\n", 3, "unknown key 'host_key' in ssh",
     "did you mean host_keys?"),
    ("hosts: n1\nssh: {host_keys: off}\n", 2, "unknown ssh.host_keys 'off'",
     "one of: strict, accept-new"),
    ("hosts: n1\nssh:\n  config: no/such\n", 3, "no file", ""),
    ("hosts: n1\ncluster: a\nhosts: n2\n", 3, "key 'hosts' in the inventory again; first on line 1",
     "keep one"),
    ("groups:\n  a: n1\n  b: n2\n  a: n3\n", 4, "key 'a' in groups again; first on line 2", ""),
    ("groups:\n  a: n[1-4]\n  b:\n    hosts: n[3-6]\n", 4,
     "n[3-4] in group b again; first in group a on line 2", "once"),
    ("groups:\n  a: n1\nhosts: [m1, n1]\n", 3,
     "n1 in group default again; first in group a on line 2", "once"),
    ("hosts:\n  - n1\n  - n2\n  - n1\n", 4, "n1 in group default again", "on line 2"),
    ("hosts:\n  n1:\n  n[1-2]: {port: 3}\n", 3, "n1 in group default again", "on line 2"),
    ("cluster: x\nhosts: gpu[01-\n", 2, "unclosed bracket at column 4", "gpu[001-064]"),
    ("hosts:\n  - n1\n  - n[5-3]\n", 3, "descending range 5-3", ""),
    ("hosts:\n  - n1\n  - n[a-c]\n", 3, "'a-c' is not a number", ""),
    ("hosts: n[0-99999999]\n", 1, "too many hosts (more than 100,000)", ""),
    ("groups:\n\ta: n1\n", 2, "a tab in the indentation", "use spaces"),
    ("hosts:\n  - n1\n\t- n2\n", 3, "a tab in the indentation", "use spaces"),
    ("hosts: [gpu[1-4], n1]\n", 1, "", "in quotes"),
    ("cluster: a\nhosts: [n1, n2\n", 2, "", "close the bracket"),
    ("cluster: x\nhosts: : n1\n", 2, "", "check the indentation and the colons"),
    ("hosts: n1\n--- \nhosts: n2\n", 2, "a second document", ""),
    ("hosts: n1\nx: !!python/object:os.system {}\n", 2, "unknown key 'x'", ""),
    ("cluster: a\nhosts: !!python/name:os.system n1\n", 2, "a host must be text, not", ""),
    ("cluster: a\nhosts: !host n1\n", 2, "a host must be text, not '!host'", ""),
    ("hosts: n1\ncluster: a\0\n", 2, "a control character ('\\x00')", "remove it"),
    ("hosts: n1\ndefaults:\n  port: 70000\n", 3, "port is '70000'", "from 1 to 65535"),
    ("hosts: n1\ndefaults:\n  port: ssh\n", 3, "port is 'ssh'", "from 1 to 65535"),
    ("hosts: n1\ndefaults: {port: [22]}\n", 2, "port is a list", "from 1 to 65535"),
    ("hosts: n1\ndefaults:\n  gpus: -1\n", 3, "gpus is '-1'", "from 0 to 256"),
    ("hosts: n1\ndefaults:\n  user: no\n", 3, "user must be text, not yes/no", "quote it: 'no'"),
    ("hosts: n1\ndefaults:\n  user:\n", 3, "user must be text, not nothing", ""),
    ("hosts: n1\ndefaults: {user: -oX}\n", 2, "'-oX' is not a login name", ""),
    ("hosts: n1\ndefaults: {become: true}\n", 2, "become must be text, not yes/no", ""),
    ("hosts: n1\ndefaults: {become: \"sudo 'x\"}\n", 2, "become: No closing quotation",
     "sudo -n"),
    ("hosts: n1\ndefaults: {become: []}\n", 2, "become names no program", "sudo -n"),
    ("hosts: n1\ndefaults: {jump: 'a b'}\n", 2, "jump 'a b' is not a host", "[user@]host[:port]"),
    ("hosts: n1\ndefaults: {jump: 'x:99999'}\n", 2, "is not a host", "[user@]host[:port]"),
    ("hosts: n1\ndefaults: {jump: '-oX=y'}\n", 2, "is not a host", "[user@]host[:port]"),
    ("hosts: n1\ndefaults: {root: host}\n", 2, "root 'host' is not an absolute path", "/host"),
    ("hosts:\n  - n[1-60000]\n  - m[1-60000]\n", 3, "more than 100,000 hosts in all", ""),
    ("hosts: n1\nscheduler: slrum\n", 2, "unknown scheduler 'slrum'", "did you mean slurm?"),
    ("hosts: n1\nscheduler: pbs\n", 2, "unknown scheduler 'pbs'", "one of: slurm, kubernetes"),
    ("hosts: n1\nlocal: maybe\n", 2, "local must be true or false, not text", ""),
    ("hosts: n1\ndefaults: {labels: [a]}\n", 2, "labels must be a mapping, not a list", ""),
    (
        "hosts: n1\ndefaults:\n  test_env: {LD_PRELOAD: /tmp/x.so}\n",
        3,
        "test_env cannot set 'LD_PRELOAD'",
        "names that begin with NCCL_",
    ),
    ("hosts: n1\ndefaults: {test_env: {NCCL_DEBUG: [a]}}\n", 2, "NCCL_DEBUG must be text", ""),
    ("hosts: n1\ndefaults: {test_command: [--rm]}\n", 2, "test_command names no program", ""),
    ("hosts: n1\ndefaults: {test_image: 'a b'}\n", 2, "test_image 'a b' is no image", ""),
    ("hosts: n1\ndefaults: {python: \"a\\eb\"}\n", 2, "python has control characters", ""),
    ("hosts: {n1: {address: 'a b'}}\n", 1, "address 'a b' is neither a host name", ""),
    ("hosts:\n  n[1-3]: {address: '10.0.0.[1-2]'}\n", 2,
     "2 of '10.0.0.[1-2]' for 3 hosts", "give each host its own"),
    ("hosts:\n  n[1-3]: {address: 10.0.0.1}\n", 2, "1 of '10.0.0.1' for 3 hosts", ""),
    ("hosts: {n1: 22}\n", 1, "host n1 must be a mapping, not a number", ""),
    ("cluster: a\nhosts: |\n  n1\n  n2\n", 2, "a host spans several lines", "write a list"),
    ("hosts: true\n", 1, "a host must be text, not yes/no", "quote it: 'true'"),
    ("groups: n1\n", 1, "groups must be a mapping, not text", ""),
    ("groups:\n  a:\n    user: x\n", 3, "group a has no hosts", "write hosts:"),
    ("groups:\n  default: n1\n", 2, "a group cannot be called default", "hosts:"),
    ("hosts: n1\n? [a]\n: b\n", 2, "a key in the inventory is a list", ""),
    ("a: &a [x]\nb: [" + "*a, " * 101 + "]\n", 2, "too many aliases", ""),
    ("hosts: " + "[" * 30 + "]" * 30 + "\n", 1, "nested too deeply", ""),
    ("hosts: &a [*a]\n", 1, "", ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "what", "instead"), WRONG)
def test_wrong(tmp_path: Path, text: str, line: int, what: str, instead: str) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        load(path)
    message = str(caught.value)
    assert message.startswith(f"{path}:{line}: "), message
    assert what in message
    assert instead in message
    assert "\n" not in message


def test_all_problems_are_named_by_line(write: Write) -> None:
    path = write("hosts: [n1, 'n[']\nusr: x\ndefaults:\n  port: 0\n")
    with pytest.raises(UsageError) as caught:
        load(path)
    assert f"{path}:1: host expression 'n['" in str(caught.value)
    assert str(caught.value).endswith("[2 more, line 2, 4]")


def test_expression_may_not_be_used_in_part(write: Write) -> None:
    with pytest.raises(UsageError):
        load(write("hosts: [n1, 'n[2-1]', n3]"))


def test_not_utf8_too_large_missing(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_bytes(b"cluster: a\nhosts: n\xff\n")
    with pytest.raises(UsageError, match=r"inventory\.yaml:2: byte 0xff is not UTF-8"):
        load(path)
    path.write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(UsageError, match="larger than 5 MB"):
        load(path)
    with pytest.raises(UsageError, match="cannot read it: No such file"):
        load(tmp_path / "none")
    path.write_bytes(b"hosts: a\0b\n")
    with pytest.raises(UsageError, match=r"inventory\.yaml"):
        load(path)


def test_local_alone_and_twice(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "box.example.org")
    (node,) = load(write("local: true\ndefaults: {gpus: 2}\n")).nodes
    assert (node.name, node.transport, node.gpus) == ("box", "local", 2)
    with pytest.raises(UsageError, match=r":2: local: this machine is box, which line 1 reaches"):
        load(write("hosts: box\nlocal: true\n"))


def test_byte_order_mark_and_crlf(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_bytes(b"\xef\xbb\xbfcluster: a\r\nhosts: n[1-2]\r\n")
    assert [n.name for n in load(path).nodes] == ["n1", "n2"]
