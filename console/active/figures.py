"""What every picture of a campaign needs: yardstick, shares, what is missing, ready commands. Pure.

The verdicts are the localiser's; nothing here judges. `tone` only says how to draw a figure.
"""

from __future__ import annotations

import math
import shlex
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from console.active import alike
from console.active.cells import number, safe
from console.active.results import Campaign, Level, Progress, Reading, Run, Verdict
from inventory.expressions import fold, natural_key
from probes.event import Severity

FINE = 0.95
"""Shares from here on are drawn as fine: science 1.3 warns below 0.95 of the median."""
POOR = 0.90
"""Shares below are drawn as critical: science 1.3."""
PEERS = 4
"""Finished runs from which on they are a yardstick: science 1.3 has no rule below n = 4."""
REASON_CHARS = 120
"""A drain reason stays readable in `sinfo -R` and the like."""
FOLDED_CHARS = 2000
"""Longest host list shown in one place."""
COMMAND_CHARS = 16384
"""Longest host list in a ready command: 4,000 nodes, every second one sick, need some 10,000."""

ASKED = {
    Level.GPU: "each GPU alone: GEMM, HBM copy, host and peer copies",
    Level.NODE: "all-reduce over the GPUs of each node",
    Level.PAIRS: "all-reduce over disjoint pairs of nodes, in rounds",
    Level.RAILS: "all-reduce over the GPUs of one local index on all nodes",
    Level.CLUSTER: "all-reduce over 2, 4, 8 ... all nodes",
}
STATES = {
    Progress.WAITING: "not run",
    Progress.RUNNING: "running",
    Progress.DONE: "done",
    Progress.FAILED: "failed",
    Progress.REFUSED: "refused",
    Progress.TIMED_OUT: "timed out",
    Progress.CANCELLED: "cancelled",
}
OVER = (Progress.DONE, Progress.FAILED, Progress.REFUSED, Progress.TIMED_OUT, Progress.CANCELLED)


class Yardstick(NamedTuple):
    """What busbw figures are measured by."""

    value: float | None
    words: str
    """Where it comes from: "expected: NIC rate", "median of the faster 6 runs"."""
    ranks: int | None = None
    """Of the runs it is for; runs over another number of ranks have no share of it."""


class NodeFigures(NamedTuple):
    """The runs one node took part in."""

    node: str
    runs: int
    failed: int
    low: float | None
    median: float | None
    high: float | None
    share: float | None
    """Median of its runs' shares of their yardstick."""


def finite(value: float | None) -> float | None:
    """The value unless it is NaN or infinite."""
    return value if value is not None and math.isfinite(value) else None


def busbw(run: Run) -> float | None:
    """The figure a finished run is judged by, GB/s."""
    return finite(run.busbw_gb_s) if run.state is Progress.DONE else None


def reading(run: Run, what: str) -> Reading | None:
    """The run's own reading of that name."""
    return next((r for r in run.readings if r.what == what), None)


def expected(run: Run) -> float | None:
    """What this very run should give, GB/s."""
    told = reading(run, "busbw")
    value = finite(told.expected) if told else None
    return value if value and value > 0 else None


