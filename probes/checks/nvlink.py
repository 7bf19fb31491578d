"""NVLink: links down or slow against siblings and peers, error rates, fabric registration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Sample, Severity
from probes.expect import link_rates, link_states, product_id
from probes.reading import whole
from probes.rules import Product

MANY = 3
"""Answering nodes from which most of them mean something."""
LINKS_MAX = 36
"""NVML_NVLINK_MAX_LINKS of API 13 [nvml]."""

DOWN = Rule(
    id="nvlink.down",
    title="NVLinks are down",
    severity=Severity.CRITICAL,
    reads="state of every NVLink of each GPU",
    cause="link training failed: GPU, baseboard, NVSwitch or bridge",
    action=Action.DRAIN,
    next_step="drain, reset the GPUs or reboot; if it returns, field diagnostic of GPU and switch",
    source="our rule: what is inactive by design the siblings or hardware.yaml say",
    others="GCM, OCI, SCK, gpud, AzHC, NVHV, imbue: error",
    example="GPU3: link 11 down, 17 of 18 up; its 7 siblings have 18",
)
SLOW = Rule(
    id="nvlink.slow",
    title="An NVLink runs below its siblings",
    severity=Severity.WARN,
    reads="signalling rate of every active NVLink against siblings, peers and hardware.yaml",
    cause="the link trained at a lower rate: signal integrity",
    action=Action.RESET_GPU,
    next_step="reset the GPU to retrain; if it returns, check baseboard or bridge",
    source="NVML's common link speed is the signalling rate [nvml]; siblings as measure: our "
    "estimate",
    others="OCI: speed by model, reboot",
    example="link 7 at 19.92 GB/s, siblings at 26.56 GB/s",
    limits=("nvlink.speed_below_siblings",),
)
ERRORS = Rule(
    id="nvlink.errors",
    title="NVLink errors grow",
    severity=Severity.WARN,
    reads="replays, recoveries and CRC errors of every NVLink",
    cause="marginal signal on the link",
    action=Action.WATCH,
    next_step="watch the rate; reset the GPU if it goes on, then field diagnostic",
    source="hardware limits of DCGM [dcgm]; as growth, not as total",
    others="DCGM fail; GCM > 0; CCH effective BER > 1e-6",
    example="link 4: +37 CRC errors, +2 recoveries in 30 s",
    limits=("nvlink.error_increment", "nvlink.crc_per_s"),
)
FABRIC = Rule(
    id="nvlink.fabric",
    title="GPUs wait for the NVLink fabric",
    severity=Severity.CRITICAL,
    reads="fabric state of each GPU (2 in progress, 3 completed)",
    cause="Fabric Manager failed, is absent, or its version differs from the driver",
    action=Action.RESTART_SERVICE,
    next_step="check nvidia-fabricmanager and its version against the driver; restart it; then "
    "reboot",
    source="nvml.h fabric state [nvml]; CUDA start-up fails with error 802 until it completes",
    others="OCI, gpud, SCK: not completed is an error",
    example="fabric state 2 (in progress) on 8 of 8 GPUs",
)
UNREADABLE = Rule(
    id="nvlink.unreadable",
    title="NVLink states could not be read",
    severity=Severity.INFO,
    reads="state of every NVLink of each GPU",
    cause="the driver does not answer for these links; with MIG on it never does",
    action=Action.NONE,
    next_step="none with MIG; else nvidia-smi nvlink -s on the node",
    source="our rule: a state that was not read is neither up nor down",
    others="-",
    example="GPU3: state of 18 links not readable",
)
RULES = (DOWN, SLOW, ERRORS, FABRIC, UNREADABLE)


def check(look: Look) -> Iterator[Finding]:
    """Compare each GPU with its siblings in the node, with its peers, then with its product."""
    samples = dict(look.facts.devices("nvlink"))
    if not samples:
        return
    states = {device: link_states(sample.values) for device, sample in samples.items()}
    best = max((sum(links.values()) for links in states.values()), default=0)
    if best == 0:
        yield from _all_down(look, states)
    else:
        for device, links in states.items():
            yield from _down(look, device, links, best)
    yield from _unreadable(look, samples, states)
    for device, sample in samples.items():
        yield from _slow(look, device, sample)
        yield from _errors(look, device)
    yield from _fabric(look, samples)


def _peers_have(look: Look, device: str) -> int:
    """Links up on most GPUs of this product in the role; 0 where too few nodes answered."""
    if look.peers.nodes < MANY:
        return 0
    return look.peers.nvlink_links.get(product_id(look.facts, device), 0)


def _unreadable(
    look: Look, samples: dict[str, Sample], states: dict[str, dict[int, bool]]
) -> Iterator[Finding]:
    """Said once a node; a card that the driver lost has findings of its own."""
    some = any(states.values())
    unread: dict[str, str] = {}
    for device, sample in samples.items():
        links = whole(sample.values.get("links"))
        missing = max(0, min(links or 0, LINKS_MAX)) - len(states[device])
        silent = links is None and not states[device] and (some or _peers_have(look, device))
        if device and "nvml_rc" not in sample.values and (missing > 0 or silent):
            label = look.facts.gpu_label(device)
            unread[label] = f"{label}: state of {f'{missing} links' if links else 'all links'}"
    if unread:
        names = ", ".join(list(unread)[:8])
        yield UNREADABLE.finding(
            look, f"not checked: NVLinks of {names}, their state is not readable",
            tuple(f"{text} not readable" for text in unread.values()),
        )  # fmt: skip


def _product(look: Look) -> Product | None:
    for _, sample in look.facts.devices("inventory"):
        device_id = sample.values.get("pci_device_id")
        if device_id:
            return look.rules.product(str(device_id), look.facts.node.hardware)
    return look.rules.product(None, look.facts.node.hardware)


def _all_down(look: Look, states: dict[str, dict[int, bool]]) -> Iterator[Finding]:
    """Normal for PCIe cards without a bridge; a dead fabric for SXM boards."""
    known = {device: links for device, links in states.items() if links}
    if not known:
        return
    product = _product(look)
    usual = max(_peers_have(look, device) for device in known)
    expected = product.nvlink_links if product is not None else usual
    if not expected or (product is not None and product.form == "pcie"):
        return
    links = max(map(len, known.values()))
    yield DOWN.finding(
        look, f"no NVLink is up on any of {len(known)} GPUs",
        (
            f"0 of {links} links up on each of {len(known)} GPUs; "
            f"{product.name if product is not None else 'most peers'} has {expected}",
        ),
        cause="Fabric Manager or NVSwitch is down, or the baseboard lost power",
        next_step="drain; check nvidia-fabricmanager and SXid lines; reboot",
        source=product.source if product is not None else DOWN.source,
    )  # fmt: skip


def _down(look: Look, device: str, links: dict[int, bool], best: int) -> Iterator[Finding]:
    """Fewer up than on the best sibling, or than on most GPUs of the same product in the role."""
    up = sum(links.values())
    usual = _peers_have(look, device)
    product = look.rules.product(product_id(look.facts, device) or None)
    needs_bridge = product is not None and product.nvlink_bridge
    if not links or up >= max(best, usual) or (up == 0 and needs_bridge):
        return  # a card that only a bridge links, and that has none
    down = sorted(number for number, state in links.items() if not state)
    if up >= best and len(down) < usual - up:
        return  # the rest could not be read, which is said elsewhere
    label = look.facts.gpu_label(device)
    names = ", ".join(map(str, down[:6])) + (" ..." if len(down) > 6 else "")
    whose = f"the best sibling has {best}" if best >= usual else (
        f"most GPUs of {look.peers.nodes} peers have {usual}"
    )  # fmt: skip
    yield DOWN.finding(
        look, f"{label}: NVLink {names} down, {up} of {max(best, usual)} up",
        (f"{up} links up; {whose}",), device=device, label=label, value=up,
    )  # fmt: skip


def _slow(look: Look, device: str, sample: Sample) -> Iterator[Finding]:
    """Below the other links of this GPU, of the role's peers, or of the catalogue."""
    rates = link_rates(sample.values)
    if not rates:
        return
    own = Counter(rates.values()).most_common(1)[0][0]
    expected, whose = _expected_mbps(look, device)
    usual, whose = (own, "siblings") if own >= expected else (expected, whose)
    limit = look.rules.limit("nvlink.speed_below_siblings")
    slow = {number: rate for number, rate in rates.items() if rate < limit.value * usual}
    if not slow:
        return
    label = look.facts.gpu_label(device)
    text = ", ".join(
        f"link {number} at {rate / 1000:.2f} GB/s" for number, rate in sorted(slow.items())[:6]
    )
    if len(slow) == len(rates) and len(set(slow.values())) == 1:
        text = f"all {len(rates)} active links at {own / 1000:.2f} GB/s"
    yield SLOW.finding(
        look, f"{label}: {text}, {whose} at {usual / 1000:.2f} GB/s", (text,),
        device=device, label=label, value=min(slow.values()) / usual, limit=limit,
    )  # fmt: skip


