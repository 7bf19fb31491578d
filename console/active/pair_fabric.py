"""Verdicts on what many pairs share: all slow, places, halves, groups; nobody to drain. Pure."""

from __future__ import annotations

import statistics

from msgspec import structs

from console.active import expect, pair_words
from console.active.pair_groups import Fault
from console.active.pair_plan import PARTNERS
from console.active.pair_view import BAD, Edge, Look, View
from console.active.pair_words import gb_s, hosts
from console.active.results import Confidence, Verdict
from console.active.results import Level as TestLevel
from probes.event import Severity

MANY = 3
MANY_SHARE = 0.25
"""More suspects than three and a quarter of the nodes: a split, which names nobody for sure."""
PAST = 0.90
"""Share of the own past below which something changed: 10 %, as Greyhound's gate [science 1.3]."""
LOST = 0.85
"""Share of a pass mark below which it is critical (science 1.3's ratio gate)."""
ACROSS = 0.90
"""Pairs across places over pairs inside one; below it is worth a word."""


def many(view: View) -> bool:
    """Whether so many nodes are suspects that none of them is one by itself."""
    return len(view.unclear) > max(MANY, MANY_SHARE * len(view.nodes))


def all_slow(view: View) -> Verdict | None:
    """Even the best pairs below their pass mark, or all nodes below their own past."""
    return _below_mark(view) or _below_past(view)


def nobody_good(view: View) -> Verdict:
    """No pair has a figure."""
    edges = view.edges
    errors = [edge.run.error or edge.run.state.value for edge in edges]
    common = statistics.mode(errors)
    ran = sorted({n for e in edges for n in e.run.group.nodes}, key=view.nodes.index)
    software = pair_words.software(edges)
    two = len(ran) == 2
    return Verdict(
        kind="path" if two else "fabric",
        name="-".join(ran) if two else "all pairs",
        nodes=tuple(ran),
        verdict=Severity.UNKNOWN if software else Severity.CRITICAL,
        confidence=Confidence.SUSPECTED,
        say=f"none of {len(edges)} pair runs succeeded: {common[:120]}",
        evidence=tuple(dict.fromkeys(e[:160] for e in errors))[: pair_words.SHOWN],
        cause="software or settings that all share"
        if software or not two
        else "one of the two nodes, or their path: two nodes alone cannot tell",
        next_step="make one pair run by hand; names nobody",
    )


def _below_mark(view: View) -> Verdict | None:
    """All good pairs below what their NICs should carry."""
    best = [e.run for e in view.edges if e.look is Look.FAST]
    mark = expect.pair_share(best) if view.capacity else None
    if mark is None or best[0].group.rail is not None:
        return None
    share = statistics.median((run.busbw_gb_s or 0.0) / view.cap(run) for run in best)
    if share >= mark.value:
        return None
    cap = statistics.median(view.cap(run) for run in best)
    grave = share < LOST * mark.value
    return _all(
        view,
        f"all pairs are slow: {gb_s(share * cap)} of {gb_s(mark.value * cap)} GB/s where it is "
        "best",
        mark.value * cap,
        mark.provenance,
        Severity.CRITICAL if grave else Severity.WARN,
        pair_words.clues(best),
    )


def _below_past(view: View) -> Verdict | None:
    """All nodes below their own past."""
    shares, n = list[float](), 0
    for node in view.nodes:
        edges = [e for es in view.met[node].values() for e in es if e.share]
        best = max(edges, key=lambda e: e.share, default=None)
        if best is None or best.run.group.rail is not None:
            continue
        past = expect.own(view.expected, TestLevel.PAIRS, best.run, "busbw", node)
        if past is not None:
            shares.append((best.run.busbw_gb_s or 0.0) / past.value)
            n += 1
    if n * 2 <= len(view.nodes) or not shares or statistics.median(shares) >= PAST:
        return None
    share = statistics.median(shares)
    return _all(
            view,
        f"all pairs are slower than they were: {share:.0%} of their own past",
        None, f"own good results of {n} nodes", Severity.WARN, (),
    )  # fmt: skip


