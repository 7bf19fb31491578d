"""Local disks: NVMe health, RAID sets without redundancy, disks that answer slowly. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Scalar, Severity
from probes.reading import number, whole

WARNING = Rule(
    id="nvme.critical_warning",
    title="An NVMe disk says that it fails",
    severity=Severity.CRITICAL,
    reads="critical_warning of the SMART / Health log",
    cause="worn flash, too few spare blocks, heat, or a failed capacitor",
    action=Action.REPLACE,
    next_step="move data away and replace the disk",
    source="NVM Express Base Specification, SMART / Health log; gpud, GCM and AzHC act on it",
    others="GCM error; AzHC; stackhpc by drive writes",
    example="nvme3: critical warning 0x04: reliability degraded",
    hard=True,
)
SPARE = Rule(
    id="nvme.spare",
    title="An NVMe disk runs out of spare blocks",
    severity=Severity.CRITICAL,
    reads="available spare against the disk's own threshold",
    cause="many blocks failed",
    action=Action.REPLACE,
    next_step="move data away and replace the disk",
    source="GCM fails a disk whose spare is below its threshold",
    others="GCM error",
    example="nvme3: spare 7 %, threshold 10 %",
    hard=True,
)
USED = Rule(
    id="nvme.worn",
    title="An NVMe disk has used up most of its endurance",
    severity=Severity.WARN,
    reads="percentage used of the SMART / Health log",
    cause="age and writes; it may go on for long, without the maker's word",
    action=Action.WATCH,
    next_step="plan its replacement; see who writes so much (written_bytes)",
    source="GCM warns above 80 % and fails above 100 %; an estimate of the disk, no fault: warning",
    others="GCM 80 and 100 %; stackhpc drive writes per day",
    example="nvme3: 104 % of its endurance used",
    limits=("nvme.used_warn_percent", "nvme.used_full_percent"),
)
DEAD = Rule(
    id="nvme.dead",
    title="An NVMe disk is gone",
    severity=Severity.CRITICAL,
    reads="state of the controller",
    cause="the disk or its slot failed; the kernel gave it up",
    action=Action.DRAIN,
    next_step="drain; reseat or replace the disk; a reboot may bring it back for a while",
    source="Linux NVMe controller states [lx]: dead",
    others="AzHC counts the disks",
    example="nvme3: state dead",
    hard=True,
)
SILENT = Rule(
    id="nvme.hung",
    title="An NVMe disk does not answer its own log's reading",
    severity=Severity.WARN,
    reads="Get Log Page of each controller, 5 s",
    cause="firmware that hangs, or a controller in reset",
    action=Action.WATCH,
    next_step="read the kernel log for time-outs of this disk; drain if jobs use it",
    source="our rule: an answer takes milliseconds",
    others="gpud: time-out lines of the kernel log",
    example="nvme3 has not answered for 12 s",
)
HOT = Rule(
    id="nvme.hot",
    title="An NVMe disk is too hot",
    severity=Severity.WARN,
    reads="temperature against the disk's own warning temperature",
    cause="fans, air flow, or a missing heat sink; it slows down",
    action=Action.WATCH,
    next_step="compare with its siblings and a peer; look at fans and blanks",
    source="NVM Express Base Specification: warning composite temperature; our rule",
    others="-",
    example="nvme3: 84 C, warning at 82 C",
)
MEDIA = Rule(
    id="nvme.media_errors",
    title="An NVMe disk has lost data",
    severity=Severity.INFO,
    reads="media and data integrity errors of the SMART / Health log",
    cause="flash that could not be read",
    action=Action.WATCH,
    next_step="watch whether it grows; check the file system; replace the disk if it does",
    source="NVM Express Base Specification, SMART / Health log; our rule",
    others="AzHC",
    example="nvme3: 12 media errors",
)
RAID = Rule(
    id="disk.raid_degraded",
    title="A RAID set has lost a disk",
    severity=Severity.WARN,
    reads="/proc/mdstat",
    cause="a disk failed or was taken out",
    action=Action.REPLACE,
    next_step="mdadm --detail /dev/mdN; replace the disk and add it",
    source="Linux md [lx]",
    others="-",
    example="md0 (raid1): 1 of 2 disks",
)
SLOW = Rule(
    id="disk.slow",
    title="A disk takes very long for each request",
    severity=Severity.WARN,
    reads="time per request of disks that do not turn, while little data moves (/proc/diskstats)",
    cause="a disk that fails or resets, a worn one, or a storage network in trouble",
    action=Action.WATCH,
    next_step="read the kernel log and SMART of the disk; compare a peer",
    source="our estimate, not measured",
    others="OCI: IOPS within 2 % of the known; EKS: IO delay",
    example="nvme3n1: 1240 ms per request at 2.1 MB/s",
    limits=("disk.await_ms", "disk.slow_bytes_per_s"),
)
RULES = (DEAD, SILENT, WARNING, SPARE, USED, HOT, MEDIA, RAID, SLOW)

BITS = (
    (0x01, "spare blocks below the threshold"), (0x02, "temperature out of range"),
    (0x04, "reliability degraded"), (0x08, "read-only"), (0x10, "volatile memory backup failed"),
    (0x20, "persistent memory region unreliable"),
)  # fmt: skip
"""NVM Express Base Specification, critical warning."""
HEAT_BIT = 0x02
"""Heat passes; the others stay."""
MIN_REQUESTS = 20
"""Fewer in an interval say little."""


def check(look: Look) -> Iterator[Finding]:
    """NVMe controllers, then arrays, then the speed of disks."""
    for device, sample in look.facts.devices("nvme"):
        if device:
            yield from _nvme(look, device, sample.values)
            yield from _wear(look, device, sample.values)
    for (probe, device), status in sorted(look.facts.hung.items()):
        if probe == "nvme" and device:
            say = f"{device} has not answered for {status.since_s or 0:.0f} s"
            yield SILENT.finding(
                look, say, (status.text or say,), device=device, label=device, value=status.since_s
            )
    yield from _raid(look)
    yield from _slow(look)


def _nvme(look: Look, device: str, values: dict[str, Scalar]) -> Iterator[Finding]:
    name = f"{device} ({values['model']})" if values.get("model") else device
    if values.get("state") == "dead":
        say = f"{name}: state dead"
        yield DEAD.finding(look, say, (say,), device=device, label=device)
    bits = whole(values.get("critical_warning")) or 0
    if bits & ~HEAT_BIT:
        words = ", ".join(text for bit, text in BITS if bits & bit) or "unknown bits"
        say = f"{name}: critical warning {bits:#04x}: {words}"
        yield WARNING.finding(look, say, (say,), device=device, label=device, value=bits)
    temp, warn = number(values.get("temp_c")), number(values.get("temp_warn_c"))
    if bits & HEAT_BIT or (temp is not None and warn and temp >= warn):
        limit = f", warning at {warn:.0f} C" if warn else ""
        say = f"{name}: {'?' if temp is None else format(temp, '.0f')} C{limit}"
        yield HOT.finding(look, say, (say,), device=device, label=device, value=temp)


def _wear(look: Look, device: str, values: dict[str, Scalar]) -> Iterator[Finding]:
    spare, least = whole(values.get("spare_percent")), whole(values.get("spare_threshold_percent"))
    if spare is not None and least and spare < least:
        say = f"{device}: spare {spare} %, threshold {least} %"
        yield SPARE.finding(look, say, (say,), device=device, label=device, value=spare)
    used = whole(values.get("used_percent"))
    reached = [
        limit for limit in map(look.rules.limit, USED.limits)
        if used is not None and used > limit.value
    ]  # fmt: skip
    if reached:
        say = f"{device}: {used} % of its endurance used"
        yield USED.finding(
            look, say, (say,), device=device, label=device, value=used, limit=reached[-1]
        )
    errors = whole(values.get("media_errors")) or 0
    if errors:
        say = f"{device}: {errors} media error{'s' * (errors > 1)}"
        yield MEDIA.finding(look, say, (say,), device=device, label=device, value=errors)


def _raid(look: Look) -> Iterator[Finding]:
    for device, sample in look.facts.devices("storage"):
        want = whole(sample.values.get("raid_disks"))
        have = whole(sample.values.get("raid_working"))
        if want is not None and have is not None and have < want:
            busy = f", {sample.values['raid_action']}" if "raid_action" in sample.values else ""
            say = f"{device} ({sample.values.get('raid_level')}): {have} of {want} disks{busy}"
            yield RAID.finding(look, say, (say,), device=device, label=device, value=have)


def _slow(look: Look) -> Iterator[Finding]:
    limit, most = (look.rules.limit(name) for name in SLOW.limits)
    for device, sample in look.facts.devices("disks"):
        rates = look.facts.rates.get(("disks", device))
        if rates is None or rates.reset or sample.values.get("rotational") is not False:
            continue
        deltas = rates.deltas
        requests = deltas.get("reads", 0) + deltas.get("writes", 0)
        spent_ms = deltas.get("read_ms", 0) + deltas.get("write_ms", 0)
        moved = (deltas.get("read_bytes", 0) + deltas.get("write_bytes", 0)) / rates.elapsed_s
        if requests >= MIN_REQUESTS and spent_ms / requests > limit.value and moved < most.value:
            say = f"{device}: {spent_ms / requests:.0f} ms per request at {moved / 1e6:.1f} MB/s"
            yield SLOW.finding(
                look, say, (say,), device=device, label=device,
                value=round(spent_ms / requests), limit=limit,
            )  # fmt: skip
