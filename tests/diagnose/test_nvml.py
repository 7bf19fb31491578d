"""Dumps of NVML calls: lost cards, renumbered ones, the fabric, and dumps that are broken."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.diagnose import nvml_json
from console.diagnose.text import of
from probes.event import Severity
from tests.diagnose.cases import case, drain_begins
from tests.diagnose.support import about, demand, facts, only, path, rules, severity, ticket, words

LOST = "nvml-one-lost-of-eight"
RENUMBERED = "nvml-renumber-after-loss"
FABRIC = "nvml-fabric-in-progress"


def dump(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(path(name).read_text(encoding="utf-8"))
    return loaded


@pytest.mark.parametrize("name", [LOST, RENUMBERED, FABRIC])
def test_verdict_and_drain_are_the_cases(name: str) -> None:
    found = case(name)
    assert only(found).kind == "nvml"
    assert found.verdict is severity(name)
    assert found.drain.startswith(drain_begins(name))


def test_one_lost_gpu_hides_no_other() -> None:
    found, wanted = case(LOST), demand(LOST)["facts"]
    told = facts(found)
    for name in ("count", "readable", "lost", "lost_pci_by_elimination"):
        assert told[name] == wanted[name]
    lost = about(found, "gpu.lost")
    assert lost.device == wanted["lost_pci_by_elimination"]
    for part in ("0000:61:00.0", "index 3", "15", "7"):
        assert part in found.say
    assert told["gpus"]["7"]["temp_c"] == 41
    assert told["gpus"]["0"]["power_w"] == 71.0


def test_without_a_bus_list_the_address_stays_unknown() -> None:
    raw = dump(LOST)
    del raw["sysfs_nvidia_bdfs"]
    found = ticket(json.dumps(raw))
    assert about(found, "gpu.lost").label == "GPU 3"
    assert "lspci" in words(found)
    assert "61:00" not in found.say


def test_two_lost_gpus_are_not_told_apart_by_elimination() -> None:
    raw = dump(LOST)
    raw["devices"][5] = {"index": 5, "nvmlDeviceGetHandleByIndex_v2": {"rc": 15}}
    found = ticket(json.dumps(raw))
    assert facts(found)["lost"] == [3, 5]
    assert "lost_pci_by_elimination" not in facts(found)
    assert {f.label for f in only(found).findings if f.rule == "gpu.lost"} == {"GPU 3", "GPU 5"}


def test_a_card_that_vanished_without_any_error() -> None:
    found, wanted = case(RENUMBERED), demand(RENUMBERED)["facts"]
    told = facts(found)
    for name in ("count", "expected", "missing", "index_moves"):
        assert told[name] == wanted[name]
    count = about(found, "gpu.count")
    assert count.device == "0000:52:00.0"
    for part in ("7 of 8", "0000:52:00.0", "3-7", "down by one", "GPU 5"):
        assert part in found.say


def test_a_reset_required_code_and_codes_that_are_no_faults() -> None:
    raw = dump(LOST)
    raw["devices"][3] = {
        "index": 3, "nvmlDeviceGetPciInfo_v3": {"rc": 0, "value": {"busId": "00000000:61:00.0"}},
        "nvmlDeviceGetPowerUsage": {"rc": 16},
    }  # fmt: skip
    for code in (3, 6, 13, 21):
        raw["devices"][1][f"nvmlCall{code}"] = {"rc": code}
    found = ticket(json.dumps(raw))
    assert rules(found) == {"gpu.reset_required"}
    assert about(found, "gpu.reset_required").device == "0000:61:00.0"


def test_gpus_that_wait_for_the_fabric() -> None:
    found, wanted = case(FABRIC), demand(FABRIC)["facts"]
    told = facts(found)
    for name in ("fabric_state", "gpus_affected", "fabricmanager"):
        assert told[name] == wanted[name]
    for part in ("8 GPUs", "802", "in progress", "Fabric Manager"):
        assert part in found.say
    step = about(found, "nvlink.fabric").next_step
    assert "version" in step


@pytest.mark.parametrize("mode", ["shared", "partition"])
def test_waiting_is_normal_where_the_site_activates_partitions(mode: str) -> None:
    raw = dump(FABRIC)
    raw["fabric_mode"] = mode
    found = ticket(json.dumps(raw))
    assert found.verdict is Severity.INFO
    assert found.drain == "no"
    assert "partition" in found.say


def test_a_completed_fabric_is_healthy() -> None:
    raw = dump(FABRIC)
    raw["services"] = {"nvidia-fabricmanager": "active"}
    for device in raw["devices"]:
        device["nvmlDeviceGetGpuFabricInfoV"]["value"]["state"] = 3
    found = ticket(json.dumps(raw))
    assert found.verdict.rank <= Severity.INFO.rank
    assert facts(found)["fabric_state"] == "completed"


def test_nvml_that_does_not_start() -> None:
    found = ticket(json.dumps({"layout": "nvml-dump/1", "nvmlInit_v2": {"rc": 18},
                               "devices": []}))  # fmt: skip
    assert about(found, "driver.unusable").evidence[0].startswith("nvmlInit_v2 returned 18")
    assert found.verdict is Severity.CRITICAL


def test_units_and_structures() -> None:
    found = ticket(json.dumps({
        "layout": "nvml-dump/1", "nvmlDeviceGetCount_v2": {"rc": 0, "value": 1}, "devices": [{
            "index": 0,
            "nvmlDeviceGetPciInfo_v3": {"rc": 0, "value": {
                "busId": "00000000:1B:00.0", "pciDeviceId": 0x233010DE}},
            "nvmlDeviceGetEnforcedPowerLimit": {"rc": 0, "value": 700000},
            "nvmlDeviceGetUtilizationRates": {"rc": 0, "value": {"gpu": 98, "memory": 40}},
            "nvmlDeviceGetRemappedRows": {"rc": 0, "value": [0, 1, 1, 0]},
            "nvmlDeviceGetEccMode": {"rc": 0, "value": [1, 1]},
        }],
    }))  # fmt: skip
    gpu = facts(found)["gpus"]["0"]
    assert (gpu["power_limit_w"], gpu["util_percent"], gpu["ecc_mode"]) == (700.0, 98, True)
    assert gpu["pci_device_id"] == "2330"
    assert rules(found) == {"remap.pending"}


def test_fields_and_links_by_number() -> None:
    found = ticket(json.dumps({"layout": "nvml-dump/1", "devices": [{
        "index": 0,
        "nvmlDeviceGetPciInfo_v3": {"rc": 0, "value": {"busId": "00000000:1B:00.0"}},
        "nvmlDeviceGetFieldValues": {"rc": 0, "value": {
            "230": {"rc": 0, "value": 2}, "144": {"rc": 3}, "143": {"rc": 0, "value": 1}}},
        "nvmlDeviceGetNvLinkState": {"rc": 0, "value": [1, 1, 0, 1]},
        "nvmlDeviceGetTotalEccErrors": {"rc": 0, "value": {"uncorrected_volatile": 0}},
    }]}))  # fmt: skip
    assert rules(found) == {"gpu.recovery_action"}
    gpu = facts(found)["gpus"]["0"]
    assert (gpu["remap_uncorrectable"], gpu["link2_up"], gpu["links"]) == (1, False, 4)
    assert "remap_pending" not in gpu


def test_moved_indexes_with_all_cards_there() -> None:
    raw = dump(RENUMBERED)
    last = raw["previous"].pop(2)
    raw["previous"] = [*raw["previous"], {**last, "uuid": "", "pci": ""}][:7]
    raw["expected_gpus"] = 7
    found = ticket(json.dumps(raw))
    assert about(found, "paper.gpu_index_moved").severity is Severity.INFO
    assert found.verdict is Severity.INFO


def test_a_half_dead_card_and_a_missing_right() -> None:
    raw = dump(LOST)
    raw["devices"][3]["nvmlDeviceGetHandleByIndex_v2"] = {"rc": 999}
    raw["devices"][4]["nvmlDeviceGetSramEccErrorStatus"] = {"rc": 4}
    found = ticket(json.dumps(raw))
    assert 3 not in facts(found)["readable"]
    assert 4 in facts(found)["readable"]
    grades = {f.label: f.severity for f in only(found).findings if f.rule == "gpu.nvml_error"}
    assert grades["GPU 3 (61:00.0)"] is Severity.WARN
    assert facts(found)["gpus"]["4"]["temp_c"] == 38


def test_no_gpu_at_all_of_eight() -> None:
    found = ticket(json.dumps({"layout": "nvml-dump/1", "expected_gpus": 8, "devices": [],
                               "nvmlDeviceGetCount_v2": {"rc": 0, "value": 0}}))  # fmt: skip
    assert "0 of 8" in found.say
    assert found.drain == "now"


def test_a_gpu_that_failed_to_join_the_fabric() -> None:
    raw = dump(FABRIC)
    for device in raw["devices"]:
        value = device["nvmlDeviceGetGpuFabricInfoV"]["value"]
        value.update(state=3, status=999 if device["index"] == 2 else 0)
    found = ticket(json.dumps(raw))
    assert facts(found)["gpus_affected"] == 1
    assert "until" not in found.say
    assert found.verdict is Severity.CRITICAL


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner,
                                                                 max_size=3),
    max_leaves=6,
)  # fmt: skip


@st.composite
def broken_dumps(draw: st.DrawFn) -> str:
    raw: Any = copy.deepcopy(dump(draw(st.sampled_from([LOST, RENUMBERED, FABRIC]))))
    for _ in range(draw(st.integers(0, 4))):
        at: Any = raw
        for _ in range(draw(st.integers(0, 4))):
            if not isinstance(at, dict | list) or not at:
                break
            key = draw(st.sampled_from(list(at) if isinstance(at, dict) else list(range(len(at)))))
            if draw(st.booleans()):
                at[key] = draw(_JSON)
                break
            at = at[key]
    text = json.dumps(raw)
    return text[: draw(st.integers(0, len(text)))] if draw(st.booleans()) else text


@given(broken_dumps())
@settings(max_examples=80, deadline=None, database=None)
def test_broken_dumps_never_raise_and_invent_no_gpu(text: str) -> None:
    report = nvml_json.read(of(text))
    for gpu in report.facts.get("gpus", {}).values():
        for name in ("pci", "uuid"):
            told = str(gpu.get(name) or "")[-10:]
            assert json.dumps(told)[1:-1] in text, "as the dump writes it"
    nvml_json.sniff(text)
