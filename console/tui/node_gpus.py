"""The GPUs of the node screen and what joins them: one line a GPU, links, the fabric. Pure.

Columns drop whole by priority, as in the fleet grid; an absent reading is an en dash.
"""

from __future__ import annotations

from console import units
from console.fleet import Fleet
from console.tui.node_cells import Values, signs
from console.tui.summary import LINK_UP
from console.tui.text import (
    Cell,
    Column,
    Line,
    choose,
    cut,
    fit,
    heading,
    joined,
    labelled,
    plain,
    spark,
)
from console.tui.theme import Glyphs
from console.tui.words import N_, t, tn
from probes.efficiency import efficiency, total
from probes.event import Sample, Scalar
from probes.facts import NodeFacts
from probes.reading import number
from probes.rules import Rules

_GPU = (
    Column("sign", "", 1, 0),
    Column("gpu", "GPU", 3, 1),
    Column("util", N_("UTIL"), 4, 2, "right"),
    Column("temp", N_("TEMP"), 4, 3, "right"),
    Column("power", N_("POWER"), 9, 4, "right"),
    Column("clock", N_("CLOCK"), 9, 5, "right"),
    Column("memory", N_("MEMORY"), 11, 6, "right"),
    Column("throttle", N_("HELD BY"), 9, 7),
    Column("ecc", "ECC", 5, 8, "right"),
    Column("remap", N_("REMAP"), 7, 9),
    Column("pcie", "PCIE", 7, 10),
    Column("links", N_("LINKS"), 5, 11, "right"),
    Column("tensor", "TENS", 4, 12, "right"),
    Column("dram", "DRAM", 4, 13, "right"),
    Column("memtemp", "HBM", 4, 14, "right"),
    Column("trend", N_("UTIL, LAST MINUTE"), 20, 15),
    Column("pci", N_("PCI ADDRESS"), 13, 16),
)

REASONS = (
    (0x40, N_("hot hw")),
    (0x80, N_("pwr brake")),
    (0x8, N_("hw slow")),
    (0x20, N_("hot sw")),
    (0x4, N_("power cap")),
    (0x10, N_("sync")),
    (0x2, N_("app clk")),
)
"""Bits of nvmlClocksEventReasons (nvml.h), most telling first (0x8 comes with 0x40 and 0x80)."""


def gpus(fleet: Fleet, facts: NodeFacts, glyphs: Glyphs, width: int) -> list[Line]:
    """One line per GPU ever seen this session, lost ones included."""
    name = facts.node.name
    devices = {d for probe in ("gpu", "inventory") for d, _ in facts.devices(probe) if d}
    if not devices:
        return [(Cell(t("no GPU has answered"), "dim"),)]
    columns = choose(_GPU, width)
    marks = signs(fleet.findings[name], glyphs)
    lines = [joined(heading(columns))]
    for device in sorted(devices, key=lambda d: (_index(facts, d), d)):
        cells = _gpu_cells(fleet, facts, device)
        cells["sign"] = marks.get(device, Cell(" "))
        row = [(column, cells.get(column.name, Cell(units.ABSENT))) for column in columns]
        lines.append(joined(Cell(fit(c.text, k.width, k.align), c.style) for k, c in row))
    return lines


def use(facts: NodeFacts, rules: Rules, width: int) -> list[Line]:
    """What the GPUs' power buys, and what a job's idle GPUs burn; [] where nothing is known."""
    found, lines = efficiency(facts, rules), []
    if (all_of := total(found.gpus)) is not None:
        text = t(
            "HFU-est {hfu} % of the 16-bit peak, {work} TFLOPS/W, {power} kW (estimate)",
            hfu=f"{all_of.hfu_percent:.0f}",
            work=f"{all_of.tflops_per_w:.2f}",
            power=f"{all_of.watts / 1000:.1f}",
        )
        lines += labelled(t("work"), text, width, "text")
    idle_min = rules.limit("straggler.idle_burn_s").value / 60
    for job, watts in found.idle_burn_w.items():
        labels = ", ".join(found.idle_gpus[job])
        text = t(
            "job {job} burns {watts} W on {gpus}, without work for over {min} min",
            job=job, watts=f"{watts:.0f}", gpus=labels, min=f"{idle_min:.0f}",
        )  # fmt: skip
        lines += labelled(t("idle"), plain(text), width, "warn")
    return lines


