"""Pictures of the screen as files: SVG to show, text to search and paste.

They lie in the state directory, private to their owner, or where the operator says. A name of a
node in a file name is only letters, digits and dashes: it cannot leave the folder.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from console.settings import private
from probes.blobs import safe_name

if TYPE_CHECKING:
    from textual.app import App

FORMS = ("svg", "text")
ENDINGS = {"svg": "svg", "text": "txt"}
SAME_MOST = 100
"""Files of one second."""
_FONT = re.compile(r"@font-face\s*\{[^}]*\}\s*")
"""Textual's SVG would fetch its font from the network of whoever looks at it."""


def picture(app: App[None], form: str) -> bytes:
    """The screen as the terminal shows it."""
    if form == "svg":
        return _FONT.sub("", app.export_screenshot(simplify=True)).encode()
    strips = app.screen._compositor.render_strips()
    return ("\n".join(strip.text.rstrip() for strip in strips) + "\n").encode()


def keep(folder: Path, stem: str, ending: str, data: bytes, at: float, named: str = "") -> Path:
    """Write a new file and give its path; nothing that exists is overwritten. Raises OSError.

    `named` is the operator's own path: a folder, or a file that is not there yet.
    """
    name = stem_of(stem, at)
    if not named:
        return _write(private(folder), name, ending, data)
    path = Path(named).expanduser()
    if path.is_dir():
        return _write(path, name, ending, data)
    _exclusive(path, data)
    return path


def stem_of(what: str, at: float) -> str:
    """A file name without its ending."""
    return f"{safe_name(what)}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(at))}"


def _write(folder: Path, name: str, ending: str, data: bytes) -> Path:
    for number in range(SAME_MOST):
        path = folder / f"{name}{f'.{number}' if number else ''}.{ending}"
        try:
            _exclusive(path, data)
        except FileExistsError:
            continue
        return path
    raise FileExistsError(None, "there are too many files of this second", str(folder))


def _exclusive(path: Path, data: bytes) -> None:
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(number, "wb") as file:
        file.write(data)
