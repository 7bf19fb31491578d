"""The cluster of this session, and its state before each test."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Lab
from tests.e2e.lab import Site


@pytest.fixture(scope="session")
def _site(lab: Lab) -> Iterator[Site]:
    lab.sshd()
    lab.slurm()
    with tempfile.TemporaryDirectory(prefix="site-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        site = Site(Path(folder))
        try:
            site.up()
            yield site
        finally:
            site.down()


@pytest.fixture
def desk(_site: Site) -> Site:
    """The same for tests that neither change nor look at the cluster's state."""
    return _site


@pytest.fixture
def site(_site: Site) -> Site:
    """Healthy hardware, all nodes idle, an operator who has done nothing yet."""
    _site.reset()
    return _site
