"""EFA adapters: one whose error totals stand out among its clean siblings in the same node.

EFA counts since boot and has no state that tells of trouble, so a first answer shows totals only.
They are judged against the node's other adapters, and stop being a warning once a second answer
shows that they do not grow. Field case: prometheus/node_exporter issue 3670.
"""

from __future__ import annotations

from collections.abc import Iterator

from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Sample, Severity
from probes.reading import whole

VENDOR = "1d0f"
COUNTERS = {
    "retrans_timeout_events": "retransmission time-outs",
    "unresponsive_remote_events": "unresponsive-remote events",
    "impaired_remote_conn_events": "impaired connections",
}
SIBLINGS = 2
"""Clean adapters needed for a comparison: with one, nobody knows which of the two is usual."""
QUIET_S = 10.0
"""Time without growth after which totals are history: ten counter windows of a pass."""

STANDS_OUT = Rule(
    id="ib.efa_totals",
    title="One EFA adapter has errors its siblings do not have",
    severity=Severity.WARN,
    reads="hw_counters of the EFA adapters of one node, since boot",
    cause="trouble at the remote end or on the path of this adapter",
    action=Action.WATCH,
    next_step="take a second sample; if it grows, find the remote node with the same pattern and "
    "compare the peers' adapters",
    source="hardware counters of the Linux EFA driver; against the siblings: our rule",
    others="-",
    example="rdmap79s0/1: 311 retransmission time-outs since boot; 3 other adapters are clean",
)
RULES = (STANDS_OUT,)


def check(look: Look) -> Iterator[Finding]:
    """Only where most adapters are clean; elsewhere it is the fabric's usual noise."""
    ports = {
        device: sample
        for device, sample in look.facts.devices("infiniband")
        if sample.values.get("vendor") == VENDOR and any(name in sample.values for name in COUNTERS)
    }
    marked = {device: counts for device, s in ports.items() if (counts := _counts(s))}
    clean = len(ports) - len(marked)
    if clean < SIBLINGS or clean <= len(marked):
        return
    for device, counts in marked.items():
        text = " and ".join(f"{number} {COUNTERS[name]}" for name, number in counts.items())
        history = _quiet(look, device)
        yield STANDS_OUT.finding(
            look,
            f"{device}: {text} since boot{', not growing' if history else ''}; "
            f"{clean} other adapters are clean",
            tuple(f"{name} {number}" for name, number in counts.items()),
            device=device, label=device, severity=Severity.INFO if history else None,
        )  # fmt: skip


def _counts(sample: Sample) -> dict[str, int]:
    """Counters above zero."""
    read = {name: whole(sample.values.get(name)) or 0 for name in COUNTERS}
    return {name: number for name, number in read.items() if number > 0}


def _quiet(look: Look, device: str) -> bool:
    """Whether a second answer, late enough, shows the same numbers."""
    rates = look.facts.rates.get(("infiniband", device))
    if rates is None or rates.elapsed_s < QUIET_S:
        return False
    return not any((rates.deltas.get(name) or 0) > 0 for name in COUNTERS)