def _index(facts: NodeFacts, device: str) -> int:
    for probe in ("gpu", "inventory"):
        index = facts.value(probe, device, "index")
        if isinstance(index, int):
            return index
    return 1 << 16


def _gpu_cells(fleet: Fleet, facts: NodeFacts, device: str) -> dict[str, Cell]:
    def get(probe: str, metric: str) -> float | None:
        return number(facts.value(probe, device, metric))

    label = facts.gpu_label(device).removeprefix("GPU").strip()
    failed = facts.value("gpu", device, "nvml_rc")
    texts = {
        "gpu": label,
        "util": units.whole(get("gpu", "util_percent"), "%"),
        "temp": units.whole(get("gpu", "temp_c"), "C"),
        "memtemp": units.whole(get("gpu", "mem_temp_c"), "C"),
        "tensor": units.whole(get("gpm", "tensor_percent"), "%"),
        "dram": units.whole(get("gpm", "dram_percent"), "%"),
        "power": _pair(get("gpu", "power_w"), get("gpu", "power_limit_w"), "W"),
        "clock": _pair(get("gpu", "sm_clock_mhz"), get("gpu", "sm_clock_max_mhz"), ""),
        "memory": _memory(get("gpu", "mem_used_bytes"), get("gpu", "mem_total_bytes")),
        "throttle": _held(facts.value("gpu", device, "reasons")),
        "ecc": units.count(get("ecc", "ecc_uncorrected_volatile")),
        "remap": _remap(facts.get("ecc", device)),
        "pcie": _pcie(facts.get("pcie", device)),
        "links": _links(None if failed is not None else facts.get("nvlink", device)),
        "trend": spark(fleet.history(facts.node.name, device, "util_percent"), 20, 0.0, 100.0),
        "pci": plain(device),
    }
    if failed is not None and facts.value("gpu", device, "util_percent") is None:
        texts["throttle"] = f"NVML {failed}"
    return {
        key: Cell(text, "text" if text != units.ABSENT else "dim") for key, text in texts.items()
    }


def _pair(value: float | None, limit: float | None, unit: str) -> str:
    if value is None:
        return units.ABSENT
    return f"{value:.0f}{unit}" if limit is None else f"{value:.0f}/{limit:.0f}{unit}"


def _memory(used: float | None, total: float | None) -> str:
    if used is None:
        return units.ABSENT
    return units.size(used) if total is None else f"{units.size(used)}/{units.size(total)}"


def _held(reasons: Scalar | None) -> str:
    if not isinstance(reasons, int):
        return units.ABSENT
    word = next((word for bit, word in REASONS if reasons & bit), "")
    return t(word) or (t("idle") if reasons & 1 else "")


def _remap(ecc: Sample | None) -> str:
    if ecc is None or "remap_pending" not in ecc.values:
        return units.ABSENT
    if ecc.values.get("remap_failure"):
        return t("FAILED")
    return t("pending") if ecc.values["remap_pending"] else ""


def _pcie(pcie: Sample | None) -> str:
    if pcie is None or "gen" not in pcie.values:
        return units.ABSENT
    return f"g{pcie.values['gen']} x{pcie.values.get('width', units.ABSENT)}"


def _links(nvlink: Sample | None) -> str:
    if nvlink is None:
        return units.ABSENT
    states = [v for k, v in nvlink.values.items() if LINK_UP.fullmatch(k)]
    return f"{sum(1 for up in states if up)}/{len(states)}" if states else units.ABSENT


