"""One simulated node on disk: its driver state, its /sys, /proc and /dev root, its programs.

DIR/nvml.json    read by console/demo/nvml whenever it changes
DIR/root/        the root the agent reads; root/dev/kmsg is the kernel log, in kmsg form
DIR/nccl.json    what active tests reach (performance.py)
DIR/testing      there while one loads the GPUs

Its programs (python3 with the simulated library, dmesg, nvidia-smi, ...) lie elsewhere, because the
file system of DIR may be mounted noexec.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from console.demo import nccl_tools, ranks, sysfs, tools, torch_tools
from console.demo.performance import performance, under_test
from console.demo.story import Process, Story
from console.demo.tree import Template

SHIM = Path(__file__).parent / "nvml" / "shim.py"
HZ = 100
"""USER_HZ: unit of /proc/stat (proc(5))."""


class Machine:
    """Keeps one node's directory in step with the story."""

    def __init__(self, name: str, directory: Path, programs: Path, story: Story) -> None:
        """Nothing is written before `build`; both directories do not exist before."""
        self.name = name
        self.directory = directory
        self.bin = programs
        self.root = directory / "root"
        self._story = story
        self._written: dict[str, str | bytes | None] = {}
        self._healthy: dict[str, bytes | None] = {}
        """Path -> content as built; None: there was no such file."""
        self.ras_port = 0
        """Where the jobs on this node tell of their ranks; 0: nowhere."""
        self._offers = False
        self._processes: dict[int, Process] = {}
        self._told_until = float("-inf")
        self._cpu = ""

    @property
    def environment(self) -> dict[str, str]:
        """What a command on this node sees; of the bastion's programs only those in /usr/bin."""
        return {
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "HOME": str(self.directory),
            "USER": "operator",
            "LOGNAME": "operator",
            "SHELL": "/bin/sh",
        }

    def build(self, template: Template, number: int) -> None:
        """Write the healthy tree and the programs."""
        template.clone(self.root, self.name, number)
        self._cpu = template.text("proc/stat").partition("\n")[2]
        self.bin.mkdir(parents=True)
        _executable(self.bin / "python3", _python3(self.directory))
        for tool in tools.TOOLS:
            self._program(tool, tools.__file__, tool)
        for tool in nccl_tools.NAMES:
            self._program(tool, nccl_tools.__file__, tool)
        self._program("torch_python", torch_tools.__file__)

    def _program(self, name: str, *words: str) -> None:
        """A program in a file of its own, started with DIR as its last word but the user's."""
        start = shlex.join([sys.executable, "-I", "-S", *words, str(self.directory)])
        _executable(self.bin / name, f'#!/bin/sh\nDEMO_PARENT=$PPID exec {start} "$@"\n')

    def advance(self, t: float, speed: float, now: float) -> None:
        """Bring everything to story time t; `now` is the monotonic clock at that moment."""
        state = self._story.nvml(self.name, t, speed)
        if self._under_test():
            state = under_test(state, self._story, self.name, t)
        self._replace("nvml.json", json.dumps(state))
        self._replace("nccl.json", json.dumps(performance(self._story, self.name, t)))
        self._change({**self._story.files(self.name, t), **self._host(t)})
        self._offers = bool(self.ras_port) and ranks.offers(self._story, self.name, t) is not None
        self._run(self._story.processes(self.name, t))
        self._tell(t, speed, now)

    def _under_test(self) -> bool:
        """Whether a test that left its mark still runs: one that was killed cannot take it away."""
        try:
            pid = (self.directory / "testing").read_text()
        except OSError:
            return False
        return pid.isdigit() and Path(f"/proc/{pid}").exists()

    def _replace(self, name: str, content: str) -> None:
        """Write a file of ours in one step: a reader sees the old or the new one, never half."""
        if self._written.get(name) == content:
            return
        path = self.directory / name
        fresh = path.with_name(f".{path.name}.new")
        fresh.write_text(content)
        fresh.replace(path)
        self._written[name] = content

    def _change(self, files: Mapping[str, str | bytes | None]) -> None:
        """Write what the story says differs below the root; restore what no longer does."""
        for path, content in files.items():
            if path in self._written and self._written[path] == content:
                continue
            if path not in self._healthy:
                self._healthy[path] = _content(self.root / path)
            self._put(path, content)
            self._written[path] = content
        for path in self._healthy.keys() - files.keys():
            self._put(path, self._healthy.pop(path))
            self._written.pop(path)

    def _put(self, path: str, content: str | bytes | None) -> None:
        if content is None:
            (self.root / path).unlink(missing_ok=True)
        else:
            sysfs.write(self.root, path, content)

    def _host(self, t: float) -> dict[str, str | bytes]:
        """Load and busy time of the host, by what runs on it."""
        busy, uptime = self._story.cpu_share(self.name, t), self._story.uptime_s(t)
        cpus = sysfs.CPUS
        ticks = self._story.cpu_busy_s(self.name, t) * cpus * HZ
        total = uptime * cpus * HZ
        load = busy * cpus
        return {
            "proc/loadavg": f"{load:.2f} {load:.2f} {load:.2f} 3/2411 48213\n",
            "proc/uptime": f"{uptime:.2f} {uptime * cpus * (1 - busy):.2f}\n",
            "proc/stat": f"cpu  {ticks:.0f} 0 0 {total - ticks:.0f} 0 0 0 0 0 0\n{self._cpu}",
        }

    def _run(self, processes: dict[int, Process]) -> None:
        for pid in self._processes.keys() - processes.keys():
            shutil.rmtree(self.root / "proc" / str(pid))
        for pid, process in processes.items():
            if self._processes.get(pid) != process:
                sysfs.process(
                    self.root, pid, process.command,
                    environment=self._environment(pid, process), state=process.state,
                    wchan=process.wchan, cwd=process.cwd,
                )  # fmt: skip
        self._processes = processes

    def _environment(self, pid: int, process: Process) -> dict[str, str]:
        """That of a rank also names the port where its job tells of its ranks."""
        told = dict(process.environment)
        if self._offers and "RANK" in told:
            told["NCCL_RAS_ADDR"] = f"localhost:{self.ras_port}"
            own = ranks.address(self._story, self.name)
            for name, text in ranks.network(self.ras_port, own).items():
                sysfs.write(self.root, f"proc/{pid}/net/{name}", text)
        return told

    def _tell(self, t: float, speed: float, now: float) -> None:
        """Append the kernel lines that are due, stamped with the time since this machine's boot."""
        for line in self._story.lines(self.name, self._told_until, t):
            at_s = max(0.0, now - (t - line.at_s) / speed)
            sysfs.kernel_line(self.root, line.text, at_s=at_s, priority=line.prio)
        self._told_until = t


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _python3(directory: Path) -> str:
    """The shim as a command. The options the loader uses take effect at the first start, which
    saves the shim a second one (12 ms of CPU a node)."""
    python, shim, node = (shlex.quote(str(w)) for w in (sys.executable, SHIM, directory))
    direct = f'{shim} --direct {node} "$@"'
    return (
        f'#!/bin/sh\ncase "$1 $2 $3" in\n'
        f'"-I -S -u") exec {python} -I -S -u {direct} ;;\n'
        f'"-I -S -c") exec {python} -I -S {direct} ;;\n'
        f'esac\nexec {python} {shim} {node} "$@"\n'
    )


def _executable(path: Path, text: str) -> None:
    path.write_text(text)
    os.chmod(path, 0o700)
