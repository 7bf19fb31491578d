"""Dumps of NVML calls as JSON: {"rc": nvmlReturn_t, "value": raw value} for each call and device.

A device is its address or UUID; where the call for its handle failed, its address is what remains
of the bus list. Indices move when a card vanishes, and a dump with a `previous` shows how.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from console.diagnose import cells
from console.diagnose.gpu_cards import Card
from console.diagnose.gpu_judge import DEAD_CODES, judge
from console.diagnose.gpu_words import WHOLE_NODE, drain, summary
from console.diagnose.live_rules import live
from console.diagnose.nvml_calls import CALLS, HANDLES, Answer, answers, services
from console.diagnose.renumbered import moved
from console.diagnose.report import NO, NOW, Report, found
from console.diagnose.text import Text
from probes.checks.nvml_codes import NVML_CODES
from probes.event import Action, Finding, Severity
from probes.reading import whole
from probes.rule import Rule

KIND = "nvml"
TITLE = "NVML dumps as JSON (nvml-dump/1)"
STREAMS = False
LOST = 15
COMPLETED = 3
MOVED = Rule(
    id="paper.gpu_index_moved",
    title="GPUs have other indexes than before",
    severity=Severity.INFO,
    reads="index, UUID and PCI address in a dump, now and before",
    cause="the driver numbers by bus order; a card was added, exchanged or came back",
    action=Action.NONE,
    next_step="name GPUs by UUID or PCI address in notes, configurations and alerts",
    source="field case: volcano-sh/devices issue 29: the index is no identity",
    others="-",
    example="index 3 is 2 now",
)
RULES = (MOVED,)
STATES = {0: "not_supported", 1: "not_started", 2: "in_progress", 3: "completed"}


def sniff(head: str) -> int:
    """By its layout or by the names of NVML's functions as keys."""
    if '"nvml-dump/' in head:
        return 98
    return 80 if ('"nvmlDevice' in head or '"nvmlInit' in head) and head.lstrip()[:1] in "{[" else 0


def read(text: Text) -> Report:
    """The dumps in the text; the first one is the node."""
    dumps = [d for d in text.documents() if isinstance(d, dict)]
    dump = next((d for d in dumps if _is_dump(d)), None)
    if dump is None:
        return Report(kind=KIND, measured=False, say="no dump of NVML calls could be read in it")
    return _Dump(dump, text.host).report()


def _is_dump(value: dict[str, Any]) -> bool:
    return "devices" in value or any(str(name).startswith("nvml") for name in list(value)[:64])


