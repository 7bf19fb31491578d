"""Does the driver answer at all, and in time?"""

from __future__ import annotations

from collections.abc import Iterator

from probes.checks.nvml_codes import code as meaning
from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, NodeStatus, Sample, Severity
from probes.reading import number, whole

NO_RIGHTS = (4, 17)
NOT_LOADED = 9
UNKNOWN_ERROR = 999
PROBES = frozenset({"gpu", "gpm", "ecc", "pcie", "nvlink", "inventory", "processes"})
"""Probes whose calls go to the driver."""

DRIVER = Rule(
    id="driver.unusable",
    title="The NVIDIA driver or library does not work",
    severity=Severity.CRITICAL,
    reads="nvmlInit, nvmlDeviceGetCount, GPUs on the PCI bus",
    cause="driver not loaded, library missing, or upgraded under the running module",
    action=Action.REBOOT,
    next_step="reboot the node, or reload the module; check for an unattended upgrade",
    source="nvml.h return codes 9, 12, 18 [nvml]; lyulyul/shine-cluster issue 30: unattended "
    "upgrade",
    others="most: warn to error",
    example="nvmlInit returned 18 (driver/library version mismatch)",
)
DRIVER_HUNG = Rule(
    id="driver.hung",
    title="A driver call does not return",
    severity=Severity.CRITICAL,
    reads="how long each NVML call of the agent takes",
    cause="GPU firmware or driver dead-locked; expect Xid 119, 120 or 79",
    action=Action.DRAIN,
    next_step="drain; save the kernel log; reboot (a stuck process cannot be killed)",
    source="our deadline of 5 s, not measured; after Xid 119 or 120 nvidia-smi itself hangs [xid]",
    others="PRI: vendor call > 5 s fails the node; NVS #1576",
    example="hung in nvmlDeviceGetUtilizationRates for 25 s",
)
DRIVER_SLOW = Rule(
    id="driver.slow",
    title="The driver takes long to answer trivial questions",
    severity=Severity.WARN,
    reads="the longest NVML call of each GPU between two answers, without time in which the agent "
    "itself got no CPU",
    cause="GPU firmware or driver is about to dead-lock, or the GPU is being reset; with "
    "persistence mode off each first call starts the GPU anew",
    action=Action.WATCH,
    next_step="look for Xid 119 or 120; time `nvidia-smi -L` by hand; drain if it stays",
    source="vendor calls of PRI: more than 1 s warns; our deadline for a hung call is 5 s",
    others="PRI: > 1 s warn, > 5 s fail; DCGM: a watchdog (NVIDIA/NVSentinel PR 1574)",
    example="nvmlDeviceGetPowerUsage took 2.3 s",
    limits=("driver.call_s",),
)
RULES = (DRIVER, DRIVER_HUNG, DRIVER_SLOW)

OTHER_KIND = (
    "if it should have none, say `gpus: 0` in the inventory; else look at its image, and at the "
    "power of the GPU board"
)


def check(look: Look) -> Iterator[Finding]:
    """Hung, slow, or not there at all."""
    yield from _hung(look)
    yield from _slow(look)
    node = look.facts.get("inventory")
    if node is not None:
        yield from _unusable(look, node)


def of_driver(probe: str, hung: NodeStatus) -> bool:
    """Whether a hung call is one into the driver."""
    return probe in PROBES or "nvml" in hung.text


def _hung(look: Look) -> Iterator[Finding]:
    calls = [s for (probe, _), s in look.facts.hung.items() if of_driver(probe, s)]
    if not calls:
        return
    devices = {status.device for status in calls if status.device}
    label = ", ".join(look.facts.gpu_label(device) for device in sorted(devices))
    longest = max((status.since_s or 0.0) for status in calls)
    yield DRIVER_HUNG.finding(
        look,
        f"driver hangs{' on ' + label if label else ''} for {longest:.0f} s",
        tuple(f"{status.probe}: {status.text}" for status in calls[:5]),
        device=next(iter(devices)) if len(devices) == 1 else "",
        label=label,
        value=round(longest, 1),
    )


def _slow(look: Look) -> Iterator[Finding]:
    """The slowest GPU stands for all: a driver that is slow is so for the node."""
    limit = look.rules.limit("driver.call_s")
    slow: list[tuple[float, str, str]] = []
    for device, sample in look.facts.devices("gpu"):
        seconds = number(sample.values.get("nvml_slowest_s"))
        if seconds is not None and seconds > limit.value:
            slow.append((seconds, device, str(sample.values.get("nvml_slowest_call", "a call"))))
    if not slow:
        return
    seconds, device, call = max(slow)
    label = look.facts.gpu_label(device)
    also = f", {len(slow) - 1} more GPUs are slow too" if len(slow) > 1 else ""
    yield DRIVER_SLOW.finding(
        look, f"{label}: the driver took {seconds:.1f} s for {call}{also}",
        tuple(f"{look.facts.gpu_label(d)}: {c} took {s:.1f} s" for s, d, c in sorted(slow)[::-1]),
        device=device if len(slow) == 1 else "", label=label, value=round(seconds, 2), limit=limit,
    )  # fmt: skip


def _unusable(look: Look, node: Sample) -> Iterator[Finding]:
    on_bus = whole(node.values.get("pci_gpu_count")) or 0
    expected = look.facts.node.gpus or look.peers.gpu_count or on_bus
    code = whole(node.values.get("nvml_rc"))
    if not expected:
        return
    confined = str(node.values.get("confined", ""))
    if node.values.get("nvml_library") is False:
        say, step = _no_library(expected, confined)
        other = not on_bus and not look.facts.node.gpus
        if other:
            say = f"no NVIDIA library and no GPU on the PCI bus, though most peers have {expected}"
            step = OTHER_KIND
        yield DRIVER.finding(
            look, say, (f"libnvidia-ml.so.1 not found; {on_bus} NVIDIA GPUs on the PCI bus",),
            next_step=step, severity=Severity.UNKNOWN if confined or other else None,
        )  # fmt: skip
        return
    if code is None:
        return
    known = meaning(code)
    call = node.values.get("nvml_call", "nvmlInit")
    evidence = (f"{call} returned {code} ({known.name})", *_around(node))
    blind = code in NO_RIGHTS or (bool(confined) and code in (NOT_LOADED, UNKNOWN_ERROR))
    yield DRIVER.finding(
        look,
        f"NVML does not start: {known.say.partition(': critical')[0]}"
        f"{f' (this login is in {confined})' if confined else ''}",
        evidence, value=code,
        severity=Severity.UNKNOWN if blind else None,
        action=Action.FIX_CONFIG if blind else None,
        next_step="log in outside of it, or with sudo (become): the GPUs were not read"
        if blind else "",
    )  # fmt: skip


def _no_library(expected: int, confined: str) -> tuple[str, str]:
    if confined:
        return (
            f"{expected} GPUs were not read: this login is in {confined} without the NVIDIA "
            "library",
            "log in outside of it, or give the container the driver's libraries",
        )
    return (
        f"no NVIDIA library, though {expected} GPUs are expected",
        "install the driver, or check the image this node booted",
    )


def _around(node: Sample) -> Iterator[str]:
    """What the kernel says about the driver."""
    loaded, files = node.values.get("driver_loaded"), node.values.get("device_files")
    if loaded is not None:
        yield f"kernel module nvidia is {'loaded' if loaded else 'not loaded'}"
    if loaded and files is False:
        yield "/dev/nvidiactl is not there"
