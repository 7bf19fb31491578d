"""What the site says about NVLinks outranks siblings, peers and the catalogue."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.event import Severity
from probes.rules import load_rules
from tests.judging.build import SLOTS, Built, by_rule, findings, nvlink


def some_down(up: int) -> Built:
    """Every GPU has so many of its 18 links up."""
    node = Built()
    for index, slot in enumerate(SLOTS):
        down = {f"link{link}_up": False for link in range(up, 18)}
        node.put("nvlink", slot, index=index, **nvlink(**down))
    return node


@pytest.mark.parametrize(("links", "up", "found"), [(16, 12, True), (12, 12, False)])
def test_the_sites_figure(tmp_path: Path, links: int, up: int, found: bool) -> None:
    overlay = tmp_path / "site.yaml"
    overlay.write_text(f"hardware:\n  H100-SXM5-80: {{nvlink_links: {links}}}\n", encoding="utf-8")
    node = some_down(up)
    said = by_rule(findings(node, [some_down(up) for _ in range(3)], load_rules(overlay)))
    assert ("nvlink.down" in said) is found
    if found:
        assert said["nvlink.down"].severity is Severity.CRITICAL
        assert f"{up} of {links} NVLinks are up" in said["nvlink.down"].say
        assert str(overlay) in said["nvlink.down"].source
    assert "nvlink.fewer" not in said


def test_a_site_that_sets_something_else_leaves_links_to_the_catalogue(tmp_path: Path) -> None:
    overlay = tmp_path / "site.yaml"
    overlay.write_text("hardware:\n  H100-SXM5-80: {tdp_w: 650}\n", encoding="utf-8")
    node = some_down(12)
    said = by_rule(findings(node, [some_down(12) for _ in range(3)], load_rules(overlay)))
    assert said["nvlink.fewer"].severity is Severity.INFO
    assert "nvlink.down" not in said
