"""`nvidia-smi nvlink`: which links are up, at which rate, with which errors; and whose fault it is.

The same sentence means a dead link on an SXM board and nothing at all on a PCIe card without a
bridge: the product decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgspec import structs

from console.diagnose import nvlink_text
from console.diagnose.gpu_cards import Card
from console.diagnose.gpu_judge import judge
from console.diagnose.gpu_words import drain
from console.diagnose.live_rules import live
from console.diagnose.nodes import head as unnamed
from console.diagnose.nodes import parts
from console.diagnose.nvlink_text import Gpu
from console.diagnose.offline import limits
from console.diagnose.report import Report, found, worst_advice
from console.diagnose.text import Text
from probes.event import Action, Finding, Severity
from probes.rule import Rule

KIND = "nvlink"
TITLE = "nvidia-smi nvlink -s, -e, -c, -R"
STREAMS = False

TOTALS = Rule(
    id="paper.nvlink_totals",
    title="NVLink errors since the driver was loaded",
    severity=Severity.INFO,
    reads="nvidia-smi nvlink -e: totals of one moment",
    cause="marginal signal on the link, now or weeks ago: a total has no date",
    action=Action.WATCH,
    next_step="take a second reading some minutes later: only growth is a fault of today",
    source="nvidia-smi nvlink -e; DCGM fails at any growth [dcgm]; a warning from 1 retraining or "
    "100 errors on: our estimate",
    others="GCM: total > 0 is an error; imbue found them harmless",
    example="Link 7: CRC Errors: 4711",
)
RULES = (TOTALS,)
DOWN = "nvlink.down"
MANY = 100
_RETRAINED = ("recoveries", "recoveries_failed")


def sniff(head: str) -> int:
    """Headings of GPUs with lines of links, or the sentence in their place."""
    head = unnamed(head)
    lines = head.split("\n", 400)[:400]
    gpus = nvlink_text.parse(lines)
    if any(gpu.links or gpu.inactive or gpu.mig for gpu in gpus):
        return 92
    return 40 if "NVLink" in head and "Link 0" in head else 0


class _Node:
    """One node's links."""

    def __init__(self, name: str, gpus: list[Gpu]) -> None:
        self.name = name
        self.gpus = gpus
        self.unknown: list[str] = []
        self.cut = _cut(gpus)
        self.cards = [self._card(gpu) for gpu in gpus]
        self.findings = [self._lone(finding) for finding in judge(self.cards, name)]
        self.findings += self._on_paper()
        self.findings.sort(key=lambda f: -f.severity.rank)

    def _card(self, gpu: Gpu) -> Card:
        """As the live probe would tell of it."""
        card = Card(index=gpu.index, name=gpu.name, uuid=gpu.uuid)
        if gpu.mig:
            card.put("inventory.mig_mode", True)
            self.unknown.append(
                f"{card.label}: with MIG on the driver does not tell of NVLinks; unknown, not down"
            )
            return card
        if gpu.said and not gpu.inactive:
            self.unknown.append(f"{card.label}: state of its NVLinks ({gpu.said})")
        total = gpu.total
        if gpu is self.cut:
            self.unknown.append(f"{card.label}: links after {len(gpu.links) - 1}: the list is cut")
            return card
        if gpu.said:
            card.lines["links"] = gpu.said
        if gpu.inactive:
            total = max((other.total or 0 for other in self.gpus), default=0)
            for number in range(total):
                card.put(f"nvlink.link{number}_up", False)
        if total is not None:
            card.put("nvlink.links", total)
        for number, link in gpu.links.items():
            if link.up is not None:
                card.put(f"nvlink.link{number}_up", link.up)
            if link.gb_s is not None:
                card.put(f"nvlink.link{number}_mbps", round(link.gb_s * 1000))
            for name, count in link.counts.items():
                card.put(f"nvlink.link{number}_{name}", count)
        for name in nvlink_text.RATES.values():
            _worst(card, gpu, name)
        return card

    def _lone(self, finding: Finding) -> Finding:
        """One GPU without any link: what to look at first."""
        pairs = zip(self.gpus, self.cards, strict=True)
        dark = any(c.device == finding.device and g.active == 0 for g, c in pairs)
        if finding.rule != DOWN or not finding.device or not dark:
            return finding
        return structs.replace(
            finding,
            cause="NVLink training of this GPU failed, or the switch side of it is down",
            next_step="drain; look for Xid 74 or 149 of this GPU, at its fabric state (nvidia-smi "
            "-q) and at Fabric Manager's log; reset it, then power-cycle; RMA if it returns",
        )

    def _on_paper(self) -> list[Finding]:
        """Totals of one moment, and boards of which the catalogue knows nothing."""
        findings = []
        for gpu, card in zip(self.gpus, self.cards, strict=True):
            finding = _totals(gpu, card, self.name)
            if finding is not None:
                findings.append(finding)
        dark = [gpu for gpu in self.gpus if gpu.active == 0]
        known = any(f.rule == DOWN for f in self.findings)
        if dark and len(dark) == len(self.gpus) and not known:
            findings += self._all_dark(dark)
        return findings

    def _all_dark(self, dark: list[Gpu]) -> list[Finding]:
        """No link on any GPU: by product, else nobody knows."""
        forms = {form_of(gpu.name) for gpu in dark}
        if forms == {"SXM"}:
            return [found(
                live(DOWN), f"no NVLink is up on any of {len(dark)} GPUs",
                f"0 links up on {len(dark)} of {len(dark)} GPUs ({dark[0].name})", node=self.name,
                cause="Fabric Manager or NVSwitch is down, or the baseboard lost power",
            )]  # fmt: skip
        if None in forms:
            self.unknown.append(
                f"whether {dark[0].name} should have NVLinks: neither its name nor our catalogue "
                "says so; the inventory decides"
            )
        return []

    def facts(self) -> dict[str, Any]:
        """By GPU, and what they have in common."""
        told: dict[str, Any] = {
            "gpus": {str(gpu.index): nvlink_text.facts(gpu) for gpu in self.gpus},
            "count": len(self.gpus),
        }
        rates = Counter(
            link.gb_s for gpu in self.gpus for link in gpu.links.values() if link.gb_s is not None
        )
        if rates:
            told["link_gb_s"] = rates.most_common(1)[0][0]
        forms = {form_of(gpu.name) for gpu in self.gpus}
        if len(forms) == 1 and (form := forms.pop()) is not None:
            told["form_factor"] = form
        return told

    def say(self) -> str:
        """Its line."""
        bad = [f for f in self.findings if f.severity.rank > Severity.INFO.rank]
        said = [self._dark(f) for f in bad[:4]]
        if len(bad) > 4:
            said.append(f"and {len(bad) - 4} more")
        if not said:
            said = [self._well()]
            said += [f"{f.say} (info)" for f in self.findings if f.rule == TOTALS.id][:2]
        return "; ".join(said)

    def _dark(self, finding: Finding) -> str:
        """A GPU without any link, said as that."""
        pairs = zip(self.gpus, self.cards, strict=True)
        gpu = next((g for g, card in pairs if card.device == finding.device), None)
        if finding.rule != DOWN or gpu is None or gpu.active != 0:
            return finding.say
        peers = [(g.active or 0, g.total or 0) for g in self.gpus if g is not gpu and g.active]
        have = Counter(peers).most_common(1)
        theirs = f" while its peers have {have[0][0][0]} of {have[0][0][1]}" if have else ""
        return (
            f"GPU {gpu.index} has no NVLink at all{theirs}: it cannot take part in collectives "
            "over NVLink"
        )

    def _details(self) -> str:
        """Errors or partners without states."""
        number = f"{len(self.gpus)} GPU{'s' if len(self.gpus) != 1 else ''}"
        links = sum(len(gpu.links) for gpu in self.gpus)
        if any(link.counts for gpu in self.gpus for link in gpu.links.values()):
            none = "" if any(nvlink_text.errors(gpu) for gpu in self.gpus) else "no error on "
            return f"{none}{links} links of {number}; whether they are up is not shown"
        return f"{number}: link details without their states"

    def _well(self) -> str:
        counts = Counter(
            (gpu.active, gpu.total) for gpu in self.gpus
            if gpu.active is not None and gpu is not self.cut
        )  # fmt: skip
        if self.unknown and not counts:
            return "NVLink states are not readable here: " + self.unknown[0]
        if not counts:
            return self._details()
        if set(counts) and all(active == 0 for active, _ in counts):
            forms = {form_of(gpu.name) for gpu in self.gpus}
            if forms == {"PCIe"}:
                return (
                    f"no NVLink in use on {len(self.gpus)} PCIe cards (no bridge fitted); "
                    "GPU-to-GPU traffic uses PCIe"
                )
            return f"no NVLink is up on {len(self.gpus)} GPUs; " + (self.unknown or ["?"])[0]
        shown = ", ".join(
            f"{number} GPU{'s' if number != 1 else ''} with {active} of {total} links up"
            for (active, total), number in counts.most_common(4)
        )
        return f"NVLink: {shown}"


