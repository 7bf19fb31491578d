"""Nodes, GPUs and adapters that differ from most of their role."""

from __future__ import annotations

from collections.abc import Iterator

from probes.checks import site
from probes.checks.rule import Look, Rule
from probes.drift import Odd, Split, near, odd, odd_words, shown, size_of
from probes.drift_facts import FACTS, Fact, Seen
from probes.event import Action, Finding, Scalar, Severity

NODE_ODD = Rule(
    id="drift.node",
    title="The node differs from most of its role",
    severity=Severity.INFO,
    reads="versions, firmware, sizes and settings against the majority of the role",
    cause="an upgrade that missed it or came too early, another image, a repair with other parts",
    action=Action.FIX_CONFIG,
    next_step="bring it in line with its peers, or give it a role of its own",
    source="our rule: differences are information; facts that break jobs warn (data/drift.yaml)",
    others="PRI compares by majority (AMD); CHS with a golden file; GCM, SCK and imbue with a "
    "manifest; NHC memory ±5 %",
    example="driver 570.124.06; 580.95.05 on 15 of 16 nodes",
    limits=("drift.size_tolerance",),
)
GPU_ODD = Rule(
    id="drift.gpu",
    title="The GPU differs from the others of its product",
    severity=Severity.INFO,
    reads="VBIOS, InfoROM, modes, clocks and limits against all GPUs of the product in the role",
    cause="an exchanged card, a flash that missed it, or a setting that did not survive a reset",
    action=Action.FIX_CONFIG,
    next_step="flash or set it as its siblings; look for a reset or an exchange in its history",
    source="our rule: differences are information; facts that break jobs warn (data/drift.yaml)",
    others="GCM: VBIOS other than configured is an error; AzHC, imbue list unique versions",
    example="GPU5: VBIOS 96.00.74.00.01; 96.00.89.00.01 on 127 of 128 GPUs",
)
PORT_ODD = Rule(
    id="drift.nic_firmware",
    title="Adapter firmware differs from the others of its type",
    severity=Severity.WARN,
    reads="fw_ver of each RDMA adapter against all of its type in the role",
    cause="an exchanged adapter, or a flash that missed it",
    action=Action.FIX_CONFIG,
    next_step="flash it with the version of the others; the node needs a reboot for it",
    source="GCM, SCK and imbue compare with a manifest, CVS and PRI with the majority",
    others="GCM, SCK, imbue, CVS, PRI",
    example="mlx5_3: firmware 28.36.1010; 28.39.3560 on 127 of 128 ports",
)
CMDLINE = Rule(
    id="drift.cmdline",
    title="The kernel command line differs from most of the role",
    severity=Severity.INFO,
    reads="/proc/cmdline as a set of words, options of a single node left out",
    cause="another boot configuration: IOMMU, PCI, hugepage or isolation options",
    action=Action.FIX_CONFIG,
    next_step="compare /proc/cmdline with a peer's; rebuild the boot configuration; reboot",
    source="PRI compares the kernel command line by majority",
    others="PRI",
    example="lacks iommu=pt, which 15 of 16 nodes have",
)
SPLIT = Rule(
    id="drift.split",
    title="The role is split: no majority",
    severity=Severity.INFO,
    reads="the same facts, where no value is on more than half",
    cause="a rolling upgrade half way, or two kinds of nodes in one role",
    action=Action.NONE,
    next_step="wait for the upgrade, or give the halves roles of their own in the inventory",
    source="our rule: without a majority nobody is the odd one",
    others="-",
    example="driver: 580.95.05 on gpu[001-008], 570.124.06 on gpu[009-016]",
)
RULES = (NODE_ODD, GPU_ODD, PORT_ODD, CMDLINE, SPLIT)

NAMED = 4
"""Facts or words in one sentence; the evidence has all that fit."""


def check(look: Look) -> Iterator[Finding]:
    """What the site has settled is not compared with peers."""
    settled = site.settled(look)
    odds = [found for found in odd(look.facts, look.peers.drift) if _counts(look, found, settled)]
    yield from _nodes(look, [found for found in odds if FACTS[found.seen.fact].per == "node"])
    yield from _gpus(look, [found for found in odds if FACTS[found.seen.fact].per == "gpu"])
    for found in odds:
        if FACTS[found.seen.fact].per == "port":
            port = found.seen.device
            yield _finding(look, PORT_ODD, [found], device=port, label=port)
    yield from _cmdline(look)
    if look.peers.drift.first == look.facts.node.name:
        yield from _splits(look)


def _severity(look: Look, found: Odd) -> Severity:
    counts = look.rules.drift[found.seen.fact]
    more = size_of(found.seen.value) > size_of(found.usual.value)
    warns = counts.severity == "warn" and not (counts.fewer and more)
    return Severity.WARN if warns else Severity.INFO


