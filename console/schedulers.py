"""The Scheduler objects that an inventory asks for; each is imported only where it is needed."""

from __future__ import annotations

from inventory.node import Inventory
from inventory.scheduler import Scheduler


def schedulers_for(inventory: Inventory) -> dict[str, Scheduler]:
    """One Scheduler object per kind named in the inventory."""
    kinds = {node.scheduler for node in inventory.nodes if node.scheduler}
    found: dict[str, Scheduler] = {}
    for kind in sorted(kinds):
        if kind.partition("@")[0] == "slurm":
            from inventory.run import LocalRun
            from inventory.slurm import Slurm

            found[kind] = Slurm(LocalRun(), kind.partition("@")[2] or None)
        elif kind.partition(":")[0] == "kubernetes":
            from inventory.kubernetes import Kubernetes
            from inventory.run import LocalRun

            found[kind] = Kubernetes(LocalRun(), kind.partition(":")[2])
        elif kind == "hook" and inventory.hook is not None:
            from inventory.hook import HookScheduler
            from inventory.run import LocalRun

            names = [node.scheduled_as for node in inventory.nodes if node.scheduler == kind]
            found[kind] = HookScheduler(LocalRun(), inventory.hook, names)
    return found
