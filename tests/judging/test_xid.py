"""Xids: the field cases and what must not be said."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.event import Action, Finding, Severity
from probes.kernel_lines import KernelEvent, bursts, parse, unique
from tests.judging.build import SLOTS, Built, by_rule, findings, with_limit

CASES = Path(__file__).parents[1] / "data" / "cases"


def lines(case: str) -> list[str]:
    return (CASES / f"{case}.txt").read_text().splitlines()


def events(case: str) -> list[KernelEvent]:
    return [event for line in lines(case) if (event := parse(line)) is not None]


def judged(case: str) -> dict[str, Finding]:
    node = Built()
    for line in lines(case):
        node.kernel(line, ago_s=60.0)
    return by_rule(findings(node))


def test_odd_names_and_forms() -> None:
    found = [(e.code, e.pci, e.pid, e.process) for e in events("xid-odd-names-and-forms")]
    assert found == [
        (14, "0000:03:00", None, None),
        (31, "0000:d8:00", 13112, "ray::WorkerDict"),
        (119, "0009:01:00", 1946, "nvc:[driver]"),
        (13, "0000:1b:00", None, None),
        (43, "0000:43:00", -1, "train, stage=2"),
        (999, "0000:52:00", 77, None),
    ]


def test_an_unknown_code_is_shown_and_neither_ignored_nor_fatal() -> None:
    found = judged("xid-odd-names-and-forms")
    assert found["xid.999"].severity is Severity.WARN
    assert "not in the catalogue" in found["xid.999"].say
    assert found["xid.119"].severity is Severity.CRITICAL
    for code in (13, 31, 43):
        assert found[f"xid.{code}"].severity is Severity.INFO


def test_a_switch_storm_beside_xid_79_is_one_event() -> None:
    found = judged("xid-xid79-plus-sxid-storm")
    assert found["xid.79"].severity is Severity.CRITICAL
    assert found["xid.79"].action in (Action.REBOOT, Action.DRAIN)
    assert not any(rule.startswith("sxid") for rule in found)
    switch = [(e.code, e.facts["switch"], e.facts["fatal"], e.facts["link"])
              for e in events("xid-xid79-plus-sxid-storm") if e.kind == "sxid"]  # fmt: skip
    assert switch == [(20034, 1, True, 48), (20034, 1, True, 49), (12028, 0, False, 40)]


def test_a_switch_fault_alone_is_reported() -> None:
    node = Built()
    node.kernel("nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up")
    assert by_rule(findings(node))["sxid"].severity is Severity.CRITICAL


def test_contained_and_uncontained_errors_differ() -> None:
    node = Built()
    node.kernel(*lines("xid-xid94-contained-triple"))
    found = findings(node)
    by_device = {f.device: f for f in found if f.rule.startswith("xid.")}
    assert len(by_device) == 2
    contained, uncontained = by_device["0000:52:00.0"], by_device["0000:9d:00.0"]
    assert uncontained.rule == "xid.95"
    assert uncontained.severity is Severity.CRITICAL
    assert contained.rule == "xid.94"
    assert contained.severity is Severity.WARN
    assert contained.action is Action.RESET_GPU
    assert "48, 63" in contained.say
    assert len(contained.evidence) == 4


DBE = "NVRM: Xid (PCI:0000:52:00): 48, pid=3901, name=python, An uncorrectable double bit error"
C94 = "NVRM: Xid (PCI:0000:52:00): 94, pid=3901, name=python, Contained: SM (0x1). RST: {}"


@pytest.mark.parametrize(
    ("beside", "reset", "severity"),
    [
        ((), "No", Severity.WARN),
        ((), "Yes", Severity.CRITICAL),
        (("95, pid=1, name=x, Uncontained: LTC TAG. RST: Yes",), "No", Severity.CRITICAL),
        (("64, pid=1, name=x, All reserved rows for bank are remapped",), "No", Severity.CRITICAL),
        (("79, GPU has fallen off the bus.",), "No", Severity.CRITICAL),
    ],
)
def test_an_error_is_contained_only_when_nothing_else_failed(
    beside: tuple[str, ...], reset: str, severity: Severity
) -> None:
    node = Built()
    more = (f"NVRM: Xid (PCI:0000:52:00): {text}" for text in beside)
    node.kernel(DBE, C94.format(reset), *more)
    (found,) = [f for f in findings(node) if f.rule.startswith("xid.")]
    assert found.severity is severity


def advised(*advice: str, root: str = "119, pid=1, name=x, Timeout after 6s") -> Finding:
    node = Built()
    changed = "154, GPU recovery action changed from 0x0 (None) to"
    texts = ([root] if root else []) + [f"{changed} {to}" for to in advice]
    node.kernel(*(f"NVRM: Xid (PCI:0000:43:00): {text}" for text in texts))
    (found,) = [f for f in findings(node) if f.rule.startswith("xid.")]
    return found


@pytest.mark.parametrize(
    ("advice", "action", "severity"),
    [
        ("0x2 (Node Reboot Required)", Action.REBOOT, Severity.CRITICAL),
        ("0x2 (OS Reboot)", Action.REBOOT, Severity.CRITICAL),
        ("0x1 (GPU Reset Required)", Action.RESET_GPU, Severity.CRITICAL),
        ("0x1 (PF FLR)", Action.RESET_GPU, Severity.CRITICAL),
        ("0x3 (Drain P2P)", Action.WATCH, Severity.WARN),
        ("0x4 (Drain and Reset)", Action.DRAIN, Severity.WARN),
        ("0x5 (Recover IMEX)", Action.RESTART_SERVICE, Severity.CRITICAL),
        ("0x9 (Something New)", Action.DRAIN, Severity.CRITICAL),
        ("Node Reboot Required", Action.REBOOT, Severity.CRITICAL),
    ],
)
def test_each_advice_in_the_words_of_public_logs(
    advice: str, action: Action, severity: Severity
) -> None:
    for root in ("119, pid=1, name=x, Timeout after 6s", ""):
        found = advised(advice, root=root)
        assert (found.action, found.severity) == (action, severity)
        assert advice.partition("(")[2].strip(")") in found.say


def test_the_drivers_advice_replaces_our_own_also_for_79() -> None:
    found = advised("0x2 (Node Reboot Required)", root="79, GPU has fallen off the bus.")
    assert (found.rule, found.action) == ("xid.79", Action.REBOOT)
    assert found.severity is Severity.CRITICAL
    drained = advised("0x3 (Drain P2P)", root="79, GPU has fallen off the bus.")
    assert drained.severity is Severity.CRITICAL  # no job runs on a GPU that is off the bus


def test_the_last_advice_of_a_burst_wins() -> None:
    found = advised("0x1 (GPU Reset Required)", "0x2 (Node Reboot Required)")
    assert found.action is Action.REBOOT
    back = advised("0x2 (Node Reboot Required)", "0x1 (GPU Reset Required)")
    assert back.action is Action.RESET_GPU


def test_advice_of_none_clears() -> None:
    alone = advised("0x0 (None)", root="")
    after = advised("0x1 (GPU Reset Required)", "0x0 (None)")
    for found in (alone, after):
        assert found.severity is Severity.INFO
        assert not found.hard


def test_an_xid_after_the_advice_was_withdrawn_counts() -> None:
    node = Built()
    xid = "NVRM: Xid (PCI:0000:43:00): "
    done = "154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
    node.kernel(f"{xid}48, DBE", xid + done, f"{xid}48, DBE again")
    assert by_rule(findings(node))["xid.48"].severity is Severity.CRITICAL


def test_a_later_reset_ends_an_earlier_burst_as_well() -> None:
    node = Built()
    node.clock = 9000.0
    node.put("host", "", uptime_s=9000.0)
    node.kernel("NVRM: Xid (PCI:0000:43:00): 119, pid=1, name=x, Timeout after 6s", ago_s=5000)
    assert by_rule(findings(node))["xid.119"].severity is Severity.CRITICAL
    node.kernel("NVRM: Xid (PCI:0000:43:00): 154, GPU recovery action changed from 0x1 "
                "(GPU Reset Required) to 0x0 (None)", ago_s=100)  # fmt: skip
    assert by_rule(findings(node))["xid.119"].severity is Severity.INFO


def test_an_unknown_xid_does_not_hide_behind_an_application_error() -> None:
    node = Built()
    node.kernel("NVRM: Xid (PCI:0000:43:00): 13, pid=1, name=a, Graphics Exception",
                "NVRM: Xid (PCI:0000:43:00): 999, something new")  # fmt: skip
    (found,) = [f for f in findings(node) if f.rule.startswith("xid.")]
    assert (found.rule, found.severity) == ("xid.999", Severity.WARN)


def test_xid_64_depends_on_its_text() -> None:
    node = Built()
    node.kernel(*lines("xid-xid64-two-kinds"))
    found = {f.device: f for f in findings(node) if f.rule == "xid.64"}
    assert found["0000:43:00.0"].severity is Severity.WARN
    assert found["0000:43:00.0"].action is Action.RESET_GPU
    assert found["0000:c3:00.0"].severity is Severity.CRITICAL


def test_application_errors_travel_with_the_job_and_are_no_drain() -> None:
    for line in lines("xid-app-errors-13-31-fatal-by-mistake"):
        host, _, rest = line.partition(" ")
        if parse(rest) is None:
            continue
        node = Built(host)
        node.kernel(rest)
        for finding in findings(node):
            assert finding.severity is Severity.INFO
            assert "sim_app" in finding.say
            assert finding.action.rank < Action.RESET_GPU.rank


def test_one_event_through_seven_readers() -> None:
    found = events("kernel-log-mixed-prefix-dedupe")
    assert len(found) == 7
    assert {(e.code, e.pci, e.process) for e in found} == {(79, "0000:43:00", None)}
    assert {e.mono for e in found if e.mono is not None} == {9103.456789}
    assert {round(e.wall) for e in found if e.wall is not None} == {1772510706}


def test_corrected_pcie_errors_count_once_per_event() -> None:
    aer = [e for e in events("kernel-log-aer-corrected-flood") if e.kind == "aer"]
    assert [e.pci for e in aer].count("0000:41:00.0") == 4
    assert all(e.facts["corrected"] for e in aer)


def test_counter_readers_noise_is_no_finding() -> None:
    node = Built()
    node.kernel(*lines("kernel-log-mlx5-access-reg-selfinflicted"))
    found = [f for f in findings(node) if f.rule == "kernel_log.mlx5"]
    warned = {f.label for f in found if f.severity is Severity.WARN}
    assert warned == {"mlx5_5", "0000:ab:00.0"}
    assert {f.label for f in found} - warned == {"0000:5c:00.0", "0000:9a:00.0"}


def test_the_recovery_advice_of_154_overrides_the_table() -> None:
    node = Built()
    node.kernel(
        "NVRM: Xid (PCI:0000:43:00): 94, pid=1, name=a, Contained: SM (0x1). RST: No, D-RST: No",
        "NVRM: Xid (PCI:0000:43:00): 154, GPU recovery action changed from 0x0 (None) "
        "to 0x2 (Node Reboot)",
    )
    (found,) = [f for f in findings(node) if f.rule.startswith("xid.")]
    assert found.action is Action.REBOOT
    assert found.severity is Severity.CRITICAL
    assert found.rule == "xid.94"


def test_an_old_xid_is_history() -> None:
    node = Built()
    node.clock = 400_000.0
    node.put("host", "", uptime_s=400_000.0)
    node.kernel("NVRM: Xid (PCI:0000:43:00): 79, GPU has fallen off the bus.", ago_s=200_000.0)
    found = by_rule(findings(node))["xid.79"]
    assert found.severity is Severity.INFO
    assert "days ago" in found.say or "h ago" in found.say


def test_the_site_says_when_an_xid_is_old() -> None:
    node = Built()
    node.clock = 400_000.0
    node.put("host", "", uptime_s=400_000.0)
    node.kernel("NVRM: Xid (PCI:0000:43:00): 79, GPU has fallen off the bus.", ago_s=90_000.0)
    assert by_rule(findings(node))["xid.79"].severity is Severity.INFO
    patient = with_limit("xid.old_h", 26)
    assert by_rule(findings(node, rules=patient))["xid.79"].severity is Severity.CRITICAL


def test_identical_lines_are_one_event_within_the_sites_time() -> None:
    node = Built()
    for at in (900.0, 903.0):
        node.kernel(f"[{at:.6f}] NVRM: Xid (PCI:0000:43:00): 63, Row remapper")
    assert len(by_rule(findings(node))["xid.63"].evidence) == 1
    exact = with_limit("xid.coalesce_s", 1)
    assert len(by_rule(findings(node, rules=exact))["xid.63"].evidence) == 2


def test_a_finding_uses_the_gpu_probes_device_and_label() -> None:
    node = Built()
    node.kernel("NVRM: Xid (PCI:0000:43:00): 79, GPU has fallen off the bus.")
    found = by_rule(findings(node))["xid.79"]
    assert (found.device, found.label) == (SLOTS[1], "GPU1")


@pytest.mark.parametrize("gap", [100.0, 200.0])
def test_bursts_end_after_silence(gap: float) -> None:
    texts = [f"[{at:.6f}] NVRM: Xid (PCI:0000:43:00): 63, Row" for at in (10.0, 10.0 + gap)]
    found = bursts([e for t in texts if (e := parse(t))], {}, 180.0)
    assert len(found) == (1 if gap < 180 else 2)


def test_repeated_lines_within_seconds_are_one() -> None:
    texts = [f"[{at:.6f}] NVRM: Xid (PCI:0000:43:00): 63, Row" for at in (10.0, 11.0, 30.0)]
    assert len(unique([e for t in texts if (e := parse(t))])) == 2


@pytest.mark.parametrize(
    "line",
    ["", "Xid", "NVRM: Xid", "NVRM: _kgspLogXid119: ****", "[1.0] eth0: link up",
     "\x1b[31mXid (PCI:"],
)  # fmt: skip
def test_what_is_no_event_is_none(line: str) -> None:
    assert parse(line) is None


# ------------------------------------------------------------------ causes and consequences

NVLINK = "NVRM: Xid (PCI:{}): 74, pid=1, name=a, NVLink: fatal error detected on link {}({})"
REGISTERS = "0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0"
LOST = (
    "NVRM: Xid (PCI:0000:43:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
)


def by_gpu(*texts: str) -> dict[str, Finding]:
    node = Built()
    node.kernel(*texts)
    return {f.device: f for f in findings(node) if f.rule.startswith("xid.")}


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_a_gpu_off_the_bus_explains_its_neighbours_links(order: tuple[int, ...]) -> None:
    texts = (LOST, *(NVLINK.format(f"0000:{bus}:00", 3, REGISTERS) for bus in ("52", "61")))
    found = by_gpu(*(f"[{900 + place / 10:.6f}] {texts[n]}" for place, n in enumerate(order)))
    assert found[SLOTS[1]].severity is Severity.CRITICAL
    for slot in SLOTS[2:4]:
        assert (found[slot].severity, found[slot].hard) == (Severity.INFO, False)
        assert "a consequence of Xid 79 of GPU1" in found[slot].say


def test_links_that_failed_at_another_time_stand_for_themselves() -> None:
    found = by_gpu(f"[500.0] {LOST}", f"[900.0] {NVLINK.format('0000:52:00', 3, REGISTERS)}")
    assert found[SLOTS[2]].severity is Severity.CRITICAL
    assert "link 3" in found[SLOTS[2]].say


def test_links_of_several_gpus_are_the_switchs_fault_too() -> None:
    switch = "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): {}, {}, Link {} text"
    node = Built()
    storm = [switch.format(20034, "Fatal", 40), switch.format(11012, "Non-fatal", 41)]
    node.kernel(NVLINK.format("0000:52:00", 3, REGISTERS), *storm)
    assert "sxid" not in by_rule(findings(node))
    node.kernel(NVLINK.format("0000:61:00", 3, REGISTERS))
    (found,) = [f for f in findings(node) if f.rule == "sxid"]
    assert (found.severity, found.value, found.count) == (Severity.CRITICAL, 20034, 2)
    assert "links 40, 41: SXid 20034 with 11012" in found.say


def test_the_severity_word_of_a_switch_line_wins_over_the_table() -> None:
    for word, code, severity in (
        ("Fatal", 12028, Severity.CRITICAL), ("Non-fatal", 20034, Severity.WARN),
        ("Non-fatal", 24001, Severity.INFO), ("Non-fatal", 99999, Severity.WARN),
    ):  # fmt: skip
        node = Built()
        node.kernel(f"nvidia-nvswitch1: SXid (PCI:0000:06:00.0): {code}, {word}, Link 48 text")
        assert by_rule(findings(node))["sxid"].severity is severity


def test_the_fabric_managers_word_counts_where_the_kernels_is_missing() -> None:
    node = Built()
    node.kernel("nv-fabricmanager: detected NVSwitch fatal error 20034 on NVSwitch physical id 8")
    assert by_rule(findings(node))["sxid"].severity is Severity.CRITICAL


SHADER = (
    "NVRM: Xid (PCI:{}): 13, pid={}, name={}, Graphics SM Warp Exception on (GPC {}, TPC 1, SM 0)"
)


@pytest.mark.parametrize(
    ("lines_", "severity"),
    [
        # one program, the same place: its first block always runs there
        ([("0000:43:00", "a", 0)] * 8, Severity.INFO),
        # two programs, one place
        ([("0000:43:00", "a", 0), ("0000:43:00", "b", 0)], Severity.WARN),
        # two programs, two places
        ([("0000:43:00", "a", 0), ("0000:43:00", "b", 1)], Severity.INFO),
        # three programs
        ([("0000:43:00", name, n) for n, name in enumerate("abc")], Severity.WARN),
        # three programs that fail elsewhere too
        ([(bus, name, n) for n, name in enumerate("abc") for bus in ("0000:43:00", "0000:52:00")],
         Severity.INFO),
    ],
)  # fmt: skip
def test_application_errors_are_the_gpus_only_where_programs_differ(
    lines_: list[tuple[str, str, int]], severity: Severity
) -> None:
    node = Built()
    node.clock = 100_000.0
    node.kernel(
        *(
            f"[{90_000 + 400 * number:.6f}] {SHADER.format(pci, number, name, gpc)}"
            for number, (pci, name, gpc) in enumerate(lines_)
        )
    )
    found = {f.device: f for f in findings(node) if f.rule == "xid.13"}
    assert found[SLOTS[1]].severity is severity
    assert ("diagnostics" in found[SLOTS[1]].next_step) is (severity is Severity.WARN)


def test_an_old_xid_of_a_gpu_that_shows_no_life_stays() -> None:
    node = Built()
    node.clock = 400_000.0
    node.put("host", "", uptime_s=400_000.0)
    node.kernel(LOST, ago_s=200_000.0)
    assert by_rule(findings(node))["xid.79"].severity is Severity.INFO
    node.put("gpu", SLOTS[1], index=1, nvml_rc=15)
    assert by_rule(findings(node))["xid.79"].severity is Severity.CRITICAL


def test_packets_lost_because_another_port_died_are_no_fault() -> None:
    text = "NVRM: Xid (PCI:0000:43:00): 145, RLW_SRC_TRACK Nonfatal XC0 i0 Link 03 (0x5 {} 0x0)"
    assert by_gpu(text.format("0x4"))[SLOTS[1]].severity is Severity.INFO
    assert by_gpu(text.format("0x2"))[SLOTS[1]].severity is Severity.WARN


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 15 (0x0215e5c6 0x7)",
         {"unit": "NETIR_LINK_EVT", "fatal": True, "link": 15, "containment": 0, "injected": False,
          "sub_reason": 33, "error_status": 7}),
        ("NVRM: Xid (PCI:0000:00:1e): 149, NETIR_LINK_EVT Fatal XC 1 i 2 Link 01 [0x0000000a]",
         {"unit": "NETIR_LINK_EVT", "fatal": True, "link": 1, "containment": 1, "injected": True,
          "sub_reason": 0}),
        ("NVRM: Xid (PCI:0000:41:00): 144, SAW_MVB Nonfatal XC0 i0 Link -1 (0x4)",
         {"unit": "SAW_MVB", "fatal": False, "containment": 0, "injected": False, "sub_reason": 0}),
        ("NVRM: Xid (PCI:0000:41:00 GPU-I:05 GPU-CI:01): 43, pid=7, name=x, Ch 00000008",
         {"mig_gi": 5, "mig_ci": 1}),
        ("NVRM: Xid (PCI:00000000:41:00.0): 43, pid=7, name=x, Ch 00000008", {}),
        ("NVRM: Xid (PCI:0000:41:00): 45, pid=7, name=x, caused by previous Xid 149, Ch 00000003",
         {"caused_by": 149}),
        ("NVRM: Xid (PCI:0000:41:00): 119, pid=7, name=x, Timeout after 6s of waiting for RPC "
         "response from GPU3 GSP! Expected function 76 (GSP_RM_CONTROL) (0x2 0x0).",
         {"seconds": 6, "gpu": 3, "function": "GSP_RM_CONTROL"}),
        ("NVRM: Xid (PCI:0000:41:00): 63, Dynamic Page Retirement: New page retired, reboot to "
         "activate (0x00000000000abcde).", {"remap": "page_retired"}),
    ],
)  # fmt: skip
def test_what_a_line_adds_to_its_number(text: str, facts: dict[str, object]) -> None:
    event = parse(text)
    assert event is not None
    assert event.pci in ("0009:01:00", "0000:00:1e", "0000:41:00")
    assert {k: v for k, v in event.facts.items() if k != "said"} == facts
