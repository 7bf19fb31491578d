"""NVML's calls by name -> the reading of a live probe that they give. Units as NVML's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from console.diagnose import cells
from console.diagnose.gpu_cards import Card
from probes.reading import number, whole

HANDLES = ("nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex",
           "nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetHandleByUUID")  # fmt: skip


class Answer(Struct, frozen=True):
    """What one call gave."""

    rc: int | None = None
    """None where the dump does not hold the call."""
    value: Any = None

    @classmethod
    def of(cls, raw: Any) -> Answer:
        """From {"rc": 0, "value": ...}; a bare value is one that worked."""
        if isinstance(raw, dict) and "rc" in raw:
            return cls(whole(raw.get("rc")), raw.get("value"))
        return cls() if raw is None or isinstance(raw, dict) else cls(0, raw)


def answers(device: dict[str, Any]) -> Iterator[tuple[str, Answer]]:
    """Calls of one device, with the version's suffix as it stands."""
    for name, raw in list(device.items())[:512]:
        if str(name).startswith("nvml"):
            yield str(name), Answer.of(raw)


def services(raw: Any) -> dict[str, str]:
    """Unit -> what systemctl is-active says."""
    if not isinstance(raw, dict):
        return {}
    return {
        str(name).removesuffix(".service")[:80]: str(state)[:80]
        for name, state in list(raw.items())[:64]
    }  # fmt: skip


_Take = Callable[[Card, Any], None]


def _text(attribute: str) -> _Take:
    def take(card: Card, value: Any) -> None:
        if isinstance(value, str):
            setattr(card, attribute, value[:120])

    return take


def _number(name: str, scale: float = 1) -> _Take:
    def take(card: Card, value: Any) -> None:
        found = number(value) if scale != 1 else whole(value)
        card.put(name, None if found is None else found / scale if scale != 1 else found)

    return take


def _member(*pairs: tuple[str, str]) -> _Take:
    """Members of a structure."""

    def take(card: Card, value: Any) -> None:
        for member, name in pairs:
            if isinstance(value, dict):
                card.put(name, whole(value.get(member)))

    return take


def _pci(card: Card, value: Any) -> None:
    if isinstance(value, dict) and cells.device(str(value.get("busId", ""))):
        card.pci = str(value["busId"])[:20]
        device_id = whole(value.get("pciDeviceId"))
        if device_id is not None and device_id & 0xFFFF == 0x10DE:
            card.put("inventory.pci_device_id", f"{device_id >> 16:04x}")


def _flag(name: str) -> _Take:
    def take(card: Card, value: Any) -> None:
        first = value[0] if isinstance(value, list) and value else value
        if isinstance(first, dict):
            first = first.get("current")
        if isinstance(first, bool) or whole(first) is not None:
            card.put(name, bool(first))

    return take


def _fabric(card: Card, value: Any) -> None:
    if isinstance(value, dict):
        card.put("nvlink.fabric_state", whole(value.get("state")))
        card.put("nvlink.fabric_status", whole(value.get("status")))
        health = whole(value.get("healthMask"))
        card.put("nvlink.fabric_health", health or None)


def _remap(card: Card, value: Any) -> None:
    """(corrected, uncorrected, pending, failure) as a list, or by name."""
    keys = (("corrRows", "correctable"), ("uncRows", "uncorrectable"), ("isPending", "pending"),
            ("failureOccurred", "failure"))  # fmt: skip
    for at, (member, name) in enumerate(keys):
        raw = value.get(member) if isinstance(value, dict) else (
            value[at] if isinstance(value, list) and at < len(value) else None
        )  # fmt: skip
        found = whole(int(raw)) if isinstance(raw, bool) else whole(raw)
        if found is not None:
            card.put(f"ecc.remap_{name}", bool(found) if at >= 2 else found)


FIELDS = {
    3: "ecc.ecc_corrected_volatile", 4: "ecc.ecc_uncorrected_volatile",
    5: "ecc.ecc_corrected_aggregate", 6: "ecc.ecc_uncorrected_aggregate",
    82: "gpu.mem_temp_c", 94: "pcie.replays", 142: "ecc.remap_correctable",
    143: "ecc.remap_uncorrectable", 144: "ecc.remap_pending", 145: "ecc.remap_failure",
    230: "ecc.recovery_action",
}  # fmt: skip
"""Numbers of NVML's fields (nvml.h, API 13) -> reading."""
_FLAGS = ("ecc.remap_pending", "ecc.remap_failure")


