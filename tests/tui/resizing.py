"""The demo in a terminal that is 80x24 again while the console still reads that it is 1x1; run by
test_sturdy as a program."""

from __future__ import annotations

import fcntl
import struct
import sys
import termios

from console import start
from console.tui.terminal import Terminal

_size = Terminal._get_terminal_size
_resized: list[bool] = []


def _late(self: Terminal) -> tuple[int, int]:
    size = _size(self)
    if size == (1, 1) and not _resized:
        _resized.append(True)
        fcntl.ioctl(self.fileno, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    return size


if __name__ == "__main__":
    Terminal._get_terminal_size = _late  # type: ignore[method-assign]
    sys.argv = ["gpuconsole", "--demo", "--nodes", "4"]
    start.main()
