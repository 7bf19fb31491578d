"""The program with more patience than people have, for a busy machine; run instead of gpuconsole.

A toast stays long enough to be seen by a test that stood still, and what a first run asks other
programs may be answered late.
"""

from __future__ import annotations

from console import start
from console.firstrun import found
from console.tui.app import ConsoleApp

if __name__ == "__main__":
    ConsoleApp.NOTIFICATION_TIMEOUT = 20
    found.look.__kwdefaults__ = {**(found.look.__kwdefaults__ or {}), "deadline_s": 20.0}
    start.main()
