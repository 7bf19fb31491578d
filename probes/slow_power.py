"""GPUs of one node and product whose power limit is below that of most of their siblings. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from probes import slow_words
from probes.event import Finding
from probes.loaded import Gpu, Key
from probes.rule import Look
from probes.slow_rules import POWER_LIMIT
from probes.spread import spread


def check(look: Look, gpus: Sequence[Gpu], weak: int) -> Iterator[Finding]:
    """`weak`: GPUs of a product from which most of them say what is usual."""
    limits = {gpu.limit_w for gpu in gpus}
    if len(limits) < 2:
        return
    products: dict[Key, list[Gpu]] = defaultdict(list)
    for gpu in gpus:
        if gpu.limit_w:
            products[gpu.product].append(gpu)
    for siblings in products.values():
        yield from _siblings(look, siblings, weak)


def _siblings(look: Look, siblings: list[Gpu], weak: int) -> Iterator[Finding]:
    usual = spread(gpu.limit_w for gpu in siblings if gpu.limit_w is not None)
    if usual is None:
        return
    slack = look.rules.limit("power.below_default")
    floor_w, most_w = slack.value * usual.median, usual.median / slack.value
    rest = [gpu for gpu in siblings if floor_w <= (gpu.limit_w or 0.0) <= most_w]
    if len(rest) < weak - 1 or len(rest) * 2 <= len(siblings):
        return
    for gpu in siblings:
        if (gpu.limit_w or 0.0) < floor_w:
            words = slow_words.power_limit(gpu, rest, usual.median)
            yield POWER_LIMIT.finding(
                look, words.say, words.evidence, device=gpu.device, label=gpu.label,
                value=gpu.limit_w, limit=slack,
            )  # fmt: skip
