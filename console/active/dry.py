"""What a campaign would do, for `--dry-run`: nodes, time, and its exact first orders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from console import units
from console.active.ask import CampaignPlan
from console.active.launch import gpu_count
from console.active.orders import PORTS, orders
from console.active.results import Group
from console.active.safety import OURS
from inventory.errors import UsageError
from inventory.expressions import fold

if TYPE_CHECKING:
    from console.engine import Engine

SHOWN = 8
"""Groups whose orders are printed for a person; JSON has all."""


class Ordered(Struct, frozen=True, kw_only=True):
    """The orders of one run of the first round."""

    group: Group
    orders: list[str]
    """What is sent, or run: JSON to an agent, argv, a manifest."""


class DryRun(Struct, frozen=True, kw_only=True):
    """What `gpuconsole test --dry-run --json` writes."""

    plan: CampaignPlan
    first: list[Ordered]


def document(engine: Engine, plan: CampaignPlan) -> DryRun:
    """The plan with every order of its first round."""
    first = [Ordered(group=group, orders=lines(engine, plan, group)) for group in plan.first]
    return DryRun(plan=plan, first=first)


def lines(engine: Engine, plan: CampaignPlan, group: Group) -> list[str]:
    """The orders of one group, each on a line; the port is one of those that may be drawn."""
    nodes = [engine.fleet.nodes[name].node for name in group.nodes]
    gpus: Mapping[str, int] = {node.name: gpu_count(engine, node.name) for node in nodes}
    if plan.asked.launch == "srun":
        import shlex

        from console.active.srun import argv, environment

        env = [f"{name}={shlex.quote(value)}" for name, value in environment(nodes).items()]
        return [
            " ".join([*env, shlex.join(argv(group, nodes, plan.asked, gpus, f"{OURS}{plan.id}-1"))])
        ]
    if plan.asked.launch == "kubectl":
        from console.active.kube_manifest import manifest

        made = manifest(group, nodes, plan.asked, gpus, f"{OURS}{plan.id}-1".lower(), PORTS[0])
        return [msgspec.json.encode(made).decode()]
    made_orders = orders(group, nodes, plan.asked, gpus, PORTS[0], "test-0")
    return [f"{name}: {msgspec.json.encode(o).decode()}" for name, o in made_orders.items()]


def manifests(engine: Engine, plan: CampaignPlan) -> str:
    """What kubectl would be given, as YAML documents. UsageError for another way of starting."""
    if plan.asked.launch != "kubectl":
        raise UsageError("is for --launch kubectl", where="--print-manifest")
    import yaml

    from console.active.kube_manifest import manifest

    made = []
    for number, group in enumerate(plan.first, start=1):
        nodes = [engine.fleet.nodes[name].node for name in group.nodes]
        gpus = {node.name: gpu_count(engine, node.name) for node in nodes}
        name = f"{OURS}{plan.id}-{number}".lower()
        made += manifest(group, nodes, plan.asked, gpus, name, PORTS[0])["items"]
    return yaml.safe_dump_all(made, sort_keys=False)


def told(engine: Engine, plan: CampaignPlan) -> str:
    """The plan as a person reads it."""
    asked = plan.asked
    if plan.willing:
        names = f"{fold(plan.willing)} ({len(plan.willing)})"
        out = [f"test {names} at level {asked.level}, seed {asked.seed}"]
    else:
        out = ["nothing to test"]
    out += [f"  left alone: {name}: {why}" for name, why in plan.refused.items()]
    out += [f"  disturbed: {name}: {what}" for name, what in plan.disturbs.items()]
    out += [f"  note: {note}" for note in plan.notes]
    if plan.willing:
        out.append(
            f"  at most {units.counted(plan.rounds_at_most, 'round')}, {asked.run_s:.0f} s a run, "
            f"{plan.at_most_s / 60:.0f} min in all; "
            f"{units.counted(plan.batches, 'batch', 'batches')} in the first round"
        )
    for group in plan.first[:SHOWN]:
        out.append(f"  {group.name} ({group.why})")
        out += [f"    {line}" for line in lines(engine, plan, group)]
    if len(plan.first) > SHOWN:
        out.append(f"  and {len(plan.first) - SHOWN} more; --json has all")
    return "\n".join(out) + "\n"
