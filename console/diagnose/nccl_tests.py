"""nccl-tests output of any release: judged by its large sizes, never by the printed average."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import structs

from console.diagnose import nccl_debug, nccl_shape, nccl_trouble
from console.diagnose.nccl_run import LARGE_BYTES, Row, Run, facts, runs, size
from console.diagnose.nccl_shape import sized
from console.diagnose.nccl_tests_rules import (
    AVERAGE,
    INCOMPLETE,
    MULTI_NODE,
    PEER,
    SINGLE,
)
from console.diagnose.nccl_tests_rules import RULES as OWN_RULES
from console.diagnose.offline import Offline, limits
from console.diagnose.report import Report, drain_advice, found
from console.diagnose.text import Text
from inventory.expressions import fold
from probes.event import Finding, Severity, worst

KIND = "nccl-tests"
TITLE = "nccl-tests output of any release"
STREAMS = False
TAKES = ("nccl-debug",)
"""Lines of NCCL's log between the rows belong to the run."""
RULES = OWN_RULES

_HEAD = re.compile(
    r"^.{0,40}# (?:nccl-tests version|nThread +\d|Collective test starting|Out of bounds values|"
    r"Avg bus bandwidth|Using devices)|algbw +busbw",
    re.MULTILINE,
)
_TROUBLE = re.compile(
    r": Test (?:NCCL|CUDA) failure|\bpid \d+: Test failure|: Test timeout"
    r"|_perf: error while loading shared libraries: lib"
    r"|not enough slots available in the system"
)


def sniff(head: str) -> int:
    """By header, footer and error lines."""
    hits = len({match[0][-12:] for match in _HEAD.finditer(head)})
    if hits:
        return min(100, 85 + 5 * hits)
    return 75 if _TROUBLE.search(head) else 0


def read(text: Text) -> Report:
    """Every run of the text; several in a row are compared with each other."""
    found_runs = runs(text)
    reports = [judged(run) for run in found_runs]
    if len(reports) == 1:
        return reports[0]
    merged = Report(kind=KIND, facts={"runs": [report.facts for report in reports]})
    merged.findings = [finding for report in reports for finding in report.findings]
    merged.unknown = list(dict.fromkeys(u for report in reports for u in report.unknown))
    merged.findings += compare(reports)
    merged.measured = any(report.measured for report in reports)
    merged.drain = drain_advice(merged.findings)
    top = max(reports, key=lambda report: report.verdict.rank)
    merged.say = f"{len(reports)} runs; {top.say}"
    if any(f.rule == PEER.id for f in merged.findings):
        merged.say = f"{len(reports)} runs; " + merged.findings[-1].say
    return merged


def judged(run: Run) -> Report:
    """Facts and findings of one run."""
    report = Report(kind=KIND, facts=facts(run))
    table = run.table
    failed = _failures(run, report)
    if run.death.signal is not None:
        _crashed(run, report)
    elif not run.rows and not failed:
        report.measured = False
        report.add(INCOMPLETE, "the test printed a header and measured nothing",
                   *run.lines[:1], node=run.node)  # fmt: skip
    if run.rows and not run.alone:
        _judge(run, report)
    elif run.rows:
        _single(run, report)
    if run.rows and not table.concluded and run.death.signal is None and not failed:
        report.add(INCOMPLETE, f"the output ends after {len(run.rows)} sizes, before its summary",
                   run.lines[-1], node=run.node)  # fmt: skip
    report.drain = drain_advice(report.findings)
    report.say = _say(run, report)
    return report


def _failures(run: Run, report: Report) -> bool:
    """Findings of the debug lines around the table, and of error lines."""
    product = run.product
    nvlink = None if product is None else bool(product.nvlink_links and not product.nvlink_bridge)
    nccl_debug.judge(run.log, report, nvlink=nvlink)
    failed = [f for f in report.findings if f.rule in _FATAL]
    if failed:
        report.measured = bool(run.rows)
    return bool(failed)


_FATAL = {rule.id for rule in nccl_trouble.RULES}