class _Dump:
    """One node's answers."""

    def __init__(self, dump: dict[str, Any], host: str) -> None:
        self.dump = dump
        self.node = str(dump.get("node") or dump.get("host") or host)[:120]
        self.devices = [d for d in _list(dump.get("devices"))[:512] if isinstance(d, dict)]
        self.count = whole(Answer.of(dump.get("nvmlDeviceGetCount_v2")).value)
        self.expected = whole(dump.get("expected_gpus"))
        self.bus = [cells.device(str(b)) for b in _list(dump.get("sysfs_nvidia_bdfs"))]
        self.services = services(dump.get("services"))
        self.cards = [self._card(n, device) for n, device in enumerate(self.devices)]
        self._by_elimination()

    def _card(self, number: int, device: dict[str, Any]) -> Card:
        index = whole(device.get("index"))
        card = Card(index=number if index is None else index)
        for name, answer in answers(device):
            if answer.rc not in (0, None):
                _failed(card, name, answer.rc)
            elif name in CALLS and answer.value is not None:
                CALLS[name](card, answer.value)
        return card

    def _by_elimination(self) -> None:
        """One card without an address and one address that no card has: the same."""
        known = {cells.device(card.pci) for card in self.cards if card.pci}
        left = [address for address in self.bus if address and address not in known]
        nameless = [card for card in self.cards if not card.pci]
        if len(left) == len(nameless) == 1:
            nameless[0].pci = left[0]
            nameless[0].shown["pci_by_elimination"] = left[0]

    @property
    def lost(self) -> list[Card]:
        """Cards that answer with "GPU is lost"."""
        return [card for card in self.cards if card.values.get("gpu.nvml_rc") == LOST]

    def report(self) -> Report:
        """Judged."""
        missing, moves = self._missing()
        findings = self._count(missing, moves) + judge(self.cards, self.node)
        if moves and not missing:
            findings.append(found(
                MOVED, f"all GPUs are there{moved(moves)}",
                *(f"index {old} is {new} now" for old, new in list(moves.items())[:8]),
                node=self.node,
            ))  # fmt: skip
        findings += self._driver()
        findings = [self._fabric(f) for f in findings]
        findings.sort(key=lambda f: -f.severity.rank)
        report = Report(kind=KIND, findings=findings, facts=self._facts(missing, moves))
        report.measured = bool(self.cards) or self.count is not None or bool(findings)
        report.say = self._say(findings)
        report.drain = self._drain(findings)
        if any(not card.pci for card in self.lost):
            report.unknown.append("the PCI address of the GPU that does not answer: lspci tells")
        return report

    def _missing(self) -> tuple[list[dict[str, Any]], dict[int, int]]:
        """Cards of before that are no longer listed, and index moves of the others."""
        now_by_uuid = {card.uuid: card for card in self.cards if card.uuid}
        now_by_pci = {cells.device(card.pci): card for card in self.cards if card.pci}
        missing: list[dict[str, Any]] = []
        moves: dict[int, int] = {}
        for old in _list(self.dump.get("previous"))[:512]:
            if not isinstance(old, dict):
                continue
            index = whole(old.get("index"))
            uuid, pci = str(old.get("uuid") or ""), cells.device(str(old.get("pci") or ""))
            card = now_by_uuid.get(uuid) or now_by_pci.get(pci)
            if card is None:
                missing.append({"uuid": uuid, "pci": str(old.get("pci") or ""), "old_index": index})
            elif index is not None and card.index is not None and card.index != index:
                moves[index] = card.index
        if not missing and self.count is not None:
            listed = {cells.device(card.pci) for card in self.cards}
            missing = [{"uuid": "", "pci": bdf, "old_index": None}
                       for bdf in self.bus if bdf and bdf not in listed]  # fmt: skip
        return missing, moves

    def _count(self, missing: list[dict[str, Any]], moves: dict[int, int]) -> list[Finding]:
        """Fewer GPUs than there were, than the bus has, or than somebody expects."""
        here = len(self.cards) if self.count is None else self.count
        previous = len(_list(self.dump.get("previous"))) or None
        wanted = [n for n in (self.expected, previous, len(self.bus) or None) if n is not None]
        if not wanted or here >= max(wanted) or (self.lost and not missing):
            return []
        total = max(wanted)
        places = [cells.device(m["pci"]) or m["uuid"] for m in missing if m["pci"] or m["uuid"]]
        where = f"; missing {', '.join(places[:8])}" if places else ""
        return [found(
            live("gpu.count"), f"{here} of {total} GPUs present{where}{moved(moves)}",
            f"nvmlDeviceGetCount_v2 is {here}, expected {total}; no NVML call failed for the rest",
            *(f"was index {m['old_index']}: {m['uuid']} at {m['pci']}" for m in missing[:4]),
            node=self.node, value=here, device=places[0] if len(places) == 1 else "",
        )]  # fmt: skip

    def _driver(self) -> list[Finding]:
        """NVML itself does not start."""
        for name in (
            "nvmlInitWithFlags", "nvmlInit_v2", "nvmlInit", "nvmlDeviceGetCount_v2",
        ):  # fmt: skip
            answer = Answer.of(self.dump.get(name))
            if answer.rc not in (0, None):
                known = NVML_CODES.get(answer.rc)
                return [found(
                    live("driver.unusable"), f"NVML does not start: "
                    f"{known.say if known else f'code {answer.rc}'}",
                    f"{name} returned {answer.rc} ({known.name if known else '?'})", node=self.node,
                )]  # fmt: skip
        return []

    def _fabric(self, finding: Finding) -> Finding:
        """Waiting is normal where the site activates partitions itself."""
        from msgspec import structs

        if finding.rule != "nvlink.fabric":
            return finding
        mode = str(self.dump.get("fabric_mode") or "").lower()
        state = self.services.get("nvidia-fabricmanager", "")
        evidence = finding.evidence + ((f"nvidia-fabricmanager: {state}",) if state else ())
        if any(word in mode for word in ("shared", "partition", "vgpu")):
            return structs.replace(
                finding, severity=Severity.INFO, action=Action.NONE, evidence=evidence,
                say=f"{finding.say}; normal in {mode} mode until a partition is activated",
                next_step="none until a partition should be active",
            )  # fmt: skip
        until = " until Fabric Manager runs" if re.search(r"\bwaits? for", finding.say) else ""
        failed = f" (nvidia-fabricmanager is {state})" if state and state != "active" else ""
        return structs.replace(
            finding, say=finding.say + until + failed, evidence=evidence, action=Action.DRAIN
        )

    def _facts(self, missing: list[dict[str, Any]], moves: dict[int, int]) -> dict[str, Any]:
        readable = [c.index for c in self.cards if c.values.get("gpu.nvml_rc") not in DEAD_CODES]
        facts: dict[str, Any] = {
            "count": len(self.cards) if self.count is None else self.count,
            "readable": readable, "lost": [card.index for card in self.lost],
        }  # fmt: skip
        if self.expected is not None:
            facts["expected"] = self.expected
        eliminated = [str(pci) for c in self.lost if (pci := c.shown.get("pci_by_elimination"))]
        if eliminated:
            facts["lost_pci_by_elimination"] = eliminated[0]
        if missing:
            facts["missing"] = missing[0] if len(missing) == 1 else missing
        if moves:
            facts["index_moves"] = {str(old): new for old, new in moves.items()}
        told = (whole(card.values.get("nvlink.fabric_state")) for card in self.cards)
        states = [state for state in told if state is not None]
        if states:
            waiting = [s for s in states if s in (1, 2)]
            state = waiting[0] if waiting else max(states)
            facts["fabric_state"] = STATES.get(state, str(state))
            failed = [
                card for card in self.cards if card.values.get("nvlink.fabric_state") == COMPLETED
                and card.values.get("nvlink.fabric_status", 0) != 0
            ]  # fmt: skip
            facts["gpus_affected"] = len(waiting) + len(failed)
        for name, state_ in self.services.items():
            facts[name.removeprefix("nvidia-")] = state_
        facts["gpus"] = {
            card.key: {
                name.partition(".")[2]: value
                for name, value in (
                    *((f".{n}", getattr(card, n)) for n in ("pci", "uuid", "name")),
                    *card.values.items(), *((f".{n}", v) for n, v in card.shown.items()),
                ) if value != ""
            } for card in self.cards
        }  # fmt: skip
        return facts

    def _say(self, findings: list[Finding]) -> str:
        whole_ = [f for f in findings if f.rule in ("gpu.count", "driver.unusable")]
        if whole_:
            rest = [f for f in findings if f not in whole_ and f.severity.rank > Severity.INFO.rank]
            return "; ".join(f.say for f in (*whole_, *rest[:2]))
        lost = self.lost
        if lost:
            names = ", ".join(
                f"GPU at {card.pci} (index {card.index})" if card.pci else f"GPU {card.index}"
                for card in lost
            )
            others = len(self.cards) - len(lost)
            verb = "are" if len(lost) > 1 else "is"
            return f"{names} {verb} lost (NVML rc {LOST}); the other {others} are readable"
        return summary(self.cards, findings)

    def _drain(self, findings: list[Finding]) -> str:
        advice = drain(self.cards, [f for f in findings if f.rule != "gpu.count"])
        if advice == NO and any(f.rule == "gpu.count" for f in findings):
            return WHOLE_NODE if self.cards else NOW
        return advice


def _failed(card: Card, name: str, rc: int) -> None:
    """A call that failed; of several the handle's, then the gravest, is told."""
    quiet = (3, 6, 13, 19, 21, 25, 27)
    if rc in quiet:
        return
    before = card.values.get("gpu.nvml_rc")
    if before is None or (rc in (LOST, 16) and before not in (LOST, 16)) or name in HANDLES:
        card.put("gpu.nvml_rc", rc)
        card.put("gpu.nvml_call", name[:120])


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()
