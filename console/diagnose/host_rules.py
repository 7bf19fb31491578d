"""Rules about a host that no probe of the console reads; they exist on paper only."""

from __future__ import annotations

from probes.event import Action, Severity
from probes.rule import Rule

BLOCKED = Rule(
    id="host_text.blocked",
    title="Processes hang in the kernel",
    severity=Severity.WARN,
    reads="state D in a process list",
    cause="a file server, a disk or a driver that does not answer; one look may also catch a "
    "process that waits for a moment only",
    action=Action.WATCH,
    next_step="look again a minute later; ps -eo pid,stat,etimes,wchan:32,comm; check the mounts. "
    "Signals do not reach such processes",
    source="GCM: above 300 s",
    others="GCM after 300 s: error; gpud after 5 checks",
    example="3301 D rpc_wait_bit_killable python3",
)
STALE = Rule(
    id="host_text.stale",
    title="The last good reading is old",
    severity=Severity.WARN,
    reads="the stamp of the last good sample",
    cause="the probe hangs, or nobody asks any more",
    action=Action.WATCH,
    next_step="treat every value of that node as unknown until it answers again",
    source="our rule: a stale value is not a current one",
    others="-",
    example="last_good=2026-03-03T04:05:06Z now=2026-03-03T05:05:06Z",
)
SMART = Rule(
    id="host_text.smart",
    title="A disk fails by its own account",
    severity=Severity.CRITICAL,
    reads="SMART overall health, smart_status",
    cause="the disk is worn out or broken",
    action=Action.DRAIN,
    next_step="save what is on it, drain, exchange the disk",
    source="smartctl: overall-health self-assessment; our rule",
    others="GCM, NHC",
    example="SMART overall-health self-assessment test result: FAILED!",
)
SECTORS = Rule(
    id="host_text.sectors",
    title="A disk has bad sectors",
    severity=Severity.WARN,
    reads="SMART attributes 5, 187, 188, 197, 198",
    cause="the surface wears out",
    action=Action.WATCH,
    next_step="watch the number; exchange the disk when it grows",
    source="smartctl attributes; our rule: any is worth a look",
    others="stackhpc-kayobe",
    example="197 Current_Pending_Sector 0x0012 100 100 000 Old_age Always - 8",
)
HOT = Rule(
    id="host_text.hot",
    title="A sensor is at its limit",
    severity=Severity.WARN,
    reads="sensors: value against high and crit",
    cause="airflow, a fan, or a heatsink",
    action=Action.WATCH,
    next_step="look at fans and inlet temperature",
    source="the chip's own limits, lm-sensors; our rule",
    others="GCM: ipmi-sensors",
    example="Package id 0: +98.0 C (high = +80.0 C, crit = +100.0 C)",
)
BMC = Rule(
    id="host_text.bmc",
    title="The BMC reports a part as critical",
    severity=Severity.WARN,
    reads="ipmitool sensor, sdr and sel",
    cause="power supply, fan, memory or a PCIe device",
    action=Action.WATCH,
    next_step="look at the part named; ipmitool sel elist for its history",
    source="IPMI threshold states and event texts; our rule",
    others="GCM: IPMI",
    example="PSU2 Status | 0x0 | discrete | 0x08 | cr",
)
NARROW = Rule(
    id="host_text.pcie_width",
    title="A GPU's PCIe link is narrower than it can be",
    severity=Severity.WARN,
    reads="LnkCap and LnkSta of lspci -vv",
    cause="a slot of fewer lanes, a bad contact, or a riser",
    action=Action.WATCH,
    next_step="compare with the other GPUs; reseat the card if only this one is narrow",
    source="PCIe capability of the card itself; our rule",
    others="GCM, OCI, SCK: an error",
    example="LnkCap: Speed 32GT/s, Width x16; LnkSta: Speed 32GT/s, Width x8",
)
MANAGER = Rule(
    id="host_text.fabric_manager",
    title="Fabric Manager and driver have different versions",
    severity=Severity.CRITICAL,
    reads="Fabric Manager's line about driver versions",
    cause="one of the two was upgraded without the other",
    action=Action.DRAIN,
    next_step="install nvidia-fabricmanager of the driver's version, restart it; else reboot",
    source="Fabric Manager's own message; CUDA start-up fails with error 802 without it [nvml]",
    others="-",
    example="fabric manager NVIDIA GPU driver interface version 535.183.01 don't match with driver "
    "version 535.161.08",
)
RULES = (MANAGER, BLOCKED, STALE, SMART, SECTORS, HOT, BMC, NARROW)