def _crashed(run: Run, report: Report) -> None:
    where, death = run.death.where(), run.death
    when = "before measuring anything" if not run.rows else f"after {len(run.rows)} sizes"
    report.measured = bool(run.rows)
    more = {}
    if death.signal == 9:
        more = {"cause": "killed from outside: memory limit, time limit, or by hand",
                "next_step": "look for oom-kill lines in that node's kernel log and for the "
                "scheduler's reason; hardware is not judged by this"}  # fmt: skip
    elif death.signal == 7:
        more = {"cause": "most often /dev/shm is full or too small",
                "next_step": "df /dev/shm where it runs; --shm-size for containers; hardware is "
                "not judged by this"}  # fmt: skip
    report.add(nccl_trouble.CRASHED, f"the test crashed ({where}) {when}", *death.lines,
               node=death.host, value=death.signal, **more)  # fmt: skip


def _single(run: Run, report: Report) -> None:
    report.measured = False
    many = len(run.table.devices)
    each = (
        f" ({many} processes, each one rank 0 of its own: a build without MPI)" if many > 1 else ""
    )
    report.add(SINGLE, f"only one rank took part{each}: this run says nothing about links",
               *run.lines[:1], *filter(None, [run.average_line]), node=run.node)  # fmt: skip


def _judge(run: Run, report: Report) -> None:
    report.findings += _floor(run)
    report.findings += [*nccl_shape.iterations(run), *nccl_shape.dips(run), *nccl_shape.cycles(run)]
    if run.verdict_word == "FAILED":
        report.add(AVERAGE, "the average is below the minimum that this run was given",
                   run.average_line, node=run.node)  # fmt: skip
    _unknowns(run, report)


def _floor(run: Run) -> Iterator[Finding]:
    """Wrong data and the product's floor by the console's own check; several nodes by a mark."""
    node = Offline(run.node, hardware=run.product.name if run.product else None)
    for device in run.table.devices:
        node.put("inventory", f"{run.node}/{device['pci']}.0", index=device["device"],
                 name=device["name"])  # fmt: skip
    values: dict[str, Any] = {"ranks": run.table.ranks, "engine": "nccl-tests", "ok": True}
    if run.wrong:
        values["wrong"] = run.wrong
    if _comparable(run) and len(run.hosts) == 1:
        values["busbw_max_gb_s"] = run.best
    node.put("nccl", "summary", **values)
    pairs = zip(run.lines, run.rows, strict=True)
    evidence = [line for line, rows in pairs if _is_wrong(run, rows)][:3]
    for finding in node.judge():
        if finding.rule.startswith("nccl."):
            lines = evidence or [run.lines[-1]]
            told = [*lines, run.bounds_line] if finding.rule == "nccl.wrong" else lines
            yield _with(finding, [line for line in told if line])
    yield from _multi_node(run)


def _with(finding: Finding, evidence: list[str]) -> Finding:
    return structs.replace(finding, evidence=(*finding.evidence, *evidence)[:8])


def _is_wrong(run: Run, rows: list[Row]) -> bool:
    return not run.old_errors and any(size(row.get("wrong")) > 0 for row in rows)


def _comparable(run: Run) -> bool:
    """Whether floors, which are for large all-reduces, say something about this run."""
    return run.table.test in ("", "all_reduce_perf") and run.large_size >= LARGE_BYTES


def _multi_node(run: Run) -> Iterator[Finding]:
    product, nodes, ranks = run.product, len(run.hosts), run.table.ranks or 0
    whole = nodes > 1 and ranks == 8 * nodes
    if product is None or product.form != "sxm" or product.nvlink_gen < 4 or not whole:
        return
    mark = limits().limit("nccl.multinode_gb_s")
    busbw = run.large_busbw
    if _comparable(run) and run.large_size >= 1 << 30 and busbw is not None and busbw < mark.value:
        yield found(
            MULTI_NODE, f"busbw {busbw:.0f} GB/s over {nodes} nodes of 8 {product.name}",
            run.lines[-1], value=busbw, limit=mark,
        )  # fmt: skip


def _unknowns(run: Run, report: Report) -> None:
    product, busbw = run.product, run.large_busbw
    name = run.names[0] if run.names else "the GPUs (the header is missing)"
    if len(run.names) > 1:
        report.unknown.append("mixed GPU products: the slower ones set the pace; no figure for it")
    elif product is None:
        what = name or "this product"
        report.unknown.append(f"how much {what} should reach: not in hardware.yaml; compare nodes")
    elif len(run.hosts) > 1:
        report.unknown.append("what this fabric should reach over several nodes: compare with the "
                              "same test on other nodes, or with a run of pairs")  # fmt: skip
    elif product.allreduce_floor_gb_s is None or run.table.ranks != 8:
        report.unknown.append(f"no published figure for {run.table.ranks} x {product.name}: "
                              "compare with nodes of the same kind")  # fmt: skip
    if run.large_size < LARGE_BYTES and busbw is not None:
        report.unknown.append(f"full bandwidth: the largest size is {sized(run.large_size)}; run "
                              "up to 8 GiB (-e 8G)")  # fmt: skip
    if run.table.test not in ("", "all_reduce_perf"):
        report.unknown.append(f"published figures are for all_reduce_perf, not {run.table.test}")


