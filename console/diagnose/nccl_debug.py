"""NCCL_DEBUG logs and what PyTorch's watchdog adds: which network, which path, who hung.

Streams: counts and first lines are kept, never the log. Plugin noise ("Failed to find
ncclNetPlugin_v10 symbol") is how NCCL looks for plugins and means nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from console.diagnose import nccl_trouble, watchdog
from console.diagnose.nccl_log import WARNINGS, Log
from console.diagnose.nccl_log_rules import (
    ASYNC,
    CATASTROPHIC,
    COMPLETION,
    HCA_MIX,
    INIT_OPEN,
    NO_GDR,
    SHM,
    SLOW_INIT,
    SOCKET,
    VERSIONS,
)
from console.diagnose.nccl_log_rules import RULES as OWN_RULES
from console.diagnose.offline import limits
from console.diagnose.report import AFTER_JOBS, Report, drain_advice
from console.diagnose.text import Text
from inventory.expressions import fold
from probes.event import Severity

KIND = "nccl-debug"
TITLE = "NCCL_DEBUG=INFO or WARN logs, PyTorch's NCCL watchdog"
STREAMS = True
RULES = (*OWN_RULES, *nccl_trouble.RULES, *watchdog.RULES)

_SNIFF = re.compile(r"NCCL (?:INFO|WARN) |NCCL version \d|ProcessGroupNCCL|WorkNCCL\(")
_QUIET_EVENTS = re.compile(
    r"client reregistration|GID table change|SM change|LID change", re.IGNORECASE
)


def sniff(head: str) -> int:
    """By NCCL's own words."""
    hits = len(_SNIFF.findall(head))
    return 0 if not hits else min(84, 60 + 5 * hits)


def read(text: Text) -> Report:
    """The log in one pass."""
    log = Log()
    for _, line in text:
        log.feed(line)
    report = Report(kind=KIND, facts=facts(log))
    judge(log, report)
    report.drain = drain_advice(report.findings)
    if report.drain == AFTER_JOBS and any(f.rule == COMPLETION.id for f in report.findings):
        report.drain = "unknown: link counters of both ends of the named path"
    report.say = _say(log, report)
    if not log.lines and not log.watch.any:
        report.measured = False
    report.unknown.append("bandwidth: run nccl-tests; the log names paths, not speeds")
    return report


def facts(log: Log) -> dict[str, Any]:
    """What the log says, without judgement."""
    networks = sorted({n for found in log.networks.values() for n in found})
    found: dict[str, Any] = {
        "nccl_versions": sorted(log.versions), "hosts": sorted(log.hosts), "ranks": log.nranks,
        "network": networks, "hcas": dict(sorted(log.hcas.items())[:64]),
        "transports": dict(log.paths.most_common(32)),
        "gpudirect": {state: sorted(hosts) for state, hosts in log.gdr.items()},
        "init_started": len(log.started), "init_complete": len(log.complete),
        "init_s": log.init_s or None, "warnings": dict(log.warnings.most_common(WARNINGS)),
        "completion_errors": [
            {k: v for k, v in one.items() if k != "line"} for one in log.completions
        ],
        "async_events": [{k: v for k, v in one.items() if k != "line"} for one in log.events],
    }  # fmt: skip
    found.update(log.watch.facts())
    return {name: value for name, value in found.items() if value not in (None, {}, [], 0)}


def judge(log: Log, report: Report, *, nvlink: bool | None = None) -> None:
    """Findings of a log; `nvlink` says whether its GPUs are known to have NVLink among them."""
    _network(log, report)
    _paths(log, report, nvlink)
    _ports(log, report)
    told = [f for f in log.failures.values() if f[0] is not nccl_trouble.KNOWN[-1]]
    for known, hosts, lines, count in told or log.failures.values():
        where = f" on {fold(hosts)}" if len(hosts) > 1 else ""
        more = {"cause": known.cause, "next_step": known.next_step}
        report.add(known.rule, f"{known.say}{where}", *lines,
                   node=hosts[0] if len(hosts) == 1 else "", value=count, **more)  # fmt: skip
    if len(log.versions) > 1:
        named = "; ".join(f"{v} on {fold(h) or '?'}" for v, h in sorted(log.versions.items()))
        report.add(VERSIONS, f"ranks use different NCCL versions: {named}", named)
    log.watch.judge(report, log.nranks)
    _started(log, report)


def _network(log: Log, report: Report) -> None:
    socket = sorted(h for h, n in log.networks.items() if "Socket" in n)
    over_socket = sum(n for p, n in log.paths.items() if p.startswith("NET/Socket"))
    lines = [log.first.get(k, "") for k in ("no device", "network Socket", "path NET/Socket")]
    if socket and (over_socket or len(log.hosts) > 1 or (log.nranks or 0) > 8):
        others = sorted(h for h, n in log.networks.items() if h not in socket and "IB" in n)
        rest = f"; {fold(others)} use InfiniBand" if others else ""
        report.add(SOCKET, f"TCP sockets instead of InfiniBand on {fold(socket)}{rest}",
                   *filter(None, lines), node=socket[0] if len(socket) == 1 else "")  # fmt: skip
    elif socket:
        report.add(SOCKET, f"only TCP sockets would be used between nodes ({fold(socket)})",
                   *filter(None, lines), severity=Severity.INFO)  # fmt: skip
    layers = {host: {d.rpartition("/")[2] for d in devices} for host, devices in log.hcas.items()}
    mixed = sorted(host for host, kinds in layers.items() if len(kinds) > 1)
    if mixed:
        report.add(HCA_MIX, f"InfiniBand and Ethernet ports are used together on {fold(mixed)}",
                   log.first.get("hcas", ""))  # fmt: skip
    _odd_hcas(log, report)


