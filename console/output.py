"""The document of one pass, NDJSON and exit codes. stdout is data, stderr narration."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from enum import IntEnum

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

from console import charset, leaving, written
from console.fleet import Fleet
from console.said import plainly
from inventory.errors import ConsoleError
from inventory.expressions import fold, natural_key
from inventory.scheduler import Allocation
from probes.efficiency import CAVEAT, efficiency, total
from probes.event import SCHEMA, Event, Finding, NodeState, Row, Scalar, Severity, worst

GPU_METRICS = (
    "util_percent",
    "mem_used_bytes",
    "mem_total_bytes",
    "temp_c",
    "power_w",
    "power_limit_w",
    "sm_clock_mhz",
    "reasons",
    "nvml_rc",
)


class Exit(IntEnum):
    """Exit codes, the same with and without --json."""

    OK = 0
    WARN = 1
    CRITICAL = 2
    UNKNOWN = 3
    USAGE = 64
    INTERNAL = 70
    INTERRUPTED = 130


_EXIT = {
    Severity.OK: Exit.OK,
    Severity.INFO: Exit.OK,
    Severity.WARN: Exit.WARN,
    Severity.CRITICAL: Exit.CRITICAL,
    Severity.UNKNOWN: Exit.UNKNOWN,
}


class StatusReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the conversation with the node went."""

    state: NodeState
    reason: str = ""
    text: str = ""
    hint: str = ""
    age_s: float | None = None
    """Seconds since the node's last answer; absent if it never did."""


class EfficiencyReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the power of a node's GPUs buys. Estimates, never measurements of the work itself."""

    note: str
    """Why it is no more than an estimate."""
    gpus: int = 0
    """GPUs whose figures are known; the next four are of these."""
    hfu_est_percent: float | None = None
    """Mean share of the dense 16-bit peak in hardware operations; an upper bound of useful work."""
    tflops: float | None = None
    tflops_per_w: float | None = None
    watts: float | None = None
    idle_burn_w: dict[str, float] = {}
    """Job -> watts of its GPUs here that did nothing for limit:straggler.idle_burn_s."""


class NodeReport(Struct, frozen=True, kw_only=True):
    """One node of the document."""

    name: str
    verdict: Severity
    status: StatusReport
    scheduler: Allocation | None
    gpus: list[Row]
    findings: list[Finding]
    efficiency: EfficiencyReport | UnsetType = UNSET
    """Absent where nothing is known: it takes GPM, Hopper and newer, or GPUs that idle in a job."""


class FoldedFinding(Struct, frozen=True, kw_only=True):
    """The same finding on many nodes, as one line."""

    rule: str
    severity: Severity
    nodes: str
    """Folded host expression, e.g. "gpu[003,017]"."""
    count: int
    say: str
    """The sentence of the first node in natural order."""


class AutomaticReport(Struct, frozen=True, kw_only=True):
    """What --drain-on did, or with --dry-run would do."""

    summary: str
    dry_run: bool
    drained: list[str] = []
    refused: dict[str, str] = {}
    """Node -> why it was left alone."""


class Document(Struct, frozen=True, kw_only=True):
    """One pass over all nodes; always every node of the inventory, in natural order."""

    schema: int
    at: float
    duration_s: float
    cluster: str
    verdict: Severity
    counts: dict[str, int]
    nodes: list[NodeReport]
    findings: list[FoldedFinding]
    errors: list[str] = field(default_factory=list)
    automatic: AutomaticReport | None = None
    """Only with --drain-on."""


def document(fleet: Fleet, started: float, now: float) -> Document:
    """Write down what the Fleet knows. Trouble that is nobody's node makes it unknown at best."""
    names = sorted(fleet.nodes, key=natural_key)
    counts = fleet.counts()
    partial = [Severity.UNKNOWN] if fleet.errors else []
    return Document(
        schema=SCHEMA,
        at=now,
        duration_s=round(now - started, 3),
        cluster=fleet.inventory.cluster,
        verdict=worst([*(fleet.verdict(name) for name in names), *partial]),
        counts={severity.value: number for severity, number in counts.items()},
        nodes=[node_report(fleet, name, now) for name in names],
        findings=folded(fleet),
        errors=[f"{source}: {text}" for source, text in fleet.errors.items()],
    )


def node_report(fleet: Fleet, name: str, now: float) -> NodeReport:
    """One node as the document and a copy tell it."""
    facts = fleet.nodes[name]
    status = facts.status
    age = fleet.age(name, now)
    return NodeReport(
        name=name,
        verdict=fleet.verdict(name),
        status=StatusReport(
            state=facts.state,
            reason=status.reason if status else "",
            text=status.text if status else "not asked yet",
            hint=status.hint if status else "",
            age_s=None if age is None else round(age, 1),
        ),
        scheduler=facts.allocation,
        gpus=[_gpu(device, s.values) for device, s in facts.devices("gpu") if device],
        findings=fleet.findings[name],
        efficiency=_efficiency(fleet, name),
    )


