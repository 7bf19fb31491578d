"""What people paste from a host: ps, lspci, uptime, df, mount, free, smartctl, systemctl, sensors.

Each becomes samples of the console's own probes and is judged by its own checks; only what no probe
reads (the BMC's list, a sensor's limit) has rules here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec import structs

from console.diagnose import host_disk, host_parts, host_pci, host_ps, host_rules
from console.diagnose.host_disk import Disks
from console.diagnose.host_parts import Parts
from console.diagnose.host_pci import Bus
from console.diagnose.host_ps import Processes
from console.diagnose.host_rules import BLOCKED, BMC, HOT, NARROW, SECTORS, SMART, STALE
from console.diagnose.offline import Offline
from console.diagnose.report import Report, drain_advice
from console.diagnose.text import Text
from probes.event import Finding, Row, Severity

KIND = "host"
TITLE = (
    "ps, lspci, uptime, df, mount, free, smartctl, systemctl, chronyc, sensors, ipmitool, dmidecode"
)
STREAMS = False

RULES = host_rules.RULES

_STAMP = re.compile(
    r"load averages?:|^\d+\.\d\d \d+\.\d\d \d+\.\d\d \d+/\d+ \d+$|last_good=\S+ now="
)


def sniff(head: str) -> int:
    """By lines that only these tools print."""
    lines = head.splitlines()
    first = lines[:400]
    if any(host_pci.looks_like(line) for line in first):
        return 90
    if any(host_ps.head(line) for line in first):
        return 85
    if any(_STAMP.search(line) for line in first):
        return 80
    if any(host_disk.looks_like(line) or host_parts.looks_like(line) for line in first):
        return 80
    if '"smartctl"' in head[:4000]:
        return 90
    bare = sum(1 for line in first if host_ps.looks_like(line))
    filled = sum(1 for line in first if line.strip())
    return 75 if bare and bare * 3 >= filled * 2 else 0


def read(text: Text) -> Report:
    """Every tool's output in the text, as one node."""
    lines = [line for _, line in text]
    node = Offline(text.host)
    report = Report(kind=KIND)
    bus, processes = host_pci.read(lines), host_ps.read(lines)
    disks, parts = host_disk.read(lines), host_parts.read(lines)
    if '"smartctl"' in "".join(lines[:200]):
        for value in text.documents():
            host_disk.smart_json(value, disks)
    _bus(bus, node, report)
    _processes(processes, node, report)
    _disks(disks, node, report)
    _parts(parts, node, report)
    evidence = {**disks.lines, **parts.lines}
    for finding in node.judge():
        line = evidence.get(finding.device, "")
        told = _told(finding, [line] if line else _lines(finding, bus, processes))
        report.findings.append(_on_paper(told))
    _manager_version(lines, node, report)
    report.measured = bool(report.facts or report.findings)
    report.drain = drain_advice(report.findings)
    report.say = _say(report, processes)
    return report


def _told(finding: Finding, lines: list[str]) -> Finding:
    kept = [line for line in lines if line not in finding.evidence]
    return structs.replace(finding, evidence=(*finding.evidence, *kept)[:8])


def _lines(finding: Finding, bus: Bus, processes: Processes) -> list[str]:
    if finding.rule == "host.dstate_nvidia":
        return [sleeper.line for sleeper in processes.sleepers if sleeper.driver][:6]
    return [card.line for card in bus.gpus if card.dead or card.long == finding.device][:4]


def _bus(bus: Bus, node: Offline, report: Report) -> None:
    if not bus.gpus and not bus.switches:
        return
    report.facts |= host_pci.facts(bus)
    alive = [card for card in bus.gpus if not card.dead]
    counted = bus.count_of_driver
    rows: list[dict[str, Any]] = []
    for card in bus.gpus:
        row: dict[str, Any] = {"pci": card.long, "config_ok": not card.dead}
        if counted is not None and counted == len(alive):
            row["in_nvml"] = not card.dead
        rows.append(row)
    values: dict[str, Any] = {"pci_gpu_count": len(bus.gpus)}
    if counted is not None:
        values |= {"gpu_count": counted, "nvml_library": True}
    elif bus.gpus:
        report.unknown.append("how many of them the driver can use: nvidia-smi -L tells")
    node.put("inventory", "", rows=rows, **values)
    for card in bus.gpus:
        if card.cap and card.sta and card.sta[1] < card.cap[1] and not card.dead:
            report.add(NARROW, f"GPU {card.pci}: x{card.sta[1]} of x{card.cap[1]}", card.line,
                       node=node.facts.node.name, device=card.long, value=card.sta[1])  # fmt: skip


