"""Judgements of RDMA ports that exist on paper only; all others are the console's own checks."""

from __future__ import annotations

from probes.event import Action, Severity
from probes.rule import Rule

VANISHED = Rule(
    id="paper.ib_vanished",
    title="An RDMA adapter has vanished from the system",
    severity=Severity.CRITICAL,
    reads="ibstat: stat of IB device failed",
    cause="its driver gave it up, or it fell off the bus, between the listing and the reading",
    action=Action.DRAIN,
    next_step="look for its PCI address in lspci and in the kernel log; drain; power-cycle; reseat",
    source="ibstat of rdma-core names a device whose sysfs entry is gone; leptonai/gpud issue 482",
    others="AzHC, gpud, SOP, CVS: count of ports",
    example="ibpanic: [30303] main: stat of IB device 'mlx5_8' failed: No such file or directory",
)
NOT_MEASURED = Rule(
    id="paper.ib_not_measured",
    title="The state of RDMA ports was not measured",
    severity=Severity.UNKNOWN,
    reads="messages of ibstat, ibstatus, ibv_devinfo, perfquery",
    cause="the tool or a kernel module is missing, or there is no RDMA device",
    action=Action.NONE,
    next_step="look at /sys/class/infiniband directly, it needs no tool; a fault only where the "
    "inventory expects adapters",
    source="messages in the source of ibstat; leptonai/gpud issue 752",
    others="several tools call it broken InfiniBand",
    example="bash: line 1: ibstat: command not found",
)
TOTALS = Rule(
    id="paper.ib_totals",
    title="Error counters of an RDMA port since they were last cleared",
    severity=Severity.INFO,
    reads="perfquery, ibqueryerrors, sysfs counters: totals of one moment",
    cause="errors of today or of last year: a total has no date",
    action=Action.WATCH,
    next_step="take a second reading some minutes later (perfquery -R clears them, with the fabric "
    "team's word): only growth is a fault of today",
    source="perfquery of infiniband-diags; from which total on it warns: our estimate",
    others="GCM: sum of 12 counters > 0 warns, > 100 is an error",
    example="SymbolErrorCounter 120, LinkDownedCounter 3",
)
GROWS = Rule(
    id="paper.ib_grows",
    title="Error counters of an RDMA port grew between two readings",
    severity=Severity.WARN,
    reads="two readings of one port without their times",
    cause="cable, transceiver or switch port",
    action=Action.WATCH,
    next_step="check cable and switch port; with the times of both readings the rate can be judged",
    source="as ib.link_downed and its siblings, where the time between the readings is not known",
    others="NVS, by rate",
    example="SymbolErrorCounter 120 -> 4711",
)
SLOW = Rule(
    id="paper.ib_slow_link",
    title="A link runs below what both its ends can do",
    severity=Severity.WARN,
    reads="iblinkinfo: Could be",
    cause="cable or transceiver, dirt, or a split port: lanes are missing or it trained slower",
    action=Action.DRAIN,
    next_step="reseat or exchange the cable; compare with the other links of the switch",
    source="iblinkinfo of infiniband-diags compares active with supported width and speed; a "
    "minority of links is a fault, all of them a setting: our rule",
    others="gpud floor per product, AzHC 8x400",
    example='==( 2X 53.125 Gbps Active/ LinkUp)==> "leaf1" (Could be 4X)',
)
RULES = (VANISHED, NOT_MEASURED, TOTALS, GROWS, SLOW)

ERRORS = (
    "symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors",
    "port_rcv_remote_physical_errors", "port_rcv_switch_relay_errors", "port_xmit_discards",
    "port_xmit_constraint_errors", "port_rcv_constraint_errors", "local_link_integrity_errors",
    "excessive_buffer_overrun_errors", "VL15_dropped", "qp1_dropped",
)  # fmt: skip
GRAVE = {
    "symbol_error": 1000, "link_error_recovery": 10, "link_downed": 10,
    "local_link_integrity_errors": 1, "excessive_buffer_overrun_errors": 1,
    "port_rcv_errors": 1000, "port_rcv_constraint_errors": 1000, "port_xmit_discards": 100_000,
}  # fmt: skip
"""Totals that reboots of the far end do not explain (our estimate)."""