def _efficiency(fleet: Fleet, name: str) -> EfficiencyReport | UnsetType:
    found = efficiency(fleet.nodes[name], fleet.rules)
    all_of = total(found.gpus)
    idle = {job: round(watts, 1) for job, watts in found.idle_burn_w.items()}
    if all_of is None:
        return EfficiencyReport(note=CAVEAT, idle_burn_w=idle) if idle else UNSET
    return EfficiencyReport(
        note=CAVEAT, gpus=all_of.gpus, hfu_est_percent=round(all_of.hfu_percent, 1),
        tflops=round(all_of.tflops, 1), tflops_per_w=round(all_of.tflops_per_w, 3),
        watts=round(all_of.watts, 1), idle_burn_w=idle,
    )  # fmt: skip


def _gpu(device: str, values: dict[str, Scalar]) -> Row:
    row: Row = {"device": device}
    if "index" in values:
        row["index"] = values["index"]
    row.update({metric: values[metric] for metric in GPU_METRICS if metric in values})
    return row


def folded(fleet: Fleet, least: Severity = Severity.WARN) -> list[FoldedFinding]:
    """Findings of at least this severity grouped by (rule, severity), worst first."""
    groups: dict[tuple[str, Severity], list[Finding]] = {}
    for name in fleet.nodes:
        for finding in fleet.findings[name]:
            if finding.severity.rank >= least.rank:
                groups.setdefault((finding.rule, finding.severity), []).append(finding)
    ordered = sorted(groups.items(), key=lambda item: (-item[0][1].rank, item[0][0]))
    return [_folded(rule, severity, members) for (rule, severity), members in ordered]


def _folded(rule: str, severity: Severity, members: list[Finding]) -> FoldedFinding:
    nodes = list(dict.fromkeys(finding.node for finding in members))
    return FoldedFinding(
        rule=rule, severity=severity, nodes=fold(nodes), count=len(members), say=members[0].say
    )


def exit_code(verdict: Severity, fail_on: Severity | None = None) -> Exit:
    """Exit code of a verdict; below `fail_on` everything counts as ok."""
    if fail_on is not None and verdict.rank < fail_on.rank:
        return Exit.OK
    return _EXIT[verdict]


class Stdout:
    """Bytes to stdout; a reader that went away ends it quietly, a full disk does not.

    So does one that does not read once the run is told to end.
    """

    def __init__(self) -> None:
        """Nothing written yet."""
        self.closed = False

    def write(self, data: bytes) -> None:
        """Write and flush; sets `closed` instead of raising when nobody reads (any more).

        Raises ConsoleError when the bytes cannot be kept.
        """
        if self.closed:
            return
        try:
            with leaving.cuttable():
                sys.stdout.flush()
                written.whole(sys.stdout.fileno(), data)
        except (BrokenPipeError, leaving.Cut):
            self.closed = True
        except OSError as error:
            self.closed = True
            raise ConsoleError(
                f"stdout: {error.strerror}; what was written is cut short"
            ) from error

    def text(self, text: str) -> None:
        """Words for a person, in stdout's character set; what it lacks becomes "?"."""
        self.write(text.encode(_charset(), "replace"))


def only_ascii() -> bool:
    """Whether signs beyond ASCII are for another terminal than the one behind stdout."""
    return not charset.is_utf8(_charset())


def _charset() -> str:
    return getattr(sys.stdout, "encoding", None) or "utf-8"


_pretty = msgspec.json.Encoder(enc_hook=plainly)


def as_json(value: object, *, indent: bool) -> bytes:
    """One JSON document with a final newline; indented for a person, compact for a pipe."""
    data = _pretty.encode(value)
    return (msgspec.json.format(data, indent=2) if indent else data) + b"\n"


def as_ndjson(events: Iterable[Event]) -> bytes:
    """One Event per line."""
    return b"".join(_pretty.encode(event) + b"\n" for event in events)


def schema() -> dict[str, object]:
    """JSON Schema of the documents and of the Event union."""
    from console.active.results import Campaign
    from console.diagnose.command import Diagnosis

    kinds = (Document, Diagnosis, Campaign, Event)
    (one_pass, diagnosis, campaign, event), components = msgspec.json.schema_components(
        kinds, ref_template="#/$defs/{name}"
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "gpuconsole",
        "oneOf": [one_pass, diagnosis, campaign, event],
        "$defs": components,
    }
