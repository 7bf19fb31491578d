"""Tab in real shells: the scripts that `gpuconsole completion` prints, and what they offer."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from console.completion import SHELLS
from tests.conftest import Lab

ROOT = Path(__file__).parents[2]
INVENTORY = "groups:\n  h100: {hosts: 'gpu[001-003]'}\n  a100: {hosts: 'old[1-2]'}\n"

Shell = Callable[[str, str], str]


@pytest.fixture
def shell(tmp_path: Path, lab: Lab) -> Shell:
    """Runs a line in a shell whose PATH has the program and whose user has an inventory."""
    program = tmp_path / "bin" / "gpuconsole"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nfrom console.start import main\nmain()\n")
    program.chmod(0o755)
    config = tmp_path / "config" / "gpuconsole" / "inventory.yaml"
    config.parent.mkdir(parents=True)
    config.write_text(INVENTORY)
    env = {
        **os.environ,
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "HOME": str(tmp_path),
    }

    def run(name: str, line: str) -> str:
        lab.programs(name, name, package=name)
        done = subprocess.run(
            [name, "-c", line], env=env, capture_output=True, text=True, timeout=250, check=False
        )
        assert done.stderr == ""
        return done.stdout

    return run


def bash(shell: Shell, *words: str) -> list[str]:
    """What bash would offer for the last word."""
    typed = " ".join(f"'{word}'" for word in words)
    return shell(
        "bash",
        'eval "$(gpuconsole completion bash)"; '
        f"COMP_WORDS=(gpuconsole {typed}); COMP_CWORD={len(words)}; "
        "$(complete -p gpuconsole | sed 's/.*-F \\([^ ]*\\) .*/\\1/') gpuconsole; "
        'printf "%s\\n" "${COMPREPLY[@]}"',
    ).split()


def test_bash_offers_commands_options_hosts_groups_and_rules(shell: Shell) -> None:
    assert bash(shell, "dr") == ["drain", "drained"]
    assert bash(shell, "--read") == ["--read-only"]
    assert bash(shell, "drain", "gpu") == ["gpu001", "gpu002", "gpu003"]
    assert bash(shell, "drain", "gpu001,o") == ["gpu001,old1", "gpu001,old2"]
    assert bash(shell, "-w", "old") == ["old1", "old2"]
    assert bash(shell, "-g", "") == ["a100", "h100"]
    assert bash(shell, "test", "gpu001", "--level", "ra") == ["rails"]
    assert "gpu.lost" in bash(shell, "explain", "gpu.")


def test_no_scheduler_is_asked_and_a_broken_file_is_silent(shell: Shell, tmp_path: Path) -> None:
    """`-i slurm:` offers nothing instead of asking; the shell shows no error of ours."""
    assert bash(shell, "-i", "slurm:", "drain", "gpu") == []
    broken = tmp_path / "broken.yaml"
    broken.write_text("hots: gpu1\n")
    assert bash(shell, "-i", str(broken), "drain", "gpu") == []


def test_fish_offers_the_same(shell: Shell) -> None:
    def fish(line: str) -> list[str]:
        told = shell(
            "fish", f"gpuconsole completion fish | source; complete -C 'gpuconsole {line}'"
        )
        return [row.split("\t")[0] for row in told.splitlines()]

    assert fish("dr") == ["drain", "drained"]
    assert fish("drain gpu") == ["gpu001", "gpu002", "gpu003"]
    assert fish("-g h") == ["h100"]


def test_zsh_takes_the_script(shell: Shell) -> None:
    """Offering needs a line editor; what it would ask is the same program."""
    told = shell(
        "zsh",
        "autoload -U compinit; compinit -u -D; "
        'eval "$(gpuconsole completion zsh)"; print ${_comps[gpuconsole]}; '
        "COMP_WORDS='gpuconsole drain gpu' COMP_CWORD=2 "
        "_GPUCONSOLE_COMPLETE=zsh_complete gpuconsole",
    )
    assert told.splitlines()[0] == "_gpuconsole_completion"
    assert "gpu003" in told.split()


@pytest.mark.parametrize("name", SHELLS)
def test_the_script_names_the_program_only(shell: Shell, name: str) -> None:
    """It is kept in a file and used elsewhere: nothing of this machine is in it."""
    text = shell("bash", f"gpuconsole completion {name}")
    assert "gpuconsole" in text
    assert str(ROOT) not in text
    assert sys.prefix not in text