def _expected_mbps(look: Look, device: str) -> tuple[float, str]:
    """(rate, whose) of the peers where enough answered, else of the catalogue; 0 for none."""
    product_code = product_id(look.facts, device)
    if look.peers.nodes >= MANY and product_code in look.peers.nvlink_mbps:
        return look.peers.nvlink_mbps[product_code], "most peers"
    product = look.rules.product(product_code or None)
    if product is None or product.nvlink_mbps is None:
        return 0.0, ""
    return float(product.nvlink_mbps), f"{product.name} in hardware.yaml"


def _errors(look: Look, device: str) -> Iterator[Finding]:
    rates = look.facts.rates.get(("nvlink", device))
    if rates is None:
        return
    grown = {
        name: delta
        for name, delta in rates.deltas.items()
        if delta > 0 and name.endswith(("_replays", "_recoveries", "_crc", "_recoveries_failed"))
    }
    if not grown:
        return
    label = look.facts.gpu_label(device)
    text = ", ".join(
        f"{name.replace('_', ' ')} +{delta:.0f}" for name, delta in sorted(grown.items())[:6]
    )
    crc = max((delta for name, delta in grown.items() if name.endswith("_crc")), default=0.0)
    limit = look.rules.limit("nvlink.crc_per_s")
    grave = crc / rates.elapsed_s > limit.value
    yield ERRORS.finding(
        look, f"{label}: NVLink errors grow: {text}", (f"{text} in {rates.elapsed_s:.0f} s",),
        device=device, label=label, value=sum(grown.values()),
        limit=limit if grave else look.rules.limit("nvlink.error_increment"),
        severity=Severity.CRITICAL if grave else Severity.WARN,
        action=Action.DRAIN if grave else None,
    )  # fmt: skip


def _fabric(look: Look, samples: dict[str, Sample]) -> Iterator[Finding]:
    states = {d: s.values["fabric_state"] for d, s in samples.items() if "fabric_state" in s.values}
    waiting = [device for device, state in states.items() if state in (1, 2)]
    failed = [
        device for device, state in states.items()
        if state == 3 and samples[device].values.get("fabric_status", 0) != 0
    ]  # fmt: skip
    if waiting:
        number = states[waiting[0]]
        word = "not started" if number == 1 else "in progress"
        yield FABRIC.finding(
            look,
            f"{len(waiting)} GPUs wait for the NVLink fabric (state {word}); "
            "CUDA fails with error 802",
            (f"fabric state {number} ({word}) on {len(waiting)} of {len(samples)} GPUs",),
        )  # fmt: skip
    if failed:
        code = samples[failed[0]].values["fabric_status"]
        yield FABRIC.finding(
            look, f"{len(failed)} GPUs failed to join the NVLink fabric (status {code})",
            (f"fabric state 3, status {code} on {len(failed)} of {len(samples)} GPUs",),
        )  # fmt: skip
