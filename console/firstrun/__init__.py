"""The first start without an inventory: look what is here, propose a file, ask, write it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from console.options import Request


def chosen(request: Request, *, tour: bool) -> tuple[Request, bool]:
    """The request, and whether the tour is wanted, once nodes are named: on a terminal the operator
    is asked where nothing names any. Leaving the question ends the program, with 0.
    """
    from console.firstrun import dialogue

    if not dialogue.wanted(request):
        return request, tour
    from console.launch import run_async
    from console.preferences import load
    from console.tui import words

    likes = load()
    words.speak(likes.language, ascii=bool(likes.ascii))
    answers: list[dialogue.Chosen] = []

    async def asked() -> int:
        answer = await dialogue.ask()
        answers.extend([answer] if answer else [])
        return 0

    code = run_async(asked())
    if not answers:
        sys.exit(code)
    return request.over(answers[0].options), answers[0].tour
