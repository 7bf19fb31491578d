"""What real tools print where they can tell nothing: that is unknown, never ok."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from probes.event import Severity
from tests.conftest import Lab
from tests.diagnose.support import ticket

PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def printed(*argv: str) -> str:
    done = subprocess.run(
        argv, capture_output=True, text=True, env={**os.environ, "PATH": PATH}, timeout=250
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("options", [("-a",), ("-j", "-a"), ("-H", "-d", "nvme")])
def test_a_disk_that_smartctl_cannot_read(
    lab: Lab, tmp_path: Path, options: tuple[str, ...]
) -> None:
    lab.programs("SMART", "smartctl", package="smartmontools")
    file = tmp_path / "disk"
    file.write_bytes(bytes(1 << 20))
    said = printed("smartctl", *options, str(file))
    assert "smartctl" in said
    assert ticket(said, "host").verdict is Severity.UNKNOWN


def test_systemctl_without_a_systemd_to_ask(lab: Lab) -> None:
    lab.programs("systemd", "systemctl", package="systemd")
    said = printed("systemctl", "show", "--property=Id,ActiveState", "slurmd.service")
    if "ActiveState=" in said:
        pytest.skip("this machine runs systemd")
    assert "systemd" in said or "bus" in said
    assert ticket(said).verdict is Severity.UNKNOWN
