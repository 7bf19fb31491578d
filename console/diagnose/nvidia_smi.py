"""What people paste of nvidia-smi: the table, -q, -x, -L, queries, and its messages.

All forms in one text are read together, by node: the table gives a card its index, -q its recovery
action, and both are one card by its PCI address.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from console import units
from console.diagnose import (
    dcgm_text,
    gpu_rules,
    nvidia_smi_csv,
    nvidia_smi_dmon,
    nvidia_smi_q,
    nvidia_smi_table,
)
from console.diagnose import nvidia_smi_words as words
from console.diagnose.gpu_words import drain
from console.diagnose.nodes import head as unnamed
from console.diagnose.nodes import parts
from console.diagnose.nvidia_smi_node import LINE_CHARS, QUERY_CHARS, SmiNode
from console.diagnose.report import NO, Report, worst_advice
from console.diagnose.text import Text
from probes.event import Severity

KIND = "nvidia-smi"
TITLE = "nvidia-smi: table, -q, -x, -L, --query-gpu, dmon, its messages; dcgmi diag and health"
STREAMS = False
RULES = (*gpu_rules.RULES, dcgm_text.FAILED)


def sniff(head: str) -> int:
    """By its banners, headings and messages."""
    head = unnamed(head)
    if "<nvidia_smi_log" in head or "NVSMI LOG" in head or "NVIDIA-SMI " in head:
        return 95
    every = head.split("\n", 400)[:400]
    lines = [line for line in every if len(line) <= LINE_CHARS]
    if dcgm_text.looks(head) or any(nvidia_smi_dmon.heading(line) for line in lines[:20]):
        return 85
    if words.trouble(lines) is not None or words.broken(lines):
        return 85
    if any(nvidia_smi_csv.heading(line[:QUERY_CHARS]) for line in every) or "--query-gpu" in head:
        return 85
    if nvidia_smi_q.is_log(lines) or any(nvidia_smi_table.is_table(line) for line in lines):
        return 85
    if any(nvidia_smi_csv.is_answer(line) for line in lines[:20]):
        return 70
    if words.listed(lines) and "Link " not in head:
        return 75
    pairs = ("Remapping Failure Occurred", "GPU Recovery Action", "Remapped Rows", "ECC Errors",
             "Clocks Event Reasons", "Clocks Throttle Reasons", "Performance State")  # fmt: skip
    part = any(name in head for name in pairs) or _FABRIC.search(head)
    return 70 if part else 0


_FABRIC = re.compile(r"^\s+Fabric\s*\n\s+State\s+: \w", re.MULTILINE)


def read(text: Text) -> Report:
    """All nodes of the text; facts of one node stand alone, of several by node."""
    nodes = [
        SmiNode(part, text.command) for part in parts([t for _, t in text], text.host)
    ]  # fmt: skip
    for node in nodes:
        node.judged()
    report = Report(kind=KIND)
    told = [n for n in nodes if len(n.cards) or n.findings or n.facts or n.unknown]
    report.measured = any(node.measured for node in told)
    report.findings = [f for node in told for f in node.findings]
    report.drain = worst_advice(drain(n.cards.all, n.findings) for n in told) if told else NO
    several = len(told) > 1
    for node in told:
        label = f"{node.name}: " if node.name and several else ""
        report.unknown += [label + text for text in node.unknown]
    report.facts = (
        {"nodes": {n.name or "?": n.facts for n in told}} if several
        else told[0].facts if told else {}
    )  # fmt: skip
    report.say = _say(told)
    return report


def _say(nodes: Sequence[SmiNode]) -> str:
    """Nodes with trouble by name; the others as a number."""
    if not nodes:
        return "nothing of nvidia-smi could be read in it"
    if len(nodes) == 1:
        return nodes[0].say()
    bad = [n for n in nodes if any(f.severity.rank > Severity.INFO.rank for f in n.findings)]
    said = [f"{n.name or '?'}: {n.say()}" for n in bad[:4]]
    if len(bad) > 4:
        said.append(f"{units.counted(len(bad) - 4, 'more node')} with trouble")
    if len(nodes) > len(bad):
        said.append(f"{units.counted(len(nodes) - len(bad), 'node')} without trouble")
    return "; ".join(said)