def _all(
    view: View,
    say: str,
    expected: float | None,
    provenance: str,
    verdict: Severity,
    clues: tuple[str, ...],
) -> Verdict:
    told = Verdict(
        kind="fabric", name="all pairs", nodes=tuple(view.nodes), verdict=verdict,
        confidence=Confidence.LIKELY, say=say, evidence=clues,
        cause="; ".join(clues) or "the fabric, settings all nodes share, or the expectation",
        next_step="look at NCCL's network (NCCL_DEBUG), GPUDirect and the fabric's load; no "
        "node stands out",
        expected=expected, provenance=provenance,
    )  # fmt: skip
    return _of_one_pair(told) if len(view.nodes) == 2 else told


def _of_one_pair(told: Verdict) -> Verdict:
    """The only pair there is: nothing tells the nodes and the fabric apart."""
    pair = "-".join(told.nodes)
    return structs.replace(
        told, kind="path", name=pair, confidence=Confidence.SUSPECTED,
        say=told.say.replace("all pairs are", f"{pair} is"),
        cause="; ".join(told.evidence) or pair_words.ONE_OF,
        next_step="two nodes alone cannot tell which: test them with a third one",
    )  # fmt: skip


def across(view: View) -> Verdict | None:
    """Pairs across places against pairs inside one, each kind with a level of its own."""
    for (engine, where), outer in view.levels.items():
        inner = view.levels.get((engine, "inside"))
        if where != "across" or inner is None or outer.value >= ACROSS * inner.value:
            continue
        share = outer.value / inner.value
        return Verdict(
            kind="fabric", name=f"across {view.key}s", nodes=tuple(view.nodes),
            verdict=Severity.WARN, confidence=Confidence.LIKELY,
            say=f"pairs across {view.key}s reach {share:.0%} of pairs inside one",
            evidence=(f"{outer.n} good pairs across, {inner.n} inside",),
            cause="uplinks: oversubscribed by design, congested, or some of them down",
            next_step="compare with the fabric's design; look at the uplinks; drain nobody",
            provenance=f"pairs inside one {view.key}, this test",
        )  # fmt: skip
    return None


def split(view: View) -> Verdict | None:
    """So many suspects that nobody knows which side is right."""
    suspects = view.unclear
    if not many(view):
        return None
    return Verdict(
        kind="group", name=f"{len(suspects)} of {len(view.nodes)} nodes",
        nodes=tuple(suspects), verdict=Severity.WARN, confidence=Confidence.SUSPECTED,
        say=f"{len(suspects)} of {len(view.nodes)} nodes were never fast: a split, not "
        "single nodes",
        evidence=(f"{len(view.edges)} pair runs, hosts {hosts(suspects)}",),
        cause="something these nodes share: a switch, a setting, a software version, a product",
        next_step="look for what they have in common (drift findings); test smaller groups",
    )  # fmt: skip


def group(view: View, fault: Fault) -> Verdict:
    """Nodes behind a common uplink, which are healthy."""
    which = " (or the other side: neither is the smaller)" if fault.half else ""
    sure = fault.inside >= PARTNERS and not fault.half
    return Verdict(
        kind="group", name=fault.name, nodes=fault.nodes, verdict=Severity.CRITICAL,
        confidence=Confidence.LIKELY if sure else Confidence.SUSPECTED,
        say=f"{fault.name}: slow with others ({fault.across} of {fault.tried} pairs), fine "
        f"inside ({fault.inside} pairs){which}",
        evidence=_group_evidence(view, fault),
        cause="what they share towards the rest: a leaf's uplinks, a cable bundle, routing",
        next_step="look at the uplinks of their switch; drain nobody: the nodes are healthy",
        provenance="good pairs of the same rounds",
    )  # fmt: skip


def _group_evidence(view: View, fault: Fault) -> tuple[str, ...]:
    inside, across = list[Edge](), list[Edge]()
    for edge in view.edges:
        ends = sum(n in fault.nodes for n in edge.run.group.nodes)
        if ends == 1 and edge.look in BAD:
            across.append(edge)
        elif ends == 2 and edge.look is Look.FAST:
            inside.append(edge)
    shown = [*inside[:2], *across[:3]]
    lines = [
        f"round {e.round} {'+'.join(e.run.group.nodes)}: {pair_words.figure(e.run)}" for e in shown
    ]
    return (f"hosts {hosts(fault.nodes)}", *lines)
