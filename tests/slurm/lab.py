"""A private Slurm on loopback: munged, slurmctld and a few slurmd under one folder, no systemd.

Nothing in /etc/slurm or /run/munge is read or written. Every daemon is a child whose pid we keep;
job steps are found by the SLURM_CONF of this folder only.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from inventory.run import Completed, LocalRun

PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"

CONF = """\
ClusterName=testlab
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={port}
SlurmdPort={slurmd_port}
AuthType=auth/munge
AuthInfo=socket={root}/munge.sock
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool/%n
SlurmctldPidFile={root}/run/slurmctld.pid
SlurmdPidFile={root}/run/%n.pid
SlurmctldLogFile={root}/log/slurmctld.log
SlurmdLogFile={root}/log/%n.log
ProctrackType=proctrack/linuxproc
RebootProgram=/bin/true
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
SwitchType=switch/none
SlurmctldTimeout=30
SlurmdTimeout=60
MessageTimeout=10
KillWait=1
InactiveLimit=0
SchedulerParameters=bf_interval=1,sched_interval=1
"""


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on just now, below those that the kernel gives to clients."""
    ports: list[int] = []
    candidates = random.sample(range(20_000, 32_000), 2_000)
    while len(ports) < count:
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("0.0.0.0", candidates[-1]))
            ports.append(candidates[-1])
        candidates.pop()
    return ports


def wait_until(true: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
    """Poll a condition; AssertionError when it does not come true in time."""
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s:g} s"
        time.sleep(0.05)


