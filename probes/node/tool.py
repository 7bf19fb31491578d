"""A short look through one of the system's own tools: argv, no shell, bounded in time."""

import os
import shutil

TYPE_CHECKING = False
if TYPE_CHECKING:
    from probes.node.context import Context

PLACES = "/usr/sbin:/usr/bin:/sbin:/bin"
"""Where the system keeps its tools; PATH may have been set by anybody."""

OUTPUT_BYTES = 65536


def output(ctx: "Context", argv: "list[str]", timeout_s: "float") -> "str | None":
    """What it prints, or None when it is not there, fails, or takes longer than `timeout_s`.

    Booked on the tool's name: one that cannot even be killed is not started a second time.
    Raises Stuck then.
    """
    import subprocess

    program = shutil.which(argv[0], path=PLACES)
    if program is None:
        return None
    env = {"PATH": PLACES, "LC_ALL": "C", "HOME": "/"}
    with ctx.busy("run " + argv[0], argv[0]):
        try:
            child = subprocess.Popen(
                [program] + argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, env=env, cwd="/",
            )  # fmt: skip
        except (OSError, ValueError):
            return None
        try:
            raw, _ = child.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            return None
    return None if child.returncode else raw[:OUTPUT_BYTES].decode("utf-8", "replace")


def here(ctx: "Context") -> "bool":
    """Whether the root is this kernel's own: a tool or system call then tells of the same node."""
    place = "/proc/sys/kernel/random/boot_id"
    try:
        with open(place) as file:
            ours = file.read()
    except OSError:
        return os.path.realpath(ctx.root) == "/"
    return (ctx.read("proc/sys/kernel/random/boot_id") or "").strip() == ours.strip()
