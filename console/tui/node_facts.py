"""Every other reading of a node, by probe, with its age: what no table shows. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from console import units
from console.tui.text import Cell, Line, cut, plain, wrap
from probes.catalog import PROBES
from probes.event import Sample, Scalar
from probes.facts import NodeFacts

TABLED = frozenset({
    "gpu", "ecc", "pcie", "nvlink", "nvlink_ends", "fabric", "infiniband", "processes", "storage",
})  # fmt: skip
"""Probes whose devices have tables of their own, or 18 links each."""

UNTOLD = frozenset({"kernel_log", "hello", "agent", "nccl", "job", "timesync", "tasks"})
"""Shown elsewhere on the screen as a whole."""

PARTS_APART = "  "


def facts_lines(facts: NodeFacts, width: int, now: float) -> list[Line]:
    """A heading per probe with the age of its answer, then its readings, wrapped."""
    lines: list[Line] = []
    for probe in sorted(PROBES):
        if probe in UNTOLD:
            continue
        answers = [
            (device, sample)
            for device, sample in facts.devices(probe)
            if sample.values and not (device and probe in TABLED)
        ]
        if answers:
            newest = max(sample.at for _, sample in answers)
            lines.append((Cell(probe, "title"), Cell(f"  {units.age(now - newest)} ago", "dim")))
            for device, sample in answers:
                lines += _readings(facts, device, sample, width)
    return lines or [(Cell("not read yet", "dim"),)]


def _readings(facts: NodeFacts, device: str, sample: Sample, width: int) -> Iterator[Line]:
    parts = [_told(sample.probe, name, value) for name, value in sorted(sample.values.items())]
    if device:
        label = facts.gpu_label(device) if facts.get("gpu", device) else device
        yield (Cell(cut("  " + plain(label), width), "key"),)
    for row in wrap(plain(PARTS_APART.join(parts)), max(10, width - 4)):
        yield (Cell(f"    {row}", "text"),)


def _told(probe: str, name: str, value: Scalar) -> str:
    """`name value unit`; sizes scaled, flags as words."""
    unit = PROBES[probe].metrics.get(name, ("", "", ""))[0]
    if isinstance(value, bool):
        return f"{name} {'yes' if value else 'no'}"
    if isinstance(value, str):
        return f"{name} {value}"
    if unit == "B" and value >= 0:
        return f"{name.removesuffix('_bytes')} {units.size(value)}"
    if unit == "B/s":
        return f"{name.removesuffix('_bytes_per_s')} {units.size(value)}/s"
    text = f"{value:,.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else f"{value}"
    return f"{name} {text}" + (f" {unit}" if unit else "")
