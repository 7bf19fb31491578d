"""The nodes of this session, their links whole before each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.active.netlab import NetLab, net_lab, torch_python
from tests.conftest import Lab


@pytest.fixture(scope="session")
def _net(lab: Lab) -> Iterator[NetLab]:
    lab.sshd()
    lab.netns()
    lab.programs("tc", "tc", package="iproute2")
    lab.require("torch", torch_python() is not None, "pip install gpuconsole[torch]")
    with net_lab(3) as found:
        yield found


@pytest.fixture
def net(_net: NetLab) -> Iterator[NetLab]:
    """n1 to n3, nothing running, no link slowed, no campaign kept."""
    _net.reset()
    yield _net
    _net.reset()
