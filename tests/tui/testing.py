"""Active tests without nodes: the real Campaigner over figures that the test hands out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from console.active.ask import Asked, CampaignPlan
from console.active.campaign import Campaigner
from console.active.results import Confidence, Group, Progress, Run, Verdict
from inventory.node import Node
from probes.event import Severity
from tests.tui import synthetic
from tests.tui.conftest import Console


class Figures:
    """A Launcher: every group measures what `slow` leaves of 100 GB/s, once the gate is open."""

    def __init__(self, slow: Sequence[str] = (), *, held: bool = False) -> None:
        """`held` keeps the gate closed until the test opens it."""
        self.slow = set(slow)
        self.gate = asyncio.Event()
        self.measured: list[tuple[str, ...]] = []
        self.broken_off: list[tuple[str, ...]] = []
        if not held:
            self.gate.set()

    def lacking(self, node: Node, asked: Asked) -> str:
        """Nothing."""
        return ""

    async def measure(self, run: Run) -> Run:
        """See Launcher."""
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.broken_off.append(run.group.nodes)
            raise
        self.measured.append(run.group.nodes)
        value = 20.0 if self.slow & set(run.group.nodes) else 100.0
        return replace(run, state=Progress.DONE, busbw_gb_s=value, engine="torch-gloo")


def idle(c: Console, names: Sequence[str]) -> None:
    """These nodes answer and run nothing."""
    for name in names:
        c.engine.feed_all([*synthetic.slow(name, c.engine.at), *synthetic.fast(name, c.engine.at)])
        c.engine.feed_all([synthetic.no_processes(name, c.engine.at)])


class Alone:
    """A Localiser: one round, each node alone; a fifth of 100 GB/s is critical."""

    def __init__(self, nodes: Sequence[str]) -> None:
        """These nodes."""
        self.nodes = nodes

    def next_round(self, runs: Sequence[Run]) -> list[Group]:
        """See Localiser."""
        return [] if runs else [Group(nodes=(name,)) for name in self.nodes]

    def verdicts(self, runs: Sequence[Run]) -> list[Verdict]:
        """See Localiser."""
        return [_verdict(run) for run in runs if run.busbw_gb_s is not None]


def _verdict(run: Run) -> Verdict:
    name, value = run.group.nodes[0], run.busbw_gb_s or 0.0
    return Verdict(
        kind="node", name=name, nodes=(name,), confidence=Confidence.CERTAIN,
        verdict=Severity.CRITICAL if value < 50 else Severity.OK, say=f"{name}: {value:.0f} GB/s",
    )  # fmt: skip


def heard(c: Console) -> list[str]:
    """What the console says in its corner from now on (pilots switch the corner itself off)."""
    told: list[str] = []

    def notify(message: str, **options: Any) -> None:
        told.append(message)

    c.app.notify = notify  # type: ignore[method-assign]
    return told


def measure_by(c: Console, figures: Figures) -> None:
    """What the console starts from now on is measured by these."""

    def make(plan: CampaignPlan) -> Campaigner:
        return Campaigner(c.engine, plan, localiser=Alone(plan.willing), by=figures)

    c.app.bench.make = make
