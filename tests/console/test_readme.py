"""The README's promises that can be checked: its two lines, its tables of commands and keys."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from console import policy, preferences
from console.cli import cli
from console.tui import keymap
from docs import cheatsheet
from inventory.hosts import load

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_first_screen_has_exactly_two_lines_to_copy() -> None:
    first = "\n".join(README.splitlines()[:24])
    lines = [line.strip() for line in first.splitlines() if line.startswith("    ")]
    assert len(lines) == 2
    assert lines[0].endswith("gpuconsole --demo")
    assert lines[1].endswith("pytest")


def test_ci_runs_the_readmes_own_test_line() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "README.md" in script
    assert "GPUCONSOLE_LAB=required" in script


def test_every_command_is_in_the_table_and_the_other_way_round() -> None:
    table = set(re.findall(r"^\| `gpuconsole ([a-z]+)", README, re.MULTILINE))
    assert table == set(cli.commands)


def test_every_key_is_in_the_table_and_the_other_way_round() -> None:
    keys = README.partition("## Keys")[2].partition("The filter after")[0]
    assert keys.strip() == cheatsheet.keys(), "python -m docs writes it again"


def test_every_picture_is_there_and_small_and_fetches_nothing() -> None:
    """An SVG of a screen; the README is read where nothing else may be loaded."""
    names = re.findall(r"!\[[^]]+\]\((docs/\w+\.svg)\)", README)
    assert len(names) >= 2
    for name in names:
        text = (ROOT / name).read_text(encoding="utf-8")
        assert text.lstrip().startswith("<svg")
        assert len(text) < 200_000
        assert not re.findall(r"url\(.?https?:|href=.https?:", text)


def test_every_option_the_readme_names_exists() -> None:
    known = {name for parameter in cli.params for name in parameter.opts}
    for command in cli.commands.values():
        known |= {name for parameter in command.params for name in parameter.opts}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", README)) - {"--version"}
    assert named <= known


BLOCKS = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
POLICIES = [block for block in BLOCKS if block.startswith("automatic:")]
LIKES = [block for block in BLOCKS if block.startswith("theme:")]


@pytest.mark.parametrize("block", [block for block in BLOCKS if block not in POLICIES + LIKES])
def test_every_inventory_shown_is_one(block: str, tmp_path: Path) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text(block)
    assert len(load(path).nodes) in (64, 68)


def test_the_policy_shown_is_one(tmp_path: Path) -> None:
    (block,) = POLICIES
    path = tmp_path / "policy.yaml"
    path.write_text(block)
    found = policy.read(path, {os.getuid()})
    assert found.roles is not None
    assert found.automatic is not None


def test_the_preferences_shown_are_some(tmp_path: Path) -> None:
    (block,) = LIKES
    path = tmp_path / "console.yaml"
    path.write_text(block)
    found = preferences.read(path)
    assert (found.theme, found.language, found.start) == ("colour-blind", "zh", "findings")
    assert keymap.keymap(found.keys)["pause"] == ("f5",)
