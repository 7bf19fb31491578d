"""One fault, one finding: what two checks see is told once, and nothing of it is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from probes.event import Finding, Severity
from probes.ledger import Ledger
from tests.judging.build import NOW, RULES, SLOTS, Built, by_rule, findings

EDAC = "EDAC MC1: 1 UE memory read error on CPU_SrcID#1_MC#0_Chan#0_DIMM#0 (channel:0 slot:0)"
MOUNT: dict[str, Any] = {"mounted": True, "fstype": "ext4", "network": False, "expected": True}


def memory(node: Built) -> None:
    node.put("host_slow", "mc1", ce=0, ue=1)
    node.kernel(EDAC)


def read_only(node: Built) -> None:
    node.put("storage", "/scratch", source="/dev/nvme1n1p1", read_only=True,
             kernel_stopped_writing=True, **MOUNT)  # fmt: skip
    node.kernel("EXT4-fs (nvme1n1p1): Remounting filesystem read-only")


def server(node: Built) -> None:
    node.put("storage", "/data", source="192.0.2.40:/data", hung_s=45.0,
             **{**MOUNT, "fstype": "nfs4", "network": True})  # fmt: skip
    node.kernel("nfs: server 192.0.2.40 not responding, still trying")


def array(node: Built) -> None:
    node.put("storage", "md0", raid_level="raid1", raid_disks=2, raid_working=1)
    node.kernel("md/raid1:md0: Disk failure on sdb1, disabling device.")


def disk(node: Built) -> None:
    node.put("nvme", "nvme3", state="dead", model="M")
    node.kernel("nvme nvme3: Removing after probe failure status: -19")


def card(node: Built) -> None:
    node.put("gpu", SLOTS[2], index=2, nvml_rc=15, nvml_call="nvmlDeviceGetTemperature")
    rows: list[Any] = [{"pci": s, "in_nvml": True, "config_ok": s != SLOTS[2]} for s in SLOTS]
    before = node.facts.get("inventory")
    assert before is not None
    node.put("inventory", "", rows=rows, **before.values)


def test_a_lost_card_whose_config_space_is_dead_is_one_fault() -> None:
    node = Built()
    card(node)
    found = by_rule(findings(node))
    assert set(found) == {"gpu.lost"}
    assert f"{SLOTS[2]} config space reads ff" in found["gpu.lost"].evidence


@pytest.mark.parametrize(
    ("fault", "told", "not_told"),
    [
        (memory, "host.edac_ue", "host.hardware_error"),
        (read_only, "storage.read_only", "storage.filesystem"),
        (server, "storage.hung", "storage.nfs"),
        (array, "disk.raid_degraded", "storage.disk"),
        (disk, "nvme.dead", "storage.nvme"),
    ],
)
def test_the_reading_speaks_and_the_line_is_its_evidence(
    fault: Callable[[Built], None], told: str, not_told: str
) -> None:
    node = Built()
    fault(node)
    found = by_rule(findings(node))
    assert told in found
    assert not_told not in found
    (line,) = [str(row["text"]) for row in node.facts.kernel]
    assert line in found[told].evidence


def test_another_disk_or_server_is_another_fault() -> None:
    node = Built()
    read_only(node)
    node.kernel(
        "EXT4-fs (nvme1n1p1): Remounting filesystem read-only",
        "EXT4-fs (nvme2n1p1): Remounting filesystem read-only",
    )
    found = [(f.rule, f.device) for f in findings(node)]
    assert ("storage.filesystem", "nvme2n1p1") in found
    assert ("storage.filesystem", "nvme1n1p1") not in found


def test_a_milder_reading_hides_no_worse_line() -> None:
    node = Built()
    server(node)
    node.change("storage", "/data", hung_s=10.0)
    found = by_rule(findings(node))
    assert found["storage.hung"].severity is Severity.WARN
    assert found["storage.nfs"].severity is Severity.CRITICAL


def test_a_finding_that_was_shown_hands_over_without_a_gap() -> None:
    """The log line came first; a warning would else have to be seen twice."""
    line = Finding(rule="storage.disk", severity=Severity.WARN, node="n", device="md0", label="md0",
                   say="line", evidence=("a line",))  # fmt: skip
    reading = Finding(rule="disk.raid_degraded", severity=Severity.WARN, node="n", device="md0",
                      label="md0", say="1 of 2 disks", evidence=("reading", "a line"))  # fmt: skip
    ledger = Ledger(RULES)
    for at in (NOW, NOW + 15):
        ledger.update("n", [line], at, "b1")
    shown = ledger.update("n", [reading], NOW + 30, "b1")
    assert [(f.rule, f.since) for f in shown] == [("disk.raid_degraded", NOW)]
    assert ledger.take_ended() == []