def _processes(found: Processes, node: Offline, report: Report) -> None:
    report.facts |= host_ps.facts(found)
    values: dict[str, Any] = {}
    if found.load is not None:
        values["load1"] = found.load[0]
    if found.uptime_s is not None:
        values["uptime_s"] = float(found.uptime_s)
    stuck = [sleeper for sleeper in found.sleepers if sleeper.driver]
    if found.listed:
        values["dstate_nvidia"] = len(stuck)
    if values:
        node.put("host", "", **values)
    others = [sleeper for sleeper in found.sleepers if not sleeper.driver]
    if others:
        named = ", ".join(f"{s.comm} ({s.pid})" for s in others[:4])
        more = f" and {len(others) - 4} more" if len(others) > 4 else ""
        where = next((s.where for s in others if s.where), "the kernel")
        hang = "hangs" if len(others) == 1 else "hang"
        report.add(BLOCKED, f"{named}{more} {hang} in {where}", *(s.line for s in others[:6]),
                   node=node.facts.node.name, value=len(others))  # fmt: skip
    if found.stale_s is not None and found.stale_s > 60:
        report.add(STALE, f"the last good values are {_ago(found.stale_s)} old: stale, not current",
                   found.stale_line, node=node.facts.node.name, value=found.stale_s)  # fmt: skip


def _ago(seconds: int) -> str:
    for limit, divisor, name in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            if name == "min" and seconds == 3600:
                return "one hour"
            return f"{seconds // divisor} {name}"
    return f"{seconds // 86400} days"


def _disks(found: Disks, node: Offline, report: Report) -> None:
    if found.places:
        report.facts["file_systems"] = {
            place: {k: v for k, v in values.items() if k in ("used_percent", "error", "read_only")}
            for place, values in list(found.places.items())[:200]
        }  # fmt: skip
    for place, values in found.places.items():
        node.put("storage", place, **values)
    for disk, values in found.nvme.items():
        if len(values) > 1:
            node.put("nvme", disk, **{k: v for k, v in values.items() if v != ""})
            report.facts.setdefault("disks", {})[disk] = values
    for disk, line in found.failed.items():
        report.add(SMART, f"{disk}: SMART says that it fails", line, node=node.facts.node.name,
                   device=disk, label=disk)  # fmt: skip
        report.facts.setdefault("disks", {}).setdefault(disk, {})["failed"] = True
    for disk, lines in found.sectors.items():
        report.add(SECTORS, f"{disk}: bad sectors", *lines[:5], node=node.facts.node.name,
                   device=disk, label=disk)  # fmt: skip
    if found.memory:
        report.facts |= found.memory
        before = node.facts.get("host")
        node.put("host", "", **{**(before.values if before else {}), **found.memory})


def _parts(found: Parts, node: Offline, report: Report) -> None:
    name = node.facts.node.name
    rows = list(found.services.values())
    states = {str(r["service"]): r["state"] for r in rows if "state" in r}
    if states:
        report.facts["services"] = states
        told = [row for row in rows if "state" in row]
        node.put("services", "", rows=told, manager="systemd", sees_processes=False)
    if found.time:
        report.facts["time"] = found.time
        node.put("timesync", "", **found.time)
    if found.sensors:
        report.facts["sensors"] = found.sensors
    for sensor, now, limit, line in found.hot[:20]:
        report.add(HOT, f"{sensor} at {now:g} C, its limit is {limit:g} C", line, node=name,
                   device=sensor, value=now)  # fmt: skip
    for line in found.bmc[:20]:
        part = line.partition("|")[0].strip()
        report.add(BMC, f"{part} is critical", line, node=name, device=part, label=part)
    if found.events:
        number = len(found.events)
        report.add(BMC, f"{number} grave event{'s' * (number != 1)} in the BMC's log: "
                   f"{_event(found.events[-1])}",
                   *found.events[-6:], node=name, value=len(found.events))  # fmt: skip
    report.facts |= host_parts.dimm_facts(found)


def _event(line: str) -> str:
    """What an entry of the BMC's log says, without its number, date and time."""
    cells = [cell.strip() for cell in line.split("|")]
    return ", ".join(filter(None, cells[3:])) or line


