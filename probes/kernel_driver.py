"""Lines of the NVIDIA driver that carry no Xid, and of the fabric manager. Pure."""

from __future__ import annotations

import re

from probes.kernel_xid import BDF, Found, address

_OFF_BUS = re.compile(
    rf"NVRM: GPU (?:at PCI:)?(?P<pci>{BDF}): GPU has fallen off the bus", re.IGNORECASE
)
LOAD = re.compile(rf"NVRM: The NVIDIA GPU (?P<pci>{BDF})\b", re.IGNORECASE)
_OFF_BUS_LOAD = re.compile(LOAD.pattern + r".{0,400}fallen off the bus", re.IGNORECASE)
_UUID = re.compile(
    rf"NVRM: GPU at (?:PCI:)?(?P<pci>{BDF}): (?P<uuid>GPU-[0-9a-f]{{8}}-[0-9a-f-]{{27}})",
    re.IGNORECASE,
)
_RMINIT = re.compile(
    rf"NVRM: (?:GPU (?:at )?(?:PCI:)?(?P<pci>{BDF}): )?RmInitAdapter failed!?"
    r"(?: \((?P<codes>[0-9a-fx:]{1,60})\))?",
    re.IGNORECASE,
)
_MINOR = re.compile(
    rf"NVRM: (?:GPU (?P<pci>{BDF}): )?rm_init_adapter failed, device minor number "
    rf"(?P<minor>\d{{1,4}})"
)
_MISMATCH = re.compile(
    r"NVRM: API mismatch: .{0,200}?client.{0,200}? version (?P<client>\d[\d.]{0,20}\d)"
    r"(?:.{0,200}?module.{0,200}? version (?P<module>\d[\d.]{0,20}\d))?"
)
_RX_DETECT = re.compile(
    rf"NVRM: (?:GPU(?P<gpu>\d{{1,4}}) |GPU (?P<pci>{BDF}):? )?"
    r"\w{0,20}(?:PostRxDetLinkMask|PostRxDetectLinkMask)\w{0,20}: .{0,80}fail",
    re.IGNORECASE,
)
_MODESET = re.compile(r"nvidia-modeset: ERROR: (?:GPU:(?P<gpu>\d{1,4}): )?(?P<said>.{1,200})")
_PEERMEM = re.compile(r"nvidia[-_]peermem.{0,80}?ERROR (?P<said>.{1,120})")
_MANAGER = re.compile(
    r"detected NVSwitch (?P<what>fatal|non-fatal) error (?P<code>\d{5})"
    r"(?:.{0,80}?(?:Link|port):? ?(?P<link>\d{1,4}))?",
    re.IGNORECASE,
)


def driver(text: str) -> Found | None:
    """Off the bus, not initialised, mismatched, links that do not train; None for other lines."""
    if "NVRM" in text:
        return _nvrm(text)
    if "nvidia-modeset" in text and (match := _MODESET.search(text)):
        return {"kind": "modeset", "gpu": _number(match["gpu"]), "said": match["said"]}
    if "peermem" in text and (match := _PEERMEM.search(text)):
        return {"kind": "peermem", "said": match["said"]}
    if "NVSwitch" in text and (match := _MANAGER.search(text)):
        return {
            "kind": "fabric_manager", "code": int(match["code"]), "link": _number(match["link"]),
            "fatal": match["what"].lower() == "fatal",
        }  # fmt: skip
    return None


def _nvrm(text: str) -> Found | None:
    for kind, pattern in (("off_bus", _OFF_BUS), ("off_bus", _OFF_BUS_LOAD), ("rminit", _RMINIT)):
        if match := pattern.search(text):
            pci = match["pci"]
            return {"kind": kind, "pci": None if pci is None else address(pci)}
    if match := _UUID.search(text):
        return {"kind": "uuid", "pci": address(match["pci"]), "uuid": match["uuid"]}
    if match := _MINOR.search(text):
        pci = None if match["pci"] is None else address(match["pci"])
        return {"kind": "rminit", "pci": pci, "minor": int(match["minor"])}
    if match := _MISMATCH.search(text):
        return {"kind": "mismatch", "client": match["client"], "module": match["module"]}
    if match := _RX_DETECT.search(text):
        pci = None if match["pci"] is None else address(match["pci"])
        return {"kind": "rx_detect", "pci": pci, "gpu": _number(match["gpu"])}
    return None


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)
