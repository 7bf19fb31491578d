"""Links of a whole fabric as iblinkinfo lists them: hosts without a link, links below their best.

A switch port without a link and without a neighbour is a free port, not a fault.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from console.diagnose import ib_rules
from console.diagnose.ib_judge import GANG
from console.diagnose.iblinkinfo import Link
from console.diagnose.live_rules import live
from console.diagnose.report import NO, Report, found
from probes.event import Action, Finding, Severity

LISTED = 100


def read(report: Report, links: Sequence[Link]) -> None:
    """Into the report."""
    hosts = [link for link in links if link.kind == "CA"]
    switched = [link for link in links if link.kind != "CA"]
    slow = _slow(links)
    down = [link for link in hosts if not link.active]
    report.measured = True
    report.findings += [_down(link, hosts) for link in down[:LISTED]]
    report.findings += [_limited(link, links) for link in slow[:LISTED]]
    report.facts.update(_facts(links, hosts, switched, down, slow))
    report.say = _say(hosts, switched, down, slow, links)
    report.drain = GANG if any(_grave(f) for f in report.findings) else NO
    if _all_limited(links) and not slow:
        report.unknown.append(
            "whether the site limits the speed on purpose: all links could be faster"
        )


def _grave(finding: Finding) -> bool:
    return finding.severity is Severity.CRITICAL


def _all_limited(links: Sequence[Link]) -> bool:
    active = [link for link in links if link.active]
    return bool(active) and sum(bool(link.could) for link in active) * 2 > len(active)


def _slow(links: Sequence[Link]) -> list[Link]:
    """Links that could do more, where most of their kind do; each once."""
    active = [link for link in links if link.active]
    usual = Counter(link.gbps for link in active if link.gbps is not None).most_common(1)
    seen: set[frozenset[str]] = set()
    found_: list[Link] = []
    for link in active:
        below = usual and link.gbps is not None and link.gbps < usual[0][0]
        if not link.could or (_all_limited(links) and not below):
            continue
        ends = frozenset((f"{link.node} {link.port}" if link.kind == "CA" else link.node,
                          link.remote))  # fmt: skip
        if link.kind != "CA" and any(link.remote == other.node for other in found_):
            continue  # the same link was told from its host's end
        if ends not in seen or link.kind == "CA":
            seen.add(ends)
            found_.append(link)
    return found_


def _down(link: Link, hosts: Sequence[Link]) -> Finding:
    others = sum(1 for other in hosts if other.active)
    state = f"{link.state}, {link.physical}"
    waiting = link.physical.lower() == "linkup"
    return found(
        live("ib.down"), f"{link.node} port {link.port} is not active: {state}", link.line,
        f"{others} of {len(hosts)} host ports are active", node=link.host,
        device=f"{link.node}/{link.port}", label=link.node,
        cause="the link is up but no subnet manager configures the port" if waiting else "",
    )  # fmt: skip


def _limited(link: Link, links: Sequence[Link]) -> Finding:
    usual = Counter(o.gbps for o in links if o.active and o.gbps is not None).most_common(1)
    rate = f"{link.width}X {link.speed:g} Gbps" if link.speed is not None else "?"
    host = link.kind == "CA"
    below = bool(usual) and link.gbps is not None and link.gbps < usual[0][0]
    return found(
        ib_rules.SLOW, f"{link.node} port {link.port} to {link.remote or '?'} runs at {rate}, it "
        f"could be {' and '.join(link.could)}", link.line, node=link.host,
        device=f"{link.node}/{link.port}", label=link.node,
        severity=Severity.CRITICAL if host and below else None,
        action=None if host else Action.WATCH,
    )  # fmt: skip


def _facts(
    links: Sequence[Link], hosts: Sequence[Link], switched: Sequence[Link],
    down: Sequence[Link], slow: Sequence[Link],
) -> dict[str, Any]:  # fmt: skip
    rates = Counter(
        f"{link.width}X {link.speed:g} Gbps" for link in links
        if link.active and link.speed is not None
    )  # fmt: skip
    return {
        "links": len(links), "active": sum(link.active for link in links),
        "hosts": len({link.host for link in hosts if link.host}),
        "host_ports_active": sum(link.active for link in hosts),
        "host_ports_down": [f"{link.node}/{link.port}" for link in down],
        "free_switch_ports": sum(not link.active and not link.remote for link in switched),
        "rates": dict(rates.most_common(8)),
        "below_best": [
            {"node": link.node, "port": link.port, "remote": link.remote,
             "could_be": list(link.could)} for link in slow[:LISTED]
        ],
    }  # fmt: skip


def _say(
    hosts: Sequence[Link], switched: Sequence[Link], down: Sequence[Link], slow: Sequence[Link],
    links: Sequence[Link],
) -> str:  # fmt: skip
    said = []
    if down:
        names = ", ".join(f"{link.node} port {link.port}" for link in down[:6])
        said.append(f"{len(down)} host port{'s' if len(down) > 1 else ''} not active: {names}")
    said += [
        f"{link.node} port {link.port} to {link.remote or '?'} could be {' and '.join(link.could)}"
        for link in slow[:4]
    ]
    if len(slow) > 4:
        said.append(f"and {len(slow) - 4} more links below their best")
    active = sum(link.active for link in links)
    free = sum(not link.active and not link.remote for link in switched)
    said.append(f"{active} of {len(links)} lines are active links, {len(hosts)} of hosts; "
                f"{free} switch ports are free")  # fmt: skip
    return "; ".join(said)
