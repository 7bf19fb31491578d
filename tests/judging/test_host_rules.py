"""Judging of host and storage where a scene would need a larger disk or fleet than there is."""

from __future__ import annotations

from typing import Any

import pytest

from probes.event import Finding, NodeState, Severity
from tests.judging.build import Built, by_rule, findings, fleet

TB = 10**12
GB = 10**9


def storage(node: Built, place: str = "/data", **values: Any) -> Built:
    """A mount of a node."""
    node.put("storage", "", mounts=1)
    mount = {"fstype": "ext4", "source": "/dev/sda1", "network": False, "expected": False,
             "mounted": True, "read_only": False, "kernel_stopped_writing": False}  # fmt: skip
    node.put("storage", place, **{**mount, **values})
    return node


def found(node: Built, others: list[Built] | None = None) -> dict[str, Finding]:
    return by_rule(findings(node, others))


@pytest.mark.parametrize(
    ("used", "free", "severity"),
    [
        (90, 1 * TB, Severity.INFO),
        (96, 0.4 * TB, Severity.INFO),
        (86, 3 * GB, Severity.WARN),
        (99, 0.2 * GB, Severity.CRITICAL),
        (84, 3 * GB, Severity.INFO),
        (79, 3 * GB, None),
    ],
)
def test_a_share_alone_is_no_alarm(used: float, free: float, severity: Severity | None) -> None:
    node = storage(Built(), "/var", used_percent=used, free_bytes=int(free))
    full = found(node).get("storage.full")
    assert (full and full.severity) == severity


def test_a_shared_file_system_is_critical_only_when_it_hangs_long_and_jobs_need_it() -> None:
    peers = [storage(node, network=True, fstype="lustre") for node in fleet(4)[1:]]
    node = storage(Built(), network=True, fstype="lustre", hung_s=10.0)
    assert found(node, peers)["storage.hung"].severity is Severity.WARN
    node = storage(Built(), network=True, fstype="lustre", hung_s=31.0)
    assert found(node, peers)["storage.hung"].severity is Severity.CRITICAL
    assert found(node, [])["storage.hung"].severity is Severity.WARN, "nobody else has it"


@pytest.mark.parametrize(
    ("probe", "device", "rule", "severity"),
    [
        ("storage", "/", "storage.hung", Severity.CRITICAL),
        ("nvme", "nvme3", "nvme.hung", Severity.WARN),
        ("dns", "resolver", "dns.slow", Severity.WARN),
        ("tasks", "name service", "dns.slow", Severity.WARN),
    ],
)
def test_calls_that_the_agent_watches(
    probe: str, device: str, rule: str, severity: Severity
) -> None:
    node = Built()
    node.status(NodeState.HUNG, probe=probe, device=device, since_s=40.0, text="hung in a call")
    one = found(node)[rule]
    assert (one.severity, one.device, one.value) == (severity, device, 40.0)
    node.status(NodeState.UP, probe=probe, device=device)
    assert rule not in found(node)


@pytest.mark.parametrize(
    ("probe", "device", "text"),
    [("services", "systemctl", "hung in systemctl show"), ("host", "", "hung in read /proc/stat"),
     ("infiniband", "mlx5_0/1", "hung in its own code"), ("storage", "", "hung in its own code")],
)  # fmt: skip
def test_a_hung_call_that_no_other_rule_tells(probe: str, device: str, text: str) -> None:
    node = Built()
    node.status(NodeState.HUNG, probe=probe, device=device, since_s=40.0, text=text)
    one = found(node)["node.probe_hung"]
    assert (one.severity, one.evidence) == (Severity.WARN, (f"{probe}: {text}",))
    assert one.say == f"not checked: {one.device} hangs for 40 s"
    assert probe in one.device
    assert "driver.hung" not in found(node)


@pytest.mark.parametrize("probe", ["gpu", "fabric", "nvlink_ends", "topology"])
def test_a_hung_driver_is_told_whichever_probe_met_it(probe: str) -> None:
    node = Built()
    text = "hung in nvmlDeviceGetGpuFabricInfoV for 40 s"
    node.status(NodeState.HUNG, probe=probe, device="0000:1b:00.0", since_s=40.0, text=text)
    assert found(node)["driver.hung"].say == "driver hangs on GPU0 for 40 s"
    assert "node.probe_hung" not in found(node)


def test_a_count_below_zero_is_no_error() -> None:
    node = Built()
    node.put("host_slow", "mc0", ue=-1, ce=-1)
    assert found(node) == {}


