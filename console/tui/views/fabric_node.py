"""One node's fabric: findings, NVLinks and where they lead, ports, GPU and adapter. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rich.cells import cell_len

from console import units
from console.tui.node_cells import signs, word
from console.tui.text import Cell, Column, Line, choose, cut, fit, heading, joined, plain
from console.tui.theme import Glyphs
from console.tui.views.fabric import gbps, per_s
from console.tui.views.fabric_read import GpuLinks, Links, Port
from console.tui.views.gpu_metrics import LINK_ERRORS, link_errors
from console.tui.views.gpu_words import trimmed
from console.tui.words import t
from probes.checks.nvlink import REMOTE_WORDS
from probes.event import Finding, Row, Severity
from probes.expect import link_rates, link_states
from probes.reading import whole

_LINK = re.compile(r"link(\d+)_")
UP = "·"
ENDS_MOST = 18
"""Columns of the matrix: NVSwitches of a chassis, or GPUs."""
NICS_MOST = 16
FINDINGS_MOST = 6
PORTS = ("ib.", "roce.", "congestion.")
"""Beginnings of rules about ports: with one of these on top, ports come before NVLinks."""


def lines(name: str, node: Links | None, glyphs: Glyphs, width: int, now: float) -> list[Line]:
    """Everything about one node's links and ports."""
    if node is None:
        return [(Cell(t("not read yet"), "dim"),)]
    found: list[Line] = [_head(name, node, glyphs, width, now)]
    found += _findings(node.findings, glyphs, width)
    links, ports = _links(node, glyphs, width), _ports(node, glyphs, width)
    about_ports = node.top is not None and node.top.rule.startswith(PORTS)
    for section in (ports, links) if about_ports else (links, ports):
        found += [(), *section]
    found += [(), *_near(node, width)]
    if node.stale(now):
        found[1:] = [tuple(Cell(c.text, "stale") for c in line) for line in found[1:]]
    return [trimmed(line, width) for line in found]


def _head(name: str, node: Links, glyphs: Glyphs, width: int, now: float) -> Line:
    """A rule with the node's name and, when it is stale, the age of what follows."""
    age = None if node.seen is None else now - node.seen
    told = t("no data") if age is None else t("{age} old", age=units.age(age))
    cells = [Cell(glyphs.rule * 2 + " ", "dim"), Cell(cut(name, width - 4), "title"), Cell(" ")]
    if node.stale(now):
        cells.append(Cell(told + " ", "stale"))
    used = sum(cell_len(cell.text) for cell in cells)
    return (*cells, Cell(glyphs.rule * max(0, width - used), "dim"))


def _findings(findings: Sequence[Finding], glyphs: Glyphs, width: int) -> list[Line]:
    lines: list[Line] = []
    for finding in findings[:FINDINGS_MOST]:
        severity = Severity.INFO if finding.acknowledged else finding.severity
        sign = Cell(glyphs.severity(severity) + " ", severity.value)
        lines.append((sign, Cell(cut(plain(finding.say), width - 2))))
    if len(findings) > FINDINGS_MOST:
        lines.append((Cell(t("and {n} more", n=len(findings) - FINDINGS_MOST), "dim"),))
    return lines


def _links(node: Links, glyphs: Glyphs, width: int) -> list[Line]:
    """A line a GPU: each link by a sign, then how many lead where."""
    told = [gpu for gpu in node.gpus if gpu.links is not None]
    most = max((len(link_states(g.links.values)) for g in told if g.links), default=0)
    if not most:
        return [(Cell(t("NVLink: nothing has been reported"), "dim"),)]
    ends, counts = _ends(node)
    columns = [
        Column("gpu", t("NVLINK"), 6, 0),
        Column("strip", t("LINKS 0 TO {last}", last=most - 1), max(most, 4), 1),
        Column("up", t("UP"), 5, 2, "right"),
        Column("rate", t("GB/S"), 5, 4, "right"),
        Column("errors", t("ERR/S"), 5, 3, "right"),
        *(Column(end, title, 4, 5 + i, "right") for i, (end, title) in enumerate(ends.items())),
    ]
    chosen = choose(columns, width)
    lines = [joined(heading(chosen))]
    for gpu in node.gpus:
        cells = _gpu(gpu, counts.get(gpu.device, {}), glyphs)
        lines.append(_row(chosen, cells))
    shown = [title for end, title in ends.items() if any(c.name == end for c in chosen)]
    lines += _legend(ends, shown, width)
    return lines


