"""Reading rule data from YAML: every field typed, every problem with file, line and nearest key."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import yaml
from msgspec import Struct

from inventory import marked
from inventory.marked import Problems
from inventory.nearest import nearest
from probes.event import Action, Severity

MAX_CODE = 99_999
"""Xids have up to three digits, SXids five."""
KINDS = ("hw", "fabric", "app", "drv", "meta", "follow-up")
COUNTING = ("off", "info", "warn")
FORMS = ("sxm", "pcie", "superchip")

_FIGURE = re.compile(r"[-+]?[0-9.]+([eE][-+]?[0-9]+)?")

Reader: TypeAlias = Callable[[yaml.Node, str, Problems], object | None]
"""Value, its name in messages, problems -> the value, or None with a problem remembered."""


class Entry(Struct, frozen=True):
    """One entry of a section: its key's place and the fields it sets."""

    key: yaml.Node
    values: dict[str, object]

    @property
    def line(self) -> int:
        """Line of the key, from 1."""
        return marked.line_of(self.key)


def figure(node: yaml.Node, what: str, problems: Problems) -> float | None:
    """A finite decimal number, with or without exponent and sign."""
    raw = node.value if isinstance(node, yaml.ScalarNode) else ""
    try:
        value = float(raw) if _FIGURE.fullmatch(raw) else math.nan
    except ValueError:
        value = math.nan
    if math.isfinite(value):
        return value
    problems.add(node, f"{what} is {repr(raw) if raw else marked.kind(node)}", "a number")
    return None


def whole(node: yaml.Node, what: str, problems: Problems) -> int | None:
    """A whole number from 0 to a million."""
    return marked.number(node, what, 0, 1_000_000, problems)


def one_of(*valid: str) -> Reader:
    """Reader of one word out of a fixed set."""

    def read(node: yaml.Node, what: str, problems: Problems) -> str | None:
        word = marked.text(node, what, problems)
        if word is None or word in valid:
            return word
        problems.add(node, f"{what} is {word!r}", nearest(word, valid))
        return None

    return read


def severity(node: yaml.Node, what: str, problems: Problems) -> Severity | None:
    """A Severity by its word."""
    word = one_of(*Severity)(node, what, problems)
    return None if word is None else Severity(str(word))


def action(node: yaml.Node, what: str, problems: Problems) -> Action | None:
    """An Action by its word."""
    word = one_of(*Action)(node, what, problems)
    return None if word is None else Action(str(word))


def texts(node: yaml.Node, what: str, problems: Problems) -> tuple[str, ...]:
    """A list of texts; one text counts as a list of one."""
    entries = marked.words(node, what, problems)
    return tuple(word for e in entries if (word := marked.text(e, what, problems)) is not None)


def pci_ids(node: yaml.Node, what: str, problems: Problems) -> tuple[str, ...]:
    """PCI device ids in lower case, without 0x."""
    found = tuple(word.lower().removeprefix("0x") for word in texts(node, what, problems))
    for word in found:
        if not re.fullmatch(r"[0-9a-f]{4}", word):
            problems.add(node, f"{what} has {word!r}", 'four hex digits in quotes, as "2330"')
    return found


def counting(node: yaml.Node, what: str, problems: Problems) -> str | None:
    """off, info or warn; YAML takes a bare `off` for false."""
    word = str(node.value).lower() if isinstance(node, yaml.ScalarNode) else ""
    if word in COUNTING:
        return word
    problems.add(node, f"{what} is {word[:80]!r}", nearest(word, COUNTING))
    return None


