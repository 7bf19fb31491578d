"""What the site says nodes and GPUs should have: sections `roles`, `products`, `drift` of its file.

roles:
  compute: {gpu_count: 8, ib_ports: 8, driver: ["580.95.05"], services: [slurmd, munge]}
products:
  H100-SXM5-80: {vbios: ["96.00.89.00.01"], power_limit_w: 700}
drift: {kernel: warn}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import yaml
from msgspec import Struct

from inventory import marked
from inventory.marked import Problems
from inventory.nearest import nearest
from probes.drift_facts import FACTS, SERVICE_NAMES
from probes.event import Scalar
from probes.node.modules import ALLOWED
from probes.reading import number
from probes.rules_file import figure, shown, texts, unknown


class Expected(Struct, frozen=True):
    """One thing the site expects."""

    values: tuple[Scalar, ...]
    """Any of these; of services and modules, all of them."""
    source: str
    """File and line that say so."""

    @property
    def least(self) -> int | None:
        """The smallest whole number among them."""
        numbers = (number(value) for value in self.values)
        return min((int(n) for n in numbers if n is not None), default=None)


Expectations: TypeAlias = Mapping[str, Expected]
"""Fact -> what the site expects of it."""


class Counts(Struct, frozen=True, kw_only=True):
    """What it counts when a node differs from its role in one fact: an entry of data/drift.yaml."""

    name: str
    severity: str
    """off, info or warn."""
    fewer: bool = False
    """Only less than usual counts; more is information."""
    source: str
    help: str = ""


LISTS = {"services": SERVICE_NAMES, "modules": ALLOWED}
"""Of a role: names that must all run or be loaded."""
NOT_EXPECTED = ("cmdline", "sysctl", "memlock")
"""Compared between peers only: they have no single value."""
ROLE_FACTS = [n for n, fact in FACTS.items() if fact.per == "node" and n not in NOT_EXPECTED]
PRODUCT_FACTS = [
    n for n, fact in FACTS.items() if fact.per == "gpu" and n not in ("gpu_name", "fabric_clique")
]


def read(
    node: yaml.Node, section: str, products: Mapping[str, object], problems: Problems
) -> dict[str, dict[str, Expected]]:
    """Section `roles` or `products`: name -> fact -> what is expected; problems remembered."""
    found: dict[str, dict[str, Expected]] = {}
    for key, value in marked.items(node, section, problems):
        if section == "products" and key.value not in products:
            unknown(key, "no product is called", products, problems)
            continue
        found[key.value] = _facts(value, section, shown(key), problems)
    return found


def _facts(node: yaml.Node, section: str, what: str, problems: Problems) -> dict[str, Expected]:
    valid = [*ROLE_FACTS, *LISTS] if section == "roles" else PRODUCT_FACTS
    found: dict[str, Expected] = {}
    for key, value in marked.items(node, what, problems):
        name = str(key.value)
        if name not in valid:
            unknown(key, f"{what} has no fact", valid, problems)
            continue
        values = _values(name, value, f"{what}: {name}", problems)
        if values:
            found[name] = Expected(values, problems.where(key))
    return found


def _values(name: str, node: yaml.Node, what: str, problems: Problems) -> tuple[Scalar, ...]:
    if name in LISTS:
        words = texts(node, what, problems)
        for word in words:
            if word not in LISTS[name]:
                problems.add(node, f"{what} has {word[:80]!r}", nearest(word, LISTS[name]))
        return words
    if FACTS[name].kind != "text":
        number = figure(node, what, problems)
        return () if number is None else (number,)
    if isinstance(node, yaml.ScalarNode) and node.tag.endswith(":bool"):
        return (marked.truth(node, what, problems),)
    return texts(node, what, problems)