def _row(columns: Sequence[Column], cells: Mapping[str, tuple[Cell, ...]]) -> Line:
    """Cells of the chosen columns; what is missing is an en dash."""
    line: list[Cell] = []
    for column in columns:
        parts = cells.get(column.name, (Cell(units.ABSENT, "dim"),))
        if line:
            line.append(Cell(" "))
        if len(parts) == 1:
            line.append(Cell(fit(parts[0].text, column.width, column.align), parts[0].style))
        else:
            line += [*parts, Cell(" " * (column.width - len(parts)))]
    return tuple(line)


_Cells = dict[str, tuple[Cell, ...]]
"""Column -> its cells."""


def _gpu(gpu: GpuLinks, counts: Mapping[str, tuple[int, int]], glyphs: Glyphs) -> _Cells:
    cells: _Cells = {"gpu": (Cell(gpu.label, "title"),)}
    cells |= {
        end: (Cell(f"{up}" if up == all_ else f"{up}/{all_}", "text" if up == all_ else "warn"),)
        for end, (up, all_) in counts.items()
    }
    if gpu.links is None:
        return cells
    states = link_states(gpu.links.values)
    rates = sorted(set(link_rates(gpu.links.values).values()))
    if not states:
        return cells
    up = sum(states.values())
    return {
        **cells,
        "strip": _strip(gpu, states, glyphs),
        "up": (Cell(f"{up}/{len(states)}", "text" if up == len(states) else "critical"),),
        "rate": (Cell(f"{rates[0] / 1000:.1f}" if rates else units.ABSENT),),
        "errors": (Cell(per_s(link_errors(gpu.rates))),),
    }


def _strip(gpu: GpuLinks, states: Mapping[int, bool], glyphs: Glyphs) -> tuple[Cell, ...]:
    """A sign for each link, in the order of their numbers."""
    deltas = {} if gpu.rates is None else gpu.rates.deltas
    bad = {
        int(match.group(1))
        for name, grown in deltas.items()
        if grown and name.endswith(LINK_ERRORS) and (match := _LINK.match(name))
    }
    cells = []
    for link in range(max(states) + 1):
        if link not in states:
            cells.append(Cell(glyphs.missing, "dim"))
        elif not states[link]:
            cells.append(Cell(glyphs.critical, "critical"))
        else:
            cells.append(Cell(glyphs.warn, "warn") if link in bad else Cell(UP, "dim"))
    return (*cells, Cell("")) if len(cells) == 1 else tuple(cells)


def _ends(node: Links) -> tuple[dict[str, str], dict[str, dict[str, tuple[int, int]]]]:
    """Other end -> its title; GPU -> other end -> (links up, all links)."""
    labels = {gpu.device: gpu.label for gpu in node.gpus}
    counts: dict[str, dict[str, list[int]]] = {}
    kinds: dict[str, str] = {}
    for row in node.ends.rows if node.ends is not None else ():
        end = str(row.get("remote_pci") or row.get("remote") or "")[:20]
        if not end or whole(row.get("link")) is None:
            continue
        kinds.setdefault(end, str(row.get("remote")))
        pair = counts.setdefault(str(row.get("gpu")), {}).setdefault(end, [0, 0])
        pair[0] += row.get("up") is True
        pair[1] += 1
    ends = sorted(kinds, key=lambda end: (_number(labels.get(end, "")), end))[:ENDS_MOST]
    switches = [end for end in ends if kinds[end] == "switch"]
    titles = {end: _title(end, labels, kinds, switches) for end in ends}
    found = {
        gpu: {end: (pair[0], pair[1]) for end, pair in row.items()} for gpu, row in counts.items()
    }
    return titles, found


def _number(label: str) -> int:
    digits = label.removeprefix("GPU")
    return int(digits) if digits.isdecimal() else 1 << 16


def _title(
    end: str, labels: Mapping[str, str], kinds: Mapping[str, str], switches: list[str]
) -> str:
    if end in labels:
        return labels[end].replace("GPU", "G")
    if end in switches:
        return f"SW{switches.index(end)}" if ":" in end else "SW"
    return REMOTE_WORDS.get(kinds[end], "?")


