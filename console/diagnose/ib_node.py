"""One node's part of a paste of InfiniBand tools: ports and counters, judged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from console.diagnose import ib_rules, ibstat, perfquery
from console.diagnose.ib_judge import growth, judge, totals
from console.diagnose.ib_ports import Port
from console.diagnose.nodes import Part
from console.diagnose.report import found
from probes.event import Finding, Severity

SAID = {
    "tool_missing": "the tool is not installed",
    "no_devices": "there is no RDMA device",
    "umad_missing": "the module ib_umad is not loaded",
    "uverbs_missing": "the module ib_uverbs is not loaded",
    "no_permission": "no right to ask (root is needed)",
    "no_port": "no usable local port",
    "manager_silent": "the subnet manager or the far end does not answer",
}
"""Names of what stands in place of a list, in words."""


class IbNode:
    """One node's ports and counters."""

    def __init__(self, part: Part) -> None:
        self.name, self.rc = part.node, part.rc
        self.seen = ibstat.parse(part.lines)
        self.counted = perfquery.parse(part.lines)
        self.findings: list[Finding] = []
        self.unknown: list[str] = []
        self._judge()

    @property
    def ports(self) -> list[Port]:
        """In the order of their first mention."""
        return list(self.seen.ports.values())

    @property
    def measured(self) -> bool:
        """Whether a port's state or counter was read."""
        # An interface that is up has a link; one that is down says nothing about the port.
        stated = any(port.state or port.netdev_up for port in self.ports)
        return stated or bool(self.counted.readings) or bool(self.seen.vanished)

    @property
    def empty(self) -> bool:
        """Nothing of these tools in it."""
        return not self.ports and not self.measured and not self.seen.absent and not self.seen.lines

    def _judge(self) -> None:
        seen = self.seen
        self.findings += judge(self.ports, self.name, complete=seen.complete)
        for device in seen.vanished:
            line = next((text for text in seen.lines if device in text), "")
            self.findings.append(found(
                ib_rules.VANISHED, f"{device} has vanished from the system", line, node=self.name,
                device=device, label=device,
            ))  # fmt: skip
        if not self.measured and (seen.absent or seen.lines):
            self._absent()
        self._counters()
        if not seen.complete:
            self.unknown.append(
                "the list was cut short: adapters that are not in it may exist; ls "
                "/sys/class/infiniband shows all"
            )
        bare = [port for port in self.ports if not port.state and port.netdev_up is False]
        if bare:
            self.unknown.append(
                f"whether {', '.join(p.device for p in bare[:8])} ha"
                f"{'s' if len(bare) == 1 else 've'} a link: ibdev2netdev tells "
                "of the network interface only; ibstat shows the port's state"
            )

    def _absent(self) -> None:
        why = SAID.get(self.seen.absent, "the tool failed")
        self.findings.append(found(
            ib_rules.NOT_MEASURED, f"the state of InfiniBand was not measured: {why}",
            *self.seen.lines[:3], node=self.name,
        ))  # fmt: skip
        self.unknown.append(
            f"the state of the ports ({why}): /sys/class/infiniband tells it without tools"
        )

    def _counters(self) -> None:
        """Two readings of a port show growth; one shows a total."""
        readings = self.counted.readings
        twice = {last.name: (first, last) for first, last in perfquery.pairs(readings)}
        for first, last in twice.values():
            self.findings += growth(first, last, self.name)
        latest = {r.name: r for r in readings}
        found_totals = totals(list(latest.values()), self.name)
        self.findings += [f for f in found_totals if f.device not in twice]
        if found_totals and not twice:
            self.unknown.append(
                "when these errors happened: totals run since the counters were last cleared; a "
                "second reading tells what grows"
            )

    def facts(self) -> dict[str, Any]:
        """Ports by device, and counts that people ask for."""
        told: dict[str, Any] = {}
        if self.seen.absent and not self.measured:
            told["state"] = self.seen.absent
        ports = self.ports
        if ports:
            told["ports"] = {self._port_key(port): port.words for port in ports if port.state}
            told["port_details"] = {port.name: port.facts() for port in ports}
            told.update(_counts(ports, self.findings))
        if self.seen.vanished:
            told["vanished"] = self.seen.vanished
        if ports or self.seen.vanished:
            told["complete"] = self.seen.complete
        rc = 255 if self.seen.died and self.rc is None else self.rc
        if rc is not None:
            told["rc"] = rc
        if self.counted.readings:
            told["counters"] = {
                r.name: r.counters for r in self.counted.readings[-200:]
            }  # fmt: skip
        if self.counted.checked is not None:
            told["nodes_checked"] = self.counted.checked
            told["nodes_bad"] = self.counted.bad
        return told

    def _trouble(self, bad: list[Finding]) -> list[str]:
        """Sentences of what is wrong; ports in the same state share one."""
        down = [f for f in bad if f.rule == "ib.down"]
        same = {f.say.partition(" ")[2] for f in down}
        if len(down) > 2 and len(same) == 1:
            bad = [f for f in bad if f not in down]
            said = [_shared(down, self.ports)]
        else:
            said = []
        said += list(dict.fromkeys(f.say for f in bad[:5]))
        return said + ([f"and {len(bad) - 5} more"] if len(bad) > 5 else [])

    def _port_key(self, port: Port) -> str:
        """The device alone where it has one port."""
        same = sum(1 for other in self.ports if other.device == port.device)
        return port.device if same == 1 else port.name

    def say(self) -> str:
        """Its line."""
        bad = [f for f in self.findings if f.severity.rank > Severity.INFO.rank]
        said = self._trouble(bad)
        if not self.seen.complete and self.measured:
            said.append("the list is incomplete")
        active = [p for p in self.ports if p.active and not p.ethernet]
        if active:
            kind = "compute" if not bad else "InfiniBand"
            said.append(f"{len(active)} {kind} port{'s are' if len(active) > 1 else ' is'} ACTIVE")
        if _ipoib(self.ports):
            said.append("'(Down)' concerns the network interface (IPoIB) only")
        said += [f.say for f in self.findings if f.severity is Severity.INFO][:2]
        roce = [p for p in self.ports if p.ethernet and p.active]
        if roce:
            said.append(f"{len(roce)} Ethernet port{'s' if len(roce) > 1 else ''} up")
        if not said and self.ports:
            said.append(_interfaces(self.ports))
        if not said and self.counted.readings:
            number = len(self.counted.readings)
            said.append(f"no error counter above zero in {number} reading{'s' * (number != 1)}")
        return "; ".join(said) or "no port in it"