def links(facts: NodeFacts, width: int) -> list[Line]:
    """Links that are not up or counted errors first; one sentence when there is none."""
    total = up = most = 0
    lines: list[Line] = []
    lost = _lost(facts)
    for device, sample in facts.devices("nvlink"):
        if device in lost:  # what it said before is no present state
            continue
        most = max(most, sum(1 for key in sample.values if LINK_UP.fullmatch(key)))
        for key, value in sample.values.items():
            match = LINK_UP.fullmatch(key)
            if match is None:
                continue
            total += 1
            up += bool(value)
            told = _link(sample.values, f"link{match.group(1)}", bool(value))
            if told:
                label = t("{gpu} link {link}", gpu=facts.gpu_label(device), link=match.group(1))
                lines.append((Cell(fit(label, 14), "title"), Cell(cut(told, width - 14), "text")))
    if not total:
        return [(Cell(t("no link has been reported"), "dim"),)]
    told = t("{up} of {n} links up", up=up, n=total + most * len(lost))
    lines.append((Cell(cut(told, width), "text"),))
    if lost:
        who = ", ".join(facts.gpu_label(device) for device in sorted(lost))
        told = t(
            "{gpus}: no answer, so nothing is known of {n} links", gpus=who, n=most * len(lost)
        )
        lines.append((Cell(cut(plain(told), width), "unknown"),))
    return lines


def _lost(facts: NodeFacts) -> set[str]:
    return {device for device, sample in facts.devices("gpu") if "nvml_rc" in sample.values}


def _link(values: Values, link: str, up: bool) -> str:
    parts = [] if up else [t("down")]
    for metric in ("crc", "replays", "recoveries"):
        counted = number(values.get(f"{link}_{metric}"))
        if counted:
            parts.append(f"{metric} {units.count(counted)}")
    return ", ".join(parts)


_FABRIC = {
    0: N_("not supported"),
    1: N_("not started"),
    2: N_("in progress"),
    3: N_("completed"),
}
"""fabric_state of probes/node/fabric.py, and below fabric_summary."""
_HEALTH = {1: N_("healthy"), 2: N_("UNHEALTHY"), 3: N_("limited capacity")}


def fabric(facts: NodeFacts, width: int) -> list[Line]:
    """How the GPUs stand with the NVLink fabric, told once where they agree; odd ones first."""
    told: dict[str, list[str]] = {}
    for device, sample in facts.devices("fabric"):
        if device and "fabric_state" in sample.values:
            told.setdefault(_fabric(sample.values), []).append(facts.gpu_label(device))
    lines: list[Line] = []
    for text, labels in sorted(told.items(), key=lambda one: len(one[1])):
        who = t("all GPUs") if len(told) == 1 else ", ".join(labels)
        lines += labelled(t("fabric"), plain(f"{who} {text}"), width, "text")
    node = facts.get("fabric")
    values: Values = {} if node is None else node.values
    if (dead := values.get("nvswitches_dead")) is not None:
        lines[:0] = labelled(
            t("switch"), plain(t("no answer from {who}", who=dead)), width, "critical"
        )
    if (count := number(values.get("nvswitches"))) is not None:
        lines += labelled(t("switch"), _on_bus(count), width, "text")
    return lines


def _on_bus(switches: float) -> str:
    return tn("1 NVSwitch on the bus", "{n} NVSwitches on the bus", round(switches))


def _fabric(values: Values) -> str:
    """What one GPU says of its registration, the same words for the same standing."""
    state = number(values.get("fabric_state"))
    known = _FABRIC.get(-1 if state is None else int(state))
    word = t("state {state}", state=state) if known is None else t(known)
    if (waiting := number(values.get("fabric_waiting_s"))) is not None:
        word = t("{state} for {time}", state=word, time=units.age(waiting))
    parts = [word]
    if status := number(values.get("fabric_status")):
        parts.append(t("status {n}", n=f"{status:.0f}"))
    if "fabric_clique" in values:
        parts.append(t("clique {name}", name=values["fabric_clique"]))
    if "fabric_cluster" in values:
        parts.append(t("domain {name}", name=str(values["fabric_cluster"])[:8]))
    if state == 3:
        summary = number(values.get("fabric_summary"))
        health = _HEALTH.get(0 if summary is None else int(summary), units.ABSENT)
        parts.append(t("health {state}", state=t(health)))
    return ", ".join(parts)
