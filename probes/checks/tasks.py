"""Who hangs in the kernel, and who was never buried: with owner, job and what they wait for."""

from __future__ import annotations

from collections.abc import Iterator

from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Row, Severity
from probes.reading import number, whole

DSTATE_DRIVER = Rule(
    id="host.dstate_nvidia",
    title="Processes are stuck inside the NVIDIA driver",
    severity=Severity.CRITICAL,
    reads="processes in uninterruptible sleep that wait in nvidia code, and whether they have run "
    "between two looks; a warning after the first look",
    cause="the driver hangs",
    action=Action.DRAIN,
    next_step="drain; save the kernel log; reboot (they cannot be killed)",
    source="gpud asks for a reboot when stuck processes wait for NVIDIA; how long is too long: our "
    "estimate, not measured",
    others="gpud after 5 checks; GCM after 300 s: error",
    example="6 processes in D state inside the driver",
    limits=("host.dstate_nvidia_s",),
)
DSTATE = Rule(
    id="host.dstate",
    title="Processes hang in the kernel",
    severity=Severity.WARN,
    reads="processes in uninterruptible sleep that have not run since they were first seen",
    cause="a file server, a disk or a driver that does not answer",
    action=Action.WATCH,
    next_step="the wait channel and working directory tell which; look for hung mounts; the "
    "processes cannot be killed",
    source="GCM: above 300 s",
    others="GCM after 300 s: error; gpud after 5 checks",
    example="python3 (pid 4711, alice, job 381) in rpc_wait_bit_killable for 421 s, cwd /data",
    limits=("host.dstate_s",),
)
ZOMBIES = Rule(
    id="host.zombies",
    title="A program leaves its dead children behind",
    severity=Severity.WARN,
    reads="zombies by parent, and since when they were seen",
    cause="the parent does not wait for its children; each one holds a process number",
    action=Action.RESTART_APP,
    next_step="end or restart the parent; init then buries them",
    source="GCM warns of zombies after 300 s; the number is our estimate, not measured",
    others="GCM after 300 s; CCH 50 for each core; gpud and EKS count them",
    example="412 zombies of dataloader (pid 901, bob, job 77), the oldest for 3600 s",
    limits=("host.zombies", "host.zombie_s"),
)
RULES = (DSTATE_DRIVER, DSTATE, ZOMBIES)


def check(look: Look) -> Iterator[Finding]:
    """Sleepers, then zombies."""
    yield from _stuck(look)
    yield from _zombies(look)


def _rows(look: Look, kind: str) -> list[Row]:
    sample = look.facts.get("tasks")
    return [] if sample is None else [row for row in sample.rows if row.get("kind") == kind]


def _stuck(look: Look) -> Iterator[Finding]:
    """Those in the driver first; others when they have not run for long. No kernel threads."""
    yield from _stuck_in_driver(look)
    limit = look.rules.limit("host.dstate_s")
    late = [
        row for row in _rows(look, "sleeper")
        if (number(row.get("since_s")) or 0) > limit.value
        and row.get("kernel") is not True and row.get("driver") is not True
    ]  # fmt: skip
    if late:
        worst = max(late, key=lambda row: number(row.get("since_s")) or 0)
        more = f" and {len(late) - 1} more" if len(late) > 1 else ""
        yield DSTATE.finding(
            look, f"hangs in the kernel: {_who(worst)}{more}", tuple(map(_who, late)),
            value=number(worst.get("since_s")), limit=limit,
        )  # fmt: skip


def _stuck_in_driver(look: Look) -> Iterator[Finding]:
    """A warning as long as they may only wait for a lock, as all do while a GPU starts."""
    stuck = whole(look.facts.value("host", "", "dstate_nvidia")) or 0
    if stuck <= 0:
        return
    limit, rows = look.rules.limit("host.dstate_nvidia_s"), _in_driver(look)
    brief = bool(rows) and all((number(row.get("since_s")) or 0) < limit.value for row in rows)
    say = f"{stuck} process{'es hang' if stuck > 1 else ' hangs'} inside the NVIDIA driver"
    if brief:
        say = f"{stuck} process{'es wait' if stuck > 1 else ' waits'} inside the NVIDIA driver"
    yield DSTATE_DRIVER.finding(
        look, say, (f"{stuck} in D state inside the driver", *map(_who, rows)), value=stuck,
        severity=Severity.WARN if brief else None, action=Action.WATCH if brief else None,
        next_step="look again: at work it is over within seconds, else drain" if brief else "",
    )  # fmt: skip


def _in_driver(look: Look) -> list[Row]:
    return [row for row in _rows(look, "sleeper") if row.get("driver") is True]


def _who(row: Row) -> str:
    """python3 (pid 4711, alice, job 381) in nfs_wait for 421 s, cwd /data"""
    owner = [f"pid {row.get('pid')}", *(str(row[n]) for n in ("user",) if row.get(n))]
    if row.get("job"):
        owner.append(f"job {row['job']}")
    where = f" in {row['wchan']}" if row.get("wchan") else ""
    place = f", cwd {row['cwd']}" if row.get("cwd") else ""
    since_s = number(row.get("since_s")) or 0.0
    return f"{row.get('comm')} ({', '.join(owner)}){where} for {since_s:.0f} s{place}"


def _zombies(look: Look) -> Iterator[Finding]:
    most, least_s = look.rules.limit("host.zombies"), look.rules.limit("host.zombie_s")
    for row in _rows(look, "zombies"):
        count, since_s = whole(row.get("count")) or 0, number(row.get("since_s")) or 0
        if count > most.value and since_s > least_s.value:
            job = f", job {row['job']}" if row.get("job") else ""
            parent = (
                f"{row.get('parent', '?')} (pid {row.get('parent_pid')}, {row.get('user', '?')}"
            )
            say = f"{count} zombies of {parent}{job})"
            yield ZOMBIES.finding(
                look, say, (f"{say}, the oldest for {since_s:.0f} s",),
                device=f"pid {row.get('parent_pid')}", value=count, limit=most,
            )  # fmt: skip
