"""Verdicts of the levels gpu and node: what is slow alone, before pairs are asked. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from msgspec import structs

from console.active.expect import Expected
from console.active.level import CPU_ENGINES
from console.active.pair_words import ERROR_CHARS, SOFTWARE, cut
from console.active.results import Confidence, Level, Progress, Run, Verdict
from console.active.votes import FULL_NODE, Item, items
from inventory.expressions import in_order
from probes.checks.gpu_test_pairs import shared
from probes.event import Severity

WORST_FIRST = {Confidence.CERTAIN: 0, Confidence.LIKELY: 1, Confidence.SUSPECTED: 2}
OTHERS = 3
"""Nodes that ran well from which one that failed stands out."""
CAUSES = {
    "gemm_bf16": "clock, power or heat of the GPU: see its thermal and power findings",
    "gemm_fp8": "clock, power or heat of the GPU: see its thermal and power findings",
    "hbm_copy": "memory: ECC, row remaps, memory clock or heat",
    "h2d": "its PCIe link: width, generation, or the host's memory and IOMMU",
    "d2h": "its PCIe link: width, generation, or the host's memory and IOMMU",
    "p2p": "an NVLink of one of them, or its NVSwitch port",
    "busbw": "a slow GPU or NVLink of the node, or NVLS is not used",
    "busbw_ring": "one NVLink or NVSwitch port: a ring goes through every link, NVLS hides it",
}
NEXT = {
    "gpu": "drain; look at the findings of this GPU, reset it, test again",
    "node": "drain; look at nvlink and thermal findings, run level gpu, test again",
    "path": "look at the NVLinks between them: nvlink findings, then level node with the ring",
}
UNSURE = "only one comparison says so: test it again before draining"


def judge_solo(level: Level, runs: Sequence[Run], expected: Expected) -> list[Verdict]:
    """Per node one ok verdict, or one for each GPU, link or node that is slow."""
    by_node: dict[str, list[Item]] = defaultdict(list)
    for item in items(level, runs, expected):
        by_node[item.reading.node].append(item)
    latest = {run.group.nodes[0]: run for run in runs if len(run.group.nodes) == 1}
    done = sum(run.state is Progress.DONE for run in latest.values())
    found: list[Verdict] = []
    for node in in_order(latest):
        told = by_node.get(node, [])
        if latest[node].state is not Progress.DONE:
            found.append(_failed(node, latest[node], done, expected))
        else:
            found += list(_slow(level, node, told, expected)) or [_fine(node, told)]
    return found


def with_expected(level: Level, runs: Sequence[Run], expected: Expected) -> list[Run]:
    """The runs with what each reading should be, by whose word, and how it fares."""
    told: dict[int, list[Item]] = defaultdict(list)
    for item in items(level, runs, expected):
        told[id(item.run)].append(item)
    return [
        structs.replace(run, readings=tuple(i.reading for i in told[id(run)]))
        if id(run) in told
        else run
        for run in runs
    ]


def _slow(level: Level, node: str, told: Sequence[Item], expected: Expected) -> Iterable[Verdict]:
    """The node when half of its GPUs agree, else each GPU or link by itself."""
    bad = [item for item in told if item.against]
    if level is Level.NODE:
        product = expected.spec(node).product
        usual = product and product.allreduce_ring_gb_s
        nvls = _nvls(told, expected.limit("nccl.nvls_gain"), usual or math.inf)
        if bad:
            yield _verdict("node", node, node, bad, nvls)
        elif nvls and product and product.allreduce_nvls_gb_s and told[0].run.ranks == FULL_NODE:
            yield _no_nvls(node, told, nvls)
        return
    singles: dict[str, list[Item]] = defaultdict(list)
    links: dict[tuple[str, str], list[Item]] = defaultdict(list)
    for item in bad:
        a, _, b = item.reading.device.partition(">")
        if b:
            links[a, b].append(item)
        else:
            singles[a].append(item)
    gpus = {i.reading.device for i in told if ">" not in i.reading.device}
    if len(singles) >= 2 and len(singles) * 2 >= len(gpus):
        everything = [item for found in singles.values() for item in found]
        yield _verdict("node", node, node, everything, "")
        singles.clear()
    labels = _labels(told)
    blamed = _ends(links, told)
    for device in dict.fromkeys([*singles, *blamed]):
        mine = [*singles.get(device, []), *blamed.get(device, [])]
        one = _verdict("gpu", node, f"{node} {labels.get(device, device)}", mine, "")
        yield _by_partners(one) if device in blamed else one
    for (a, b), found in links.items():
        if a not in blamed and b not in blamed:
            name = f"{node} {labels.get(a, a)}-{labels.get(b, b)}"
            yield _verdict("path", node, name, found, "")


def _labels(told: Sequence[Item]) -> dict[str, str]:
    """PCI address -> "GPU3", from readings of one GPU and of two."""
    found: dict[str, str] = {}
    for item in told:
        devices, labels = item.reading.device.split(">"), item.reading.label.split(">")
        if len(devices) == len(labels):
            found.update((d, n) for d, n in zip(devices, labels, strict=True) if n)
    return found


def _ends(
    links: Mapping[tuple[str, str], list[Item]], told: Sequence[Item]
) -> dict[str, list[Item]]:
    """GPUs that most of their slow peer copies share, as the findings name them."""
    every = [(a, b) for i in told for a, sep, b in [i.reading.device.partition(">")] if sep]
    return {
        gpu: [i for pair, found in links.items() if gpu in pair for i in found]
        for gpu in shared(links, every)
    }


def _by_partners(one: Verdict) -> Verdict:
    """Several partners agree on this GPU, whatever each single copy proves."""
    if one.confidence is not Confidence.SUSPECTED and one.verdict is Severity.CRITICAL:
        return one
    return structs.replace(
        one, verdict=Severity.CRITICAL, confidence=Confidence.LIKELY, next_step=NEXT["gpu"]
    )


def _nvls(told: Sequence[Item], gain: float, usual_ring: float) -> str:
    """Whether the node's all-reduce is no faster than its ring, where NVLS should make it so.

    One that is faster than any ring of the product uses NVLS, whatever the second run used.
    """
    busbw = next((i.reading.value for i in told if i.reading.what == "busbw"), None)
    ring = next((i.reading.value for i in told if i.reading.what == "busbw_ring"), None)
    if busbw is None or ring is None or busbw >= gain * min(ring, usual_ring):
        return ""
    return f"NVLS does not seem to be used: {busbw:.0f} GB/s is no more than the ring's {ring:.0f}"


def _no_nvls(node: str, told: Sequence[Item], nvls: str) -> Verdict:
    """The figures pass; that the ring is as fast is worth a warning all the same."""
    run = told[0].run
    return Verdict(
        kind="node", name=node, nodes=(node,), verdict=Severity.WARN,
        confidence=Confidence.SUSPECTED, say=f"{node}: {nvls}", evidence=run.clues[:4],
        cause=CAUSES["busbw"], next_step=UNSURE,
    )  # fmt: skip


def _verdict(kind: str, node: str, name: str, bad: Sequence[Item], cause: str) -> Verdict:
    """One verdict from all that speaks against one thing; the surest and worst figure leads."""
    first = min(bad, key=lambda i: (WORST_FIRST[i.sure], _share(i)))
    reading = first.reading
    hard = tuple(dict.fromkeys(i.hard for i in bad if i.hard))
    evidence = [f"{i.reading.what} {i.reading.label} {w}".replace("  ", " ") for i in bad[:6]
                for w in i.against]  # fmt: skip
    sure = first.sure is not Confidence.SUSPECTED
    clues = tuple(dict.fromkeys(clue for item in bad for clue in item.run.clues))
    return Verdict(
        kind=kind, name=name, nodes=(node,), verdict=first.severity, confidence=first.sure,
        say=f"{name}: {reading.what} {reading.value:.3g} of {reading.expected or 0:.3g} "
        f"{reading.unit}",
        evidence=(*evidence[:8], *hard, *clues[:4]),
        cause="; ".join((*hard, *filter(None, (cause,)))) or CAUSES.get(reading.what, ""),
        next_step=NEXT[kind] if sure else UNSURE,
        expected=reading.expected, unit=reading.unit, provenance=reading.provenance,
    )  # fmt: skip


def _share(item: Item) -> float:
    return item.reading.value / item.reading.expected if item.reading.expected else 1.0


def _fine(node: str, told: Sequence[Item]) -> Verdict:
    """ok, or unknown when nothing was there to compare with."""
    judged = [item for item in told if item.compared]
    lead = next(iter(judged or told), None)
    figure = "" if lead is None else f"{lead.reading.what} {lead.reading.value:.3g} "
    figure += "" if lead is None else lead.reading.unit
    if not judged:
        cpu = lead is not None and lead.run.engine in CPU_ENGINES
        why = "too few peers with the same engine" if cpu else "no catalogue figure, peers or past"
        return Verdict(
            kind="node", name=node, nodes=(node,), verdict=Severity.UNKNOWN,
            confidence=Confidence.SUSPECTED,
            say=f"{node}: {figure or 'no figure'}, nothing to compare with ({why})",
            next_step="test more nodes at once, or again: its own past then tells",
        )  # fmt: skip
    assert lead is not None
    return Verdict(
        kind="node", name=node, nodes=(node,), verdict=Severity.OK, confidence=Confidence.LIKELY,
        say=f"{node}: {figure}, {len(judged)} figure{'s' * (len(judged) != 1)} as expected",
        expected=lead.reading.expected, unit=lead.reading.unit, provenance=lead.reading.provenance,
    )  # fmt: skip


def _failed(node: str, run: Run, done: int, expected: Expected) -> Verdict:
    """No figure. Wrong data is hardware; anything else only stands out when others ran well."""
    hard = expected.hard.get((node, ""), "")
    wrong = run.state is Progress.FAILED and "wrong value" in run.error
    ran = run.state in (Progress.FAILED, Progress.TIMED_OUT)
    stands_out = ran and done >= OTHERS and not SOFTWARE.search(run.error)
    severity = Severity.WARN if stands_out else Severity.UNKNOWN
    if wrong or (stands_out and hard):
        severity = Severity.CRITICAL
    return Verdict(
        kind="node", name=node, nodes=(node,), verdict=severity,
        confidence=Confidence.LIKELY if severity is Severity.CRITICAL else Confidence.SUSPECTED,
        say=f"{node}: {run.state.value}{': ' + cut(run.error, ERROR_CHARS) if run.error else ''}",
        evidence=tuple(filter(None, (hard, *run.clues[:4]))),
        cause="a GPU, link or NIC corrupts data without noticing" if wrong else hard,
        next_step="drain; run the field diagnostic on each GPU" if wrong
        else "see why it did not run, then test it again",
    )  # fmt: skip
