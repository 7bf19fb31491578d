"""Tests that start services and watch terminals are kept in one process by pytest-xdist."""

from __future__ import annotations

import pytest


def test_services_share_a_process(request: pytest.FixtureRequest) -> None:
    """Two at a time starve each other's agents and hear each other's datagrams."""
    if request.config.getoption("loadgroup", default=False):
        assert request.node.nodeid.endswith("@services")
