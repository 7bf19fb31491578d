"""Jobs: where each runs, which of its layers is in trouble, what it uses. Pure.

A job's row unfolds into its nodes. At the end: nodes that are busy without a job.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache

from console.fleet import Fleet
from console.tui import bars
from console.tui.text import Cell, Column, Line, choose, fit, plain
from console.tui.theme import Glyphs
from console.tui.view import GUTTER
from console.tui.views.job_cells import STRIP, JobRow, NodeRow, cell, node_cell
from console.tui.views.job_figures import Energy, Estimates, Uses, bars_of, gpu_values, is_fresh
from console.tui.views.job_layers import LAYERS, Facts, Layer, layers, own_verdict
from console.tui.views.job_members import Members
from console.tui.views.job_shares import IDLE, NOBODY, Share
from console.tui.views.table import chosen_order
from console.tui.words import t, tn
from inventory.expressions import natural_key
from probes.event import Finding, Severity, worst

SEPARATOR = "\x1f"
"""Between the parts of a row's key; never drawn."""
ENDS = (IDLE, NOBODY)
"""Rows that are no job: they come last, in this order."""
IDLE_RANK = Severity.WARN.rank - 0.5
"""A job whose GPUs do nothing comes before those that are well."""
ORDERS = ("worst", "largest", "longest")


