"""Kernel log lines of the field cases, from the node's rows to the verdict."""

from __future__ import annotations

import pytest

from probes.event import Action, Finding, Severity
from tests.cases.support import about, demand, judged, of_kind, severity, text
from tests.judging.build import Built

SLOTLESS = "host-lspci-rev-ff"
PS = "host-nvidia-smi-d-state"
LOGS = [n for n in of_kind("xid", "kernel-log", "host") if n not in (SLOTLESS, PS)]
"""The two others are no kernel log; test_host_cases feeds them."""


def node_with(name: str) -> Built:
    """A healthy node that has these lines in its log, whatever a line's prefix."""
    node = Built()
    for line in text(name).splitlines():
        node.clock = max(node.clock, _seconds(line) + 60.0)
    node.put("host", "", uptime_s=node.clock, load1=3.0, dstate_nvidia=0)
    node.kernel(*text(name).splitlines())
    return node


def _seconds(line: str) -> float:
    _, _, rest = line.partition("[")
    stamp = rest.partition("]")[0].strip()
    return float(stamp) if stamp.replace(".", "").isdigit() else 0.0


def found_in(name: str) -> list[Finding]:
    return judged(node_with(name))[1]


@pytest.mark.parametrize("name", LOGS)
def test_the_verdict_is_the_cases_severity(name: str) -> None:
    assert judged(node_with(name))[0] is severity(name)


@pytest.mark.parametrize("name", LOGS)
def test_what_needs_no_drain_is_not_drained(name: str) -> None:
    """`now` drains or resets; `no` never asks for it."""
    actions = {finding.action for finding in found_in(name)}
    if demand(name)["drain"].startswith("now"):
        assert max(action.rank for action in actions) >= Action.RESET_GPU.rank
    elif demand(name)["drain"].startswith("no"):
        assert max(action.rank for action in actions) < Action.RESET_GPU.rank


def test_seven_readers_saw_one_event() -> None:
    name = "kernel-log-mixed-prefix-dedupe"
    (only,) = found_in(name)
    assert (only.rule, only.count) == ("xid.79", 1)
    assert only.device.startswith(demand(name)["facts"]["pci"])
    assert "gpu-a01" not in only.say
    assert "kern" not in only.say


def test_corrected_pcie_errors_are_counted_by_event_and_rated() -> None:
    name = "kernel-log-aer-corrected-flood"
    found = found_in(name)
    devices = demand(name)["facts"]["by_device"]
    assert {f.device for f in found} == set(devices)
    flood = about(found, "pcie.aer_corrected", "0000:41:00.0")
    assert flood.severity is Severity.WARN
    assert "5 a second" in flood.say
    assert str(devices["0000:41:00.0"]["corrected"]) in flood.say
    assert "drain after running jobs" in flood.next_step
    for device in ("0000:c4:00.0", "0000:00:1c.0"):
        assert about(found, "pcie.aer_corrected", device).severity is Severity.INFO


def test_adapter_faults_without_the_readers_own_noise() -> None:
    found = found_in("kernel-log-mlx5-access-reg-selfinflicted")
    said = {f.say: f.severity for f in found}
    assert not [f for f in found if "0000:d2:00.0" in f.device or "ACCESS_REG" in f.say]
    hot = [say for say in said if "0000:ab:00.0" in say and "too hot" in say]
    flap = [say for say in said if "mlx5_5" in say and "7 s" in say]
    unplugged = [say for say in said if "0000:9a:00.0" in say and "unplugged" in say]
    power = [say for say in said if "0000:5c:00.0" in say and "27" in say]
    assert [len(kind) for kind in (hot, flap, unplugged, power)] == [1, 1, 1, 1], said
    assert said[hot[0]] is Severity.WARN
    assert said[flap[0]] is Severity.WARN, "a flap counts although the port is active again"
    assert said[power[0]] is Severity.INFO


