"""Fixtures of the SSH tests: a lab with real servers, faulty endpoints, scripted agents."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.conftest import Lab as Gate
from tests.ssh.agents import Agents
from tests.ssh.faulty import Faulty
from tests.ssh.lab import Lab


@pytest.fixture
def sshd(lab: Gate) -> Iterator[Lab]:
    """A fresh laboratory of real OpenSSH servers; empty at first."""
    lab.sshd()
    found = Lab()
    try:
        yield found
    finally:
        found.close()


@pytest.fixture
async def faulty() -> AsyncIterator[Faulty]:
    """Endpoints that misbehave."""
    found = Faulty()
    try:
        yield found
    finally:
        await found.close()


@pytest.fixture
def agents(sshd: Lab) -> Agents:
    """Scripted agents that stand in for a node's interpreter."""
    return Agents(sshd)
