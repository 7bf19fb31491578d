"""A healthy node as Samples, and ways to break it."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from inventory.node import Node
from probes.checks import judge, peers, verdict
from probes.event import Finding, NodeState, NodeStatus, Row, Sample, Scalar, Severity
from probes.facts import NodeFacts
from probes.rules import Rules, load_rules

NOW = 1_800_000_000.0
SLOTS = tuple(f"0000:{bus}:00.0" for bus in ("1b", "43", "52", "61", "9d", "c3", "d1", "df"))
IB = tuple(f"mlx5_{n}/1" for n in range(8))
RULES: Rules = load_rules()

GPU: dict[str, Any] = {
    "util_percent": 98, "mem_util_percent": 40, "mem_used_bytes": 70 << 30,
    "mem_total_bytes": 80 << 30, "temp_c": 60, "thermal_margin_c": 27, "power_w": 650.0,
    "power_limit_w": 700.0, "sm_clock_mhz": 1755,
    "sm_clock_max_mhz": 1980, "mem_clock_mhz": 2619, "mem_clock_max_mhz": 2619, "reasons": 0x4,
    "pstate": 0, "thermal_hw_ns": 0, "thermal_sw_ns": 0, "power_brake_ns": 0, "power_cap_ns": 0,
}  # fmt: skip
ECC: dict[str, Any] = {
    "ecc_mode": True, "ecc_uncorrected_volatile": 0, "ecc_corrected_volatile": 3,
    "ecc_uncorrected_aggregate": 0, "ecc_corrected_aggregate": 90, "remap_correctable": 0,
    "remap_uncorrectable": 0, "remap_pending": False, "remap_failure": False, "recovery_action": 0,
}  # fmt: skip
PCIE: dict[str, Any] = {"gen": 5, "gen_max": 5, "width": 16, "width_max": 16, "replays": 0}
PORT: dict[str, Any] = {
    "state": 4, "state_text": "ACTIVE", "phys_state": 5, "phys_text": "LinkUp", "rate_gbps": 400.0,
    "rate_text": "400 Gb/sec (4X NDR)", "link_layer": "InfiniBand", "is_vf": False, "lid": 17,
    "default_route": False, "has_counters": True, "symbol_error": 0, "link_downed": 0,
    "link_error_recovery": 0, "port_rcv_errors": 0, "port_xmit_discards": 0,
    "local_link_integrity_errors": 0, "excessive_buffer_overrun_errors": 0, "np_cnp_sent": 12000,
}  # fmt: skip


def nvlink(links: int = 18, mbps: int = 26562, **changed: Scalar) -> dict[str, Any]:
    values: dict[str, Any] = {"links": links, "fabric_state": 3, "fabric_status": 0}
    for link in range(links):
        values |= {f"link{link}_up": True, f"link{link}_mbps": mbps, f"link{link}_crc": 0}
    return values | changed


class Built:
    """One node's facts; `put` replaces an answer, `later` gives a second one."""

    def __init__(self, name: str = "gpu001", **node: Any) -> None:
        self.facts = NodeFacts(Node(name=name, **node))
        self.clock = 1000.0
        self.at = NOW - 5
        self.status(NodeState.UP)
        self.put("hello", "", python="3.9", uid=0, boot_id="b1", wall_skew_s=0.1)
        self.put("host", "", uptime_s=self.clock, load1=3.0, dstate_nvidia=0)
        self.put("kernel_log", "", source="kmsg", readable=True)
        self.inventory()
        for index, slot in enumerate(SLOTS):
            self.put("gpu", slot, index=index, **GPU)
            self.put("ecc", slot, index=index, **ECC)
            self.put("pcie", slot, index=index, **PCIE)
            self.put("nvlink", slot, index=index, **nvlink())
        for port in IB:
            self.put("infiniband", port, **PORT)

    def inventory(
        self, slots: tuple[str, ...] = SLOTS, device_id: str = "2330", **node: Scalar
    ) -> None:
        for index, slot in enumerate(slots):
            self.put("inventory", slot, index=index, name="NVIDIA H100 80GB HBM3",
                     pci_device_id=device_id, mig_mode=False)  # fmt: skip
        for slot in SLOTS:
            if slot not in slots and self.facts.get("inventory", slot):
                self.put("inventory", slot, gone=True)
        values: dict[str, Any] = {
            "driver_version": "580.95.05", "gpu_count": len(slots), "pci_gpu_count": 8,
            "nvml_library": True, **node,
        }  # fmt: skip
        rows: list[Row] = [{"pci": s, "in_nvml": s in slots, "config_ok": True} for s in SLOTS]
        self.put("inventory", "", rows=rows, **values)

    def put(self, probe: str, device: str, *, rows: list[Row] | None = None, **values: Any) -> None:
        name = self.facts.node.name
        self.facts.apply(
            Sample(node=name, probe=probe, device=device, at=self.at, clock=self.clock,
                   values=values, rows=rows or [])
        )  # fmt: skip

    def change(self, probe: str, device: str, after_s: float = 0.0, **values: Scalar) -> None:
        """The same answer with some values changed, `after_s` later on the node's clock."""
        before = self.facts.get(probe, device)
        assert before is not None
        self.clock += after_s
        self.put(probe, device, rows=before.rows, **{**before.values, **values})

    def drop(self, probe: str, device: str, *names: str) -> None:
        before = self.facts.get(probe, device)
        assert before is not None
        kept = {k: v for k, v in before.values.items() if k not in names}
        self.put(probe, device, rows=before.rows, **kept)

    def status(self, state: NodeState, reason: str = "", text: str = "", **more: Any) -> None:
        self.facts.apply(
            NodeStatus(
                node=self.facts.node.name, at=self.at, state=state, reason=reason, text=text, **more
            )
        )  # fmt: skip

    def kernel(self, *lines: str, ago_s: float = 60.0) -> None:
        mono = self.clock - ago_s
        rows: list[Row] = [
            {"mono": mono + number / 1000, "text": line} for number, line in enumerate(lines)
        ]
        self.put("kernel_log", "", source="kmsg", readable=True, rows=rows)


def fleet(count: int = 4) -> list[Built]:
    return [Built(f"gpu{number:03}") for number in range(1, count + 1)]


def with_limit(name: str, value: float) -> Rules:
    """The packaged rules with one figure changed, as a site's overlay does."""
    limit = structs.replace(RULES.limit(name), value=value)
    return structs.replace(RULES, limits={**RULES.limits, name: limit})


def findings(node: Built, others: list[Built] | None = None, rules: Rules = RULES) -> list[Finding]:
    everyone = [node, *(others if others is not None else fleet(4)[1:])]
    roles = peers(built.facts for built in everyone)
    return judge(node.facts, roles[node.facts.node.role], rules, NOW)


def by_rule(found: list[Finding]) -> dict[str, Finding]:
    return {finding.rule: finding for finding in found}


def grade(node: Built, found: list[Finding]) -> Severity:
    return verdict(node.facts, found, NOW)
