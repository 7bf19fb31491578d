"""Xids of the kernel log: one finding per GPU and root cause, with the lines as evidence.

An Xid is an event in a burst, as NVSentinel sees it: the root is the Xid that explains most, the
others are consequences, also those on other GPUs that lost their peer.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from probes.checks import kernel_events, xid_causes, xid_switch
from probes.checks.rule import Look, Rule
from probes.checks.xid_switch import SXID
from probes.checks.xid_text import ADVICE, CONTAINED, PROCESS, Judged, failed, judged
from probes.event import Action, Finding, Severity
from probes.kernel_lines import Burst, KernelEvent, bursts

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
    limits=(
        "xid.burst_gap_s", "xid.bursts_suspect", "xid.programs_suspect", "xid.coalesce_s",
        "xid.old_h",
    ),
    hard=True,
)  # fmt: skip
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
CRASH_DUMP = Rule(
    id="kernel_log.crash_dump",
    title="The firmware keeps logs of a kernel that crashed",
    severity=Severity.INFO,
    reads="names of files in /sys/fs/pstore; their content is not read",
    cause="the kernel panicked in an earlier boot and saved its last lines",
    action=Action.WATCH,
    next_step="read them (systemd-pstore moves them to /var/lib/systemd/pstore), then delete them",
    source="Linux pstore [lx]",
    others="-",
    example="dmesg-efi-170000000001001",
)
RULES = (XID, SXID, UNREADABLE, CRASH_DUMP)

DOUBLE_BIT = frozenset({48, 171, 172})
"""An uncorrectable error and its details; a 94 beside them says that it was contained [xid]."""
UNCONTAINED = 95
OFF_BUS = xid_causes.OFF_BUS
OTHERS = 8
"""Codes beside the root's that a line names."""


def check(look: Look) -> Iterator[Finding]:
    """The whole ring of kept lines, one finding per GPU and root cause."""
    yield from _unchecked(look)
    yield from _dumps(look)
    if not look.facts.kernel:
        return
    events = kernel_events.read(look)
    gap_s = look.rules.limit("xid.burst_gap_s").value
    groups = roots(look, events)
    yield from _xids(look, groups, gap_s)
    yield from xid_switch.check(look, events, groups, gap_s)


def roots(look: Look, events: list[KernelEvent]) -> list[Burst]:
    """The bursts of all GPUs with what started each."""
    ranks, gap_s = _ranks(look), look.rules.limit("xid.burst_gap_s").value
    groups = bursts(events, ranks, gap_s, UNKNOWN_RANK)
    return [_contained(burst, ranks) or burst for burst in groups]


def aged_of_gpu(look: Look, finding: Finding, newest: KernelEvent) -> Finding:
    """As kernel_events.aged; but while nothing says that the GPU lives, age alone heals nothing."""
    sample = look.facts.get("gpu", finding.device)
    alive = sample is not None and "nvml_rc" not in sample.values
    if newest.boot == 0 and finding.device and not alive:
        return finding
    return kernel_events.aged(look, finding, newest)


def _unchecked(look: Look) -> Iterator[Finding]:
    """A log that may not be read, and one of which nothing came, while other probes answered."""
    hint = str(look.facts.value("hello", "", "missing.kernel_log") or UNREADABLE.next_step)
    log = look.facts.get("kernel_log")
    if log is not None and log.values.get("readable") is False:
        yield UNREADABLE.finding(look, "not checked: Xids, the kernel log may not be read", (hint,))
    answered = any(look.facts.get(probe) for probe in ("host", "inventory"))
    if log is None and answered and "kernel_log" not in look.facts.troubles:
        yield UNREADABLE.finding(
            look, "not checked: Xids, the kernel log gave no answer", ("no answer of kernel_log",),
            cause="the probe did not run, or its reader hangs",
            next_step=f"run dmesg on the node; {hint}",
        )  # fmt: skip


def _dumps(look: Look) -> Iterator[Finding]:
    number = look.facts.value("kernel_log", "", "crash_dumps")
    if isinstance(number, int) and number > 0:
        name = str(look.facts.value("kernel_log", "", "crash_dump") or "")
        yield CRASH_DUMP.finding(
            look,
            f"{number} file{'s' * (number != 1)} of a crashed kernel in /sys/fs/pstore",
            (name,),
            value=number,
        )


UNKNOWN_RANK = Severity.WARN.rank * 10 + 1
"""A code that the table lacks explains more than the job's own Xids beside it."""


def _ranks(look: Look) -> dict[int, int]:
    """How much a code explains: severity first; follow-ups and application codes last."""
    order = {"hw": 3, "fabric": 3, "drv": 2, "app": 1, "meta": 0, "follow-up": 0}
    ranks = {
        code: meaning.severity.rank * 10 + order.get(meaning.kind, 1)
        for code, meaning in look.rules.xids.items()
    }
    if OFF_BUS in ranks:
        ranks[OFF_BUS] += 1  # whatever else a card said, it is gone now
    return ranks