def _say(run: Run, report: Report) -> str:
    if run.death.signal is not None:
        when = "before measuring anything" if not run.rows else f"after {len(run.rows)} sizes"
        return (f"Test crashed ({run.death.where()}) {when}. Software problem first, hardware not "
                "judged.")  # fmt: skip
    if report.findings and report.verdict.rank > Severity.INFO.rank:
        top = max(report.findings, key=lambda f: f.severity.rank)
        where = f"{top.node}: " if top.node else ""
        more = "" if top.rule != SINGLE.id else ". Start it with more ranks"
        return f"{where}{top.say}{more}."
    if run.large_busbw is None:
        return "nothing was measured"
    return _well(run)


def _well(run: Run) -> str:
    """All is well, as far as it can be told."""
    nodes, ranks, product = len(run.hosts), run.table.ranks, run.product
    speed = f"{run.large_busbw:.0f} GB/s at {sized(run.large_size)}"
    floor = product.allreduce_floor_gb_s if product else None
    over = {"NET/IB": " over InfiniBand", "NET/So": " over TCP sockets"}.get(
        run.table.transport[:6], ""
    )
    gdr = " with GPUDirect" if "GDRDMA" in run.table.transport else ""
    average = ""
    if (
        run.table.average is not None
        and run.large_busbw
        and (run.table.average < 0.6 * run.large_busbw)
    ):
        average = f" The average ({run.table.average:.0f}) is dominated by small messages."
    if nodes > 1:
        return f"{ranks} ranks on {nodes} nodes, {speed}{over}{gdr}.{average}"
    if floor and ranks == 8 and _comparable(run) and product:
        links = " with NVLink" if product.nvlink_links else ""
        return f"{speed}: normal for 8x {product.name}{links} (floor {floor:.0f}).{average}"
    at = f"{ranks} ranks: " if ranks else ""
    return f"{at}{speed}; no figure to compare it with.{average}"


def compare(reports: Sequence[Report]) -> list[Finding]:
    """The same test on single nodes: those below the median of all of them. Three at least."""
    groups: dict[tuple[object, ...], dict[str, float]] = {}
    for report in reports:
        told = report.facts
        hosts, busbw = told.get("hosts") or [], told.get("large_message_busbw")
        if len(hosts) == 1 and isinstance(busbw, float) and report.measured:
            key = (told.get("test"), told.get("ranks"), tuple(told.get("gpus") or ()),
                   told.get("large_message_bytes"))  # fmt: skip
            groups.setdefault(key, {})[hosts[0]] = busbw
    share = limits().limit("nccl.floor_share")
    slow = []
    for by_host in groups.values():
        if len(by_host) < 3:
            continue
        middle = statistics.median(by_host.values())
        for host, busbw in by_host.items():
            if busbw < share.value * middle:
                others = fold(name for name in by_host if name != host)
                slow.append(found(
                    PEER, f"{host}: {busbw:.0f} GB/s, {busbw / middle:.0%} of the median "
                    f"{middle:.0f} of {len(by_host)} nodes", f"{host} {busbw} GB/s",
                    f"compared with {others}", node=host, value=busbw, limit=share,
                ))  # fmt: skip
    return slow


def across(reports: Sequence[Report]) -> Report | None:
    """Runs in several files, one a node, compared with each other."""
    singles = [r for report in reports for r in _singles(report)]
    slow = compare(singles)
    hosts = {h for report in singles for h in report.facts.get("hosts", ())}
    if len(hosts) < 3 or worst([f.severity for f in slow]) is Severity.OK:
        return None
    return Report(
        kind=KIND, facts={"slow_nodes": [f.node for f in slow], "nodes": sorted(hosts)},
        findings=slow, say="; ".join(f.say for f in slow), drain=drain_advice(slow),
    )  # fmt: skip


def _singles(report: Report) -> list[Report]:
    if "runs" not in report.facts:
        return [report]
    return [Report(kind=KIND, facts=told) for told in report.facts["runs"]]
