"""The program's entry: Ctrl-C is answered from the first moment on.

Importing the command line takes 0.1 s on a fast machine and a second on a loaded bastion. Python
would answer Ctrl-C then with a traceback from wherever the import is; nothing is open yet, so here
it ends at once.
"""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn  # itself 10 ms of imports

INTERRUPTED = 130


def main() -> NoReturn:
    """Import the command line and run it."""
    # Ignored for a shell's background job; it stays so.
    heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heard:
        signal.signal(signal.SIGINT, _leave)
    from console import cli

    if heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        cli.main()
    finally:
        if heard:
            # While the interpreter takes itself down, a second Ctrl-C just ends it.
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def _leave(*_: object) -> None:
    os.write(2, b"gpuconsole: interrupted\n")
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
