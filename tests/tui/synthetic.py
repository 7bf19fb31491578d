"""A synthetic fleet: Events as sessions send them, with faults; and a Scheduler with memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence

import msgspec

from console import act
from console.engine import Engine
from console.evidence import Kept, write
from console.fleet import Fleet
from console.settings import Settings, private
from inventory.node import Inventory, Node
from inventory.scheduler import MARKER, Allocation, Job, Step
from probes.event import Event, NodeState, NodeStatus, Sample, Scalar

NOW = 1_764_400_000.0
GIB = 1 << 30


def pci(index: int) -> str:
    """PCI address of GPU `index` on every node."""
    return f"0000:{0x1B + index * 0x10:02x}:00.0"


def inventory(count: int, *, scheduler: str | None = "memory") -> Inventory:
    """`count` nodes gpu001... in one group."""
    torch = "/opt/torch/bin/python3"
    nodes = tuple(
        Node(name=f"gpu{i + 1:03d}", group="h100", gpus=8, scheduler=scheduler, torch_python=torch)
        for i in range(count)
    )
    return Inventory(nodes=nodes, cluster="lab", source="test")


def gpu_values(index: int, step: int = 0) -> dict[str, Scalar]:
    """A busy, healthy GPU; `step` moves the readings a little."""
    return {
        "index": index,
        "util_percent": 96 + (step + index) % 4,
        "mem_util_percent": 60,
        "mem_used_bytes": 61 * GIB,
        "mem_total_bytes": 80 * GIB,
        "temp_c": 58 + (step + index) % 3,
        "mem_temp_c": 70,
        "power_w": 640.0 + (step * 7 + index) % 20,
        "power_limit_w": 700.0,
        "sm_clock_mhz": 1755,
        "sm_clock_max_mhz": 1980,
        "mem_clock_mhz": 2619,
        "mem_clock_max_mhz": 2619,
        "reasons": 4,
        "pstate": 0,
    }


def fast(name: str, at: float, step: int = 0) -> list[Event]:
    """One fast tick of a healthy node."""
    events: list[Event] = [
        Sample(
            node=name,
            probe="gpu",
            device=pci(i),
            at=at,
            clock=at - NOW + 1000,
            values=gpu_values(i, step),
        )
        for i in range(8)
    ]
    host: dict[str, Scalar] = {
        "load1": 12.5,
        "cpu_count": 192,
        "mem_total_bytes": 2048 * GIB,
        "mem_available_bytes": 1800 * GIB,
        "uptime_s": at - NOW + 864000,
    }
    events.append(Sample(node=name, probe="host", at=at, clock=at - NOW + 1000, values=host))
    return events


def slow(name: str, at: float) -> list[Event]:
    """Hello, inventory, ECC, PCIe, NVLink and ports of a healthy node."""
    clock = at - NOW + 1000
    hello: dict[str, Scalar] = {
        "python": "3.9.18",
        "host": name,
        "boot_id": f"boot-{name}",
        "kernel": "5.14.0",
        "os": "Rocky 9",
    }
    whole: dict[str, Scalar] = {
        "driver_version": "570.86.15",
        "cuda_version": 12080,
        "gpu_count": 8,
        "pci_gpu_count": 8,
        "nvml_library": True,
    }
    events: list[Event] = [
        NodeStatus(node=name, at=at, state=NodeState.UP),
        Sample(node=name, probe="hello", at=at, clock=clock, values=hello),
        Sample(node=name, probe="inventory", at=at, clock=clock, values=whole),
        Sample(
            node=name,
            probe="kernel_log",
            at=at,
            clock=clock,
            values={"source": "kmsg", "readable": True, "lost": 0},
        ),
        Sample(
            node=name,
            probe="processes",
            at=at,
            clock=clock,
            rows=[_process(name, i) for i in range(8)],
        ),
    ]
    for i in range(8):
        events += _gpu_slow(name, i, at, clock)
        events.append(_port(name, i, at, clock))
    return [*events, *host_side(name, at)]


def host_side(name: str, at: float) -> list[Event]:
    """What a healthy host says of itself: storage, services, clock, tasks, versions, fabric."""
    mount: dict[str, Scalar] = {
        "fstype": "xfs", "source": "/dev/nvme0n1p2", "network": False, "expected": True,
        "mounted": True, "read_only": False, "kernel_stopped_writing": False,
        "size_bytes": 1000 * GIB, "free_bytes": 600 * GIB, "used_percent": 40.0,
        "inodes": 1000000, "inodes_free": 950000,
    }  # fmt: skip
    shared: dict[str, Scalar] = {
        **mount, "fstype": "nfs4", "source": "192.0.2.40:/home", "network": True,
    }  # fmt: skip
    services: list[dict[str, Scalar]] = [
        {"service": s, "unit": f"{s}.service", "state": "active", "enabled": "enabled",
         "running": True}
        for s in ("fabricmanager", "persistenced", "dcgm", "slurmd", "chronyd")
    ]  # fmt: skip
    clock: dict[str, Scalar] = {
        "daemon": "chrony", "synchronised": True, "offset_s": 0.0003, "source": "192.0.2.1",
        "stratum": 3,
    }  # fmt: skip
    tasks: dict[str, Scalar] = {"processes": 2410, "uninterruptible": 0, "zombies": 0}
    versions: dict[str, Scalar] = {
        "driver": "570.86.15", "nccl": "2.27.3", "kernel": "5.14.0", "os": "Rocky 9",
    }  # fmt: skip
    readings: list[tuple[str, str, dict[str, Scalar]]] = [
        ("storage", "", {"mounts": 2}), ("storage", "/", mount), ("storage", "/home", shared),
        ("timesync", "", clock), ("tasks", "", tasks), ("versions", "", versions),
    ]  # fmt: skip
    for i in range(8):
        fabric: dict[str, Scalar] = {"fabric_state": 3, "fabric_status": 0, "fabric_clique": 0}
        work: dict[str, Scalar] = {"tensor_percent": 54.0, "dram_percent": 60.5}
        readings += [("fabric", pci(i), fabric), ("gpm", pci(i), work)]
    stamp = at - NOW + 1000
    told: list[Event] = [
        Sample(node=name, probe=probe, device=device, at=at, clock=stamp, values=values)
        for probe, device, values in readings
    ]
    seen: dict[str, Scalar] = {"sees_processes": True, "manager": "systemd"}
    return [
        *told,
        Sample(node=name, probe="services", at=at, clock=stamp, values=seen, rows=services),
    ]


def _process(name: str, i: int) -> dict[str, Scalar]:
    return {
        "gpu": pci(i),
        "pid": 40000 + i,
        "user": "alice",
        "command": "python train.py",
        "mem_bytes": 60 * GIB,
        "job": "812",
        "rank": str(i),
        "state": "R",
        "alive": True,
    }


def _gpu_slow(name: str, i: int, at: float, clock: float) -> list[Event]:
    card: dict[str, Scalar] = {
        "index": i,
        "name": "NVIDIA H100 80GB HBM3",
        "uuid": f"GPU-{name}-{i}",
        "pci_device_id": "2330",
        "pci_subsystem_id": "16c110de",
        "vbios": "96.00.89.00.01",
        "persistence_mode": True,
        "minor": i,
    }
    ecc: dict[str, Scalar] = {
        "ecc_mode": True,
        "ecc_uncorrected_volatile": 0,
        "ecc_corrected_volatile": 0,
        "ecc_uncorrected_aggregate": 0,
        "ecc_corrected_aggregate": 0,
        "remap_correctable": 0,
        "remap_uncorrectable": 0,
        "remap_pending": False,
        "remap_failure": False,
        "recovery_action": 0,
    }
    link: dict[str, Scalar] = {"links": 18, "fabric_state": 3, "fabric_status": 0}
    for n in range(18):
        link |= {
            f"link{n}_up": True,
            f"link{n}_mbps": 26562,
            f"link{n}_crc": 0,
            f"link{n}_replays": 0,
            f"link{n}_recoveries": 0,
        }
    pcie: dict[str, Scalar] = {"gen": 5, "gen_max": 5, "width": 16, "width_max": 16, "replays": 0}
    readings = {"inventory": card, "ecc": ecc, "nvlink": link, "pcie": pcie}
    return [
        Sample(node=name, probe=probe, device=pci(i), at=at, clock=clock, values=values)
        for probe, values in readings.items()
    ]


def _port(name: str, i: int, at: float, clock: float) -> Sample:
    values: dict[str, Scalar] = {
        "state": 4,
        "state_text": "ACTIVE",
        "phys_state": 5,
        "phys_text": "LinkUp",
        "rate_gbps": 400.0,
        "rate_text": "400 Gb/sec (4X NDR)",
        "link_layer": "InfiniBand",
        "hca": "MT4129",
        "fw": "28.39.1002",
        "netdev": f"ib{i}",
        "netdev_up": True,
        "is_vf": False,
        "lid": 100 + i,
        "gpu_near": pci(i),
        "has_counters": True,
        "link_downed": 0,
        "symbol_error": 0,
        "port_rcv_errors": 0,
    }
    return Sample(
        node=name, probe="infiniband", device=f"mlx5_{i}/1", at=at, clock=clock, values=values
    )


def changed(events: Iterable[Event], probe: str, device: str, **values: Scalar) -> list[Event]:
    """The same Events with some values of one device replaced."""
    return [
        msgspec.structs.replace(e, values={**e.values, **values})
        if isinstance(e, Sample) and (e.probe, e.device) == (probe, device)
        else e
        for e in events
    ]


def xid(name: str, at: float, device: str, number: int, text: str) -> Sample:
    """A kernel line as the node's kernel_log probe sends it."""
    line = f"NVRM: Xid (PCI:{device[:-2]}): {number}, {text}"
    return Sample(
        node=name,
        probe="kernel_log",
        at=at,
        clock=at - NOW + 1000,
        values={"source": "kmsg", "readable": True, "lost": 0},
        rows=[{"mono": at - NOW + 1000 - 5, "text": line, "prio": 3, "src": "kmsg"}],
    )


