"""Fixtures shared by all tests: the lab gate for real services, and real interpreters."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from hypothesis import settings

# A shell's background job, and so a CI run, has SIGINT ignored, and children would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes depends on who else uses the machine: no timing asserts.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

LAB_REQUIRED = os.environ.get("GPUCONSOLE_LAB") == "required"
"""Set by CI: a missing service is then a failure, not a skip."""


LONGEST_ID = 500
"""Characters of a parameter that are its name."""


def pytest_make_parametrize_id(val: object) -> str | None:
    """A long value's id is in the environment of every child: the kernel takes 128 KiB at most."""
    if isinstance(val, str | bytes) and len(val) > LONGEST_ID:
        return f"{len(val)} long"
    return None


class Lab:
    """Says whether a real service can be used here; skips or fails with the reason."""

    def require(self, what: str, present: bool, reason: str) -> None:
        """Skip when `present` is false; fail instead when the lab is required."""
        if present:
            return
        message = f"{what} is missing: {reason}"
        if LAB_REQUIRED:
            pytest.fail(message)
        pytest.skip(message)

    def programs(self, what: str, *names: str, package: str) -> None:
        """Require programs on PATH (sbin included)."""
        path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/local/sbin"
        missing = [name for name in names if shutil.which(name, path=path) is None]
        self.require(what, not missing, f"{', '.join(missing)} not found; apt install {package}")

    def root(self, what: str) -> None:
        """Require uid 0 (network namespaces, slurmd, munged with private keys)."""
        self.require(what, os.geteuid() == 0, "needs root")

    def sshd(self) -> None:
        """Require a real OpenSSH server."""
        self.programs("sshd", "sshd", "ssh-keygen", "ssh", package="openssh-server openssh-client")

    def slurm(self) -> None:
        """Require a real Slurm controller, node daemon and munge."""
        self.root("slurm")
        self.programs(
            "slurm", "slurmctld", "slurmd", "munged", "scontrol", "sinfo", package="slurm-wlm munge"
        )

    def tmux(self) -> None:
        """Require tmux."""
        self.programs("tmux", "tmux", package="tmux")

    def netns(self) -> None:
        """Require network namespaces."""
        self.root("ip netns")
        self.programs("ip netns", "ip", package="iproute2")
        made = subprocess.run(["unshare", "-n", "true"], check=False, capture_output=True)
        self.require("ip netns", made.returncode == 0, made.stderr.decode(errors="replace"))


@pytest.fixture(scope="session")
def lab() -> Lab:
    """The gate for tests that need a real service."""
    return Lab()


def _pyenv_versions() -> Path:
    root = os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
    return Path(root) / "versions"


def interpreter(version: str) -> str | None:
    """Path of a real Python of this minor version (pyenv, then PATH), or None."""
    for home in sorted(_pyenv_versions().glob(f"{version}.*"), reverse=True):
        if (home / "bin" / "python3").exists():
            return str(home / "bin" / "python3")
    return shutil.which(f"python{version}")


@pytest.fixture(params=["3.6", "3.8", "3.11", "3.13"])
def node_python(request: pytest.FixtureRequest) -> str:
    """Each Python a node may have: the oldest, the newest and two between."""
    path = interpreter(request.param)
    if path is None:
        pytest.skip(f"no Python {request.param} on this machine (pyenv or PATH)")
    return path


@pytest.fixture(autouse=True)
def _own_configuration(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hide the developer's own configuration and state."""
    home = tmp_path_factory.mktemp("xdg")
    for name in ("CONFIG", "STATE", "CACHE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(home / name.lower()))
    monkeypatch.delenv("NO_COLOR", raising=False)