def _legend(ends: Mapping[str, str], shown: Sequence[str], width: int) -> list[Line]:
    """Where the switches are."""
    named = [f"{title} {end}" for end, title in ends.items() if title[:2] == "SW" and ":" in end]
    if not named or not shown:
        return []
    return [(Cell(cut(t("NVSwitches: {them}", them=plain("  ".join(named))), width), "dim"),)]


def _ports(node: Links, glyphs: Glyphs, width: int) -> list[Line]:
    """A line a port."""
    if not node.ports:
        return [(Cell(t("no RDMA port has been reported"), "dim"),)]
    columns = choose(
        (
            Column("sign", "", 1, 0),
            Column("port", t("PORT"), max(10, max(len(p.device) for p in node.ports)), 0),
            Column("state", t("STATE"), 7, 1),
            Column("rate", t("RATE"), 5, 2, "right"),
            Column("width", t("LANES"), 5, 9, "right"),
            Column("rx", t("RX Gb/s"), 7, 3, "right"),
            Column("tx", t("TX Gb/s"), 7, 4, "right"),
            Column("errors", t("ERR/S"), 5, 5, "right"),
            Column("downed", t("DOWN/H"), 6, 6, "right"),
            Column("near", t("NEAR"), 5, 7),
            Column("distance", t("AT"), 4, 8),
            Column("phys", t("PHYSICAL"), 10, 10),
            Column("layer", t("LAYER"), 10, 11),
            Column("netdev", t("NETDEV"), 9, 12),
        ),
        width,
    )
    marks = signs(node.findings, glyphs)
    rows = [_row(columns, _port(port, marks.get(port.device))) for port in node.ports]
    return [joined(heading(columns)), *rows]


def _port(port: Port, sign: Cell | None) -> _Cells:
    values = port.sample.values
    style = "text" if sign is None else sign.style
    errors = t("full") if port.full else per_s(port.errors)
    texts = {
        "port": plain(port.device),
        "state": word(values, "state_text"),
        "rate": units.rate(port.speed),
        "width": f"{values['width']}x" if "width" in values else units.ABSENT,
        "rx": gbps(port.gbps("rcv")),
        "tx": gbps(port.gbps("xmit")),
        "errors": errors,
        "downed": units.count(port.downed),
        "near": port.near or units.ABSENT,
        "distance": word(values, "gpu_distance"),
        "phys": word(values, "phys_text"),
        "layer": word(values, "link_layer"),
        "netdev": word(values, "netdev"),
    }
    cells = {name: (Cell(text, style),) for name, text in texts.items()}
    return {**cells, "sign": (sign or Cell(" "),)}


def _near(node: Links, width: int) -> list[Line]:
    """GPU × adapter as nvidia-smi topo -m tells it, with the GPU's NUMA node."""
    rows: Sequence[Row] = node.topology.rows if node.topology is not None else ()
    nics = sorted({str(row.get("nic")) for row in rows}, key=_natural)[:NICS_MOST]
    known = [gpu for gpu in node.gpus if gpu.near is not None]
    if not nics and not any(gpu.near.values for gpu in known if gpu.near is not None):
        return [(Cell(t("GPU and adapter: distances are not known"), "dim"),)]
    columns = choose(
        [
            Column("gpu", t("AFFINITY"), 8, 0),
            Column("numa", t("NUMA"), 4, 1, "right"),
            Column("best", t("NEAREST"), 14, 2),
            *(Column(f"nic {nic}", nic, max(4, len(nic)), 3 + i) for i, nic in enumerate(nics)),
        ],
        width,
    )
    far = {(row.get("gpu"), f"nic {row.get('nic')}"): word(row, "distance") for row in rows}
    lines = [joined(heading(columns))]
    for gpu in node.gpus:
        values = gpu.near.values if gpu.near is not None else {}
        cells = {
            name: (Cell(text, "dim" if text in ("SYS", "NODE") else "text"),)
            for (device, name), text in far.items()
            if device == gpu.device
        }
        cells["gpu"] = (Cell(gpu.label, "title"),)
        if "numa" in values:
            cells["numa"] = (Cell(word(values, "numa")),)
        if "nic_distance" in values:
            cells["best"] = (Cell(f"{word(values, 'nic_distance')} {word(values, 'nic')}"),)
        lines.append(_row(columns, cells))
    return lines


def _natural(name: str) -> tuple[object, ...]:
    return tuple(int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name))