def test_two_of_sixteen_lack_a_mount() -> None:
    everyone = [Built(f"gpu{number:03}") for number in range(1, 17)]
    for node in everyone[2:]:
        storage(node)
    for node in everyone[:2]:
        node.put("storage", "", mounts=0)
    for lacking in everyone[:2]:
        others = [node for node in everyone if node is not lacking]
        missing = found(lacking, others)["storage.missing"]
        assert missing.severity is Severity.WARN
        assert "14 of 15 other nodes" in missing.say
    assert "storage.missing" not in found(
        everyone[5], [n for n in everyone if n is not everyone[5]]
    )


def test_half_a_role_does_not_accuse_the_other_half() -> None:
    everyone = [Built(f"gpu{number:03}") for number in range(8)]
    for number, node in enumerate(everyone):
        if number % 2:
            storage(node)
        else:
            node.put("storage", "", mounts=0)
    assert "storage.missing" not in found(everyone[0], everyone[1:])


def test_read_only_against_the_peers() -> None:
    peers = [storage(node) for node in fleet(5)[1:]]
    node = storage(Built(), read_only=True)
    assert "peers write" in found(node, peers)["storage.read_only"].say
    assert "storage.read_only" not in found(node, [])


@pytest.mark.parametrize("error", ["EACCES", "ENOENT"])
def test_who_asks_is_not_what_is_asked(error: str) -> None:
    assert "storage.error" not in found(storage(Built(), error=error))
    assert found(storage(Built(), "/", error="EIO"))["storage.error"].severity is Severity.CRITICAL


def test_far_from_its_server() -> None:
    node = Built()
    node.put("timesync", "", daemon="chrony", synchronised=True, offset_s=-4.2, source="192.0.2.1")
    offset = found(node)["time.offset"]
    assert offset.say == "chrony: 4.2 s off 192.0.2.1"


def test_a_clock_without_anybody() -> None:
    node = Built()
    node.put("host", "", uptime_s=90_000.0)
    node.put("timesync", "", daemon="none", synchronised=False)
    node.put("host_slow", "", virtual=False)
    assert found(node)["time.daemon"].severity is Severity.WARN
    node.put("timesync", "", daemon="none", synchronised=True)
    assert "time.daemon" not in found(node), "something keeps it: PTP of the NIC, a hypervisor"
    node.put("timesync", "", synchronised=False)
    assert found(node).keys() & {"time.daemon", "time.sync"} == set(), "processes are hidden"


def test_names() -> None:
    node = Built()
    node.put("dns", "", own_name_s=5.01, own_name_found=True)
    node.put("dns", "ns 192.0.2.53", order=0, answers=True, answer_s=1.4)
    slow = [f for f in findings(node) if f.rule == "dns.slow"]
    assert {f.device: f.value for f in slow} == {"": 5.01, "ns 192.0.2.53": 1.4}
    node.put("dns", "ns 192.0.2.53", order=0, answers=False)
    assert found(node)["dns.server"].severity is Severity.WARN, "the own name needed it"


@pytest.mark.parametrize(
    ("probe", "device", "values"),
    [
        ("host", "", {"load5": "many", "cpu_count": 0, "mem_total_bytes": -1, "files_open": 1e30}),
        ("host_slow", "", {"cpu_mhz": "fast", "boots_day": True, "taints": 7, "cpus_offline": "x"}),
        ("host_slow", "mc0", {"ue": "one", "ce": float("nan")}),
        (
            "storage",
            "/x",
            {"mounted": True, "used_percent": "full", "inodes": -4, "hung_s": "long"},
        ),
        ("nvme", "nvme0", {"critical_warning": -1.5, "used_percent": "x", "spare_percent": None}),
        ("disks", "sda", {"reads": -1, "rotational": "no"}),
        ("timesync", "", {"daemon": 4, "offset_s": float("inf")}),
        ("dns", "ns x", {"order": "first", "answers": 0}),
    ],
)
def test_nonsense_of_a_node_is_no_finding(probe: str, device: str, values: dict[str, Any]) -> None:
    node = Built()
    before = found(node).keys()
    node.put(probe, device, **values)
    node.change(probe, device, after_s=15.0)
    assert found(node).keys() == before


def test_hostile_rows_of_tasks() -> None:
    node = Built()
    rows: list[dict[str, Any]] = [
        {"kind": "sleeper", "since_s": "long", "comm": 7}, {"kind": "zombies", "count": "many"},
        {"kind": 3}, {"kind": "sleeper", "since_s": 1e18, "comm": "x" * 900},
    ]  # fmt: skip
    node.put("tasks", "", rows=rows)
    assert "host.zombies" not in found(node)
    assert len(found(node)["host.dstate"].say) <= 500