def _interfaces(ports: Sequence[Port]) -> str:
    """Of ibdev2netdev alone."""
    up = [p for p in ports if p.netdev_up]
    down = [f"{p.device} ({p.netdev})" for p in ports if p.netdev_up is False]
    said = [f"{len(up)} interface{'s' * (len(up) != 1)} up"] if up else []
    if down:
        shown = ", ".join(down[:8]) + (" ..." if len(down) > 8 else "")
        said.append(f"{shown} down, which concerns the network interface, not the InfiniBand link")
    return "; ".join(said) or f"the state of {len(ports)} ports is not shown"


def _shared(down: list[Finding], ports: Sequence[Port]) -> str:
    """Several ports in one state, as one sentence."""
    names = [f.device.partition("/")[0] for f in down]
    state = next(p.plain for p in ports if p.name == down[0].device)
    waits = "wait for the subnet manager" if "waits" in down[0].say else "have no link"
    total = sum(1 for p in ports if p.state and not p.ethernet)
    shown = ", ".join(names[:8]) + (" ..." if len(names) > 8 else "")
    return f"{len(names)} of {total} ports {waits} ({state}): {shown}"


def _ipoib(ports: Sequence[Port]) -> list[Port]:
    """Ports that are active while their interface is not."""
    return [p for p in ports if p.active and p.netdev_up is False and not p.ethernet]


def _counts(ports: Sequence[Port], findings: Sequence[Finding]) -> dict[str, Any]:
    stated = [port for port in ports if port.state]
    told: dict[str, Any] = {}
    if stated:
        told["compute_up"] = sum(1 for p in stated if p.active and not p.ethernet)
        told["down"] = [p.device for p in stated if not p.active]
    if any(port.netdev for port in ports):
        told["netdev_down_but_ib_active"] = len(_ipoib(ports))
    suspects = {f.device for f in findings if f.rule == "ib.unused"}
    if suspects:
        told["suspect"] = [p.device for p in ports if p.name in suspects]
    ethernet = [p.device for p in ports if p.ethernet]
    if ethernet:
        told["ethernet"] = ethernet
    return told