def yardstick(campaign: Campaign) -> Yardstick:
    """The usual expectation of the runs; else what good runs reach by the verdicts; else the
    median of the faster half of the runs alike, where they are enough: of three nodes one of which
    is bad, most pairs are slow.
    """
    told = [r for run in campaign.runs if expected(run) and (r := reading(run, "busbw"))]
    if told:
        usual = statistics.median_low([float(r.expected or 0) for r in told])
        words = next(r.provenance for r in told if r.expected == usual)
        return Yardstick(usual, f"expected: {words}" if words else "expected")
    done = [run for run in campaign.runs if busbw(run) is not None]
    if campaign.level in (Level.GPU, Level.CLUSTER) or not done:
        return Yardstick(None, "")
    engine = Counter(run.engine for run in done).most_common(1)[0][0]
    ranks = alike.commonest(done)[engine]
    judged = [v for v in campaign.verdicts if v.kind in ("node", "path") and v.unit == "GB/s"]
    good = [v for v in judged if finite(v.expected) and v.expected]
    if good and campaign.level is Level.PAIRS:
        usual = statistics.median_low([v.expected or 0.0 for v in good])
        words = next(v.provenance for v in good if v.expected == usual)
        return Yardstick(usual, words or "good pairs, by the verdicts", ranks)
    found = sorted(busbw(run) or 0.0 for run in done if alike.kind(run) == (engine, ranks))
    if len(found) < PEERS:
        return Yardstick(None, "", ranks)
    half = found[len(found) // 2 :]
    return Yardstick(statistics.median(half), f"median of the faster {len(half)} runs", ranks)


def wanted(run: Run, yard: Yardstick) -> float | None:
    """The run's own expectation, else the yardstick where that is for as many ranks, GB/s."""
    alike_too = yard.ranks is None or run.ranks == yard.ranks
    return expected(run) or (yard.value if alike_too else None)


def share(run: Run, yard: Yardstick) -> float | None:
    """busbw as a share of the run's own expectation, else of the yardstick of runs alike."""
    value, whole = busbw(run), wanted(run, yard)
    return value / whole if value is not None and whole and whole > 0 else None


def tone(part: float | None) -> Severity:
    """How a share is drawn: below 95 % warn, below 90 % critical."""
    if part is None or not math.isfinite(part):
        return Severity.UNKNOWN
    return Severity.OK if part >= FINE else Severity.WARN if part >= POOR else Severity.CRITICAL


def reading_rank(run: Run) -> int:
    """The rank of the worst reading that something was expected of."""
    return max((r.verdict.rank for r in run.readings if r.expected is not None), default=0)


def run_tone(run: Run, yard: Yardstick) -> Severity:
    """How a run is drawn; a finished one that nothing can be said about is plain."""
    if run.state in (Progress.WAITING, Progress.RUNNING):
        return Severity.INFO
    part = share(run, yard)
    return Severity.OK if part is None and busbw(run) is not None else tone(part)


def by_node(campaign: Campaign) -> list[NodeFigures]:
    """Figures of each node that had a run, the lowest shares first."""
    yard, mine = yardstick(campaign), dict[str, list[Run]]()
    for run in campaign.runs:
        for node in run.group.nodes:
            mine.setdefault(node, []).append(run)
    found = [_figures(node, runs, yard) for node, runs in mine.items()]
    # Without a yardstick the plain figure orders them; a node without any comes first.
    return sorted(found, key=lambda f: (_low(f.share, f.median), natural_key(f.node)))


def _low(part: float | None, value: float | None) -> tuple[float, float]:
    return (-1.0 if part is None and value is None else part or 0.0, value or 0.0)


def _figures(node: str, runs: Sequence[Run], yard: Yardstick) -> NodeFigures:
    values = [value for run in runs if (value := busbw(run)) is not None]
    parts = [part for run in runs if (part := share(run, yard)) is not None]
    failed = sum(run.state in (Progress.FAILED, Progress.TIMED_OUT) for run in runs)
    return NodeFigures(
        node,
        len(runs),
        failed,
        min(values, default=None),
        statistics.median(values) if values else None,
        max(values, default=None),
        statistics.median(parts) if parts else None,
    )


def named(campaign: Campaign) -> frozenset[str]:
    """Nodes that a verdict of warn or worse is about."""
    return frozenset(
        node
        for verdict in campaign.verdicts
        if verdict.verdict.rank >= Severity.WARN.rank
        for node in verdict.nodes
    )


def worst_first(campaign: Campaign) -> list[Verdict]:
    """Verdicts other than ok, the worst and surest first."""
    sure = {name: rank for rank, name in enumerate(("certain", "likely", "suspected"))}
    bad = [v for v in campaign.verdicts if v.verdict is not Severity.OK]
    return sorted(bad, key=lambda v: (-v.verdict.rank, sure[v.confidence], natural_key(v.name)))


def judged(verdict: Verdict) -> bool:
    """Whether it says that something is wrong: only then how sure it is means anything."""
    return verdict.verdict in (Severity.INFO, Severity.WARN, Severity.CRITICAL)


def unjudged(campaign: Campaign) -> str:
    """Why there is no verdict at all; "" when there is one."""
    if campaign.verdicts:
        return ""
    if any(run.state is Progress.DONE for run in campaign.runs):
        return "no verdict: there is nothing to judge these figures by"
    return "no verdict: nothing was measured"


def fine_nodes(campaign: Campaign) -> list[str]:
    """Nodes an ok verdict is about and no other one."""
    fine = {n for v in campaign.verdicts if v.verdict is Severity.OK for n in v.nodes}
    other = {n for v in campaign.verdicts if v.verdict is not Severity.OK for n in v.nodes}
    return sorted(fine - other, key=natural_key)


def hosts(names: Iterable[str], limit: int = FOLDED_CHARS) -> str:
    """Folded, and bounded."""
    return safe(fold(safe(name, 253) for name in names), limit)


def run_name(run: Run) -> str:
    """ "gpu001+gpu002", "rail 3", "gpu001+15": safe to show."""
    return safe(run.group.name, 80)


def missing(campaign: Campaign) -> list[tuple[str, str]]:
    """(what, why) for everything that was asked and has no figure, folded by reason."""
    refused: dict[str, list[str]] = {}
    for node, why in campaign.refused.items():
        refused.setdefault(safe(why) or "refused", []).append(node)
    runs: dict[str, list[Run]] = {}
    for run in campaign.runs:
        if run.state is not Progress.DONE:
            why = STATES[run.state] + (f": {safe(run.error)}" if run.error else "")
            runs.setdefault(why, []).append(run)
        elif busbw(run) is None and not run.readings:
            runs.setdefault("ended without a figure", []).append(run)
    told = [(hosts(names), why) for why, names in refused.items()]
    return told + [(_runs(group), why) for why, group in runs.items()]


def _runs(runs: Sequence[Run]) -> str:
    if all(len(run.group.nodes) == 1 for run in runs):
        return hosts(run.group.nodes[0] for run in runs)
    shown = ", ".join(dict.fromkeys(run_name(run) for run in runs[:4]))
    return shown if len(runs) <= 4 else f"{shown} and {len(runs) - 4} more runs"


def engines(campaign: Campaign) -> str:
    """ "nccl-tests 2.19.6": what ran, each once."""
    names = dict.fromkeys(f"{run.engine} {run.version}".strip() for run in campaign.runs)
    return safe(", ".join(name for name in names if name), 120)


def progress(campaign: Campaign) -> tuple[int, int]:
    """(runs that ended, runs known so far)."""
    return sum(run.state in OVER for run in campaign.runs), len(campaign.runs)


def clues(campaign: Campaign) -> list[tuple[str, str]]:
    """(clue, which runs said so), the most frequent first."""
    runs: dict[str, list[Run]] = {}
    for run in campaign.runs:
        for clue in dict.fromkeys(run.clues):
            runs.setdefault(safe(clue), []).append(run)
    return [(clue, _runs(group)) for clue, group in sorted(runs.items(), key=lambda i: -len(i[1]))]


def reason(campaign: Campaign) -> str:
    """Why to drain, in one line: what the worst draining verdict says."""
    says = [safe(v.say) for v in worst_first(campaign) if v.drains]
    more = f" and {len(says) - 1} more" if len(says) > 1 else ""
    text = f"test {campaign.level}: {says[0]}{more}" if says else f"test {campaign.level} failed"
    return safe(text, REASON_CHARS)


def commands(campaign: Campaign) -> list[str]:
    """Ready lines for a shell; whatever is in the names or sentences, each stays one argument."""
    lines = []
    if campaign.drain:
        why = shlex.quote(reason(campaign))
        lines.append(_with_hosts(campaign.drain, "gpuconsole drain ", f" --reason {why}"))
    if campaign.exclude:
        lines.append(_with_hosts(campaign.exclude, "sbatch --exclude=", " ..."))
    if campaign.interrupted:
        lines.append(f"gpuconsole test --resume {shlex.quote(safe(campaign.id, 80))}")
    return lines


def _with_hosts(nodes: str, before: str, after: str) -> str:
    # A list that had to be cut or cleaned would name other nodes.
    if safe(nodes, COMMAND_CHARS) != nodes:
        return f"# {before.split()[0]}: the list is not plain or too long; see the JSON"
    return f"{before}{shlex.quote(nodes)}{after}"


def moment(at: float) -> str:
    """UTC, so that a report means the same wherever it is read."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))
    except (ValueError, OverflowError, OSError):
        return "at an unknown time"


def span(seconds: float) -> str:
    """ "41s", "2m10s", "1h05m"."""
    whole = int(finite(seconds) or 0)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def amount(value: float | None, unit: str) -> str:
    """ "41.2 GB/s"."""
    return f"{number(value)} {safe(unit, 12)}".strip()
