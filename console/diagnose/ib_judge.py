"""Ports of one node judged: the console's checks, then what siblings on the same paper tell."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import structs

from console.diagnose import ib_rules
from console.diagnose.ib_ports import Port, rate_gbps
from console.diagnose.live_rules import live
from console.diagnose.offline import Offline
from console.diagnose.perfquery import Reading
from console.diagnose.report import AFTER_JOBS, NO, found
from probes.derive import PMA_BITS
from probes.event import Action, Finding, Sample, Severity

FEW = 3
"""Like ports of one node that agree on a rate, from which a slower one is a fault."""
SETS = (4, 8, 16)
"""Compute ports of whole nodes: the number that is active or listed makes a full set."""
GANG = f"{AFTER_JOBS}; now for gang jobs"
MANAGER = (
    "unknown: whether other nodes wait too; then it is the subnet manager, and draining this one "
    "does not help"
)
_STATE_RULES = ("ib.down", "ib.unused", "ib.no_manager")


def judge(ports: Sequence[Port], node: str, *, complete: bool = True) -> list[Finding]:
    """Findings about one node's ports. `complete` is False where the list was cut short."""
    offline = Offline(node)
    for port in ports:
        values: dict[str, Any] = port.values()
        offline.put("infiniband", port.name, **values)
    findings = [_with_lines(f, ports) for f in offline.judge()]
    down = _down(ports)
    grades = {port.name: grade(port, ports, complete) for port in down}
    findings = [_regraded(f, grades.get(f.device), ports) for f in findings]
    slower = list(_slower(ports, node))
    told = {f.device for f in slower}
    return findings + slower + [f for f in _narrow(ports, node) if f.device not in told]


def _slower(ports: Sequence[Port], node: str) -> Iterator[Finding]:
    """An InfiniBand port below most like ports of its node; alone the live check has no measure."""
    usual: dict[str, Counter[float]] = {}
    like = [p for p in ports if p.active and p.layer == "InfiniBand" and not p.extra.get("is_vf")]
    for port in like:
        rate = rate_gbps(port.rate)
        if rate is not None:
            usual.setdefault(port.hca, Counter())[rate] += 1
    for port in like:
        rate = rate_gbps(port.rate)
        most, number = usual.get(port.hca, Counter()).most_common(1)[0] if rate else (0.0, 0)
        if rate is None or rate >= most or number < FEW or number * 2 <= len(like):
            continue
        if number in SETS:
            continue  # beside a full set it is another network's port
        yield found(
            live("ib.rate"),
            f"{port.device} runs at {rate:g} Gb/s, {number} like ports of the node at {most:g}",
            f"{port.name}: rate {port.rate}", *port.lines[:2], node=node, device=port.name,
            label=port.device, value=rate, severity=None if port.hca else Severity.WARN,
        )  # fmt: skip


_WIDTH = re.compile(r"\((?P<width>\d{1,2})X (?P<speed>[A-Z]{3,4}\d*)\)")


def _narrow(ports: Sequence[Port], node: str) -> Iterator[Finding]:
    """A port with fewer lanes than a sibling of the same speed: a half cable, or a split port."""
    like = [p for p in ports if p.active and p.layer == "InfiniBand" and not p.extra.get("is_vf")]
    lanes = [(port, match) for port in like if (match := _WIDTH.search(port.rate))]
    for port, match in lanes:
        widest = max(int(m["width"]) for p, m in lanes
                     if m["speed"] == match["speed"] and p.hca == port.hca)  # fmt: skip
        if int(match["width"]) < widest:
            yield found(
                live("ib.rate"), f"{port.device} has {match['width']} lanes, siblings of the same "
                f"speed {widest} ({port.rate})", f"{port.name}: rate {port.rate}",
                *port.lines[:2], node=node, device=port.name, label=port.device,
                severity=Severity.WARN, action=Action.WATCH,
                cause="a half-width or damaged cable, or a split switch port",
                next_step="see whether the site splits its ports; else reseat or exchange the "
                "cable after running jobs",
            )  # fmt: skip


def _down(ports: Iterable[Port]) -> list[Port]:
    """InfiniBand ports without a link that nobody hides from the host."""
    return [
        port for port in ports
        if port.state_number is not None and not port.active and not port.ethernet
        and not port.extra.get("is_vf")
    ]  # fmt: skip


def grade(port: Port, ports: Sequence[Port], complete: bool) -> Severity:
    """How bad a port without a link is, by what its siblings on the same paper do.

    A ninth port beside a full set of 8 that work is a front-end port or not cabled; so is the
    second function of a card whose first one works. One of 8 is missing in every collective.
    """
    like = [p for p in ports if not p.ethernet and not p.extra.get("is_vf")
            and (p.hca == port.hca or not p.hca or not port.hca)]  # fmt: skip
    active = [p for p in like if p.active]
    if port.counters.get("link_downed"):
        return Severity.CRITICAL if active else Severity.WARN
    if any(_card(p, port) for p in active):
        return Severity.INFO
    half = len(like) in SETS and len(active) * 2 <= len(like)
    if complete and len(active) in SETS and not half:
        return Severity.INFO
    if not active:
        return Severity.CRITICAL if len(like) > 1 else Severity.WARN
    missing = len(like) in SETS or any(len(active) < full <= len(like) for full in SETS)
    return Severity.CRITICAL if missing or not complete else Severity.WARN


def _card(one: Port, other: Port) -> bool:
    """Whether both are known to sit on one card."""
    if one.device == other.device:
        return True
    return bool(one.image) and one.image == other.image


