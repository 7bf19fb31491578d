"""Processes on the GPUs: whose, how much memory, of which job and rank, alive or left behind.

Command lines and environments may hold secrets. Only the program and its script or module leave
the node, and of the environment only the names in ENVIRONMENT.
"""

import os
import re

from probes.node.context import Stuck
from probes.node.host import state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from probes.node.context import Context

    Values = dict[str, object]

NAME = "processes"
INTERVAL = "slow"
COUNTERS = False
METRICS = {
    "nvml_rc": ("", "gauge", "return code of the call that failed; absent when none did"),
    "nvml_call": ("", "info", "the call that failed"),
    "count": ("", "gauge", "compute processes on the GPU"),
    "gpu": ("", "info", "PCI address of the GPU"),
    "pid": ("", "info", "process id as the driver knows it"),
    "user": ("", "info", "owner"),
    "command": ("", "info", "program and script, without arguments"),
    "mem_bytes": ("B", "gauge", "GPU memory in use; missing where the driver does not say"),
    "job": ("", "info", "SLURM_JOB_ID, or the job of its cgroup"),
    "rank": ("", "info", "RANK, SLURM_PROCID or OMPI_COMM_WORLD_RANK"),
    "state": ("", "gauge", "R, S, D, Z ..."),
    "alive": ("", "gauge", "False: the driver still lists it, the kernel does not"),
}

JOB_NAMES = ("SLURM_JOB_ID", "SLURM_JOBID", "PBS_JOBID", "LSB_JOBID")
RANK_NAMES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
ENVIRONMENT = frozenset(JOB_NAMES + RANK_NAMES)
"""The only names read from /proc/<pid>/environ: everything else there may be a secret."""

TAKES_VALUE = ("-W", "-X", "-Q")
"""Options of python whose value is the next word."""

COMMAND_CHARS = 60
VALUE_CHARS = 64
PROCESSES = 256
"""Rows per GPU at most; MPS and inference servers have tens."""

INITIAL_NAMESPACE = "pid:[4026531836]"
"""Inode of the first pid namespace (PROC_PID_INIT_INO, linux/proc_ns.h): the driver's pids."""

NO_MEMORY_INFO = (1 << 64) - 1
"""NVML_VALUE_NOT_AVAILABLE, nvml.h."""

_CGROUP_JOB = re.compile(r"/job_(\d+)(?:/|$)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


def collect(ctx: "Context") -> "tuple[dict[str, Values], list[Values]]":
    """Rows are the processes. A GPU's own values are their count, or nvml_rc and nvml_call."""
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
                found = running(ctx, gpu)
                devices[gpu.key] = {"count": len(found)}
                rows.extend(_row(ctx, gpu.key, one) for one in found[:PROCESSES])
        except Failed as failure:
            devices[gpu.key] = {}
            if failure.rc not in UNSUPPORTED:
                devices[gpu.key] = {"nvml_rc": failure.rc, "nvml_call": failure.call}
        except Stuck:
            continue
    return devices, rows


def running(ctx: "Context", gpu: "Any") -> "list[Any]":
    """Compute processes on one GPU, as NVML lists them. Raises Failed or Stuck."""
    assert ctx.nvml is not None
    return list(
        ctx.nvml.call("nvmlDeviceGetComputeRunningProcesses", gpu.handle, device=gpu.key) or []
    )


def _row(ctx: "Context", key: "str", one: "Any") -> "Values":
    pid = str(int(one.pid))
    row: "Values" = {"gpu": key, "pid": int(one.pid)}
    memory = getattr(one, "usedGpuMemory", None)
    if memory is not None and memory != NO_MEMORY_INFO:
        row["mem_bytes"] = int(memory)
    letter = state(ctx, pid)
    if letter is None:
        if _sees_all_pids(ctx):
            row["alive"] = False
        return row
    row["alive"] = letter not in "ZX"
    row["state"] = letter
    row.update(_identity(ctx, pid))
    return row


def _identity(ctx: "Context", pid: "str") -> "Values":
    found: "Values" = {}
    command = command_name(ctx.read_bytes("proc", pid, "cmdline") or b"")
    command = command or (ctx.read("proc", pid, "comm") or "")
    if command:
        found["command"] = _plain(command)[:COMMAND_CHARS]
    user = _user(ctx, pid)
    if user:
        found["user"] = user
    raw = ctx.read_bytes("proc", pid, "environ")
    names = allowed(raw or b"")
    job = _first(names, JOB_NAMES) or _cgroup_job(ctx, pid)
    if raw is not None or job:
        found["job"] = job
    if raw is not None:
        found["rank"] = _first(names, RANK_NAMES)
    return found


def allowed(raw: "bytes") -> "dict[str, str]":
    """The allow-listed part of an environ file's bytes. Everything else is dropped here."""
    found = {}
    for entry in raw.split(b"\0"):
        name, _, value = entry.decode("utf-8", "replace").partition("=")
        if name in ENVIRONMENT:
            found[name] = _plain(value)[:VALUE_CHARS]
    return found


def command_name(raw: "bytes") -> "str":
    """Program and script or module of a cmdline file's bytes: "python3 train.py".

    Options and their values never leave: they may hold tokens.
    """
    words = [word.decode("utf-8", "replace") for word in raw.split(b"\0") if word]
    if not words:
        return ""
    program = os.path.basename(words[0])
    if not program.startswith(("python", "bash", "sh", "perl", "ruby", "node", "java")):
        return program
    for before, word in zip(words, words[1:]):
        if before == "-c":
            break
        if before == "-m" or not (word.startswith("-") or before in TAKES_VALUE):
            return "%s %s" % (program, os.path.basename(word))
    return program


def _user(ctx: "Context", pid: "str") -> "str":
    """The owner's name, or number. Name services may hang, so the look-up is booked and kept."""
    for line in (ctx.read("proc", pid, "status") or "").splitlines():
        if line.startswith("Uid:"):
            uid = line.split()[1]
            memory = ctx.memory(NAME)
            if uid not in memory:
                memory[uid] = _name_of(ctx, int(uid))
            return str(memory[uid])
    return ""


def _name_of(ctx: "Context", uid: "int") -> "str":
    import pwd

    try:
        with ctx.busy("getpwuid", "name service"):
            return pwd.getpwuid(uid).pw_name
    except (KeyError, Stuck):
        return str(uid)


def _cgroup_job(ctx: "Context", pid: "str") -> "str":
    found = _CGROUP_JOB.search((ctx.read("proc", pid, "cgroup") or "").replace("\n", "/\n"))
    return found.group(1) if found else ""


def _sees_all_pids(ctx: "Context") -> "bool":
    """Whether a pid that is not in /proc is gone rather than in another namespace."""
    if os.path.realpath(ctx.root) != "/":
        return True
    return ctx.readlink("proc/self/ns/pid") == INITIAL_NAMESPACE


def _first(names: "dict[str, str]", order: "tuple[str, ...]") -> "str":
    return next((names[name] for name in order if names.get(name)), "")


def _plain(text: "str") -> "str":
    return _CONTROL.sub(" ", text)
