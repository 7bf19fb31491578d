"""Processes on the GPUs: whose, how much memory, of which job and rank, alive or left behind.

Memory that is in use while no process owns it is reported with what is known of the GPU's last
owner. It is measured between two lists of processes, so that one that comes or goes in between is
no riddle, and counted in looks, as the driver takes seconds to give back what a process had.
"""

import os

from probes.node.context import Stuck
from probes.node.holders import holders
from probes.node.owners import ENVIRONMENT, age_s, allowed, command_name, identity
from probes.node.still import still

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from probes.node.context import Context
    from probes.node.nvml_reader import Reader

    Values = dict[str, object]

__all__ = ["ENVIRONMENT", "allowed", "command_name", "running"]

NAME = "processes"
INTERVAL = "slow"
COUNTERS = True  # a pass looks twice: memory without an owner must still be there
METRICS = {
    "nvml_rc": ("", "gauge", "return code of the call that failed; absent when none did"),
    "nvml_call": ("", "info", "the call that failed"),
    "count": ("", "gauge", "compute processes on the GPU"),
    "used_bytes": ("B", "gauge", "GPU memory in use when the processes were listed"),
    "owned_bytes": ("B", "gauge", "GPU memory of all its live processes, where each has a figure"),
    "unowned_bytes": ("B", "gauge", "GPU memory in use while no live process is on the GPU"),
    "unowned_looks": ("", "gauge", "for how many looks in a row that was 256 MiB or more"),
    "last_job": ("", "info", "job of the GPU's last process that we saw"),
    "last_user": ("", "info", "its owner"),
    "last_command": ("", "info", "its program and script"),
    "last_pid": ("", "info", "its process id"),
    "last_seen_s": ("s", "gauge", "how long ago it was seen"),
    "holders": ("", "info", "who has the GPU's device file open although it owns no memory"),
    "gpu": ("", "info", "PCI address of the GPU"),
    "pid": ("", "info", "process id as the driver knows it"),
    "inner_pid": ("", "info", "process id inside its container"),
    "kind": ("", "info", "graphics or mps; a compute process has none"),
    "user": ("", "info", "owner"),
    "command": ("", "info", "program and script, without arguments"),
    "mem_bytes": ("B", "gauge", "GPU memory in use; missing where the driver does not say"),
    "age_s": ("s", "gauge", "how long it runs"),
    "job": ("", "info", "SLURM_JOB_ID, or the job of its cgroup"),
    "rank": ("", "info", "RANK, SLURM_PROCID or OMPI_COMM_WORLD_RANK"),
    "pod": ("", "info", "UID of its Kubernetes pod"),
    "container": ("", "info", "first digits of its container's id"),
    "state": ("", "gauge", "R, S, D, Z ..."),
    "wchan": ("", "info", "kernel function it waits in when its state is D or T"),
    "still_s": ("s", "gauge", "its main thread has not run for at least so long"),
    "ours": ("", "info", "True: started by this agent, as a test that was asked for"),
    "alive": ("", "gauge", "False: the driver still lists it, the kernel does not"),
}

PROCESSES = 256
"""Rows per GPU at most; MPS and inference servers have tens."""

INITIAL_NAMESPACE = "pid:[4026531836]"
"""Inode of the first pid namespace (PROC_PID_INIT_INO, linux/proc_ns.h): the driver's pids."""

NO_MEMORY_INFO = (1 << 64) - 1
"""NVML_VALUE_NOT_AVAILABLE, nvml.h."""

LARGE = 256 << 20
"""Bytes in use without an owner that are worth a second look; less is the driver's own."""

GENERATIONS = 6
"""Agent, command, launcher, ranks: more than that lies between no test and its agent."""

COMPUTE = "nvmlDeviceGetComputeRunningProcesses"
OTHERS = {
    "graphics": "nvmlDeviceGetGraphicsRunningProcesses",
    "mps": "nvmlDeviceGetMPSComputeRunningProcesses",
}
BEFORE_510 = "_v2"
"""What drivers before 510 have instead."""
LAST = ("job", "user", "command", "pid")


def collect(ctx: "Context") -> "tuple[dict[str, Values], list[Values]]":
    """Rows are the processes. A GPU's own values are counts and memory, or nvml_rc."""
    devices: "dict[str, Values]" = {"": {}}
    rows: "list[Values]" = []
    if ctx.nvml is None:
        return devices, rows
    from probes.node.nvml_library import UNSUPPORTED, Failed

    try:
        gpus = ctx.nvml.gpus()
    except Failed as failure:
        return {"": {"nvml_rc": failure.rc, "nvml_call": failure.call}}, rows
    for gpu in gpus:
        try:
            if gpu.handle is not None:
                devices[gpu.key] = _look(ctx, gpu, rows)
        except Failed as failure:
            devices[gpu.key] = {}
            if failure.rc not in UNSUPPORTED:
                devices[gpu.key] = {"nvml_rc": failure.rc, "nvml_call": failure.call}
        except Stuck:
            continue
    return devices, rows


