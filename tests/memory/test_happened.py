"""What began and ended on all nodes, for the log: out of a file that the memory wrote."""

from __future__ import annotations

from pathlib import Path

from inventory.scheduler import Allocation
from probes.event import Sample, Severity
from tests.memory.build import T0, Clock, finding, memory, over


def allocation(at: float, state: str, reason: str = "") -> Allocation:
    return Allocation(
        node="n2", at=at, scheduler="slurm", state=state, reason=reason, reason_by="mara"
    )


def test_newest_first_and_bounded(tmp_path: Path) -> None:
    clock = Clock(T0)
    ours = memory(tmp_path / "memory.sqlite", clock)
    told = finding("thermal.margin", severity=Severity.WARN)
    ours.tap(told)
    ours.tap(allocation(T0, "drained", "bad DIMM"))
    ours.flush()
    clock.now = T0 + 60
    ours.tap(over(told))
    ours.tap(allocation(T0 + 60, "idle"))
    ours.flush()
    told_all = ours.happened(T0 - 1, T0 + 100, 10)
    assert {(one.node, one.what) for one in told_all[:2]} == {("n1", "over"), ("n2", "back")}
    assert {(one.node, one.what, one.severity) for one in told_all[2:]} == {
        ("n1", "found", Severity.WARN), ("n2", "out", Severity.OK),
    }  # fmt: skip
    (out,) = [one for one in told_all if one.what == "out"]
    assert (out.rule, out.label, out.say) == ("drained", "mara", "bad DIMM")
    assert [one.at for one in told_all] == sorted((one.at for one in told_all), reverse=True)
    assert ours.happened(T0 - 1, T0 + 100, 1) == told_all[:1]
    assert ours.happened(T0 + 61, T0 + 100, 10) == []
    assert {one.what for one in ours.happened(T0 - 1, T0 + 30, 10)} == {"found", "out"}
    ours.close()


def test_the_first_boot_seen_is_no_reboot(tmp_path: Path) -> None:
    clock = Clock(T0)
    ours = memory(tmp_path / "memory.sqlite", clock)
    for after, boot in ((0, "a"), (600, "b")):
        clock.now = T0 + after
        ours.tap(Sample(node="n1", probe="hello", at=clock.now, values={"boot_id": boot}))
        ours.flush()
    boots = [one for one in ours.happened(T0 - 1, T0 + 999, 10) if one.what == "boot"]
    assert [(one.node, one.at) for one in boots] == [("n1", T0 + 600)]
    ours.close()


def test_without_a_file_nothing_happened(tmp_path: Path) -> None:
    assert memory(tmp_path / "none.sqlite", keeps=False).happened(0.0, T0, 10) == []
