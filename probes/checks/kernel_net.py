"""Network adapters in the kernel log: mlx5, EFA and Ethernet drivers, links that went and came.

A link that is up again is told as such, with how long it was away; it is not forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from msgspec import structs

from probes.checks import kernel_events
from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Severity
from probes.kernel_lines import KernelEvent

MLX5 = Rule(
    id="kernel_log.mlx5",
    title="The network adapter's driver reports a fault",
    severity=Severity.WARN,
    reads="mlx5_core lines",
    cause="adapter firmware, transceiver or cable",
    action=Action.WATCH,
    next_step="check cable and transceiver; reset or replace the adapter if it repeats",
    source="syslog patterns of NVSentinel [nvsent]; ACCESS_REG lines are noise of counter readers",
    others="NVS, gpud; AzHC: 5 lost carriers in 24 h; OCI: any link flap in 6 h, not in the first "
    "30 min after boot",
    example="mlx5_core 0000:ab:00.0: Port module event[error]: module 0, Cable error, High "
    "Temperature",
    limits=("kernel_log.boot_grace_s",),
)
EFA = Rule(
    id="kernel_log.efa",
    title="The EFA driver reports a fault",
    severity=Severity.WARN,
    reads="efa lines, and those of its RDMA device",
    cause="the adapter or its host stopped answering the driver",
    action=Action.WATCH,
    next_step="reload the efa driver or reboot; replace the instance if it returns",
    source="Linux EFA driver [lx]; patterns of NVSentinel [nvsent]",
    others="NVS: admin command timeout and failed reset fatal",
    example="infiniband rdmap79s0: The device didn't send any completion for admin cmd "
    "GET_FEATURE(8)",
)
NIC = Rule(
    id="kernel_log.nic",
    title="An Ethernet or IPoIB interface hung, was reset or lost its link",
    severity=Severity.WARN,
    reads="NETDEV WATCHDOG, Tx hang, reset and link lines of ixgbe, ice, i40e, bnxt_en, ena, IPoIB",
    cause="adapter firmware or driver, cable, or the switch port",
    action=Action.WATCH,
    next_step="check cable and switch port; update driver and firmware; ssh and storage may use it",
    source="Linux network drivers [lx]: transmit watchdog and link messages",
    others="AzHC: 'lost carrier' lines of IPoIB",
    example="ixgbe 0000:01:00.0 eno1: Detected Tx Unit Hang",
    limits=("kernel_log.boot_grace_s",),
)
RULES = (MLX5, EFA, NIC)


class Word(NamedTuple):
    """What an adapter's line means."""

    say: str
    severity: Severity
    cause: str = ""
    """"" where the rule's own says it."""
    next_step: str = ""


WORDS = {
    "high_temperature": Word(
        "transceiver too hot",
        Severity.WARN,
        "a hot transceiver or cable, or too little air",
        "cool or replace the transceiver; drain after running jobs for that",
    ),
    "adapter_hot": Word(
        "adapter too hot",
        Severity.WARN,
        "too little air at the adapter, or a blocked slot",
        "check fans and inlet air; compare with the node's other adapters",
    ),
    "cable_error": Word("cable or transceiver error", Severity.WARN),
    "command_timeout": Word("adapter command timed out", Severity.CRITICAL),
    "health_compromised": Word("adapter health compromised", Severity.CRITICAL),
    "firmware_error": Word("adapter firmware error", Severity.WARN),
    "tx_timeout": Word("transmit queue hung", Severity.WARN),
    "adapter_reset": Word("adapter was reset", Severity.WARN),
    "link_down": Word(
        "link went down",
        Severity.WARN,
        "cable, transceiver, or the switch port; a hot module",
        "check cable, transceiver and switch port; count how often it happens",
    ),
    "cable_unplugged": Word(
        "cable unplugged",
        Severity.INFO,
        "no cable in that port, or somebody pulled it",
        "see whether this port should be cabled; else none",
    ),
    "insufficient_power": Word(
        "asks for more than its slot's power",
        Severity.INFO,
        "the slot offers less than the card may ask for; common at boot on healthy nodes",
        "compare the slot's power setting with sibling nodes; else none",
    ),
    "reset_failed": Word("adapter reset failed", Severity.CRITICAL),
    "interrupt_lost": Word("an interrupt was lost", Severity.WARN),
    "command_failed": Word("adapter command failed", Severity.INFO),
}
"""Unplugged may be meant so; the power note is common at boot: information when alone."""
_RULES = {"mlx5": MLX5, "efa": EFA, "nic": NIC}


def check(look: Look) -> Iterator[Finding]:
    """One finding per adapter and kind of trouble; ACCESS_REG is the noise of counter readers."""
    if not look.facts.kernel:
        return
    events = kernel_events.read(look)
    found: dict[tuple[str, str, str], list[KernelEvent]] = {}
    for event in events:
        what = str(event.facts.get("what"))
        where = event.pci or str(event.facts.get("dev", ""))
        if event.kind in _RULES and where and what in WORDS:
            found.setdefault((event.kind, where, what), []).append(event)
    for (kind, where, what), same in sorted(found.items()):
        yield _adapter(look, _RULES[kind], where, what, same, events)


def _adapter(
    look: Look, rule: Rule, where: str, what: str, same: list[KernelEvent],
    events: list[KernelEvent],
) -> Finding:  # fmt: skip
    word = WORDS[what]
    name = next((str(e.facts["dev"]) for e in reversed(same) if "dev" in e.facts), where)
    least = kernel_events.at_least(events, same)
    times = f" {least}{len(same)} times" if len(same) > 1 else ""
    severity = word.severity
    if what == "link_down" and _at_boot(look, same, events):
        severity = Severity.INFO
    finding = rule.finding(
        look, f"{name}: {word.say}{times}{_more(events, same[-1])}"
        f"{kernel_events.ago(look, same[-1])}",
        kernel_events.texts(same), device=f"{where} {what}", label=name, severity=severity,
        action=Action.DRAIN if severity is Severity.CRITICAL else None,
        cause=word.cause, next_step=word.next_step,
    )  # fmt: skip
    return kernel_events.aged(look, structs.replace(finding, count=len(same)), same[-1])


def _at_boot(look: Look, same: list[KernelEvent], events: list[KernelEvent]) -> bool:
    """Whether every down belongs to the driver's own start: soon after boot, and it came up."""
    grace_s = look.rules.limit("kernel_log.boot_grace_s").value
    return all(
        e.mono is not None and e.mono < grace_s and up_after(events, e) is not None for e in same
    )


def _more(events: list[KernelEvent], last: KernelEvent) -> str:
    """How long the link was down, or how much power the slot gives, as far as the log tells."""
    if "watt" in last.facts:
        return f" ({last.facts['watt']} W)"
    if last.facts.get("what") != "link_down":
        return ""
    down_s = up_after(events, last)
    return "" if down_s is None else f" for {down_s:.0f} s, it is up again"


def up_after(events: list[KernelEvent], down: KernelEvent) -> float | None:
    """Seconds until the same link was up again; None when the log tells of no such thing."""
    if down.mono is None and down.wall is None:
        return None
    up = (
        event.at - down.at
        for event in events
        if event.facts.get("what") == "link_active" and event.boot == down.boot
        and event.pci == down.pci and event.facts.get("port") == down.facts.get("port")
        and (event.pci is not None or event.facts.get("dev") == down.facts.get("dev"))
        and event.at >= down.at and (event.mono is None) == (down.mono is None)
    )  # fmt: skip
    return min(up, default=None)
