"""What a run leaves in the places for temporary files, where tests beside it have theirs too."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.payload.rig import until


def temporary() -> set[Path]:
    """Files and folders of the product in /dev/shm and the temporary folder."""
    return {
        path
        for folder in ("/dev/shm", tempfile.gettempdir())
        for path in Path(folder).glob("gpuconsole*")
        if not path.name.startswith(("gpuconsole-demo", "gpuconsole-lab", "gpuconsole-test"))
    }


def left_since(before: set[Path]) -> set[Path]:
    """What has come since and stays; what a neighbour holds for a moment goes away."""
    new = temporary() - before
    until(lambda: not any(path.exists() for path in new))
    return {path for path in new if path.exists()}
