"""Who is on the GPUs, and who left something behind.

A process without a job is somebody's mistake at most, so it is information unless it takes a GPU
from the next job. Memory that nobody owns is a fault of the node: no job gets it back.
"""

from __future__ import annotations

from collections.abc import Iterator

from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Row, Sample, Severity
from probes.reading import number, whole

UNOWNED = Rule(
    id="processes.unowned_memory",
    title="GPU memory is in use and nobody owns it",
    severity=Severity.WARN,
    reads="GPU memory in use between two lists of processes, in two looks in a row; the GPU's last "
    "process; open device files",
    cause="a process died and the driver did not give its memory back, or a process that the "
    "driver does not list still has the device open",
    action=Action.RESET_GPU,
    next_step="end who still has the device open (fuser -v /dev/nvidia*); else drain and reset the "
    "GPU, or reboot",
    source="NVML memory and process lists [nvml]; limit and looks: our estimate, not measured",
    others="GCM > 15 MiB; PRI >= 2 GiB error; none says who left it",
    example="41.2 GiB in use, no process; left by python3 train.py of job 4711 (alice, pid 81234)",
    limits=("processes.unowned_mib",),
)
FOREIGN = Rule(
    id="processes.foreign",
    title="A process uses a GPU of a node that the scheduler calls idle",
    severity=Severity.WARN,
    reads="GPU processes with owner, job and age; the scheduler's state and jobs",
    cause="work left over from a job, or started past the scheduler",
    action=Action.RESTART_APP,
    next_step="ask its owner, then end it: the next job does not get the whole GPU",
    source="PRI counts any foreign process as an error, activity from 20 %; the rest: our estimate",
    others="GCM retries 3 x 3 s, then kills; PRI: any is an error, known agents aside; SOP",
    example="python3 train.py of alice, job 4711, 70.1 GiB, 2 h old; the scheduler has no job here",
    limits=("processes.settle_s", "processes.foreign_mib", "processes.foreign_util_percent"),
)
DEAD = Rule(
    id="processes.dead",
    title="The driver lists a process that is dead",
    severity=Severity.INFO,
    reads="GPU processes against the kernel's own list",
    cause="a process that is ending, or one that the driver could not clean up after",
    action=Action.WATCH,
    next_step="look again: if it stays, end its children or reset the GPU",
    source="NVML process list [nvml] against /proc",
    others="CCH, GCM, EKS count zombies of all kinds; none ties them to a GPU",
    example="pid 81234 is dead, the driver still holds 12.0 GiB for it",
    limits=("processes.unowned_mib",),
)
IDLE = Rule(
    id="processes.idle",
    title="A GPU is held and does nothing",
    severity=Severity.INFO,
    reads="time since the utilisation was last 5 % or more; memory of the GPU's live processes",
    cause="a notebook or server without work, a job that waits or hangs",
    action=Action.NONE,
    next_step="ask its owner; nothing is wrong with the node",
    source="our estimate, not measured",
    others="-",
    example="python3 notebook.py of alice holds 70.1 GiB and has computed nothing for 25 min",
    limits=("processes.idle_s", "processes.unowned_mib"),
)
RULES = (UNOWNED, FOREIGN, DEAD, IDLE)

AGENTS = (
    "nvidia-persistenced", "nv-hostengine", "nv-fabricmanager", "nvidia-smi", "dcgm", "dcgmi",
    "dcgm-exporter", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server", "nvidia-device-plugin",
    "gpu-feature-discovery", "Xorg", "Xwayland", "X", "gnome-shell", "gpud", "node_exporter",
    "nvidia_gpu_exporter", "nvitop", "nvtop", "gpustat", "all-smi", "telegraf", "datadog-agent",
    "netdata", "prometheus", "amazon-cloudwatch-agent", "gpu_burn_monitor",
)  # fmt: skip
"""Programs that look at GPUs or serve them and belong to no job."""
MIB = float(1 << 20)
GIB = float(1 << 30)
BUSY_PERCENT = 5.0
LOOKS = 2


