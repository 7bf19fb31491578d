"""Copies between GPUs of the active test: which GPU the slow pairs share."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator

from probes.checks.gpu_tested import PEERS_LEAST, Tested
from probes.checks.rule import Rule
from probes.event import Action, Finding, Severity
from probes.reading import number

SHOWN = 4

PEER = Rule(
    id="gpu_test.peer_copy",
    title="Copies between two GPUs are slow",
    severity=Severity.WARN,
    reads="copies from each GPU to each other, one way, one pair at a time",
    cause="NVLinks of one of them are down or slow, or peer access is off",
    action=Action.WATCH,
    next_step="nvidia-smi nvlink -s and -e on both; fabric manager; reset the GPU that all slow "
    "pairs share",
    source="pass marks by product in use at Azure [az]; the share of other pairs is our estimate",
    others="AzHC 238 (A100), 335 (H100) GB/s; SB; NVS loopback 150",
    example="GPU3 with 7 of 7 GPUs: 201 GB/s at best, floor of an H100-SXM5-80 335",
    limits=("gpu_test.peer_copy_peers",),
)


def slow_pairs(test: Tested) -> Iterator[Finding]:
    """A GPU that is slow with most others, else the single pairs."""
    slow = {pair: why for pair, values in test.pairs.items() if (why := _slow_pair(test, pair))}
    if not slow:
        return
    every = Counter(device for pair in test.pairs for device in pair)
    for device in shared(slow, test.pairs):
        pairs = [pair for pair in slow if device in pair]
        yield _pair_finding(test, device, pairs, slow, every[device])
        slow = {pair: why for pair, why in slow.items() if device not in pair}
    for pair in list(slow)[:SHOWN]:
        yield _pair_finding(test, ">".join(pair), [pair], slow, 1)


def shared(slow: Iterable[tuple[str, str]], tested: Iterable[tuple[str, str]]) -> list[str]:
    """GPUs that are slow with most others: of a bad GPU's pairs its partners have one each, so
    they are not to blame. [] when as many are as no single GPU explains."""
    share = Counter(device for pair in slow for device in pair)
    every = Counter(device for pair in tested for device in pair)
    named = [d for d, n in share.items() if every[d] >= PEERS_LEAST and 2 * n > every[d]]
    return named if len(named) <= max(1, len(every) // 4) else []


def _slow_pair(test: Tested, pair: tuple[str, str]) -> str:
    """What a pair should reach, in words; "" when it does, or nothing is known."""
    value = number(test.pairs[pair].get("p2p_gb_s"))
    if value is None or any(device not in test.gpus for device in pair):
        return ""
    product = test.product(pair[0])
    floor = None if product is None else product.p2p_floor_gb_s
    if floor is not None and product is not None:
        return f"floor of {product.name} {floor:g} GB/s" if value < floor else ""
    if product is None or not product.nvlink_links or product.nvlink_bridge:
        return ""
    rates = [number(values.get("p2p_gb_s")) for values in test.pairs.values()]
    known = [rate for rate in rates if rate is not None]
    share = test.look.rules.limit("gpu_test.peer_copy_peers")
    usual = statistics.median(known)
    enough = len(known) >= 2 * PEERS_LEAST
    return f"median of all pairs {usual:.0f} GB/s" if enough and value < share.value * usual else ""


def _pair_finding(
    test: Tested,
    device: str,
    pairs: list[tuple[str, str]],
    slow: dict[tuple[str, str], str],
    of: int,
) -> Finding:
    facts = test.look.facts
    rates = {pair: number(test.pairs[pair].get("p2p_gb_s")) or 0.0 for pair in pairs}
    best = max(rates.values())
    label = ">".join(facts.gpu_label(one) for one in device.split(">"))
    where = f"with {len(pairs)} of {of} copies" if len(pairs) > 1 else "copy"
    lines = [
        f"{facts.gpu_label(one)} to {facts.gpu_label(other)}: {rate:.0f} GB/s"
        for (one, other), rate in list(rates.items())[:SHOWN]
    ]
    off = any(test.pairs[pair].get("peer") is False for pair in pairs)
    single = len(pairs) == 1
    return PEER.finding(
        test.look, f"peer {where} slow: {best:.0f} GB/s at best, {slow[pairs[0]]}", tuple(lines),
        device=device, label=label, value=best,
        severity=Severity.WARN if single else Severity.CRITICAL,
        action=Action.WATCH if single else Action.DRAIN,
        cause="peer access is off between them: ACS, IOMMU or a virtual machine" if off else "",
        limit=test.look.rules.limit("gpu_test.peer_copy_peers"),
    )  # fmt: skip
