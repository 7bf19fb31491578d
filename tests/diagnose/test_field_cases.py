"""Field cases of hosts, NCCL, schedulers, logins: verdict, drain advice, what is not said."""

# ruff: noqa: E501 - pasted output is as wide as its program prints it

from __future__ import annotations

import pytest

from console.output import exit_code
from probes.event import Severity
from tests.diagnose.support import case, demand, of_kind, severity, words

NAMES = of_kind(
    "host", "nccl-tests", "slurm", "kubernetes", "inventory", "ssh-config", "ssh-transport"
)
MUST_NOT_SAY = {
    "host-nvidia-smi-d-state": ("kill -9",),
    "host-lustre-nfs-hung": ("GPU hang", "driver hang"),
    "nccl-tests-single-rank-zero-busbw": ("263172", "0 GB/s"),
    "nccl-tests-segv-backtrace": ("0 GB/s", "slow"),
    "nccl-tests-tagged-mpi-output": ("host key", "ncclNetPlugin", "OpenFabrics"),
    "slurm-compound-states": ("gpu-a05 is down", "gpu-a01 idle", "free"),
    "slurm-kill-task-failed-epilog": ("GPU fault",),
    "slurm-existing-drain-running-job": ("free to reboot",),
    "kubernetes-gpu-accounting-of-pods": ("-2", "18446744073709551614", "old-job"),
    "kubernetes-pdb-blocked-eviction": (": drained", "--force"),
    "ssh-transport-controlpath-too-long": ("unreachable", "does not answer"),
    "ssh-transport-host-key-changed": ("StrictHostKeyChecking no", "hardware"),
    "ssh-transport-pam-slurm-adopt": ("unreachable", "down", "srun"),
    "ssh-config-nested-include-glob": ("unreachable",),
}


def test_every_kind_has_cases() -> None:
    assert len(NAMES) >= 24


@pytest.mark.parametrize("name", NAMES)
def test_the_verdict_is_the_cases(name: str) -> None:
    diagnosis = case(name)
    assert diagnosis.verdict is severity(name)
    assert int(exit_code(diagnosis.verdict)) == {
        Severity.OK: 0, Severity.INFO: 0, Severity.WARN: 1, Severity.CRITICAL: 2, Severity.UNKNOWN: 3,
    }[severity(name)]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_the_drain_advice_is_the_cases(name: str) -> None:
    wanted, given = demand(name)["drain"], case(name).drain
    if wanted.startswith("now"):
        assert given == "now"
    elif wanted.startswith("after"):
        assert given == wanted
    elif wanted.startswith("depends"):
        assert given.startswith("unknown: NVML")
    else:
        assert given.startswith("no")


@pytest.mark.parametrize("name", NAMES)
def test_what_must_not_be_said(name: str) -> None:
    said = words(case(name)).lower()
    for phrase in MUST_NOT_SAY.get(name, ()):
        assert phrase.lower() not in said


@pytest.mark.parametrize("name", NAMES)
def test_findings_are_complete(name: str) -> None:
    """Evidence is in the input; each finding says what to do and who says so."""
    from tests.diagnose.support import findings, path

    raw = path(name).read_text(encoding="utf-8")
    for finding in findings(case(name)):
        assert finding.evidence
        assert finding.next_step
        assert finding.source
        assert finding.node == "" or finding.node in raw
