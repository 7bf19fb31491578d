"""Keys that the terminal announced and then dropped, as Ctrl-C makes it: nobody waits for them."""

from __future__ import annotations

import sys

import pytest

from tests.terminal import Pty

PROGRAM = """\
import asyncio, os, signal, sys, termios
import click
from console import launch, prompt
from console.firstrun.keys import Keys

async def keys():
    with Keys() as typed:
        print("press", flush=True)
        await typed.typed()

async def line():
    await prompt.agreed("press")

async def asked():
    loop = asyncio.get_running_loop()
    remove = loop.remove_reader

    def drops(file):
        termios.tcflush(0, termios.TCIFLUSH)
        os.kill(os.getpid(), signal.SIGINT)
        return remove(file)

    loop.remove_reader = drops
    try:
        await {"keys": keys, "line": line}[sys.argv[1]]()
    except (EOFError, click.Abort):
        return 0
    print("answered")
    return 0

try:
    sys.exit(launch.run_async(asked()))
except KeyboardInterrupt:  # as the command line has it
    sys.exit(130)
"""


@pytest.mark.parametrize("what", ["keys", "line"])
def test_ctrl_c_that_takes_the_keys_with_it_is_heard(what: str) -> None:
    """In read(2) Python hears no signal: it reads on, and there is nothing any more."""
    with Pty([sys.executable, "-c", PROGRAM, what]) as terminal:
        terminal.until("press")
        terminal.send("y\n")
        assert terminal.wait() == 130
        assert "answered" not in terminal.text
