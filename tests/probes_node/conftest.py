"""Machines for the tests of the node's hardware probes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.probes_node.rig import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Eight healthy H100 under this interpreter."""
    return Machine(tmp_path / "node", sys.executable)


@pytest.fixture
def each_machine(tmp_path: Path, node_python: str) -> Machine:
    """Eight healthy H100 under each Python a node may have."""
    return Machine(tmp_path / "node", node_python)
