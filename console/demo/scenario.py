"""A scenario: which nodes the embedded cluster has, what runs on them and what breaks when.

Scenarios are YAML, read strictly: an unknown key, a value of the wrong kind or a node that does not
exist is one UsageError with file, line and the nearest valid word. All times are seconds of story
time since the start (`--demo` runs at one story second per second); an `at_s` of 0 means that it
was already so before we looked.
"""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from console.demo.hardware import HARDWARE
from console.demo.strict import Fields, document
from inventory.errors import UsageError
from inventory.expressions import expand

LOADS = ("training", "waiting", "inference", "idle")
"""training: all GPUs at full tilt; waiting: kernels spin in a collective (100 % busy, a third of
the power) because a rank elsewhere is late; inference: bursts; idle: memory held, nothing runs."""

LEAST_STEP_S = 0.1
"""Far below what readings can show (probes/steps.py); less is a slip of the unit (our choice)."""

GPU, LINK, PORT, NODE = "gpu", "link", "port", "node"

KINDS: dict[str, tuple[str, ...]] = {
    "thermal": (GPU,),
    "power_brake": (NODE,),
    "gpu_lost": (GPU,),
    "xid": (GPU,),
    "row_remap": (GPU,),
    "remap_failed": (GPU,),
    "ecc": (GPU,),
    "nvlink_down": (GPU, LINK),
    "pcie_width": (GPU,),
    "driver_hang": (GPU,),
    "ib_flap": (PORT,),
    "ib_down": (PORT,),
    "ib_slow": (PORT,),
    "unowned": (GPU,),
    "service_down": (NODE,),
    "clock": (NODE,),
    "drift": (NODE,),
    "nfs_hang": (NODE,),
    "read_only": (NODE,),
    "dimm": (NODE,),
    "memlock": (NODE,),
    "swapping": (NODE,),
    "unreachable": (NODE,),
    "silent": (NODE,),
    "host_key": (NODE,),
}
"""Fault kind -> the device it needs. docs: faults.py and faults_host.py say what each one shows."""

DEFAULT = Path(__file__).parent / "scenarios" / "default.yaml"


class Job(Struct, frozen=True, kw_only=True):
    """Work on some nodes for some time."""

    id: str
    user: str
    name: str
    nodes: tuple[str, ...]
    load: str
    at_s: float = 0.0
    for_s: float | None = None
    """None: it runs to the end of the story."""
    step_s: float | None = None
    """A training step on healthy nodes; None: its GPUs show no rhythm."""

    def runs(self, t: float) -> bool:
        """Whether it runs at story time t (seconds)."""
        return self.at_s <= t and (self.for_s is None or t < self.at_s + self.for_s)


class Fault(Struct, frozen=True, kw_only=True):
    """One thing that breaks, and perhaps mends again."""

    node: str
    kind: str
    gpu: int | None = None
    link: int | None = None
    port: str | None = None
    """RDMA device and port, e.g. "mlx5_3/1"."""
    xid: int | None = None
    at_s: float = 0.0
    for_s: float | None = None

    def present(self, t: float) -> bool:
        """Whether it is there at story time t (seconds)."""
        return self.at_s <= t and (self.for_s is None or t < self.at_s + self.for_s)


class Drain(Struct, frozen=True, kw_only=True):
    """A node that somebody else took out of work before we came."""

    node: str
    reason: str
    by: str = "root"


class Scenario(Struct, frozen=True, kw_only=True):
    """Everything the story is computed from; nothing else enters it."""

    name: str
    seed: int
    nodes: tuple[str, ...]
    hardware: str
    jobs: tuple[Job, ...] = ()
    faults: tuple[Fault, ...] = ()
    drains: tuple[Drain, ...] = ()
    source: str = ""


