"""A simulated node that is asked interval by interval, and what the console would show of it.

Only the hardware is made up: a tree of /sys, /proc and /dev files and the NVML library object below
the real pynvml. The real probes run in a real interpreter; their answers go through the same
Answers, Fleet and Ledger as those of a node over SSH. The node's clock is ours, so nothing sleeps.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any, Self

import msgspec
from msgspec import structs

from console.demo import sysfs
from console.demo.nvml import state
from console.fleet import Fleet
from inventory.node import Inventory, Node
from probes.answers import Answers, events_of
from probes.catalog import PROBES
from probes.event import Event, Finding, NodeState, NodeStatus, Sample, Severity, worst
from probes.wire import Hello, Tick
from tests.probes_node.rig import Machine, Session

INTERVAL_S = 15.0
"""The default of the slow probes; every probe is asked at each of them."""
BEGAN_S = 612_345.0
"""Seconds since the node's boot at the first interval, as /proc/uptime of the tree says."""
NOW = 1_800_000_000.0
"""Epoch seconds at the first interval."""
NAME = "gpu001"


class Scene:
    """One node; healthy until changed. The fixtures `scene` and `scenes` make them."""

    def __init__(
        self,
        directory: Path,
        *,
        gpus: int = 8,
        hcas: int = 8,
        peers: int = 3,
        python: str = sys.executable,
        deadline_s: float = 30.0,
        **node: Any,
    ) -> None:
        """`peers` other nodes of its role answered what this one answers at the first interval;
        `node` are fields of its inventory entry (role, gpus, scheduler, ...)."""
        self.machine = Machine(directory / "node", python)
        self.root = self.machine.root
        sysfs.build(self.root, hostname=NAME, gpus=sysfs.GPU_BUSES[:gpus], hcas=hcas)
        self.state: dict[str, Any] = state.healthy(gpus)
        self.clock = BEGAN_S
        self.deadline_s = deadline_s
        names = [NAME, *(f"gpu{number + 2:03}" for number in range(peers))]
        nodes = tuple(structs.replace(Node(name=name), **node) for name in names)
        self.fleet = Fleet(Inventory(nodes=nodes, source="scene"), clock=lambda: self.now)
        self._names = names
        self._answers = Answers(NAME)
        self._session: Session | None = None
        self._seen: dict[str, set[str]] = {}
        self._kernel_until = float("-inf")
        self._rounds = 0
        self._boot = 1
        self.save()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._session is not None:
            self._session.__exit__(*error)

    @property
    def now(self) -> float:
        """Epoch seconds of the bastion."""
        return NOW + self.clock - BEGAN_S

    # ------------------------------------------------------------------ changes

    def save(self) -> None:
        """Bring nvml.json in line with `state`."""
        self.machine.state = self.state
        self.machine.write()

    def gpu(self, index: int, **changes: Any) -> None:
        """Change one GPU's entry of nvml.json (console/demo/nvml/state.py)."""
        self.state["gpus"][index].update(changes)
        self.save()

    def gpus(self, **changes: Any) -> None:
        """Change all of them."""
        for entry in self.state["gpus"]:
            entry.update(changes)
        self.save()

    def write(self, path: str, content: str | bytes) -> None:
        """A file below the root."""
        sysfs.write(self.root, path, content)

    def remove(self, path: str) -> None:
        """A file, link or tree below the root."""
        target = self.root / path
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        else:
            target.unlink()

    def counter(self, port: str, name: str, value: int) -> None:
        """A counter of an RDMA port ("mlx5_0/1")."""
        sysfs.counter(self.root, port, name, value)

    def kernel(self, *lines: str, ago_s: float = 1.0, priority: int = 3) -> None:
        """Kernel lines that came `ago_s` before the next interval."""
        at_s = self.clock - ago_s
        for number, line in enumerate(lines):
            sysfs.kernel_line(self.root, line, at_s=at_s + number / 1000, priority=priority)

    # ------------------------------------------------------------------ time

    def interval(self, count: int = 1) -> Self:
        """`count` intervals pass: each probe of the catalogue is asked once in each."""
        for _ in range(count):
            if self._session is None:
                self._session = self.machine.session(self.deadline_s)
                self._hello()
            else:
                self.clock += INTERVAL_S
                self.write("proc/uptime", f"{self.clock:.2f} 0.00\n")
            for probe in PROBES:
                self._ask(self._session, probe)
            self._rounds += 1
            self.fleet.tick()
        return self

    def patience(self, deadline_s: float) -> None:
        """How long a call may take from now on."""
        self.deadline_s = deadline_s
        if self._session is not None:
            self._session.ask(op="deadline", seconds=deadline_s)

    def reboot(self) -> None:
        """The node comes back with another boot id; a new agent is started at the next interval."""
        if self._session is not None:
            self._session.__exit__(None, None, None)
        self._session = None
        self._boot += 1
        self._answers = Answers(NAME)
        self._seen.clear()

    def _hello(self) -> None:
        boot_id = f"boot-{self._boot}"
        hello = Hello(
            host=NAME, python="3.11", uid=0, boot_id=boot_id, wall=self.now, mono=self.clock
        )
        self._feed(self._answers.hello(hello, self.clock, self.now))
        self._feed(NodeStatus(node=NAME, at=self.now, state=NodeState.UP))

    def _ask(self, session: Session, probe: str) -> None:
        answer = session.ask(op="collect", probe=PROBES[probe].module.rpartition(".")[2])
        if "stuck" in answer:
            self._feed(
                NodeStatus(
                    node=NAME, at=self.now, state=NodeState.HUNG, probe=probe, since_s=INTERVAL_S
                )
            )
            return
        devices, rows = answer["devices"], answer["rows"]
        if probe == "kernel_log":
            rows = [row for row in rows if row["mono"] > self._kernel_until]
            self._kernel_until = max([self._kernel_until, *(row["mono"] for row in rows)])
        gone = sorted(self._seen.get(probe, set()) - set(devices))
        self._seen[probe] = set(devices)
        frame = msgspec.convert(
            {"k": "s", "p": probe, "t": self.clock, "d": devices, "r": rows, "gone": gone}, Tick
        )
        for event in events_of(self._answers, frame, self.clock, self.now):
            self._feed(event)

    def _feed(self, event: Event) -> None:
        """To this node, and at the first interval to its peers too."""
        for name in self._names if self._rounds == 0 else self._names[:1]:
            if isinstance(event, Sample | NodeStatus):
                self.fleet.apply(structs.replace(event, node=name))

    # ------------------------------------------------------------------ what is shown

    def findings(self) -> list[Finding]:
        """What the console shows of this node now."""
        return self.fleet.findings[NAME]

    def rules(self) -> set[str]:
        """Rules with a finding above info."""
        return {f.rule for f in self.findings() if f.severity.rank > Severity.INFO.rank}

    def rule(self, name: str, device: str = "") -> Finding:
        """The one finding of a rule (whose device begins so)."""
        (one,) = [f for f in self.findings() if f.rule == name and f.device.startswith(device)]
        return one

    def worst(self) -> Severity:
        """The worst finding."""
        return worst([finding.severity for finding in self.findings()])

    def sample(self, probe: str, device: str = "") -> Sample:
        """The latest answer; KeyError when there is none."""
        return self.fleet.nodes[NAME].latest[probe, device]
