"""What would be noticed an hour too late is refused before anything runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from console.headless_test import How, check_page
from inventory.errors import UsageError


def test_a_page_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    for bad in (tmp_path / "none" / "x.html", tmp_path):
        with pytest.raises(UsageError, match="--html"):
            check_page(How(html=bad))


def test_looking_leaves_nothing_behind_and_spoils_nothing(tmp_path: Path) -> None:
    new, old = tmp_path / "new.html", tmp_path / "old.html"
    old.write_text("kept")
    check_page(How(html=new))
    check_page(How(html=old))
    assert (new.exists(), old.read_text()) == (False, "kept")


def test_a_dry_run_does_not_look(tmp_path: Path) -> None:
    check_page(How(html=tmp_path / "none" / "x.html", dry_run=True))
    assert os.listdir(tmp_path) == []
