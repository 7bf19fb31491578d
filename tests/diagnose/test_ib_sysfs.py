"""Trees of /sys/class/infiniband: the field cases, and ports that fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.diagnose import ib_sysfs, ib_tree
from console.diagnose.text import of
from probes.event import Severity
from tests.diagnose.cases import case, drain_begins
from tests.diagnose.fuzz import mutated
from tests.diagnose.support import about, demand, facts, only, path, rules, severity, ticket, words
from tests.probes_node import test_infiniband as probed

EFA = "ib-sysfs-efa-rdmap"
NO_PMA = "ib-sysfs-na-no-pma-and-hfi1-commas"
ROCE = "ib-sysfs-roce-bond-no-lid"
VF = "ib-sysfs-vf-down"


@pytest.mark.parametrize("name", [EFA, NO_PMA, ROCE, VF])
def test_verdict_and_drain_are_the_cases(name: str) -> None:
    found = case(name)
    assert only(found).kind == "ib-sysfs"
    assert found.verdict is severity(name)
    assert found.drain.startswith(drain_begins(name))


@pytest.mark.parametrize("name", [EFA, NO_PMA, ROCE, VF])
def test_a_dump_tells_what_the_live_probe_tells(tmp_path: Path, name: str) -> None:
    probed.tree(tmp_path, name)
    live = probed.collect(tmp_path)
    (dump,) = ib_tree.trees(of(path(name).read_text()))
    paper = {port.name: port for port in ib_tree.ports_of(dump)}
    assert set(paper) == set(live)
    for key, port in paper.items():
        told = {n: v for n, v in port.values().items() if not n.startswith("_")}
        told.pop("vendor", None)  # the case's tree gives one to every device
        assert {n: live[key].get(n) for n in told} == told


def test_one_efa_adapter_stands_out() -> None:
    found, wanted = case(EFA), demand(EFA)["facts"]
    told = facts(found)
    for name in ("kind", "devices", "others_clean"):
        assert told[name] == wanted[name]
    for name, value in wanted["rdmap79s0"].items():
        assert told["rdmap79s0"][name] == value
    assert {f.device for f in only(found).findings} == {"rdmap79s0/1"}
    for part in ("311", "17", "3 other adapters are clean", "peers"):
        assert part in found.say


def test_text_in_place_of_numbers_and_names_with_commas() -> None:
    found, wanted = case(NO_PMA), demand(NO_PMA)["facts"]
    for device, said in wanted.items():
        assert {name: facts(found)[device][name] for name in said} == said
    assert "mlx4_0 has no error counters" in found.say
    assert not only(found).findings


def test_roce_has_no_lid() -> None:
    found, wanted = case(ROCE), demand(ROCE)["facts"]
    for device, said in wanted.items():
        assert {name: facts(found)[device][name] for name in said} == said
    assert "1 InfiniBand port and 2 RoCE ports up (one is a bond)" in found.say
    assert "leg" in words(found)
    assert "CNP" not in words(found).upper()


def test_only_the_function_in_use_is_a_fault() -> None:
    found, wanted = case(VF), demand(VF)["facts"]
    for name, said in wanted.items():
        assert facts(found)[name] == said
    assert [f.device for f in only(found).findings] == ["ibp24s0v2/1"]
    for part in ("ibp24s0v2", "no GUID", "2 unused virtual functions are ignored"):
        assert part in found.say
    assert "10 G" not in words(found)


def tree(*ports: dict[str, str], **more: Any) -> str:
    """mlx5_0 and so on; each port healthy but for what is given."""
    files = {}
    for number, change in enumerate(ports):
        base = f"mlx5_{number}"
        files[f"{base}/hca_type"] = "MT4129"
        told = {
            "state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)",
            "link_layer": "InfiniBand", "lid": "0x1a2", "sm_lid": "0x1",
            "counters/symbol_error": "0", "counters/link_downed": "0", **change,
        }  # fmt: skip
        files |= {f"{base}/ports/1/{name}": text for name, text in told.items()}
    return json.dumps({"layout": "sysfs-infiniband/1", "files": files, **more})


DOWN = {"state": "1: DOWN", "phys_state": "2: Polling", "rate": "10 Gb/sec (4X SDR)",
        "lid": "0xffff", "sm_lid": "0x0"}  # fmt: skip


def test_one_of_eight_ports_without_a_link() -> None:
    found = ticket(tree(*[{}] * 3, DOWN, *[{}] * 4))
    down = about(found, "ib.down")
    assert (down.severity, down.device) == (Severity.CRITICAL, "mlx5_3/1")
    assert found.drain.startswith("after running jobs")
    assert "mlx5_3" in found.say
    assert "10 G" not in words(found)


def test_a_ninth_port_is_no_fault() -> None:
    found = ticket(tree(*[{}] * 8, DOWN))
    assert found.verdict is Severity.INFO
    assert about(found, "ib.unused").device == "mlx5_8/1"


def test_a_port_at_half_the_rate_of_its_siblings() -> None:
    found = ticket(tree(*[{}] * 7, {"rate": "200 Gb/sec (2X NDR)"}))
    assert about(found, "ib.rate").device == "mlx5_7/1"
    assert "200" in found.say


@pytest.mark.parametrize(
    ("counters", "grade"),
    [
        ({"counters/symbol_error": "12"}, Severity.INFO),
        ({"counters/link_downed": "2"}, Severity.INFO),
        ({"counters/symbol_error": "65535"}, Severity.WARN),
        ({"counters/local_link_integrity_errors": "3"}, Severity.WARN),
        ({"hw_counters/np_cnp_sent": "99999", "hw_counters/out_of_sequence": "12"}, Severity.OK),
        ({"counters/port_xmit_wait": "4294967295"}, Severity.OK),
    ],
)
def test_totals_of_one_moment(counters: dict[str, str], grade: Severity) -> None:
    found = ticket(tree({}, {}, counters, {}))
    assert found.verdict is grade, found.say
    assert found.drain == "no"


def test_waiting_for_the_subnet_manager() -> None:
    waits = {"state": "2: INIT", "phys_state": "5: LinkUp", "lid": "0xffff", "sm_lid": "0x0"}
    found = ticket(tree(*[waits] * 4))
    assert found.verdict is Severity.CRITICAL
    assert found.drain.startswith("unknown")
    assert "subnet manager" in words(found)


def test_as_grep_prints_it() -> None:
    prefix = "/sys/class/infiniband/mlx5"
    lines = [
        f"{prefix}_{n}/ports/1/{name}:{text}"
        for n in range(4)
        for name, text in (
            ("state", "1: DOWN" if n == 2 else "4: ACTIVE"),
            ("phys_state", "3: Disabled" if n == 2 else "5: LinkUp"),
            ("link_layer", "InfiniBand"), ("counters/symbol_error", "N/A (no PMA)"),
        )
    ]  # fmt: skip
    found = ticket("$ grep . /sys/class/infiniband/*/ports/1/*\n" + "\n".join(lines) + "\n")
    assert about(found, "ib.down").device == "mlx5_2/1"
    assert facts(found)["mlx5_0"]["counters"] == "unavailable"


def test_files_that_could_not_be_read() -> None:
    found = ticket(tree({}, read_errors={"mlx5_0/ports/1/counters/symbol_error": "EINVAL"}))
    assert found.verdict is Severity.OK
    assert "EINVAL" in words(found)


GREP = (
    "/sys/class/infiniband/mlx5_0/ports/1/state:4: ACTIVE\n"
    "/sys/class/infiniband/mlx5_0/ports/1/rate:400 Gb/sec (4X NDR)\n"
)


@given(mutated((path(VF).read_text(), tree({}, DOWN), GREP)))
@settings(max_examples=80, deadline=None, database=None)
def test_broken_dumps_invent_no_port(text: str) -> None:
    report = ib_sysfs.read(of(text))
    for finding in report.findings:
        assert finding.device.partition("/")[0] in text
    devices = {name.partition("/")[0] for name, told in report.facts.items() if _is_port(told)}
    assert all(device in text for device in devices)
    ib_sysfs.sniff(text)


def _is_port(told: Any) -> bool:
    return isinstance(told, dict) and "bond" in told


def test_two_dumps_of_one_node_show_growth() -> None:
    before: dict[str, str] = {}
    after = {"counters/symbol_error": "5000"}
    grown = ticket(tree(before) + "\n" + tree(after))
    assert about(grown, "paper.ib_grows").device == "mlx5_0/1"
    rate = ticket(
        tree(before, at="2026-03-03T04:05:06Z") + "\n" + tree(after, at="2026-03-03T04:06:06Z")
    )
    assert "in 60 s" in about(rate, "ib.symbol_error").say


@given(st.dictionaries(st.text(max_size=30), st.text(max_size=20), max_size=5))
@settings(max_examples=50, deadline=None, database=None)
def test_any_files_are_read(files: dict[str, str]) -> None:
    text = json.dumps({"layout": "sysfs-infiniband/1", "files": files})
    assert ib_sysfs.read(of(text)).kind == "ib-sysfs"
    assert not rules(ticket(text))


def test_a_dump_that_carries_an_older_one() -> None:
    now = json.loads(tree({"counters/link_downed": "3"}))
    older = {"mlx5_0/ports/1/counters/link_downed": "2"}
    timed = ticket(json.dumps({**now, "previous": {"files": older}, "interval_s": 60}))
    assert "in 60 s" in about(timed, "ib.link_downed").say
    untimed = ticket(json.dumps({**now, "previous": older}))
    assert about(untimed, "paper.ib_grows").severity is Severity.CRITICAL
