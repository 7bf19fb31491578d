"""Kernel modules: the direct path from GPU memory to RDMA adapters, and what peers have loaded."""

from __future__ import annotations

from collections.abc import Iterator

from probes.checks.rule import Look, Rule
from probes.drift_facts import GPU_DIRECT, flags
from probes.event import Action, Finding, Scalar, Severity

GDR = Rule(
    id="gdr.missing",
    title="GPUs and RDMA adapters have no direct path",
    severity=Severity.WARN,
    reads="/proc/modules; the kind of the NVIDIA driver and the kernel's release; GPUs and RDMA "
    "ports",
    cause="nvidia_peermem is not loaded, and this driver or kernel has no DMA-BUF",
    action=Action.FIX_CONFIG,
    next_step="modprobe nvidia_peermem and load it at boot; or install the open driver on Linux "
    "5.12 or newer",
    source="NVIDIA/nccl issue 1412: 33 GB/s without, 93 with it; imbue warns",
    others="imbue: warn; gpud, SCK, GCM: error",
    example="nvidia_peermem is not loaded; proprietary driver, no DMA-BUF; 8 RDMA ports",
)
PEERS = Rule(
    id="module.missing",
    title="A kernel module that its peers have is not loaded",
    severity=Severity.INFO,
    reads="/proc/modules of this node and of the other nodes of its role",
    cause="another image, a failed build after a kernel upgrade, or a module loaded on demand",
    action=Action.FIX_CONFIG,
    next_step="modprobe it, and look why it was not loaded at boot (dkms status)",
    source="our rule: most of the role decide",
    others="gpud, SCK, GCM, imbue: nvidia_peermem only",
    example="gdrdrv is not loaded; it is on 15 of 15 other nodes of the role",
    limits=("service.peers_share",),
)
RULES = (GDR, PEERS)
OTHERS = 2
AMAZON = "1d0f"
ACTIVE = 4


def check(look: Look) -> Iterator[Finding]:
    """The direct path first; its modules are not told twice."""
    here = {name[7:]: on for name, on in flags(look.facts).items() if name.startswith("module.")}
    told = False
    for finding in _direct(look, here):
        told = True
        yield finding
    limit = look.rules.limit("service.peers_share")
    for name, loaded in here.items():
        if loaded or name == "nouveau" or (told and name in GPU_DIRECT):
            continue
        share, others = look.peers.drift.others(f"module.{name}", mine=False)
        if others >= OTHERS and share >= limit.value:
            say = f"{name} is not loaded; it is on {round(share * others)} of {others} other nodes"
            yield PEERS.finding(
                look, say, (say,), device=name, label=name, value=round(share, 3), limit=limit
            )


def _direct(look: Look, here: dict[str, bool]) -> Iterator[Finding]:
    modules = look.facts.get("modules")
    ports = [d for d, sample in look.facts.devices("infiniband") if d and _adapter(sample.values)]
    gpus = [device for device, _ in look.facts.devices("inventory") if device]
    if modules is None or not ports or not gpus or "nvidia_peermem" not in here:
        return
    if any(here.get(name) for name in GPU_DIRECT):
        return
    dmabuf = modules.values.get("dmabuf")
    if dmabuf is True:
        return
    share, others = max(look.peers.drift.others(f"module.{name}", False) for name in GPU_DIRECT)
    limit = look.rules.limit("service.peers_share")
    missed = others >= OTHERS and share >= limit.value
    if dmabuf is None and not missed:
        return
    kind = "no DMA-BUF with this driver and kernel" if dmabuf is False else "DMA-BUF unknown"
    habit = f"; loaded on {round(share * others)} of {others} other nodes" if others else ""
    yield GDR.finding(
        look, f"nvidia_peermem is not loaded: no direct path from {len(gpus)} GPUs to "
        f"{len(ports)} RDMA ports", (f"nvidia_peermem is not loaded; {kind}{habit}",),
    )  # fmt: skip


def _adapter(values: dict[str, Scalar]) -> bool:
    """A port that carries GPU traffic: no virtual function, no switch, not the default route.

    EFA adapters bring a module of their own for it.
    """
    if values.get("is_vf") or values.get("nvswitch") or values.get("default_route"):
        return False
    return values.get("vendor") != AMAZON and values.get("state") == ACTIVE
