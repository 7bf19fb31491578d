"""Kubernetes objects out of JSON or YAML, as typed views that survive missing and wrong fields."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

GPU = re.compile(
    r"^(?:nvidia\.com/(?:gpu|mig-[\w.]+)(?:\.shared)?|amd\.com/gpu|gpu\.intel\.com/\w+)$"
)
YAML_BYTES = 8 << 20
OBJECTS = 50_000


def objects(values: list[Any]) -> list[dict[str, Any]]:
    """Nodes, Pods, budgets and events of all documents, lists taken apart."""
    found: list[dict[str, Any]] = []
    for value in values:
        for one in _flat(value, 0):
            if len(found) >= OBJECTS:
                return found
            found.append(one)
    return found


def _flat(value: Any, depth: int) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        for one in value:
            yield from _flat(one, depth + 1) if depth < 4 else ()
        return
    if not isinstance(value, dict) or depth > 4:
        return
    items = value.get("items")
    if isinstance(items, list):
        kind = str(value.get("kind") or "").removesuffix("List")
        for one in items:
            if isinstance(one, dict):
                yield one if one.get("kind") or not kind else {**one, "kind": kind}
        return
    if "metadata" in value:
        yield value
        return
    for inner in value.values():
        if isinstance(inner, dict) and ("items" in inner or "metadata" in inner):
            yield from _flat(inner, depth + 1)


def from_yaml(text: str) -> list[Any]:
    """YAML documents as kubectl prints them; [] for what is none.

    Aliases are refused: kubectl writes none, and a few of them can stand for a billion nodes.
    """
    if len(text) > YAML_BYTES:
        return []
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=loader)):
            return []
        return [one for one in yaml.load_all(text, Loader=loader) if isinstance(one, dict)]
    except (yaml.YAMLError, RecursionError, ValueError, TypeError):
        return []


def at(value: Any, *path: str) -> Any:
    """A nested field; None where anything on the way is missing or of another type."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def text(value: Any, *path: str) -> str:
    """A nested text; "" when it is none."""
    found = at(value, *path)
    return found[:500] if isinstance(found, str) else ""


def dicts(value: Any, *path: str) -> list[dict[str, Any]]:
    """A nested list of mappings."""
    found = at(value, *path)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def kind(value: dict[str, Any]) -> str:
    """Its kind, also where a cut list lost it."""
    named = text(value, "kind")
    if named:
        return named
    if at(value, "status", "disruptionsAllowed") is not None:
        return "PodDisruptionBudget"
    if at(value, "spec", "containers") is not None:
        return "Pod"
    return "Node" if at(value, "status", "allocatable") is not None else ""


def name(value: dict[str, Any]) -> str:
    """metadata.name."""
    return text(value, "metadata", "name")


def quantity(value: Any) -> int | None:
    """A whole number of devices: 8 or "8"; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if 0 <= value < 1 << 31 else None
    return int(value) if isinstance(value, str) and re.fullmatch(r"\d{1,9}", value) else None


def gpus(resources: Any) -> int | None:
    """GPUs (or MIG slices) in a mapping of resources; None when it names none."""
    if not isinstance(resources, dict):
        return None
    counts = [quantity(v) for k, v in resources.items() if isinstance(k, str) and GPU.match(k)]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
