"""A small GPU cluster of real parts: sshd nodes behind loopback addresses, a jump host, a Slurm.

n1..n4   real sshd, simulated GPUs and /sys behind the node's own python3; n2 only by the jump host,
         n3 shows a host certificate, the others plain keys
n5       accepts connections and never answers       n6   refuses connections
n7       shows another host key than known_hosts has  n8   has no python

All eight are nodes of a real Slurm. The command line under test is a subprocess that sees the
inventory file, SLURM_CONF and state, cache and configuration folders of its own, nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from console.demo import sysfs
from console.demo.nvml import state
from tests.slurm.lab import PATH, SlurmLab
from tests.ssh.lab import Lab, alive, free_port, processes_of, wait_for

HEALTHY = ("n1", "n2", "n3", "n4")
SICK = ("n5", "n6", "n7", "n8")
REPOSITORY = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "console.cli")
QUICK = ("--timeout", "60", "--window", "0.1")
"""Most tests look at what happens, not at rates: a short window between the two samples."""

NCCL = """\
#!/bin/sh
echo '# nThread 1 nGpus 8 minBytes 268435456 maxBytes 1073741824'
for rank in 0 1 2 3 4 5 6 7; do
  echo "#  Rank  $rank Group  0 Pid $$ on node device  $rank [0x1b] NVIDIA H100 80GB HBM3"
