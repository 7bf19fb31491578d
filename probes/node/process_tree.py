"""Killing a process with all below it.

A child may start children in sessions of their own (launchers do), so a kill walks the process
tree. The agent is made a "child subreaper", so that orphans of the tree come back to it and the
walk finds them too.
"""

import os
import signal
import threading

GRACE_S = 0.3
"""Between SIGTERM and SIGKILL. Leaving as a whole must take less than a second."""

PROC_SELF = "/proc/self"
"""Missing where /proc is not mounted."""

SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER, linux/prctl.h, since Linux 3.4."""


def become_subreaper() -> "None":
    """Adopt orphaned descendants; without it (old kernel) only live ancestors lead to them."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        pass


def descendants(root: "int") -> "list[int]":
    """Live processes below `root`, children before grandchildren. Zombies are not counted."""
    below: "dict[int, list[int]]" = {}
    for name in _listed("/proc"):
        if name.isdigit():
            parent = _parent(int(name))
            if parent is not None:
                below.setdefault(parent, []).append(int(name))
    found, queue = [], [root]
    while queue:
        children = below.get(queue.pop(0), [])
        found.extend(children)
        queue.extend(children)
    return found


def _listed(place: "str") -> "list[str]":
    """Names there; [] in a container without /proc, where only the child itself can be killed."""
    try:
        return os.listdir(place)
    except OSError:
        return []


def _parent(pid: "int") -> "int | None":
    """The parent's pid; None for a zombie or a process that has gone."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            state, parent = file.read().rpartition(b")")[2].split()[:2]
    except (OSError, ValueError):
        return None
    return None if state in (b"Z", b"X") else int(parent)


def _lives(pid: "int") -> "bool":
    """Whether it is there to be killed; without /proc a zombie counts too."""
    if os.path.exists(PROC_SELF):
        return _parent(pid) is not None
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def kill_tree(root: "int", itself: "bool" = True) -> "None":
    """SIGTERM to a process and all below it, then SIGKILL to what is left after GRACE_S.

    Who was below stays a target when its parent dies first.
    """
    pids: "list[int]" = []
    for number, wait_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, 0.1), (signal.SIGKILL, 0.0)):
        for top in [root] + pids:
            pids = pids + [pid for pid in descendants(top) if pid not in pids]
        if itself and root not in pids:
            pids.append(root)
        pids = [pid for pid in pids if _lives(pid)]
        if not pids:
            return
        for pid in pids:
            try:
                os.kill(pid, number)
            except OSError:
                pass
        _wait_gone(pids, wait_s)


def _wait_gone(pids: "list[int]", limit_s: "float") -> "None":
    """Until none of them lives, or the time is over."""
    pause = threading.Event()
    for _ in range(int(limit_s / 0.02)):
        if not any(_lives(pid) for pid in pids):
            return
        pause.wait(0.02)