def unreachable(name: str, at: float) -> NodeStatus:
    """A node that refuses the connection."""
    return NodeStatus(
        node=name,
        at=at,
        state=NodeState.UNREACHABLE,
        reason="timeout",
        text="no answer within 10 s",
        hint="is it powered? ping it, look at its BMC",
    )


def jobs() -> dict[str, Job]:
    """One job over four nodes, the sick gpu017 among them."""
    job = Job(id="812", user="alice", name="train", nodes=4)
    return {f"gpu{i:03d}": job for i in (17, 18, 19, 20)}


class MemoryScheduler:
    """A Scheduler that keeps real state: draining a busy node leaves it draining, and so on."""

    name = "memory"

    def __init__(self, names: Sequence[str], jobs: dict[str, Job] | None = None) -> None:
        """All nodes idle but those with a job."""
        self.jobs = dict(jobs or {})
        self.reasons: dict[str, str] = {}
        self.names = list(names)
        self.writes: list[tuple[str, ...]] = []
        self.now = NOW

    def _allocation(self, name: str) -> Allocation:
        job, reason = self.jobs.get(name), self.reasons.get(name, "")
        state = ("draining" if job else "drained") if reason else ("allocated" if job else "idle")
        return Allocation(
            node=name,
            at=self.now,
            scheduler=self.name,
            state=state,
            raw=state.upper(),
            reason=reason,
            reason_by="root" if reason else "",
            partitions=("batch",),
            jobs=(job,) if job else (),
        )

    async def allocations(self, names: Sequence[str] | None = None) -> list[Allocation]:
        """What it holds now."""
        await asyncio.sleep(0)
        return [self._allocation(name) for name in (self.names if names is None else names)]

    def drain_commands(self, names: Sequence[str], reason: str) -> list[tuple[str, ...]]:
        """One command for all."""
        return [("hold", "--reason", f"{MARKER} {reason}", *names)]

    def resume_commands(self, names: Sequence[str]) -> list[tuple[str, ...]]:
        """One command for all."""
        return [("release", *names)]

    async def drain(
        self, names: Sequence[str], reason: str, *, override: bool = False
    ) -> AsyncIterator[Step]:
        """Hold each node, unless somebody else does."""
        for name in names:
            held = self.reasons.get(name, "")
            if held and not held.startswith(MARKER) and not override:
                yield Step(node=name, at=self.now, phase="refused", ok=False, detail=held)
                continue
            self.reasons[name] = f"{MARKER} {reason}"
            self.writes.append(("hold", name))
            yield Step(
                node=name, at=self.now, phase="done", ok=True, detail=self._allocation(name).state
            )

    async def resume(self, names: Sequence[str], *, override: bool = False) -> AsyncIterator[Step]:
        """Release each node that we hold."""
        for name in names:
            self.reasons.pop(name, None)
            self.writes.append(("release", name))
            yield Step(
                node=name, at=self.now, phase="done", ok=True, detail=self._allocation(name).state
            )


