"""NVLink and topology pastes: whose links are down, and where none are meant to be up."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings

from console.diagnose import nvlink, topo
from console.diagnose.text import of
from probes.event import Severity
from tests.diagnose.cases import case, drain_begins
from tests.diagnose.fuzz import mutated, readable
from tests.diagnose.gpu_text import links, row, table
from tests.diagnose.support import about, demand, facts, only, rules, severity, ticket, words

SXM = "nvlink-all-inactive-sxm"
PCIE = "nvlink-all-inactive-pcie-no-bridge"
TOPO = "nvlink-topo-ansi-one-gpu-sys"


@pytest.mark.parametrize("name", [SXM, PCIE, TOPO])
def test_verdict_and_drain_are_the_cases(name: str) -> None:
    found = case(name)
    assert found.verdict is severity(name)
    assert found.drain.startswith(drain_begins(name))


def test_a_bridgeless_card_has_no_fault() -> None:
    found, wanted = case(PCIE), demand(PCIE)["facts"]
    told = facts(found)
    for index, said in wanted["gpus"].items():
        assert {n: told["gpus"][index][n] for n in said} == said
    assert told["form_factor"] == wanted["form_factor"]
    assert not only(found).findings
    assert "PCIe" in found.say
    assert "no bridge" in found.say


def test_the_same_sentence_is_a_dead_gpu_on_a_board() -> None:
    found, wanted = case(SXM), demand(SXM)["facts"]
    told = facts(found)
    for index, said in wanted["gpus"].items():
        assert {n: told["gpus"][index][n] for n in said} == said
    assert told["link_gb_s"] == wanted["link_gb_s"]
    down = about(found, "nvlink.down")
    assert down.device.endswith("101")
    assert any("all links are inActive" in line for line in down.evidence)
    assert "GPU 1 has no NVLink at all while its peers have 18 of 18" in found.say
    assert "bridge" not in found.say
    assert "Xid" in down.next_step


def test_one_link_of_one_gpu() -> None:
    found = ticket(links(0) + links(1, down=[11]) + links(2))
    down = about(found, "nvlink.down")
    assert (down.severity, down.label) == (Severity.CRITICAL, "GPU 1")
    assert facts(found)["gpus"]["1"]["inactive"] == [11]
    assert "17 of 18" in found.say


@pytest.mark.parametrize("name", ["NVIDIA H200", "NVIDIA A100-SXM-64GB"])
def test_no_link_on_any_gpu_of_a_board(name: str) -> None:
    found = ticket("".join(links(n, name, 18, range(18)) for n in range(4)))
    assert about(found, "nvlink.down").device == ""
    assert found.verdict is Severity.CRITICAL
    assert found.drain == "now"


@pytest.mark.parametrize("name", ["NVIDIA RTX A6000", "NVIDIA L40S", "Quadro GV100"])
def test_no_link_on_any_card(name: str) -> None:
    found = ticket("".join(links(n, name, 4, range(4)) for n in range(4)))
    assert found.verdict is Severity.OK
    assert found.drain == "no"


def test_a_product_that_nobody_knows_is_not_judged() -> None:
    found = ticket("".join(links(n, "NVIDIA X900", 4, range(4)) for n in range(4)))
    assert not only(found).findings
    assert "whether NVIDIA X900 should have NVLinks" in words(found)


def test_fewer_links_by_design() -> None:
    found = ticket("".join(links(n, "NVIDIA H800", 18, range(8, 18)) for n in range(8)))
    assert found.verdict is Severity.OK
    assert "8 of 18" in found.say


def test_mig_is_unknown_not_down() -> None:
    heading = links(0, "NVIDIA A100-SXM4-40GB", 0)
    found = ticket(heading + "Nvlink queries are not supported for Devices in MIG mode\n")
    assert found.verdict is Severity.UNKNOWN
    assert "MIG" in words(found)
    assert not only(found).findings
    beside = ticket(links(0) + heading.replace("GPU 0", "GPU 1").replace("0100", "0101")
                    + "Nvlink queries are not supported for Devices in MIG mode\n")  # fmt: skip
    assert "nvlink.down" not in rules(beside)


def errors(marked: dict[int, str]) -> str:
    text = "".join(
        marked.get(n, f"\t Link {n}: Replay Errors: 0\n\t Link {n}: Recovery Errors: 0\n"
                      f"\t Link {n}: CRC Errors: 0\n")
        for n in range(12)
    )  # fmt: skip
    return links(0, "NVIDIA A100-SXM4-80GB", 0) + text


@pytest.mark.parametrize(
    ("line", "grade"),
    [
        ("", Severity.OK), ("\t Link 4: CRC Errors: 3\n", Severity.INFO),
        ("\t Link 4: CRC Errors: 4711\n", Severity.WARN),
        ("\t Link 4: Recovery Errors: 1\n", Severity.WARN),
    ],
)  # fmt: skip
def test_totals_have_no_date(line: str, grade: Severity) -> None:
    found = ticket(errors({4: line} if line else {}))
    assert found.verdict is grade
    assert found.drain == "no"
    if line:
        total = about(found, "paper.nvlink_totals")
        assert total.evidence == (line.strip(),)
        assert "second reading" in total.next_step


def test_the_error_rate_of_a_link() -> None:
    quiet = "".join(
        f"\t Link {n}: Effective BER: 15e-255\n\t Link {n}: Symbol Errors: 7\n" for n in range(18)
    )
    heading = links(0, "NVIDIA B200", 0)
    assert ticket(heading + quiet).verdict is Severity.OK
    found = ticket(heading + quiet + "\t Link 7: Effective BER: 2e-9\n")
    assert "link 7" in about(found, "nvlink.ber").say


def test_remote_ends_and_capabilities_are_no_faults() -> None:
    text = links(0, number=0) + (
        "\t Link 0, P2P is supported: true\n\t Link 0, Access to system memory supported: true\n"
        "\t Link 1: Remote Device 00000008:00:00.0: Link 35\n\t Link 1: Data Tx: 123 KiB\n"
    )
    found = ticket(text)
    assert rules(found) == set()
    assert facts(found)["gpus"]["0"]["remotes"]["link 1"].startswith("00000008:00:00.0")


# Topology


def test_one_gpu_without_a_path() -> None:
    found, wanted = case(TOPO), demand(TOPO)["facts"]
    told = facts(found)
    for name in ("gpus", "nics"):
        assert told[name] == wanted[name]
    for name in ("gpu_pairs", "cpu_affinity", "numa"):
        assert {key: told[name][key] for key in wanted[name]} == wanted[name]
    dark = about(found, "paper.topo_no_nvlink")
    assert dark.label == "GPU 3"
    for part in ("GPU 3", "SYS", "NV18"):
        assert part in found.say
    assert "\x1b" not in str(found)


def matrix(rows: list[list[str]], tail: str = "\t0-31\t0") -> str:
    names = [f"GPU{n}" for n in range(len(rows))]
    heading = "\t" + "\t".join(names) + "\tCPU Affinity\tNUMA Affinity\n"
    return heading + "".join(
        f"{name}\t" + "\t".join(row) + tail + "\n" for name, row in zip(names, rows, strict=True)
    )


def square(number: int, path: str = "NV18", odd: dict[tuple[int, int], str] | None = None) -> str:
    special = odd or {}
    return matrix([
        [" X " if a == b else special.get((min(a, b), max(a, b)), path) for b in range(number)]
        for a in range(number)
    ])  # fmt: skip


def test_healthy_topologies() -> None:
    bridges = {(a, b): "SYS" for a in range(4) for b in range(a + 1, 4)} | {
        (0, 1): "NV12", (2, 3): "NV12",
    }  # fmt: skip
    one_bridge = {(a, b): "SYS" for a in range(4) for b in range(a + 1, 4)} | {(0, 1): "NV12"}
    for text in (square(8), square(4, odd=bridges), square(4, odd=one_bridge), square(2, "PHB")):
        found = ticket(text)
        assert found.verdict is Severity.OK, found.say
        assert found.drain == "no"


def test_a_mesh_of_several_widths_is_a_design() -> None:
    v100 = {(0, 1): "NV1", (0, 2): "NV1", (0, 3): "NV2", (1, 2): "NV2", (1, 3): "SYS",
            (2, 3): "NV1"}  # fmt: skip
    assert ticket(square(4, odd=v100)).verdict is Severity.OK


def test_one_gpu_with_fewer_links() -> None:
    odd = {(min(5, n), max(5, n)): "NV17" for n in range(8) if n != 5}
    found = ticket(square(8, odd=odd))
    assert about(found, "paper.topo_fewer_nvlinks").label == "GPU 5"
    assert found.drain == "after running jobs"


def test_a_board_without_any_path_where_the_ticket_names_it() -> None:
    alone = ticket(square(4, "SYS"))
    assert alone.verdict is Severity.OK
    assert "SXM board" in words(alone)
    cards = "".join(row(n) for n in range(4))
    both = ticket(f"$ nvidia-smi\n{table([cards])}\n$ nvidia-smi topo -m\n{square(4, 'SYS')}")
    assert about(both, "paper.topo_no_nvlink").severity is Severity.CRITICAL
    pcie = "".join(row(n, name="NVIDIA L40S") for n in range(4))
    fine = ticket(f"$ nvidia-smi\n{table([pcie])}\n$ nvidia-smi topo -m\n{square(4, 'SYS')}")
    assert "paper.topo_no_nvlink" not in rules(fine)


def test_blanks_for_tabs_and_adapters_by_name() -> None:
    found = ticket(
        "        GPU0    GPU1    mlx5_0  mlx5_1  CPU Affinity    NUMA Affinity\n"
        "GPU0     X      NV12    PXB     SYS     0-31    0\n"
        "GPU1    NV12     X      SYS     PXB     32-63   1\n"
        "mlx5_0  PXB     SYS      X      SYS\n"
        "mlx5_1  SYS     PXB     SYS      X \n\nLegend:\n\n  X    = Self\n"
    )
    told = facts(found)
    assert told["nics"] == {"mlx5_0": "mlx5_0", "mlx5_1": "mlx5_1"}
    assert told["gpu_pairs"] == {"0-1": "NV12"}
    assert told["nearest_nics"]["GPU1"] == {"nics": ["mlx5_1"], "path": "PXB"}
    assert told["numa"] == {"GPU0": 0, "GPU1": 1}


@given(mutated((links(0) + links(1, down=[3]), errors({4: "\t Link 4: CRC Errors: 9\n"}))))
@settings(max_examples=80, deadline=None, database=None)
def test_broken_text_invents_no_gpu_and_no_link(text: str) -> None:
    report = nvlink.read(of(text))
    gpus = report.facts.get("gpus", {})
    for name, gpu in gpus.items():
        assert name in text
        assert gpu["uuid"] in readable(text)
        for number in gpu.get("inactive", ()):
            assert re.search(rf"Link {number}\b", text)


@given(mutated((square(4), square(3, odd={(0, 1): "SYS"}))))
@settings(max_examples=80, deadline=None, database=None)
def test_broken_tables_invent_no_gpu(text: str) -> None:
    report = topo.read(of(text))
    for pair in report.facts.get("gpu_pairs", {}):
        for number in pair.split("-"):
            assert f"GPU{number}" in text
