"""The programs of a simulated node besides its python3: `PYTHON tools.py NAME DIR ARGUMENTS...`.

dmesg and nvidia-smi print what DIR (nvml.json, root/dev/kmsg) holds, systemctl says that services
run. They cover what gpuconsole and a curious operator type, not every option of the real ones.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

PARENT = int(os.environ.get("DEMO_PARENT") or os.getppid())
"""Who asked, as the shell before us saw it: by the time Python runs, it may be gone already."""
END_OF_FILE = b"\x04"
HANG_UP_S = 2.0
"""From the end of what is typed to SIGHUP, if nothing is shown meanwhile."""


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _hang() -> None:
    """Do not come back while whoever asked is there."""
    while os.getppid() == PARENT:
        time.sleep(0.5)


def _nvml(node: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((node / "nvml.json").read_text())
    return found


def dmesg(node: Path, words: Sequence[str]) -> int:
    """Kernel lines; -r raw, -w follow."""
    raw = any(w in ("-r", "--raw") for w in words)
    follow = any(w in ("-w", "--follow", "-W", "--follow-new") for w in words)
    with (node / "root/dev/kmsg").open(errors="replace") as log:
        while True:
            for line in log:
                _say(_dmesg_line(line.rstrip("\n"), raw))
            if not follow or os.getppid() != PARENT:
                return 0
            time.sleep(0.5)


def _dmesg_line(line: str, raw: bool) -> str:
    head, _, text = line.partition(";")
    prio, _, usec, *_ = [*head.split(","), "0", "0", "0"]
    stamp = f"[{int(usec) / 1e6:12.6f}] {text}"
    return f"<{prio}>{stamp}" if raw else stamp


def nvidia_smi(node: Path, words: Sequence[str]) -> int:
    """One line a GPU; hangs when a GPU's driver calls hang, as the real one does."""
    state = _nvml(node)
    if any(gpu.get("hang") for gpu in state["gpus"]):
        _hang()
    _say(f"NVIDIA-SMI (simulated)   Driver Version: {state['driver']}")
    for gpu in state["gpus"]:
        index, pci = gpu["index"], gpu["pci"]
        if gpu.get("rc"):
            _say(f"Unable to determine the device handle for GPU{index}: {pci}: GPU is lost.")
            continue
        _say(
            f"GPU {index}: {gpu['name']} ({pci})  {gpu['temp']} C  {gpu['power_w']:.0f} W / "
            f"{gpu['power_limit_w']} W  {gpu['mem_used_mib']} MiB / {gpu['mem_total_mib']} MiB  "
            f"{gpu['util']} %  SM {gpu['sm_mhz']} MHz"
        )
    return 0


def systemctl(node: Path, words: Sequence[str]) -> int:
    """`show` prints the asked units as DIR/root says; `is-active` says active to everything."""
    if "is-active" in words:
        for _ in words[words.index("is-active") + 1 :]:
            _say("active")
    if "show" in words:
        units = node / "root/run/systemd/units.json"
        known = json.loads(units.read_text()) if units.exists() else {}
        asked = [word for word in words[words.index("show") + 1 :] if not word.startswith("-")]
        absent = {"LoadState": "not-found", "ActiveState": "inactive", "SubState": "dead"}
        for unit in asked:
            properties = {"Id": unit, **known.get(unit, absent)}
            _say("".join(f"{name}={value}\n" for name, value in properties.items()))
    return 0


def terminal(node: Path, words: Sequence[str]) -> int:
    """COLUMNS LINES [COMMAND]: a login shell, or the command, on a terminal of its own.

    Our stdin and stdout are what is typed and shown; the end of stdin hangs the terminal up.
    """
    child, master = pty.fork()
    if child == 0:
        prompt = {**os.environ, "PS1": f"{node.name} (simulated)$ ", "ENV": ""}
        os.execve("/bin/sh", ["sh", "-c", words[2]] if words[2:] else ["sh", "-i"], prompt)
    size = struct.pack("HHHH", int(words[1]), int(words[0]), 0, 0)
    fcntl.ioctl(master, termios.TIOCSWINSZ, size)
    with contextlib.suppress(OSError):  # EIO: nobody has the terminal open any more
        _carry(child, master)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) & 255


def _carry(child: int, master: int) -> None:
    sources, left_s = [0, master], None
    while True:
        ready = select.select(sources, [], [], left_s)[0]
        if not ready:
            os.kill(child, signal.SIGHUP)
        for source in ready:
            data = os.read(source, 65536)
            if source == master:
                if not data:
                    return
                os.write(1, data)
            elif data:
                os.write(master, data)
            else:
                sources.remove(0)
                os.write(master, END_OF_FILE)
                left_s = HANG_UP_S


TOOLS: dict[str, Callable[[Path, Sequence[str]], int]] = {
    "dmesg": dmesg,
    "nvidia-smi": nvidia_smi,
    "systemctl": systemctl,
    "demo-terminal": terminal,
}


def main(argv: Sequence[str]) -> int:
    """Run the tool named argv[1] on the node directory argv[2]."""
    try:
        return TOOLS[argv[1]](Path(argv[2]), argv[3:])
    except (BrokenPipeError, KeyboardInterrupt):
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))
