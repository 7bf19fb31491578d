"""known_hosts: the same answers as ssh-keygen -F and ssh itself, at the cost of the key alone."""

from __future__ import annotations

import base64
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from probes.known_hosts import KnownHosts, Line, Trust, Verdict, fingerprint, kind
from tests.conftest import Lab as Gate
from tests.ssh.agents import Agents
from tests.ssh.lab import Lab
from tests.ssh.record import one_pass


def key(seed: int, algorithm: str = "ssh-ed25519") -> str:
    """A well-formed public key that belongs to nobody."""
    name = algorithm.encode()
    body = seed.to_bytes(32, "big")
    raw = len(name).to_bytes(4, "big") + name + len(body).to_bytes(4, "big") + body
    return base64.b64encode(raw).decode()


def entry(names: str, seed: int, algorithm: str = "ssh-ed25519", marker: str = "") -> str:
    return f"{marker} {names} {algorithm} {key(seed, algorithm)}".strip()


def where(verdict: Verdict) -> Line:
    """The line that decided; there must be one."""
    assert verdict.line is not None
    return verdict.line


Make = Callable[..., KnownHosts]


@pytest.fixture
def known(tmp_path: Path) -> Make:
    """Makes a KnownHosts from lines."""

    def make(*lines: str, hashed: bool = False) -> KnownHosts:
        path = tmp_path / "kh"
        path.write_text("\n".join(lines) + "\n")
        if hashed:
            subprocess.run(
                ["ssh-keygen", "-q", "-H", "-f", str(path)],
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        return KnownHosts([str(path)])

    return make


@pytest.mark.parametrize("hashed", [False, True])
def test_plain_and_hashed_names(known: Make, lab: Gate, hashed: bool) -> None:
    lab.programs("ssh-keygen", "ssh-keygen", package="openssh-client")
    found = known(entry("n1", 1), entry("[n1]:2222", 2), entry("n2", 3), hashed=hashed)
    assert found.check("n1", 22, key(1)).trust is Trust.KNOWN
    assert found.check("N1", 22, key(1)).trust is Trust.KNOWN
    changed = found.check("n1", 22, key(9))
    assert changed.trust is Trust.CHANGED
    assert where(changed).number == 1
    assert found.check("n1", 2222, key(2)).trust is Trust.KNOWN
    assert found.check("n1", 2222, key(1)).trust is Trust.CHANGED, "[n1]:2222 decides for port 2222"
    assert found.check("n2", 2222, key(3)).trust is Trust.KNOWN, (
        "no [n2]:2222: the bare name counts"
    )
    assert found.check("n2", 2222, key(9)).trust is Trust.UNKNOWN
    assert found.check("n3", 22, key(1)).trust is Trust.UNKNOWN, "another host's key"


def test_patterns_lists_and_negation(known: Make) -> None:
    found = known(entry("gpu*,!gpu9,10.0.0.?", 1), entry("a,b,c", 2), "# comment", "", "short line")
    assert found.check("gpu1", 22, key(1)).trust is Trust.KNOWN
    assert found.check("gpu9", 22, key(1)).trust is Trust.UNKNOWN
    assert found.check("10.0.0.7", 22, key(1)).trust is Trust.KNOWN
    assert found.check("b", 22, key(2)).trust is Trust.KNOWN
    assert where(found.check("b", 22, key(1))).where.endswith(":2")


@pytest.mark.parametrize("hashed", [False, True])
def test_revoked_and_authorities(known: Make, hashed: bool) -> None:
    found = known(
        entry("n1", 1),
        entry("n1", 1, marker="@revoked"),
        entry("*.lan", 5, marker="@cert-authority"),
        hashed=False,
    )
    assert found.check("n1", 22, key(1)).trust is Trust.REVOKED
    assert [line.key for line in found.authorities("x.lan", 22)] == [key(5)]
    assert found.authorities("x.wan", 22) == []
    assert [line.key for line in found.revoked("n1", 22)] == [key(1)]
    assert hashed in (True, False)


def test_another_type_on_file_counts_as_changed(known: Make) -> None:
    found = known(entry("n1", 1, "ssh-rsa"))
    verdict = found.check("n1", 22, key(2))
    assert (verdict.trust, where(verdict).algorithm) == (Trust.CHANGED, "ssh-rsa")
    assert found.key_types("n1", 22) == ["ssh-rsa"]


def test_same_answers_as_ssh_keygen(known: Make, lab: Gate) -> None:
    lab.programs("ssh-keygen", "ssh-keygen", package="openssh-client")
    names = [f"node{i}" for i in range(40)]
    found = known(*(entry(name, i) for i, name in enumerate(names)), hashed=True)
    for i, name in enumerate(names):
        said = subprocess.run(
            ["ssh-keygen", "-F", name, "-f", found.files[0]],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        number = int(said.split("line ")[1].split()[0])
        verdict = found.check(name, 22, key(i))
        assert (verdict.trust, where(verdict).number) == (Trust.KNOWN, number)


def test_file_changes_are_seen(known: Make) -> None:
    found = known(entry("n1", 1))
    path = found.files[0]
    with open(path, "a") as file:
        file.write(entry("n2", 2) + "\n")
    os.utime(path, ns=(1, 1))
    found.refresh()
    assert found.check("n2", 22, key(2)).trust is Trust.KNOWN


@pytest.mark.parametrize("hashed", [False, True])
def test_accept_appends_what_ssh_reads(known: Make, lab: Gate, hashed: bool) -> None:
    lab.programs("ssh-keygen", "ssh-keygen", package="openssh-client")
    found = known(entry("n1", 1))
    assert found.accept("new", 2222, "ssh-ed25519", key(7), hashed=hashed) == ""
    assert found.check("new", 2222, key(7)).trust is Trust.KNOWN
    assert KnownHosts(found.files).check("new", 2222, key(7)).trust is Trust.KNOWN
    said = subprocess.run(
        ["ssh-keygen", "-F", "[new]:2222", "-f", found.files[0]],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert "line 2" in said
    assert found.check("n1", 22, key(1)).trust is Trust.KNOWN


def test_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    found = KnownHosts([str(tmp_path)])
    assert found.accept("n1", 22, "ssh-ed25519", key(1), hashed=False)
    assert found.check("n1", 22, key(1)).trust is Trust.KNOWN, "for this run"


def test_fingerprint_is_ssh_keygens(tmp_path: Path, lab: Gate) -> None:
    lab.programs("ssh-keygen", "ssh-keygen", package="openssh-client")
    path = tmp_path / "k"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    said = subprocess.run(
        ["ssh-keygen", "-lf", f"{path}.pub"], check=True, capture_output=True, text=True
    ).stdout
    algorithm, text = (tmp_path / "k.pub").read_text().split()[:2]
    assert fingerprint(text) == said.split()[1]
    assert kind(algorithm) == "ED25519"


def test_hashed_lookup_cost_is_reported(
    known: Make, lab: Gate, record_property: Callable[[str, object], None]
) -> None:
    """4,000 hashed lines: a figure for the report, not an assertion on time."""
    lab.programs("ssh-keygen", "ssh-keygen", package="openssh-client")
    found = known(*(entry(f"node{i}", i) for i in range(4000)), hashed=True)
    began = time.perf_counter()
    again = KnownHosts(found.files)
    parse_ms = (time.perf_counter() - began) * 1e3
    began = time.perf_counter()
    for i in range(0, 4000, 4):
        assert again.check(f"node{i}", 22, key(i)).trust is Trust.KNOWN
    known_us = (time.perf_counter() - began) / 1000 * 1e6
    began = time.perf_counter()
    assert again.check("stranger", 22, key(5000)).trust is Trust.UNKNOWN
    search_ms = (time.perf_counter() - began) * 1e3
    record_property("parse_ms", parse_ms)
    record_property("known_us_per_node", known_us)
    record_property("search_ms", search_ms)
    figures = f"parse {parse_ms:.1f} ms, known {known_us:.1f} us/node, search {search_ms:.1f} ms"
    print("4000 hashed lines:", figures)  # noqa: T201 - shown with -s


async def test_hashed_file_lets_real_servers_in(sshd: Lab, agents: Agents) -> None:
    sshd.serve("n1", 1)
    server = sshd.servers["n1"]
    path = sshd.known_hosts(
        *(entry(f"other{i}", i) for i in range(300)),
        f"[{server.address}]:{server.port} {server.public_key}",
        name="hashed",
    )
    sshd.run("ssh-keygen", "-q", "-H", "-f", str(path))
    node = sshd.node("n1", python=agents.script("hello(); end(); until_eof()"))
    assert (await one_pass(sshd.inventory(node, known_hosts=(str(path),)))).last(
        "n1"
    ).state == "ended"
