"""PCIe errors, hot-plug, address translation faults and slow links, as the kernel words them. Pure.

One error prints several lines: the port's notice, the device's "Bus Error", its status and one line
a bit. Only the "Bus Error" line is the error; the others tell more about it.
"""

from __future__ import annotations

import re

from probes.kernel_xid import BDF, Found, address

_SEVERITY = r"(?P<severity>Corrected|Correctable|Uncorrect(?:ed|able)(?: \([\w-]{1,12}\))?)"
_AER = re.compile(
    rf"(?P<pci>{BDF}): (?:AER: )?(?:PCIe|CXL) Bus Error: severity={_SEVERITY}, "
    r"type=(?P<layer>[^,]{1,60})",
    re.IGNORECASE,
)
_NOTICE = re.compile(
    rf"AER: (?P<multiple>Multiple )?{_SEVERITY} error (?:message )?received"
    rf"(?: from|:) (?P<pci>{BDF})",
    re.IGNORECASE,
)
_BIT = re.compile(
    rf"(?P<pci>{BDF}): +\[ ?(?P<number>\d{{1,2}})\] (?P<bit>[A-Za-z][\w ]{{1,30}}?)"
    rf"(?: {{2,}}.*|\s*\(First\)|)$"
)
_DMAR = re.compile(
    rf"DMAR: \[(?P<what>[^\]]{{1,60}})\] Request device \[(?P<pci>{BDF})\].{{0,80}}?"
    r"(?:fault reason (?P<reason>[^\n]{1,80}))?$"
)
_AMD_VI = re.compile(rf"AMD-Vi: Event logged \[(?P<what>\w{{1,40}}) (?:device=)?(?P<pci>{BDF})")
_AMD_OWN = re.compile(rf"(?P<pci>{BDF}): AMD-Vi: Event logged \[(?P<what>\w{{1,40}})")
_SMMU = re.compile(
    r"arm-smmu\S* \S+: (?:event 0x(?P<what>[0-9a-f]{1,4}) received|Unhandled context fault)"
)
_SLOT = re.compile(
    rf"(?P<pci>{BDF}): pciehp: Slot\((?P<slot>[\w-]{{1,20}})\): (?P<what>Link Down|Link Up"
    rf"|Card not present|Card present)"
)
_DEAD = re.compile(
    rf"(?P<pci>{BDF}): (?:can't change power state|Unable to change power state) from \S+ to D0"
    r"[,( ]+(?:config space|device) inaccessible",
    re.IGNORECASE,
)
_RECOVERED = re.compile(rf"(?P<pci>{BDF}): AER: device recovery (?P<what>successful|failed)")


def pcie(text: str) -> Found | None:
    """An error, a notice or bit of one, a translation fault, a slot's news; None for the rest."""
    if "Bus Error" in text or "AER" in text or "] " in text:
        return _aer(text) or _fault(text) or _slot(text)
    return _fault(text) or _slot(text)


def _aer(text: str) -> Found | None:
    if match := _AER.search(text):
        return {
            "kind": "aer", "pci": address(match["pci"]), "layer": match["layer"],
            **_graded(match["severity"]),
        }  # fmt: skip
    if match := _NOTICE.search(text):
        return {
            "kind": "aer_notice", "pci": address(match["pci"]),
            "multiple": match["multiple"] is not None, **_graded(match["severity"]),
        }  # fmt: skip
    if match := _RECOVERED.search(text):
        return {"kind": "aer_recovery", "pci": address(match["pci"]), "what": match["what"]}
    if "[" in text and (match := _BIT.search(text)):
        return {
            "kind": "aer_bit",
            "pci": address(match["pci"]),
            "bit": match["bit"].replace(" ", ""),
        }
    return None


def _graded(severity: str) -> Found:
    word = severity.lower()
    return {"corrected": word.startswith("correct"), "fatal": "(fatal" in word}


def _fault(text: str) -> Found | None:
    if "DMAR" not in text and "AMD-Vi" not in text and "smmu" not in text:
        return None
    for pattern in (_DMAR, _AMD_VI, _AMD_OWN):
        if match := pattern.search(text):
            return {"kind": "iommu", "pci": address(match["pci"]), "what": match["what"]}
    if match := _SMMU.search(text):
        return {"kind": "iommu", "what": match["what"] or "context fault"}
    return None


def _slot(text: str) -> Found | None:
    if "pciehp" in text and (match := _SLOT.search(text)):
        return {
            "kind": "slot", "pci": address(match["pci"]), "slot": match["slot"],
            "what": match["what"].lower().replace(" ", "_"),
        }  # fmt: skip
    if "power state" in text and (match := _DEAD.search(text)):
        return {"kind": "pci_dead", "pci": address(match["pci"])}
    return None
