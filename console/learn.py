"""`gpuconsole doctor --learn`: one pass, and a proposal of what the site could expect of its nodes.

The proposal is an overlay for --rules. Only nodes without a warning teach; what they do not agree
on is left in as a comment, with who differs. Nothing is written over an existing file.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from console.fleet import Fleet
from console.launch import engine_for, run_async
from console.output import Exit, Stdout
from console.units import counted
from console.written import say
from inventory.errors import UsageError
from inventory.expressions import fold
from probes.drift import MEMBERS, near
from probes.drift_facts import FACTS, FLAG, GPU, Fact, Seen, of
from probes.event import Scalar, Severity
from probes.expect import product_id
from probes.expectations import LISTS, PRODUCT_FACTS, ROLE_FACTS
from probes.reading import number
from probes.rules import load_rules

if TYPE_CHECKING:
    from console.options import Request

SHARE = 0.9
"""Of the healthy nodes that must agree (our estimate): less is a split, not a habit."""
MOVING = frozenset({
    "driver", "cuda", "driver_kind", "nccl", "cuda_toolkit", "ofed", "fabricmanager", "toolkit",
    "dcgm", "imex", "slurm", "kernel", "os", "bios", "microcode", "vbios", "inforom", "gsp",
    "governor", "smt", "iommu", "clocksource", "hugepages", "thp", "cgroup", "sm_clock_max_mhz",
    "persistence_mode", "mig_mode",
})  # fmt: skip
"""Facts that change with every upgrade or job: proposed as comments."""
NOTHING = "roles: {}"
"""Of a proposal without any: too few healthy nodes, or none that agree."""
NAMES = 200
"""Characters of a list of odd nodes in a comment."""


class _Fact:
    """What the teachers of one role or product have of one fact."""

    def __init__(self) -> None:
        """Nobody asked."""
        self.counts: Counter[Scalar] = Counter()
        self.nodes: dict[Scalar, list[str]] = {}

    def add(self, value: Scalar, node: str) -> None:
        """One observation."""
        self.counts[value] += 1
        self.nodes.setdefault(value, []).append(node)

    def usual(self, fact: Fact) -> tuple[Scalar, int, int]:
        """Value, members that have it, members."""
        value, count = self.counts.most_common(1)[0]
        if fact.kind == "size":
            count = sum(n for other, n in self.counts.items() if near(fact, other, value))
        return value, count, self.counts.total()

    def odd(self, fact: Fact, usual: Scalar) -> list[tuple[Scalar, list[str]]]:
        """Other values and who has them."""
        return [
            (v, self.nodes[v]) for v, _ in self.counts.most_common() if not near(fact, v, usual)
        ]


def run(request: Request, output: Path | None) -> int:
    """Write the proposal to `output`, or to stdout without one. Raises UsageError if it exists."""
    if output is not None and output.exists():
        raise _exists(output)
    return run_async(_run(request, output))


async def _run(request: Request, output: Path | None) -> int:
    async with engine_for(request, one_pass=True) as engine:
        await engine.one_pass()
        engine.fleet.tick()
        text = proposal(engine.fleet, engine.cluster, time.time())
        verdicts = [*map(engine.fleet.verdict, engine.fleet.nodes)]
    status = Exit.UNKNOWN if NOTHING in text else Exit.OK
    if output is None:
        Stdout().write(text.encode())
        return status
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise _exists(output) from None
    except OSError as error:
        raise UsageError(error.strerror or "cannot be written", where=str(output)) from error
    load_rules(output)
    advice = _nothing(verdicts) if status else f"read it, then use --rules {output}"
    say(f"proposal in {output}: {advice}")
    return status


def _nothing(verdicts: list[Severity]) -> str:
    unknown = verdicts.count(Severity.UNKNOWN)
    told = f": {unknown} of {counted(len(verdicts), 'node')} unknown" if unknown else ""
    return f"nothing to hold any role to{told}"


def _exists(output: Path) -> UsageError:
    return UsageError("it exists already", where=str(output), instead="-o a new file")


def proposal(fleet: Fleet, cluster: str, now: float) -> str:
    """The overlay as text."""
    roles: dict[str, list[str]] = {}
    for name, facts in fleet.nodes.items():
        roles.setdefault(facts.node.role, []).append(name)
    day = time.strftime("%Y-%m-%d %H:%M", time.localtime(now))
    lines = [
        f"# What {_plain(cluster)} has, learned {day}.",
        "# A proposal: read it, correct it, then give it with --rules FILE.",
        "# Behind each line: how many healthy nodes (or GPUs) agree. Lines that begin with # are",
        "# not in force: they change with upgrades, or the nodes do not agree.",
    ]
    taught: list[str] = []
    lines += ["", "roles:"]
    empty = len(lines)
    for role, names in roles.items():
        teachers, left_out = _teachers(fleet, names)
        taught += teachers
        lines += _role(fleet, role, teachers, left_out)
    if not _in_force(lines[empty:]):
        lines[empty - 1] = NOTHING
    products = [*_products(fleet, taught)]
    lines += ["", "products:" if _in_force(products) else "products: {}", *products]
    return "\n".join(lines) + "\n"


def _in_force(lines: Sequence[str]) -> bool:
    return any(not line.lstrip().startswith("#") for line in lines)


def _teachers(fleet: Fleet, names: list[str]) -> tuple[list[str], list[str]]:
    """Nodes without a warning, and lines about those that were left out."""
    good, out = [], []
    for name in names:
        verdict = fleet.verdict(name)
        if verdict in (Severity.OK, Severity.INFO):
            good.append(name)
            continue
        worst = next((f for f in fleet.findings[name] if f.severity is verdict), None)
        why = f"{worst.rule}: {worst.say}" if worst else fleet.nodes[name].state.value
        out.append(f"  # left out: {name}, {verdict}: {_plain(why)}")
    return good, out


def _role(fleet: Fleet, role: str, teachers: list[str], left_out: list[str]) -> Iterator[str]:
    found: dict[str, _Fact] = {}
    flags: dict[str, _Fact] = {}
    for name in teachers:
        parts = of(fleet.nodes[name])
        for items in parts[:FLAG]:
            for seen in items:
                if seen.fact in ROLE_FACTS:
                    found.setdefault(seen.fact, _Fact()).add(seen.value, name)
        for seen in parts[FLAG]:
            flags.setdefault(seen.group, _Fact()).add(seen.value, name)
    yield from left_out
    if len(teachers) < MEMBERS:
        yield f"  # role {_plain(role)}: {len(teachers)} healthy nodes are too few to learn from"
        return
    body = [_line(FACTS[n], found[n], "nodes", MEMBERS) for n in ROLE_FACTS if n in found]
    body += [_list(section, flags) for section in LISTS]
    if not _in_force(body):
        yield f"  # role {_plain(role)}: nothing that its {len(teachers)} healthy nodes agree on"
    else:
        yield f"  {json.dumps(role)}:"
    yield from body


def _line(fact: Fact, known: _Fact, what: str, least: int) -> str:
    """`    fact: value  # 15 of 16 nodes`, as a comment where it is not to be held."""
    value, count, total = known.usual(fact)
    said = f"{count} of {total} {what}"
    odd = known.odd(fact, value)
    if odd:
        names = "; ".join(f"{_plain(str(v))} on {fold(set(nodes))}" for v, nodes in odd)
        said += f"; odd: {names}"[:NAMES]
    agreed = total >= least and count >= SHARE * total
    held = agreed and fact.name not in MOVING
    return f"    {'' if held else '# '}{fact.name}: {_yaml(fact, value)}  # {said}"


def _list(section: str, flags: dict[str, _Fact]) -> str:
    """Services or modules that nearly all have."""
    prefix = {"services": "service.", "modules": "module."}[section]
    names, odd = [], []
    for name in LISTS[section]:
        counts = flags[prefix + name].counts if prefix + name in flags else Counter()
        if counts.total() >= MEMBERS and counts[True] >= SHARE * counts.total():
            names.append(name)
        elif counts[True]:
            odd.append(f"{name} on {counts[True]} of {counts.total()}")
    said = f"  # not held: {', '.join(odd)}"[:NAMES] if odd else ""
    return f"    {'' if names else '# '}{section}: [{', '.join(names)}]{said}"


def _products(fleet: Fleet, teachers: list[str]) -> Iterator[str]:
    found: dict[str, dict[str, _Fact]] = {}
    names: dict[tuple[str, str], str] = {}
    for name in teachers:
        for seen in of(fleet.nodes[name])[GPU]:
            kind = _kind(fleet, name, seen)
            if kind not in names:
                product = fleet.rules.product(*kind)
                names[kind] = product.name if product else ""
            if names[kind] and seen.fact in PRODUCT_FACTS:
                facts = found.setdefault(names[kind], {})
                facts.setdefault(seen.fact, _Fact()).add(seen.value, name)
    for (pci, said), product_name in names.items():
        if not product_name:
            what = f"{_plain(said)}, PCI id {_plain(pci)}"
            yield f"  # {what}: not in the catalogue; add it below hardware:"
    for product_name, facts in found.items():
        body = [_line(FACTS[n], facts[n], "GPUs", MEMBERS) for n in PRODUCT_FACTS if n in facts]
        if _in_force(body):
            yield f"  {json.dumps(product_name)}:"
        else:
            yield f"  # {product_name}: nothing that its GPUs agree on"
        yield from body


def _kind(fleet: Fleet, node: str, seen: Seen) -> tuple[str, str]:
    """PCI device id and name of a GPU, by which the catalogue knows its product."""
    facts = fleet.nodes[node]
    name = facts.value("inventory", seen.device, "name")
    return product_id(facts, seen.device), str(name or "")


def _yaml(fact: Fact, value: Scalar) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if fact.kind != "text":
        return f"{number(value) or 0:.12g}"
    return json.dumps(_plain(str(value)))


def _plain(text: str) -> str:
    """What a node said, as it may stand in a comment or in quotes: one line, printable."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)[:NAMES]
