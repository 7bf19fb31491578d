"""What this machine knows of nodes with GPUs: asked side by side, each with a deadline."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

from msgspec import Struct

from console.firstrun import propose
from console.tui.words import t
from inventory.errors import ConsoleError
from inventory.node import Inventory
from inventory.run import Run

DEADLINE_S = 5.0
"""For each place; a scheduler that needs longer would make the console wait every 15 s."""


class Offer(Struct, frozen=True):
    """One place to take nodes from."""

    title: str
    told: str
    """How many nodes, or why there are none."""
    source: str = ""
    """What `-i` would name; "" where nothing was found."""
    text: str = ""
    """The inventory file that would be written."""


async def look(run: Run, *, root: Path = Path("/"), deadline_s: float = DEADLINE_S) -> list[Offer]:
    """Everything that was looked for, found or not, in the order in which it is worth taking."""
    return list(
        await asyncio.gather(
            _asked("Slurm", "scontrol", lambda: _slurm(run, deadline_s), deadline_s),
            _asked("Kubernetes", "kubectl", lambda: _kubernetes(run, deadline_s), deadline_s),
            _ssh(),
            _here(root),
        )
    )


async def _asked(
    title: str, program: str, ask: Callable[[], Awaitable[Offer]], deadline_s: float
) -> Offer:
    """What a scheduler's own program answers; why not, where it does not."""
    if shutil.which(program) is None:
        return Offer(title, t("no {program} here", program=program))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(deadline_s):
            try:
                return await ask()
            except ConsoleError as error:
                return Offer(title, str(error))
    return Offer(title, t("no answer within {seconds} s", seconds=f"{deadline_s:g}"))


async def _slurm(run: Run, deadline_s: float) -> Offer:
    from inventory.slurm import Slurm

    inventory = await Slurm(run, timeout_s=deadline_s).inventory()
    text = propose.of_scheduler(inventory, "slurm", "Slurm")
    return Offer("Slurm", _counted(inventory), "slurm:", text)


async def _kubernetes(run: Run, deadline_s: float) -> Offer:
    from inventory.kubernetes import Kubernetes

    inventory = await Kubernetes(run, timeout_s=deadline_s).inventory()
    scheduler = inventory.nodes[0].scheduler or "kubernetes"
    text = propose.of_scheduler(inventory, scheduler, "Kubernetes")
    return Offer("Kubernetes", _counted(inventory), inventory.source, text)


def _counted(inventory: Inventory) -> str:
    """A sentence about the nodes of a scheduler."""
    chosen, every = propose.with_gpus(inventory.nodes), len(inventory.nodes)
    if not any(node.gpus for node in chosen):
        return t(
            "{n} nodes in {cluster}; it counts no GPUs", n=every, cluster=inventory.cluster or "-"
        )
    return t(
        "{n} nodes with GPUs (of {all}) in {cluster}",
        n=len(chosen),
        all=every,
        cluster=inventory.cluster or "-",
    )


async def _ssh() -> Offer:
    from inventory.paths import expanded
    from inventory.ssh_hosts import USER_CONFIG, config_hosts

    names = config_hosts(expanded(USER_CONFIG))
    if not names:
        return Offer("ssh_config", t("no Host line without wildcards in {path}", path=USER_CONFIG))
    note = f"From {USER_CONFIG}: take out what is no GPU node"
    told = t("{n} hosts in {path}", n=len(names), path=USER_CONFIG)
    return Offer("ssh_config", told, "ssh:", propose.of_hosts(names, note))


async def _here(root: Path) -> Offer:
    title = t("this machine")
    gpus = len(list((root / "proc/driver/nvidia/gpus").glob("*")))
    gpus = gpus or len(list((root / "dev").glob("nvidia[0-9]*")))
    if not gpus:
        return Offer(title, t("no NVIDIA GPU"))
    return Offer(title, t("{n} GPUs", n=gpus), "local:", propose.of_this_machine())
