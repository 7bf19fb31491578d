"""Xids of the kernel log: one finding per GPU and root cause, with the lines as evidence.

An Xid is an event in a burst, as NVSentinel sees it: the root is the Xid that explains most, the
others are consequences. Xid 154 carries the driver's own recovery advice and overrides ours.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Severity
from probes.kernel_lines import Burst, KernelEvent, bursts, parse, unique
from probes.rules import XidMeaning

HOUR_S = 3600.0

XID = Rule(
    id="xid",
    title="Xid in the kernel log",
    severity=Severity.WARN,
    reads="NVRM: Xid lines of /dev/kmsg, dmesg or the journal",
    cause="see the table: gpuconsole explain xid:CODE",
    action=Action.WATCH,
    next_step="gpuconsole explain xid:CODE",
    source="NVIDIA Xid catalogue [xid]; names of the driver [okm]",
    others="GCM, AzHC, CCH, EKS, DCGM, gpud, imbue, OCI, NVS: policies differ, see each xid:CODE",
    example="NVRM: Xid (PCI:0000:43:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off "
    "the bus.",
    limits=("xid.burst_gap_s", "xid.bursts_suspect", "xid.coalesce_s", "xid.old_h"),
    hard=True,
)
SXID = Rule(
    id="sxid",
    title="NVSwitch fault in the kernel log",
    severity=Severity.WARN,
    reads="nvidia-nvswitch: SXid lines",
    cause="NVSwitch or one of its links; beside an Xid 74 or 79 a consequence of that",
    action=Action.REBOOT,
    next_step="drain; save the kernel log; reboot; RMA the baseboard if it returns",
    source="driver source [okm]: the line carries its severity word; codes as in gpud",
    others="gpud, NVS, SCK, DCGM: fatal error, non-fatal warn",
    example="nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up",
    hard=True,
)
INIT = Rule(
    id="driver.init_failed",
    title="The driver could not initialise a GPU",
    severity=Severity.CRITICAL,
    reads="NVRM: RmInitAdapter failed",
    cause="dead or half-dead card, or firmware that does not start",
    action=Action.DRAIN,
    next_step="drain; power-cycle; reseat or RMA if it returns",
    source="kernel log patterns of gpud",
    others="gpud",
    example="NVRM: GPU 0000:52:00.0: RmInitAdapter failed! (0x62:0xffff:2477)",
    hard=True,
)
UNREADABLE = Rule(
    id="kernel_log.unreadable",
    title="The kernel log may not be read",
    severity=Severity.INFO,
    reads="/dev/kmsg, dmesg, journalctl -k",
    cause="kernel.dmesg_restrict=1 and no root",
    action=Action.FIX_CONFIG,
    next_step="set `become: sudo -n` for this group, or kernel.dmesg_restrict=0 on the nodes",
    source="Linux kernel.dmesg_restrict; a log that was not read is never 'no Xid'",
    others="-",
    example="dmesg: read kernel buffer failed: Operation not permitted",
)
MLX5 = Rule(
    id="kernel_log.mlx5",
    title="The network adapter's driver reports a fault",
    severity=Severity.WARN,
    reads="mlx5_core lines",
    cause="adapter firmware, transceiver or cable",
    action=Action.WATCH,
    next_step="check cable and transceiver; reset or replace the adapter if it repeats",
    source="syslog patterns of NVSentinel [nvsent]; ACCESS_REG lines are noise of counter readers",
    others="NVS, gpud",
    example="mlx5_core 0000:ab:00.0: Port module event[error]: module 0, Cable error, High "
    "Temperature",
)
RULES = (XID, SXID, INIT, UNREADABLE, MLX5)

MLX5_WORDS = {
    "high_temperature": ("transceiver too hot", Severity.WARN),
    "command_timeout": ("adapter command timed out", Severity.CRITICAL),
    "health_compromised": ("adapter health compromised", Severity.CRITICAL),
}
RECOVERY = {
    "gpu reset": (Action.RESET_GPU, Severity.CRITICAL),
    "node reboot": (Action.REBOOT, Severity.CRITICAL),
    "drain p2p": (Action.WATCH, Severity.WARN),
    "drain and reset": (Action.DRAIN, Severity.CRITICAL),
    "recover imex": (Action.RESTART_SERVICE, Severity.CRITICAL),
}


def check(look: Look) -> Iterator[Finding]:
    """The whole ring of kept lines, judged anew each time: pure, and parsing is cached."""
    if look.facts.value("kernel_log", "", "readable") is False:
        hint = str(look.facts.value("hello", "", "missing.kernel_log") or UNREADABLE.next_step)
        yield UNREADABLE.finding(look, "not checked: Xids, the kernel log may not be read", (hint,))
    events = _events(look)
    gap_s = look.rules.limit("xid.burst_gap_s").value
    groups = bursts(events, _ranks(look), gap_s)
    yield from _xids(look, groups)
    yield from _switch(look, events, groups)
    yield from _init(look, events)
    yield from _mlx5(look, events)


def _events(look: Look) -> list[KernelEvent]:
    found = []
    for row in look.facts.kernel:
        event = parse(str(row.get("text", "")))
        if event is None:
            continue
        mono = row.get("mono")
        if isinstance(mono, int | float) and event.mono is None:
            event = structs.replace(event, mono=float(mono))
        found.append(event)
    return unique(found, look.rules.limit("xid.coalesce_s").value)


def _ranks(look: Look) -> dict[int, int]:
    """How much a code explains: severity first; follow-ups and application codes last."""
    order = {"hw": 3, "fabric": 3, "drv": 2, "app": 1, "meta": 0, "follow-up": 0}
    return {
        code: meaning.severity.rank * 10 + order.get(meaning.kind, 1)
        for code, meaning in look.rules.xids.items()
    }


def _xids(look: Look, groups: list[Burst]) -> Iterator[Finding]:
    """One finding per GPU and root code: the newest burst, counted over all."""
    by_root: dict[tuple[str, int], list[Burst]] = {}
    for burst in groups:
        by_root.setdefault((burst.pci, burst.root.code or 0), []).append(burst)
    for (pci, code), same in sorted(by_root.items()):
        yield _xid(look, pci, code, same)


def _xid(look: Look, pci: str, code: int, same: list[Burst]) -> Finding:
    burst = same[-1]
    meaning = look.rules.xids.get(code)
    device, label = _device(look, pci)
    age = _age(look, burst)
    severity, action, next_step, name = _judged(burst, meaning)
    name = name or (meaning.name if meaning else "not in the catalogue")
    suspect = look.rules.limit("xid.bursts_suspect")
    if len(same) >= suspect.value and meaning and meaning.kind == "app":
        severity = max(severity, Severity.WARN, key=lambda s: s.rank)
        next_step = (
            f"{len(same)} bursts on one GPU: run diagnostics there, not only the job's owner"
        )
    old = age is not None and age > look.rules.limit("xid.old_h").value * HOUR_S
    if old:
        severity = Severity.INFO
    others = sorted({event.code or 0 for event in burst.events} - {code})
    seen = f" with {', '.join(map(str, others))}" if others else ""
    when = f", {_ago(age)} ago" if age is not None else ""
    process = burst.root.process or ""
    by = f" by {process}" if process and meaning and meaning.kind == "app" else ""
    finding = XID.finding(
        look, f"{label}: Xid {code}{seen}{by}: {name}{when}",
        tuple(event.text for event in burst.events[:5]),
        device=device, label=label, value=code, severity=severity, action=action,
        cause=meaning.cause if meaning else "unknown to this catalogue; newer driver?",
        next_step=next_step, source=meaning.source if meaning else XID.source,
    )  # fmt: skip
    return _as_code(finding, code, len(same), hard=bool(meaning and meaning.hard) and not old)


def _as_code(finding: Finding, code: int, count: int, *, hard: bool) -> Finding:
    return structs.replace(finding, rule=f"xid.{code}", count=count, hard=hard)


def _judged(burst: Burst, meaning: XidMeaning | None) -> tuple[Severity, Action, str, str]:
    """(severity, action, next step, other name): text kinds and 154 refine the table."""
    recovery = next(
        (str(e.facts["recovery"]).lower() for e in reversed(burst.events) if "recovery" in e.facts),
        "",
    )
    if recovery in RECOVERY:
        action, severity = RECOVERY[recovery]
        return severity, action, f"the driver says: {recovery} (Xid 154); drain first", ""
    if burst.root.code == 64 and burst.root.facts.get("remap") == "already_pending":
        return (
            Severity.WARN, Action.RESET_GPU, "reset the GPU when its work is done",
            "row is already pending remapping",
        )  # fmt: skip
    if meaning is None:
        return Severity.WARN, Action.WATCH, XID.next_step, ""
    return meaning.severity, meaning.action, meaning.next_step, ""


def _device(look: Look, pci: str) -> tuple[str, str]:
    """The GPU probe's device key for a kernel address, and the operator's name of it."""
    for probe in ("gpu", "inventory"):
        for device, _ in look.facts.devices(probe):
            if device.rpartition(".")[0] == pci:
                return device, look.facts.gpu_label(device)
    return f"{pci}.0", f"GPU {pci}"


def _age(look: Look, burst: Burst) -> float | None:
    """Seconds since the burst's last line, on the clock both the log and the agent use.

    That is CLOCK_MONOTONIC: /proc/uptime counts suspended time too and would drift away from it.
    """
    mono = burst.events[-1].mono
    sample = look.facts.get("host") or look.facts.get("hello")
    if mono is None or sample is None or not sample.clock:
        return None
    return max(0.0, sample.clock + (look.now - sample.at) - mono)


def _ago(seconds: float) -> str:
    for limit, divisor, name in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / divisor:.0f} {name}"
    return f"{seconds / 86400:.0f} days"


def _switch(look: Look, events: list[KernelEvent], groups: list[Burst]) -> Iterator[Finding]:
    """SXids that are not a consequence of an Xid 74 or 79 within the gap."""
    roots = [b.root.mono for b in groups if b.root.code in (74, 79) and b.root.mono is not None]
    gap_s = look.rules.limit("xid.burst_gap_s").value
    alone: dict[tuple[str, int], list[KernelEvent]] = {}
    for event in events:
        if event.kind != "sxid":
            continue
        if event.mono is not None and any(abs(event.mono - root) <= gap_s for root in roots):
            continue
        alone.setdefault((event.pci or "?", event.code or 0), []).append(event)
    for (pci, code), same in sorted(alone.items()):
        fatal = any(event.facts.get("fatal") for event in same)
        links = sorted({str(e.facts["link"]) for e in same if "link" in e.facts})
        where = f" link {', '.join(links)}" if links else ""
        switch = same[0].facts.get("switch", "?")
        yield SXID.finding(
            look, f"NVSwitch {switch}{where}: SXid {code}, {'fatal' if fatal else 'non-fatal'}",
            tuple(event.text for event in same[:5]),
            device=pci, label=f"NVSwitch {switch}", value=code,
            severity=Severity.CRITICAL if fatal else Severity.WARN,
            action=Action.REBOOT if fatal else Action.WATCH,
        )  # fmt: skip


def _init(look: Look, events: list[KernelEvent]) -> Iterator[Finding]:
    readable = {d for d, s in look.facts.devices("gpu") if "nvml_rc" not in s.values}
    failed: dict[str, list[KernelEvent]] = {}
    for event in events:
        if event.kind == "rminit" and event.pci and event.pci not in readable:
            failed.setdefault(event.pci, []).append(event)
    for pci, same in sorted(failed.items()):
        label = look.facts.gpu_label(pci)
        yield INIT.finding(
            look, f"{label} at {pci} did not initialise", tuple(e.text for e in same[:5]),
            device=pci, label=label,
        )  # fmt: skip


def _mlx5(look: Look, events: list[KernelEvent]) -> Iterator[Finding]:
    """Faults and flaps; ACCESS_REG noise, power notes at boot and unplugged spares are not."""
    found: dict[tuple[str, str], list[KernelEvent]] = {}
    for event in events:
        what = event.facts.get("what")
        if event.kind == "mlx5" and event.pci and what in (*MLX5_WORDS, "link_down"):
            found.setdefault((event.pci, str(what)), []).append(event)
    for (pci, what), same in sorted(found.items()):
        word, severity = MLX5_WORDS.get(what, ("link went down", Severity.WARN))
        name = next((str(e.facts["dev"]) for e in same if "dev" in e.facts), pci)
        times = f" {len(same)} times" if len(same) > 1 else ""
        yield MLX5.finding(
            look, f"{name}: {word}{times}", tuple(e.text for e in same[:5]), device=f"{pci} {what}",
            label=name, severity=severity,
            action=Action.DRAIN if severity is Severity.CRITICAL else None,
        )  # fmt: skip