class JobsTable:
    """An Unfolding table; see screens.unfolding."""

    orders = ORDERS

    def __init__(self, fleet: Callable[[], Fleet]) -> None:
        """`fleet` gives the one that is shown now."""
        self._fleet = fleet
        self.order = ORDERS[0]
        self.estimates, self.uses = Estimates(), Uses()
        self._who = Members(fleet().nodes)
        self.members = self._who.jobs
        """Job's key -> its nodes, in natural order."""
        self._index = self._who.index
        self._open: set[str] = set()
        self._keys: list[str] = []
        self._rows: dict[str, JobRow] = {}
        """Rows made since the last look at the nodes."""
        self._wanted: dict[str, None] = {}
        """Jobs whose cells were asked for since the last turn of the estimates."""

    @property
    def empty(self) -> str:
        """See Table."""
        return t("no job runs on the nodes shown") if self.members else t("no job is known to run")

    # ------------------------------------------------------------------ taking in

    def update(self, names: Collection[str], now: float) -> None:
        """See Table."""
        fleet = self._fleet()
        for name in self._who.update(fleet, names):
            self.estimates.forget(name)
        first = {key: self.members[key] for key in self._wanted if key in self.members}
        self.estimates.go_on(fleet, {**first, **self.members}, now)
        self._who.take_idle(self.estimates.idle)
        if first:  # else this is a further piece of the same tick
            self.uses.turn(first)
        self._wanted.clear()
        self._rows.clear()

    # ------------------------------------------------------------------ rows

    def rows(self, shown: Sequence[str], now: float) -> list[str]:
        """See Table: jobs with a node that is shown."""
        jobs: Iterable[str] = self.members
        if len(shown) < len(self._index):
            jobs = {share.key for name in shown for share in self._who.of.get(name, ())}
            if not self.members.get(IDLE, {}).keys().isdisjoint(shown):
                jobs.add(IDLE)
        order = sorted(jobs, key=self._place)
        keys: list[str] = []
        for key in order:
            keys.append(key)
            if key in self._open:
                keys += [f"{key}{SEPARATOR}{name}" for name in self._inside(key)]
        self._keys = order
        return keys

    def _place(self, key: str) -> tuple[bool, float, float, object]:
        members = self.members[key]
        job = next(iter(members.values())).job
        size = -len(members)
        name = _natural(key)
        if self.order == "largest":
            return key in ENDS, size, 0.0, name
        if self.order == "longest":
            began = job.start_at if job is not None else None
            return key in ENDS, float("inf") if began is None else began, size, name
        return key in ENDS, -self._trouble(key), size, name

    def _trouble(self, key: str) -> float:
        """Worst first; among equals a job that is itself in trouble before one with a sick node."""
        fleet = self._fleet()
        rank = 0.0
        for name, share in self.members[key].items():
            found = fleet.findings[name]
            rank = max(rank, fleet.verdict(name).rank)
            if found:
                own = [f.severity.rank + 0.5 for f in found if about(f, share)]
                rank = max(rank, *own) if own else rank
            if rank < IDLE_RANK and not share.names.isdisjoint(self._who.idle_jobs):
                rank = IDLE_RANK
        return rank

    def _inside(self, key: str) -> list[str]:
        verdict = self._fleet().verdict
        return sorted(self.members[key], key=lambda n: (-verdict(n).rank, self._index[n]))

    def sort_by(self, name: str = "") -> None:
        """A named order, or the next one. Raises UsageError."""
        self.order = chosen_order(ORDERS, self.order, name)

    def row(self, key: str, now: float) -> JobRow:
        """Everything about a job; made once a tick, when its row is in sight."""
        made = self._rows.get(key)
        if made is not None:
            return made
        fleet, members = self._fleet(), self.members[key]
        self._wanted[key] = None
        names = frozenset().union(*(share.names for share in members.values()))
        energy = self.estimates.energy(members) if key != IDLE else self._burnt()
        found = self._findings(members)
        job = next((share.job for share in members.values() if share.job is not None), None)
        verdicts = [fleet.verdict(name) for name in members]
        told = [a for name in members if (a := fleet.nodes[name].allocation) is not None]
        own = [own_verdict(fleet.verdict(name), fleet.findings[name]) for name in members]
        of = Facts(
            job, list(members.values()), told, own, found, self.estimates.motion(names),
            self.estimates.tells_steps(names), energy.idle_w or 0.0,
        )  # fmt: skip
        made = self._rows[key] = JobRow(
            key=key, job=job, users=_users(members.values()), names=tuple(members),
            severity=_OF_ENDS.get(key) or worst(verdicts),
            layers=_UNLAYERED if key in ENDS else layers(of, now),
            use=self.uses.of(fleet, key, members, now),
            step=self.estimates.step(key, names) if key not in ENDS else None, energy=energy,
            findings=() if key in ENDS else found,
            open=key in self._open,
        )  # fmt: skip
        return made

    def _burnt(self) -> Energy:
        found = self.estimates.idle.values()
        return Energy(sum(one.watts for one in found), sum(len(one.devices) for one in found), None)

    def _findings(self, members: dict[str, Share]) -> tuple[Finding, ...]:
        """Of the job itself, then of its nodes; worst first."""
        findings = self._fleet().findings
        own = [f for name, share in members.items() for f in findings[name] if about(f, share)]
        rest = [
            f for name in members for f in findings[name]
            if not f.rule.startswith("job.") and f.severity is not Severity.OK
        ]  # fmt: skip
        own.sort(key=lambda f: -f.severity.rank)
        rest.sort(key=lambda f: (f.acknowledged, -f.severity.rank))
        return (*own, *rest)

    def _node(self, key: str, name: str, now: float) -> NodeRow:
        fleet, share = self._fleet(), self.members[key][name]
        facts, fresh = fleet.nodes[name], is_fresh(fleet, name, now)
        found = tuple(f for f in fleet.findings[name] if f.severity is not Severity.OK)
        return NodeRow(
            name=name, share=share, severity=fleet.verdict(name), findings=found,
            use=self.uses.of(fleet, f"{key}{SEPARATOR}{name}", {name: share}, now),
            utils=bars_of(gpu_values(facts, share.devices, "util_percent")) if fresh else "",
            age_s=None if fresh else fleet.age(name, now),
        )  # fmt: skip

    # ------------------------------------------------------------------ drawing

    def columns(self, width: int) -> list[Column]:
        """See Table."""
        strip = width >= 120
        layer = [
            Column(f"{STRIP}{name}", name.upper(), 6, 4) for name in LAYERS
        ] if strip else [Column("layer", t("LAYER"), 6, 4)]  # fmt: skip
        return choose(
            (
                GUTTER,
                Column("verdict", t("VERDICT"), 7, 1),
                Column("job", t("JOB ID"), 11 if strip else 9, 2),
                Column("user", t("USER"), 8, 6),
                *layer,
                Column("nodes", t("NODES"), 14 if strip else 12, 5),
                Column("gpus", t("GPUS"), 7 if strip else 5, 9, "right"),
                Column("util", t("UTIL"), 4, 7, "right"),
                Column("power", t("POWER"), 6, 10, "right"),
                Column("step", t("STEP"), 6, 8, "right"),
                Column("sure", t("SURE"), 4, 13, "right"),
                Column("told", t("AGE"), 4, 14, "right"),
                Column("idle", t("IDLE~"), 6, 12, "right"),
                Column("joules", t("J/PF~"), 5, 16, "right"),
                Column("since", t("SINCE"), 5, 11, "right"),
                Column("left", t("LEFT"), 4, 15, "right"),
                Column("name", t("NAME"), 14, 17),
                Column("partition", t("PART"), 8, 18),
                Column("trouble", t("TROUBLE"), 16 if width < 100 else 32, 3, flexible=True),
            ),
            width,
        )

    def cells(self, key: str, columns: Sequence[Column], glyphs: Glyphs, now: float) -> list[Cell]:
        """See Table."""
        job, _, name = key.partition(SEPARATOR)
        if job not in self.members or (name and name not in self.members[job]):
            return [Cell(fit("", column.width)) for column in columns]
        if name:
            node = self._node(job, name, now)
            told = [node_cell(node, column.name, glyphs) for column in columns]
        else:
            row = self.row(job, now)
            told = [cell(row, column.name, glyphs, now) for column in columns]
        return [
            Cell(fit(text, column.width, column.align), style)
            for (text, style), column in zip(told, columns, strict=True)
        ]

    def nodes(self, key: str) -> Sequence[str]:
        """See Table."""
        job, _, name = key.partition(SEPARATOR)
        return (name,) if name else tuple(self.members.get(job, ()))

    def severity(self, key: str) -> Severity:
        """See Table."""
        return worst([self._fleet().verdict(name) for name in self.nodes(key)])

    def findings(self, key: str) -> Sequence[Finding]:
        """See Table."""
        job, _, name = key.partition(SEPARATOR)
        if name:
            return self._fleet().findings[name]
        return self._findings(self.members[job]) if job in self.members else ()

    def toggle(self, key: str) -> bool:
        """See Unfolding: a job unfolds into its nodes."""
        if SEPARATOR in key or key not in self.members:
            return False
        self._open ^= {key}
        self._rows.pop(key, None)
        return True

    def target(self, key: str) -> tuple[str, tuple[str, str] | None] | None:
        """See Unfolding."""
        name = key.partition(SEPARATOR)[2]
        return (name, None) if name else None

    def why(self, key: str, glyphs: Glyphs, width: int) -> Line:
        """See Table: the worst of what is found; else what is known of the layers."""
        job, _, name = key.partition(SEPARATOR)
        top = next((f for f in self.findings(key) if not f.acknowledged), None)
        if job not in self.members:
            return ()
        if name or (top is not None and job not in ENDS):
            return bars.why(top, t("{node}: no findings", node=name), glyphs, width)
        if job == NOBODY:
            text = t("the scheduler knows no job there: who works past it? enter unfolds")
            return bars.why(None, text, glyphs, width)
        if job == IDLE:
            text = t("jobs hold these GPUs and do nothing with them: ask their owners")
            return bars.why(None, text, glyphs, width)
        said = self.row(job, self._fleet().clock()).layers
        parts = [f"{what}: {layer.say}" for what, layer in said.items() if layer.say]
        return bars.why(None, "; ".join(parts), glyphs, width)

    def headline(self) -> str:
        """See Table."""
        jobs = sum(1 for key in self._keys if key not in ENDS)
        told = tn("1 job", "{n} jobs", jobs)
        if not self._who.scheduled:
            told = t("no scheduler: {n} by their processes", n=jobs)
        stray = self.members.get(NOBODY)
        if stray:
            told += tn(", 1 node busy without one", ", {n} nodes busy without one", len(stray))
        idle = self._burnt().idle_gpus
        if idle:
            told += tn(", 1 GPU idle in jobs", ", {n} GPUs idle in jobs", idle)
        orders = {"largest": t("largest first"), "longest": t("longest running first")}
        return f"{told}, {orders[self.order]}" if self.order in orders else told


_NAMED = re.compile(r"(?<!\ba )\bjob (\S+)")


def about(finding: Finding, share: Share) -> bool:
    """Whether a finding of the node is about this job: its first line names it, or any may be."""
    if not finding.rule.startswith("job."):
        return False
    named = _NAMED.search(finding.say)
    return named is None or named[1].rstrip(":,") in share.names


_OF_ENDS = {NOBODY: Severity.WARN, IDLE: Severity.INFO}
_UNLAYERED = dict.fromkeys(LAYERS, Layer(Severity.UNKNOWN, "", False))
_natural = lru_cache(maxsize=8192)(natural_key)


def _users(members: Iterable[Share]) -> str:
    return plain(",".join(dict.fromkeys(share.user for share in members if share.user)))