def load(path: Path | str | None = None) -> Scenario:
    """Read a scenario file, the default story when None. Raises UsageError with file and line."""
    path = DEFAULT if path is None else Path(path)
    top = document(path)
    names = _names(top)
    scenario = Scenario(
        name=top.text("name", path.stem),
        seed=top.whole("seed", 1, least=0),
        nodes=names,
        hardware=top.choice("hardware", tuple(HARDWARE), "h100"),
        jobs=tuple(_job(item, names) for item in top.items("jobs")),
        faults=(),
        drains=tuple(_drain(item, names) for item in top.items("drains")),
        source=str(path),
    )
    faults = tuple(_fault(item, scenario) for item in top.items("faults"))
    top.done()
    return replace(scenario, faults=faults)


def _names(fields: Fields) -> tuple[str, ...]:
    return tuple(expand(fields.text("nodes"), where=fields.where("nodes")))


def _job(fields: Fields, names: tuple[str, ...]) -> Job:
    job = Job(
        id=fields.text("id"),
        user=fields.text("user"),
        name=fields.text("name", ""),
        nodes=tuple(fields.known_node(name, names, "nodes") for name in _names(fields)),
        load=fields.choice("load", LOADS, "training"),
        at_s=fields.seconds("at_s", 0.0),
        for_s=fields.seconds_or_none("for_s"),
        step_s=_step_s(fields),
    )
    fields.done()
    return job


def _step_s(fields: Fields) -> float | None:
    step_s = fields.seconds_or_none("step_s")
    if step_s is not None and step_s < LEAST_STEP_S:
        raise fields.error("step_s", f"a step of {step_s:g} s", f"write {LEAST_STEP_S:g} or more")
    return step_s


def _drain(fields: Fields, names: tuple[str, ...]) -> Drain:
    drain = Drain(
        node=fields.known_node(fields.text("node"), names, "node"),
        reason=fields.text("reason"),
        by=fields.text("by", "root"),
    )
    fields.done()
    return drain


def _fault(fields: Fields, scenario: Scenario) -> Fault:
    kind = fields.choice("kind", tuple(KINDS))
    hardware = HARDWARE[scenario.hardware]
    fault = Fault(
        node=fields.known_node(fields.text("node"), scenario.nodes, "node"),
        kind=kind,
        gpu=fields.whole_or_none("gpu", below=hardware.gpus),
        link=fields.whole_or_none("link", below=hardware.links),
        port=_port(fields, hardware.ports),
        xid=fields.whole_or_none("xid", below=1000),
        at_s=fields.seconds("at_s", 0.0),
        for_s=fields.seconds_or_none("for_s"),
    )
    for part in KINDS[kind]:
        if part != NODE and getattr(fault, part) is None:
            raise fields.error("kind", f"{kind} needs `{part}:`")
    if kind == "xid" and fault.xid is None:
        raise fields.error("kind", "xid needs `xid:` (the number)")
    fields.done()
    return fault


def _port(fields: Fields, ports: tuple[str, ...]) -> str | None:
    return fields.choice("port", ports) if "port" in fields else None


def resized(scenario: Scenario, count: int) -> Scenario:
    """The same story on `count` nodes: more of the last name's series, or only the first ones.

    Faults, drains and jobs of nodes that are gone go with them. Raises UsageError below 1.
    """
    if count < 1:
        raise UsageError(f"a cluster of {count} nodes", where="--nodes", instead="use 1 or more")
    names = scenario.nodes[:count]
    while len(names) < count:
        names += (_next_name(names[-1]),)
    kept = frozenset(names)
    jobs = (replace(j, nodes=tuple(n for n in j.nodes if n in kept)) for j in scenario.jobs)
    return replace(
        scenario,
        nodes=names,
        jobs=tuple(job for job in jobs if job.nodes),
        faults=tuple(f for f in scenario.faults if f.node in kept),
        drains=tuple(d for d in scenario.drains if d.node in kept),
    )


def _next_name(name: str) -> str:
    match = re.fullmatch(r"(.*?)(\d+)(\D*)", name)
    if match is None:
        return name + "-2"
    head, number, tail = match.groups()
    return f"{head}{int(number) + 1:0{len(number)}d}{tail}"
