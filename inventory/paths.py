"""Paths as an operator writes them: none of them makes us fail in a way that names no file."""

from __future__ import annotations

import os
from pathlib import Path


def expanded(written: str) -> Path:
    """`~` and `~name` as a shell reads them; a name without an account stays as written.

    Path.expanduser raises RuntimeError there.
    """
    return Path(os.path.expanduser(written))


def is_file(path: Path) -> bool:
    """Whether a regular file is there. Path.is_file raises OSError for a name that is too long."""
    return os.path.isfile(path)


def is_folder(path: Path) -> bool:
    """Whether a folder is there; never raises, unlike Path.is_dir."""
    return os.path.isdir(path)


def is_written(path: Path) -> bool:
    """Whether something has this name, readable or not: only its certain absence is a no."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True
