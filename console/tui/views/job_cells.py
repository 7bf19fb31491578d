"""Rows of the view of jobs as cells. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from console import units
from console.tui.summary import brief
from console.tui.text import plain
from console.tui.theme import Glyphs, word
from console.tui.views.hosts import folded
from console.tui.views.job_figures import Energy, Step, Use
from console.tui.views.job_layers import WAITS, Layer, summary
from console.tui.views.job_shares import IDLE, NOBODY, Share
from console.tui.words import t, tn
from inventory.scheduler import Job
from probes.event import Finding, Severity

STRIP = "layer "
"""Begins the names of the five columns of layers."""
SLOW = ("straggler.gpu", "straggler.node", "straggler.suspect")
Told = tuple[str, str]
"""Text and style."""


class JobRow(Struct, frozen=True, kw_only=True):
    """One job, now."""

    key: str
    job: Job | None
    users: str
    names: tuple[str, ...]
    """Its nodes in natural order."""
    severity: Severity
    layers: Mapping[str, Layer]
    use: Use
    step: Step | None
    energy: Energy
    findings: tuple[Finding, ...]
    """Of the job itself first, then of its nodes, worst first."""
    open: bool

    @property
    def id(self) -> str:
        """The job's id, or the owner's name."""
        if self.job is not None:
            return plain(self.job.id)
        if self.key in (NOBODY, IDLE):
            return t("no job") if self.key == NOBODY else t("idle")
        return plain(self.key.rpartition(" ")[2])


class NodeRow(Struct, frozen=True, kw_only=True):
    """One node of a job, now."""

    name: str
    share: Share
    severity: Severity
    findings: tuple[Finding, ...]
    use: Use
    utils: str
    """Utilisation of its GPUs as numbers; "" when stale."""
    age_s: float | None
    """Of readings that are not fresh; None of those that are, and where there are none."""


def cell(row: JobRow, column: str, glyphs: Glyphs, now: float) -> Told:
    """Text and style of one cell of a job's row."""
    if column.startswith(STRIP):
        return _layer(row.layers[column.removeprefix(STRIP)], glyphs)
    if column == "layer":
        return summary(dict(row.layers), glyphs)
    if column == "verdict":
        return _signed(row.severity, glyphs)
    if column == "job":
        return f"{glyphs.down if row.open else glyphs.pointer} {row.id}", "title"
    if column in ("gpus", "util", "power"):
        return _use(row.use, column)
    if column in ("step", "sure", "told"):
        return _step(row.step, column, now)
    if column == "trouble":
        return _trouble(row)
    words = _WORDS.get(column)
    return (words(row, now) or units.ABSENT, "text") if words else ("", "text")


_WORDS: dict[str, Callable[[JobRow, float], str]] = {
    "user": lambda row, _: row.users,
    "nodes": lambda row, _: folded(row.names),
    "idle": lambda row, _: watts(row.energy.idle_w),
    "joules": lambda row, _: _count(row.energy.joules_per_pflop),
    "since": lambda row, now: _span(row.job.start_at if row.job else None, now, 1),
    "left": lambda row, now: _span(row.job.end_at if row.job else None, now, -1),
    "name": lambda row, _: plain(row.job.name) if row.job else "",
    "partition": lambda row, _: plain(row.job.partition) if row.job else "",
}


def node_cell(row: NodeRow, column: str, glyphs: Glyphs) -> Told:
    """Text and style of one cell of a node under its job."""
    if column == "verdict":
        return _signed(row.severity, glyphs)
    if column == "job":
        return f"  {row.name}", "text"
    if column in ("gpus", "util", "power"):
        return _use(row.use, column)
    if column == "nodes":
        return ranks(row.share), "text"
    if column == "user":
        return motion(row.findings)
    if column == "trouble":
        top = next(iter(row.findings), None)
        if top is not None:
            return brief(plain(top.say)), "dim" if top.acknowledged else "text"
        if row.age_s is not None:
            return t("readings are {age} old", age=units.age(row.age_s)), "stale"
        return row.utils or units.ABSENT, "dim"
    return "", "text"


def ranks(share: Share) -> str:
    """ "ranks 8-15", "rank 3", or a dash where its processes do not tell."""
    if not share.ranks:
        return units.ABSENT
    first, last = share.ranks[0], share.ranks[-1]
    if first == last:
        return t("rank {n}", n=first)
    if last - first + 1 == len(share.ranks):
        return t("ranks {first}-{last}", first=first, last=last)
    return tn("1 rank", "{n} ranks", len(share.ranks))


def motion(findings: tuple[Finding, ...]) -> Told:
    """Whether the node holds its job up, or waits with it."""
    rules = {finding.rule for finding in findings}
    if not rules.isdisjoint(SLOW):
        return t("slow"), "warn"
    if "job.hang" in rules or "job.late_rank" in rules:
        return t("holds up"), "warn"
    return (t("waits"), "info") if WAITS in rules else ("", "text")


def _signed(severity: Severity, glyphs: Glyphs) -> Told:
    return f"{glyphs.severity(severity)} {word(severity)}", severity.value


def _layer(layer: Layer, glyphs: Glyphs) -> Told:
    return _signed(layer.severity, glyphs) if layer.measured else (glyphs.missing, "dim")


def _use(use: Use, column: str) -> Told:
    if column == "gpus":
        if not use.gpus:
            return units.ABSENT, "text"
        return f"{use.fresh}/{use.gpus}", "text" if use.fresh == use.gpus else "unknown"
    if column == "util":
        return units.whole(use.util_percent, "%"), "text"
    return watts(use.power_w), "text"


def _step(step: Step | None, column: str, now: float) -> Told:
    if step is None:
        return units.ABSENT, "dim"
    age = max(0.0, now - step.at)
    if column == "told":
        return units.age(age), "dim"
    if column == "sure":
        return t("told") if step.confidence is None else f"{step.confidence:.2f}", "dim"
    exact = f"{step.seconds:.3g}s"
    return exact if step.confidence is None else f"~{exact}", "text"


def _trouble(row: JobRow) -> Told:
    """What its own findings say, else where its worst node's is."""
    top = next((f for f in row.findings if not f.acknowledged), None)
    if top is not None and top.severity is not Severity.OK:
        said = brief(plain(top.say))
        return said if top.rule.startswith("job.") else f"{top.node}: {said}", "text"
    if row.key == NOBODY:
        return t("busy, and the scheduler knows no job there"), "text"
    if row.energy.idle_gpus:
        n, burnt = row.energy.idle_gpus, watts(row.energy.idle_w)
        return tn(
            "1 GPU idle for 10 min, {w} (estimate)",
            "{n} GPUs idle for 10 min, {w} (estimate)",
            n,
            w=burnt,
        ), "text"
    return "", "text"


def watts(value: float | None) -> str:
    """At most 6 cells: "700W", "5.6kW", "307kW", "2.1MW"."""
    if value is None or value < 1000:
        return units.whole(value, "W")
    thousands, unit = (value / 1000, "kW") if value < 999_500 else (value / 1e6, "MW")
    return f"{thousands:.1f}{unit}" if thousands < 99.95 else f"{thousands:.0f}{unit}"


def _count(value: float | None) -> str:
    return units.ABSENT if value is None else units.count(value)


def _span(at: float | None, now: float, sign: int) -> str:
    """Time since, or until, with an en dash where it is not known."""
    return units.ABSENT if at is None else units.age(sign * (now - at))
