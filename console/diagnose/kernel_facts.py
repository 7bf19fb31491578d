"""What was extracted from a kernel log, as facts: events by device, with times, counts and names.

Pure; the names say what each is. Nothing here judges.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from probes.checks import kernel_net, kernel_pcie, kernel_storage
from probes.checks.kernel_events import by_device, by_fact, stamp
from probes.checks.kernel_processes import victims
from probes.kernel_lines import KernelEvent

LISTED = 200
"""Most entries of one list; counts are of all."""


def of_host(events: list[KernelEvent], boot_at: float | None, now: float | None) -> dict[str, Any]:
    """Everything about one host that has a value."""
    kinds: dict[str, list[KernelEvent]] = {}
    for event in events:
        kinds.setdefault(event.kind, []).append(event)
    xids = kinds.get("xid", [])
    found = {
        "xids": [_xid(event, boot_at) for event in xids[:LISTED]],
        "xid_counts": _counts(xids),
        "gpus": _gpus(xids, kinds.get("uuid", [])),
        "sxids": _sxids(kinds.get("sxid", [])),
        "pcie_errors": _pcie(events),
        "self_noise": _noise(kinds.get("mlx5", [])),
        "adapters": _adapters(events),
        "storage": _storage(kinds),
        "nfs": _servers("nfs", "server", kinds),
        "lustre": _servers("lustre", "target", kinds),
        "hung_tasks": [
            {name: event.facts.get(name) for name in ("comm", "seconds")} | {"pid": event.pid}
            for event in kinds.get("hung_task", [])[:LISTED]
        ],
        "killed_for_memory": victims(kinds.get("oom", []))[:LISTED],
        "event_age_s": _ages(events, boot_at, now),
        "suppressed_lines": sum(int(e.facts["number"]) for e in kinds.get("suppressed", [])),
        "other_events": {
            kind: len(same) for kind, same in sorted(kinds.items()) if kind in _COUNTED
        },
        "boot_at": stamp(boot_at) if boot_at is not None else "",
    }
    return {name: value for name, value in found.items() if value}


_COUNTED = frozenset({
    "off_bus", "rminit", "mismatch", "rx_detect", "modeset", "peermem", "fabric_manager", "iommu",
    "slot", "pci_dead", "mce", "lockup", "hard_lockup", "rcu_stall", "hung_task", "panic", "bug",
    "segfault", "cpu_hot",
})  # fmt: skip


def monotonic_s(event: KernelEvent, boot_at: float | None) -> float | None:
    """Seconds since boot, where the timeline is that."""
    if event.mono is None or (boot_at is None and event.mono == event.wall):
        return None
    return round(event.mono, 6)


def _xid(event: KernelEvent, boot_at: float | None) -> dict[str, Any]:
    said = {
        "xid": event.code, "pci": event.pci, "pid": event.pid, "name": event.process,
        "monotonic_s": monotonic_s(event, boot_at),
        "wall": stamp(event.wall) if event.wall is not None else None,
        "boot": event.boot or None, "priority": event.prio,
        **{k: v for k, v in event.facts.items() if k != "said"},
        "text": event.facts.get("said"),
    }  # fmt: skip
    kept = ("pid", "name")
    return {name: value for name, value in said.items() if value is not None or name in kept}


def _counts(xids: list[KernelEvent]) -> dict[str, int]:
    counts = Counter(event.code for event in xids if event.code is not None)
    return {str(code): number for code, number in sorted(counts.items())}


def _gpus(xids: list[KernelEvent], uuids: list[KernelEvent]) -> dict[str, dict[str, Any]]:
    """Each GPU's Xids in order, and what they say about its memory."""
    names = {(e.pci or "").partition(".")[0]: e.facts.get("uuid") for e in uuids}
    found: dict[str, dict[str, Any]] = {}
    for pci, same in by_device(xids):
        codes = [event.code for event in same]
        gpu: dict[str, Any] = {"xids": codes[:LISTED]}
        if pci in names:
            gpu["uuid"] = names[pci]
        if {94, 95} & set(codes):
            gpu["contained"] = 95 not in codes
        remaps = [str(e.facts["remap"]) for e in same if "remap" in e.facts]
        if remaps:
            gpu["remap"] = remaps[-1]
            gpu["remap_pending"] = any(r in ("pending", "already_pending") for r in remaps)
        resets = [e.facts["rst"] for e in same if "rst" in e.facts]
        if resets:
            gpu["rst"] = any(resets)
        found[pci] = gpu
    return found


