"""-i, -w, -x and -g together."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

import inventory.source
from inventory.errors import UsageError
from inventory.node import Node
from inventory.run import Completed
from inventory.source import resolve, user_file


async def no_run(argv: Sequence[str], timeout_s: float = 10.0) -> Completed:
    """No program may be started for these sources."""
    raise AssertionError(f"started {argv}")


@pytest.fixture(autouse=True)
def _no_site_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory.source, "SITE_FILE", tmp_path / "etc" / "inventory.yaml")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def file(tmp_path: Path) -> str:
    """An inventory of two groups."""
    path = tmp_path / "hosts.yaml"
    path.write_text(
        "ssh: {host_keys: accept-new}\n"
        "groups:\n  a: {hosts: 'gpu[1-10]', user: ops}\n  b: {hosts: 'cpu[1-2]'}\n"
    )
    return str(path)


async def names(spec: str | None, **options: str) -> list[str]:
    """Names of the nodes that the options select."""
    return [node.name for node in (await resolve(spec, **options, run=no_run)).nodes]


async def test_file_selected_excluded_grouped(file: str) -> None:
    assert len(await names(file)) == 12
    assert await names(file, hosts="gpu[9-10],cpu1") == ["cpu1", "gpu9", "gpu10"]
    assert await names(file, group="b") == ["cpu1", "cpu2"]
    assert await names(file, group="a,b", exclude="gpu[1-9]") == ["cpu1", "cpu2", "gpu10"]
    chosen = await resolve(file, hosts="gpu3", run=no_run)
    assert (chosen.nodes[0].user, chosen.host_keys, chosen.source) == ("ops", "accept-new", file)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hosts": "gqu3"}, "-w: gqu3 not in {file}; did you mean gpu3?"),
        ({"hosts": "x[1-3]"}, "-w: x[1-3] not in {file}; it has cpu[1-2],gpu[1-10]"),
        ({"exclude": "gpu11"}, "-x: gpu11 not in {file}; did you mean gpu1"),
        ({"group": "c"}, "-g: no group 'c'; one of: a, b"),
        ({"hosts": "gpu[1"}, "-w: host expression 'gpu[1': unclosed bracket at column 4"),
        ({"exclude": ""}, "-x: host expression '': empty host expression"),
        ({"hosts": "gpu1", "exclude": "gpu1"}, "{file}: no node is left"),
    ],
)
async def test_wrong_selection(file: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        await names(file, **options)
    assert str(caught.value).startswith(message.format(file=file))


async def test_hosts_alone_are_an_inventory() -> None:
    found = await resolve(None, hosts="n10,n[2-3],n2", exclude="n3", run=no_run)
    assert found.nodes == (Node(name="n2"), Node(name="n10"))
    assert found.source == "-w"


async def test_default_files_in_order() -> None:
    site = inventory.source.SITE_FILE
    site.parent.mkdir()
    site.write_text("hosts: site1")
    assert await names(None) == ["site1"]
    user_file().parent.mkdir(parents=True)
    user_file().write_text("hosts: mine[1-2]")
    assert await names(None) == ["mine1", "mine2"]
    assert await names(None, hosts="mine2") == ["mine2"]
    with pytest.raises(UsageError, match=r"-w: other not in .*other hosts: -i ssh: -w"):
        await names(None, hosts="other")
    assert await names("ssh:", hosts="other") == ["other"]


async def test_nothing_found_tells_what_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    monkeypatch.setenv("PATH", str(bin_))
    with pytest.raises(UsageError) as caught:
        await names(None)
    message = str(caught.value)
    assert str(user_file()) in message
    assert "hosts: gpu[001-064]" in message
    assert "-i slurm:" not in message
    (bin_ / "scontrol").write_text("#!/bin/sh\n")
    (bin_ / "scontrol").chmod(0o755)
    config = tmp_path / "home" / ".ssh" / "config"
    config.parent.mkdir(parents=True)
    config.write_text("Host a b\n")
    with pytest.raises(UsageError, match=r"-i slurm: .*-i ssh: \(2 hosts"):
        await names(None)


async def test_a_default_file_that_cannot_be_followed_is_not_passed_over(tmp_path: Path) -> None:
    site = inventory.source.SITE_FILE
    site.parent.mkdir()
    site.write_text("hosts: other")
    user_file().parent.mkdir(parents=True)
    user_file().symlink_to(tmp_path / "gone")
    with pytest.raises(UsageError, match="No such file"):
        await names(None)


async def test_an_inventory_may_come_through_a_pipe(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.write(write, b"hosts: n[1-2]")
    os.close(write)
    assert await names(f"/dev/fd/{read}") == ["n1", "n2"]
    os.close(read)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("local:x", "local:x: nothing can stand behind local:"),
        ("slurm", "-i: no file slurm; did you mean slurm:?"),
        ("slrum:", "-i: unknown source slrum:; did you mean slurm:?"),
        ("gpu[1-4]", "-i: no file gpu[1-4]; hosts are named with -w: -w 'gpu[1-4]'"),
        ("/nonexistent.yaml", "-i: no file /nonexistent.yaml; write one"),
        ("/", "-i: / is a folder"),
        ("", "-i: is empty; name the inventory file"),
        ("~no-such-account/x", "-i: no file ~no-such-account/x"),
        ("ssh:~no-such-account/x", "ssh:: no file ~no-such-account/x"),
        ("n" * 5000, "n" * 5000 + ": cannot read it: File name too long"),
        ("ssh:" + "n" * 5000, "ssh:: no file n"),
        ("ssh:", "ssh: no Host line without wildcards in "),
        ("ssh:/nonexistent", "ssh:: no file /nonexistent"),
    ],
)
async def test_wrong_source(spec: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        await names(spec)
    assert str(caught.value).startswith(message)


async def test_ssh_config_hosts(tmp_path: Path) -> None:
    ssh = tmp_path / "home" / ".ssh"
    (ssh / "more").mkdir(parents=True)
    (ssh / "config").write_text(
        "Include more/*.conf loop\n"
        "Host gpu10 gpu2 *.example.org !bad\n  HostName 10.0.0.1\n"
        'host="gpu3"\nMatch host gpu9\n# Host no\nHost *\n  User x\nHost -oX\n'
    )
    (ssh / "more" / "a.conf").write_text("Host login1\n")
    (ssh / "loop").write_text("Include config\n")
    assert await names("ssh:") == ["gpu2", "gpu3", "gpu10", "login1"]
    other = tmp_path / "other"
    other.write_text("Host x1\n")
    found = await resolve(f"ssh:{other}", run=no_run)
    assert (found.nodes, found.ssh_config) == ((Node(name="x1"),), str(other))
    found = await resolve(f"ssh:{other}", hosts="y1", run=no_run)
    assert (found.nodes, found.ssh_config) == ((Node(name="y1"),), str(other))


async def test_local() -> None:
    (node,) = (await resolve("local:", run=no_run)).nodes
    assert node.transport == "local"
