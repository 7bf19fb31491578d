"""NVLink: links down or slow against siblings, peers and the catalogue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Sample, Severity
from probes.expect import link_rates, link_states, product_id
from probes.reading import whole
from probes.rules import Product, load_rules

MANY = 3
"""Answering nodes from which most of them mean something."""
LINKS_MAX = 36
"""NVML_NVLINK_MAX_LINKS of API 13 [nvml]."""
REMOTE_WORDS = {"gpu": "GPU", "switch": "NVSwitch", "npu": "CPU"}

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
FEWER = Rule(
    id="nvlink.fewer",
    title="All GPUs have fewer NVLinks up than their product can have",
    severity=Severity.INFO,
    reads="state of every NVLink of each GPU against hardware.yaml",
    cause="some machine types wire fewer links; if this one does not, one switch of the board is "
    "down for all GPUs",
    action=Action.NONE,
    next_step="compare with another node of the same type; name the true figure in the site's "
    "hardware overlay",
    source="our rule: siblings and peers that agree outrank hardware.yaml",
    others="AzHC counts 18, which is wrong there (Azure/azurehpc-health-checks issue 162)",
    example="12 of 18 links up on each of 8 GPUs, on the peers too",
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
RULES = (DOWN, SLOW, FEWER, UNREADABLE)


def check(look: Look) -> Iterator[Finding]:
    """Compare each GPU with its siblings in the node, with its peers, then with its product."""
    samples = dict(look.facts.devices("nvlink"))
    if not samples:
        return
    states = {device: link_states(sample.values) for device, sample in samples.items()}
    best = max((sum(links.values()) for links in states.values()), default=0)
    down = list(_all_down(look, states)) if best == 0 else []
    for device, links in states.items() if not down else ():
        accused = list(_down(look, device, links, best)) if best else []
        down += accused or _lost(look, device, samples[device], links)
    yield from down or _fewer(look, states)
    yield from _unreadable(look, samples, states)
    for device, sample in samples.items():
        yield from _slow(look, device, sample)


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
    if not expected or (product is not None and (product.nvlink_bridge or product.form == "pcie")):
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
        (f"{up} links up; {whose}{_ends(look, device, down)}",),
        device=device, label=label, value=up,
    )  # fmt: skip


def _lost(look: Look, device: str, sample: Sample, links: dict[int, bool]) -> Iterator[Finding]:
    """Links that were up a while ago, though all siblings lost theirs too: a switch died."""
    said = str(sample.values.get("links_lost") or "").split()[:LINKS_MAX]
    numbers = [int(word[:3]) for word in said if word.isdecimal()]
    lost = [number for number in numbers if links.get(number) is False]
    if lost:
        label, up = look.facts.gpu_label(device), sum(links.values())
        names = ", ".join(map(str, lost[:6])) + (" ..." if len(lost) > 6 else "")
        yield DOWN.finding(
            look, f"{label}: NVLink {names} went down, {up} of {len(links)} up",
            (f"{up} links up, {up + len(lost)} were{_ends(look, device, lost)}",),
            device=device, label=label, value=up,
            cause="a switch, cable or bridge at the other end: see where the links led",
        )  # fmt: skip


def _fewer(look: Look, states: dict[str, dict[int, bool]]) -> Iterator[Finding]:
    """What nobody in the role contradicts is by design, but the catalogue would have more."""
    counts = {sum(links.values()) for links in states.values() if links}
    product = _product(look)
    if product is None or product.nvlink_bridge or len(counts) != 1:
        return
    (up,) = counts
    site = _site_links(look, product)
    if 0 < up < site:
        yield DOWN.finding(
            look, f"{up} of {site} NVLinks are up on each GPU",
            (f"{up} links up on each of {len(states)} GPUs; the site says {site}",),
            value=up, source=product.source,
            cause="a switch of the board is down for all GPUs, or the site's figure is wrong",
        )  # fmt: skip
    elif 0 < up < product.nvlink_links and all(
        len(links) > up for links in states.values() if links
    ):
        on_peers = any(_peers_have(look, device) == up for device in states)
        where = ", on the peers too" if on_peers else ""
        yield FEWER.finding(
            look, f"{up} of {product.nvlink_links} NVLinks are up on each GPU{where}",
            (f"{up} of {product.nvlink_links} links up on each of {len(states)} GPUs{where}",),
            value=up, source=product.source,
        )  # fmt: skip


def _site_links(look: Look, product: Product) -> int:
    """Links that the site's overlay asks for; 0 where it leaves that to the catalogue."""
    if not look.rules.overlay:
        return 0
    packaged = load_rules().products.get(product.name)
    own = packaged is None or packaged.nvlink_links != product.nvlink_links
    return product.nvlink_links if own else 0


def _ends(look: Look, device: str, links: list[int]) -> str:
    """Where links led when they were up: "; links 3 4 to NVSwitch 0000:08:00.0"."""
    sample = look.facts.get("nvlink_ends")
    ends: dict[str, list[int]] = {}
    for row in sample.rows if sample is not None else ():
        link = whole(row.get("link"))
        if row.get("gpu") == device and link in links and row.get("remote_pci"):
            word = REMOTE_WORDS.get(str(row.get("remote")), "device")
            ends.setdefault(f"{word} {str(row['remote_pci'])[:16]}", []).append(link or 0)
    told = [f"{end} by {' '.join(map(str, sorted(n)))}" for end, n in sorted(ends.items())]
    return f"; they led to {', '.join(told[:4])}" if told else ""


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
