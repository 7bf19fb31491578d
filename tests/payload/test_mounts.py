"""Real mounts: a home that cannot be written, a /tmp that runs nothing; what was left behind."""

from __future__ import annotations

import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from inventory.node import Node
from probes import catalog
from tests.conftest import Lab
from tests.payload.rig import AgentProcess, config, kind, sample

pytestmark = pytest.mark.netns

PYTHON = "/usr/bin/python3"
"""The system's: one below /home or /tmp would be hidden by the mounts of the test."""

NOISY = """
echo "WELCOME to $HOME"
echo '{"k":"hello","v":1,"host":"forged"}'
"""
"""Start-up files that print, in the words that all shells share."""

SCRIPT = r"""
set -e
for place in /home /var/tmp /dev/shm /run; do mount -t tmpfs none $place; done
mount -t tmpfs -o noexec none /tmp
mkdir -p /home/op/.config/fish
for file in .bashrc .cshrc .tcshrc .config/fish/config.fish; do
    printf '%s\n' "$NOISY" > "/home/op/$file"
done
printf '#!/bin/sh\n' > /tmp/program
chmod 755 /tmp/program
mount -o remount,ro /home
mount -o remount,ro,bind /
if touch /home/op/written || touch /written || /tmp/program; then exit 99; fi 2>/dev/null
export HOME=/home/op BASH_ENV=/home/op/.bashrc TMPDIR=/tmp PATH=/usr/sbin:/usr/bin:/sbin:/bin
unset XDG_CONFIG_HOME XDG_STATE_HOME XDG_CACHE_HOME XDG_DATA_HOME XDG_RUNTIME_DIR
cd
trees() { find /home /tmp /var/tmp /dev/shm /run -printf 'TREE '"$1"' %p %y %s %i %T@\n' >&2; }
trees before
"$1" -c "$2"
trees after
"""
"""What runs in a mount namespace of its own: $1 is the login shell, $2 what sshd would hand it.

Everything that can be written lies on fresh file systems, whose trees go to stderr before and after
with sizes, inodes and times. Exit 99 when the mounts are not what the test is about.
"""


@pytest.fixture(params=["bash", "csh", "tcsh", "fish"])
def wrapped_shell(request: pytest.FixtureRequest, lab: Lab, tmp_path: Path) -> str:
    """A program that is called as the login shell is, and calls it below the mounts."""
    lab.root("mounts")
    lab.programs("mounts", "unshare", "mount", package="util-linux mount")
    made = subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True)
    lab.require("mounts", made.returncode == 0, made.stderr.decode(errors="replace"))
    lab.require("mounts", Path(PYTHON).exists(), f"{PYTHON} is not there; apt install python3")
    path = shutil.which(request.param)
    lab.require("login shells", path is not None, f"apt install {request.param}")
    script, noisy, wrapper = (tmp_path / name for name in ("script", "noisy", "wrapper"))
    script.write_text(SCRIPT)
    noisy.write_text(NOISY)
    call = f'exec unshare -m sh -c "$(cat {script})" sh {path} "$2"'
    wrapper.write_text(f'#!/bin/sh\nNOISY="$(cat {noisy})" {call}\n')
    wrapper.chmod(stat.S_IRWXU)
    return str(wrapper)


def test_nothing_is_needed_of_the_disk_and_nothing_is_left_on_it(wrapped_shell: str) -> None:
    settings = config(*catalog.PROBES, mode="pass", window_s=0.05, deadline_s=30.0)
    with AgentProcess(settings, shell=wrapped_shell, node=Node(name="n")) as agent:
        said = agent.collect(lambda found: any(map(kind("end"), found)))
        assert agent.finish() == 0, agent.errors
    assert said[0]["k"] == "hello"
    assert said[0]["executable"] == PYTHON
    assert {f["p"] for f in said if f["k"] == "s"} == set(catalog.PROBES)
    assert any(map(sample("host"), said))
    assert b"WELCOME to /home/op\n" in agent.noise  # the start-up file was read, and it is noise
    before, after = (tree(agent.errors, which) for which in ("before", "after"))
    assert before == after
    assert any(line.startswith("/home/op/.bashrc ") for line in before)


def tree(errors: bytes, which: str) -> list[str]:
    """One listing of stderr, in order."""
    head = f"TREE {which} "
    lines = errors.decode(errors="replace").splitlines()
    return sorted(line[len(head) :] for line in lines if line.startswith(head))
