"""The site's word goes before peers and bus: fewer by design is no fault."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from probes.event import Severity
from probes.rules import load_rules
from tests.scenes.rig import Scene


@pytest.fixture
def stated(scenes: Callable[..., Scene], tmp_path: Path) -> Callable[[str], Scene]:
    """A scene under an overlay."""

    def make(text: str) -> Scene:
        path = tmp_path / "site.yaml"
        path.write_text(text)
        scene = scenes()
        scene.fleet.rules = load_rules(path)
        return scene

    return make


def lose(scene: Scene, index: int) -> None:
    """A card leaves NVML and the bus."""
    pci = scene.state["gpus"].pop(index)["pci"]
    scene.save()
    scene.remove(f"sys/bus/pci/devices/{pci}")


def test_seven_of_eight_by_design(stated: Callable[[str], Scene]) -> None:
    scene = stated("roles: {compute: {gpu_count: 7}}\n")
    scene.interval()
    lose(scene, 3)
    scene.reboot()
    scene.interval(2)
    assert scene.rules() == set()


def test_fewer_than_the_site_says_is_told_once(stated: Callable[[str], Scene]) -> None:
    scene = stated("roles: {compute: {gpu_count: 8}}\n")
    scene.interval()
    lose(scene, 3)
    scene.interval(2)
    told = scene.rule("gpu.count")
    assert told.severity is Severity.CRITICAL
    assert "site overlay says 8" in told.source
    assert "site.yaml:1" in told.source
    assert "site.expected" not in {f.rule for f in scene.findings()}


def test_without_a_word_of_the_site_the_peers_count(scenes: Callable[..., Scene]) -> None:
    scene = scenes()
    scene.interval()
    lose(scene, 3)
    scene.interval(2)
    assert "site" not in scene.rule("gpu.count").source
    assert scene.rule("gpu.count").hard
