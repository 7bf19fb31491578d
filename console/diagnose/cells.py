"""What single cells of NVIDIA's tools hold: numbers with units, flags, addresses, and errors.

Absent ("N/A") and broken ("ERR!", "Unknown Error") are two things, and neither is zero.
"""

from __future__ import annotations

import re

_NUMBER = re.compile(r"\s*(-?\d{1,19}(?:\.\d{1,9})?)(?![\d.])")
_HEX = re.compile(r"\s*0x([0-9a-fA-F]{1,16})\b")
PCI = re.compile(
    r"(?:(?P<domain>[0-9a-fA-F]{4,8}):)?(?P<rest>[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])"
)
"""A PCI address as any of the tools writes it."""
UUID = re.compile(r"\b(GPU-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})\b")

_BROKEN = (
    ("gpu is lost", 15), ("requires reset", 16), ("reset required", 16), ("unknown error", 999),
    ("err!", 999), ("[error]", 999),
)  # fmt: skip
"""Texts in place of a value that say that the GPU failed to give it, with NVML's code for them."""
_ABSENT = frozenset({
    "", "-", "n/a", "not supported", "not available", "not found", "function not found",
    "insufficient permissions", "none found", "deprecated", "unknown",
    "requested functionality has been deprecated",
})  # fmt: skip


def plain(text: str) -> str:
    """A cell without blanks and brackets around it."""
    return text.strip().removeprefix("[").removesuffix("]").strip()


def broken(text: str) -> int | None:
    """NVML's return code where the cell is an error instead of a value; None otherwise."""
    said = text.strip().lower()
    for words, code in _BROKEN:
        if words in said:
            return code
    return None


def absent(text: str) -> bool:
    """Whether the cell says that there is no such value here."""
    return plain(text).lower() in _ABSENT


def given(text: str) -> str | None:
    """The text of a cell that holds a value; None when it is absent or broken."""
    return None if absent(text) or broken(text) is not None else plain(text)


def number(text: str) -> float | int | None:
    """The number in front of a unit: "168.40 W", "30%", "2559 bank(s)", "20475MiB"."""
    found = _NUMBER.match(plain(text))
    if found is None or broken(text) is not None:
        return None
    return float(found[1]) if "." in found[1] else int(found[1])


def count(text: str) -> int | None:
    """A whole, non-negative number of at most 64 bit."""
    value = number(text)
    return value if isinstance(value, int) and 0 <= value < 1 << 63 else None


def mask(text: str) -> int | None:
    """A bit mask in hex."""
    found = _HEX.match(plain(text))
    return None if found is None else int(found[1], 16)


_YES = frozenset({"yes", "enabled", "active", "true", "on", "1"})
_NO = frozenset({"no", "disabled", "not active", "inactive", "false", "off", "0"})


def flag(text: str) -> bool | None:
    """Yes or no in any of the tools' words; a mode that waits for a reset ("Enabled*") counts."""
    said = plain(text).lower().removesuffix("*")
    return True if said in _YES else False if said in _NO else None


def mebibytes(text: str) -> int | None:
    """ "81559 MiB" in bytes."""
    value = number(text)
    return None if value is None or value < 0 or value > 1 << 40 else int(value) << 20


def device(address: str) -> str:
    """A PCI address as the probes write it, "0000:1b:00.0"; "" when it is none."""
    found = PCI.search(address)
    if found is None:
        return ""
    domain = int(found["domain"] or "0", 16)
    return f"{domain:04x}:{found['rest'].lower()}"


def short(address: str) -> str:
    """The address as people say it: without a domain that is zero, letters as they were."""
    found = PCI.search(address)
    if found is None:
        return address
    domain = found["domain"] or ""
    return found[0] if domain.strip("0") else found["rest"]
