"""The real agent over a real sshd: payload, pass, control lines, and nothing left behind."""

from __future__ import annotations

from probes.event import NodeState
from tests.ssh.lab import Lab, alive, wait_for
from tests.ssh.record import Watch, one_pass


async def test_pass_with_the_real_agent(sshd: Lab) -> None:
    """Several nodes, no scripted interpreter: hello, samples, end."""
    names = []
    for index in range(1, 4):
        sshd.serve(f"n{index}", index)
        names.append(f"n{index}")
    record = await one_pass(sshd.inventory(*map(sshd.node, names)), timeout_s=150.0)
    for name in names:
        assert record.last(name).state is NodeState.ENDED, record.last(name)
        hello = record.samples(name, "hello")[0].values
        assert "host" in str(hello["caps"]).split(",")
        assert str(hello["python"]).startswith("3.")
        host = record.samples(name, "host")[0]
        assert float(host.values["load1"]) >= 0
        assert record.samples(name, "inventory"), "absent hardware is an answer too"


async def test_agent_leaves_with_its_session(sshd: Lab) -> None:
    """Cancelling the watch ends the real agent on the node."""
    sshd.serve("n1", 1)
    async with Watch(sshd.inventory(sshd.node("n1"))) as watch:
        await watch.record.until(lambda: len(watch.record.samples("n1", "host")) >= 2)
        pid = int(watch.record.samples("n1", "hello")[0].values["pid"])
        assert alive(pid)
    wait_for(lambda: not alive(pid), what="end of the agent")
    first, second = watch.record.samples("n1", "host")[:2]
    assert second.clock - first.clock > 0
    assert abs((second.at - first.at) - (second.clock - first.clock)) < 10.0
