"""One simulated node on disk: its driver state, its /sys, /proc and /dev root, its programs.

DIR/nvml.json    read by console/demo/nvml whenever it changes
DIR/root/        the root the agent reads; root/dev/kmsg is the kernel log, in kmsg form
DIR/bin/         python3 (real interpreter, simulated NVML library), dmesg, nvidia-smi, systemctl
DIR/nccl.json    what an all-reduce reaches
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path

from console.demo import tools
from console.demo.story import Story

SHIM = Path(__file__).parent / "nvml" / "shim.py"


class Machine:
    """Keeps one node's directory in step with the story."""

    def __init__(self, name: str, directory: Path, story: Story) -> None:
        """Nothing is written before `build`."""
        self.name = name
        self.directory = directory
        self.bin = directory / "bin"
        self.root = directory / "root"
        self._story = story
        self._written: dict[str, str | bytes] = {}
        self._told_until = float("-inf")
        self._sequence = 0

    @property
    def environment(self) -> dict[str, str]:
        """What a command on this node sees; no path of the bastion's own programs but /usr/bin."""
        return {
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "HOME": str(self.directory),
            "USER": "operator",
            "LOGNAME": "operator",
            "SHELL": "/bin/sh",
        }

    def build(self) -> None:
        """Write the healthy tree and the programs."""
        self.bin.mkdir(parents=True)
        _executable(self.bin / "python3", _python3(self.directory))
        for tool in tools.TOOLS:
            words = [sys.executable, "-I", "-S", tools.__file__, tool, str(self.directory)]
            _program(self.bin / tool, words)

    def advance(self, t: float, speed: float, now: float) -> None:
        """Bring everything to story time t; `now` is the monotonic clock at that moment."""
        self._replace("nvml.json", json.dumps(self._story.nvml(self.name, t, speed)))
        busbw = self._story.busbw_gb_s(self.name, t)
        self._replace("nccl.json", json.dumps({"busbw_gb_s": busbw}))
        for path, content in self._story.files(self.name, t).items():
            self._replace(f"root/{path}", content)
        self._tell(t, speed, now)

    def _replace(self, name: str, content: str | bytes) -> None:
        """Write a file in one step, so that a reader sees the old or the new one, never half."""
        if self._written.get(name) == content:
            return
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}.new")
        fresh.write_bytes(content.encode() if isinstance(content, str) else content)
        fresh.replace(path)
        self._written[name] = content

    def _tell(self, t: float, speed: float, now: float) -> None:
        """Append the kernel lines that are due, stamped with the time since this machine's boot."""
        lines = self._story.lines(self.name, self._told_until, t)
        self._told_until = t
        path = self.root / "dev" / "kmsg"
        if not lines and path.exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as log:
            for line in lines:
                self._sequence += 1
                usec = max(0, int((now - (t - line.at_s) / speed) * 1e6))
                log.write(f"{line.prio},{self._sequence},{usec},-;{line.text}\n")


def _program(path: Path, words: list[str]) -> None:
    _executable(path, f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')


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
