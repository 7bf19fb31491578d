"""Nodes and GPUs against what the site's own file says they have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from probes.checks.rule import Look, Rule
from probes.drift import near, shown, size_of
from probes.drift_facts import FACTS, GPU, NODE, PORT, Seen, flags, of
from probes.event import Action, Finding, Severity
from probes.expect import product_id
from probes.expectations import LISTS, Expectations, Expected

SITE = Rule(
    id="site.expected",
    title="Not as the site's overlay says",
    severity=Severity.WARN,
    reads="sections roles and products of the file given with --rules, against the node's facts",
    cause="a part is missing or was exchanged, or the overlay is older than the fleet",
    action=Action.FIX_CONFIG,
    next_step="mend the node, or correct the overlay (`gpuconsole doctor --learn` proposes one)",
    source="our rule: the site's word goes before peers and catalogue",
    others="GCM, SCK, CHS and NHC compare with files of the site",
    example="7 RDMA ports; site overlay says 8 (site.yaml:3)",
    limits=("drift.size_tolerance",),
)
RULES = (SITE,)


def settled(look: Look) -> frozenset[str]:
    """Facts about which the site has spoken, for this node's role and the products of its GPUs."""
    found = set(look.rules.roles.get(look.facts.node.role, ()))
    for expected in _products(look).values():
        found |= expected.keys()
    return frozenset(found)


def _products(look: Look) -> dict[str, Expectations]:
    """GPU -> what the site expects of its product; each product is looked up once."""
    known: dict[str, Expectations] = {}
    found: dict[str, Expectations] = {}
    for device, _ in look.facts.devices("inventory") if look.rules.expected else ():
        kind = product_id(look.facts, device)
        if device and kind not in known:
            product = look.rules.product(kind)
            known[kind] = look.rules.expected.get(product.name, {}) if product else {}
        if device:
            found[device] = known[kind]
    return found


def check(look: Look) -> Iterator[Finding]:
    """The overlay's sections roles and products."""
    stated = look.rules.roles.get(look.facts.node.role, {})
    if not stated and not look.rules.expected:
        return
    parts = of(look.facts)
    for seen in (*parts[NODE], *parts[PORT]):
        expected = stated.get(seen.fact)
        if expected is None or _as_stated(look, seen, expected) or _told(seen, expected):
            continue
        yield _unlike(look, seen, expected, device=seen.fact)
    yield from _lists(look)
    of_gpus = _products(look)
    for seen in parts[GPU]:
        expected = of_gpus.get(seen.device, {}).get(seen.fact)
        if expected is not None and not _as_stated(look, seen, expected):
            label = look.facts.gpu_label(seen.device)
            yield _unlike(look, seen, expected, device=seen.device, label=label)


def _told(seen: Seen, expected: Expected) -> bool:
    """Missing GPUs are gpu.count's, which names them and weighs why."""
    fewer = expected.least is not None and size_of(seen.value) < expected.least
    return seen.fact == "gpu_count" and fewer


def _as_stated(look: Look, seen: Seen, expected: Expected) -> bool:
    fact = FACTS[seen.fact]
    tolerance = look.rules.limit("drift.size_tolerance").value
    if any(near(fact, seen.value, value, tolerance) for value in expected.values):
        return True
    least = min(map(size_of, expected.values))
    return look.rules.drift[fact.name].fewer and size_of(seen.value) > least


def _unlike(look: Look, seen: Seen, expected: Expected, *, device: str, label: str = "") -> Finding:
    fact = FACTS[seen.fact]
    wanted = " or ".join(shown(fact, value) for value in expected.values)
    have = shown(fact, seen.value)
    words = f"{have} {fact.label}" if fact.kind == "count" and not fact.unit else ""
    say = f"{words or f'{fact.label} {have}'}; site overlay says {wanted}"
    return SITE.finding(
        look, f"{label}: {say}" if label else say, (f"{say} ({expected.source})",), device=device,
        label=label, value=seen.value, source=f"site overlay, {expected.source}",
    )  # fmt: skip


def _lists(look: Look) -> Iterator[Finding]:
    """Services that must run and modules that must be loaded."""
    stated = look.rules.roles.get(look.facts.node.role, {})
    holds = flags(look.facts) if any(name in stated for name in LISTS) else {}
    for section, word, verb in (
        ("services", "service", "runs"),
        ("modules", "module", "is loaded"),
    ):
        expected = stated.get(section)
        for name in _missing(holds, word, expected):
            assert expected is not None
            say = f"{word} {name} {'does not run' if verb == 'runs' else 'is not loaded'}; "
            say += f"site overlay says it {verb}"
            yield SITE.finding(
                look, say, (f"{say} ({expected.source})",), device=f"{word}.{name}", label=name,
                source=f"site overlay, {expected.source}",
                action=Action.RESTART_SERVICE if word == "service" else None,
            )  # fmt: skip


def _missing(holds: dict[str, bool], word: str, expected: Expected | None) -> Iterable[str]:
    names = () if expected is None else expected.values
    return [str(name) for name in names if holds.get(f"{word}.{name}") is False]
