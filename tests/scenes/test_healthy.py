"""A healthy node stays healthy, and the rig can tell a sick one."""

from __future__ import annotations

from tests.scenes.rig import Scene


def test_a_busy_hgx_node(scene: Scene) -> None:
    scene.interval(4)
    assert scene.rules() == set()
    assert len([d for d, _ in scene.fleet.nodes["gpu001"].devices("gpu")]) == 8


def test_a_fault_is_found_within_two_intervals(scene: Scene) -> None:
    scene.interval()
    scene.counter("mlx5_3/1", "symbol_error", 900)
    scene.kernel("NVRM: Xid (PCI:0000:43:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen "
                 "off the bus.")  # fmt: skip
    scene.interval(2)
    assert "xid.79" in scene.rules()
    assert scene.rule("xid.79").device == "0000:43:00.0"
