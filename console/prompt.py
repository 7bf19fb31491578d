"""A question at the terminal that leaves the event loop running: signals and agents as ever.

`input()` blocks the loop, and a Ctrl-C that comes between its prompt and its read is only heard at
the next key: Python notes a signal and then sleeps in read(2) all the same.
"""

from __future__ import annotations

import asyncio
import sys

import click

from console import leaving

YES, NO = ("y", "yes"), ("n", "no", "")


async def agreed(question: str) -> bool:
    """Ask until the answer is yes or no; no answer is a no. Raises click.Abort at the end."""
    while True:
        answer = (await _line(f"{question} [y/N]: ")).lower()
        if answer in (*YES, *NO):
            return answer in YES
        click.echo("Please answer y or n.", err=True)


async def number(question: str) -> int:
    """Ask until the answer is a whole number. Raises click.Abort at the end of the input."""
    while True:
        answer = await _line(f"{question}: ")
        if answer.isdecimal():
            return int(answer)
        click.echo("Please type a whole number.", err=True)


async def _line(prompt: str) -> str:
    """What is typed up to Enter, without blanks around it."""
    click.echo(prompt, nl=False, err=True)
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sys.stdin)
    try:
        with leaving.cuttable():
            typed = sys.stdin.readline()
    except UnicodeDecodeError:
        return "?"
    except (OSError, leaving.Cut):  # the terminal is gone, or we are told to go
        typed = ""
    if not typed:
        raise click.Abort
    return typed.strip()