def running(ctx: "Context", gpu: "Any") -> "list[Any]":
    """Compute processes on one GPU, as NVML lists them. Raises Failed or Stuck."""
    from probes.node.nvml_library import FUNCTION_NOT_FOUND, Failed

    assert ctx.nvml is not None
    try:
        return list(ctx.nvml.call(COMPUTE, gpu.handle, device=gpu.key) or [])
    except Failed as failure:
        if failure.rc != FUNCTION_NOT_FOUND:
            raise
        return list(ctx.nvml.call(COMPUTE + BEFORE_510, gpu.handle, device=gpu.key) or [])


def _look(ctx: "Context", gpu: "Any", rows: "list[Values]") -> "Values":
    """One GPU's values; its processes are added to `rows`."""
    from probes.node.nvml import memory
    from probes.node.nvml_reader import Reader

    assert ctx.nvml is not None
    compute = running(ctx, gpu)
    reader = Reader(ctx.nvml, gpu)
    found = [_row(ctx, gpu.key, one, "") for one in compute]
    pids = {row["pid"] for row in found}
    for kind, call in OTHERS.items():
        listed = reader.ask(call)
        if listed is None:
            listed = reader.ask(call + BEFORE_510)
        more = [one for one in listed or () if int(one.pid) not in pids]
        found.extend(_row(ctx, gpu.key, one, kind) for one in more)
    rows.extend(found[:PROCESSES])
    values: "Values" = {"count": len(compute)}
    used = memory(reader)[0]
    if used is not None:
        values["used_bytes"] = used
        values.update(_ownership(ctx, reader, found, used))
    return values


def _ownership(ctx: "Context", reader: "Reader", found: "list[Values]", used: "int") -> "Values":
    """Who owns the memory, or whose it was last; {} where not every process can be seen."""
    live = [row for row in found if row.get("alive") is True]
    looks = ctx.memory("processes.looks")
    last = ctx.memory("processes.last")
    device = reader.gpu.key
    if not _sees_all_pids(ctx) or any("alive" not in row for row in found):
        return {}
    pids = {row["pid"] for row in found}
    if live or any(int(one.pid) not in pids for one in running(ctx, reader.gpu)):
        looks.pop(device, None)
        if live:
            last[device] = (max(live, key=_bytes), ctx.mono())
        if live and all("mem_bytes" in row for row in live):
            return {"owned_bytes": sum(map(_bytes, live))}
        return {}
    before = looks.get(device, 0)
    looks[device] = before + 1 if used >= LARGE and isinstance(before, int) else 0
    values: "Values" = {"unowned_bytes": used, "unowned_looks": looks[device]}
    if used >= LARGE:
        values.update(_left_by(ctx, reader, last.get(device)))
    return values


def _bytes(row: "Values") -> "int":
    size = row.get("mem_bytes", 0)
    return size if isinstance(size, int) else 0


def _left_by(ctx: "Context", reader: "Reader", last: "object") -> "Values":
    """What we know of the last owner, and who still has the device file open."""
    values: "Values" = {}
    if isinstance(last, tuple):
        row, seen = last
        values.update(("last_" + name, row[name]) for name in LAST if row.get(name))
        values["last_seen_s"] = round(ctx.mono() - seen, 1)
    minor = reader.ask_once("nvmlDeviceGetMinorNumber")
    names = [] if minor is None else holders(ctx, int(minor))
    if names:
        values["holders"] = ", ".join(names)
    return values


def _row(ctx: "Context", key: "str", one: "Any", kind: "str") -> "Values":
    pid = str(int(one.pid))
    row: "Values" = {"gpu": key, "pid": int(one.pid)}
    if kind:
        row["kind"] = kind
    memory = getattr(one, "usedGpuMemory", None)
    if memory is not None and memory != NO_MEMORY_INFO:
        row["mem_bytes"] = int(memory)
    stat = ctx.read("proc", pid, "stat")
    letter = "" if stat is None else stat.rpartition(")")[2].strip()[:1]
    if stat is None or not letter:
        if _sees_all_pids(ctx):
            row["alive"] = False
        return row
    row["alive"] = letter not in "ZX"
    if _is_ours(ctx, stat):
        row["ours"] = True
    row["state"] = letter
    age = age_s(ctx, stat)
    if age is not None:
        row["age_s"] = age
    row.update(still(ctx, pid, stat))
    row.update(identity(ctx, pid))
    return row


def _is_ours(ctx: "Context", stat: "str | None") -> "bool":
    """Whether this agent is among the ancestors, the nearest GENERATIONS of them."""
    me = str(os.getpid())
    for _ in range(GENERATIONS):
        fields = (stat or "").rpartition(")")[2].split()
        parent = fields[1] if len(fields) > 1 else "0"
        if parent == me:
            return True
        if parent in ("0", "1"):
            break
        stat = ctx.read("proc", parent, "stat")
    return False


def _sees_all_pids(ctx: "Context") -> "bool":
    """Whether a pid that is not in /proc is gone, rather than hidden (hidepid) or elsewhere."""
    if ctx.read("proc/1/stat") is None:
        return False
    if os.path.realpath(ctx.root) != "/":
        return True
    return ctx.readlink("proc/self/ns/pid") == INITIAL_NAMESPACE