def check(look: Look) -> Iterator[Finding]:
    """Each GPU by itself; foreign processes by owner."""
    answer = look.facts.get("processes")
    rows = answer.rows if answer is not None else []
    for device, sample in look.facts.devices("processes"):
        if device:
            mine = [row for row in rows if row.get("gpu") == device]
            yield from _unowned(look, device, sample, mine)
            yield from _dead(look, device, mine)
            yield from _idle(look, device, mine)
    if answer is not None:
        yield from _foreign(look, answer)


def _unowned(look: Look, device: str, sample: Sample, rows: list[Row]) -> Iterator[Finding]:
    limit = look.rules.limit("processes.unowned_mib")
    used = number(sample.values.get("unowned_bytes"))
    looks = whole(sample.values.get("unowned_looks")) or 0
    if used is None or used < limit.value * MIB or looks < 1 or not _accountable(look, device):
        return
    util = number(look.facts.value("gpu", device, "util_percent"))
    dead = [row for row in rows if row.get("alive") is False]
    if not dead and (util is None or util >= BUSY_PERCENT):
        return  # somebody may compute whom NVML does not show: the memory has an owner
    label = look.facts.gpu_label(device)
    who = _left_by(look, sample)
    evidence = [f"{used / GIB:.1f} GiB in use, {len(dead)} dead and no live process, {looks} looks"]
    evidence += [f"pid {row.get('pid')} is listed and dead ({_size(row)})" for row in dead[:3]]
    evidence.append(who)
    if "holders" in sample.values:
        evidence.append(f"still has /dev/nvidia* open: {sample.values['holders']}")
    yield UNOWNED.finding(
        look, f"{label}: {used / GIB:.1f} GiB in use without an owner; {who}", tuple(evidence),
        device=device, label=label, value=round(used / MIB), limit=limit,
        severity=None if looks >= LOOKS else Severity.INFO,
    )  # fmt: skip


def _accountable(look: Look, device: str) -> bool:
    """Whether the list of processes explains the memory: not for guests, instances, sealed ones."""
    value = look.facts.value
    mode = value("inventory", device, "virtualization_mode")
    sealed = value("inventory", "", "cc_mode") in ("on", "devtools")
    shared = value("inventory", device, "mig_mode") is True or sealed
    return mode in (None, "none", "passthrough") and not shared


def _left_by(look: Look, sample: Sample) -> str:
    """Whose memory it was, as far as the node saw or the scheduler knows."""
    values = sample.values
    if "last_pid" in values:
        job = f" of job {values['last_job']}" if values.get("last_job") else ""
        owner = f"{values['last_user']}, " if "last_user" in values else ""
        seen = number(values.get("last_seen_s"))
        ago = f", seen {_span(seen)} ago" if seen is not None else ""
        command = values.get("last_command", "a process")
        return f"left by {command}{job} ({owner}pid {values['last_pid']}{ago})"
    jobs = look.facts.ended_jobs
    if jobs:
        names = ", ".join(f"{job.id}{f' ({job.user})' if job.user else ''}" for job in jobs[:3])
        return f"the scheduler's last job here: {names}"
    return "who left it is not known: it was there before we looked"


def _dead(look: Look, device: str, rows: list[Row]) -> Iterator[Finding]:
    """Beside live processes; without any it is memory that nobody owns."""
    limit = look.rules.limit("processes.unowned_mib")
    dead = [r for r in rows if r.get("alive") is False and _bytes(r) >= limit.value * MIB]
    if dead and any(row.get("alive") is True for row in rows):
        label = look.facts.gpu_label(device)
        said = tuple(
            f"pid {r.get('pid')} is dead, the driver still holds {_size(r)} for it" for r in dead
        )
        yield DEAD.finding(
            look, f"{label}: {said[0]}", said, device=device, label=label, value=len(dead),
            limit=limit,
        )  # fmt: skip


