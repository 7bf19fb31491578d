"""A short look through one of the system's own tools: argv, no shell, bounded in time."""

import os
import select
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from probes.node.context import Context

PLACES = "/usr/sbin:/usr/bin:/sbin:/bin"
"""Where the system keeps its tools; PATH may have been set by anybody."""

OUTPUT_BYTES = 65536


def output(ctx: "Context", argv: "list[str]", timeout_s: "float") -> "str | None":
    """What it prints, or None when it is not there, fails, says too much or takes too long.

    Booked on the tool's name: one that cannot even be killed is not started a second time.
    Raises Stuck then.
    """
    import subprocess

    program = _which(argv[0])
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
        assert child.stdout is not None
        with child.stdout as pipe:
            raw, ended = _read(pipe.fileno(), timeout_s)
        try:
            failed = child.wait(timeout_s if ended else 0)
        except subprocess.TimeoutExpired:
            child.kill()
            failed = child.wait()
    return None if failed or not ended else raw.decode("utf-8", "replace")


def _which(name: "str") -> "str | None":
    """As shutil's, which would bring three compressors along."""
    paths = [os.path.join(place, name) for place in PLACES.split(":")]
    return next((p for p in paths if os.path.isfile(p) and os.access(p, os.X_OK)), None)


def _read(pipe: "int", timeout_s: "float") -> "tuple[bytes, bool]":
    """What comes through a pipe, and whether it ended in time and within OUTPUT_BYTES."""
    end, raw = time.monotonic() + timeout_s, b""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    while len(raw) <= OUTPUT_BYTES:
        left_s = end - time.monotonic()
        if left_s <= 0 or not poll.poll(int(left_s * 1000) + 1):
            break
        part = os.read(pipe, OUTPUT_BYTES)
        if not part:
            return raw, True
        raw += part
    return b"", False


def here(ctx: "Context") -> "bool":
    """Whether the root is this kernel's own: a tool or system call then tells of the same node."""
    place = "/proc/sys/kernel/random/boot_id"
    try:
        with open(place) as file:
            ours = file.read()
    except OSError:
        return os.path.realpath(ctx.root) == "/"
    return (ctx.read("proc/sys/kernel/random/boot_id") or "").strip() == ours.strip()