def _contained(burst: Burst, ranks: dict[int, int]) -> Burst | None:
    """The burst led by its 94 instead of the 48 that 94 explains; None when it is not contained."""
    codes = {event.code for event in burst.events}
    if CONTAINED not in codes or UNCONTAINED in codes or any(map(failed, burst.events)):
        return None
    others = [event for event in burst.events if event.code not in DOUBLE_BIT]
    root = max(others, key=lambda event: ranks.get(event.code or 0, UNKNOWN_RANK))
    return structs.replace(burst, root=root)


def _xids(look: Look, groups: list[Burst], gap_s: float) -> Iterator[Finding]:
    """One finding per GPU and root code: the newest burst, counted over all."""
    by_root: dict[tuple[str, int], list[Burst]] = {}
    for burst in groups:
        by_root.setdefault((burst.pci, burst.root.code or 0), []).append(burst)
    over = _recovered(groups)
    for (_, code), same in sorted(by_root.items()):
        now = [burst for burst in same if burst.root.boot == 0] or same
        worth = _worth(look, code, now, groups, gap_s)
        if id(now[-1]) in over and worth.severity is not Severity.INFO:
            worth = Judged(
                Severity.INFO, Action.WATCH, "nothing now; watch whether it returns",
                f"{worth.name}; since then the driver asks for nothing",
            )  # fmt: skip
        yield _xid(look, code, now, worth)


def _recovered(groups: list[Burst]) -> set[int]:
    """Bursts (by id) after which the driver withdrew its advice: a 154 to none, no Xid since."""
    over: set[int] = set()
    withdrawn: set[str] = set()
    for burst in reversed(groups):
        done = True
        for event in reversed(burst.events):
            if event.code == ADVICE and event.facts.get("recovery") == 0:
                withdrawn.add(burst.pci)
            elif burst.pci not in withdrawn:
                done = False
        if done:
            over.add(id(burst))
    return over


def _worth(look: Look, code: int, same: list[Burst], groups: list[Burst], gap_s: float) -> Judged:
    """The newest burst's word, lowered where another GPU explains it, raised where many repeat."""
    burst, meaning = same[-1], look.rules.xids.get(code)
    worth = judged(burst, meaning)
    cause = xid_causes.origin(burst, groups, gap_s)
    if cause is not None and not any("recovery" in event.facts for event in burst.events):
        _, label = kernel_events.gpu(look, cause.pci)
        return worth._replace(
            severity=Severity.INFO, action=Action.WATCH,
            next_step=f"see Xid {cause.root.code} of {label}",
            name=f"{worth.name}, a consequence of Xid {cause.root.code} of {label}",
        )  # fmt: skip
    if meaning is None or meaning.kind != "app":
        return worth
    if why := xid_causes.suspicion(look, same, groups):
        return worth._replace(
            severity=max(worth.severity, Severity.WARN, key=lambda s: s.rank),
            next_step=f"{why}: run diagnostics there, not only the job's owner",
            name=f"{worth.name}; {why}",
        )
    return worth


def _xid(look: Look, code: int, same: list[Burst], worth: Judged) -> Finding:
    burst, meaning = same[-1], look.rules.xids.get(code)
    device, label = kernel_events.gpu(look, burst.pci)
    last = burst.events[-1]
    others = sorted({event.code or 0 for event in burst.events} - {code})
    seen = f" with {', '.join(map(str, others[:OTHERS]))}" if others else ""
    process = burst.root.process or ""
    by = f" by {process[:PROCESS]}" if process and meaning and meaning.kind == "app" else ""
    finding = XID.finding(
        look, f"{label}{_instance(burst.root)}: Xid {code}{seen}{by}: {worth.name}"
        f"{kernel_events.ago(look, last)}",
        tuple(event.line or event.text for event in burst.events[:5]),
        device=device, label=label, value=code, severity=worth.severity, action=worth.action,
        cause=meaning.cause if meaning else "unknown to this catalogue; newer driver?",
        next_step=worth.next_step, source=meaning.source if meaning else XID.source,
    )  # fmt: skip
    lasting = bool(meaning and meaning.hard) and worth.severity is not Severity.INFO
    finding = structs.replace(finding, rule=f"xid.{code}", count=len(same), hard=lasting)
    if _outlives_boots(look, burst, device):
        return finding
    return aged_of_gpu(look, finding, last)


def _instance(event: KernelEvent) -> str:
    """The MIG instance that a line names."""
    gi, ci = event.facts.get("mig_gi"), event.facts.get("mig_ci")
    if gi is None:
        return ""
    return f" MIG GI {gi}" + (f" CI {ci}" if ci is not None else "")


def _outlives_boots(look: Look, burst: Burst, device: str) -> bool:
    """Spare rows do not grow back; where NVML tells of the remapper that tells more."""
    exhausted = burst.root.facts.get("remap") == "spare_rows_exhausted"
    return exhausted and look.facts.get("ecc", device) is None