class LocalEngine(Engine):
    """The real Engine without sessions: the test feeds the Events and owns the clock."""

    def __init__(
        self, inv: Inventory, scheduler: MemoryScheduler | None, *, read_only: bool = False
    ) -> None:
        """`at` is what the clock says."""
        self.at = NOW
        super().__init__(
            inv,
            Settings(read_only=read_only),
            schedulers={scheduler.name: scheduler} if scheduler else {},
            fleet=Fleet(inv, clock=lambda: self.at),
        )

    def feed_all(self, events: Iterable[Event]) -> None:
        """Apply Events."""
        for event in events:
            self.feed(event)

    def feed_faults(self, inv: Inventory) -> None:
        """The sick fleet, step by step, judged after each as the screen would."""
        for number, events in enumerate(faulty_steps(inv)):
            self.at = NOW - 10.0 + 2.0 * number
            self.feed_all(events)
            self.fleet.tick(self.at)

    async def refresh(self) -> None:
        """Read the scheduler, as the engine does every few seconds."""
        await act.read_allocations(self.fleet, self.schedulers, self.feed)

    async def gather(self, names: Sequence[str], why: str) -> AsyncIterator[Kept]:
        """There is no node to ask: a bundle of what is known, which is what evidence writes."""
        for name in names:
            yield write(self, name, {}, "not asked: synthetic", why, private(self.bundles))

    async def run(self, names: Collection[str] | None = None) -> None:
        """Nothing to collect: wait to be cancelled."""
        await asyncio.Event().wait()


