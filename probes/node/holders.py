"""Who has a GPU's device file open: what is left to ask about memory that nobody owns."""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from probes.node.context import Context

SERVICES = ("nvidia-persiste", "nv-hostengine", "dcgm", "nvidia-smi", "nv-fabricmanage", "gpud")
"""How the names of programs begin that hold the files of all GPUs and no memory (15 chars each)."""

PROCESSES_MOST = 8192
FILES_MOST = 512
HOLDERS_MOST = 4
"""Looked at and named at most: a look must not cost more than some ten milliseconds."""


def holders(ctx: "Context", minor: "int") -> "list[str]":
    """ "python3 (pid 4242)" of processes with /dev/nvidiaN open, services and ourselves left out.

    Other users' files are visible to root only; [] does not mean that there is none.
    """
    wanted = "/dev/nvidia%d" % minor
    found = []
    pids = [name for name in ctx.listdir("proc") if name.isdigit()]
    for pid in pids[:PROCESSES_MOST]:
        if int(pid) == os.getpid() or not _has_open(ctx, pid, wanted):
            continue
        name = ctx.read("proc", pid, "comm") or "?"
        if not name.startswith(SERVICES):
            found.append("%s (pid %s)" % (name[:16], pid))
        if len(found) == HOLDERS_MOST:
            break
    return found


def _has_open(ctx: "Context", pid: "str", wanted: "str") -> "bool":
    files = ctx.listdir("proc", pid, "fd")[:FILES_MOST]
    return any(ctx.readlink("proc", pid, "fd", one) == wanted for one in files)
