"""Whether this login may see less of the node than there is: a container, or a job's cgroup.

Slurm takes the devices of other jobs away from whoever it adopts into a job (pam_slurm_adopt with
ConstrainDevices), and a container shows the GPUs it was given. NVML then counts fewer than the bus.
"""

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from probes.node.context import Context

MARKS = (".dockerenv", "run/.containerenv", "run/systemd/container")
"""Docker, Podman and CRI-O, systemd-nspawn and LXC leave these at a container's root."""

_JOB = re.compile(r"/job_(\d{1,12})(?:/|$)")
_POD = re.compile(r"kubepods|/docker[-/]|cri-containerd|crio-|libpod|lxc")


def where(ctx: "Context") -> "str":
    """ "job 4711", "a Slurm job", "a container", or "" for an ordinary login."""
    group = ctx.read("proc/self/cgroup") or ""
    for line in group.splitlines():
        job = _JOB.search(line)
        if job:
            return "job " + job.group(1)
    if "slurmstepd" in group:
        return "a Slurm job"
    marked = any(os.path.exists(ctx.path(mark)) for mark in MARKS)
    return "a container" if marked or _POD.search(group) else ""