def _idle(look: Look, device: str, rows: list[Row]) -> Iterator[Finding]:
    limit, least = look.rules.limit("processes.idle_s"), look.rules.limit("processes.unowned_mib")
    idle_s = number(look.facts.value("gpu", device, "idle_s"))
    live = [row for row in rows if row.get("alive") is True and _bytes(row) >= least.value * MIB]
    if idle_s is None or idle_s < limit.value or not live:
        return
    label = look.facts.gpu_label(device)
    largest = max(live, key=_bytes)
    power = number(look.facts.value("gpu", device, "power_w"))
    burnt = f", {power:.0f} W" if power is not None else ""
    yield IDLE.finding(
        look,
        f"{label}: {_who(largest)} holds {_size(largest)} and has computed nothing for "
        f"{_span(idle_s)}",
        (f"utilisation below 5 % for {idle_s:.0f} s, {len(live)} live processes{burnt}",),
        device=device, label=label, value=idle_s, limit=limit,
    )  # fmt: skip


def _foreign(look: Look, answer: Sample) -> Iterator[Finding]:
    """On a node that the scheduler has called idle for long enough, by process."""
    allocation, settle = look.facts.allocation, look.rules.limit("processes.settle_s").value
    if allocation is None or allocation.state != "idle" or allocation.jobs:
        return
    if answer.at < look.facts.ended_at + settle:
        return
    seen: dict[object, list[Row]] = {}
    for row in answer.rows:
        age = number(row.get("age_s"))
        known = str(row.get("command", "")).partition(" ")[0] in AGENTS
        counts = row.get("alive") is True and row.get("ours") is not True and not known
        if counts and age is not None and age >= settle:
            seen.setdefault(row.get("pid"), []).append(row)
    if seen:
        yield _report(look, list(seen.values()))


def _report(look: Look, found: list[list[Row]]) -> Finding:
    """The heaviest first; a warning when any of them takes a GPU from the next job."""
    found.sort(key=lambda rows: -sum(map(_bytes, rows)))
    heavy = [rows for rows in found if _weighs(look, rows)]
    evidence = tuple(
        f"{_who(rows[0])}, pid {rows[0].get('pid')}, {sum(map(_bytes, rows)) / GIB:.1f} GiB on "
        f"{', '.join(look.facts.gpu_label(str(row.get('gpu'))) for row in rows[:8])}, "
        f"{_span(number(rows[0].get('age_s')) or 0.0)} old"
        for rows in found
    )
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    where = {str(row.get("gpu")) for rows in found for row in rows}
    label = look.facts.gpu_label(next(iter(where))) if len(where) == 1 else f"{len(where)} GPUs"
    return FOREIGN.finding(
        look, f"{label}: {_who(found[0][0])}{more}, though the scheduler has no job here", evidence,
        device=next(iter(where)) if len(where) == 1 else "", label=label, value=len(found),
        severity=None if heavy else Severity.INFO,
    )  # fmt: skip


def _weighs(look: Look, rows: list[Row]) -> bool:
    least = look.rules.limit("processes.foreign_mib").value * MIB
    busy = look.rules.limit("processes.foreign_util_percent").value
    utils = (number(look.facts.value("gpu", str(row.get("gpu")), "util_percent")) for row in rows)
    return sum(map(_bytes, rows)) >= least or any(u is not None and u >= busy for u in utils)


def _who(row: Row) -> str:
    job = f", job {row['job']}," if row.get("job") else ""
    return f"{row.get('command', 'a process')} of {row.get('user', 'an unknown user')}{job}"


def _bytes(row: Row) -> float:
    return number(row.get("mem_bytes")) or 0.0


def _size(row: Row) -> str:
    size = number(row.get("mem_bytes"))
    return "memory of unknown size" if size is None else f"{size / GIB:.1f} GiB"


def _span(seconds: float) -> str:
    """ "40 s", "25 min", "3 h"."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
