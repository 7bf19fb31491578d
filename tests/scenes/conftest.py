"""Scenes as fixtures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.scenes.rig import Scene


@pytest.fixture
def scenes(tmp_path: Path) -> Iterator[Callable[..., Scene]]:
    """Make scenes: scenes(), scenes(gpus=0, peers=0, role="cpu")."""
    with ExitStack() as stack:
        made: list[Scene] = []

        def make(**settings: Any) -> Scene:
            scene = Scene(tmp_path / f"scene{len(made)}", **settings)
            made.append(stack.enter_context(scene))
            return scene

        yield make


@pytest.fixture
def scene(scenes: Callable[..., Scene]) -> Scene:
    """Eight busy H100 in good health, three peers like it."""
    return scenes()
