"""A new file, whole or not at all, readable by its owner only."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from console.settings import private
from inventory.errors import UsageError


def write_new(path: Path, text: str) -> None:
    """Write an inventory that our own reader accepts. Raises UsageError for one that it refuses or
    a file that is there already, OSError where the folder cannot be written; nothing is left then.
    """
    from inventory.hosts import load

    folder = private(path.parent)
    # mkstemp's file is 0600 from the start.
    number, name = tempfile.mkstemp(prefix=".inventory-", suffix=".yaml", dir=folder)
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        load(Path(name))
        # A link, unlike a rename, never takes the place of a file.
        os.link(name, path)
    except FileExistsError:
        raise UsageError("it exists already", where=str(path), instead="read it first") from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
