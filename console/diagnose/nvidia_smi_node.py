"""One node's part of a paste of nvidia-smi: all its forms together, judged."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from console.diagnose import (
    cells,
    dcgm_text,
    gpu_rules,
    nvidia_smi_csv,
    nvidia_smi_dmon,
    nvidia_smi_fields,
    nvidia_smi_q,
    nvidia_smi_table,
    nvidia_smi_words,
    nvidia_smi_xml,
    renumbered,
)
from console.diagnose.gpu_cards import Card, Cards
from console.diagnose.gpu_facts import facts_of, together
from console.diagnose.gpu_judge import judge
from console.diagnose.gpu_words import summary
from console.diagnose.live_rules import live
from console.diagnose.nodes import Part
from console.diagnose.report import found
from probes.checks.nvml_codes import NVML_CODES
from probes.event import Action, Finding, Severity

LINE_CHARS = 500
"""No line of these outputs is longer, queries apart; what is may be built to be slow to read."""
QUERY_CHARS = 8000


_IN_CONTAINER = re.compile(
    r"\b(?:docker|podman|nerdctl|kubectl|crictl|ctr|apptainer|singularity)\b.{0,200}?"
    r"\b(?:exec|run|compose)\b"
)
"""A command that asks inside a container."""


class SmiNode:
    """What one node's part of the text holds."""

    def __init__(self, part: Part, command: str) -> None:
        self.name = part.node
        self.contained = _IN_CONTAINER.search(command) is not None
        self.cards = Cards()
        self.facts: dict[str, Any] = {}
        self.unknown: list[str] = []
        self.findings: list[Finding] = []
        self.measured = True
        self.gone: set[str] = set()
        """UUIDs and addresses of cards that a later list of the same node lacks."""
        self._read(part.lines, command)

    def _read(self, lines: Sequence[str], command: str) -> None:
        """Forms that know an index first, so that the others' cards get it."""
        short = [line for line in lines if len(line) <= LINE_CHARS]
        self._listed(short)
        self._table(short)
        self._query([line[:QUERY_CHARS] for line in lines], command)
        self._report(lines if any("<nvidia_smi_log" in line for line in lines) else short)
        self._merge(nvidia_smi_dmon.parse(short))
        self._tests(short)
        self._messages(short)
        if len(self.cards) and not any(map(_told, self.cards)):
            self.unknown.append("health: what is shown holds no reading; nvidia-smi -q does")
            self.measured = False
        if not len(self.cards) and not {"trouble", "dcgm"} & set(self.facts):
            self.measured = False

    def _listed(self, lines: Sequence[str]) -> None:
        listed = nvidia_smi_words.listed(lines)
        self._compare([(one.gpu, one.uuid) for one in listed])
        for one in listed:
            if one.uuid not in self.gone:
                self.cards.add(Card(index=one.gpu, name=one.name, uuid=one.uuid))
        instances = nvidia_smi_words.mig_listed(lines)
        if instances:
            self.facts["mig_devices"] = instances

    def _table(self, lines: Sequence[str]) -> None:
        table = nvidia_smi_table.parse(lines)
        self._compare([(c.index, c.device) for c in table.cards if c.index is not None])
        self._merge([card for card in table.cards if card.device not in self.gone])
        self._put(driver=table.driver, cuda=table.cuda, mig=table.mig, processes=table.processes)
        if table.cards and any("Process name" in line for line in lines):
            self._held(table)

    def _compare(self, entries: list[renumbered.Entry]) -> None:
        """Lists of before and after in one paste."""
        changed = renumbered.change(renumbered.lists(entries))
        if changed is not None:
            self.gone.update(key for _, key in changed.missing)
            self.findings.append(renumbered.finding(changed, self.name))
            self.facts.update(renumbered.facts(changed))

    def _held(self, table: nvidia_smi_table.Table) -> None:
        """Memory without a process; a container never sees any, so this is only information."""
        busy = {row["gpu"] for row in table.processes}
        for card in table.cards:
            used = card.values.get("gpu.mem_used_bytes")
            total = card.values.get("gpu.mem_total_bytes")
            if not isinstance(used, int) or not isinstance(total, int) or card.index in busy:
                continue
            if used > gpu_rules.HELD_SHARE * total and not card.has_mode("inventory.mig_mode"):
                text = f"{used >> 20} of {total >> 20} MiB in use and no process is listed"
                self.findings.append(found(
                    gpu_rules.MEMORY_HELD, f"{card.label}: {text}",
                    card.lines.get("mem_used_bytes", text), node=self.name,
                    device=card.device, label=card.label,
                ))  # fmt: skip

    def _query(self, lines: Sequence[str], command: str) -> None:
        query = nvidia_smi_csv.parse(lines, command)
        self._merge(query.cards)
        self._put(driver=query.driver, processes=query.processes)
        if query.headless:
            self.unknown.append(
                f"{query.headless} rows of a query without its heading: what the columns are; "
                "paste it with --format=csv (no noheader)"
            )

    def _report(self, lines: Sequence[str]) -> None:
        """-q as text or XML."""
        text = "\n".join(lines)
        if "<nvidia_smi_log" in text:
            blocks, why = nvidia_smi_xml.blocks(text)
            if why:
                self.unknown.append(f"not all of the XML was read: {why}")
        else:
            plain = [line for line in lines if line.lstrip()[:1] not in ("|", "+")]
            begin = next((n for n, line in enumerate(plain) if "NVSMI LOG" in line), 0)
            blocks = nvidia_smi_q.blocks(plain[begin:])
            if not nvidia_smi_q.is_log(plain) and not _has_sections(plain):
                return
        head, gpus = blocks[0], blocks[1:]
        self._heading(head, len(gpus))
        self._merge([nvidia_smi_fields.card_of(block) for block in gpus])
        if not gpus:
            lone = nvidia_smi_fields.card_of(head)
            if lone.values or lone.broken:
                lone.uuid = lone.uuid or "unnamed"
                self._merge([lone])
                self.unknown.append("which GPU this part of nvidia-smi -q is about")

    def _tests(self, lines: Sequence[str]) -> None:
        """DCGM's own word about the node."""
        results = dcgm_text.parse(lines) if dcgm_text.looks("\n".join(lines)) else []
        if results:
            self.findings += dcgm_text.findings(results, self.name)
            self.facts["dcgm"] = {
                word: [f"{r.test} GPU {', '.join(map(str, r.gpus))}" if r.gpus else r.test
                       for r in results if r.word == word]
                for word in ("fail", "warn", "pass")
            }  # fmt: skip

    def _heading(self, head: nvidia_smi_q.Block, shown: int) -> None:
        for name, key in (("driver", "driver_version"), ("cuda", "cuda_version")):
            cell = head.get(key)
            if cell is not None and cells.given(cell.text):
                self.facts.setdefault(name, cells.given(cell.text))
        stamp = head.get("timestamp")
        if stamp is not None and stamp.text:
            self.facts["timestamp"] = stamp.text
        attached = head.get("attached_gpus")
        number = None if attached is None else cells.count(attached.text)
        if number is None:
            return
        self.facts["attached"] = number
        if 0 < shown < number:
            self.unknown.append(
                f"the driver has {number} GPUs attached and this report holds {shown}: nothing is "
                "known of the others (nvidia-smi -q shows all)"
            )

    def _messages(self, lines: Sequence[str]) -> None:
        for one in nvidia_smi_words.broken(lines):
            card = Card(index=one.gpu, pci=one.pci)
            card.shown["message"] = one.reason
            if card.device:
                card = self.cards.add(card)
                self.facts.setdefault("unusable", []).append(one.pci or one.gpu)
            self._unusable(card, one)
        trouble = nvidia_smi_words.trouble(lines)
        if trouble is not None:
            self._trouble(trouble)

    def _unusable(self, card: Card, one: nvidia_smi_words.Broken) -> None:
        """A card that the driver cannot open."""
        rule, what, severity = {
            14: ("gpu.nvml_error", "its InfoROM is corrupted", Severity.CRITICAL),
            16: ("gpu.reset_required", "it asks for a reset", None),
        }.get(one.code, ("gpu.lost", f"the driver cannot open it ({one.reason})", None))
        action = {"action": Action.REPLACE} if one.code == 14 else {}
        self.findings.append(found(
            live(rule), f"{card.label}: {what}", one.line, node=self.name, device=card.device,
            label=card.label, severity=severity, **action,
        ))  # fmt: skip
        if rule == "gpu.lost":
            self.facts.setdefault("lost", []).append(card.pci or card.index)

    def _trouble(self, trouble: nvidia_smi_words.Trouble) -> None:
        """The driver as a whole; cards that the text shows all the same stay."""
        self.facts["trouble"] = trouble.name
        known = NVML_CODES.get(trouble.code or 0)
        lost = any("message" in card.shown for card in self.cards)
        if trouble.name == "tool_missing":
            self.measured = bool(len(self.cards))
            self._add(gpu_rules.NO_TOOL, trouble.say, trouble.line)
        elif trouble.name == "no_devices":
            if not lost:
                self._add(gpu_rules.NONE, trouble.say, trouble.line)
        elif trouble.code in (4, 10, 17):
            self.measured = False
            self._add(
                live("driver.unusable"), trouble.say, trouble.line, severity=Severity.UNKNOWN,
                next_step="run nvidia-smi on the host itself as root, outside of any container",
            )  # fmt: skip
        elif trouble.code == 999 and self.contained:
            self._add(gpu_rules.CONTAINER, "the container lost its GPUs; the host may be well",
                      trouble.line)  # fmt: skip
        else:
            name = f" (NVML {trouble.code}, {known.name})" if known is not None else ""
            self._add(live("driver.unusable"), f"{trouble.say}{name}", trouble.line)

    def _add(self, rule: Any, say: str, line: str, **more: Any) -> None:
        self.findings.append(found(rule, say, line, node=self.name, **more))

    def _merge(self, cards: Sequence[Card]) -> None:
        for card in cards:
            self.cards.add(card)

    def _put(self, **facts: Any) -> None:
        self.facts.update({name: value for name, value in facts.items() if value})

    def judged(self) -> None:
        """Findings, facts and what is not known of them."""
        self.findings += judge(self.cards, self.name)
        self.findings.sort(key=lambda f: -f.severity.rank)
        gpus = {card.key: facts_of(card) for card in self.cards}
        if gpus:
            self.facts.update(gpus=gpus, count=len(gpus))
            self.facts.update(together(self.cards.all, self.findings))
        for card in self.cards:
            if card.shown.get("ecc") and all(v is None for v in card.shown["ecc"].values()):
                self.unknown.append(
                    f"{card.label}: ECC counters are not readable, which is not the same as zero"
                )
            if "may_be_frozen" in card.shown:
                self.unknown.append(
                    f"{card.label}: utilisation, power, clocks and temperature may be frozen"
                )

    def say(self) -> str:
        """Its line."""
        own = [f for f in self.findings if f.rule == "gpu.count"]
        if own:
            others = [f for f in self.findings if f not in own]
            return f"{own[0].say}; {summary(self.cards.all, others)}"
        own = [f for f in self.findings if not f.device and f.rule in _WHOLE]
        if own and not len(self.cards):
            return own[0].say
        if "dcgm" in self.facts and not len(self.cards):
            told = [f.say for f in self.findings if f.rule == dcgm_text.FAILED.id]
            passed = f"{len(self.facts['dcgm']['pass'])} tests of DCGM passed"
            return "; ".join([*told[:4], passed])
        return summary(self.cards.all, self.findings)


_WHOLE = ("driver.unusable", gpu_rules.NONE.id, gpu_rules.NO_TOOL.id)


def _told(card: Card) -> bool:
    """Whether anything was read of it; cells that say N/A are nothing."""
    return bool(card.values or card.broken or any(map(_given, card.shown.values())))


def _given(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_given, value.values()))
    return value not in (None, "", [], False)


def _has_sections(lines: Sequence[str]) -> bool:
    heads = ("Remapped Rows", "ECC Errors", "GPU Recovery Action", "Clocks Event Reasons",
             "Clocks Throttle Reasons", "Retired Pages")  # fmt: skip
    return any(line.strip().startswith(heads) or line.strip() == "Fabric" for line in lines)