done
echo '#       size         count    type   redop    root     time   algbw   busbw #wrong'
echo '#        (B)    (elements)                              (us)  (GB/s)  (GB/s)'
row() { echo "  $1  $2  float  sum  -1  $3  $4  $5  0  $3  $4  $5  0"; }
row 268435456 67108864 1100.0 244.03 427.05
row 1073741824 268435456 4100.0 261.89 458.31
echo '# Out of bounds values : 0 OK'
echo '# Avg bus bandwidth    : 442.68'
"""
"""What nccl-tests prints, for eight ranks of an H100 node."""

SLOW_NCCL = """\
#!/bin/sh
echo '# nThread 1 nGpus 8 minBytes 268435456 maxBytes 1073741824'
sleep 301 &
sleep 302
"""
"""Runs until it is killed, with a child of its own."""


@dataclass
class Outcome:
    """How a command line ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """stdout as one JSON document."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """stdout as NDJSON."""
        return [json.loads(line) for line in self.out.splitlines()]

    def node(self, name: str) -> dict[str, Any]:
        """One node of the document."""
        (found,) = [node for node in self.document["nodes"] if node["name"] == name]
        return dict(found)


@dataclass
class Gpus:
    """The simulated hardware of one node."""

    folder: Path
    state: dict[str, Any] = field(default_factory=state.healthy)

    @property
    def root(self) -> Path:
        """Where its /sys, /proc and /dev are."""
        return self.folder / "root"

    def build(self, name: str, number: int) -> None:
        """A healthy node."""
        sysfs.build(self.root, hostname=name, number=number)
        self.change()

    def change(self, index: int | None = None, **values: Any) -> None:
        """Change one GPU, or nothing, and write it down; 0o644, because the login is not ours."""
        if index is not None:
            self.state["gpus"][index].update(values)
        state.write(self.folder, self.state)
        (self.folder / "nvml.json").chmod(0o644)

    def heal(self) -> None:
        """Healthy again."""
        self.state = state.healthy()
        self.change()


class Site:
    """The cluster and an operator's command line in front of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ssh = Lab()
        self.slurm = SlurmLab(folder / "slurm", nodes=len(HEALTHY) + len(SICK))
        self.gpus: dict[str, Gpus] = {}
        self.hole = socket.socket()
        self.home = folder / "home"
        self.inventory = folder / "inventory.yaml"
        self._count = 0

    # ------------------------------------------------------------------ the cluster

    def up(self) -> None:
        """Start everything."""
        self.slurm.root.mkdir()
        self.slurm.up()
        python = self._python()
        for number, name in enumerate(HEALTHY, start=1):
            self._gpu_node(name, number, python)
        self.ssh.serve("jump", 9)
        self.ssh.serve("n7", 7)
        self.ssh.serve("n8", 8, extra=f"ForceCommand {self._no_python()}")
        self.hole.bind((self.ssh.address(5), 0))
        self.hole.listen(64)
        self._operator()

    def _python(self) -> Path:
        """The simulated library where the lab's accounts can read it."""
        copy = self.ssh.folder / "nvml"
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / "console" / "demo" / "nvml", copy, ignore=ignored)
        return copy / "shim.py"

    def _gpu_node(self, name: str, number: int, shim: Path) -> None:
        folder = self.ssh.folder / f"node-{name}"
        programs = folder / "bin"
        programs.mkdir(parents=True)
        self.gpus[name] = Gpus(folder)
        self.gpus[name].build(name, number)
        system = shutil.which("python3", path="/usr/bin:/bin")
        assert system, "apt install python3"
        for program, text in (
            ("python3", f'#!/bin/sh\nexec {system} {shim} {folder} "$@"\n'),
            ("all_reduce_perf", NCCL),
            ("slow_all_reduce_perf", SLOW_NCCL),
        ):
            (programs / program).write_text(text)
            (programs / program).chmod(0o755)
        extra = f"SetEnv PATH={programs}:/usr/bin:/bin"
        self.ssh.serve(name, number, extra=extra, certificate=name if name == "n3" else None)

    def _no_python(self) -> str:
        """A login that has sh and nothing else."""
        only_sh = self.ssh.folder / "only-sh"
        only_sh.mkdir()
        (only_sh / "sh").symlink_to("/bin/sh")
        return self.ssh.script(
            "hide-python",
            "#!/bin/sh\n"
            "command=$(printf %s \"$SSH_ORIGINAL_COMMAND\" | sed 's:/usr/:/nowhere/:g')\n"
            f'PATH={only_sh} exec /bin/sh -c "$command"\n',
        )

    def _operator(self) -> None:
        """ssh_config, known_hosts and the inventory file."""
        ports = {"n5": int(self.hole.getsockname()[1]), "n6": free_port()}
        text = []
        for number, name in enumerate((*HEALTHY, *SICK, "jump"), start=1):
            text.append(
                f"Host {name}\n  HostName {self.ssh.address(number)}\n  HostKeyAlias {name}\n"
                f"  Port {ports.get(name, self.ssh.port)}\n  User {self.ssh.user}\n"
            )
        self.ssh_config = self.ssh.ssh_config("".join(text) + "Host *\n")
        keys = {name: server.public_key for name, server in self.ssh.servers.items()}
        keys["n7"] = keys["n8"]  # the key of a node that was installed anew
        keys.pop("n3")
        lines = [f"{name} {key}" for name, key in keys.items()]
        lines.append(self.ssh.ca_line().replace("*", "n3", 1))
        known = self.ssh.known_hosts(*lines)
        self.inventory.write_text(
            "cluster: lab\nscheduler: slurm\n"
            f"ssh: {{config: {self.ssh_config}, known_hosts: {known}}}\n"
            "groups:\n  gpu:\n    gpus: 8\n    hosts:\n"
            + "".join(self._entry(name) for name in HEALTHY)
            + "  sick:\n    role: gpu\n    hosts: n[5-8]\n"
        )

    def _entry(self, name: str) -> str:
        gpus = self.gpus[name]
        jump = ", jump: jump" if name == "n2" else ""
        nccl = gpus.folder / "bin" / "all_reduce_perf"
        return f"      {name}: {{root: {gpus.root}, nccl_tests: {nccl}{jump}}}\n"

    def reset(self) -> None:
        """Healthy hardware, idle nodes, no audit file."""
        for gpus in self.gpus.values():
            gpus.heal()
        self.slurm.reset()
        shutil.rmtree(self.home, ignore_errors=True)

    def down(self) -> None:
        """End everything, the one whatever becomes of the other."""
        self.hole.close()
        try:
            self.ssh.close()
        finally:
            self.slurm.down()

    # ------------------------------------------------------------------ the operator

    @property
    def environment(self) -> dict[str, str]:
        """What the command line sees."""
        own = {f"XDG_{n}_HOME": str(self.home / n.lower()) for n in ("STATE", "CACHE", "CONFIG")}
        kept = {k: v for k, v in os.environ.items() if k in ("HOME", "LANG", "USER", "LOGNAME")}
        return {
            **kept, **own, "PATH": PATH, "SLURM_CONF": str(self.slurm.conf),
            "PYTHONPATH": str(REPOSITORY),
        }  # fmt: skip

    @property
    def audit(self) -> list[dict[str, Any]]:
        """The lines of the audit file so far."""
        path = self.home / "state" / "gpuconsole" / "audit.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def argv(self, arguments: Sequence[str], inventory: str | None = None) -> list[str]:
        """The whole command line."""
        return [*COMMAND, "-i", inventory or str(self.inventory), *arguments]

    def run(
        self,
        *arguments: str,
        inventory: str | None = None,
        env: dict[str, str] | None = None,
        before: Sequence[str] = (),
    ) -> Outcome:
        """Run a command line to its end. `before` is an argv in front of it."""
        done = subprocess.run(
            [*before, *self.argv(arguments, inventory)], capture_output=True, text=True,
            timeout=280, check=False, stdin=subprocess.DEVNULL, cwd=self.folder,
            env={**self.environment, **(env or {})},
        )  # fmt: skip
        return Outcome(done.returncode, done.stdout, done.stderr)

    @contextlib.contextmanager
    def started(
        self, *arguments: str, inventory: str | None = None
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A command line that goes on; killed at the end if it still runs."""
        process = subprocess.Popen(
            self.argv(arguments, inventory), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env=self.environment, cwd=self.folder, start_new_session=True,
        )  # fmt: skip
        try:
            yield process
        finally:
            process.kill()
            process.communicate(timeout=250)

    def file(self, name: str, text: str) -> str:
        """A file in the operator's folder."""
        path = self.folder / name
        path.write_text(text)
        return str(path)

    # ------------------------------------------------------------------ what runs on the nodes

    def processes(self) -> list[int]:
        """Everything that runs under the nodes' login: shells, agents, tests."""
        return [pid for pid, words in self._login_processes() if not words.startswith("sshd")]

    def named(self, word: str) -> list[int]:
        """Of those, the ones with this word in their command line."""
        return [pid for pid, words in self._login_processes() if word in words]

    def _login_processes(self) -> Iterator[tuple[int, str]]:
        for pid in processes_of(pwd.getpwnam(self.ssh.user).pw_uid):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
                if alive(pid):
                    yield pid, words.decode(errors="replace")

    def connections(self) -> int:
        """sshd processes that serve somebody."""
        return sum(words.startswith("sshd") for _, words in self._login_processes())

    def nothing_left(self) -> None:
        """Wait until no process of ours is on any node; AssertionError names what stays."""
        wait_for(lambda: not self.processes(), 60.0, f"end of {list(self._login_processes())}")


def until(condition: Callable[[], object], what: str, timeout_s: float = 150.0) -> None:
    """Poll a condition of the outside world."""
    wait_for(condition, timeout_s, what)


def ended(process: subprocess.Popen[bytes], timeout_s: float = 60.0) -> tuple[int, str, str]:
    """Exit status, stdout, stderr."""
    out, err = process.communicate(timeout=timeout_s)
    return process.returncode, out.decode(errors="replace"), err.decode(errors="replace")


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
