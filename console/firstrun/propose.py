"""Inventory files as text, made from what was found. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import yaml

from inventory.expressions import fold
from inventory.node import Inventory, Node


def of_scheduler(inventory: Inventory, scheduler: str, where: str) -> str:
    """The nodes with GPUs that a scheduler names, by its groups; all, where it counts no GPUs."""
    top = {"cluster": inventory.cluster} if inventory.cluster else {}
    nodes = with_gpus(inventory.nodes)
    groups = {name: _group(members) for name, members in _groups(nodes)}
    return _file(f"Nodes as {where} names them", {**top, "scheduler": scheduler, "groups": groups})


def of_hosts(names: Sequence[str], note: str) -> str:
    """Hosts known by name only."""
    return _file(note, {"hosts": fold(names)}) + _NO_SCHEDULER


def of_this_machine() -> str:
    """This machine, without ssh."""
    return _file("This machine only", {"local": True})


def with_gpus(nodes: Iterable[Node]) -> list[Node]:
    """Nodes that are said to have GPUs; all of them where none is."""
    every = list(nodes)
    return [node for node in every if node.gpus] or every


_NO_SCHEDULER = "# scheduler: slurm    # shows jobs and drains\n"


def _groups(nodes: Sequence[Node]) -> list[tuple[str, list[Node]]]:
    """Nodes of one group, role and GPU count together; the name says the role where it must."""
    by: dict[tuple[str, str, int | None], list[Node]] = {}
    for node in nodes:
        by.setdefault((node.group, node.role, node.gpus), []).append(node)
    names = [group for group, _, _ in by]
    made: dict[str, list[Node]] = {}
    for (group, role, _), members in by.items():
        alone = names.count(group) == 1 and group != "default"
        name = group if alone else role if group == "default" else f"{group}-{role}"
        # Two groups may still share a name: "a-b" with "c", "a" with "b-c".
        made[name if name not in made else f"{name}-{len(made)}"] = members
    return list(made.items())


def _group(members: Sequence[Node]) -> dict[str, Any]:
    first = members[0]
    gpus = {"gpus": first.gpus} if first.gpus else {}
    return {"hosts": fold(node.name for node in members), "role": first.role, **gpus}


def _file(note: str, content: dict[str, Any]) -> str:
    text = yaml.safe_dump(content, sort_keys=False, width=1 << 20)
    return f"# {note}.\n{text}"
