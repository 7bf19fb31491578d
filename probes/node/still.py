"""Whether a process still moves: its main thread has neither run nor been woken for how long.

The kernel does not say since when a thread sleeps. One whose count of context switches is the same
as a look before has slept all the time, so `still_s` is at least so long.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from probes.node.context import Context

    Values = dict[str, object]

START_FIELD = 19
"""Of /proc/<pid>/stat behind the name: when it was started (proc(5), field 22)."""
KEPT = 1024
"""Processes remembered: sixteen GPUs with many servers on each."""
WAITING = "DTt"
"""Uninterruptible, stopped, traced: states that tell what a thread waits for."""
WCHAN_CHARS = 64


def still(ctx: "Context", pid: "str", stat: "str") -> "Values":
    """{"still_s", "wchan"} of a live process from its `stat`; what cannot be told is missing."""
    fields = stat.rpartition(")")[2].split()
    found: "Values" = {}
    if len(fields) <= START_FIELD:
        return found
    state, start = fields[0], fields[START_FIELD]
    if state[:1] in WAITING:
        wchan = (ctx.read("proc", pid, "wchan") or "").strip()
        if wchan not in ("", "0"):
            found["wchan"] = "".join(filter(str.isprintable, wchan))[:WCHAN_CHARS]
    switches = _switches(ctx, pid)
    if not switches:
        return found
    memory, now = ctx.memory("still"), ctx.mono()
    if len(memory) > KEPT:
        memory.clear()
    before = memory.get(pid)
    same = isinstance(before, tuple) and before[:2] == (start, switches) and state[:1] != "R"
    since = before[2] if same and isinstance(before, tuple) else now
    memory[pid] = (start, switches, since)
    if same:
        found["still_s"] = round(now - since, 1)
    return found


def _switches(ctx: "Context", pid: "str") -> "str":
    """Both counts of its main thread; "" when they are not shown."""
    text = ctx.read("proc", pid, "status") or ""
    return " ".join(line.split()[-1] for line in text.splitlines() if "ctxt_switches:" in line)
