"""What the registers in an NVLink Xid line say: 74 up to Hopper, 144 to 150 from Blackwell. Pure.

The bits of 74 are those of NVSentinel's decision table; the fields of 144 to 150 are laid out as in
NVIDIA's Xid catalogue and gpud.
"""

from __future__ import annotations

import re
from typing import TypeAlias

from probes.event import Scalar

Found: TypeAlias = dict[str, Scalar | None]
"""What a line holds: kind, pci, code, pid, process where known, and facts of its own."""

FIFTH = range(144, 151)
"""Xids of the fifth NVLink generation: the line carries its own severity word."""
PEER_DIED = frozenset({4, 8})
"""Error status of RLW_SRC_TRACK that only means: another port died."""

_LINK = re.compile(
    r"\blink (?P<link>\d{1,3})\b(?: ?\((?P<regs>[0-9a-fx, ]{3,200})\))?", re.IGNORECASE
)
_REGISTERS = 7
_BITS_OF_74: tuple[tuple[str, int, tuple[int, ...]], ...] = (
    ("ecc", 0, (4, 5)), ("ecc", 2, (0, 1, 2, 6)),
    ("reseat", 0, (8, 9, 12, 16, 17, 24, 28)), ("marginal", 0, (21, 22)),
    ("ignore", 0, (0, 23, 30)), ("secondary", 0, (1, 20)), ("secondary", 3, (16, 17)),
    ("fabric_reset", 3, (18,)), ("ecc_threshold", 4, (20, 23, 26, 29)),
)  # fmt: skip
"""(what a bit means, register from 0, bits)."""
_FIFTH = re.compile(
    r"(?P<unit>[A-Z][A-Z0-9_]{1,40})\s+(?P<severity>Fatal|Non-?fatal)\s+XC ?(?P<xc>\d{1,2})\s+"
    r"i ?(?P<injected>\d{1,2})\s+Link (?P<link>-?\d{1,3})\b(?:\s*[(\[]"
    r"(?P<words>[0-9a-fx, ]{1,200}))?",
    re.IGNORECASE,
)
_SEVERITY = re.compile(r"\b(?P<word>Fatal|Non-?fatal)\b", re.IGNORECASE)


def decoded(code: int, said: str) -> Found:
    """Link and meaning of an NVLink Xid's text; empty where the line has no such fields."""
    if code == 74:
        return _seventy_four(said)
    return _fifth(said) if code in FIFTH else {}


def _seventy_four(said: str) -> Found:
    match = _LINK.search(said)
    if match is None:
        return {}
    found: Found = {"link": int(match["link"])}
    registers = _words(match["regs"])
    if len(registers) == _REGISTERS:
        found["registers"] = match["regs"].strip()
        found["meaning"] = ",".join(meaning(registers))
    return found


def meaning(registers: list[int]) -> list[str]:
    """What the bits that are set mean, each word once; "unlisted" for one the table lacks."""
    words: dict[str, None] = {}
    left = list(registers)
    for word, register, bits in _BITS_OF_74:
        mask = sum(1 << bit for bit in bits)
        if registers[register] & mask:
            words[word] = None
        left[register] &= ~mask
    if any(left[register] for register in (0, 2, 3, 4)):
        words["unlisted"] = None
    return list(words)


def _fifth(said: str) -> Found:
    match = _FIFTH.search(said)
    if match is None:
        word = _SEVERITY.search(said)
        return {} if word is None else {"fatal": word["word"].lower() == "fatal"}
    link, words = int(match["link"]), _words(match["words"])
    found: Found = {
        "unit": match["unit"].upper(), "fatal": match["severity"].lower() == "fatal",
        "link": None if link < 0 else link, "containment": int(match["xc"]),
        "injected": int(match["injected"]) > 0,
    }  # fmt: skip
    if words:
        found["sub_reason"] = words[0] >> 20 & 0x3F
    if len(words) > 1:
        found["error_status"] = words[1]
        tracked = "SRC_TRACK" in str(found["unit"])
        found["peer_died"] = True if tracked and words[1] in PEER_DIED else None
    return found


def _words(text: str | None) -> list[int]:
    found = re.findall(r"0x([0-9a-f]{1,8})\b", text or "", re.IGNORECASE)
    return [int(word, 16) for word in found[:16]]
