"""The story: what every node of a scenario looks like at a moment. Pure in seed and time.

`Story.nvml` is the state of the simulated NVML library, `Story.files` what differs from the healthy
/sys and /proc tree, `Story.lines` the kernel log. Time is story seconds; no clock is read here.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from console.demo import faults, faults_host, services_tree
from console.demo.faults import Line, Place, State
from console.demo.hardware import GPU_PCI, HARDWARE, PORTS
from console.demo.load import Gpu, Reading, Span
from console.demo.rhythm import LOW, Rhythm
from console.demo.scenario import Fault, Job, Scenario

THROTTLED_NS_PER_S = 0.8e9
"""Share of a second that a throttled GPU spends under the thermal limit, in ns."""
CAPPED_NS_PER_S = 0.12e9
"""The same under the power cap; normal at full load."""
EARLIER_NS = 1.9e12
"""Half an hour of throttling before we came, for faults of second 0."""
TRAFFIC_BYTES_PER_S = 14e9
"""Mean of one 400 Gb/s rail in data-parallel training: our estimate, a third of the line."""
WORD = 4
"""port_xmit_data and port_rcv_data count 4-byte words (IBTA PortCounters)."""
FIRST_PID = 48211
STUCK_PID = 31337
UPTIME_S = 612_345.0
"""Seven days, as sysfs.py writes it."""
SPINNING = {"2": 12.0, "3": 2.5, "5": 1.2, "7": 1.1, "10": 2.4, "20": 60.0, "21": 80.0, "60": 900.0,
            "61": 900.0}  # fmt: skip
"""GPM readings (nvmlGpmMetricId_t) of a GPU on which only a collective's kernel waits: a few SMs
spin, nothing is computed or moved. Plausible, nobody's measurement."""
CPU_SHARE = {"training": 0.21, "waiting": 0.12, "inference": 0.09, "idle": 0.01}
"""Busy share of the host's CPUs by load; plausible for data loaders and 8 ranks."""


class Process(NamedTuple):
    """A process as /proc shows it."""

    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    state: str = "R"
    wchan: str = ""
    """Kernel function it waits in."""
    cwd: str = ""


