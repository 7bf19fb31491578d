"""A few nodes as network namespaces behind one switch, each with a real sshd; `tc` slows links.

The operator stands in the switch's namespace. Nothing here is connected to the machine's network.
All lie on one file system and share the process table, so tests can look for what is left behind.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.ssh.lab import SSHD, Lab, alive, wait_for

REPOSITORY = Path(__file__).parents[2]
NETWORK = "10.78.0"
MARK = "GPUCONSOLE_NODE"
"""In the environment of everything that runs on a node; its value is the namespace's name."""
_LABS = itertools.count()


def torch_python() -> str | None:
    """An interpreter with torch: this one, or the one GPUCONSOLE_TORCH_PYTHON names."""
    if importlib.util.find_spec("torch") is not None:
        return sys.executable
    return os.environ.get("GPUCONSOLE_TORCH_PYTHON")


def ip(*words: str) -> None:
    """Run ip; it must succeed."""
    subprocess.run(["ip", *words], check=True, capture_output=True, stdin=subprocess.DEVNULL)


class NetLab:
    """n1..nN, at 10.78.0.11 and on, and the operator's command line at 10.78.0.1."""

    def __init__(self, nodes: int) -> None:
        """Starts everything."""
        self.ssh = Lab()
        self.names = [f"n{i}" for i in range(1, nodes + 1)]
        tag = f"gct{os.getpid()}x{next(_LABS)}"
        self._mark = f"{MARK}={tag}".encode()
        self.spaces = {name: f"{tag}{name}" for name in ("sw", *self.names)}
        self.home = self.ssh.folder / "home"
        self.user = self._root_with_an_empty_home()
        self.servers: list[subprocess.Popen[bytes]] = []
        self._network()
        for number, name in enumerate(self.names, start=1):
            self._sshd(name, number)
        for name in self.names:
            address = self.address(name)
            wait_for(lambda a=address: self._listens(a), 30, f"sshd of {name}")  # type: ignore[misc]

    def _root_with_an_empty_home(self) -> str:
        """A second name for root: torch may be readable by root only, root's own shell is slow."""
        name = f"gcr{os.getpid()}x{next(_LABS)}"
        home = self.ssh.folder / "root-home"
        home.mkdir()
        argv = ["useradd", "-o", "-u", "0", "-g", "0", "-M", "-d", str(home), "-s", "/bin/bash",
                "-p", "*", "-K", "MAIL_DIR=/nonexistent", name]  # fmt: skip
        wait_for(
            lambda: subprocess.run(argv, check=False, capture_output=True).returncode == 0,
            what=f"useradd {name}",
        )
        return name

    def _network(self) -> None:
        switch = self.spaces["sw"]
        for space in self.spaces.values():
            ip("netns", "add", space)
            ip("-n", space, "link", "set", "lo", "up")
        ip("-n", switch, "link", "add", "br0", "type", "bridge")
        ip("-n", switch, "addr", "add", f"{NETWORK}.1/24", "dev", "br0")
        ip("-n", switch, "link", "set", "br0", "up")
        for name in self.names:
            space = self.spaces[name]
            ip("-n", switch, "link", "add", f"p{name}", "type", "veth", "peer", "name", "eth0",
               "netns", space)  # fmt: skip
            ip("-n", switch, "link", "set", f"p{name}", "master", "br0", "up")
            ip("-n", space, "addr", "add", f"{self.address(name)}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")

    def address(self, name: str) -> str:
        """Where a node is."""
        return f"{NETWORK}.{10 + int(name[1:])}"

    def _sshd(self, name: str, number: int) -> None:
        key = self.ssh.keygen(self.ssh.folder / f"host-{name}")
        (self.ssh.folder / "authorized").write_text((self.ssh.folder / "id.pub").read_text())
        conf = self.ssh.folder / f"{name}.conf"
        conf.write_text(
            f"Port 22\nListenAddress {self.address(name)}\nHostKey {key}\nPidFile none\n"
            "UsePAM no\nPasswordAuthentication no\nUseDNS no\nStrictModes no\nPrintMotd no\n"
            "PermitRootLogin prohibit-password\n"
            f"SetEnv {MARK}={self.spaces[name]}\n"
            f"AuthorizedKeysFile {self.ssh.folder}/authorized\n"
        )
        log = self.ssh.folder / f"{name}.log"
        self.servers.append(
            subprocess.Popen(
                [*self.inside(name), SSHD, "-D", "-f", str(conf), "-E", str(log)],
                stdin=subprocess.DEVNULL, start_new_session=True,
            )
        )  # fmt: skip

    def inside(self, name: str) -> list[str]:
        """argv in front of a program that runs in a node's namespace ("sw": the operator's)."""
        return ["ip", "netns", "exec", self.spaces[name]]

    def _listens(self, address: str) -> bool:
        probe = f"import socket; socket.create_connection(({address!r}, 22), 1).close()"
        argv = [*self.inside("sw"), sys.executable, "-S", "-c", probe]
        return subprocess.run(argv, check=False, capture_output=True).returncode == 0

    def slow(self, name: str, rate: str = "60mbit") -> None:
        """Limit what a node sends."""
        subprocess.run(
            ["tc", "-n", self.spaces[name], "qdisc", "add", "dev", "eth0", "root", "tbf", "rate",
             rate, "burst", "64kb", "latency", "50ms"],
            check=True,
        )  # fmt: skip

    def reset(self) -> None:
        """No limits, no processes, no results."""
        for name in self.names:
            words = ["tc", "-n", self.spaces[name], "qdisc", "del", "dev", "eth0", "root"]
            subprocess.run(words, check=False, capture_output=True)
        for pid in self.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.home, ignore_errors=True)

    # ------------------------------------------------------------------ the operator

    def inventory(self, **settings: Any) -> str:
        """An inventory file of all nodes; settings are those of defaults, torch among them."""
        settings.setdefault("torch_python", torch_python())
        known = self.ssh.folder / "known_hosts"
        keys = [
            f"{self.address(name)} " + (self.ssh.folder / f"host-{name}.pub").read_text().strip()
            for name in self.names
        ]
        known.write_text("\n".join(keys) + "\n")
        settings = {"user": self.user, "identity": str(self.ssh.folder / "id"), **settings}
        path = self.ssh.folder / "inventory.yaml"
        hosts = {name: {"address": self.address(name)} for name in self.names}
        path.write_text(
            json.dumps(
                {
                    "cluster": "netns",
                    "ssh": {"config": str(self.ssh.ssh_config()), "known_hosts": [str(known)]},
                    "defaults": settings,
                    "groups": {"pool": {"hosts": hosts}},
                }
            )
        )
        return str(path)

    @property
    def tests(self) -> Path:
        """Where campaigns are kept."""
        return self.home / "state" / "gpuconsole" / "tests"

    def start(self, inventory: str, *arguments: str) -> subprocess.Popen[bytes]:
        """`gpuconsole -i INVENTORY test ARGUMENTS` at the operator's place."""
        own = {f"XDG_{n}_HOME": str(self.home / n.lower()) for n in ("STATE", "CACHE", "CONFIG")}
        kept = {k: v for k, v in os.environ.items() if k in ("HOME", "LANG", "USER", "PATH")}
        return subprocess.Popen(
            [*self.inside("sw"), sys.executable, "-m", "console.cli", "-i", inventory, "test",
             "--timeout", "60", *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**kept, **own, "PYTHONPATH": str(REPOSITORY)}, start_new_session=True,
        )  # fmt: skip

    def run(self, inventory: str, *arguments: str) -> tuple[int, Any, str]:
        """(exit status, JSON document, stderr)."""
        process = self.start(inventory, *arguments, "--json")
        out, err = process.communicate(timeout=280)
        assert out, err.decode()
        return process.returncode, json.loads(out), err.decode()

    def left(self, word: str = "") -> dict[int, str]:
        """pid -> command line of what runs on the nodes, sshd and shells among it not counted."""
        found = {}
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if not entry.name.isdigit():
                    continue
                if self._mark not in (entry / "environ").read_bytes():
                    continue
                words = (
                    (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                )
                if word in words and alive(int(entry.name)):
                    found[int(entry.name)] = words[:200]
        return found

    def nothing_left(self) -> None:
        """Wait until nothing runs on any node; AssertionError names what stays."""
        wait_for(lambda: not self.left(), 60.0, f"end of {self.left()}")

    def close(self) -> None:
        """End everything and take the namespaces down."""
        for pid in self.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for server in self.servers:
            server.kill()
            server.wait()
        for space in self.spaces.values():
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)
        subprocess.run(["userdel", "-f", self.user], check=False, capture_output=True)
        self.ssh.close()


@contextlib.contextmanager
def net_lab(nodes: int) -> Iterator[NetLab]:
    """A lab for the length of the block."""
    lab = NetLab(nodes)
    try:
        yield lab
    finally:
        lab.close()


def states(document: Any) -> Sequence[str]:
    """State of each run of a campaign."""
    return [run["state"] for run in document["runs"]]