def test_drifting_wall_times_do_not_hide_fresh_events() -> None:
    found = found_in("kernel-log-time-drift")
    assert {f.rule for f in found} == {"xid.94", "kernel_log.mlx5"}
    assert all(f.severity is Severity.WARN and f.count == 1 for f in found)
    assert not [f for f in found if " h ago" in f.say]


def test_lost_storage_is_no_gpu_fault_and_ends_with_its_ok() -> None:
    found = found_in("host-lustre-nfs-hung")
    lustre, nfs = about(found, "storage.lustre"), about(found, "storage.nfs")
    assert (lustre.severity, nfs.severity) == (Severity.CRITICAL, Severity.INFO)
    assert "scratch-OST0003" in lustre.say
    assert "192.0.2.40" in nfs.say
    assert "back" in nfs.say
    hung = about(found, "host.hung_task")
    assert "3301" in hung.say
    assert "120 s" in hung.say
    assert "other nodes" in lustre.next_step
    assert not [f for f in found if f.rule.startswith(("gpu.", "driver.", "xid"))]


def test_exhausted_spare_rows_are_replaced_and_pending_ones_reset() -> None:
    found = found_in("xid-xid64-two-kinds")
    exhausted = about(found, "xid.64", "0000:c3:00")
    pending = about(found, "xid.64", "0000:43:00")
    assert (exhausted.severity, exhausted.action) == (Severity.CRITICAL, Action.REPLACE)
    assert "spare" in exhausted.say
    assert "RMA" in exhausted.next_step
    assert (pending.severity, pending.action) == (Severity.WARN, Action.RESET_GPU)
    assert "RMA" not in pending.next_step


def test_contained_is_one_warning_and_uncontained_is_critical() -> None:
    found = found_in("xid-xid94-contained-triple")
    contained, uncontained = (about(found, f"xid.{c}") for c in (94, 95))
    assert (contained.severity, uncontained.severity) == (Severity.WARN, Severity.CRITICAL)
    assert len([f for f in found if f.device.startswith("0000:52:00")]) == 1
    assert len(contained.evidence) == 4
    assert contained.next_step != uncontained.next_step


def test_one_lost_gpu_is_one_root_cause() -> None:
    (only,) = found_in("xid-xid79-plus-sxid-storm")
    assert (only.rule, only.action) == ("xid.79", Action.DRAIN)
    assert "0000:91:00" in only.say
    assert "witch" not in only.say


def test_an_unknown_xid_names_itself_in_the_next_step() -> None:
    found = found_in("xid-odd-names-and-forms")
    unknown = about(found, "xid.999")
    assert "999" in unknown.next_step
    assert "CODE" not in unknown.next_step
    assert about(found, "xid.119").device == "0009:01:00.0"
    assert [f.rule for f in found if f.severity is Severity.CRITICAL] == ["xid.119"]


def test_one_program_on_four_nodes_is_its_own_fault() -> None:
    name = "xid-app-errors-13-31-fatal-by-mistake"
    by_host: dict[str, list[str]] = {}
    for line in text(name).splitlines():
        host, _, rest = line.partition(" ")
        by_host.setdefault(host, []).append(rest)
    assert len(by_host) == demand(name)["facts"]["hosts"]
    for host, lines in by_host.items():
        node = Built(host)
        node.kernel(*lines)
        grade, found = judged(node)
        assert grade is Severity.INFO
        assert all(demand(name)["facts"]["process"] in f.say for f in found)
        assert all(f.action.rank < Action.RESET_GPU.rank for f in found)


@pytest.mark.parametrize(
    ("word", "grade"), [("Fatal", Severity.CRITICAL), ("Nonfatal", Severity.WARN)]
)
def test_links_of_the_fifth_generation_say_how_bad_it_is(word: str, grade: Severity) -> None:
    node = Built()
    node.kernel(f"NVRM: Xid (PCI:0000:43:00): 149, NETIR_LINK_EVT  {word}   XC0 i0 Link 11 (0x1)")
    assert about(judged(node)[1], "xid.149").severity is grade