class Story:
    """Answers about any node at any time, in any order."""

    def __init__(self, scenario: Scenario) -> None:
        """Everything follows from the scenario; its seed names the noise."""
        self.scenario = scenario
        self.hardware = HARDWARE[scenario.hardware]
        self._faults: dict[str, list[Fault]] = {name: [] for name in scenario.nodes}
        for fault in scenario.faults:
            self._faults[fault.node].append(fault)
        self._gpus = {name: self._make_gpus(name) for name in scenario.nodes}
        self._rhythms = {
            job: Rhythm(job, [f for f in scenario.faults if f.node in job.nodes])
            for job in scenario.jobs
            if job.step_s is not None and job.load == "training"
        }

    def _make_gpus(self, node: str) -> list[Gpu]:
        return [
            Gpu(f"{self.scenario.seed}/{node}/{index}", self.hardware, self._spans(node, index))
            for index in range(self.hardware.gpus)
        ]

    def _spans(self, node: str, gpu: int) -> list[Span]:
        """Pieces of the story in which load and heat sink do not change, the first from 0."""
        hot = [f for f in self._faults[node] if f.kind == "thermal" and f.gpu == gpu]
        spans: tuple[Job | Fault, ...] = (*self._jobs(node), *hot)
        edges = {0.0}
        for item in spans:
            edges |= {item.at_s} if item.for_s is None else {item.at_s, item.at_s + item.for_s}
        return [
            Span(at, self.load(node, at), any(fault.present(at) for fault in hot))
            for at in sorted(edges)
        ]

    def _jobs(self, node: str) -> list[Job]:
        return [job for job in self.scenario.jobs if node in job.nodes]

    def job(self, node: str, t: float) -> Job | None:
        """The job on the node at time t; the first one written when several would run."""
        return next((job for job in self._jobs(node) if job.runs(t)), None)

    def load(self, node: str, t: float) -> str:
        """The kind of load on the node at time t."""
        job = self.job(node, t)
        return job.load if job else "idle"

    def present(self, node: str, t: float, *kinds: str) -> list[Fault]:
        """Faults of the node at time t, of these kinds when any are given."""
        return [f for f in self._faults[node] if f.present(t) and (not kinds or f.kind in kinds)]

    # ------------------------------------------------------------------ NVML

    def nvml(self, node: str, t: float, speed: float = 1.0) -> State:
        """nvml.json at time t; `speed` (story seconds per real one) scales growing counters."""
        gpus = [self._gpu(node, index, t, speed) for index in range(self.hardware.gpus)]
        for gpu in gpus:
            for fault in self.present(node, t):
                faults.gpu_state(gpu, fault, t, self.hardware)
        driver = faults_host.driver(self.present(node, t), services_tree.DRIVER)
        return {"driver": driver, "nvml": f"13.{driver}", "cuda": 13000, "gpus": gpus}

    def place(self, node: str, gpu: int) -> Place:
        """Address, UUID and serial of a GPU; the same for the same seed."""
        rng = random.Random(f"id/{self.scenario.seed}/{node}/{gpu}")
        digits = f"{rng.getrandbits(128):032x}"
        parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
        serial = str(1650523000000 + rng.randrange(1_000_000))
        return Place(GPU_PCI[gpu], "GPU-" + "-".join(parts), serial, gpu)

    def _gpu(self, node: str, index: int, t: float, speed: float) -> State:
        place, hardware = self.place(node, index), self.hardware
        now = self._gpus[node][index].reading(t)
        load = self.load(node, t)
        return {
            "pci": place.pci, "index": index, "minor": index, "uuid": place.uuid,
            "serial": place.serial, "name": hardware.product, "device_id": hardware.device_id,
            "subsystem_id": hardware.subsystem_id, "vbios": "96.00.89.00.01",
            "util": now.util, "mem_util": now.mem_util,
            "mem_total_mib": hardware.mem_mib, "mem_used_mib": now.mem_used_mib,
            "temp": now.temp, "mem_temp": now.mem_temp, "power_w": now.power_w,
            "power_limit_w": hardware.tdp_w, "sm_mhz": now.sm_mhz,
            "sm_max_mhz": hardware.sm_max_mhz, "mem_mhz": hardware.mem_mhz,
            "mem_max_mhz": hardware.mem_mhz, "reasons": now.reasons, "pstate": 0,
            "pcie": [hardware.pcie_gen if load != "idle" else 1, hardware.pcie_gen, 16, 16],
            "links": hardware.links, "link_mbps": hardware.link_mbps,
            "procs": self._gpu_procs(node, index, t, now),
            "gpm": SPINNING if load == "waiting" else {},
            **self._step(node, t), **({} if speed == 1.0 else {"speed": speed}),
            **self._time_counters(node, index, t, now, speed),
        }  # fmt: skip

    def _step(self, node: str, t: float) -> State:
        job = self.job(node, t)
        rhythm = self._rhythms.get(job) if job else None
        if rhythm is None:
            return {}
        return {"step": {"at": rhythm.steps(t) % 1, "every_s": rhythm.every_s(t), "low": LOW}}

    def _gpu_procs(self, node: str, index: int, t: float, now: Reading) -> list[list[int]]:
        return [[FIRST_PID + index, now.mem_used_mib - 528]] if self.job(node, t) else []

    def _time_counters(
        self, node: str, index: int, t: float, now: Reading, speed: float
    ) -> dict[str, Any]:
        fields, drift = {"74": 0, "269": 0, "270": 0, "271": 0}, {}
        if self.load(node, t) == "training":
            fields["74"] = round(CAPPED_NS_PER_S * t)
            drift["fields.74"] = CAPPED_NS_PER_S * speed
        earlier = any((f.kind, f.gpu, f.at_s) == ("thermal", index, 0) for f in self._faults[node])
        throttled_s = self._throttled_s(node, index, t)
        if earlier or throttled_s > 0:
            ns = (EARLIER_NS if earlier else 0.0) + THROTTLED_NS_PER_S * throttled_s
            fields["270"], fields["269"] = round(ns), round(ns / 4)
        if now.throttle > 0.5:
            drift["fields.270"] = THROTTLED_NS_PER_S * speed
            drift["fields.269"] = THROTTLED_NS_PER_S / 4 * speed
        return {"fields": fields, "drift": drift}

    def _throttled_s(self, node: str, index: int, t: float) -> float:
        """Seconds until `t` in which the heat sink failed under load: an idle GPU stays cool."""
        spans = self._gpus[node][index].spans
        ends = [*(min(t, span.at_s) for span in spans[1:]), t]
        pairs = zip(spans, ends, strict=True)
        return sum(max(0.0, end - s.at_s) for s, end in pairs if s.hot and s.load == "training")

    # ------------------------------------------------------------------ files and kernel lines

    def files(self, node: str, t: float) -> faults_host.Files:
        """Files under the root at time t: relative path -> content, None for one that is gone.

        What is not among them is as built.
        """
        found: faults_host.Files = {}
        for port in PORTS:
            found.update(self._traffic(node, port, t))
        for fault in self.present(node, t):
            found.update(faults.files(fault, t, self.hardware))
        found.update(faults_host.files(self.present(node, t), t))
        return found

    def _traffic(self, node: str, port: str, t: float) -> dict[str, str | bytes]:
        """Data counters of one port; only jobs of several nodes use the fabric."""
        device, number = port.split("/")
        base = f"sys/class/infiniband/{device}/ports/{number}/counters/"
        seconds = sum(
            self._sending_s(job, t)
            for job in self._jobs(node)
            if job.load == "training" and len(job.nodes) > 1
        )
        sent = zlib.crc32(f"{self.scenario.seed}/{node}/{port}".encode()) * 1000
        sent += round(seconds * TRAFFIC_BYTES_PER_S)
        return {
            base + "port_xmit_data": f"{sent // WORD}\n",
            base + "port_rcv_data": f"{sent // WORD}\n",
            base + "port_xmit_packets": f"{sent // 4096}\n",
            base + "port_rcv_packets": f"{sent // 4096}\n",
        }

    def _sending_s(self, job: Job, t: float) -> float:
        """For how long it would have sent by now at the mean rate of a healthy job."""
        until = t if job.for_s is None else min(t, job.at_s + job.for_s)
        if until <= job.at_s:
            return 0.0
        rhythm = self._rhythms.get(job)
        return until - job.at_s if rhythm is None else rhythm.sending_s(until)

    def lines(self, node: str, since: float, until: float) -> list[Line]:
        """Kernel lines with since < at_s <= until, oldest first."""
        return sorted(self._lines(node, since, until))

    def _lines(self, node: str, since: float, until: float) -> Iterator[Line]:
        for fault in self._faults[node]:
            place = None if fault.gpu is None else self.place(node, fault.gpu)
            yield from faults.lines(fault, place, since, until)

    # ------------------------------------------------------------------ the host

    def uptime_s(self, t: float) -> float:
        """Seconds since the node booted."""
        return UPTIME_S + t

    def cpu_share(self, node: str, t: float) -> float:
        """Busy share of the host's CPUs at time t."""
        return CPU_SHARE[self.load(node, t)]

    def cpu_busy_s(self, node: str, t: float) -> float:
        """Busy seconds of one average CPU since boot: the integral of `cpu_share`."""
        spans = self._gpus[node][0].spans
        busy = UPTIME_S * CPU_SHARE[spans[0].load]
        for span, after in zip(spans, [*spans[1:], None], strict=True):
            end = t if after is None else min(t, after.at_s)
            busy += max(0.0, end - span.at_s) * CPU_SHARE[span.load]
        return busy

    def processes(self, node: str, t: float) -> dict[int, Process]:
        """Processes on the node by pid, besides the system's own."""
        found: dict[int, Process] = {}
        job = self.job(node, t)
        if job is not None:
            first = job.nodes.index(node) * self.hardware.gpus
            script = f"{job.name or 'train'}.py"
            for index in range(self.hardware.gpus):
                env = (("SLURM_JOB_ID", job.id), ("RANK", str(first + index)))
                found[FIRST_PID + index] = Process(("/usr/bin/python3", "-u", script), env)
        if self.present(node, t, "driver_hang"):
            found[STUCK_PID] = Process(("/usr/bin/nvidia-smi",), state="D")
        for pid, task in faults_host.stuck(self.present(node, t)).items():
            found[pid] = Process(task.command, state="D", wchan=task.wchan, cwd=task.cwd)
        return found

    # ------------------------------------------------------------------ ssh

    def answers(self, node: str, t: float) -> str:
        """How its port answers: ssh, refused (closed) or silent (accepts, says nothing)."""
        if self.present(node, t, "unreachable"):
            return "refused"
        return "silent" if self.present(node, t, "silent") else "ssh"
