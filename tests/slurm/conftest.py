"""The private Slurm of this session, and its state before each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from inventory.run import LocalRun
from inventory.slurm import Slurm
from tests.conftest import Lab
from tests.slurm.lab import PATH, SlurmLab, slurm_lab


@pytest.fixture(scope="session")
def _slurm_lab(lab: Lab) -> Iterator[SlurmLab]:
    lab.slurm()
    with slurm_lab(nodes=4) as slurm:
        yield slurm


@pytest.fixture
def cluster(_slurm_lab: SlurmLab) -> SlurmLab:
    """A real Slurm with four idle nodes."""
    _slurm_lab.reset()
    return _slurm_lab


@pytest.fixture
def run(cluster: SlurmLab) -> LocalRun:
    """Runs commands on that cluster."""
    return LocalRun({"SLURM_CONF": str(cluster.conf), "PATH": PATH})


@pytest.fixture
def slurm(run: LocalRun) -> Slurm:
    """The scheduler under test on that cluster."""
    return Slurm(run)
