"""Who hangs and who was not buried: uninterruptible sleepers with owner and job, and zombies.

The kernel does not say since when a process sleeps. A sleeper whose count of context switches did
not change between two looks has slept all the time, so `since_s` is at least so long.

Nothing is read of a sleeper that takes its memory map's lock (cmdline, environ, maps): whoever
sleeps with that lock held would take this probe with it.
"""

import re

from probes.node import owners
from probes.node.host import in_driver, scan, uptime_s

TYPE_CHECKING = False
if TYPE_CHECKING:
    from probes.node.context import Context
    from probes.node.host import Task

    Values = dict[str, object]

NAME = "tasks"
INTERVAL = "slow"
COUNTERS = False
METRICS = {
    "processes": ("", "gauge", "processes"),
    "uninterruptible": ("", "gauge", "of them in uninterruptible sleep"),
    "uninterruptible_kernel": ("", "gauge", "kernel threads among those"),
    "zombies": ("", "gauge", "processes that ended and that nobody waited for"),
    "kind": ("", "info", "of a row: sleeper or zombies"),
    "pid": ("", "info", "process id"),
    "comm": ("", "info", "its name"),
    "wchan": ("", "info", "kernel function it waits in; root sees it of others' processes"),
    "stack": ("", "info", "top of its kernel stack, as root"),
    "driver": ("", "info", "True: it waits inside the NVIDIA driver"),
    "kernel": ("", "info", "True: a kernel thread"),
    "since_s": ("s", "gauge", "it has not run for at least so long"),
    "user": ("", "info", "owner"),
    "job": ("", "info", "job it belongs to"),
    "cwd": ("", "info", "where it works: tells the file system it may wait for"),
    "count": ("", "gauge", "zombies of one parent"),
    "parent": ("", "info", "the parent's name"),
    "parent_pid": ("", "info", "the parent"),
}

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")

SLEEPERS = 64
PARENTS = 16
"""Rows of each kind at most."""


def collect(ctx: "Context") -> "tuple[dict[str, Values], list[Values]]":
    """Rows are the sleepers, and the parents of zombies. {} where /proc cannot be listed."""
    tasks = scan(ctx)
    if not tasks:
        return {"": {}}, []
    sleepers = [task for task in tasks if task.state == "D"]
    zombies = [task for task in tasks if task.state == "Z"]
    values: "Values" = {
        "processes": len(tasks),
        "uninterruptible": len(sleepers),
        "uninterruptible_kernel": sum(1 for task in sleepers if task.kernel),
        "zombies": len(zombies),
    }
    rows = _sleepers(ctx, sleepers)
    rows.extend(_zombies(ctx, zombies, {task.pid: task for task in tasks}))
    return {"": values}, rows


def _sleepers(ctx: "Context", sleepers: "list[Task]") -> "list[Values]":
    """Those that have not run since an earlier look come first."""
    known = ctx.memory(NAME).get("asleep")
    before = known if isinstance(known, dict) else {}
    asleep: "dict[tuple[str, str, str], float]" = {}
    rows, now = [], uptime_s(ctx)
    for task in sleepers[: SLEEPERS * 4]:
        switches = _switches(ctx, task.pid)
        key = (task.pid, task.start, switches)
        asleep[key] = since = before.get(key, now) if switches else now
        rows.append((since, task))
    ctx.memory(NAME)["asleep"] = asleep
    rows.sort(key=lambda one: one[0])
    return [_sleeper(ctx, task, max(0.0, now - since)) for since, task in rows[:SLEEPERS]]


def _sleeper(ctx: "Context", task: "Task", since_s: "float") -> "Values":
    row: "Values" = {
        "kind": "sleeper", "pid": int(task.pid), "comm": _plain(task.comm),
        "kernel": task.kernel, "since_s": round(since_s, 1),
    }  # fmt: skip
    wchan = (ctx.read("proc", task.pid, "wchan") or "").strip()
    if wchan not in ("", "0"):
        row["wchan"] = _plain(wchan)[:64]
    lines = (ctx.read("proc", task.pid, "stack") or "").splitlines()[:4]
    stack = [line.split()[-1] for line in lines if line.split()]
    if stack:
        row["stack"] = _plain(" < ".join(stack))[:200]
    if in_driver(ctx, task.pid):
        row["driver"] = True
    if not task.kernel:
        row.update(_owner(ctx, task.pid))
        cwd = ctx.readlink("proc", task.pid, "cwd")
        if cwd:
            row["cwd"] = _plain(cwd)[:100]
    return row


def _owner(ctx: "Context", pid: "str") -> "Values":
    """User and job, without the environment, which a sleeper may keep to itself."""
    found: "Values" = {}
    user = owners.status(ctx, pid).get("user")
    if user:
        found["user"] = _plain(str(user))[:64]
    group = (ctx.read("proc", pid, "cgroup") or "").replace("\n", "/\n")
    job = owners.CGROUP_JOB.search(group)
    if job is not None:
        found["job"] = job.group(1)
    return found


def _plain(text: "str") -> "str":
    return _CONTROL.sub(" ", text)


def _switches(ctx: "Context", pid: "str") -> "str":
    """Both counts of context switches; "" when they are not shown."""
    found = [
        line.split()[-1]
        for line in (ctx.read("proc", pid, "status") or "").splitlines()
        if "ctxt_switches:" in line
    ]
    return " ".join(found)


def _zombies(ctx: "Context", zombies: "list[Task]", tasks: "dict[str, Task]") -> "list[Values]":
    """One row for each parent that does not wait; the first one's name stands for its children."""
    known = ctx.memory(NAME).get("zombies")
    before = known if isinstance(known, dict) else {}
    now = uptime_s(ctx)
    keys = [(task.pid, task.start) for task in zombies]
    seen = {key: before.get(key, now) for key in keys}
    ctx.memory(NAME)["zombies"] = seen
    by_parent: "dict[str, list[Task]]" = {}
    for task in zombies:
        by_parent.setdefault(task.ppid, []).append(task)
    rows: "list[Values]" = []
    for ppid, children in sorted(by_parent.items(), key=lambda one: -len(one[1]))[:PARENTS]:
        oldest = min(children, key=lambda task: seen[task.pid, task.start])
        row: "Values" = {
            "kind": "zombies", "count": len(children), "pid": int(oldest.pid),
            "comm": _plain(oldest.comm),
            "since_s": round(max(0.0, now - seen[oldest.pid, oldest.start]), 1),
        }  # fmt: skip
        if ppid.isdigit():
            row["parent_pid"] = int(ppid)
            row.update(_owner(ctx, ppid))
        if ppid in tasks:
            row["parent"] = _plain(tasks[ppid].comm)
        rows.append(row)
    return rows
