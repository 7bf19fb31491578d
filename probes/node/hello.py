"""The first frame: who answers, on what, by which clock, and what it cannot read."""

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from probes.node.context import Context

VERSION = 1
"""Of the wire protocol."""


def hello(ctx: "Context", caps: "list[str]") -> "dict[str, object]":
    """The hello frame. `boot_wall` is the kernel's idea of when it booted, in epoch seconds."""
    frame: "dict[str, object]" = {
        "k": "hello",
        "v": VERSION,
        "host": (ctx.read("proc/sys/kernel/hostname") or os.uname().nodename)[:255],
        "python": sys.version.split()[0],
        "executable": sys.executable or "",
        "pid": os.getpid(),
        "uid": os.geteuid(),
        "boot_id": (ctx.read("proc/sys/kernel/random/boot_id") or "").strip()[:64],
        "wall": time.time(),
        "mono": ctx.mono(),
        "kernel": os.uname().release,
        "machine": os.uname().machine,
        "os": os_name(ctx),
        "caps": caps,
        "missing": dict(ctx.missing),
    }
    boot = boot_wall(ctx)
    if boot is not None:
        frame["boot_wall"] = boot
    return frame


def boot_wall(ctx: "Context") -> "float | None":
    """Epoch seconds of the boot from /proc/stat's btime; None when absent."""
    for line in (ctx.read("proc/stat") or "").splitlines():
        if line.startswith("btime "):
            try:
                return float(line.split()[1])
            except (IndexError, ValueError):
                return None
    return None


def os_name(ctx: "Context") -> "str":
    """PRETTY_NAME of os-release, "" when there is none."""
    for place in ("etc/os-release", "usr/lib/os-release"):
        for line in (ctx.read(place) or "").splitlines():
            key, _, value = line.partition("=")
            if key == "PRETTY_NAME":
                return value.strip("\"' ")[:120]
    return ""
