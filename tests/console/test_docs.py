"""What is made from the program is what the program says now; the manual page is clean."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from console.cli import cli
from console.tui.commands import COMMANDS
from docs import HERE, cheatsheet, manual
from tests.conftest import Lab

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("name", "made"),
    [(manual.NAME, manual.page), (cheatsheet.NAME, cheatsheet.sheet)],
    ids=["manual", "cheatsheet"],
)
def test_what_is_kept_is_what_the_program_says(name: str, made: Callable[[], str]) -> None:
    assert (HERE / name).read_text(encoding="utf-8") == made(), "python -m docs writes it again"


def test_the_manual_names_every_command_option_and_key() -> None:
    text = manual.page().replace("\\-", "-").replace("\\e", "\\")
    for name, command in cli.commands.items():
        assert f".SS {name}" in text
        for parameter in command.params:
            if parameter.param_type_name == "option" and not getattr(parameter, "hidden", False):
                assert any(option in text for option in parameter.opts), parameter.opts
    assert all(f".B {command.shown}\n" in text for command in COMMANDS)


def test_the_manual_is_clean(lab: Lab) -> None:
    lab.programs("mandoc", "mandoc", package="mandoc")
    done = subprocess.run(
        ["mandoc", "-T", "lint", "-W", "style", str(HERE / manual.NAME)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == ""
    assert done.returncode == 0


def test_every_key_of_the_cheat_sheets_tasks_is_a_key() -> None:
    keys = {command.shown for command in COMMANDS} | {"y", "I"}
    for task, pressed in cheatsheet.TASKS:
        assert set(pressed.replace("(", "").replace(")", "").split("`")[1::2]) <= keys, task


def test_the_wheel_brings_the_manual(tmp_path: Path) -> None:
    """Where `man` finds it, and nothing of the documents' own code."""
    from hatchling.builders.wheel import WheelBuilder

    (made,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    names = zipfile.ZipFile(made).namelist()
    assert [n for n in names if n.endswith("/share/man/man1/gpuconsole.1")]
    assert not [n for n in names if n.startswith(("docs/", "tests/"))]
    shutil.rmtree(tmp_path)