def _regraded(finding: Finding, severity: Severity | None, ports: Sequence[Port]) -> Finding:
    """A port's state with the weight that the paper gives it; cause and step stay the check's."""
    if severity is None or finding.rule not in _STATE_RULES:
        return finding
    port = next(p for p in ports if p.name == finding.device)
    active = [p for p in ports if p.active and not p.ethernet and p is not port]
    words = port.plain
    others = f"{len(active)} others are" if len(active) > 1 else "1 other is"
    beside = f"; {others} active" if active else "; no other port is active"
    if severity is Severity.INFO:
        return structs.replace(
            finding, rule="ib.unused", severity=severity, action=Action.NONE,
            say=f"{port.device} has no link ({words}){beside}: not cabled, or a front-end port set "
            "to InfiniBand instead of Ethernet",
            cause="not cabled, or a front-end port in the wrong mode", source=_SOURCE,
            next_step="if the site uses it: cable it, or set its link type to Ethernet "
            "(mlxconfig LINK_TYPE_P1); else none",
        )  # fmt: skip
    action = Action.DRAIN if severity is Severity.CRITICAL else Action.WATCH
    waiting = port.physical_number == 5
    what = "waits for the subnet manager" if waiting else "has no link"
    say = f"{port.device} {what} ({words}){beside}"
    step = finding.next_step if finding.rule == "ib.down" else ""
    return structs.replace(
        finding, rule="ib.down", severity=severity, action=action, say=say, source=_SOURCE,
        cause=_CAUSES.get(port.physical_number or 0, finding.cause),
        next_step=step or _STEPS.get(port.physical_number or 0, "check cable and switch port"),
    )  # fmt: skip


_SOURCE = (
    "Linux sysfs ABI for InfiniBand [lx]: 4 ACTIVE, 5 LinkUp; how grave it is, the siblings on the "
    "same paper say: our rule"
)
_CAUSES = {
    2: "no signal from the other end: cable, transceiver, or a switch port that is off",
    3: "the port is switched off: by an administrator, the driver or the switch",
    4: "there is a signal but the link does not come up: cable, transceiver, or speeds that do not "
    "match",
    5: "the link is up but no subnet manager configures the port",
}  # fmt: skip
_STEPS = {
    2: "check cable and switch port; drain if collectives use it",
    3: "find out who disabled it (ibportstate, mlxlink); no cable helps",
    5: "look at the subnet manager (opensm, UFM) first; the cable is good",
}


def _with_lines(finding: Finding, ports: Sequence[Port]) -> Finding:
    """The very lines that told of the port."""
    port = next((p for p in ports if p.name == finding.device), None)
    if port is None or not port.lines:
        return finding
    return structs.replace(finding, evidence=(*finding.evidence, *port.lines[:4]))


def drain(findings: Iterable[Finding]) -> str:
    """A port that failed waits for the end of jobs, unless one job needs all of them."""
    grave = [f for f in findings if f.severity is Severity.CRITICAL]
    if not grave:
        return NO
    if all(f.cause == _CAUSES[5] and "no other port" in f.say for f in grave):
        return MANAGER
    return GANG


def totals(readings: Sequence[Reading], node: str = "") -> list[Finding]:
    """Error totals of one moment: information, unless no reboot of the far end explains them."""
    findings = []
    for reading in readings:
        errors = {n: reading.counters[n] for n in ib_rules.ERRORS if reading.counters.get(n)}
        if not errors:
            continue
        full = [n for n, value in errors.items() if value == (1 << PMA_BITS.get(n, 64)) - 1]
        grave = [n for n, value in errors.items() if value >= ib_rules.GRAVE.get(n, 1 << 63)]
        text = ", ".join(f"{n} {value}" for n, value in errors.items())
        verb = "stands at its maximum" if len(full) == 1 else "stand at their maximum"
        stuck = f"; {', '.join(full)} {verb}, the rate is unknown" if full else ""
        findings.append(found(
            ib_rules.TOTALS, f"{reading.name}: {text} since they were last cleared{stuck}",
            *(reading.lines or [text]), node=node or reading.host, device=reading.name,
            label=reading.name,
            severity=Severity.WARN if grave or full else None,
        ))  # fmt: skip
    return findings


def growth(first: Reading, last: Reading, node: str = "") -> list[Finding]:
    """What happened between two readings of one port: by rate where their times are known."""
    grown = {
        name: last.counters[name] - value for name, value in first.counters.items()
        if name in last.counters and last.counters[name] > value and name in ib_rules.ERRORS
    }  # fmt: skip
    if first.at is not None and last.at is not None and last.at > first.at:
        return _by_rate(first, last, node)
    if not grown:
        return []
    lines = [f"{n} {first.counters[n]} -> {last.counters[n]}" for n in grown]
    grave = bool({"link_downed", "local_link_integrity_errors"} & set(grown))
    return [found(
        ib_rules.GROWS, f"{last.name}: {', '.join(lines)} between two readings", *lines,
        node=node, device=last.name, label=last.name,
        severity=Severity.CRITICAL if grave else None, action=Action.DRAIN if grave else None,
    )]  # fmt: skip


def _by_rate(first: Reading, last: Reading, node: str) -> list[Finding]:
    """The live checks on two answers, as far apart as the readings are."""
    offline = Offline(node)
    for reading in (first, last):
        offline.facts.apply(Sample(
            node=node, probe="infiniband", device=last.name, at=offline.now,
            clock=1.0 + (reading.at or 0.0) - (first.at or 0.0), values=dict(reading.counters),
        ))  # fmt: skip
    return offline.judge()
