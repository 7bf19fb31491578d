"""Congestion, told as evidence: which ports wait, are throttled or throttle others. Pure.

A congested fabric is nobody's defect and draining a node does not help, so this is information,
with one exception: a host that alone tells the fabric to wait is too slow for its own traffic.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from probes.checks import ib_link
from probes.checks.rule import Look, Rule
from probes.derive import Rates
from probes.event import Action, Finding, Severity
from probes.ports import ALIKE, COMPUTE, PHYSICAL, pause_share

EVIDENCE = Rule(
    id="congestion.evidence",
    title="Ports of this node see congestion in the fabric",
    severity=Severity.INFO,
    reads="congestion notifications, ECN marks, packets out of order, port_xmit_wait, retransmits, "
    "received pause",
    cause="more traffic meets at a port of the fabric than it can carry: incast, uneven hashing of "
    "flows, or a slow receiver",
    action=Action.NONE,
    next_step="find the ports at the other end with the same signs; check adaptive routing, ECMP "
    "hashing, PFC and ECN of the switches between them; do not drain",
    source="mlx5 congestion counters [lx]; the limits are our estimate, not measured",
    others="CVS shows the counters; no tool judges them",
    example="mlx5_2/1: congestion notifications handled 5300/s (a throttled sender)",
    limits=("congestion.cnp_per_s", "congestion.reorder_per_s", "congestion.wait_times",
            "congestion.pause_share"),
)  # fmt: skip
HOST_PAUSE = Rule(
    id="congestion.host_pause",
    title="This host tells the fabric to wait, and its peers do not",
    severity=Severity.WARN,
    reads="tx pause duration of the RDMA interfaces (or pause frames), against the role's peers",
    cause="the host cannot take what arrives: its PCIe, memory or receive buffers are too slow; "
    "the pause spreads to senders that have no part in it",
    action=Action.WATCH,
    next_step="look at PCIe width and stalls of the adapter, IOMMU and memory load of this host; "
    "compare the buffer and PFC settings with a peer's",
    source="meaning of pause counters: mlx5 [lx]; limit and comparison: our estimate, not measured",
    others="-",
    example="ens1f0np0: tx pause 22 % of the time; 0 of 15 peers above 5 %",
    limits=("congestion.pause_share", "congestion.host_share"),
)
RULES = (HOST_PAUSE, EVIDENCE)

RECEIVER = ("np_cnp_sent", "np_ecn_marked_roce_packets", "cnpSent", "tx_cnp_pkts")
SENDER = ("rp_cnp_handled", "cnpHandled", "rx_cnp_pkts")
REORDERED = ("out_of_sequence", "packet_seq_err", "oos_drop_count", "RxOOORs")
RESENT = ("roce_adp_retrans", "roce_adp_retrans_to", "roce_slow_restart", "duplicate_request")
SIGNS = (
    (RECEIVER, True, "asks senders to slow down {:.0f}/s (a congested receiver)"),
    (SENDER, True, "is asked to slow down {:.0f}/s (a throttled sender)"),
    (REORDERED, False, "packets out of order {:.0f}/s"),
    (RESENT, False, "retransmits {:.0f}/s"),
)
"""Counters of one kind, whether they are congestion notices, and how it is told."""
WAIT = "port_xmit_wait"
WAIT_PER_S = 1e6
"""Ticks below which waiting is not worth a comparison (our estimate)."""
SAID = 8
"""Ports told; the worst first."""
PAUSE_FRAMES = ("tx_pause_ctrl_phy", "tx_pause_frames")


def check(look: Look) -> Iterator[Finding]:
    """One finding of evidence for the whole node, and one for each interface that sends pause."""
    signs = {**_ports(look), **_paused(look)}
    if signs:
        lines = tuple(f"{device}: {'; '.join(words)}" for device, words in sorted(signs.items()))
        yield EVIDENCE.finding(
            look, f"congestion seen by {', '.join(sorted(signs)[:SAID])}", lines[:SAID]
        )
    yield from _senders(look)


def _ports(look: Look) -> dict[str, list[str]]:
    """Port -> its signs, among compute ports."""
    signs: dict[str, list[str]] = {}
    waits: dict[str, float] = {}
    cnp = look.rules.limit("congestion.cnp_per_s").value
    reorder = look.rules.limit("congestion.reorder_per_s").value
    for device, _ in look.facts.devices("infiniband"):
        rates = look.facts.rates.get(("infiniband", device))
        if rates is None:
            continue
        if words := _signs(rates, cnp, reorder):
            signs[device] = words
        wait = rates.per_s(WAIT)
        if wait is not None:
            waits[device] = wait
    if not signs and max(waits.values(), default=0.0) <= WAIT_PER_S:
        return {}
    compute = {
        device for device, sample in look.facts.devices("infiniband")
        if ib_link.usual_role(look, device, sample) == COMPUTE
    }  # fmt: skip
    signs = {device: words for device, words in signs.items() if device in compute}
    waits = {device: wait for device, wait in waits.items() if device in compute}
    times = look.rules.limit("congestion.wait_times").value
    usual = statistics.median(waits.values()) if len(waits) >= ALIKE else None
    for device, wait in waits.items():
        if usual is not None and wait > max(usual * times, WAIT_PER_S):
            signs.setdefault(device, []).append(
                f"waits for credits {wait:.2g} ticks/s, like ports {usual:.2g}"
            )
    return signs


def _signs(rates: Rates, cnp: float, reorder: float) -> list[str]:
    found = []
    grown = rates.deltas
    for names, is_notice, words in SIGNS:
        most = max([grown.get(name, 0.0) for name in names]) / rates.elapsed_s
        if most > (cnp if is_notice else reorder):
            found.append(words.format(most))
    return found


def _paused(look: Look) -> dict[str, list[str]]:
    """Interface -> the fabric made it wait."""
    limit = look.rules.limit("congestion.pause_share").value
    found = {}
    for name, _ in look.facts.devices("ethtool"):
        rates = look.facts.rates.get(("ethtool", name))
        share = None if rates is None else pause_share(rates, "rx")
        if share is not None and share > limit:
            found[name] = [f"the fabric made it wait {share:.0%} of the time"]
    return found


def _senders(look: Look) -> Iterator[Finding]:
    """A host among peers that do not send pause is the cause; among many it is the load."""
    limit = look.rules.limit("congestion.pause_share")
    most = look.rules.limit("congestion.host_share").value
    many = sum(share > limit.value for share in look.peers.ib_pauses)
    others = look.peers.nodes - 1
    for name, sample in look.facts.devices("ethtool"):
        rates = look.facts.rates.get(("ethtool", name))
        share = None if rates is None else pause_share(rates, "tx")
        if rates is None or share is None or share <= limit.value:
            continue
        alone = others >= ALIKE - 1 and many - 1 <= most * others
        port = str(sample.values.get("port", name))
        values = look.facts.get("infiniband", port)
        if values is not None and ib_link.usual_role(look, port, values) not in PHYSICAL:
            continue
        frames = max(rates.deltas.get(counter, 0.0) for counter in PAUSE_FRAMES)
        peers = f"; {max(many - 1, 0)} of {others} peers above {limit.value:.0%}" if others else ""
        yield HOST_PAUSE.finding(
            look, f"{port} ({name}) sends pause {share:.0%} of the time{peers}",
            (f"tx pause {share:.0%} of {rates.elapsed_s:.0f} s{peers}",
             *([f"pause frames +{frames:.0f}"] if frames else [])),
            device=port, label=port, value=round(share, 3), limit=limit,
            severity=None if alone else Severity.INFO,
        )  # fmt: skip
