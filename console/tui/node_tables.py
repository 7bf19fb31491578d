"""Ports, processes and tests on the node screen. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from console import units
from console.tui.node_cells import signs, word
from console.tui.text import Cell, Column, Line, choose, cut, fit, heading, joined, plain
from console.tui.theme import Glyphs
from console.tui.words import N_, t
from probes.event import Finding, Row, Scalar
from probes.facts import NodeFacts
from probes.reading import number

_PORT = (
    Column("sign", "", 1, 0),
    Column("port", N_("PORT"), 10, 0),
    Column("state", N_("STATE"), 9, 1),
    Column("phys", N_("PHYSICAL"), 10, 4),
    Column("rate", N_("RATE"), 5, 2, "right"),
    Column("downed", N_("DOWNED"), 6, 3, "right"),
    Column("symbol", N_("SYMBOLS"), 7, 5, "right"),
    Column("layer", N_("LAYER"), 10, 6),
    Column("netdev", N_("NETDEV"), 9, 7),
    Column("gpu", N_("NEAR"), 5, 8),
    Column("hca", N_("ADAPTER"), 14, 9),
    Column("firmware", N_("FIRMWARE"), 14, 10),
)


def ports(facts: NodeFacts, findings: Sequence[Finding], glyphs: Glyphs, width: int) -> list[Line]:
    """One line per InfiniBand or RoCE port; totals of two counters that tell most."""
    found = list(facts.devices("infiniband"))
    if not found:
        return [(Cell(t("no port has been reported"), "dim"),)]
    columns = choose(_PORT, width)
    marks = signs(findings, glyphs)
    lines = [joined(heading(columns))]
    for device, sample in found:
        values, sign = sample.values, marks.get(device, Cell(" "))
        texts = {
            "sign": sign.text,
            "port": plain(device),
            "state": word(values, "state_text"),
            "phys": word(values, "phys_text"),
            "rate": units.rate(number(values.get("rate_gbps"))),
            "downed": units.count(number(values.get("link_downed"))),
            "symbol": units.count(number(values.get("symbol_error"))),
            "layer": word(values, "link_layer"),
            "netdev": word(values, "netdev"),
            "gpu": _near(facts, values.get("gpu_near")),
            "hca": word(values, "hca"),
            "firmware": word(values, "fw"),
        }
        line = [Cell(fit(texts[c.name], c.width, c.align)) for c in columns]
        lines.append(joined([Cell(line[0].text, sign.style), *line[1:]]))
    return lines


def _near(facts: NodeFacts, device: Scalar | None) -> str:
    return units.ABSENT if device is None else facts.gpu_label(str(device))


_PROCESS = (
    Column("gpu", "GPU", 4, 1),
    Column("pid", "PID", 8, 2, "right"),
    Column("user", N_("USER"), 10, 3),
    Column("mem", N_("MEMORY"), 6, 4, "right"),
    Column("state", "S", 1, 5),
    Column("job", N_("JOB"), 9, 6),
    Column("rank", "RANK", 5, 7),
    Column("age", N_("AGE"), 4, 8, "right"),
    Column("pod", "POD", 8, 9),
    Column("command", N_("COMMAND"), 24, 0, flexible=True),
)
PROCESSES_SHOWN = 64
"""Eight for each of eight GPUs; MPS and inference servers have more."""
MIB = 1 << 20


def processes(facts: NodeFacts, unowned_mib: float, width: int) -> list[Line]:
    """What runs on the GPUs now; memory that nobody owns comes first, from `unowned_mib` on."""
    sample = facts.get("processes")
    if sample is None:
        return [(Cell(t("not read yet"), "dim"),)]
    rows = [(texts, "warn") for texts in _unowned(facts, unowned_mib * MIB)]
    rows += [(_process(facts, row), "text") for row in sample.rows[:PROCESSES_SHOWN]]
    if not rows:
        return [(Cell(t("no process uses a GPU"), "dim"),)]
    # Either scheduler's word for the owner's work: both at once is one column too many at 80.
    pods = any("pod" in row for row in sample.rows)
    absent = "pod" if not pods else "" if any("job" in row for row in sample.rows) else "job"
    columns = choose([c for c in _PROCESS if c.name != absent], width)
    lines = [joined(heading(columns))]
    for texts, style in rows:
        cells = (fit(texts.get(c.name, units.ABSENT), c.width, c.align) for c in columns)
        lines.append(joined(Cell(text, style) for text in cells))
    if len(sample.rows) > PROCESSES_SHOWN:
        more = t("and {n} more", n=len(sample.rows) - PROCESSES_SHOWN)
        lines.append((Cell(more, "dim"),))
    return lines


def _process(facts: NodeFacts, row: Row) -> dict[str, str]:
    gpu = str(row.get("gpu", ""))
    dead = t("(dead) ") if row.get("alive") is False else ""
    names = ("pid", "user", "state", "job", "rank", "pod")
    return {
        **{name: word(row, name) for name in names},
        "gpu": facts.gpu_label(gpu) if gpu else units.ABSENT,
        "mem": units.size(number(row.get("mem_bytes"))),
        "age": units.age(number(row.get("age_s"))),
        "command": dead + word(row, "command"),
    }


def _unowned(facts: NodeFacts, least: float) -> Iterator[dict[str, str]]:
    """Memory in use on a GPU without a live process, and whose it was last."""
    for device, sample in facts.devices("processes"):
        values = sample.values
        size = number(values.get("unowned_bytes"))
        if not device or size is None or size < least:
            continue
        said = [t("memory without an owner")]
        if "last_command" in values:
            ago, what = units.age(number(values.get("last_seen_s"))), values["last_command"]
            if "last_user" in values:
                user = values["last_user"]
                said.append(t("last {what} of {user}, {age} ago", what=what, user=user, age=ago))
            else:
                said.append(t("last {what}, {age} ago", what=what, age=ago))
        if "holders" in values:
            said.append(t("device open in {who}", who=values["holders"]))
        yield {
            "gpu": facts.gpu_label(device), "user": t("nobody"), "mem": units.size(size),
            "job": word(values, "last_job"), "command": plain("; ".join(said)),
        }  # fmt: skip


def tests(facts: NodeFacts, width: int) -> list[Line]:
    """The last NCCL check: its state and its result."""
    lines: list[Line] = []
    for device, sample in facts.devices("job"):
        text = f"{device}: {sample.values.get('state', '?')} {sample.values.get('text', '')}"
        lines.append((Cell(cut(plain(text), width), "text"),))
    summary = facts.get("nccl", "summary")
    if summary is not None:
        values = summary.values
        engine, error = word(values, "engine"), values.get("error")
        busbw = units.whole(number(values.get("busbw_max_gb_s")), " GB/s busbw")
        text = t(
            "all-reduce ({engine}, {n} ranks): {busbw}",
            engine=engine, n=word(values, "ranks"), busbw=busbw,
        )  # fmt: skip
        lines.append((Cell(cut(plain(f"{text} {error or ''}"), width), "text"),))
    return lines or [(Cell(t("none run this session (T)"), "dim"),)]