class SlurmLab:
    """Nodes n1..nN with 8 claimed GPUs each, in partition gpu; n1 and n2 also in small."""

    def __init__(self, root: Path, nodes: int) -> None:
        self.root = root
        self.names = [f"n{i}" for i in range(1, nodes + 1)]
        self.conf = root / "slurm.conf"
        self.env = {**os.environ, "PATH": PATH, "SLURM_CONF": str(self.conf)}
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}

    def up(self) -> None:
        """Write the configuration, start everything, wait until all nodes are idle."""
        for name in ("run", "log", "state", "spool", "dev"):
            (self.root / name).mkdir()
        self.root.chmod(0o755)
        self._configure()
        key = self.root / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        self._spawn(
            "munged",
            "munged",
            "--foreground",
            "--force",
            f"--socket={self.root}/munge.sock",
            f"--key-file={key}",
            f"--pid-file={self.root}/run/munged.pid",
            f"--seed-file={self.root}/munge.seed",
            f"--log-file={self.root}/log/munged.log",
        )
        wait_until((self.root / "munge.sock").exists, "munged")
        self.start_controller()
        for name in self.names:
            self.start_node(name)
        self.wait_idle()

    def _configure(self) -> None:
        ports = free_ports(2 + len(self.names))
        host = socket.gethostname().split(".")[0]
        lines = [CONF.format(host=host, port=ports[0], slurmd_port=ports[1], root=self.root)]
        for name, port in zip(self.names, ports[2:], strict=True):
            (self.root / "spool" / name).mkdir()
            lines.append(
                f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} "
                "CPUs=4 RealMemory=1024 Gres=gpu:h100:8 State=UNKNOWN\n"
            )
        everywhere = ",".join(self.names)
        lines.append(f"PartitionName=gpu Nodes={everywhere} Default=YES State=UP\n")
        lines.append("PartitionName=small Nodes=n1,n2 State=UP\n")
        self.conf.write_text("".join(lines))
        for i in range(8):
            # GRES wants a device file that exists; 1,3 is /dev/null.
            os.mknod(self.root / "dev" / f"nvidia{i}", 0o20666, os.makedev(1, 3))
        gres = f"Name=gpu Type=h100 File={self.root}/dev/nvidia[0-7]\n"
        (self.root / "gres.conf").write_text(gres)

    def _spawn(self, name: str, *argv: str) -> None:
        with (self.root / "log" / f"{name}.out").open("ab") as out:
            self.daemons[name] = subprocess.Popen(
                argv, env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

    def start_controller(self) -> None:
        """Start slurmctld, keeping its state if there is one."""
        self._spawn("slurmctld", "slurmctld", "-D", "-i")
        wait_until(lambda: self.call("scontrol", "ping").returncode == 0, "slurmctld")

    def start_node(self, name: str) -> None:
        """Start one slurmd."""
        self._spawn(name, "slurmd", "-D", "-N", name)

    def stop(self, name: str, sig: signal.Signals = signal.SIGKILL) -> None:
        """End one daemon and wait for it."""
        daemon = self.daemons.pop(name)
        daemon.send_signal(sig)
        daemon.wait(60)

    @contextlib.contextmanager
    def soon_down(self) -> Iterator[None]:
        """A node is down after 5 s without an answer: 60 else, as a busy machine stands still."""
        usual = self.conf.read_text()
        self.conf.write_text(usual.replace("SlurmdTimeout=60", "SlurmdTimeout=5"))
        self.ok("scontrol", "reconfigure")
        try:
            yield
        finally:
            self.conf.write_text(usual)
            self.ok("scontrol", "reconfigure")

    @contextlib.contextmanager
    def suspended(self, name: str) -> Iterator[None]:
        """One daemon that lives but does nothing."""
        daemon = self.daemons[name]
        daemon.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            daemon.send_signal(signal.SIGCONT)

    def call(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run a Slurm command as root; never raises for what it answers."""
        return subprocess.run(
            argv, env=self.env, capture_output=True, text=True, timeout=250, check=False
        )

    def ok(self, *argv: str) -> str:
        """Run a command that must succeed; its output."""
        done = self.call(*argv)
        assert done.returncode == 0, f"{argv}: {done.stderr}"
        return done.stdout

    def words(self) -> dict[str, str]:
        """Node -> state as sinfo has it."""
        lines = self.call("sinfo", "-h", "-N", "-p", "gpu", "-o", "%N %T").stdout.splitlines()
        return dict(line.split() for line in lines)

    def wait_idle(self) -> None:
        """Wait until every node takes work."""
        wait_until(lambda: set(self.words().values()) == {"idle"}, "all nodes idle")

    def submit(self, node: str, name: str = "train") -> str:
        """Start a job that holds a part of one node; its id once it runs."""
        job = self.ok(
            *("sbatch", "--parsable", "-w", node, "-n1", "-t", "10", "-J", name),
            *("-D", "/", "-o", "/dev/null", "--wrap", "exec sleep 300"),
        ).strip()
        asked = ("squeue", "-h", "-j", job, "-o", "%T")
        wait_until(lambda: self.call(*asked).stdout.strip() == "RUNNING", f"job {job}")
        return job

    def cancel(self, job: str) -> None:
        """End a job and wait until it is gone."""
        self.ok("scancel", job)
        asked = ("squeue", "-h", "-j", job, "-o", "%T")
        wait_until(lambda: not self.call(*asked).stdout.strip(), f"end of job {job}")

    def reset(self) -> None:
        """No jobs, all daemons alive, all nodes idle."""
        if "slurmctld" not in self.daemons:
            self.start_controller()
        for name in self.names:
            if name not in self.daemons:
                self.start_node(name)
        for job in self.call("squeue", "-h", "-o", "%A").stdout.split():
            self.cancel(job)
        for name, word in self.words().items():
            if word != "idle":
                self.call("scontrol", "update", f"NodeName={name}", "State=RESUME")
        self.wait_idle()

    def down(self) -> None:
        """Jobs first, then daemons, then any step daemon of ours that outlived them."""
        if "slurmctld" in self.daemons:
            self.call("scancel", "-u", "root")
            gone = ("squeue", "-h", "-o", "%A")
            with contextlib.suppress(AssertionError):
                wait_until(lambda: not self.call(*gone).stdout.strip(), "end of jobs", 30)
        for name in [n for n in reversed(self.daemons) if n != "munged"]:
            self.stop(name, signal.SIGTERM if name == "slurmctld" else signal.SIGKILL)
        if "munged" in self.daemons:
            self.stop("munged")
        mark = f"SLURM_CONF={self.conf}".encode()
        for pid in [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()]:
            with contextlib.suppress(OSError):
                if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    os.kill(pid, signal.SIGKILL)


class As:
    """A Run that runs every command as another user."""

    def __init__(self, lab: SlurmLab, uid: int) -> None:
        self.lab = lab
        self.uid = uid

    async def __call__(self, argv: Sequence[str], timeout_s: float = 10.0) -> Completed:
        """Run argv as that user, with the cluster's configuration."""
        prefix = ("setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups")
        run = LocalRun({"SLURM_CONF": str(self.lab.conf), "PATH": PATH})
        return await run((*prefix, *argv), timeout_s)


@contextlib.contextmanager
def slurm_lab(nodes: int) -> Iterator[SlurmLab]:
    """A cluster of idle nodes while it is needed.

    Not below pytest's own folder: it is closed to the ordinary user who must read slurm.conf.
    """
    with tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True) as root:
        made = SlurmLab(Path(root), nodes)
        try:
            made.up()
            yield made
        finally:
            made.down()
