"""What Slurm's commands say when they fail, as one sentence and a next step.

Texts as printed by 22.05 and unchanged in current releases (slurm_errno.c, auth_munge).
"""

from __future__ import annotations

from inventory.errors import SchedulerError
from inventory.run import Completed
from inventory.slurm_text import clean

_NEXT_MUNGE = "check munged here and on the controller: munge -n | unmunge"
_NEXT_PING = "check the controller: scontrol ping"
_NEXT_RIGHTS = "run as root, SlurmUser or a Slurm operator"

_KNOWN = (
    # what it prints, the sentence, the next step, whether it concerns all nodes alike
    ("Munge encode failed", "munge does not answer here", _NEXT_MUNGE, True),
    ("Protocol authentication error", "Slurm refused our credentials", _NEXT_MUNGE, True),
    ("Unable to contact slurm controller", "slurmctld does not answer", _NEXT_PING, True),
    ("Socket timed out", "slurmctld does not answer in time", _NEXT_PING, True),
    ("Could not establish a configuration", "no slurm.conf here", "set SLURM_CONF", True),
    ("Invalid user id", "not permitted to change nodes", _NEXT_RIGHTS, True),
    ("Access/permission denied", "not permitted", _NEXT_RIGHTS, True),
    ("Invalid node name", "Slurm does not know a node of that name", "check: sinfo -N", False),
    (
        "Invalid node state",
        "Slurm refuses that change of state",
        "check: scontrol show node",
        False,
    ),
)


class SlurmError(SchedulerError):
    """A Slurm command failed."""

    def __init__(self, what: str, hint: str = "", *, about_all: bool = False) -> None:
        """`about_all` means that another node would fare no better."""
        super().__init__(what, hint)
        self.about_all = about_all


def command_failed(done: Completed, program: str = "scontrol") -> SlurmError:
    """The error for a command that failed (rc not 0). Its own words stay in it."""
    if done.missing or (done.rc == 127 and "No such file" in done.stderr):
        hint = "install Slurm's client commands, or run this on a login node"
        return SlurmError(f"{program} is not installed here", hint, about_all=True)
    if done.timed_out:
        hint = "munged or slurmctld hangs, or SLURM_CONF is wrong; try munge -n | unmunge"
        return SlurmError(f"{program}: {done.stderr}", hint, about_all=True)
    said = [clean(line) for line in (done.stderr + "\n" + done.stdout).splitlines() if line.strip()]
    for pattern, sentence, hint, about_all in _KNOWN:
        line = next((line for line in said if pattern in line), None)
        if line is not None:
            return SlurmError(f"{sentence} ({line[:160]})", hint, about_all=about_all)
    words = said[0][:200] if said else f"exit status {done.rc} without a word"
    return SlurmError(f"{program}: {words}")


def is_about_all(error: SchedulerError) -> bool:
    """Whether trying the nodes one by one would be no use."""
    return isinstance(error, SlurmError) and error.about_all
