"""InfiniBand tools: the field cases, the real tools on a simulated fabric, and broken text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings

from console.diagnose import ib_tools
from console.diagnose.text import of
from probes.event import Action, Severity
from tests import lab_ib
from tests.conftest import Lab
from tests.diagnose.cases import case, drain_begins
from tests.diagnose.fuzz import mutated, readable
from tests.diagnose.ib_text import DOWN, WAITS, ca, ibstat, perfquery, prefixed
from tests.diagnose.support import (
    about,
    demand,
    facts,
    findings,
    only,
    rules,
    severity,
    ticket,
    words,
)

MISSING = "ib-tools-ibstat-old-missing-tools"
NINTH = "ib-tools-ninth-port-and-netdev-down"
PANIC = "ib-tools-polling-partial-ibpanic"


@pytest.mark.parametrize("name", [MISSING, NINTH, PANIC])
def test_verdict_and_drain_are_the_cases(name: str) -> None:
    found = case(name)
    assert only(found).kind == "ib-tools"
    assert found.verdict is severity(name)
    assert found.drain.startswith(drain_begins(name))


def test_a_missing_tool_is_no_broken_fabric() -> None:
    found, wanted = case(MISSING), demand(MISSING)["facts"]
    assert {node: facts(found)[node] for node in wanted} == wanted
    assert {f.node for f in findings(found)} == set(wanted)
    assert {f.severity for f in findings(found)} == {Severity.UNKNOWN}
    assert "/sys/class/infiniband" in found.say
    assert "there is no RDMA device: gpu-a02" in found.say


def test_a_ninth_port_and_interfaces_that_are_down() -> None:
    found, wanted = case(NINTH), demand(NINTH)["facts"]
    assert {name: facts(found)[name] for name in wanted} == wanted
    (only_one,) = findings(found)
    assert only_one.device == "mlx5_8/1"
    assert "mlxconfig" in only_one.next_step
    for part in ("8 compute ports are ACTIVE", "IPoIB", "mlx5_8"):
        assert part in found.say
    assert "9" not in found.say.replace("mlx5_9", "")


def test_good_blocks_before_a_panic_are_kept() -> None:
    found, wanted = case(PANIC), demand(PANIC)["facts"]
    told = facts(found)
    assert {name: told[name] for name in wanted} == wanted
    assert "rate_gbps" not in told["port_details"]["mlx5_10/1"]
    assert told["port_details"]["mlx5_0/1"]["rate_gbps"] == 400.0
    assert about(found, "paper.ib_vanished").device == "mlx5_8"
    assert about(found, "ib.down").device == "mlx5_10/1"
    for part in ("mlx5_8 has vanished", "mlx5_10 has no link", "Polling", "incomplete"):
        assert part in found.say
    assert "Rate: 10" not in str(found)


def test_newer_releases_warn_and_go_on() -> None:
    warned = "ibwarn: [4411] main: stat of IB device 'mlx5_8' failed\n"
    found = ticket(ca("mlx5_0") + warned + ca("mlx5_1"))
    assert about(found, "paper.ib_vanished").device == "mlx5_8"
    assert set(facts(found)["ports"]) == {"mlx5_0", "mlx5_1"}
    assert "rc" not in facts(found)


# States


def test_eight_healthy_ports() -> None:
    found = ticket(ibstat(8))
    assert found.verdict is Severity.OK
    assert facts(found)["compute_up"] == 8
    assert "8 compute ports are ACTIVE" in found.say


def test_one_of_eight_without_a_link() -> None:
    found = ticket(ibstat(8, [3], **DOWN))
    down = about(found, "ib.down")
    assert (down.severity, down.device, down.action) == (
        Severity.CRITICAL, "mlx5_3/1", Action.DRAIN,
    )  # fmt: skip
    assert "Physical state: Polling" in down.evidence
    assert found.drain == "after running jobs; now for gang jobs"
    assert len(rules(found)) == 1


def test_a_disabled_port_needs_no_cable() -> None:
    found = ticket(ibstat(8, [3], **{**DOWN, "physical": "Disabled"}))
    assert "no cable" in about(found, "ib.down").next_step


def test_the_second_function_of_a_card_may_be_empty() -> None:
    found = ticket(ca("mlx5_0", image="0xaa01") + ca("mlx5_1", image="0xaa01", **DOWN))
    assert found.verdict is Severity.INFO


def test_all_ports_wait_for_the_subnet_manager() -> None:
    found = ticket(ibstat(8, range(8), **WAITS))
    assert found.verdict is Severity.CRITICAL
    assert found.drain.startswith("unknown")
    assert found.say.startswith("8 of 8 ports wait for the subnet manager")
    assert "cable is good" in words(found)


def test_no_port_has_a_link() -> None:
    found = ticket(ibstat(8, range(8), **DOWN))
    assert found.verdict is Severity.CRITICAL
    assert found.say.startswith("8 of 8 ports have no link")


def test_a_port_below_its_siblings() -> None:
    found = ticket(ibstat(8, [5], rate="200"))
    slow = about(found, "ib.rate")
    assert (slow.device, slow.value) == ("mlx5_5/1", 200.0)
    assert "7 like ports of the node at 400" in found.say


def test_a_slower_ninth_port_is_another_network() -> None:
    assert ticket(ibstat(9, [8], rate="200")).verdict is Severity.OK


def test_the_second_port_of_one_adapter_may_be_empty() -> None:
    both = ca("mlx4_0") + (
        "\tPort 2:\n\t\tState: Down\n\t\tPhysical state: Polling\n\t\tRate: 10\n"
        "\t\tBase lid: 0\n\t\tSM lid: 0\n\t\tLink layer: InfiniBand\n"
    )
    found = ticket(both)
    assert found.verdict is Severity.INFO
    assert set(facts(found)["ports"]) == {"mlx4_0/1", "mlx4_0/2"}


def test_ethernet_has_no_lid_and_no_manager() -> None:
    roce = {"layer": "Ethernet", "lid": "0", "manager": "0", "rate": "200"}
    found = ticket(ibstat(2, range(2), **roce))
    assert found.verdict is Severity.OK
    assert facts(found)["port_details"]["mlx5_0/1"]["lid"] is None
    assert facts(found)["ethernet"] == ["mlx5_0", "mlx5_1"]


STATUS = """\
Infiniband device 'mlx5_{n}' port 1 status:
\tdefault gid:\t fe80:0000:0000:0000:aaaa:0000:0000:0100
\tbase lid:\t 0x19b
\tsm lid:\t\t 0x1
\tstate:\t\t {state}
\tphys state:\t {physical}
\trate:\t\t 400 Gb/sec (4X NDR)
\tlink_layer:\t InfiniBand

