"""Each test has places of its own for its demos, so that they never meet another demo here."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.demo import scratch


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The temp directory and the place in memory; gives the latter."""
    base = scratch.MEMORY if scratch.MEMORY.is_dir() else tmp_path
    memory = Path(tempfile.mkdtemp(prefix="gpuconsole-test-", dir=base))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(scratch, "MEMORY", memory)
    yield memory
    shutil.rmtree(memory, ignore_errors=True)
