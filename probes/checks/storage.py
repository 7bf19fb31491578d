"""File systems: there, answering, writable and with room. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Sample, Severity
from probes.reading import number

HUNG = Rule(
    id="storage.hung",
    title="A file system does not answer",
    severity=Severity.CRITICAL,
    reads="statvfs of each mount, in a thread of its own",
    cause="its server, the way there, or the FUSE program behind it",
    action=Action.WATCH,
    next_step="compare other nodes: if all show it, it is the server; hold new jobs; whoever waits "
    "for it cannot be killed",
    source="gpud asks NFS with a time-out and fails after five looks; critical where jobs need it, "
    "as each of them will hang: our rule",
    others="gpud NFS, 5 strikes; SCK GPFS",
    example="/data (nfs4 from 192.0.2.40:/data) has not answered for 45 s",
    limits=("storage.hung_critical_s",),
)
BROKEN = Rule(
    id="storage.error",
    title="A file system answers with an error",
    severity=Severity.CRITICAL,
    reads="errno of statvfs",
    cause="a stale NFS handle, a FUSE program that died, a file system that was shut down",
    action=Action.DRAIN,
    next_step="unmount (umount -l) and mount again; EIO on a disk: drain and check the disk",
    source="gpud: file systems that do not answer properly; severities: our rule",
    others="gpud NFS; SCK GPFS",
    example="/data: ESTALE",
)
MISSING = Rule(
    id="storage.missing",
    title="An expected file system is not mounted",
    severity=Severity.WARN,
    reads="fstab and the mounts of the role's nodes against mountinfo",
    cause="mounting failed at boot, or somebody unmounted it",
    action=Action.RESTART_SERVICE,
    next_step="mount it (mount -a) and see why it failed: journalctl -u '*.mount', dmesg",
    source="NHC and GCM compare fstab with the mounts; peers: our rule",
    others="NHC, GCM: error",
    example="/data is not mounted; fstab wants it, and 15 of 15 other nodes have it",
    limits=("storage.missing_share",),
)
READ_ONLY = Rule(
    id="storage.read_only",
    title="A file system cannot be written",
    severity=Severity.WARN,
    reads="ro in mountinfo against fstab, the file system's own flags, and peers",
    cause="the kernel stopped writing after an error, or somebody remounted it",
    action=Action.DRAIN,
    next_step="drain; read the kernel log for the disk's errors; check disk and file system",
    source="gpud, EKS: remounted read-only; critical when the kernel did it: our rule",
    others="gpud, EKS: kernel log lines",
    example="/scratch (xfs on /dev/nvme1n1p1) is read-only: the kernel stopped writing",
)
FULL = Rule(
    id="storage.full",
    title="A file system is nearly full",
    severity=Severity.WARN,
    reads="use of each file system as df counts it, and the room left",
    cause="logs, containers, core dumps, checkpoints, or data of jobs that ended",
    action=Action.WATCH,
    next_step="du -xh --max-depth=2 PLACE | sort -h | tail; remove or move what nobody needs",
    source="GCM warns at 80 % and fails at 85 %, imbue fails at 95 %; room left: our estimate",
    others="GCM 80 and 85 %; imbue 95 %; gpud root 10 % or 500 MB; SOP, APL",
    example="/var 96 % used, 0.4 GB left",
    limits=(
        "storage.used_info_percent", "storage.used_warn_percent", "storage.used_critical_percent",
        "storage.free_floor_bytes", "storage.free_critical_bytes",
    ),
)  # fmt: skip
INODES = Rule(
    id="storage.inodes",
    title="A file system can hold few more files",
    severity=Severity.WARN,
    reads="inodes used and left",
    cause="very many small files",
    action=Action.WATCH,
    next_step="find where they are: du --inodes -x PLACE | sort -n | tail",
    source="GCM: the limits of space hold for inodes too",
    others="GCM 80 and 85 %",
    example="/scratch: 97 % of 1048576 inodes used",
    limits=("storage.used_warn_percent", "storage.inodes_floor"),
)
RULES = (HUNG, BROKEN, MISSING, READ_ONLY, FULL, INODES)

SYSTEM = ("/", "/var", "/tmp", "/var/lib", "/var/log", "/var/tmp")
"""Where the system itself stops when it cannot write."""
NEEDED = ("/", "/home", "/usr", "/var", "/opt", "/nix", "/gnu")
"""Nobody works on a node when these do not answer."""
NOT_OURS = frozenset({"EACCES", "EPERM", "ENOENT", "ENOTDIR", "ELOOP", "ENAMETOOLONG"})
"""Says something about who asks (a user's FUSE mount, a place below a closed one), not about it."""


def check(look: Look) -> Iterator[Finding]:
    """Each file system by itself; then those that are not there."""
    yield from _stuck(look)
    for place, sample in look.facts.devices("storage"):
        if place and sample.values.get("mounted") is True:
            yield from _answers(look, place, sample)
            yield from _read_only(look, place, sample)
            yield from _full(look, place, sample)
            yield from _inodes(look, place, sample)
    yield from _missing(look)


def _what(place: str, sample: Sample) -> str:
    """ "/data (nfs4 from 192.0.2.40:/data)"."""
    values = sample.values
    way = "from" if values.get("network") is True else "on"
    return f"{place} ({values.get('fstype')} {way} {values.get('source')})"


def _important(look: Look, place: str, sample: Sample) -> Severity:
    """CRITICAL where jobs need it, WARN for others, INFO for some user's own FUSE mount."""
    peers, least = look.peers.mounts, look.rules.limit("storage.missing_share").value
    usual = peers.others(peers.mounted, place, here=True) >= least
    if place in NEEDED or sample.values.get("expected") is True or usual:
        return Severity.CRITICAL
    return Severity.INFO if str(sample.values.get("fstype")).startswith("fuse") else Severity.WARN


def _stuck(look: Look) -> Iterator[Finding]:
    """Local file systems, whose calls the agent itself watches."""
    for (probe, place), status in sorted(look.facts.hung.items()):
        if probe == "storage" and place:
            sample = look.facts.get("storage", place)
            what = place if sample is None else _what(place, sample)
            say = f"{what} has not answered for {status.since_s or 0:.0f} s"
            yield HUNG.finding(
                look, say, (status.text or say,), device=place, label=place, value=status.since_s
            )


def _answers(look: Look, place: str, sample: Sample) -> Iterator[Finding]:
    hung_s, limit = number(sample.values.get("hung_s")), look.rules.limit("storage.hung_critical_s")
    severity = _important(look, place, sample)
    if hung_s is not None:
        if severity is Severity.CRITICAL and hung_s < limit.value:
            severity = Severity.WARN
        say = f"{_what(place, sample)} has not answered for {hung_s:.0f} s"
        yield HUNG.finding(
            look, say, (say,), device=place, label=place, value=hung_s, limit=limit,
            severity=severity,
        )  # fmt: skip
    error = sample.values.get("error")
    if error and error not in NOT_OURS:
        say = f"{_what(place, sample)} answers {error}"
        yield BROKEN.finding(
            look, say, (f"statvfs {place}: {error}",), device=place, label=place, value=str(error),
            severity=severity,
        )  # fmt: skip


def _read_only(look: Look, place: str, sample: Sample) -> Iterator[Finding]:
    """By the kernel's hand: critical. Against fstab or the peers: a warning."""
    values = sample.values
    if values.get("read_only") is not True:
        return
    least = look.rules.limit("storage.missing_share").value
    stopped = values.get("kernel_stopped_writing") is True
    against = values.get("expected") is True and values.get("wanted_read_only") is False
    peers = look.peers.mounts
    alone = peers.others(peers.writable, place, here=False) >= least
    if not (stopped or against or alone):
        return
    why = "the kernel stopped writing" if stopped else "fstab says rw" if against else "peers write"
    say = f"{_what(place, sample)} is read-only: {why}"
    yield READ_ONLY.finding(
        look, say, (say,), device=place, label=place,
        severity=Severity.CRITICAL if stopped else None,
    )  # fmt: skip


def _full(look: Look, place: str, sample: Sample) -> Iterator[Finding]:
    used, free = number(sample.values.get("used_percent")), number(sample.values.get("free_bytes"))
    told, warn, grave, floor, least = (look.rules.limit(name) for name in FULL.limits)
    if used is None or free is None or used < told.value or sample.values.get("read_only") is True:
        return
    severity, limit = Severity.INFO, told
    if used >= warn.value and free < floor.value and not place.startswith("/boot"):
        severity, limit = Severity.WARN, warn
        if used >= grave.value and free < least.value and place in SYSTEM:
            severity, limit = Severity.CRITICAL, grave
    say = f"{place} {used:.0f} % used, {free / 1e9:.1f} GB left"
    yield FULL.finding(
        look, say, (f"{_what(place, sample)}: {used} % used, {free:.0f} bytes left",), device=place,
        label=place, value=used, limit=limit, severity=severity,
    )  # fmt: skip


def _inodes(look: Look, place: str, sample: Sample) -> Iterator[Finding]:
    total, free = number(sample.values.get("inodes")), number(sample.values.get("inodes_free"))
    limit, floor = (look.rules.limit(name) for name in INODES.limits)
    if not total or free is None or sample.values.get("read_only") is True:
        return
    used = 100 * (total - free) / total
    if used >= limit.value and free < floor.value and not place.startswith("/boot"):
        say = f"{place}: {used:.0f} % of {total:.0f} inodes used, {free:.0f} left"
        yield INODES.finding(
            look, say, (say,), device=place, label=place, value=round(used, 1), limit=limit
        )


def _missing(look: Look) -> Iterator[Finding]:
    """Wanted by fstab, or mounted on nearly all peers."""
    if look.facts.value("storage", "", "mounts") is None:
        return
    limit, peers = look.rules.limit("storage.missing_share"), look.peers.mounts
    here = {place: s.values for place, s in look.facts.devices("storage") if place}
    for place in sorted(peers.mounted.keys() | here.keys()):
        values = here.get(place, {})
        share = peers.others(peers.mounted, place, here=False)
        wanted = values.get("mounted") is False
        if values.get("mounted") is True or not (wanted or share >= limit.value):
            continue
        reasons = ["fstab wants it"] if wanted else []
        if share:
            reasons.append(f"{peers.mounted[place]} of {peers.nodes - 1} other nodes have it")
        say = f"{place} is not mounted; {', and '.join(reasons)}"
        yield MISSING.finding(
            look, say, (say,), device=place, label=place, value=round(share, 2), limit=limit,
            severity=Severity.CRITICAL if wanted and share >= limit.value else None,
        )  # fmt: skip
