"""Rules that no other scene shows, and the rule that each rule is shown somewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.checks import RULES
from tests.scenes.rig import Scene

ELSEWHERE = {
    "the conversation over SSH (tests/ssh, tests/e2e)": (
        "node.unreachable", "node.auth_failed", "node.host_key", "node.no_python", "node.hung",
        "node.stale", "node.probe_failed", "node.not_read", "host.clock", "internal.judge",
    ),
    "a hung call, which a scene would have to wait for (tests/judging, tests/payload)": (
        "driver.hung", "node.probe_hung", "nvme.hung", "nvlink.unreadable",
    ),
    "the active tests (tests/payload, tests/e2e, tests/judging/test_active_figures.py)": (
        "nccl.wrong", "nccl.busbw", "nccl.nvls", "gpu_test.gemm", "gpu_test.memory",
        "gpu_test.host_copy", "gpu_test.peer_copy", "gpu_test.failed",
    ),
    "another clock or name server than this machine's (tests/judging)": (
        "time.offset", "dns.slow",
    ),
    "merged into the finding that causes it (tests/judging/test_twice.py)": ("gpu.config_space",),
}  # fmt: skip
"""Why a rule has no scene, and where it is shown instead."""


def test_every_rule_has_a_scene_or_a_reason() -> None:
    here = Path(__file__).parent
    shown = "".join(path.read_text(encoding="utf-8") for path in here.glob("test_*.py"))
    without = {rule.id for rule in RULES if shown.count(f'"{rule.id}"') == 0}
    excused = {rule for rules in ELSEWHERE.values() for rule in rules}
    assert without - excused == set()
    assert excused <= {rule.id for rule in RULES}
    everywhere = "".join(
        path.read_text(encoding="utf-8")
        for path in here.parent.glob("*/*.py")
        if path.parent.name != "scenes"
    )
    assert {rule for rule in excused if f'"{rule}"' not in everywhere} == set()


@pytest.mark.parametrize("counter", ["req_transport_retries_exceeded", "max_retry_exceeded"])
def test_retries_that_ran_out(scene: Scene, counter: str) -> None:
    scene.counter("mlx5_2/1", counter, 0)
    scene.interval()
    scene.counter("mlx5_2/1", counter, 4)
    scene.interval(2)
    rule = {"req_transport_retries_exceeded": "ib.req_transport_retries_exceeded",
            "max_retry_exceeded": "ib.max_retry_exceeded"}[counter]  # fmt: skip
    assert scene.rule(rule).device == "mlx5_2/1"
