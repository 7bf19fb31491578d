"""A simulated InfiniBand fabric for the real tools: ibsim with a running opensm, in one folder.

`fabric.run("n3", "ibstat")` runs a tool of infiniband-diags as that node. All talk goes through
abstract Unix sockets named after this process, so several fabrics can live side by side and
nothing leaves the machine. Packages: ibsim-utils libumad2sim0 infiniband-diags opensm.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import Lab

PRELOAD = Path("/usr/lib/x86_64-linux-gnu/umad2sim/libumad2sim.so")
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
PACKAGES = "ibsim-utils libumad2sim0 infiniband-diags opensm"
PROMPT = "sim> "
_numbers = itertools.count()


def two_leaves(speed: str = "") -> str:
    """Net file: switches leaf1, leaf2 and spine, hosts n1..n8 with one port each (4 a leaf).

    `speed` is a note of ibsim on the hosts' links, as "4xEDR" or "2xHDR" ("4xNDR" is unknown to
    it); without one a link is 4X 2.5 Gb/s.
    """
    note = f" {speed}" if speed else ""
    lines = []
    for leaf, first in (("leaf1", 1), ("leaf2", 5)):
        lines.append(f'Switch\t8 "{leaf}"')
        lines += [f'[{port}]\t"n{first + port - 1}"[1]{note}' for port in range(1, 5)]
        spine = 1 if leaf == "leaf1" else 3
        lines += [f'[7]\t"spine"[{spine}]', f'[8]\t"spine"[{spine + 1}]', ""]
    lines.append('Switch\t8 "spine"')
    lines += ['[1]\t"leaf1"[7]', '[2]\t"leaf1"[8]', '[3]\t"leaf2"[7]', '[4]\t"leaf2"[8]', ""]
    for host in range(1, 9):
        leaf = "leaf1" if host < 5 else "leaf2"
        lines += [f'Hca\t1 "n{host}"', f'[1]\t"{leaf}"[{(host - 1) % 4 + 1}]{note}', ""]
    return "\n".join(lines)


def require(lab: Lab) -> None:
    """Skip (fail where the lab is required) without the simulator or the tools."""
    lab.programs("ibsim", "ibsim", "opensm", "ibstat", "perfquery", package=PACKAGES)
    lab.require("umad2sim", PRELOAD.exists(), f"{PRELOAD} not found; apt install {PACKAGES}")


@contextmanager
def fabric(folder: Path, net: str = "") -> Iterator[Fabric]:
    """A fabric that is up (LIDs given, ports active) and gone afterwards."""
    made = Fabric(folder, net or two_leaves())
    try:
        made.start()
        yield made
    finally:
        made.stop()


class Fabric:
    """One ibsim and one opensm."""

    def __init__(self, folder: Path, net: str) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "net").write_text(net)
        self._output = folder / "ibsim.out"
        self._log = folder / "opensm.log"
        name = f"gpuconsole-{os.getpid()}-{next(_numbers)}"
        self._environment = {
            **os.environ, "PATH": PATH, "IBSIM_SOCKNAME": name, "LC_ALL": "C",
            "OSM_CACHE_DIR": str(folder), "OSM_TMP_DIR": str(folder),
        }  # fmt: skip
        self._simulator: subprocess.Popen[bytes] | None = None
        self._manager: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Simulator first, then the subnet manager; returns when ports are active."""
        with self._output.open("wb") as out:
            self._simulator = subprocess.Popen(
                ["ibsim", "-s", str(self.folder / "net")], env=self._environment,
                stdin=subprocess.PIPE, stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip
        self._wait(lambda: "simulator ready" in self._said(), "ibsim")
        self.manage()

    def stop(self) -> None:
        """End both; also after a failed start."""
        self.orphan()
        if self._simulator is not None:
            self._simulator.kill()
            self._simulator.communicate()
            self._simulator = None

    def manage(self) -> None:
        """Start the subnet manager and wait for its first sweep."""
        self._log.unlink(missing_ok=True)
        settings = self.folder / "opensm.conf"
        settings.write_text("force_log_flush TRUE\nsweep_interval 1\n")
        words = ["opensm", "-f", str(self._log), "-F", str(settings)]
        self._manager = subprocess.Popen(
            words, env=self._as_host(""), cwd=self.folder, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._wait(lambda: self._sweeps() > 0, "opensm")

    def orphan(self) -> None:
        """End the subnet manager: what comes up from now on stays in state Init, with LID 0."""
        if self._manager is not None:
            self._manager.kill()
            self._manager.wait()
            self._manager = None

    def sweep(self) -> None:
        """Have the subnet manager look at all ports now, and wait for it (after a relink)."""
        assert self._manager is not None, "no subnet manager is running"
        for _ in range(2):  # a sweep that was under way may have passed the port already
            before = self._sweeps()
            self._manager.send_signal(signal.SIGHUP)
            self._wait(lambda seen=before: self._sweeps() > seen, "opensm sweep")  # type: ignore[misc]

    def run(self, host: str, *words: str, timeout_s: float = 60.0) -> str:
        """Standard output of a tool that runs as `host` ("n3"); its exit code may be anything."""
        done = subprocess.run(
            words, env=self._as_host(host), cwd=self.folder, capture_output=True, check=False,
            timeout=timeout_s,
        )  # fmt: skip
        return done.stdout.decode(errors="replace")

    def lid(self, host: str) -> int:
        """The LID of a host's first port, as its ibstat prints it."""
        text = self.run(host, "ibstat")
        return int(text.partition("Base lid:")[2].split()[0])

    def counter(self, port: str, field: str, value: int) -> None:
        """Set a counter of "n3/1": SymbolErrorCounter, LinkDownedCounter, PortRcvErrors ..."""
        host, _, number = port.partition("/")
        self.console(f'PerformanceSet "{host}"[{number}] PortCounters.{field}={value}')

    def unlink(self, port: str) -> None:
        """Pull the cable of "n3/1"."""
        host, _, number = port.partition("/")
        self.console(f'Unlink "{host}"[{number}]')

    def relink(self, port: str) -> None:
        """Put the cable of "n3/1" back."""
        host, _, number = port.partition("/")
        self.console(f'ReLink "{host}"[{number}]')

    def lose(self, port: str, percent: int) -> None:
        """So many percent of the management packets of "n3/1" get lost."""
        host, _, number = port.partition("/")
        self.console(f'Error "{host}"[{number}] {percent}')

    def console(self, order: str) -> str:
        """One console command of ibsim; what it said until its next prompt."""
        assert self._simulator is not None
        assert self._simulator.stdin is not None
        before = self._said()
        self._simulator.stdin.write(order.encode() + b"\n")
        self._simulator.stdin.flush()
        self._wait(lambda: self._said().count(PROMPT) > before.count(PROMPT), order)
        return self._said()[len(before) :]

    def _as_host(self, host: str) -> dict[str, str]:
        """Environment of a program that runs on a host ("" is the first)."""
        named = {"SIM_HOST": host} if host else {}
        return {**self._environment, **named, "LD_PRELOAD": str(PRELOAD)}

    def _said(self) -> str:
        return self._output.read_text(errors="replace")

    def _sweeps(self) -> int:
        return self._log.read_text(errors="replace").count("SUBNET UP") if self._log.exists() else 0

    def _wait(self, true: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not true():
            assert time.monotonic() < deadline, f"{what}: not within {timeout_s:g} s"
            for process in (self._simulator, self._manager):
                assert process is None or process.poll() is None, f"{what}: {process} ended"
            time.sleep(0.02)