NEEDED = ("fabricmanager", "slurmd", "kubelet", "munge")
"""Services whose failure takes the node, or all jobs that use several GPUs, out of work."""
_FABRIC_VERSION = re.compile(
    r"fabric manager .{0,60}version (?P<manager>\d[\d.]{2,20}\d) don't match with driver version "
    r"(?P<driver>\d[\d.]{2,20}\d)"
)


def _on_paper(finding: Finding) -> Finding:
    """A failed service that the node cannot do without; the live console asks what runs there."""
    if finding.rule != "service.failed" or finding.device not in NEEDED:
        return finding
    step = finding.next_step
    if finding.device == "fabricmanager":
        step = "journalctl -u nvidia-fabricmanager: its version must be the driver's; on a node "
        step += "without NVSwitch it has nothing to do and may be disabled"
    return structs.replace(finding, severity=Severity.WARN, next_step=step)


def _manager_version(lines: Sequence[str], node: Offline, report: Report) -> None:
    """Fabric manager's own word for why it does not run."""
    for line in lines[:5000]:
        if match := _FABRIC_VERSION.search(line):
            report.facts["fabricmanager_version"] = match["manager"]
            report.facts["driver"] = match["driver"]
            report.add(host_rules.MANAGER, f"Fabric Manager is of version {match['manager']}, the "
                       f"driver of {match['driver']}: CUDA fails with error 802", line.strip(),
                       node=node.facts.node.name)  # fmt: skip
            return


def _say(report: Report, processes: Processes) -> str:
    smi = report.facts.get("hung_nvidia_smi")
    if smi or any(f.rule == "host.dstate_nvidia" for f in report.findings):
        oldest = report.facts.get("oldest_s")
        since = f" since about {_ago(oldest)}" if oldest else ""
        stuck = f"{smi} nvidia-smi processes stuck" if smi else "processes stuck in it"
        stale = processes.stale_s
        old = f" Values are {_ago(stale)} old and shown as stale." if stale else ""
        return f"GPU driver hangs{since}: {stuck}. They cannot be killed: drain, then reboot.{old}"
    top = [f for f in report.findings if f.severity is report.verdict]
    if top and report.verdict.rank > Severity.INFO.rank:
        where = f"{top[0].node}: " if top[0].node else ""
        return where + "; ".join(f.say for f in top[:4])
    if top:
        return "; ".join(f"{f.say} (info)" for f in top[:4])
    if not report.facts:
        return "nothing that this reader knows how to judge"
    return "nothing out of order in what is shown"


def relate(report: Report, others: Sequence[Report]) -> None:
    """The driver's own list and the kernel's lines complete what lspci shows."""
    if "lspci_gpus" not in report.facts:
        return
    failed = [
        f.device for other in others for f in other.findings if f.rule == "driver.init_failed"
    ]
    if failed:
        report.facts["init_failed"] = failed
    dead = report.facts.get("rev_ff") or []
    counted = next((n for other in others if (n := _counted(other)) is not None), None)
    if counted is not None and "nvml_gpus" not in report.facts:
        _compare(report, counted, dead)
    if dead:
        total = report.facts["lspci_gpus"]
        usable = report.facts.get("nvml_gpus", total - len(dead))
        init = ", init failed" if failed else ""
        report.say = (f"GPU {', '.join(dead)} is on the bus list but dead (rev ff{init}): {usable} "
                      f"of {total} usable. Cold power-cycle, then reseat or RMA.")  # fmt: skip


def _counted(other: Report) -> int | None:
    """How many GPUs the driver lists, where nvidia-smi stands in the same ticket."""
    names = ("attached", "count") if other.kind == "nvidia-smi" else ()
    return next((n for name in names if isinstance(n := other.facts.get(name), int)), None)


def _compare(report: Report, counted: int, dead: list[str]) -> None:
    """The console's own count: the bus against the driver."""
    report.facts["nvml_gpus"] = counted
    report.unknown = [text for text in report.unknown if "nvidia-smi -L" not in text]
    node = Offline()
    places = report.facts.get("gpus_on_bus", [])
    rows: list[Row] = [{"pci": place} for place in places]
    node.put("inventory", rows=rows, pci_gpu_count=len(places), gpu_count=counted)
    new = [f for f in node.judge() if f.rule == "gpu.count"]
    if new and not dead:
        report.findings += new
        report.say = f"nvidia-smi lists {counted} of {len(places)} GPUs that are on the bus"
        report.drain = drain_advice(report.findings)
