"""State of one RDMA port, told with its cause and the next step. Pure.

A port that never had a link is not a fault where its peers have none either: dual-port cards with
one cable, unused front-end ports. Field cases: NVIDIA/NVSentinel issues 1361, 1529 and 1716.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Sample, Severity
from probes.ports import (
    ACTIVE,
    COMPUTE,
    ETHERNET,
    MANAGEMENT,
    PHYSICAL,
    SWITCHED,
    VIRTUAL,
    port_role,
)
from probes.reading import whole

LINK_UP = 5
INIT, ARMED = 2, 3
POLLING, DISABLED, TRAINING, RECOVERY, TEST = 2, 3, 4, 6, 7

DOWN = Rule(
    id="ib.down",
    title="An RDMA port is not active",
    severity=Severity.CRITICAL,
    reads="/sys/class/infiniband/*/ports/*/{state,phys_state}",
    cause="cable, transceiver, switch port or subnet manager",
    action=Action.DRAIN,
    next_step="drain; check cable and switch port; ibstat on the node",
    source="Linux sysfs ABI for InfiniBand [lx]: 4 ACTIVE, 5 LinkUp; unless uncabled on all peers "
    "too",
    others="GCM, AzHC, CCH, NHC, gpud, SOP, CVS, PRI: error",
    example="mlx5_3/1: state 1: DOWN, physical state 2: Polling; active on 15 of 16 peers",
)
NO_MANAGER = Rule(
    id="ib.no_manager",
    title="No subnet manager configures the fabric",
    severity=Severity.CRITICAL,
    reads="state, phys_state and sm_lid of InfiniBand ports, here and on the peers",
    cause="the subnet manager is down or does not reach this fabric; cables and adapters are good",
    action=Action.WATCH,
    next_step="start the subnet manager (opensm, UFM or the switch's own); do not drain nodes",
    source="Linux sysfs ABI for InfiniBand [lx]: INIT with the link up waits for a subnet manager; "
    "that no peer is active: our rule",
    others="GCM, imbue: subnet manager down error",
    example="mlx5_0/1: 2: INIT, LinkUp, sm_lid 0; active on none of 16 nodes",
)
NOT_CABLED = Rule(
    id="ib.unused",
    title="An RDMA port is down here and on the peers",
    severity=Severity.INFO,
    reads="as ib.down, with the peers' ports",
    cause="not cabled, or a front-end port in the wrong mode",
    action=Action.NONE,
    next_step="none, unless it should be cabled",
    source="NVIDIA/NVSentinel issue 1361: an unused NIC is no fault; the peers decide: our "
    "estimate",
    others="-",
    example="mlx5_8/1 is down on all 16 nodes",
)
VF_DOWN = Rule(
    id="ib.vf_down",
    title="A virtual function in use is down",
    severity=Severity.WARN,
    reads="state of virtual functions whose interface is in another namespace",
    cause="its GUID or policy is not set, or the subnet manager lacks virtualisation support",
    action=Action.FIX_CONFIG,
    next_step="set node and port GUID and policy Follow for the VF, then rebind it",
    source="field case: VFs are down until GUID and policy are set",
    others="-",
    example="ibp24s0v2/1 is handed to a pod but down",
)
RULES = (DOWN, NO_MANAGER, NOT_CABLED, VF_DOWN)


class Why(NamedTuple):
    """What a state means and what to do about it."""

    cause: str
    next_step: str


PHYSICAL_WHY = {
    POLLING: Why(
        "no signal from the other end: cable, transceiver, or a switch port that is off",
        "drain; look whether the switch port is up; reseat or exchange cable and transceiver",
    ),
    DISABLED: Why(
        "the port is switched off: by an administrator, the driver or the switch",
        "drain; find out who disabled it (mlxlink, ibportstate, ip link) and enable it; no cable "
        "helps",
    ),
    TRAINING: Why(
        "there is a signal but the link does not come up: bad cable or transceiver, or speeds that "
        "do not match",
        "drain; check that both ends allow the same speed; exchange cable or transceiver",
    ),
    RECOVERY: Why(
        "the link lost its signal and trains anew: bad cable or transceiver",
        "drain; exchange cable or transceiver; look at the switch port's error counters",
    ),
    TEST: Why(
        "the port is in a test mode (phy test)",
        "drain; somebody tests the cable: end the test with mlxlink",
    ),
}
WAITING = Why(
    "the link is up but no subnet manager configures the port",
    "drain; look at the subnet manager (opensm) first, the cable is good",
)
HALF_ARMED = Why(
    "the subnet manager has configured the port but not activated it",
    "drain; look at the subnet manager's log: it hangs, restarts, or the other end is not ready",
)
SWITCHED_OFF = Why(
    "its network interface is switched off",
    "ip link set {netdev} up; find out what took it down (network manager, netplan)",
)


def check(look: Look, device: str, sample: Sample, role: str) -> Iterator[Finding]:
    """One port in its role."""
    state = whole(sample.values.get("state"))
    active = state == ACTIVE and _trained(sample)
    if role == VIRTUAL and not active and sample.values.get("vf_in_use") is True:
        text = _words(sample)
        yield VF_DOWN.finding(
            look, f"{device} is handed to a pod but down ({text})", (text,),
            device=device, label=device,
        )  # fmt: skip
    if role not in PHYSICAL:
        return
    if state is not None and not active:
        yield from _down(look, device, sample, role)


def _down(look: Look, device: str, sample: Sample, role: str) -> Iterator[Finding]:
    compute = role == COMPUTE
    slots = look.peers.ib_slots if compute else look.peers.ib_other_slots
    others = look.peers.nodes - 1
    up = round(slots.get(device, 0.0) * look.peers.nodes)
    waits = sample.values.get("state") in (INIT, ARMED) and _trained(sample)
    text = _words(sample)
    if others > 0 and up == 0 and waits and compute:
        yield _unmanaged(look, device, sample)
        return
    if not _expected(look, device, sample, up, others):
        if role != MANAGEMENT:
            yield _unused(look, device, text, up, others)
        return
    sure = compute and (others > 0 or device in look.facts.used_ports)
    why = _why(sample, role) or Why("", "")
    cause, step = why
    if others > 0 and up == 0:
        cause = "no node has this port any more: their common switch, or its power"
        step = "look at the switch first; draining nodes one by one does not help"
    unmanaged = waits and sample.values.get("sm_lid") == 0
    detail = f"{text}, sm_lid 0: no subnet manager known" if unmanaged else text
    yield DOWN.finding(
        look, f"{device} is not active: {text}",
        (f"{detail}; active on {up} of {look.peers.nodes} nodes of the role",),
        device=device, label=device,
        severity=Severity.CRITICAL if sure else Severity.WARN,
        action=Action.DRAIN if sure and (up or others <= 0) else Action.WATCH,
        cause=cause, next_step=step,
    )  # fmt: skip


def _expected(look: Look, device: str, sample: Sample, up: int, others: int) -> bool:
    """Whether the port should be active: it was, most peers' is, or nothing speaks against it.

    On a node without peers a port beside a GPU should be, unless its card has another that is.
    """
    if device in look.facts.used_ports or (others > 0 and up * 2 >= others):
        return True
    dropped = (whole(sample.values.get("link_downed")) or 0) > 0
    if others > 0:
        return dropped and up > 0
    active = [
        _card(s)
        for _, s in look.facts.devices("infiniband")
        if s.values.get("state") == ACTIVE and port_role(s.values) in PHYSICAL
    ]
    by_gpu = sample.values.get("gpu_distance") in SWITCHED and _card(sample) not in active
    return dropped or not active or by_gpu


def _card(sample: Sample) -> str:
    """PCI address without the function: the ports of one card have it in common."""
    return str(sample.values.get("pci", "")).partition(".")[0]


def _unused(look: Look, device: str, text: str, up: int, others: int) -> Finding:
    peers = f"on all {look.peers.nodes} peers" if not up else f"on {others - up} of {others} peers"
    say = f"{device} is down here and {peers}"
    if others <= 0:
        say = f"{device} is down and never had a link; other ports of the node are active"
    return NOT_CABLED.finding(look, say, (text,), device=device, label=device)


def _unmanaged(look: Look, device: str, sample: Sample) -> Finding:
    """The link is up everywhere and active nowhere: the fabric's fault, not the node's."""
    lid = sample.values.get("sm_lid")
    text = _words(sample) + ("" if lid is None else f", sm_lid {lid}")
    idle = not any(
        s.values.get("state") == ACTIVE and port_role(s.values) == COMPUTE
        for _, s in look.facts.devices("infiniband")
    )
    return NO_MANAGER.finding(
        look, f"{device} waits for a subnet manager, as on all {look.peers.nodes} nodes",
        (f"{text}; active on none of {look.peers.nodes} nodes",), device=device, label=device,
        severity=Severity.CRITICAL if idle else Severity.WARN,
    )  # fmt: skip


def _why(sample: Sample, role: str) -> Why | None:
    """By logical state while the link is up, else by the physical one."""
    values = sample.values
    if _trained(sample):
        return {INIT: WAITING, ARMED: HALF_ARMED}.get(whole(values.get("state")) or 0)
    physical = whole(values.get("phys_state")) or 0
    ethernet = values.get("link_layer") == ETHERNET and values.get("netdev_up") is False
    if physical == DISABLED and ethernet:
        step = SWITCHED_OFF.next_step.format(netdev=values.get("netdev", ""))
        return Why(SWITCHED_OFF.cause, f"drain; {step}" if role == COMPUTE else step)
    return PHYSICAL_WHY.get(physical)


def _trained(sample: Sample) -> bool:
    return sample.values.get("phys_state", LINK_UP) == LINK_UP


def _words(sample: Sample) -> str:
    """As ibstat prints it: "DOWN, Polling"."""
    physical = sample.values.get("phys_text", "physical state unknown")
    return f"{sample.values.get('state_text', sample.values.get('state'))}, {physical}"