THRESHOLD: dict[str, Reader] = {
    "value": figure, "unit": marked.text, "source": marked.text, "help": marked.text,
}  # fmt: skip
MEANING: dict[str, Reader] = {
    "name": marked.text, "kind": one_of(*KINDS), "severity": severity, "action": action,
    "cause": marked.text, "next_step": marked.text, "source": marked.text, "hard": marked.truth,
    "others": marked.text,
    "example": marked.text,
}  # fmt: skip
HARDWARE: dict[str, Reader] = {
    "pci_ids": pci_ids, "nvml_names": texts, "form": one_of(*FORMS), "mem_gb": figure,
    "mem_bw_gb_s": figure, "tdp_w": figure, "bf16_tflops": figure, "fp16_tflops": figure,
    "fp8_tflops": figure, "nvlink_gen": whole, "nvlink_links": whole, "nvlink_gb_s": figure,
    "nvlink_mbps": whole, "nvlink_bridge": marked.truth, "pcie_gen": whole, "pcie_width": whole,
    "allreduce_floor_gb_s": figure, "gemm_bf16_tflops": figure, "gemm_fp8_tflops": figure,
    "mem_copy_floor_gb_s": figure, "allreduce_nvls_gb_s": figure, "allreduce_ring_gb_s": figure,
    "p2p_floor_gb_s": figure, "temp_slowdown_c": figure, "mem_temp_max_c": figure,
    "verified": marked.truth, "source": marked.text,
}  # fmt: skip
DRIFT: dict[str, Reader] = {
    "severity": counting, "fewer": marked.truth, "source": marked.text, "help": marked.text,
}  # fmt: skip
SECTIONS = {
    "thresholds": THRESHOLD, "hardware": HARDWARE, "xid": MEANING, "sxid": MEANING, "drift": DRIFT,
}  # fmt: skip
"""Section -> its fields. A packaged file holds one section, an overlay any of them by name."""
NULLABLE = frozenset(
    {"bf16_tflops", "fp16_tflops", "fp8_tflops", "nvlink_mbps", "pcie_gen", "pcie_width"}
    | {"allreduce_floor_gb_s", "temp_slowdown_c", "mem_temp_max_c", "p2p_floor_gb_s"}
    | {"gemm_bf16_tflops", "gemm_fp8_tflops", "mem_copy_floor_gb_s"}
    | {"allreduce_nvls_gb_s", "allreduce_ring_gb_s"}
)
"""Fields that `null` makes unknown."""


def section(node: yaml.Node, name: str, problems: Problems) -> Iterator[tuple[str, Entry]]:
    """Key and Entry of everything in one section."""
    for key, value in marked.items(node, name, problems):
        if name == "thresholds" and isinstance(value, yaml.ScalarNode):
            limit = figure(value, shown(key), problems)
            yield key.value, Entry(key, {} if limit is None else {"value": limit})
        elif name == "drift" and isinstance(value, yaml.ScalarNode):
            word = counting(value, shown(key), problems)
            yield key.value, Entry(key, {} if word is None else {"severity": word})
        else:
            yield key.value, Entry(key, fields(value, shown(key), SECTIONS[name], problems))


def shown(key: yaml.Node) -> str:
    """A key as it may stand in a message: short, and quoted when it is not printable."""
    text = str(key.value)[:80]
    return text if text.isprintable() else repr(text)


def fields(
    node: yaml.Node, what: str, readers: dict[str, Reader], problems: Problems
) -> dict[str, object]:
    """The fields of one entry; unknown names are problems with the nearest valid one."""
    found: dict[str, object] = {}
    for key, value in marked.items(node, what, problems):
        reader = readers.get(key.value)
        if reader is None:
            unknown(key, f"{what} has no field", readers, problems)
        elif value.tag.endswith(":null") and key.value in NULLABLE:
            found[key.value] = None
        elif (read := reader(value, f"{what}: {key.value}", problems)) is not None:
            found[key.value] = read
    return found


def unknown(key: yaml.Node, what: str, valid: Iterable[str], problems: Problems) -> None:
    """Remember a key that nothing knows."""
    problems.add(key, f"{what} {str(key.value)[:80]!r}", nearest(str(key.value), valid))


def codes(key: yaml.Node, problems: Problems) -> tuple[int, ...]:
    """Codes of an xid key: 79, or ranges as in "39-41,70"."""
    found: list[int] = []
    for part in str(key.value).split(","):
        match = re.fullmatch(r"\s*([0-9]{1,5})(?:-([0-9]{1,5}))?\s*", part)
        if match is None:
            problems.add(key, f"{part[:40]!r} is not a code", 'a number as 79, or "39-41,70"')
            continue
        low, high = int(match[1]), int(match[2] or match[1])
        if high < low or high - low > MAX_CODE // 100:
            problems.add(key, f"{part[:40]!r} is not a range of codes", 'low to high, as "39-41"')
            continue
        found += range(low, high + 1)
    return tuple(found)
