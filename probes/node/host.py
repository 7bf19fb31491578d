"""The host: load, CPU, memory, pressure, uptime and processes in uninterruptible sleep.

All of it is read from ROOT/proc, so that nothing has to be installed on the node.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from probes.node.context import Context

    Values = dict[str, object]

NAME = "host"
INTERVAL = "fast"
COUNTERS = True  # a pass needs two answers for cpu_percent
METRICS = {
    "load1": ("", "gauge", "runnable and uninterruptible tasks, one-minute average"),
    "cpu_count": ("", "info", "CPUs online"),
    "cpu_percent": ("%", "gauge", "busy time of all CPUs since the last answer"),
    "mem_total_bytes": ("B", "info", "memory"),
    "mem_available_bytes": ("B", "gauge", "memory available without swapping"),
    "uptime_s": ("s", "gauge", "time since boot"),
    "dstate_count": ("", "gauge", "processes in uninterruptible sleep"),
    "dstate_nvidia": ("", "gauge", "those of them that wait inside the NVIDIA driver"),
    "hostname": ("", "info", "the kernel's host name"),
    "pressure_io_percent": ("%", "gauge", "time some task waited for I/O, 10 s average"),
    "pressure_cpu_percent": ("%", "gauge", "time some task waited for a CPU, 10 s average"),
}

DSTATE_EVERY_S = 30.0
"""Walking all of /proc costs 10 ms per 1,000 processes: not at every fast tick."""

WCHAN_LIMIT = 64
"""How many uninterruptible processes are looked at for the driver's name."""


def collect(ctx: "Context") -> "tuple[dict[str, Values], list[Values]]":
    """One device "". What this kernel does not show is missing."""
    values: "Values" = {}
    values.update(_load(ctx))
    values.update(_cpu(ctx))
    values.update(_memory(ctx))
    values.update(_pressure(ctx))
    values.update(_dstate(ctx))
    hostname = ctx.read("proc/sys/kernel/hostname")
    if hostname:
        values["hostname"] = hostname[:255]
    return {"": values}, []


def _load(ctx: "Context") -> "Values":
    found: "Values" = {}
    for metric, place in (("load1", "proc/loadavg"), ("uptime_s", "proc/uptime")):
        try:
            found[metric] = float((ctx.read(place) or "").split()[0])
        except (IndexError, ValueError):
            continue
    return found


def _cpu(ctx: "Context") -> "Values":
    """CPU count now, busy share since the last answer. Guest time is part of user time already."""
    lines = (ctx.read("proc/stat") or "").splitlines()
    cpus = [line for line in lines if line.startswith("cpu") and line[3:4].isdigit()]
    found: "Values" = {"cpu_count": len(cpus)} if cpus else {}
    if not lines or not lines[0].startswith("cpu "):
        return found
    ticks = [int(field) for field in lines[0].split()[1:9] if field.isdigit()]
    total, idle = sum(ticks), sum(ticks[3:5])
    memory = ctx.memory(NAME)
    before = memory.get("cpu")
    memory["cpu"] = (total, idle)
    if isinstance(before, tuple) and total > before[0]:
        busy = 1.0 - (idle - before[1]) / float(total - before[0])
        found["cpu_percent"] = round(100.0 * min(1.0, max(0.0, busy)), 1)
    return found


def _memory(ctx: "Context") -> "Values":
    names = {"MemTotal": "mem_total_bytes", "MemAvailable": "mem_available_bytes"}
    found: "Values" = {}
    for line in (ctx.read("proc/meminfo") or "").splitlines():
        key, _, rest = line.partition(":")
        number = rest.split()[:1]
        if key in names and number and number[0].isdigit():
            found[names[key]] = int(number[0]) * 1024
    return found


def _pressure(ctx: "Context") -> "Values":
    """The "some avg10" of PSI; absent before Linux 4.20 or with psi=0."""
    found: "Values" = {}
    for what in ("io", "cpu"):
        for line in (ctx.read("proc/pressure", what) or "").splitlines():
            if line.startswith("some avg10="):
                try:
                    found["pressure_%s_percent" % what] = float(line.split()[1][6:])
                except ValueError:
                    continue
    return found


def _dstate(ctx: "Context") -> "Values":
    """Counted every DSTATE_EVERY_S and repeated between. {} where /proc cannot be listed."""
    memory = ctx.memory(NAME)
    due, before = memory.get("dstate_due", 0.0), memory.get("dstate")
    if isinstance(due, float) and isinstance(before, dict) and ctx.mono() < due:
        return before
    pids = [name for name in ctx.listdir("proc") if name.isdigit()]
    waiting = [pid for pid in pids if state(ctx, pid) == "D"]
    nvidia = sum(1 for pid in waiting[:WCHAN_LIMIT] if _in_driver(ctx, pid))
    found: "Values" = {"dstate_count": len(waiting), "dstate_nvidia": nvidia} if pids else {}
    memory["dstate_due"], memory["dstate"] = ctx.mono() + DSTATE_EVERY_S, found
    return found


def state(ctx: "Context", pid: "str") -> "str | None":
    """The state letter of a process, or None when it has gone."""
    stat = ctx.read("proc", pid, "stat")
    if stat is None:
        return None
    return stat.rpartition(")")[2].strip()[:1] or None


def _in_driver(ctx: "Context", pid: "str") -> "bool":
    """Whether a sleeper waits in the driver: by kernel stack (root only), wait channel or name."""
    for place in ("stack", "wchan", "comm"):
        text = (ctx.read("proc", pid, place) or "").lower()
        if "nvidia" in text or "os_acquire" in text or "rm_ioctl" in text:
            return True
    return False
