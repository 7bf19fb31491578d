"""`ethtool DEV` and `ethtool -S DEV`: link, speed and error totals of network interfaces."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from msgspec import Struct, field

from console.diagnose.report import Report
from probes.event import Action, Severity
from probes.rule import Rule

LINK = Rule(
    id="paper.ethtool",
    title="ethtool shows trouble of a network interface",
    severity=Severity.INFO,
    reads="ethtool: Link detected; ethtool -S: error counters of the port",
    cause="cable, transceiver or switch port; totals run since the driver was loaded",
    action=Action.WATCH,
    next_step="take a second reading: only growth is a fault of today; compare with a sibling",
    source="mlx5 counters of the kernel's counters.rst [lx]; a pause storm warns: it drops packets",
    others="AzHC, OCI: lost carrier; NVS: by rate",
    example="tx_pause_storm_error_events: 3",
)
RULES = (LINK,)
INTERFACES = 512
_SETTINGS = re.compile(r"Settings for (\S{1,40}?):\s*$")
_STATISTICS = re.compile(r"NIC statistics(?: for (\S{1,40}?))?:\s*$")
_PAIR = re.compile(r"\s+([A-Za-z][\w .\[\]()-]{0,60}?):\s*(\S.{0,80}?)\s*$")
BAD = re.compile(
    r"(?:rx_discards_phy|link_down_events_phy|(?:rx|tx)_pause_storm_error_events|module_unplug|"
    r"module_bad_shorted|module_high_temp|rx_crc_errors_phy|rx_symbol_err_phy|rx_err_lane_\d+_phy|"
    r"rx_out_of_buffer|tx_errors_phy|rx_in_range_len_errors_phy)$"
)
"""Statistics of mlx5 that stand for trouble when they are not zero."""


class Interface(Struct):
    """One output."""

    name: str
    settings: dict[str, str] = field(default_factory=dict)
    statistics: dict[str, int] = field(default_factory=dict)


def looks(head: str) -> bool:
    """Its headings."""
    return "NIC statistics" in head or ("Settings for " in head and "Link detected:" in head)


def parse(lines: Iterable[str]) -> list[Interface]:
    """Interfaces in order."""
    found: list[Interface] = []
    counting = False
    for line in lines:
        if len(line) > 300:
            continue
        settings, statistics = _SETTINGS.match(line.strip()), _STATISTICS.match(line.strip())
        heading = settings or statistics
        if heading is not None:
            counting = settings is None
            if len(found) < INTERFACES:
                found.append(Interface(heading[1] or ""))
            continue
        pair = _PAIR.match(line)
        if pair is None or not found:
            continue
        if counting and pair[2].isdigit() and len(found[-1].statistics) < 8192:
            found[-1].statistics[pair[1]] = int(pair[2][:20])
        elif not counting and len(found[-1].settings) < 200:
            found[-1].settings.setdefault(pair[1], pair[2])
    return found


def judge(report: Report, one: Interface) -> None:
    """Into the report."""
    report.measured = True
    name = one.name or "the interface"
    bad = {key: value for key, value in one.statistics.items() if value and BAD.match(key)}
    told: dict[str, Any] = {"errors": bad} if one.statistics else {}
    for key, short in (("Speed", "speed"), ("Link detected", "link_detected")):
        if key in one.settings:
            told[short] = one.settings[key]
    report.facts.setdefault("interfaces", {})[one.name or "?"] = told
    said = f"{name}: no error total above zero" if one.statistics else ""
    if one.settings:
        link = one.settings.get("Link detected", "?")
        said = f"{name}: link {link}, speed {one.settings.get('Speed', '?')}"
        if link == "no":
            said = f"{name} has no link"
            report.add(LINK, said, f"Link detected: {link}", device=name, label=name,
                       severity=Severity.WARN)  # fmt: skip
    if bad:
        storm = any("storm" in key for key in bad)
        said = f"{name}: " + ", ".join(f"{key} {value}" for key, value in list(bad.items())[:6])
        said += " since the driver was loaded"
        report.add(LINK, said, *(f"{k}: {v}" for k, v in bad.items()), device=name, label=name,
                   severity=Severity.WARN if storm else None)  # fmt: skip
        report.unknown.append("when these errors happened: a second reading tells what grows")
    report.say = "; ".join(filter(None, [report.say, said]))