def faulty_steps(inv: Inventory, at: float = NOW, *, history: int = 6) -> Iterator[list[Event]]:
    """64 nodes, several sick: lost GPU, Xid, hot, unreachable, port down, remap pending.

    One list per fast interval, the last one at `at`: findings that need several looks get them.
    """
    for step in range(history):
        then = at - 2.0 * (history - 1 - step)
        events: list[Event] = []
        for node in inv.nodes:
            if node.name == "gpu009":
                continue
            mine = slow(node.name, then) if step in (0, history - 1) else []
            if step:
                mine = [e for e in mine if not (isinstance(e, Sample) and e.probe == "hello")]
            events += with_fault(node.name, [*mine, *fast(node.name, then, step)])
        yield events if step else [*events, *first_blow(then)]


def first_blow(at: float) -> list[Event]:
    """What is said once: the Xid line of gpu017, the refusal of gpu009."""
    text = "pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    return [unreachable("gpu009", at), xid("gpu017", at, pci(3), 79, text)]


def lost(events: Iterable[Event], device: str) -> list[Event]:
    """The same Events with one GPU answering nothing but an error."""
    answer: dict[str, Scalar] = {
        "index": 3,
        "nvml_rc": 15,
        "nvml_call": "nvmlDeviceGetUtilizationRates",
    }
    return [
        msgspec.structs.replace(e, values=answer)
        if isinstance(e, Sample) and (e.probe, e.device) == ("gpu", device)
        else e
        for e in events
    ]


def with_fault(name: str, events: list[Event]) -> list[Event]:
    """A node's Events with the fault this fleet gives it, if any."""
    if name == "gpu017":
        return lost(events, pci(3))
    if name == "gpu033":
        return changed(
            events,
            "gpu",
            pci(5),
            temp_c=91,
            thermal_margin_c=0,
            sm_clock_mhz=960,
            reasons=0x40 | 0x8,
        )
    if name == "gpu041":
        return changed(events, "ecc", pci(2), remap_pending=True, remap_uncorrectable=1)
    if name == "gpu050":
        return changed(
            events,
            "infiniband",
            "mlx5_4/1",
            state=1,
            state_text="DOWN",
            phys_state=3,
            phys_text="Disabled",
        )
    return events


def hostile_processes(name: str, at: float, text: str) -> Sample:
    """A process table in which every word is `text`."""
    row: dict[str, Scalar] = {
        "gpu": pci(0),
        "pid": 1,
        "user": text,
        "command": text,
        "job": text,
        "rank": text,
        "state": text,
    }
    return Sample(node=name, probe="processes", at=at, clock=at - NOW + 1000, rows=[row])


def hostile_hello(name: str, at: float, text: str) -> Sample:
    """A hello in which every word is `text`."""
    values: dict[str, Scalar] = {"host": text, "os": text, "kernel": text, "missing.psutil": text}
    return Sample(node=name, probe="hello", at=at, clock=at - NOW + 1000, values=values)


def hostile_status(name: str, at: float, text: str) -> NodeStatus:
    """A refusal that quotes `text`."""
    return NodeStatus(
        node=name, at=at, state=NodeState.UNREACHABLE, reason="refused", text=text, hint=text
    )


def no_processes(name: str, at: float) -> Sample:
    """A process table that was read and is empty."""
    return Sample(node=name, probe="processes", at=at, clock=at - NOW + 1000)
