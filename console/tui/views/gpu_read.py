"""The GPUs of a node as the Fleet knows them now. Pure."""

from __future__ import annotations

from msgspec import Struct

from console.fleet import Fleet
from console.tui.summary import CURRENT
from console.tui.text import plain
from console.tui.views.gpu_metrics import Gpu, State
from probes.event import Finding, NodeStatus, Sample, Severity
from probes.facts import NodeFacts
from probes.reading import number, whole

GPU_IS_LOST = 15
"""NVML_ERROR_GPU_IS_LOST (nvml.h)."""
LISTS = ("gpu", "inventory")
"""Probes that name every GPU."""
LIVE = ("temp_c", "util_percent", "power_w", "sm_clock_mhz")
"""A GPU that fails one call and tells one of these still answers."""
UNPLACED = 1 << 16
GPUS_MOST = 64
"""Cells a node may take, whatever it claims."""


class NodeGpus(Struct, frozen=True, kw_only=True, gc=False):
    """A node as it was read."""

    gpus: tuple[Gpu, ...]
    severity: Severity
    """The node's verdict."""
    told: tuple[list[Finding], NodeStatus | None]
    """The Fleet's findings and the node's status when it was read: others are news that do not
    wait."""
    current: bool
    """Whether the conversation goes on."""
    role: str
    job: str
    """Ids of its jobs, "" for none or not known."""


def read(fleet: Fleet, name: str) -> NodeGpus:
    """One node; GPUs by NVML's index, those that nobody can place behind."""
    facts = fleet.nodes[name]
    tops = _tops(fleet.findings[name])
    jobs = facts.allocation.jobs if facts.allocation is not None else ()
    return NodeGpus(
        gpus=_gpus(facts, tops),
        severity=fleet.verdict(name),
        told=(fleet.findings[name], facts.status),
        current=facts.state in CURRENT,
        role=facts.node.role,
        job=plain(" ".join(sorted(job.id for job in jobs))),
    )


def _tops(findings: list[Finding]) -> dict[str, Finding]:
    """Device -> its worst finding, those that nobody acknowledged first."""
    found: dict[str, Finding] = {}
    for finding in findings:
        before = found.get(finding.device)
        if before is None or (before.acknowledged and not finding.acknowledged):
            found[finding.device] = finding
    return found


def _gpus(facts: NodeFacts, tops: dict[str, Finding]) -> tuple[Gpu, ...]:
    listed = {device for probe in LISTS for device, _ in facts.devices(probe) if device}
    lost = {device for probe, device in facts.gone if probe in LISTS and device} - listed
    hung = {device for probe, device in facts.hung if probe == "gpu"}
    found = [_gpu(facts, device, tops.get(device), hung) for device in listed]
    found += [_left(facts, device, tops.get(device)) for device in lost]
    found.sort(key=lambda gpu: (UNPLACED if gpu.index is None else gpu.index, gpu.device))
    wanted = facts.node.gpus
    if wanted is None and listed:
        wanted = whole(facts.value("inventory", "", "pci_gpu_count"))
    state = State.LOST if listed else State.UNHEARD
    missing = min(wanted or 0, GPUS_MOST) - len(found)
    return (*found[:GPUS_MOST], *(Gpu(state=state) for _ in range(missing)))


def _gpu(facts: NodeFacts, device: str, top: Finding | None, hung: set[str]) -> Gpu:
    sample = facts.get("gpu", device)
    index = whole(facts.value("inventory", device, "index")) if sample is None else whole(
        sample.values.get("index")
    )  # fmt: skip
    return Gpu(
        device=device,
        index=index,
        state=State.SILENT if device in hung or "" in hung else _state(sample),
        gpu=sample,
        ecc=facts.get("ecc", device),
        gpm=facts.get("gpm", device),
        links=facts.rates.get(("nvlink", device)),
        pcie=facts.rates.get(("pcie", device)),
        top=top,
    )


def _state(sample: Sample | None) -> State:
    if sample is None:
        return State.UNHEARD
    code = sample.values.get("nvml_rc")
    if code is None or any(name in sample.values for name in LIVE):
        return State.ANSWERS
    return State.LOST if number(code) == GPU_IS_LOST else State.SILENT


def _left(facts: NodeFacts, device: str, top: Finding | None) -> Gpu:
    """A GPU that is no longer listed."""
    samples = [facts.gone.get((probe, device)) for probe in LISTS]
    known = [whole(sample.values.get("index")) for sample in samples if sample is not None]
    index = next((one for one in known if one is not None), None)
    return Gpu(device=device, index=index, state=State.LOST, top=top)