def _counts(look: Look, found: Odd, settled: frozenset[str]) -> bool:
    fact = FACTS[found.seen.fact]
    if fact.name in settled or look.rules.drift[fact.name].severity == "off":
        return False
    if fact.name == "gpu_count" and size_of(found.seen.value) < size_of(found.usual.value):
        return False  # gpu.count's
    tolerance = look.rules.limit("drift.size_tolerance").value
    return not near(fact, found.seen.value, found.usual.value, tolerance)


# ---------------------------------------------------------------------- peers


def _nodes(look: Look, odds: list[Odd]) -> Iterator[Finding]:
    """One finding for each fact that warns, one for all that only inform."""
    graded = [(found, _severity(look, found)) for found in odds]
    for found, severity in graded:
        if severity is Severity.WARN:
            name = found.seen.fact
            yield _finding(look, NODE_ODD, [found], device=name, severity=severity)
    rest = [found for found, severity in graded if severity is not Severity.WARN]
    if rest:
        yield _finding(look, NODE_ODD, rest)


def _gpus(look: Look, odds: list[Odd]) -> Iterator[Finding]:
    """One finding for each fact and value, however many GPUs of the node have it."""
    alike: dict[tuple[str, Scalar], list[Odd]] = {}
    for found in odds:
        alike.setdefault((found.seen.fact, found.seen.value), []).append(found)
    for (fact, _), same in alike.items():
        labels = [look.facts.gpu_label(found.seen.device) for found in same]
        device = same[0].seen.device if len(same) == 1 else fact
        label = ", ".join(labels) if len(labels) <= NAMED else f"{len(labels)} GPUs"
        severity = _severity(look, same[0])
        yield _finding(look, GPU_ODD, same[:1], device=device, label=label, severity=severity)


def _finding(
    look: Look,
    rule: Rule,
    odds: list[Odd],
    *,
    device: str = "",
    label: str = "",
    severity: Severity | None = None,
) -> Finding:
    lines = [_sentence(found) for found in odds]
    say = "; ".join(lines[:NAMED]) + (f"; {len(lines) - NAMED} more" if lines[NAMED:] else "")
    counts = look.rules.drift[odds[0].seen.fact]
    return rule.finding(
        look, f"{label}: {say}" if label else say, tuple(lines), device=device, label=label,
        severity=severity, value=odds[0].seen.value if len(odds) == 1 else None,
        source=counts.source if len(odds) == 1 else "",
        cause=counts.help if severity is Severity.WARN and rule is NODE_ODD else "",
    )  # fmt: skip


def _sentence(found: Odd) -> str:
    fact = FACTS[found.seen.fact]
    what = {"node": "nodes", "gpu": "GPUs", "port": "ports"}[fact.per]
    usual = found.usual
    share = f"{shown(fact, usual.value)} on {usual.count} of {usual.total} {what}"
    return f"{_named(fact, found.seen)} {shown(fact, found.seen.value)}; {share}"


def _named(fact: Fact, seen: Seen) -> str:
    if fact.name == "memlock":
        return f"memlock of {seen.group}"
    return seen.group if fact.name == "sysctl" else fact.label


def _cmdline(look: Look) -> Iterator[Finding]:
    severity = look.rules.drift["cmdline"].severity
    words = look.peers.drift.words
    extra, lacks = ([], []) if severity == "off" else odd_words(look.facts, words)
    if not extra and not lacks:
        return
    parts = [f"lacks {', '.join(lacks[:NAMED])}"] if lacks else []
    parts += [f"has {', '.join(extra[:NAMED])}"] if extra else []
    evidence = [f"only here or on few: {word}" for word in extra]
    evidence += [f"on most of {words.total} nodes: {word}" for word in lacks]
    yield CMDLINE.finding(
        look, f"kernel command line {' and '.join(parts)}, unlike most of {words.total} nodes",
        tuple(evidence), severity=Severity(severity), source=look.rules.drift["cmdline"].source,
    )  # fmt: skip


def _splits(look: Look) -> Iterator[Finding]:
    """On one node of the role, as each is about all of them."""
    from inventory.expressions import fold  # ClusterShell takes 60 ms, and `explain` folds nothing

    stated = look.rules.roles.get(look.facts.node.role, {})
    for split in look.peers.drift.splits:
        if split.fact in stated or look.rules.drift[split.fact].severity == "off":
            continue
        fact = FACTS[split.fact]
        halves = [f"{shown(fact, value)} on {fold(names)}" for value, _, names in split.halves]
        name = split.group if fact.name == "sysctl" else fact.label
        role = look.facts.node.role
        yield SPLIT.finding(
            look, f"role {role} is split over {name}: {'; '.join(halves)}", _halves(fact, split),
            device=f"{fact.name} {split.group}".strip(), label=name,
            source=look.rules.drift[split.fact].source,
        )  # fmt: skip


def _halves(fact: Fact, split: Split) -> tuple[str, ...]:
    from inventory.expressions import fold

    return tuple(
        f"{shown(fact, value)}: {count} of {sum(n for _, n, _ in split.halves)}, {fold(names)}"
        for value, count, names in split.halves
    )
