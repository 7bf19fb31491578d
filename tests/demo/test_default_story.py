"""The default story through real sessions: one pass over all 16 nodes shows what it promises."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from console.demo.cluster import DemoCluster
from console.fleet import Fleet
from console.tui.views.hosts import Place, Places
from probes.bundle import AgentConfig
from probes.event import NodeState
from probes.facts import NodeFacts
from probes.session import Session
from probes.ssh import connections

TIMEOUT_S = 60.0
"""Per node; generous, because two cores may be busy with other tests."""


@pytest.fixture
async def demo() -> AsyncIterator[DemoCluster]:
    async with DemoCluster() as cluster:
        yield cluster


async def one_pass(demo: DemoCluster) -> dict[str, NodeFacts]:
    facts = {node.name: NodeFacts(node) for node in demo.inventory.nodes}
    transport = connections(demo.inventory)
    try:
        async with asyncio.TaskGroup() as group:
            for node in demo.inventory.nodes:
                config = AgentConfig(mode="pass", root=node.root)
                sink = facts[node.name].apply
                session = Session(node, transport, config, sink, TIMEOUT_S)
                group.create_task(session.run())
    finally:
        await transport.close()
    return facts


GPU = "0000:{}:00.0".format


async def test_nodes_stand_in_racks_that_a_fault_may_share(demo: DemoCluster) -> None:
    places = Places(Fleet(demo.inventory))
    rack = ("gpu005", "gpu006", "gpu007", "gpu008")
    assert places.shared(rack) == Place("rack", "r2", 4, 4, 4)
    leaf = tuple(f"gpu{number:03}" for number in range(9, 16))
    assert places.shared(leaf) == Place("leaf", "leaf2", 7, 7, 8)
    assert places.shared(("gpu001", "gpu005", "gpu009", "gpu013")) is None


async def test_one_pass_over_the_default_story(demo: DemoCluster) -> None:
    facts = await one_pass(demo)
    states = {name: f.state for name, f in facts.items()}
    assert states.pop("gpu014") is NodeState.UNREACHABLE
    assert set(states.values()) == {NodeState.ENDED}
    for name, found in facts.items():
        if name != "gpu014":
            assert len(list(found.devices("gpu"))) == 8, name

    lost = facts["gpu005"]
    assert lost.value("gpu", GPU("9d"), "nvml_rc") == 15
    assert any(": 79," in str(row["text"]) for row in lost.kernel)

    hot = facts["gpu003"]
    clocks = {d: float(s.values["sm_clock_mhz"]) for d, s in hot.devices("gpu")}
    assert clocks.pop(GPU("c3")) < 0.8 * min(clocks.values())
    assert int(hot.value("gpu", GPU("c3"), "reasons") or 0) & 0x40
    assert int(hot.value("gpu", GPU("c3"), "thermal_hw_ns") or 0) > 1e9

    assert facts["gpu012"].value("ecc", GPU("52"), "remap_pending") is True

    port = facts["gpu008"]
    assert int(port.value("infiniband", "mlx5_3/1", "link_downed") or 0) >= 41
    assert any("Link DOWN" in str(row["text"]) for row in port.kernel)

    waiting = [s.values for _, s in facts["gpu009"].devices("gpu")]
    assert {v["util_percent"] for v in waiting} == {100}
    rows = facts["gpu009"].latest["processes", ""].rows
    assert {row["job"] for row in rows} == {"48177"}

    healthy = facts["gpu015"]
    assert not healthy.kernel
    assert healthy.value("host", "", "hostname") == "gpu015"