def _fields(card: Card, value: Any) -> None:
    """Field values by number; each may be {"rc", "value"} of its own."""
    pairs = value.items() if isinstance(value, dict) else (
        (one.get("fieldId"), one) for one in value if isinstance(one, dict)
    ) if isinstance(value, list) else ()  # fmt: skip
    for key, raw in list(pairs)[:512]:
        answer = Answer.of(raw)
        number_ = int(str(key)) if str(key).isdigit() and len(str(key)) < 5 else -1
        found = whole(answer.value)
        if answer.rc == 0 and number_ in FIELDS and found is not None:
            name = FIELDS[number_]
            card.put(name, bool(found) if name in _FLAGS else found)


def _links(card: Card, value: Any) -> None:
    """Link states, as a list or by number."""
    states = dict(enumerate(value)) if isinstance(value, list) else value
    if not isinstance(states, dict):
        return
    known = 0
    for key, raw in list(states.items())[:36]:
        answer = Answer.of(raw)
        if answer.rc == 0 and str(key).isdigit() and whole(answer.value) in (0, 1):
            card.put(f"nvlink.link{int(str(key)[:3])}_up", answer.value == 1)
            known += 1
    if known:
        card.put("nvlink.links", len(states))


def _errors(card: Card, value: Any) -> None:
    """{"uncorrected_volatile": 0, ...}."""
    for kind in ("corrected", "uncorrected"):
        for scope in ("volatile", "aggregate"):
            if isinstance(value, dict):
                card.put(f"ecc.ecc_{kind}_{scope}", whole(value.get(f"{kind}_{scope}")))


CALLS: dict[str, _Take] = {
    "nvmlDeviceGetName": _text("name"),
    "nvmlDeviceGetUUID": _text("uuid"),
    "nvmlDeviceGetSerial": _text("serial"),
    "nvmlDeviceGetPciInfo_v3": _pci,
    "nvmlDeviceGetPciInfo": _pci,
    "nvmlDeviceGetMinorNumber": _number("inventory.minor"),
    "nvmlDeviceGetTemperature": _number("gpu.temp_c"),
    "nvmlDeviceGetPowerUsage": _number("gpu.power_w", 1000.0),
    "nvmlDeviceGetEnforcedPowerLimit": _number("gpu.power_limit_w", 1000.0),
    "nvmlDeviceGetPowerManagementDefaultLimit": _number("inventory.power_default_w", 1000.0),
    "nvmlDeviceGetPerformanceState": _number("gpu.pstate"),
    "nvmlDeviceGetCurrentClocksEventReasons": _number("gpu.reasons"),
    "nvmlDeviceGetCurrentClocksThrottleReasons": _number("gpu.reasons"),
    "nvmlDeviceGetUtilizationRates": _member(("gpu", "gpu.util_percent"),
                                             ("memory", "gpu.mem_util_percent")),
    "nvmlDeviceGetMemoryInfo_v2": _member(("used", "gpu.mem_used_bytes"),
                                          ("total", "gpu.mem_total_bytes")),
    "nvmlDeviceGetMemoryInfo": _member(("used", "gpu.mem_used_bytes"),
                                       ("total", "gpu.mem_total_bytes")),
    "nvmlDeviceGetMarginTemperature": _number("gpu.thermal_margin_c"),
    "nvmlDeviceGetCurrPcieLinkGeneration": _number("pcie.gen"),
    "nvmlDeviceGetMaxPcieLinkGeneration": _number("pcie.gen_max"),
    "nvmlDeviceGetCurrPcieLinkWidth": _number("pcie.width"),
    "nvmlDeviceGetMaxPcieLinkWidth": _number("pcie.width_max"),
    "nvmlDeviceGetPcieReplayCounter": _number("pcie.replays"),
    "nvmlDeviceGetEccMode": _flag("ecc.ecc_mode"),
    "nvmlDeviceGetMigMode": _flag("inventory.mig_mode"),
    "nvmlDeviceGetPersistenceMode": _flag("inventory.persistence_mode"),
    "nvmlDeviceGetRemappedRows": _remap,
    "nvmlDeviceGetFieldValues": _fields,
    "nvmlDeviceGetNvLinkState": _links,
    "nvmlDeviceGetTotalEccErrors": _errors,
    "nvmlDeviceGetGpuFabricInfoV": _fabric,
    "nvmlDeviceGetGpuFabricInfo": _fabric,
    "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION": _number("ecc.recovery_action"),
    "nvmlDeviceGetGpuRecoveryAction": _number("ecc.recovery_action"),
}  # fmt: skip
