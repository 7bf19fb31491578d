"""Trees of /sys/class/infiniband, as a JSON dump or as `grep . .../*` prints them.

Absent files are normal: EFA has no counters directory, virtual functions no PMA, Ethernet no LID.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from console.diagnose.ib_judge import drain, growth, judge, totals
from console.diagnose.ib_ports import Port
from console.diagnose.ib_tree import EFA, EFA_COUNTERS, Tree, ports_of, printed, trees
from console.diagnose.perfquery import Reading
from console.diagnose.report import NO, Report, worst_advice
from console.diagnose.text import Text
from probes.event import Finding, Severity

KIND = "ib-sysfs"
TITLE = "/sys/class/infiniband as a JSON dump or printed by grep"
STREAMS = False


def sniff(head: str) -> int:
    """By its layout, or by paths with ports and states."""
    if '"sysfs-infiniband/' in head:
        return 98
    if re.search(r'"[\w.-]+/ports/\d+/(?:state|phys_state)"', head):
        return 90
    lines = head.split("\n", 400)[:400]
    return 90 if any("/ports/" in path for path, _ in printed(lines)) else 0


def _private(port: Port) -> dict[str, Any]:
    """What the reader noted for itself; the rest of `extra` are readings of the live probe."""
    noted = {name: port.extra.pop(name) for name in list(port.extra) if name.startswith("_")}
    port.extra["has_counters"] = bool(port.counters)
    return noted


def read(text: Text) -> Report:
    """All trees of the text; of several of one node the last one is now, the first was before."""
    found: dict[str, list[Tree]] = {}
    for tree in trees(text):
        found.setdefault(tree.node, []).append(tree)
    report = Report(kind=KIND, measured=False)
    says: list[str] = []
    advice = [NO]
    for tree, before in ((group[-1], group[0]) for group in found.values()):
        ports = ports_of(tree)
        if not ports:
            continue
        report.measured = True
        noted = {port.name: _private(port) for port in ports}
        findings = judge(ports, tree.node)
        findings += _grown(before, tree, ports) or _totals(ports, tree.node)
        report.findings += findings
        facts = _facts(ports, noted, findings)
        report.facts = facts if len(found) == 1 else {**report.facts, tree.node or "?": facts}
        says.append(f"{tree.node}: " * bool(tree.node and len(found) > 1)
                    + _say(ports, noted, findings))  # fmt: skip
        advice.append(drain(findings))
        report.unknown += _unknown(tree, ports)
    report.drain = worst_advice(advice)
    report.say = "; ".join(says[:6]) or "no port of an RDMA adapter could be read in it"
    return report


def _grown(before: Tree, now: Tree, ports: Sequence[Port]) -> list[Finding]:
    """What rose from one tree of a node to the next."""
    if before is now:
        return []
    old = {port.name: port.counters for port in ports_of(before)}
    return [
        finding
        for port in ports if port.name in old and not port.extra.get("is_vf")
        for finding in growth(
            Reading(port.device, str(port.port), old[port.name], before.at),
            Reading(port.device, str(port.port), port.counters, now.at), now.node,
        )
    ]  # fmt: skip


def _totals(ports: Iterable[Port], node: str) -> list[Finding]:
    readings = [
        Reading(port.device, str(port.port), port.counters, None, [])
        for port in ports if not port.extra.get("is_vf")
    ]  # fmt: skip
    return totals(readings, node)


def _unknown(tree: Tree, ports: Sequence[Port]) -> Iterator[str]:
    bonds = [port.device for port in ports if port.extra.get("bond")]
    if bonds:
        yield (
            f"whether both legs of {', '.join(bonds[:4])} are up: a bond hides the loss of one; "
            "/proc/net/bonding or /sys/class/net/*/bonding_slave/mii_status tells"
        )
    if tree.errors:
        path, error = next(iter(tree.errors.items()))
        yield f"{len(tree.errors)} files that could not be read ({path}: {error})"
    states = [port for port in ports if port.state_number is None]
    if states:
        yield f"the state of {', '.join(port.name for port in states[:8])}: not in the dump"


def _facts(
    ports: Sequence[Port], noted: dict[str, dict[str, Any]], findings: Sequence[Finding]
) -> dict[str, Any]:
    bad = {f.device for f in findings if f.severity.rank > Severity.INFO.rank}
    facts: dict[str, Any] = {}
    functions = [port for port in ports if port.extra.get("is_vf")]
    if functions:
        facts["pf"] = [p.device for p in ports if not p.extra.get("is_vf")]
        facts["vf"] = [p.device for p in functions]
        facts["vf_in_use_down"] = [
            p.device for p in functions if p.extra.get("vf_in_use") and not p.active
        ]  # fmt: skip
    if all(port.extra.get("vendor") == EFA for port in ports):
        facts["kind"] = "efa"
        facts["others_clean"] = not any(
            port.counters.get(name)
            for port in ports
            if port.name not in bad
            for name in EFA_COUNTERS
        )
    facts["devices"] = len({port.device for port in ports})
    for port in ports:
        facts[_key(port, ports)] = _port_facts(port, noted[port.name], port.name not in bad)
    return facts


def _key(port: Port, ports: Sequence[Port]) -> str:
    return port.device if sum(p.device == port.device for p in ports) == 1 else port.name


def _port_facts(port: Port, noted: dict[str, Any], ok: bool) -> dict[str, Any]:
    facts = port.facts()
    facts["ok"] = ok and (port.active or bool(port.extra.get("is_vf")))
    facts["bond"] = bool(port.extra.get("bond"))
    numbers = noted.get("_numbers", {})
    if noted.get("_no_number") and not port.counters:
        facts["counters"] = "unavailable"
    elif numbers:
        facts["counters"] = numbers.get("counters", numbers.get("hw_counters", 0))
    if noted.get("_device_counters"):
        facts["device_counters"] = noted["_device_counters"]
    facts.update({name: n for name, n in port.counters.items() if n})
    if port.extra.get("is_vf"):
        facts["in_use"] = bool(port.extra.get("vf_in_use"))
    return facts


def _say(
    ports: Sequence[Port], noted: dict[str, dict[str, Any]], findings: Sequence[Finding]
) -> str:
    bad = [f for f in findings if f.severity.rank > Severity.INFO.rank]
    said = [_told(f, ports) for f in bad[:4]] + ([f"and {len(bad) - 4} more"] if bad[4:] else [])
    physical = [port for port in ports if not port.extra.get("is_vf")]
    said.append(_up(physical))
    idle = [p for p in ports if p.extra.get("is_vf") and not p.extra.get("vf_in_use")]
    if idle:
        said.append(f"{len(idle)} unused virtual function{'s are' if len(idle) > 1 else ' is'} "
                    "ignored")  # fmt: skip
    silent = [p.device for p in ports if noted[p.name].get("_no_number") and not p.counters]
    if silent:
        said.append(f"{', '.join(silent[:4])} has no error counters (no PMA, as virtual functions)")
    said += [f.say for f in findings if f.severity is Severity.INFO][:2]
    if any(f.rule == "ib.efa_totals" and f.severity is Severity.WARN for f in findings):
        said.append("compare with the peers' adapters")
    return "; ".join(part for part in said if part)


def _told(finding: Finding, ports: Sequence[Port]) -> str:
    """A virtual function without a GUID is not set up yet."""
    port = next((p for p in ports if p.name == finding.device), None)
    unset = port is not None and not port.guid.replace(":", "").replace("0", "") and port.guid
    if finding.rule == "ib.vf_down" and unset:
        return f"VF {finding.say}, no GUID is set"
    return finding.say


def _up(ports: Sequence[Port]) -> str:
    """1 InfiniBand port and 2 RoCE ports up (one is a bond)."""
    up = [port for port in ports if port.active]
    kinds = (
        ("InfiniBand", [p for p in up if p.layer == "InfiniBand"]),
        ("EFA", [p for p in up if p.extra.get("vendor") == EFA]),
        ("RoCE", [p for p in up if p.ethernet and p.extra.get("vendor") != EFA]),
    )
    parts = [
        f"{len(some)} {name} port{'s' if len(some) > 1 else ''}" for name, some in kinds if some
    ]
    bonds = sum(bool(port.extra.get("bond")) for port in up)
    bond = f" ({'one is a bond' if bonds == 1 else f'{bonds} are bonds'})" if bonds else ""
    if not parts:
        return f"{len(up)} of {len(ports)} ports up"
    return " and ".join(parts) + f" up{bond}"
