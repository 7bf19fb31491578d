"""NVLink: links down and slow, errors as growth, NVLink 5's counters, and layouts by design."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from probes.event import Action, Severity
from tests.scenes.products import GPU_END, become, down
from tests.scenes.rig import Scene

GPU3 = "0000:61:00.0"

GROWS: dict[str, tuple[str, str, int, str, Severity]] = {
    "replays": ("H20", "replays", 2, "nvlink.errors", Severity.WARN),
    "recoveries": ("H20", "recoveries", 1, "nvlink.errors", Severity.WARN),
    "CRC": ("H20", "crc", 40, "nvlink.errors", Severity.WARN),
    "a storm of CRC errors": ("H20", "crc", 3000, "nvlink.errors", Severity.CRITICAL),
    "recoveries of NVLink 5": ("B200", "recoveries", 1, "nvlink.errors", Severity.WARN),
    "failed recoveries": ("B200", "recoveries_failed", 1, "nvlink.recovery_failed",
                          Severity.CRITICAL),
    "malformed packets": ("B200", "malformed", 3, "nvlink.packets", Severity.WARN),
    "buffer overruns": ("B200", "overruns", 3, "nvlink.packets", Severity.WARN),
    "receive errors": ("B200", "receive_errors", 3, "nvlink.packets", Severity.WARN),
    "integrity errors": ("B200", "integrity", 3, "nvlink.packets", Severity.WARN),
    "discards": ("B200", "discards", 3000, "nvlink.packets", Severity.WARN),
}  # fmt: skip
"""Product, counter, rise in each interval, rule, severity."""


@pytest.mark.parametrize("name", GROWS)
def test_growth_is_found_within_two_intervals(name: str, scene: Scene) -> None:
    product, counter, step, rule, severity = GROWS[name]
    become(scene, product).gpu(3, link={"4": {counter: 1000}})
    scene.interval(2)
    assert scene.rules() == set()
    for number in (1, 2):
        scene.gpu(3, link={"4": {counter: 1000 + step * number}})
        scene.interval()
    assert scene.rules() == {rule}
    found = scene.rule(rule, GPU3)
    assert found.severity is severity
    assert f"link4 {counter.replace('_', ' ')} +{step}" in found.evidence[0]


@pytest.mark.parametrize(("product", "counters"), [
    ("H20", ("replays", "recoveries", "crc")),
    ("B200", ("recoveries", "recoveries_failed", "malformed", "overruns", "discards")),
])  # fmt: skip
def test_a_reset_is_no_growth(product: str, counters: tuple[str, ...], scene: Scene) -> None:
    become(scene, product).gpu(3, link={"4": dict.fromkeys(counters, 5000)})
    scene.interval(2)
    scene.gpu(3, link={"4": dict.fromkeys(counters, 17)})
    scene.interval(2)
    assert scene.findings() == []


@pytest.mark.parametrize(
    ("counter", "step"),
    [
        ("symbol_errors", 10**5),
        ("effective_errors", 10**5),
        ("remote_errors", 10**5),
        ("recoveries_ok", 1),
        ("discards", 1000),
    ],
)
def test_what_fec_corrects_is_no_finding(counter: str, step: int, scene: Scene) -> None:
    become(scene, "B200")
    for number in range(4):
        scene.gpu(3, link={"4": {counter: step * number}})
        scene.interval()
    assert scene.rules() == set()


RATES = {
    "effective_ber": (3 << 8 | 9, 3e-9),
    "symbol_ber": (8 << 8 | 7, 8e-7),
}


@pytest.mark.parametrize("name", RATES)
def test_a_bit_error_rate_is_decoded_and_judged(name: str, scene: Scene) -> None:
    packed, rate = RATES[name]
    become(scene, "B200").interval()
    assert scene.sample("nvlink", GPU3).values[name] == 0.0
    scene.gpu(3, link={"4": {name: 2 << 8 | 14}, "7": {name: packed}})
    scene.interval(2)
    assert scene.rules() == {"nvlink.ber"}
    values = scene.sample("nvlink", GPU3).values
    assert values[name] == pytest.approx(rate)
    assert values[f"{name}_link"] == 7
    assert "link 7" in scene.rule("nvlink.ber", GPU3).say


def test_a_low_bit_error_rate_is_fine(scene: Scene) -> None:
    become(scene, "B200").gpu(3, link={"4": {"effective_ber": 2 << 8 | 14}})
    scene.interval(3)
    assert scene.findings() == []
    assert scene.sample("nvlink", GPU3).values["effective_ber"] == pytest.approx(2e-14)


def test_a_link_that_goes_down_and_where_it_led(scene: Scene) -> None:
    scene.interval()
    scene.gpu(3, link=down(5, 9))
    scene.interval()
    assert scene.rules() == {"nvlink.down"}
    found = scene.rule("nvlink.down", GPU3)
    assert "NVLink 5, 9 down, 16 of 18 up" in found.say
    assert "they led to NVSwitch 0000:08:00.0 by 5 9" in found.evidence[0]


@pytest.mark.parametrize("peers", [0, 3])
def test_a_switch_that_takes_links_of_all_gpus(peers: int, scenes: Callable[..., Scene]) -> None:
    """All siblings agree, so only what was up before, or the peers, can tell."""
    scene = scenes(peers=peers)
    scene.interval()
    through = [link for link in range(18) if link % 4 == 1]
    scene.gpus(link=down(*through))
    scene.interval()
    found = [f for f in scene.findings() if f.rule == "nvlink.down"]
    assert len(found) == 8
    assert all("NVSwitch 0000:08:00.0 by 1 5 9 13 17" in f.evidence[0] for f in found)
    scene.gpus(link={})
    scene.interval(4)
    assert scene.findings() == []


def test_a_link_below_its_siblings(scene: Scene) -> None:
    scene.interval()
    scene.gpu(3, link={"7": {"mbps": 19922}})
    scene.interval(2)
    assert scene.rules() == {"nvlink.slow"}
    assert "link 7 at 19.92 GB/s" in scene.rule("nvlink.slow", GPU3).say


def test_one_card_of_a_bridged_pair_is_down(scene: Scene) -> None:
    """Four of twelve links: one bridge of three is loose."""
    become(scene, "A100-PCIE pair").interval()
    scene.gpu(3, link=down(0, 1, 2, 3))
    scene.interval()
    assert scene.rules() == {"nvlink.down"}
    assert "they led to GPU 0000:52:00.0 by 0 1 2 3" in scene.rule("nvlink.down").evidence[0]


def test_every_bridge_of_a_node_comes_loose(scene: Scene) -> None:
    """Cards without a bridge have no links either, but these had."""
    become(scene, "A100-PCIE pair").interval()
    scene.gpus(link=down(*range(12)))
    scene.interval()
    found = [f for f in scene.findings() if f.rule == "nvlink.down"]
    assert len(found) == 8
    assert "0 links up, 12 were; they led to GPU" in found[0].evidence[0]


def test_ends_versions_and_the_fec_histogram(scene: Scene) -> None:
    become(scene, "B200").gpu(3, link={"4": {"fec": [9, 8, 7, 6, 5, 4, 3] + [0] * 9}})
    scene.interval()
    values = scene.sample("nvlink_ends", GPU3).values
    assert (values["to_switches"], values["to_gpus"], values["nvlink_version"]) == (18, 0, "5.0")
    assert values["fec_worst_bin"] == 6
    rows = {(r["gpu"], r["link"]): r for r in scene.sample("nvlink_ends").rows}
    assert len(rows) == 8 * 18
    assert str(rows[GPU3, 4]["fec"]).startswith("9,8,7,6,5,4,3,0")
    assert rows[GPU3, 4]["remote_pci"] == "0000:07:00.0"


def test_ends_of_a_pair_are_gpus(scene: Scene) -> None:
    become(scene, "A100-PCIE pair").interval()
    assert scene.sample("nvlink_ends", GPU3).values["to_gpus"] == 12
    row = next(r for r in scene.sample("nvlink_ends").rows if r["gpu"] == GPU3)
    assert (row["remote"], row["remote_pci"]) == ("gpu", "0000:52:00.0")


def test_a_power_cpu_at_the_other_end(scene: Scene) -> None:
    become(scene, "V100-SXM2").gpu(0, remote=[1, "0004:00:01.0"])
    scene.interval()
    assert scene.sample("nvlink_ends", "0000:1b:00.0").values["to_npus"] == 6


def test_counters_of_old_links(scene: Scene) -> None:
    """Per link instead of by scope: CRC of data, and ECC since Ampere."""
    become(scene, "A100-PCIE pair").gpu(3, fields={"40": 7, "103": 8, "149": 3})
    scene.interval()
    values = scene.sample("nvlink", GPU3).values
    assert (values["link1_crc_data"], values["link7_crc_data"], values["link1_ecc"]) == (7, 8, 3)


def test_too_many_links_leave_room_for_what_matters(scene: Scene) -> None:
    """A device may have 256 metrics."""
    become(scene, "B200").gpus(links=36)
    scene.interval()
    values = scene.sample("nvlink", GPU3).values
    assert len(values) <= 256
    assert {"link35_up", "link35_recoveries_failed", "link35_receive_errors"} <= set(values)


@pytest.mark.parametrize("peers", [0, 3])
def test_twelve_of_eighteen_on_all_is_information(peers: int, scenes: Callable[..., Scene]) -> None:
    scene = scenes(peers=peers)
    scene.gpus(link=down(*range(12, 18)))
    scene.interval(3)
    assert scene.rules() == set()
    found = scene.rule("nvlink.fewer")
    assert "12 of 18" in found.say
    assert found.action is Action.NONE


def some_pairs(scene: Scene) -> None:
    """Only the first two of four cards have a bridge."""
    become(scene, "A100-PCIE pair")
    for index in range(2, len(scene.state["gpus"])):
        scene.gpu(index, link=down(*range(12)))


def site_without_symbols(scene: Scene) -> None:
    """A driver that knows neither the ends of links nor field values."""
    scene.state["missing"] = [
        "nvmlDeviceGetNvLinkRemoteDeviceType", "nvmlDeviceGetNvLinkRemotePciInfo_v2",
        "nvmlDeviceGetFieldValues",
    ]  # fmt: skip
    scene.save()


QUIET: dict[str, Callable[[Scene], object]] = {
    **{
        f"all {name}": lambda scene, name=name: become(scene, name)  # type: ignore[misc]
        for name in ("V100-SXM2", "A100-PCIE pair", "H100-PCIE without bridge", "H100-NVL", "H20",
                     "H800", "L40S", "RTX6000-Ada, ECC off", "B200", "GB200", "GH200 by itself")
    },
    "bridges on some cards": some_pairs,
    "MIG": lambda scene: scene.gpus(mig=1, util=None, mem_util=None),
    "old scars": lambda scene: scene.gpus(link={"4": {"crc": 9000, "replays": 12}}),
    "a driver without the calls": site_without_symbols,
}  # fmt: skip


@pytest.mark.parametrize("name", QUIET)
def test_layouts_by_design_are_not_reported(name: str, scene: Scene) -> None:
    QUIET[name](scene)
    scene.interval(3)
    assert scene.rules() == set()


def test_a_rebooted_link_says_where_it_leads_again(scene: Scene) -> None:
    ends: dict[str, Any] = {"5": {"up": 0}}
    scene.gpu(3, link=ends)
    scene.interval()
    rows = [r for r in scene.sample("nvlink_ends").rows if r["gpu"] == GPU3 and r["link"] == 5]
    assert [set(row) for row in rows] == [{"gpu", "link", "up"}]
    scene.gpu(3, link={"5": {"remote": [GPU_END, "0000:43:00.0"]}})
    scene.interval()
    (row,) = (r for r in scene.sample("nvlink_ends").rows if r["gpu"] == GPU3 and r["link"] == 5)
    assert (row["up"], row["remote"], row["remote_pci"]) == (True, "gpu", "0000:43:00.0")
