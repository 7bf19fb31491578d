"""GPU and RDMA adapter: a GPU whose usual near adapter is farther away than on the peers. Pure.

What is near differs by product: behind one switch on HGX, one host bridge on small servers, "SYS"
for everything on Grace. So only the peers can say what is usual.
"""

from __future__ import annotations

from collections.abc import Iterator

from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Severity
from probes.ports import ALIKE, SWITCHED

ORDER = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""Nearest first, as nvidia-smi topo names them."""

FAR = Rule(
    id="affinity.far",
    title="A GPU's nearest RDMA adapter is farther away than on the peers",
    severity=Severity.WARN,
    reads="bridges and NUMA nodes of GPU and adapters in sysfs, against the same GPU of the peers",
    cause="the near adapter is gone or in another slot, or a virtual machine hides the bus: data "
    "crosses the root complex or the sockets",
    action=Action.WATCH,
    next_step="compare with a peer (nvidia-smi topo -m): missing adapter, slot and riser, firmware "
    "settings, the topology of the virtual machine",
    source="nvidia-smi's words for PCIe distances; the peers are the measure: our rule",
    others="AzHC: topology file per machine type; NVS",
    example="GPU3: nearest adapter mlx5_2 at NODE; PIX on 15 of 16 nodes",
)
RULES = (FAR,)


def check(look: Look) -> Iterator[Finding]:
    """GPUs whose near adapter is behind a switch on most peers, and not here."""
    if look.peers.nodes < ALIKE:
        return
    any_adapter = any(device for device, _ in look.facts.devices("infiniband"))
    for gpu, sample in look.facts.devices("topology"):
        usual = look.peers.nic_distance.get(gpu)
        if usual not in SWITCHED:
            continue
        here = sample.values.get("nic_distance")
        if here in SWITCHED or (here is None and not any_adapter):
            continue  # ib.missing tells of nodes without any
        label = look.facts.gpu_label(gpu)
        nearest = f"{sample.values.get('nic', '?')} at {here}" if here in ORDER else "none"
        yield FAR.finding(
            look, f"{label}: nearest RDMA adapter is {nearest}; {usual} on the peers",
            (f"nearest adapter: {nearest}; {usual} on most of {look.peers.nodes} nodes",),
            device=gpu, label=label,
        )  # fmt: skip
