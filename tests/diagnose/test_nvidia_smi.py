"""nvidia-smi in all its forms: the field cases, other drivers' layouts, and hostile input."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.diagnose import (
    gpu_cards,
    nvidia_smi,
    nvidia_smi_csv,
    nvidia_smi_dmon,
    nvidia_smi_names,
    nvlink_text,
    nvml_calls,
)
from console.diagnose.live_rules import live
from console.diagnose.text import of
from probes.event import Action, Severity
from tests.diagnose.cases import case, drain_begins
from tests.diagnose.fuzz import gpus_named, mutated
from tests.diagnose.gpu_text import BUSES, MIDDLE, NO_PROCESS, OLD, links, log, row, table
from tests.diagnose.ib_text import DOWN, ibstat
from tests.diagnose.support import about, demand, facts, only, rules, severity, ticket, words

AGGREGATE = "nvidia-smi-ecc-aggregate-only"
FAN = "nvidia-smi-err-fan-reset-required"
BRAKE = "nvidia-smi-power-brake-all-gpus"
PENDING = "nvidia-smi-remap-pending-ecc-unknown"
CAPPED = "nvidia-smi-sw-power-cap-normal-vs-straggler"


@pytest.mark.parametrize("name", [AGGREGATE, FAN, BRAKE, PENDING, CAPPED])
def test_verdict_and_drain_are_the_cases(name: str) -> None:
    found = case(name)
    assert only(found).kind == "nvidia-smi"
    assert found.verdict is severity(name)
    assert found.drain.startswith(drain_begins(name))


def test_aggregate_counters_alone_are_history() -> None:
    found, wanted = case(AGGREGATE), demand(AGGREGATE)["facts"]
    gpus = facts(found)["gpus"]
    for bus, said in wanted.items():
        told = gpus[f"00000000:{bus}:00.0"]
        for name in ("volatile_dram_ue", "aggregate_dram_ue"):
            assert told["ecc"][name] == said[name]
        assert told["remap"]["failure"] is said["remap_failure"]
    assert gpus["00000000:9D:00.0"]["remap"]["histogram"]["none"] == wanted["9D"]["banks_none"]
    failed = about(found, "remap.failure")
    assert failed.device == "0000:9d:00.0"
    assert any("Remapping Failure Occurred" in line for line in failed.evidence)
    old = about(found, "paper.ecc_history")
    assert (old.device, old.severity) == ("0000:1b:00.0", Severity.INFO)
    assert "9D:00.0" in found.say
    assert "1B:00.0" in found.say
    assert "8 GPUs attached" in words(found)


def test_an_error_is_no_zero_and_its_neighbours_are_not_trusted() -> None:
    found = case(FAN)
    gpus = facts(found)["gpus"]
    assert gpus["13"]["fan"] == "30%"
    sick = gpus["14"]
    assert (sick["fan"], sick["fan_error"], sick["brand"]) == (None, True, None)
    assert sick["recovery_action"] == "Reset"
    assert "util_percent" not in sick
    assert sick["may_be_frozen"]["util_percent"] == 93
    assert about(found, "gpu.recovery_action").action is Action.RESET_GPU
    assert "GPU 14 (CC:00.0)" in found.say
    assert "nothing against GPU 13" in found.say
    assert not [f for f in rules(found) if f.startswith("straggler")]
    assert any("ERR!" in line for line in about(found, "paper.gpu_reading").evidence)


def test_a_brake_on_all_gpus_is_one_finding_about_the_chassis() -> None:
    found, wanted = case(BRAKE), demand(BRAKE)["facts"]
    told = facts(found)
    assert told["reasons"] == wanted["reasons"]
    assert told["count"] == wanted["gpus"]
    assert told["sm_clock_pct"] == wanted["sm_clock_pct"]
    assert [f.device for f in only(found).findings if f.severity is Severity.CRITICAL] == [""]
    for part in ("all 8 GPUs", "chassis", "22", "100 % load", "700 W"):
        assert part in found.say


def test_a_pending_remap_with_unreadable_counters() -> None:
    found, wanted = case(PENDING), demand(PENDING)["facts"]
    told = facts(found)["gpus"][wanted["pci"]]
    assert facts(found)["attached"] == wanted["attached"]
    assert told["ecc_mode"] is None
    for name in ("uncorrectable", "pending", "failure", "histogram"):
        assert told["remap"][name] == wanted["remap"][name]
    assert about(found, "remap.pending").action is Action.RESET_GPU
    assert "ecc_uncorrected_volatile" not in told
    assert "RMA" not in words(found)
    assert "not readable" in found.say
    assert "not the same as zero" in words(found)


def test_a_power_cap_is_normal_at_the_limit_and_a_fault_below_it() -> None:
    found, wanted = case(CAPPED), demand(CAPPED)["facts"]
    told = facts(found)
    assert told["normal"] == wanted["normal"]
    (straggler,) = told["straggler"]
    assert {n: straggler[n] for n in wanted["straggler"]} == wanted["straggler"]
    capped = about(found, "straggler.power_limit")
    assert capped.device == "0000:3a:00.0"
    for part in ("GPU 2", "150 W", "300 W", "61 %", "default", "GPUs 0, 1, 3"):
        assert part in found.say
    assert rules(found) == {"straggler.power_limit"}


# Layouts


@pytest.mark.parametrize("errors", ["0", "2"])
def test_old_tables_have_two_lines_a_gpu(errors: str) -> None:
    found = ticket(OLD.format(errors=errors))
    told = facts(found)
    assert told["driver"] == "440.33.01"
    assert told["gpus"]["0"] | {"power_w": 58.0, "temp_c": 40} == told["gpus"]["0"]
    assert told["gpus"]["1"]["ecc_uncorrected_volatile"] == int(errors)
    assert ("ecc.uncorrected" in rules(found)) == (errors == "2")


def test_a_healthy_node_has_no_finding() -> None:
    for text in (table(), table() + NO_PROCESS, table(head=MIDDLE), log(*[{}] * 8)):
        found = ticket(text)
        assert rules(found) == set(), found.say
        assert found.verdict.rank <= Severity.INFO.rank
        assert found.drain == "no"
        assert facts(found)["count"] == 8
        assert "8 GPUs" in found.say


def test_a_table_with_mig_devices() -> None:
    mig = (
        "+-----------------------------------------------------------------------------+\n"
        "| MIG devices:                                                                |\n"
        "+------------------+----------------------+-----------+-----------------------+\n"
        "| GPU  GI  CI  MIG |         Memory-Usage |        Vol|         Shared        |\n"
        "|      ID  ID  Dev |           BAR1-Usage | SM     Unc| CE  ENC  DEC  OFA  JPG|\n"
        "|==================+======================+===========+=======================|\n"
        "|  0    1   0   0  |     38MiB / 20096MiB | 42      0 |  3   0    2    0    0 |\n"
        "|                  |      0MiB / 32767MiB |           |                       |\n"
        "+------------------+----------------------+-----------+-----------------------+\n"
    )
    found = ticket(table([row(0, ecc="On", util="N/A", mig="Enabled")]) + "\n" + mig)
    told = facts(found)
    assert told["gpus"]["0"]["mig_mode"] is True
    assert "util_percent" not in told["gpus"]["0"]
    assert told["mig"] == [
        {"gpu": 0, "gpu_instance": 1, "compute_instance": 0, "memory": "38MiB / 20096MiB"}
    ]
    assert rules(found) == set()


def test_a_dead_row_in_a_table() -> None:
    dead = row(2, ecc="ERR!", state="ERR!  ERR!  ERR!             ERR! / ERR! ", util="ERR!")
    found = ticket(table([row(0), row(1), dead, row(3)]))
    assert found.verdict is Severity.CRITICAL
    assert about(found, "paper.gpu_reading").device == "0000:52:00.0"
    assert "temp_c" not in facts(found)["gpus"]["2"]
    assert "nothing against GPU 0" in found.say


def test_a_gpu_that_requires_a_reset() -> None:
    dead = row(1, ecc="ERR!", state=" N/A   N/A    N/A              N/A / N/A ",
               memory="GPU requires reset", util="N/A")  # fmt: skip
    found = ticket(table([row(0), dead]))
    assert about(found, "gpu.reset_required").device == "0000:43:00.0"
    assert found.drain.startswith("now")


def test_memory_without_a_process_is_information() -> None:
    held = row(0, memory="71000MiB /  81559MiB")
    found = ticket(table([held, row(1)]) + "\n" + NO_PROCESS)
    assert about(found, "paper.memory_held").device == "0000:1b:00.0"
    assert found.verdict is Severity.INFO
    assert "paper.memory_held" not in {f.rule for f in only(ticket(table([held]))).findings}


@pytest.mark.parametrize(
    ("change", "rule", "grade", "drain"),
    [
        ({"pending": "Yes"}, "remap.pending", Severity.WARN, "after running jobs"),
        ({"dram": "3"}, "ecc.uncorrected", Severity.CRITICAL, "now"),
        ({"threshold": "Yes"}, "ecc.sram_limit", Severity.CRITICAL, "now"),
        ({"width": "8x"}, "pcie.width", Severity.CRITICAL, "now"),
        ({"recovery": "Reboot"}, "gpu.recovery_action", Severity.CRITICAL, "now"),
        ({"recovery": "Drain and Reset"}, "gpu.recovery_action", Severity.WARN, "after"),
        ({"reset": "Yes"}, "gpu.reset_required", Severity.CRITICAL, "now"),
        ({"fabric": "In Progress"}, "nvlink.fabric", Severity.CRITICAL, "now"),
        ({"margin": "-1", "temp": "88"}, "thermal.margin", Severity.WARN, "no"),
        ({"slow": "Active", "clock": "700"}, "straggler.gpu", Severity.CRITICAL, "after"),
    ],
)
def test_one_thing_wrong_in_a_report(
    change: dict[str, str], rule: str, grade: Severity, drain: str
) -> None:
    found = ticket(log({}, {}, change, {}))
    wrong = about(found, rule)
    assert wrong.severity is grade
    assert wrong.device in ("0000:52:00.0", "")
    assert found.drain.startswith(drain)
    assert [f.device for f in only(found).findings if f.severity is Severity.CRITICAL] in (
        [], [wrong.device], [wrong.device] * 2,
    )  # fmt: skip


def test_a_report_says_the_same_as_xml() -> None:
    text = ticket(log({"pending": "Yes", "width": "8x"}))
    xml = ticket(
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n'
        "<nvidia_smi_log>\n<driver_version>570.124.06</driver_version>\n"
        "<attached_gpus>1</attached_gpus>\n"
        '<gpu id="00000000:1B:00.0"><product_name>NVIDIA H100 80GB HBM3</product_name>\n'
        "<gpu_recovery_action>None</gpu_recovery_action>\n"
        "<pci><pci_gpu_link_info><link_widths><max_link_width>16x</max_link_width>\n"
        "<current_link_width>8x</current_link_width></link_widths></pci_gpu_link_info></pci>\n"
        "<clocks_event_reasons><clocks_event_reason_gpu_idle>Active"
        "</clocks_event_reason_gpu_idle></clocks_event_reasons>\n"
        "<remapped_rows><remapped_row_unc>0</remapped_row_unc>\n"
        "<remapped_row_pending>Yes</remapped_row_pending>\n"
        "<remapped_row_failure>No</remapped_row_failure></remapped_rows>\n"
        "</gpu>\n</nvidia_smi_log>\n"
    )
    assert rules(text) == rules(xml) == {"remap.pending", "pcie.width"}
    assert facts(xml)["gpus"]["00000000:1B:00.0"]["reasons"] == 1


def test_entities_are_never_expanded() -> None:
    found = ticket(
        '<?xml version="1.0"?>\n<!DOCTYPE nvidia_smi_log [<!ENTITY a "x"><!ENTITY b "&a;&a;">]>\n'
        '<nvidia_smi_log><gpu id="00000000:1B:00.0"><product_name>&b;</product_name></gpu>'
        "</nvidia_smi_log>"
    )
    assert found.verdict is Severity.UNKNOWN
    assert "xx" not in str(found)
    assert "entities" in words(found)


def test_xml_that_is_cut_off_keeps_what_came_before() -> None:
    found = ticket(
        '<nvidia_smi_log>\n<gpu id="00000000:1B:00.0">\n<temperature><gpu_temp>33 C</gpu_temp>'
        '</temperature>\n</gpu>\n<gpu id="00000000:43:00.0">\n<temperature><gpu_te'
    )
    assert facts(found)["gpus"]["00000000:1B:00.0"]["temp_c"] == 33
    assert "cut off" in words(found)


def test_a_report_without_its_indentation() -> None:
    flat = "\n".join(line.strip() for line in log({"pending": "Yes"}, {}).splitlines())
    found = ticket(flat)
    assert about(found, "remap.pending").device == "0000:1b:00.0"
    assert facts(found)["count"] == 2


# Queries


def test_columns_in_any_order_and_one_reason_a_column() -> None:
    found = ticket(
        "uuid, name, clocks_throttle_reasons.hw_thermal_slowdown, "
        "clocks_throttle_reasons.sw_power_cap, temperature.gpu, index\n"
        "GPU-aaaaaaaa-0000-4000-8000-000000000001, NVIDIA H100 80GB HBM3, Active, Not Active, 91, "
        "4\n"
    )
    told = facts(found)["gpus"]["4"]
    assert told["reason_names"] == ["hw_thermal"]
    assert about(found, "thermal.hw_slowdown").label.startswith("GPU 4")


def test_remapped_rows_query() -> None:
    found = ticket(
        "gpu_uuid, remapped_rows.correctable, remapped_rows.uncorrectable, remapped_rows.pending, "
        "remapped_rows.failure\n"
        "GPU-aaaaaaaa-0000-4000-8000-000000000001, 0, 0, 0, 0\n"
        "GPU-aaaaaaaa-0000-4000-8000-000000000002, 0, 4, 1, 0\n"
    )
    assert about(found, "remap.pending").device == "GPU-aaaaaaaa-0000-4000-8000-000000000002"
    assert rules(found) == {"remap.pending"}


def test_without_a_heading_the_command_tells_or_nothing_is_guessed() -> None:
    rows = "0, 00000000:1B:00.0, Yes, No\n1, 00000000:43:00.0, No, No\n"
    asked = (
        "root@gpu-a01:~# nvidia-smi --query-gpu=index,pci.bus_id,remapped_rows.pending,"
        "remapped_rows.failure --format=csv,noheader\n"
    )
    found = ticket(asked + rows)
    assert about(found, "remap.pending", node="gpu-a01").device == "0000:1b:00.0"
    blind = ticket(rows)
    assert blind.verdict is Severity.UNKNOWN
    assert not only(blind).findings
    assert "heading" in words(blind)


def test_unreadable_cells_of_a_query() -> None:
    found = ticket(
        "index, pci.bus_id, temperature.gpu, power.draw [W], utilization.gpu [%]\n"
        "0, 00000000:1B:00.0, 33, 71.00 W, 0 %\n"
        "1, 00000000:43:00.0, [GPU is lost], [GPU is lost], [GPU is lost]\n"
        "2, 00000000:52:00.0, [N/A], [Not Supported], [N/A]\n"
    )
    assert about(found, "gpu.lost").device == "0000:43:00.0"
    assert rules(found) <= {"gpu.lost", "paper.gpu_reading"}
    assert "temp_c" not in facts(found)["gpus"]["2"]


# Messages


@pytest.mark.parametrize(
    ("text", "rule", "grade", "name"),
    [
        ("Failed to initialize NVML: Driver/library version mismatch\n"
         "NVML library version: 535.161", "driver.unusable", Severity.CRITICAL, "version_mismatch"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure "
         "that the latest NVIDIA driver is installed and running.", "driver.unusable",
         Severity.CRITICAL, "driver_not_loaded"),
        ("No devices were found", "paper.no_gpu", Severity.CRITICAL, "no_devices"),
        ("Failed to initialize NVML: Unknown Error", "driver.unusable", Severity.CRITICAL,
         "nvml_unknown_error"),
        ("Failed to initialize NVML: GPU access blocked by the operating system",
         "driver.unusable", Severity.UNKNOWN, "blocked"),
        ("bash: nvidia-smi: command not found", "paper.no_nvidia_smi", Severity.UNKNOWN,
         "tool_missing"),
    ],
)  # fmt: skip
def test_messages_in_place_of_a_report(text: str, rule: str, grade: Severity, name: str) -> None:
    found = ticket(text)
    assert found.verdict is grade
    assert about(found, rule).severity is grade
    assert facts(found)["trouble"] == name
    assert "gpus" not in facts(found)


@pytest.mark.parametrize(
    ("text", "device", "label"),
    [
        ("Unable to determine the device handle for GPU 0000:0B:00.0: GPU is lost.  Reboot the "
         "system to recover this GPU", "0000:0b:00.0", "GPU 0B:00.0"),
        ("Unable to determine the device handle for GPU0000:C1:00.0: Unknown Error",
         "0000:c1:00.0", "GPU C1:00.0"),
        ("Unable to determine the device handle for GPU3: 0000:61:00.0: Unknown Error\n"
         "No devices were found", "0000:61:00.0", "GPU 3 (61:00.0)"),
    ],
)  # fmt: skip
def test_a_gpu_that_the_driver_cannot_open(text: str, device: str, label: str) -> None:
    found = ticket(text)
    lost = about(found, "gpu.lost")
    assert (lost.device, lost.label) == (device, label)
    assert lost.evidence[0] in text
    assert found.drain == "now"
    assert "0 others" not in words(found)


def test_a_warning_below_the_table() -> None:
    found = ticket(table() + "WARNING: infoROM is corrupted at gpu 0000:61:00.0\n")
    assert about(found, "gpu.nvml_error").device == "0000:61:00.0"
    assert about(found, "gpu.nvml_error").action is Action.REPLACE
    assert facts(found)["gpus"]["3"]["temp_c"] == 33


def test_a_list_of_names_shows_no_health() -> None:
    found = ticket(
        "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aaaaaaaa-0000-4000-8000-000000000001)\n"
        "  MIG 3g.20gb     Device  0: (UUID: MIG-aaaaaaaa-0000-4000-8000-000000000011)\n"
        "GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-aaaaaaaa-0000-4000-8000-000000000002)\n"
    )
    assert found.verdict is Severity.UNKNOWN
    assert facts(found)["count"] == 2
    assert facts(found)["mig_devices"] == 1


# Before and after


def names(uuids: list[int]) -> str:
    return "".join(
        f"GPU {index}: NVIDIA H200 (UUID: GPU-aaaaaaaa-0000-4000-8000-00000000000{uuid})\n"
        for index, uuid in enumerate(uuids)
    )


def test_a_second_list_with_one_card_less() -> None:
    found = ticket(f"before:\n{names(list(range(8)))}\nafter:\n{names([0, 1, 3, 4, 5, 6, 7])}")
    gone = about(found, "gpu.count")
    assert gone.device.endswith("002")
    told = facts(found)
    assert told["index_moves"] == {"3": 2, "4": 3, "5": 4, "6": 5, "7": 6}
    assert told["count"] == 7
    for part in ("7 of 8", "down by one", "GPU 5"):
        assert part in found.say
    assert found.drain.startswith("after running jobs, or now")


def test_a_second_table_with_one_card_less() -> None:
    after = [row(n, bus) for n, bus in enumerate(b for b in BUSES if b != "52")]
    found = ticket(f"{table()}\n{table(after)}")
    assert about(found, "gpu.count").device == "0000:52:00.0"
    assert "00000000:52:00.0" not in str(facts(found)["gpus"])


def test_part_of_a_list_is_no_loss() -> None:
    for part in ([row(3)], [row(0), row(1)], [row(n) for n in range(8)]):
        assert "gpu.count" not in rules(ticket(f"{table()}\n{table(part)}"))


# Several nodes


def test_each_node_of_clush_is_judged_by_itself() -> None:
    heading = "index, pci.bus_id, ecc.errors.uncorrected.volatile.total"
    text = "".join(
        f"gpu-a{n:02}: {line}\n"
        for n in (1, 2, 3)
        for line in (heading, f"0, 00000000:1B:00.0, {3 if n == 2 else 0}")
    )
    found = ticket(text)
    assert about(found, "ecc.uncorrected").node == "gpu-a02"
    assert set(facts(found)["nodes"]) == {"gpu-a01", "gpu-a02", "gpu-a03"}
    assert "2 nodes without trouble" in found.say


def test_headings_of_nodes() -> None:
    text = f"--- gpu-a01 ---\n{table()}\n--- gpu-a02 ---\nNo devices were found\n"
    found = ticket(text)
    assert about(found, "paper.no_gpu").node == "gpu-a02"
    assert facts(found)["nodes"]["gpu-a01"]["count"] == 8


# Other outputs

DIAG = """\
+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
|-----  Deployment  --------+------------------------------------------------|
| NVML Library              | Pass                                           |
| Persistence Mode          | Fail                                           |
| Info                      | Persistence mode for GPU 0 is disabled.        |
+-----  Hardware  ----------+------------------------------------------------+
| GPU Memory                | Pass - All                                     |
| Diagnostic                | Fail - GPU: 3                                  |
| Warning                   | GPU 3 has a pending row remapping              |
+---------------------------+------------------------------------------------+
"""


def test_dcgm_says_what_failed() -> None:
    found = ticket("Successfully ran diagnostic for group.\n" + DIAG)
    failed = {f.device: f for f in only(found).findings}
    assert failed["GPU3"].severity is Severity.CRITICAL
    assert "pending row remapping" in failed["GPU3"].say
    assert failed[""].severity is Severity.WARN
    assert facts(found)["dcgm"]["pass"] == ["NVML Library", "GPU Memory"]
    clean = ticket(DIAG.replace("Fail - GPU: 3", "Pass").replace("Fail  ", "Pass  "))
    assert clean.verdict is Severity.OK
    assert "4 tests of DCGM passed" in clean.say


def test_dcgm_as_json() -> None:
    results = [{"gpu_id": "0", "status": "Pass"}, {"gpu_id": "3", "status": "Fail", "warnings": [
        {"warning": "bandwidth below 48 GB/s", "error_id": 25}]}]  # fmt: skip
    test = {"name": "PCIe", "results": results}
    category = {"category": "Integration", "tests": [test]}
    found = ticket(json.dumps({"DCGM GPU Diagnostic": {"test_categories": [category]}}, indent=1))
    failed = about(found, "paper.dcgm")
    assert failed.device == "GPU3"
    assert "48 GB/s" in failed.say


def test_dmon_keeps_the_latest_line() -> None:
    found = ticket(
        "# gpu    pwr  gtemp  mtemp     sm    mem   mclk   pclk \n"
        "# Idx      W      C      C      %      %    MHz    MHz \n"
        "    0     71     33      -      0      0   2619    345 \n"
        "    0    650     60     70     98     40   2619   1755 \n"
    )
    gpu = facts(found)["gpus"]["0"]
    assert (gpu["power_w"], gpu["temp_c"], gpu["util_percent"]) == (650.0, 60, 98)
    assert found.verdict is Severity.OK


def test_a_bug_report_holds_several_outputs() -> None:
    rule = "_" * 44
    found = ticket(
        f"{rule}\n\nStart of NVIDIA bug report log file.\n{rule}\n\n/usr/bin/nvidia-smi --query\n"
        f"{log({}, {'pending': 'Yes'})}\n{rule}\n\n/usr/bin/nvidia-smi nvlink --status\n\n"
        f"{links(0)}{links(1, down=[3])}\n{rule}\n"
    )
    assert about(found, "remap.pending").device == "0000:43:00.0"
    assert about(found, "nvlink.down").label == "GPU 1"
    assert {part.kind for part in found.inputs} == {"nvidia-smi", "nvlink"}


def test_a_ticket_names_its_node_in_the_prompts() -> None:
    found = ticket(
        f"Hi, gpu-a07 looks odd:\n\nroot@gpu-a07:~# nvidia-smi\n{table()}\n"
        f"root@gpu-a07:~# nvidia-smi nvlink -s\n{links(0)}{links(1, down=range(18))}\n"
        f"root@gpu-a07:~# ibstat\n{ibstat(8, [3], **DOWN)}"
    )
    assert about(found, "nvlink.down").node == "gpu-a07"
    assert about(found, "ib.down").node == "gpu-a07"
    assert {part.kind for part in found.inputs} == {"nvidia-smi", "nvlink", "ib-tools"}


def test_every_reading_is_one_of_a_live_probe() -> None:
    names = {reading.name for reading in nvidia_smi_names.READINGS}
    names |= {name for name, _ in nvidia_smi_csv.COLUMNS.values()}
    names |= {*nvidia_smi_dmon.COLUMNS.values(), *nvml_calls.FIELDS.values()}
    names |= {f"nvlink.link3_{name}" for name in nvlink_text.ERRORS.values()}
    names |= {f"nvlink.{name}" for name in nvlink_text.RATES.values()}
    assert {name for name in names if gpu_cards.home(name) is None} == set()


def test_rules_of_the_live_checks_that_papers_name() -> None:
    named = ("driver.unusable", "gpu.lost", "gpu.reset_required", "gpu.nvml_error", "gpu.count",
             "nvlink.down", "ib.rate", "ib.down")  # fmt: skip
    assert [live(rule).id for rule in named] == list(named)


# Hostile input

SAMPLES = (
    table(), table(head=MIDDLE), OLD.format(errors="2"), log({"pending": "Yes"}, {}),
    table([row(0, state="ERR!  ERR!  ERR!   ERR! / ERR! ")]) + NO_PROCESS,
    "index, pci.bus_id, temperature.gpu\n0, 00000000:1B:00.0, 33\n1, 00000000:43:00.0, [N/A]\n",
    '<nvidia_smi_log>\n<gpu id="00000000:1B:00.0">\n<fan_speed>3 %</fan_speed>\n</gpu>\n'
    "</nvidia_smi_log>\n",
    "GPU 0: NVIDIA H200 (UUID: GPU-aaaaaaaa-0000-4000-8000-000000000001)\n",
    "Unable to determine the device handle for GPU3: 0000:61:00.0: Unknown Error\n", DIAG,
)  # fmt: skip


@given(mutated(SAMPLES))
@settings(max_examples=150, deadline=None, database=None)
def test_broken_text_never_raises_and_invents_no_gpu(text: str) -> None:
    report = nvidia_smi.read(of(text))
    told: dict[str, Any] = report.facts
    for node in told.get("nodes", {"": told}).values():
        for name, gpu in node.get("gpus", {}).items():
            assert gpus_named(text, name, gpu), (name, gpu)
    nvidia_smi.sniff(text)


@given(st.text(max_size=400))
@settings(max_examples=100, deadline=None, database=None)
def test_any_text_is_read(text: str) -> None:
    assert nvidia_smi.read(of(text)).kind == "nvidia-smi"
    assert 0 <= nvidia_smi.sniff(text) <= 100
