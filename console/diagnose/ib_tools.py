"""What people paste of InfiniBand tools: ibstat, ibstatus, ibv_devinfo, ibdev2netdev, rdma link,
perfquery, ibqueryerrors, iblinkinfo; by node, with what could not be measured.

"(Down)" of ibdev2netdev is about the network interface: a port that is ACTIVE works without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from console.diagnose import (
    ethtool_text,
    ib_fabric,
    ib_rules,
    iblinkinfo,
    ibstat,
    mlxlink,
)
from console.diagnose.ib_judge import drain
from console.diagnose.ib_node import SAID, IbNode
from console.diagnose.nodes import head as unnamed
from console.diagnose.nodes import parts
from console.diagnose.report import NO, Report, worst_advice
from console.diagnose.text import Text
from probes.event import Severity

KIND = "ib-tools"
TITLE = "ibstat, ibstatus, ibv_devinfo, ibdev2netdev, rdma, perfquery, iblinkinfo, mlxlink, ethtool"
STREAMS = False
RULES = (*ib_rules.RULES, *mlxlink.RULES, *ethtool_text.RULES)


def sniff(head: str) -> int:
    """By blocks of devices and ports, headings of counters, lines of links."""
    head = unnamed(head)
    lines = head.split("\n", 600)[:600]
    if "CA '" in head and "Port " in head:
        return 95
    if "# Port counters:" in head or "# Port extended counters:" in head:
        return 95
    if iblinkinfo.parse(lines) or ("Errors for " in head and "GUID 0x" in head):
        return 92
    if mlxlink.looks(head) or ethtool_text.looks(head) or "# Topology file: generated on" in head:
        return 90
    if "Infiniband device '" in head or "hca_id:" in head:
        return 95
    seen = ibstat.parse(lines)
    filled = sum(1 for line in lines if line.strip())
    if seen.ports and len(seen.ports) * 3 >= filled:
        return 85
    if seen.vanished or (seen.absent and any(word in head for word in _TOOLS)):
        return 85
    return 60 if seen.ports else 0


_TOOLS = (
    "ibstat", "ibpanic", "ibv_devinfo", "ibdev2netdev", "perfquery", "umad", "UMAD", "ibwarn",
    "IB devices", "Fatal error:  No devices", "Query SA failed", "madrpc", "iberror", "iblinkinfo",
    "ibqueryerrors", "mlxlink",
)  # fmt: skip


def read(text: Text) -> Report:
    """All nodes of the text, or the fabric's links."""
    lines = [line for _, line in text]
    report = Report(kind=KIND, measured=False)
    links = iblinkinfo.parse(lines)
    modules = mlxlink.parse(lines)
    if links:
        ib_fabric.read(report, links)
    for module in modules:
        mlxlink.judge(report, module)
    for interface in ethtool_text.parse(lines):
        ethtool_text.judge(report, interface)
    if not links:
        _nodes(report, [IbNode(part) for part in parts(lines, text.host)])
    if any("# Topology file: generated on" in line for line in lines[:50]):
        report.unknown.append(
            "health of the links: ibnetdiscover lists who is cabled to whom; iblinkinfo and "
            "ibqueryerrors show their state"
        )
        report.say = report.say or "a list of the fabric's cabling; it shows no state of links"
    if not report.say:
        report.say = "no port of an RDMA adapter could be read in it"
    return report


def _nodes(report: Report, nodes: list[IbNode]) -> None:
    told = [node for node in nodes if not node.empty]
    if not told:
        return
    report.measured = report.measured or any(node.measured for node in told)
    report.findings += [finding for node in told for finding in node.findings]
    several = len(told) > 1
    for node in told:
        lead = f"{node.name}: " if node.name and several else ""
        report.unknown += [lead + text for text in node.unknown]
    report.facts.update(
        {n.name or "?": _short(n.facts()) for n in told} if several else told[0].facts()
    )
    advice = [drain(node.findings) for node in told]
    report.drain = worst_advice([report.drain, *advice]) if advice else NO
    report.say = "; ".join(filter(None, [report.say, _say(told)]))


def _short(facts: dict[str, Any]) -> Any:
    """Of a node that measured nothing: the reason alone."""
    return facts["state"] if set(facts) <= {"state", "rc"} and "state" in facts else facts


def _say(nodes: Sequence[IbNode]) -> str:
    if len(nodes) == 1:
        return nodes[0].say()
    blind = [node for node in nodes if not node.measured]
    said = []
    if blind:
        whole = "all " if len(blind) == len(nodes) else ""
        said.append(
            f"InfiniBand state not measurable on {whole}{len(blind)} "
            f"node{'s' if len(blind) > 1 else ''} by these tools, fall back to "
            f"/sys/class/infiniband ({_reasons(blind)})"
        )
    bad = [
        node for node in nodes if node.measured
        and any(f.severity.rank > Severity.INFO.rank for f in node.findings)
    ]  # fmt: skip
    said += [f"{node.name or '?'}: {node.say()}" for node in bad[:6]]
    fine = len(nodes) - len(blind) - len(bad)
    if fine:
        said.append(f"{fine} node{'s' if fine > 1 else ''} without trouble")
    return "; ".join(said)


def _reasons(nodes: Sequence[IbNode]) -> str:
    counts = Counter(node.seen.absent for node in nodes)
    return "; ".join(
        f"{SAID.get(reason, 'the tool failed')}: "
        + ", ".join(n.name or "?" for n in nodes if n.seen.absent == reason)[:200]
        for reason in counts
    )