"""
DEVINFO = """\
hca_id:\tmlx5_{n}
\ttransport:\t\t\tInfiniBand (0)
\tfw_ver:\t\t\t\t28.39.1002
\tphys_port_cnt:\t\t\t1
\t\tport:\t1
\t\t\tstate:\t\t\t{state}
\t\t\tsm_lid:\t\t\t1
\t\t\tport_lid:\t\t411
\t\t\tlink_layer:\t\tInfiniBand

"""
RDMA = "link mlx5_{n}/1 state {state} physical_state {physical} netdev ibp{n} \n"
RDMA_OLD = (
    "{n}/1: mlx5_{n}/1: subnet_prefix fe80:0000:0000:0000 lid 411 sm_lid 1 lmc 0 state {state} "
    "physical_state {physical} \n"
)
NETDEV_V = (
    "0000:1{n}:00.0 mlx5_{n} (MT4129 - MCX75310AAS-NEAT) NVIDIA ConnectX-7 HHHL Adapter card fw "
    "28.39.1002 port 1 ({state}) ==> ib{n} (Down)\n"
)


@pytest.mark.parametrize(
    ("form", "good", "bad"),
    [
        (STATUS, ("4: ACTIVE", "5: LinkUp"), ("1: DOWN", "2: Polling")),
        (DEVINFO, ("PORT_ACTIVE (4)", ""), ("PORT_DOWN (1)", "")),
        (RDMA, ("ACTIVE", "LINK_UP"), ("DOWN", "POLLING")),
        (RDMA_OLD, ("ACTIVE", "LINK_UP"), ("DOWN", "POLLING")),
        (NETDEV_V, ("ACTIVE", ""), ("DOWN  ", "")),
    ],
)
def test_other_tools_say_the_same(form: str, good: tuple[str, str], bad: tuple[str, str]) -> None:
    text = "".join(
        form.format(n=n, state=state, physical=physical)
        for n in range(8)
        for state, physical in [bad if n == 6 else good]
    )
    found = ticket(text)
    assert facts(found)["compute_up"] == 7
    assert about(found, "ib.down").device == "mlx5_6/1"
    assert found.verdict is Severity.CRITICAL


def test_interfaces_alone_say_nothing_about_ports() -> None:
    found = ticket("".join(f"mlx5_{n} port 1 ==> ib{n} (Down)\n" for n in range(8)))
    assert found.verdict is Severity.UNKNOWN
    assert not findings(found)
    assert "ibstat" in words(found)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("No IB devices found\n", "no_devices"),
        ("Fatal error:  No devices\n", "no_devices"),
        ("ibwarn: [21] umad_init: can't read ABI version from /sys/class/infiniband_mad/"
         "abi_version (No such file or directory): is ib_umad module loaded?\n"
         "ibpanic: [21] main: can't init UMAD library\n", "umad_missing"),
        ("/bin/sh: 1: ibv_devinfo: not found\n", "tool_missing"),
        ("Query SA failed: Connection timed out; sa call path_query failed\n", "manager_silent"),
    ],
)  # fmt: skip
def test_nothing_was_measured(text: str, name: str) -> None:
    found = ticket(text)
    assert found.verdict is Severity.UNKNOWN
    assert facts(found)["state"] == name
    assert found.drain == "no"


# Nodes


def test_prefixes_and_headings_of_nodes() -> None:
    text = prefixed("gpu-a01", ibstat(4)) + prefixed("gpu-a02", ibstat(4, [1], **DOWN))
    found = ticket(text)
    assert about(found, "ib.down").node == "gpu-a02"
    assert set(facts(found)) == {"gpu-a01", "gpu-a02"}
    for heading in ("--- {} ---", "=== {} ===", "### {}", "{}:", "==> {} <==", "## host: {} ##"):
        bad = ibstat(4, [1], **DOWN)
        text = f"{heading.format('gpu-b01')}\n{ibstat(4)}\n{heading.format('gpu-b02')}\n{bad}"
        assert about(ticket(text), "ib.down").node == "gpu-b02", heading
    dated = ticket(f"=== 2026-03-03 ===\n{ibstat(4, [1], **DOWN)}")
    assert about(dated, "ib.down").node == ""
    rule = "-" * 15
    gathered = ticket(
        f"{rule}\ngpu-a[01-02] (2)\n{rule}\n{ibstat(1)}{rule}\ngpu-a03\n{rule}\n"
        "bash: ibstat: command not found\n"
    )
    assert facts(gathered)["gpu-a02"]["compute_up"] == 1
    assert facts(gathered)["gpu-a03"] == "tool_missing"
    ansible = ticket(
        f"gpu-a01 | CHANGED | rc=0 >>\n{ibstat(1)}gpu-a02 | FAILED | rc=127 >>\n"
        "/bin/sh: 1: ibstat: not found\n"
    )
    assert facts(ansible)["gpu-a02"] == "tool_missing"
    assert facts(ansible)["gpu-a01"]["rc"] == 0


# Counters


@pytest.mark.parametrize(
    ("symbols", "downed", "grade"),
    [(0, 0, Severity.OK), (120, 3, Severity.INFO), (65535, 0, Severity.WARN),
     (5000, 0, Severity.WARN), (0, 255, Severity.WARN)],
)  # fmt: skip
def test_totals_since_they_were_cleared(symbols: int, downed: int, grade: Severity) -> None:
    found = ticket(perfquery(symbols, downed))
    assert found.verdict is grade
    assert found.drain == "no"
    if grade is not Severity.OK:
        assert "second reading" in words(found)
    if symbols == 65535:
        assert "maximum" in found.say


def test_two_readings_show_growth() -> None:
    assert ticket(perfquery(120, 3) * 2).verdict is Severity.OK
    grown = ticket(perfquery(120, 3) + perfquery(4711, 3))
    assert about(grown, "paper.ib_grows").evidence == ("symbol_error 120 -> 4711",)
    lost = ticket(perfquery(120, 3) + perfquery(120, 4))
    assert about(lost, "paper.ib_grows").severity is Severity.CRITICAL


def test_two_readings_with_times_show_a_rate() -> None:
    slow = ticket(
        f"2026-03-03 04:05:06\n{perfquery(120, 3)}2026-03-03 05:05:06\n{perfquery(125, 3)}"
    )
    assert slow.verdict is Severity.OK
    fast = ticket(
        f"Tue Mar  3 04:05:06 UTC 2026\n{perfquery(120, 3)}Tue Mar  3 04:06:06 UTC 2026\n"
        f"{perfquery(4711, 3)}"
    )
    assert "in 60 s" in about(fast, "ib.symbol_error").say
    other = ticket(
        f"2026-03-03 04:05:06\n{perfquery(0, 3)}2026-03-03 04:06:06\n{perfquery(0, 4, lid=7)}"
    )
    assert rules(other) == set(), "two ports are not two readings of one"


# Fabric


def fabric_line(node: str, port: int, *, width: int = 4, note: str = " ", up: bool = True) -> str:
    guid = f"0x00000000001000{port:02}"
    if not up:
        link = '==(                Down/ Polling)==>             [  ] "" ( )'
    else:
        link = (
            f"==( {width}X        106.25 Gbps Active/  LinkUp)==>       3   {port:2}[  ] "
            f'"leaf1" ({note})'
        )
    return f"CA: {node} mlx5_0:\n      {guid}     {port:2}    1[  ] {link}\n"


def test_links_of_a_fabric() -> None:
    healthy = "".join(fabric_line(f"gpu-a{n:02}", n) for n in range(1, 9))
    free = (
        "Switch: 0x0000000000200001 leaf1:\n"
        '           3    9[  ] ==(                Down/ Polling)==>             [  ] "" ( )\n'
    )
    assert ticket(healthy + free).verdict is Severity.OK
    odd = fabric_line("gpu-b01", 11, width=2, note="Could be 4X") + fabric_line(
        "gpu-b02", 12, up=False
    )
    found = ticket(healthy + odd + free)
    assert about(found, "paper.ib_slow_link").node == "gpu-b01"
    assert about(found, "ib.down").node == "gpu-b02"
    assert facts(found)["free_switch_ports"] == 1
    assert "Could be 4X" in about(found, "paper.ib_slow_link").evidence[0]


def test_a_whole_fabric_below_its_best_is_a_setting() -> None:
    text = "".join(fabric_line(f"gpu-a{n:02}", n, note="Could be 12X") for n in range(1, 9))
    found = ticket(text)
    assert found.verdict is Severity.OK
    assert "on purpose" in words(found)


def test_interfaces_of_ethtool_and_advice_of_mlxlink() -> None:
    quiet = ticket("NIC statistics:\n     rx_packets: 12\n     rx_discards_phy: 0\n")
    assert quiet.verdict is Severity.OK
    noisy = ticket("NIC statistics:\n     rx_discards_phy: 991\n     rx_prio3_pause: 5\n")
    assert noisy.verdict is Severity.INFO
    assert facts(noisy)["interfaces"]["?"]["errors"] == {"rx_discards_phy": 991}
    dark = ticket("Settings for eth2:\n\tSpeed: Unknown!\n\tLink detected: no\n")
    assert about(dark, "paper.ethtool").device == "eth2"
    advised = ticket(
        "Operational Info\n----------------\nState                           : Polling\n"
        "Physical state                  : ETH_AN_FSM_ENABLE\n\nTroubleshooting Info\n"
        "--------------------\nRecommendation                  : Cable is unplugged\n"
    )
    assert "Cable is unplugged" in about(advised, "paper.mlxlink").say


# The real tools


def test_real_tools_on_a_simulated_fabric(tmp_path: Path, lab: Lab) -> None:
    lab_ib.require(lab)
    with lab_ib.fabric(tmp_path / "ib") as fabric:
        assert ticket(fabric.run("n3", "ibstat")).verdict is Severity.OK
        assert ticket(fabric.run("n3", "perfquery")).verdict is Severity.OK
        first = fabric.run("n3", "perfquery")
        fabric.counter("n3/1", "SymbolErrorCounter", 120)
        fabric.counter("n3/1", "LinkDownedCounter", 3)
        said = ticket(fabric.run("n3", "perfquery"))
        (counters,) = facts(said)["counters"].values()
        assert (counters["symbol_error"], counters["link_downed"]) == (120, 3)
        assert said.verdict is Severity.INFO
        grown = ticket(first + fabric.run("n3", "perfquery"))
        assert "symbol_error 0 -> 120" in about(grown, "paper.ib_grows").evidence
        queried = ticket(fabric.run("n3", "ibqueryerrors"))
        assert about(queried, "paper.ib_totals").device == "n3/1"
        cabling = ticket(fabric.run("n3", "ibnetdiscover"))
        assert cabling.verdict is Severity.UNKNOWN
        assert "iblinkinfo" in words(cabling)
        links = ticket(fabric.run("n3", "iblinkinfo"))
        assert facts(links)["host_ports_active"] == 8
        assert links.verdict is Severity.OK, "links of ibsim could all be faster: a setting"
        fabric.unlink("n3/1")
        dark = ticket(fabric.run("n3", "ibstat"))
        assert about(dark, "ib.down").severity is Severity.WARN
        assert facts(ticket(fabric.run("n1", "iblinkinfo")))["host_ports_active"] == 7


SAMPLES = (
    ibstat(4, [1], **DOWN), perfquery(120, 3), STATUS.format(n=0, state="4: ACTIVE", physical="5"),
    RDMA.format(n=1, state="DOWN", physical="POLLING"), fabric_line("gpu-a01", 3, note="Could be"),
    prefixed("gpu-a01", ibstat(2)), "mlx5_0 port 1 ==> ib0 (Down)\n",
    "### gpu-a01 rc=127\nbash: line 1: ibstat: command not found\n",
)  # fmt: skip


@given(mutated(SAMPLES))
@settings(max_examples=120, deadline=None, database=None)
def test_broken_text_never_raises_and_invents_no_port(text: str) -> None:
    report = ib_tools.read(of(text))
    parts = [report.facts, *(v for v in report.facts.values() if isinstance(v, dict))]
    for told in parts:
        for name in told.get("port_details", {}):
            assert str(name).rpartition("/")[0] in readable(text)
        for name in told.get("vanished", ()):
            assert name in readable(text)
    ib_tools.sniff(text)