def _cut(gpus: Sequence[Gpu]) -> Gpu | None:
    """The last GPU where its list of links ends early: a paste that was cut.

    Links that are down are listed as inactive; what is not listed at all was lost on the way.
    """
    if len(gpus) < 2 or not gpus[-1].states:
        return None
    last, totals = gpus[-1], [gpu.total or 0 for gpu in gpus[:-1]]
    whole = all(link.up for link in last.links.values())
    in_order = sorted(last.links) == list(range(len(last.links)))
    return last if whole and in_order and len(last.links) < min(totals) else None


def _worst(card: Card, gpu: Gpu, name: str) -> None:
    """The worst link's error rate, as the probe tells it."""
    rates = {number: link.rates[name] for number, link in gpu.links.items() if name in link.rates}
    if rates:
        number = max(rates, key=lambda n: rates[n])
        card.put(f"nvlink.{name}", rates[number])
        card.put(f"nvlink.{name}_link", number)


_WORDS = {
    "crc": "CRC errors", "crc_data": "CRC data errors", "ecc": "ECC errors",
    "recoveries_failed": "failed recoveries", "receive_errors": "receive errors",
    "malformed": "malformed packets", "integrity": "integrity errors",
}  # fmt: skip


def _totals(gpu: Gpu, card: Card, node: str) -> Finding | None:
    """Error totals of one GPU; they have no date, so most are information."""
    marked = nvlink_text.errors(gpu)
    if not marked:
        return None
    texts = [
        f"link {number}: " + ", ".join(f"{count} {_WORDS.get(n, n)}" for n, count in cs.items())
        for number, cs in marked.items()
    ]  # fmt: skip
    lines = [line for number in marked for line in gpu.links[number].errors]
    counts = [(n, c) for cs in marked.values() for n, c in cs.items()]
    alone = len(marked) * 2 <= len(gpu.links)
    grave = alone and any(c >= MANY or n in _RETRAINED for n, c in counts)
    more = f" and {len(texts) - 3} more links" if len(texts) > 3 else ""
    return found(
        TOTALS, f"{card.label}: {'; '.join(texts[:3])}{more} since the driver was loaded",
        *(lines or texts)[:8], node=node, device=card.device, label=card.label,
        severity=Severity.WARN if grave else None,
    )  # fmt: skip


