"""Real OpenSSH servers on loopback addresses: several nodes, a jump host, certificates, own users.

Everything lies in one temporary folder; ports are free ones; servers are ended by pid. As root each
lab makes its own account with an empty home, so that nobody's shell start-up files are in the way;
otherwise the account that runs the tests is used.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inventory.node import Inventory, Node

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") or "sshd"
PREPARE_S = 60.0
_NUMBERS = itertools.count()


def free_port(address: str = "127.0.0.1") -> int:
    """A port nobody listens on."""
    with contextlib.closing(socket.socket()) as sock:
        sock.bind((address, 0))
        return int(sock.getsockname()[1])


def wait_for(
    condition: Callable[[], object], timeout_s: float = PREPARE_S, what: str = "condition"
) -> None:
    """Poll a condition of the outside world; AssertionError at the deadline."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what} not met within {timeout_s} s"
        time.sleep(0.01)


def answers(address: str, port: int) -> bool:
    """Whether something accepts connections there."""
    try:
        socket.create_connection((address, port), 0.5).close()
    except OSError:
        return False
    return True


def alive(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


def children(pid: int) -> list[int]:
    """All descendants of a process."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                parents.setdefault(int(stat[1]), []).append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        for child in parents.get(todo.pop(), []):
            found.append(child)
            todo.append(child)
    return found


def output(*argv: str) -> str:
    """What a program prints; it must succeed."""
    done = subprocess.run(
        argv, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    return done.stdout


def background(*argv: str) -> subprocess.Popen[bytes]:
    """A program that runs until it is killed."""
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def processes_of(uid: int) -> list[int]:
    """Processes of one account."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and entry.stat().st_uid == uid:
                found.append(int(entry.name))
    return found


@dataclass
class Sshd:
    """One server."""

    name: str
    address: str
    port: int
    key: Path
    log_path: Path
    process: subprocess.Popen[bytes]

    @property
    def log(self) -> str:
        """What it logged so far."""
        return self.log_path.read_text(errors="replace")

    @property
    def logins(self) -> int:
        """Successful logins so far."""
        return self.log.count("Accepted publickey")

    @property
    def public_key(self) -> str:
        """Its plain host key: type and base64."""
        return " ".join(Path(f"{self.key}.pub").read_text().split()[:2])

    def stop(self) -> None:
        """End the server and its sessions."""
        pids = [self.process.pid, *children(self.process.pid)]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


@dataclass
class Lab:
    """One laboratory: folder, keys, account, servers."""

    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="gpuconsole-lab-")))
    servers: dict[str, Sshd] = field(default_factory=dict)
    users: list[str] = field(default_factory=list)
    user: str = ""
    block: int = field(default_factory=lambda: random.randint(64, 250))

    def __post_init__(self) -> None:
        self.folder.chmod(0o755)
        self.port = free_port()
        for name in ("id", "user_ca", "host_ca"):
            self.keygen(self.folder / name)
        certificate = ["-s", "user_ca", "-I", "lab", "-n", "lab", "-V", "-5m:+1d", "id.pub"]
        self.run("ssh-keygen", "-q", *certificate)
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
            self.user = self.add_user("/bin/bash")
        else:
            self.user = pwd.getpwuid(os.getuid()).pw_name

    def run(self, *argv: str) -> None:
        """Run a preparation step inside the folder."""
        subprocess.run(argv, check=True, cwd=self.folder, stdout=subprocess.DEVNULL)

    def keygen(self, path: Path, kind: str = "ed25519") -> Path:
        """A key pair without passphrase."""
        self.run("ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "lab", "-f", str(path))
        return path

    def add_user(self, shell: str) -> str:
        """A new account with this login shell and an empty home; only as root."""
        name = f"gcl{os.getpid()}x{next(_NUMBERS)}"
        home = self.folder / f"home-{name}"
        argv = [
            "useradd",
            "-M",
            "-d",
            str(home),
            "-s",
            shell,
            "-p",
            "*",
            "-K",
            "MAIL_DIR=/nonexistent",
        ]
        # Another test run may hold the lock on /etc/passwd for a moment: status 1.
        wait_for(
            lambda: subprocess.run([*argv, name], check=False, capture_output=True).returncode == 0,
            what=f"useradd {name}",
        )
        self.users.append(name)
        home.mkdir(mode=0o755)
        account = pwd.getpwnam(name)
        os.chown(home, account.pw_uid, account.pw_gid)
        return name

    def home(self, user: str | None = None) -> Path:
        """The home of one of the lab's accounts."""
        return Path(pwd.getpwnam(user or self.user).pw_dir)

    def address(self, index: int) -> str:
        """A loopback address of this lab."""
        return f"127.{self.block}.0.{index}"

    def serve(
        self,
        name: str,
        index: int,
        *,
        extra: str = "",
        certificate: str | None = None,
        kind: str = "ed25519",
        key: Path | None = None,
        everywhere: bool = False,
    ) -> Sshd:
        """Start a server. `certificate`: principals of a host certificate, None for a plain key.

        `everywhere` listens on all addresses: only in a network namespace of one's own.
        """
        address = self.address(index)
        key = key or self.keygen(self.folder / f"host-{name}", kind)
        listen = "0.0.0.0" if everywhere else address
        lines = [extra, f"Port {self.port}", f"ListenAddress {listen}", f"HostKey {key}"]
        if certificate is not None:
            self.run(
                "ssh-keygen",
                "-q",
                "-s",
                "host_ca",
                "-h",
                "-I",
                name,
                "-n",
                certificate,
                "-V",
                "-5m:+1d",
                f"{key}.pub",
            )
            lines.append(f"HostCertificate {key}-cert.pub")
        (self.folder / "authorized").write_text((self.folder / "id.pub").read_text())
        (self.folder / "authorized").chmod(0o644)
        lines += [
            "PidFile none",
            "UsePAM no",
            "PasswordAuthentication no",
            "UseDNS no",
            "KbdInteractiveAuthentication no",
            "StrictModes no",
            "PrintMotd no",
            "LogLevel VERBOSE",
            f"AuthorizedKeysFile {self.folder}/authorized",
            f"TrustedUserCAKeys {self.folder}/user_ca.pub",
        ]
        conf = self.folder / f"{name}.conf"
        conf.write_text("\n".join(lines) + "\n")
        log = self.folder / f"{name}.log"
        log.touch()
        server = Sshd(name, address, self.port, key, log, self._spawn(conf, log))
        self.servers[name] = server
        wait_for(lambda: answers(address, self.port), what=f"sshd {name}: {server.log}")
        return server

    def _spawn(self, conf: Path, log: Path) -> subprocess.Popen[bytes]:
        argv = [SSHD, "-D", "-f", str(conf), "-E", str(log)]
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True)

    def restart(self, name: str, *, key: Path | None = None) -> None:
        """Stop a server and start it again on the same address, with another host key if given."""
        old = self.servers[name]
        old.stop()
        self.serve(name, int(old.address.rpartition(".")[2]), key=key or old.key)

    def ca_line(self) -> str:
        """known_hosts line that trusts the lab's host CA for everything."""
        return "@cert-authority * " + " ".join(
            (self.folder / "host_ca.pub").read_text().split()[:2]
        )

    def known_hosts(self, *lines: str, name: str = "known_hosts") -> Path:
        """A known_hosts file: the plain key of every server, or the given lines."""
        path = self.folder / name
        default = [f"[{s.address}]:{s.port} {s.public_key}" for s in self.servers.values()]
        path.write_text("\n".join(lines or default) + "\n")
        return path

    def ssh_config(self, text: str = "") -> Path:
        """An ssh_config that knows nothing but the lab's key, after `text`."""
        path = self.folder / f"ssh_config-{len(list(self.folder.glob('ssh_config-*')))}"
        path.write_text(f"{text}\nHost *\n  IdentityFile {self.folder}/id\n  IdentityAgent none\n")
        return path

    def node(self, server: str, **settings: Any) -> Node:
        """The inventory's entry for a server."""
        found = self.servers[server]
        fields: dict[str, Any] = {
            "name": server,
            "address": found.address,
            "port": found.port,
            "user": self.user,
        }
        return Node(**{**fields, **settings})

    def inventory(self, *nodes: Node, config: Path | None = None, **settings: Any) -> Inventory:
        """An inventory that uses the lab's own ssh_config and known_hosts."""
        settings.setdefault("known_hosts", (str(self.known_hosts()),))
        return Inventory(nodes=nodes, ssh_config=str(config or self.ssh_config()), **settings)

    def script(self, name: str, text: str) -> str:
        """An executable file that the lab's accounts may read."""
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)
        return str(path)

    def close(self) -> None:
        """End all servers, remove accounts and folder."""
        for server in self.servers.values():
            server.stop()
        for user in self.users:
            for pid in processes_of(pwd.getpwnam(user).pw_uid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            subprocess.run(["userdel", "-f", user], check=False, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)
