"""What the agent itself costs: CPU of all its threads, resident memory, frames, skipped ticks."""

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from probes.node.context import Context

NAME = "agent"
INTERVAL = "slow"
COUNTERS = False
METRICS = {
    "cpu_percent": ("%", "gauge", "CPU time of the agent since its last answer, of one core"),
    "rss_bytes": ("B", "gauge", "resident memory of the agent"),
    "frames": ("", "counter", "frames written"),
    "skipped_ticks": ("", "counter", "ticks left out: the probe was late or stdout blocked"),
    "dropped_frames": ("", "counter", "other frames left out because stdout blocked"),
}


def collect(ctx: "Context") -> "tuple[dict[str, dict[str, object]], list[dict[str, object]]]":
    """One device "": the agent. cpu_percent needs two answers, so a pass has none."""
    values: "dict[str, object]" = dict(ctx.statistics())
    memory = ctx.memory(NAME)
    now, used = ctx.mono(), time.process_time()
    before = memory.get("before")
    memory["before"] = (now, used)
    if isinstance(before, tuple) and now > before[0]:
        values["cpu_percent"] = round(100.0 * (used - before[1]) / (now - before[0]), 4)
    rss = _rss_bytes()
    if rss is not None:
        values["rss_bytes"] = rss
    return {"": values}, []


def _rss_bytes() -> "int | None":
    """From this process's own /proc, whatever --root is; None without one."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return None