def _odd_hcas(log: Log, report: Report) -> None:
    """Hosts whose adapters differ from those of most hosts."""
    if len(log.hcas) < 3:
        return
    usual, number = Counter(tuple(d) for d in log.hcas.values()).most_common(1)[0]
    if number * 2 <= len(log.hcas):
        return
    for host, devices in sorted(log.hcas.items()):
        if tuple(devices) != usual and (missing := [d for d in usual if d not in devices]):
            said = ", ".join(missing) or "another order"
            report.add(HCA_MIX, f"other adapters than on most hosts: without {said}",
                       f"{host}: {' '.join(devices)}", f"most: {' '.join(usual)}",
                       node=host)  # fmt: skip


def _paths(log: Log, report: Report, nvlink: bool | None) -> None:
    bounced = {p: n for p, n in log.paths.items() if p.startswith("NET/IB") and "GDRDMA" not in p}
    direct = sum(n for p, n in log.paths.items() if "GDRDMA" in p)
    off = sorted(log.gdr.get("disabled", ()))
    if bounced or (off and not direct):
        lines = [log.first.get("gdr disabled", ""), *(log.first[f"via {p}"] for p in bounced)]
        part = f" for {sum(bounced.values())} of {sum(bounced.values()) + direct} channels"
        report.add(NO_GDR, f"InfiniBand without GPUDirect RDMA{part if bounced else ''}",
                   *filter(None, lines))  # fmt: skip
    peer = sum(n for p, n in log.paths.items() if p.startswith("P2P"))
    if log.shm and (peer or nvlink):
        pairs = ", ".join(f"{a}-{b}" for a, b in list(log.shm)[:6])
        report.add(SHM, f"ranks {pairs} go through host memory though their GPUs have NVLink"
                   if nvlink else f"ranks {pairs} go through host memory, others peer to peer",
                   *list(log.shm.values())[:3])  # fmt: skip


def _ports(log: Log, report: Report) -> None:
    by_port: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for one in log.completions:
        key = (one["host"], one.get("hca", ""), one.get("status", 0))
        by_port.setdefault(key, []).append(one)
    for (host, hca, status), same in by_port.items():
        words = {12: "retries exceeded", 13: "receiver not ready, retries exceeded",
                 5: "work request flushed", 10: "remote access error"}.get(status, "")  # fmt: skip
        peer = f" towards {same[0]['peer']}" if same[0].get("peer") else ""
        at = hca or "an adapter that this release does not name"
        report.add(COMPLETION, f"{at}: completion error {status} {words}{peer}".replace("  ", " "),
                   *(one["line"] for one in same[:3]), node=host, device=hca, label=hca,
                   value=len(same))  # fmt: skip
    for event in log.events:
        if _QUIET_EVENTS.search(event["event"]):
            continue
        fatal = re.search(r"catastrophic|fatal", event["event"], re.IGNORECASE)
        report.add(CATASTROPHIC if fatal else ASYNC, f"{event['hca'] or 'an adapter'}: "
                   f"{event['event'] or 'async event'}", event["line"], node=event["host"],
                   device=event["hca"], label=event["hca"])  # fmt: skip


def _started(log: Log, report: Report) -> None:
    missing = sorted(log.started - log.complete)
    if missing and log.complete | log.started and not report.findings:
        named = ", ".join(map(str, missing[:16]))
        report.add(INIT_OPEN, f"ranks {named} began to initialise and never finished",
                   f"Init START of {len(log.started)} ranks, Init COMPLETE of "
                   f"{len(log.complete)}")  # fmt: skip
    limit = limits().limit("nccl.init_s")
    if log.init_s > limit.value:
        report.add(SLOW_INIT, f"initialising took {log.init_s:.0f} s", f"total {log.init_s:.2f}",
                   value=log.init_s, limit=limit)  # fmt: skip


def _say(log: Log, report: Report) -> str:
    if report.findings:
        top = max(report.findings, key=lambda f: f.severity.rank)
        where = f"{top.node}: " if top.node else ""
        return f"{where}{top.say}"
    networks = sorted({n for found in log.networks.values() for n in found if n != "no IB device"})
    gdr = " with GPUDirect" if any("GDRDMA" in path for path in log.paths) else ""
    over = f" over {', '.join(networks)}{gdr}" if networks else gdr
    ranks = f"{log.nranks} ranks" if log.nranks else "a run"
    return f"{ranks} on {len(log.hosts) or 1} host{'s' * (len(log.hosts) > 1)}{over}: nothing wrong"