def form_of(name: str) -> str | None:
    """SXM or PCIe, by the catalogue and then by the name; None when neither says so."""
    product = limits().product(None, name)
    if product is not None:
        return {"pcie": "PCIe", "sxm": "SXM", "superchip": "SXM"}[product.form]
    low = name.lower()
    if any(word in low for word in ("sxm", "hgx", "hbm3", "gb200", "gb300")):
        return "SXM"
    if any(word in low for word in ("pcie", " nvl", "rtx", "quadro", "geforce", "titan", " l4",
                                    "a40", "a10", "a30", "a16", "a2 ", "t4")):  # fmt: skip
        return "PCIe"
    return None


def read(text: Text) -> Report:
    """All nodes of the text."""
    nodes = [
        _Node(part.node, gpus)
        for part in parts([line for _, line in text], text.host)
        if (gpus := nvlink_text.parse(part.lines))
    ]  # fmt: skip
    report = Report(kind=KIND, measured=any(_measured(node.gpus) for node in nodes))
    report.findings = [f for node in nodes for f in node.findings]
    report.drain = worst_advice(drain(n.cards, n.findings) for n in nodes)
    report.unknown = [u for node in nodes for u in node.unknown]
    if len(nodes) == 1:
        report.facts, report.say = nodes[0].facts(), nodes[0].say()
    else:
        report.facts = {"nodes": {node.name or "?": node.facts() for node in nodes}}
        report.say = "; ".join(f"{n.name or '?'}: {n.say()}" for n in nodes[:6]) or "no GPU in it"
    return report


def _measured(gpus: Sequence[Gpu]) -> bool:
    return any(gpu.links or gpu.inactive for gpu in gpus)
