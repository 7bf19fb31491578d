"""What the slots offer, and the PCIe links above them: risers, cables, switches.

NVML only knows the link of the card itself. A riser that passes eight lanes, or a switch whose
uplink trained at eight, halves what a healthy card can move. By design some machines are built so:
what all slots of the node and its peers have in common is no fault.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from probes.checks.pcie import on_c2c
from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Row, Sample, Severity
from probes.expect import majority, product_id
from probes.reading import number, whole

MANY = 3
"""Answering nodes, or siblings, from which most of them mean something."""
NAMES = 8

SLOT = Rule(
    id="pcie.slot",
    title="A slot offers a GPU less than its siblings have",
    severity=Severity.WARN,
    reads="PCIe width and generation that card and slot offer together, against the siblings, the "
    "peers and the card itself",
    cause="riser, cable or BIOS setting of this slot; the card can do more",
    action=Action.WATCH,
    next_step="compare riser and BIOS setting with a sibling slot at the next drain; the card is "
    "not at fault",
    source="Linux sysfs max_link_width of card and port [lx]; NVML maximum [nvml]",
    others="PRI compares with the majority; GCM, OCI with a manifest",
    example="slot 0000:17:01.0 offers x8, the card can x16; siblings have x16",
)
PATH = Rule(
    id="pcie.path",
    title="A PCIe link above the GPUs runs narrower than both its ends allow",
    severity=Severity.WARN,
    reads="current and maximum width and speed of every bridge between the GPUs and the root",
    cause="cable, retimer or socket between switch board and CPU board; all behind it share it",
    action=Action.DRAIN,
    next_step="drain; reseat the cables between the boards; compare lspci -vv with a healthy node",
    source="Linux sysfs current_link_width of the bridges [lx]; our rule: peers outrank what the "
    "ends could do",
    others="OCI, SCK look at the GPU's own link only",
    example="bridge 0000:16:00.0 x8 of x16, 2 GPUs behind it; most nodes have x16",
    limits=("pcie.busy_util_percent",),
)
RULES = (SLOT, PATH)


class Offer(NamedTuple):
    """What card and slot can do together."""

    width: int
    gen: int


def check(look: Look) -> Iterator[Finding]:
    """Slots against siblings and peers, then the links further up."""
    yield from _slots(look)
    sample = look.facts.get("pcie")
    rows = [row for row in (sample.rows if sample is not None else ()) if row.get("bridge")]
    for row in rows:
        yield from _narrow(look, row, rows)
        yield from _slow(look, row, rows)


def _slots(look: Look) -> Iterator[Finding]:
    offers = {
        device: Offer(width, gen)
        for device, sample in look.facts.devices("pcie")
        if device and not on_c2c(look, device)
        and (width := whole(sample.values.get("width_max"))) is not None
        and (gen := whole(sample.values.get("gen_max"))) is not None
    }  # fmt: skip
    usual = _usual(look, offers)
    accused = False
    for device, offer in offers.items():
        lanes, speed = usual[product_id(look.facts, device)]
        less = [
            f"{sign}{now}, most have {sign}{most}"
            for sign, now, most in (("x", offer.width, lanes), ("Gen", offer.gen, speed))
            if now < most
        ]
        if less:
            accused = True
            yield _slot(look, device, ", ".join(less))
    if not accused:
        yield from _all_narrow(look, offers)


def _usual(look: Look, offers: dict[str, Offer]) -> dict[str, Offer]:
    """Product -> what most slots of the node, or of the peers, offer it; 0 where nobody knows."""
    alike: dict[str, list[Offer]] = {}
    for device, offer in offers.items():
        alike.setdefault(product_id(look.facts, device), []).append(offer)
    usual = {}
    for product, found in alike.items():
        many = len(found) >= MANY
        lanes = majority(Counter(offer.width for offer in found)) if many else None
        speed = majority(Counter(offer.gen for offer in found)) if many else None
        peers = look.peers.pcie_width.get(product, 0) if look.peers.nodes >= MANY else 0
        usual[product] = Offer(max(lanes or 0, peers), speed or 0)
    return usual


def _slot(look: Look, device: str, less: str) -> Finding:
    label = look.facts.gpu_label(device)
    values = look.facts.latest["pcie", device].values
    ends = ", ".join(
        f"{end} x{whole(values.get(end + '_width_max'))} Gen{whole(values.get(end + '_gen_max'))}"
        for end in ("card", "slot")
        if whole(values.get(end + "_width_max")) is not None
    )
    return SLOT.finding(
        look, f"{label}: its slot offers PCIe {less}",
        (f"slot {values.get('slot', '?')} offers {less}{'; ' if ends else ''}{ends}",),
        device=device, label=label, value=whole(values.get("width_max")),
    )  # fmt: skip


def _all_narrow(look: Look, offers: dict[str, Offer]) -> Iterator[Finding]:
    """All alike and less than the cards can do: by design, but worth knowing."""
    cards = {d: whole(look.facts.value("pcie", d, "card_width_max")) for d in offers}
    widths = {offer.width for offer in offers.values()}
    if len(widths) == 1 and offers and all((cards[d] or 0) > o.width for d, o in offers.items()):
        (width,) = widths
        yield SLOT.finding(
            look, f"all slots offer x{width}, the GPUs could use more",
            (f"slots x{width}, cards x{min(c for c in cards.values() if c)}, {len(offers)} GPUs",),
            value=width, severity=Severity.INFO, action=Action.NONE,
            cause="the machine is built so, or a BIOS setting splits the slots",
            next_step="none when all nodes of this type are alike",
        )  # fmt: skip


def _behind(look: Look, bridge: str) -> list[tuple[str, Sample]]:
    return [
        (device, sample) for device, sample in look.facts.devices("pcie")
        if device and bridge in str(sample.values.get("path", "")).split()
    ]  # fmt: skip


def _narrow(look: Look, row: Row, rows: list[Row]) -> Iterator[Finding]:
    width, most = whole(row.get("width")), whole(row.get("width_max"))
    bridge = str(row["bridge"])[:16]
    if width is None or most is None or not 0 < width < most:
        return
    usual, whose = None, f"most bridges of this node have x{most}"
    if look.peers.nodes >= MANY:
        usual = look.peers.pcie_bridges.get(bridge)
        whose = f"most nodes have x{usual}"
    elif len(rows) >= MANY:
        usual = majority(Counter(w for r in rows if (w := whole(r.get("width"))) is not None))
    fault = usual is not None and width < usual
    behind = [look.facts.gpu_label(device) for device, _ in _behind(look, bridge)]
    names = ", ".join(behind[:NAMES])
    yield PATH.finding(
        look, f"PCIe x{width} of x{most} at bridge {bridge}, above {names}",
        (f"bridge {bridge} x{width} of x{most}, {len(behind)} GPUs behind it"
         + (f"; {whose}" if fault else ""),),
        device=bridge, label=f"PCIe {bridge}", value=width,
        severity=None if fault else Severity.INFO, action=None if fault else Action.NONE,
        cause="" if fault else "the machine may be built so: its peers or siblings are alike",
        next_step="" if fault else "none when all nodes of this type are alike",
    )  # fmt: skip


def _slow(look: Look, row: Row, rows: list[Row]) -> Iterator[Finding]:
    """Generation of an uplink: under load only, and only where other uplinks do better."""
    gen, most = whole(row.get("gen")), whole(row.get("gen_max"))
    bridge = str(row["bridge"])[:16]
    if gen is None or most is None or not 0 < gen < most:
        return
    usual = majority(Counter(g for r in rows if (g := whole(r.get("gen"))) is not None))
    limit = look.rules.limit("pcie.busy_util_percent")
    busy = [
        device for device, _ in _behind(look, bridge)
        if (number(look.facts.value("gpu", device, "util_percent")) or 0.0) >= limit.value
    ]  # fmt: skip
    if len(rows) >= MANY and usual is not None and gen < usual and busy:
        names = ", ".join(look.facts.gpu_label(device) for device in busy[:NAMES])
        yield PATH.finding(
            look, f"PCIe Gen{gen} of Gen{most} at bridge {bridge}, above {names}",
            (f"bridge {bridge} Gen{gen} of Gen{most} while {names} work; others have Gen{usual}",),
            device=bridge, label=f"PCIe {bridge}", value=gen, limit=limit,
        )  # fmt: skip