def _sxids(events: list[KernelEvent]) -> list[dict[str, Any]]:
    """By switch and code, with its links."""
    grouped: dict[tuple[Any, ...], dict[str, Any]] = {}
    for event in events:
        key = (event.code, event.facts.get("switch"), event.pci, event.facts.get("fatal"))
        entry = grouped.setdefault(key, {
            "sxid": event.code, "switch": event.facts.get("switch"), "pci": event.pci,
            "fatal": event.facts.get("fatal"), "links": [], "count": 0,
        })  # fmt: skip
        entry["count"] += 1
        link = event.facts.get("link")
        if link is not None and link not in entry["links"]:
            entry["links"].append(link)
    return list(grouped.values())[:LISTED]


def _pcie(events: list[KernelEvent]) -> dict[str, dict[str, Any]]:
    """Errors of each device by class, their bits, and how fast they came."""
    found: dict[str, dict[str, Any]] = {}
    notices = {e.pci for e in events if e.kind == "aer_notice" and e.facts.get("multiple") is True}
    for pci, same in by_device(kernel_pcie.errors(events)):
        corrected = [e for e in same if e.facts.get("corrected") is True]
        entry: dict[str, Any] = {
            "corrected": len(corrected), "uncorrected": len(same) - len(corrected),
            "bits": kernel_pcie.bits(events, pci),
        }  # fmt: skip
        if pci in notices:
            entry["multiple"] = True
        if rate := kernel_pcie.rate(*kernel_pcie.busiest(corrected)):
            entry["rate_per_s"] = round(rate, 1)
        if any(e.facts.get("fatal") is True for e in same):
            entry["fatal"] = True
        found[pci] = entry
    return found


def _noise(events: list[KernelEvent]) -> dict[str, int]:
    """Rejected register reads of each adapter: somebody reads counters it does not have."""
    counts = Counter(e.pci for e in events if e.facts.get("what") == "access_reg" and e.pci)
    return dict(sorted(counts.items()))


def _adapters(events: list[KernelEvent]) -> list[dict[str, Any]]:
    """One entry per adapter and trouble; a link that came back says after how long."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for event in events:
        what = str(event.facts.get("what"))
        if event.kind not in ("mlx5", "efa", "nic") or what not in kernel_net.WORDS:
            continue
        where = event.pci or str(event.facts.get("dev", ""))
        entry = found.setdefault((where, what), {"pci": event.pci, "kind": what, "count": 0})
        entry["count"] += 1
        for name in ("dev", "port", "module", "watt"):
            if name in event.facts:
                entry[name] = event.facts[name]
        if what == "link_down":
            down_s = kernel_net.up_after(events, event)
            entry["kind"] = "link_down" if down_s is None else "link_flap"
            entry["down_s"] = None if down_s is None else round(down_s, 1)
    return [
        {k: v for k, v in entry.items() if v is not None} for entry in list(found.values())[:LISTED]
    ]


def _storage(kinds: dict[str, list[KernelEvent]]) -> dict[str, Any]:
    """Servers with their outages, disks with their lines."""
    found: dict[str, Any] = {}
    for kind, name in (("nfs", "server"), ("lustre", "target")):
        for server, same in by_fact(name, kinds.get(kind, [])):
            away = kernel_storage.outages(same)
            entry: dict[str, Any] = {
                "outages": len(away), "away_now": bool(away) and away[-1][1] is None,
                "evicted": any(e.facts.get("what") == "evicted" for e in same),
            }  # fmt: skip
            lasted = [back.at - first.at for first, back in away if back is not None]
            if lasted and lasted[-1] > 0:
                entry["away_s"] = round(lasted[-1], 1)
            found.setdefault(kind, {})[server] = entry
    for kind in ("nvme", "disk", "fs"):
        for dev, same in by_fact("dev", kinds.get(kind, [])):
            words = sorted({str(e.facts.get("what")) for e in same})
            found.setdefault(kind, {})[dev] = {"lines": len(same), "what": words}
    return found


def _servers(kind: str, name: str, kinds: dict[str, list[KernelEvent]]) -> dict[str, str]:
    """Server -> lost, or recovered; evicted where it dropped this client."""
    found: dict[str, str] = {}
    for server, same in by_fact(name, kinds.get(kind, [])):
        away = kernel_storage.outages(same)
        evicted = any(e.facts.get("what") == "evicted" for e in same)
        lost = bool(away) and away[-1][1] is None
        found[server] = "lost" if lost else "evicted" if evicted else "recovered"
    return found


def _ages(events: list[KernelEvent], boot_at: float | None, now: float | None) -> dict[str, float]:
    """Seconds from each kind of event to the clock that the input states, newest of a kind."""
    found: dict[str, float] = {}
    for event in events:
        if now is None or event.wall is None or event.boot < 0:
            continue
        name = f"{event.kind}{event.code}" if event.code is not None else event.kind
        if event.kind in ("mlx5", "nic", "efa"):
            name = str(event.facts.get("what"))
        found[name] = round(now - event.wall, 1)
    return found
