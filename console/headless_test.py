"""`gpuconsole test`: the node-level all-reduce on idle nodes; results are Samples."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from console import units
from console.engine import Engine
from console.launch import engine_for, run_async
from console.output import Stdout, as_json, as_ndjson, exit_code, say
from console.settings import private
from inventory.expressions import expand, fold
from probes.event import SCHEMA, Event, Finding, NodeState, NodeStatus, Sample, Severity, worst

if TYPE_CHECKING:
    from console.options import Request

READY_S = 30.0
"""How long a node may take until its session is up and its GPU processes were read."""
ENDED = ("done", "failed", "refused")
SETTLED = (
    NodeState.UNREACHABLE,
    NodeState.AUTH_FAILED,
    NodeState.HOST_KEY_CHANGED,
    NodeState.NO_PYTHON,
)


class TestReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One node's result. Bandwidths in GB/s (1e9 B/s), as nccl-tests prints them."""

    node: str
    verdict: Severity
    engine: str = ""
    ranks: int | None = None
    busbw_max_gb_s: float | None = None
    busbw_avg_gb_s: float | None = None
    findings: list[Finding] = []
    refused: str = ""
    error: str = ""


class TestDocument(Struct, frozen=True, kw_only=True):
    """What `gpuconsole test --json` writes."""

    schema: int
    at: float
    duration_s: float
    level: str
    verdict: Severity
    nodes: list[TestReport]


class _Watcher:
    """Follows the job Samples of the tests and tells the operator."""

    def __init__(self) -> None:
        self.ended: dict[str, Sample] = {}
        self.samples: list[Event] = []
        self.changed = asyncio.Event()

    def __call__(self, event: Event) -> None:
        if isinstance(event, Sample) and event.probe in ("job", "nccl"):
            self.samples.append(event)
            self._tell(event)
        if isinstance(event, Sample | NodeStatus):
            self.changed.set()

    def _tell(self, sample: Sample) -> None:
        values = sample.values
        if sample.probe == "job":
            if values.get("state") in ENDED:
                self.ended[sample.node] = sample
            if values.get("state") != "progress":
                say(f"{sample.node}: {values.get('state', '?')} {values.get('text', '')}".rstrip())
        elif sample.device == "" and values.get("in_place") is False:
            size = units.size(_float(values.get("size_bytes")))
            say(f"{sample.node}: {size:>6}  busbw {values.get('busbw_gb_s', units.ABSENT)} GB/s")


def run(
    request: Request, nodes_expression: str, *, force: bool, limit_s: float, as_json: bool
) -> int:
    """Exit by the worst verdict; a node that was refused or gave no result counts as unknown."""
    return run_async(_run(request, expand(nodes_expression), force, limit_s, as_json))


async def _run(request: Request, names: list[str], force: bool, limit_s: float, json: bool) -> int:
    started = time.time()
    async with engine_for(request, one_pass=True, only=fold(names)) as engine:
        watcher = _Watcher()
        engine.taps.append(watcher)
        async with asyncio.TaskGroup() as group:
            sessions = group.create_task(engine.run())
            refused = await _start(engine, names, force, limit_s, watcher)
            await _finish(set(names) - set(refused), engine, watcher, limit_s)
            sessions.cancel()
        engine.fleet.tick()
        reports = [_report(engine, name, refused, watcher) for name in names]
    _store(watcher.samples, engine.state)
    result = TestDocument(
        schema=SCHEMA,
        at=started,
        duration_s=round(time.time() - started, 3),
        level="node",
        verdict=worst([report.verdict for report in reports]),
        nodes=reports,
    )
    Stdout().write(as_json(result, indent=sys.stdout.isatty()) if json else _text(result))
    return exit_code(result.verdict)


async def _until(watcher: _Watcher, condition: object, deadline_s: float) -> None:
    """Wait until the condition (a callable) holds, looking after every Event."""
    assert callable(condition)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(deadline_s):
            while not condition():
                watcher.changed.clear()
                await watcher.changed.wait()


async def _start(
    engine: Engine, names: list[str], force: bool, limit_s: float, watcher: _Watcher
) -> dict[str, str]:
    """Wait until every node can say whether it is busy, then start; node -> why not."""

    def settled() -> bool:
        states = [engine.fleet.nodes[name].state for name in names]
        return all(
            state in SETTLED or not engine.test_refusal(name).endswith(engine.NOT_YET)
            for name, state in zip(names, states, strict=True)
        )

    await _until(watcher, settled, READY_S)
    return engine.start_test(names, force=force, limit_s=limit_s)


async def _finish(names: set[str], engine: Engine, watcher: _Watcher, limit_s: float) -> None:
    def over() -> bool:
        lost = {n for n in names if engine.fleet.nodes[n].state in SETTLED}
        return names <= watcher.ended.keys() | lost

    await _until(watcher, over, limit_s + 15.0)


def _report(engine: Engine, name: str, refused: dict[str, str], watcher: _Watcher) -> TestReport:
    if name in refused:
        return TestReport(node=name, verdict=Severity.UNKNOWN, refused=refused[name])
    summary = engine.fleet.nodes[name].get("nccl", "summary")
    job = watcher.ended.get(name)
    if summary is None:
        text = str(job.values.get("text", "")) if job else "no result within the time limit"
        kind = "refused" if job and job.values.get("state") == "refused" else "error"
        return TestReport(node=name, verdict=Severity.UNKNOWN, **{kind: text})  # type: ignore[arg-type]
    findings = [f for f in engine.fleet.findings[name] if f.rule.startswith("nccl.")]
    values = summary.values
    failed = not values.get("ok", False)
    verdict = worst([f.severity for f in findings])
    if failed and verdict.rank < Severity.UNKNOWN.rank:
        verdict = Severity.UNKNOWN
    return TestReport(
        node=name,
        verdict=verdict,
        engine=str(values.get("engine", "")),
        ranks=_int(values.get("ranks")),
        busbw_max_gb_s=_float(values.get("busbw_max_gb_s")),
        busbw_avg_gb_s=_float(values.get("busbw_avg_gb_s")),
        findings=findings,
        error=str(values.get("error", "")),
    )


def _int(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _float(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _store(samples: list[Event], state: Path) -> None:
    """Append the results to the state directory; a full disk costs the record, not the result."""
    try:
        with (private(state) / "tests.ndjson").open("ab") as file:
            file.write(as_ndjson(samples))
    except OSError as error:
        say(f"results not stored: {error.strerror}")


def _text(result: TestDocument) -> bytes:
    lines = []
    for report in result.nodes:
        if report.busbw_max_gb_s is not None:
            what = f"busbw {report.busbw_max_gb_s:.2f} GB/s at the best size, {report.engine}"
            what += f", {report.ranks} ranks" if report.ranks else ""
        else:
            what = report.refused or report.error
        lines.append(f"{report.node}  {report.verdict:8}  {what}")
        lines += [f"    {finding.say}; {finding.next_step}" for finding in report.findings]
    return ("\n".join(lines) + "\n").encode()
