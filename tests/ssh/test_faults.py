"""Nodes that refuse, hang, lie, flood or die: each costs itself only and is named."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from inventory.node import Inventory, Node
from probes.event import NodeState, NodeStatus, Sample
from tests import peak
from tests.conftest import Lab as Gate
from tests.ssh.agents import Agents
from tests.ssh.faulty import Faulty
from tests.ssh.lab import Lab, alive, children, free_port, output, wait_for
from tests.ssh.record import Watch, one_pass

OK = "hello(); tick(); end(); until_eof()"


def strings(value: object) -> Iterator[str]:
    """Every string inside an Event."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from strings(key)
            yield from strings(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from strings(inner)
    elif isinstance(value, Sample | NodeStatus):
        for name in value.__struct_fields__:
            yield from strings(getattr(value, name))


async def test_refused_port(sshd: Lab) -> None:
    sshd.serve("n1", 1)
    status = (await one_pass(sshd.inventory(sshd.node("n1", port=free_port())))).last("n1")
    assert (status.state, status.reason) == (NodeState.UNREACHABLE, "refused")
    assert status.hint


async def test_unknown_name() -> None:
    inventory = Inventory(nodes=(Node(name="no-such-host.invalid"),), ssh_config=os.devnull)
    status = (await one_pass(inventory)).last("no-such-host.invalid")
    assert (status.state, status.reason) == (NodeState.UNREACHABLE, "dns")


@pytest.mark.parametrize(
    ("kind", "reason", "timeout_s"),
    [
        ("silent", "silent", 20.0),
        ("banner", "timeout", 6.0),
        ("drip", "silent", 20.0),
        ("reset", "lost", 60.0),
        ("close", "lost", 60.0),
        ("http", "protocol", 60.0),
    ],
)
async def test_endpoint_that_is_no_ssh_server(
    sshd: Lab, faulty: Faulty, kind: str, reason: str, timeout_s: float
) -> None:
    port = await faulty.start(kind)
    inventory = sshd.inventory(Node(name="bad", address="127.0.0.1", port=port))
    status = (await one_pass(inventory, timeout_s)).last("bad")
    assert (status.state, status.reason) == (NodeState.UNREACHABLE, reason)


async def test_black_hole_does_not_delay_the_others(
    sshd: Lab, faulty: Faulty, agents: Agents
) -> None:
    """A fan-out of one, and holes first in the queue: the healthy node is not last."""
    sshd.serve("n1", 1)
    port = await faulty.start("silent")
    holes = [Node(name=f"hole{i}", address="127.0.0.1", port=port) for i in range(2)]
    inventory = sshd.inventory(*holes, sshd.node("n1", python=agents.script(OK)))
    order = []
    record = await one_pass(inventory, timeout_s=20.0, fanout=1)
    for status in record.statuses():
        if status.state is not NodeState.CONNECTING:
            order.append(status.node)
    assert order[-1] != "n1"
    assert record.last("n1").state is NodeState.ENDED
    assert {record.last(hole.name).reason for hole in holes} == {"silent"}


async def test_cut_in_the_key_exchange(sshd: Lab, faulty: Faulty) -> None:
    server = sshd.serve("n1", 1)
    port = await faulty.start("cut", (server.address, server.port), 900)
    files = sshd.known_hosts(f"[127.0.0.1]:{port} {server.public_key}", name="cut")
    node = Node(name="cut", address="127.0.0.1", port=port, user=sshd.user)
    status = (await one_pass(sshd.inventory(node, known_hosts=(str(files),)))).last("cut")
    assert (status.state, status.reason) == (NodeState.UNREACHABLE, "lost")
    assert "key exchange" in status.text


async def test_mute_after_login_is_noticed_by_keepalive_or_silence(
    sshd: Lab, agents: Agents
) -> None:
    sshd.serve("n1", 1)
    body = "hello(); tick(); import signal; os.kill(os.getpid(), signal.SIGSTOP)"
    async with Watch(sshd.inventory(sshd.node("n1", python=agents.script(body)))) as watch:
        await watch.record.until(
            lambda: (
                watch.record.statuses("n1")[-1:]
                and watch.record.last("n1").state is NodeState.STALE
            )
        )
        status = watch.record.last("n1")
    assert status.reason == "silent"
    assert "no frame for" in status.text


async def test_death_in_mid_frame(sshd: Lab, agents: Agents) -> None:
    sshd.serve("n1", 1)
    body = """
        hello(); tick()
        raw(marker + b' {"k":"s","p":"torn","t":1,"d":{"')
        sys.stdin.buffer.readline()
        os.kill(os.getppid(), 9)
    """
    async with Watch(sshd.inventory(sshd.node("n1", python=agents.script(body)))) as watch:
        await watch.record.up("n1")
        session = watch.sessions["n1"]
        async with asyncio.timeout(200):
            while session.talk is None or "torn" not in session.talk.said:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.01)
        session.send({"op": "die"})
        await watch.record.until(lambda: watch.record.last("n1").reason == "lost")
    assert watch.record.last("n1").state is NodeState.UNREACHABLE
    assert watch.record.samples("n1", "host"), "what came before is kept"
    assert not watch.record.samples("n1", "torn")


async def test_network_that_goes_mute_is_stale_at_once(
    sshd: Lab, faulty: Faulty, agents: Agents
) -> None:
    """The connection stays open and nothing comes any more, long before a keepalive gives up."""
    server = sshd.serve("n1", 1)
    body = """
        import select
        hello()
        while not select.select([0], [], [], 0.02)[0]:
            tick()
    """
    port = await faulty.start("mute", (server.address, server.port), 12_000)
    files = sshd.known_hosts(f"[127.0.0.1]:{port} {server.public_key}", name="mute")
    script = agents.script(body)
    node = Node(name="m", address="127.0.0.1", port=port, user=sshd.user, python=script)
    async with Watch(sshd.inventory(node, known_hosts=(str(files),))) as watch:
        await watch.record.up("m")
        await watch.record.until(lambda: len(watch.record.samples("m", "host")) > 10)
        await watch.record.until(lambda: watch.record.last("m").state is NodeState.STALE)


async def test_retry_now_cuts_the_back_off(sshd: Lab, agents: Agents) -> None:
    """A node that comes back is seen at once when the operator asks for it."""
    node = Node(
        name="n1",
        address=sshd.address(1),
        port=sshd.port,
        user="nobody-here",
        python=agents.script("hello(); until_eof()"),
    )
    sshd.serve("n1", 1)
    async with Watch(sshd.inventory(node)) as watch:
        await watch.record.until(lambda: [s for s in watch.record.statuses("n1") if s.retry_at])
        assert (watch.record.last("n1").retry_at or 0) > time.time() + 500
        watch.sessions["n1"].node = sshd.node("n1", python=node.python)
        watch.sessions["n1"].retry_now()
        await watch.record.up("n1")
    assert watch.record.last("n1").state is NodeState.UP


async def test_reconnects_after_a_death(sshd: Lab, agents: Agents) -> None:
    sshd.serve("n1", 1)
    flag = sshd.home() / "died"
    body = f"""
        hello(boot_id="second" if os.path.exists({str(flag)!r}) else "first"); tick()
        if not os.path.exists({str(flag)!r}):
            sys.stdin.buffer.readline()
            open({str(flag)!r}, "w").close()
            os.kill(os.getppid(), 9)
        until_eof()
    """
    async with Watch(sshd.inventory(sshd.node("n1", python=agents.script(body)))) as watch:
        await watch.record.up("n1")
        watch.sessions["n1"].send({"op": "die"})
        await watch.record.until(lambda: len(watch.record.samples("n1", "hello")) == 2)
    assert [s.values["boot_id"] for s in watch.record.samples("n1", "hello")] == ["first", "second"]
    lost = [s for s in watch.record.statuses("n1") if s.reason == "lost"]
    assert len(lost) == 1
    assert lost[0].retry_at is not None


async def test_a_longer_time_is_the_logins_too(
    sshd: Lab, agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a login may take as a rule is not the limit where more time is asked for."""
    monkeypatch.setattr("probes.ssh_transport.CONNECT_S", 0.001)
    sshd.serve("n1", 1)
    record = await one_pass(sshd.inventory(sshd.node("n1", python=agents.script(OK))), 90.0)
    assert record.last("n1").state is NodeState.ENDED


async def test_partial_answers_are_reported_partial(sshd: Lab, agents: Agents) -> None:
    sshd.serve("n1", 1)
    body = "hello(caps=['host', 'gpu']); tick('host'); until_eof()"
    inventory = sshd.inventory(sshd.node("n1", python=agents.script(body)))
    record = await one_pass(inventory, timeout_s=15.0)
    status = record.last("n1")
    assert (status.state, status.reason) == (NodeState.STALE, "partial")
    assert "gpu" in status.text
    assert "host" not in status.text.partition("from")[2]


async def test_changed_host_key_is_refused_and_explained(sshd: Lab, agents: Agents) -> None:
    server = sshd.serve("n1", 1)
    files = sshd.known_hosts(
        "# a comment",
        "other.example ssh-ed25519 AAAA",
        f"[{server.address}]:{server.port} " + server.public_key,
        name="old",
    )
    before = files.read_bytes()
    sshd.restart("n1", key=sshd.keygen(sshd.folder / "reinstalled"))
    inventory = sshd.inventory(sshd.node("n1", python=agents.script(OK)), known_hosts=(str(files),))
    for policy in ("strict", "accept-new"):
        record = await one_pass(
            Inventory(
                **{f: getattr(inventory, f) for f in inventory.__struct_fields__}
                | {"host_keys": policy}
            )
        )
        status = record.last("n1")
        assert (status.state, status.reason) == (NodeState.HOST_KEY_CHANGED, "host_key")
        assert f"{files}:3" in status.text
        assert "ED25519" in status.text
        fingerprint = output("ssh-keygen", "-lf", f"{sshd.folder}/reinstalled.pub").split()[1]
        assert fingerprint in status.text
        assert "another channel" in status.hint
    assert files.read_bytes() == before
    assert sshd.servers["n1"].logins == 0


async def test_changed_host_key_is_not_retried_in_a_loop(sshd: Lab, agents: Agents) -> None:
    server = sshd.serve("n1", 1)
    files = sshd.known_hosts(name="old")
    sshd.restart("n1", key=sshd.keygen(sshd.folder / "reinstalled"))
    node = sshd.node("n1", python=agents.script(OK))
    async with Watch(sshd.inventory(node, known_hosts=(str(files),))) as watch:
        await watch.record.until(
            lambda: any(s.reason == "host_key" for s in watch.record.statuses())
        )
        status = watch.record.last("n1")
        assert (status.retry_at or 0.0) - status.at > 500
    assert server.public_key in files.read_text()


async def test_accept_new_appends_once_and_only_new_hosts(sshd: Lab, agents: Agents) -> None:
    server = sshd.serve("n1", 1)
    files = sshd.folder / "fresh"
    files.write_text("# no line feed at the end")
    node = sshd.node("n1", python=agents.script(OK))
    strict = (await one_pass(sshd.inventory(node, known_hosts=(str(files),)))).last("n1")
    assert (strict.state, strict.reason) == (NodeState.AUTH_FAILED, "host_key_unknown")
    accepting = sshd.inventory(node, known_hosts=(str(files),), host_keys="accept-new")
    for _round in range(2):
        assert (await one_pass(accepting)).last("n1").state is NodeState.ENDED
    assert files.read_text().splitlines()[1:] == [
        f"[{server.address}]:{server.port} {server.public_key}"
    ]
    ssh = [
        "ssh",
        "-F",
        str(sshd.ssh_config()),
        "-o",
        f"UserKnownHostsFile={files}",
        "-o",
        "StrictHostKeyChecking=yes",
        "-p",
        str(server.port),
        f"{sshd.user}@{server.address}",
    ]
    assert output(*ssh, "echo", "in") == "in\n"


async def test_garbage_and_a_100_mb_line_cost_no_memory(sshd: Lab, agents: Agents) -> None:
    sshd.serve("n1", 1)
    body = """
        hello()
        put(b"\\xff\\x00\\x1b[31m" + bytes(range(256)) * 40 + b"\\n")
        for _ in range(100):
            put(b"x" * (1 << 20))
        put(b"\\n"); put(marker + b" {broken\\n"); put(marker + b" [1,2]\\n")
        tick(); end(); until_eof()
    """
    before = peak.mark()
    inventory = sshd.inventory(sshd.node("n1", python=agents.script(body)))
    record = await one_pass(inventory, timeout_s=60.0)
    grown_kib = peak.grown_kib(before)
    assert record.last("n1").state is NodeState.ENDED
    assert len(record.samples("n1", "host")) == 1, "the frame after the flood is read"
    assert any("1 MiB" in status.text for status in record.noise())
    assert grown_kib < 20 << 10
    assert all(text.isprintable() for event in record.events for text in strings(event))


EVIL = "\x1b[2J\x1b]0;pwned\x07[red]\x9b31m\u202eevil\x00\r\n\x85\udc80[/]" + "A" * 5000


async def test_no_string_of_a_node_keeps_controls(sshd: Lab, agents: Agents) -> None:
    sshd.serve("n1", 1)
    body = f"""
        evil = json.loads({json.dumps(json.dumps(EVIL))})
        hello(host=evil, python=evil, boot_id=evil, kernel=evil, os=evil, caps=[evil],
              missing={{evil: evil}})
        tick(evil, {{evil: {{evil: evil, "n": 1}}}}, rows=[{{evil: evil}}], gone=[evil])
        frame(k="hung", p=evil, dev=evil, call=evil, since=1.0, t=2.0)
        frame(k="unhung", p=evil, dev=evil, t=2.0)
        frame(k="err", p=evil, text=evil, t=2.0)
        frame(k="job", id=evil, state=evil, text=evil, rc=1)
        put(evil.encode("utf-8", "surrogateescape") + b"\\n")
        end(); until_eof()
    """
    record = await one_pass(sshd.inventory(sshd.node("n1", python=agents.script(body))))
    assert record.last("n1").state is NodeState.ENDED
    found = [text for event in record.events for text in strings(event)]
    assert all(text.isprintable() and len(text) <= 501 for text in found)
    assert any("[red]" in text for text in found), "markup is text, not something to lose"
    assert not any("pwned" in text for text in found)
    assert {e.probe for e in record.events if isinstance(e, Sample)} >= {"hello", "job"}
    assert record.noise()


async def test_hostile_counts_are_capped(sshd: Lab, agents: Agents) -> None:
    sshd.serve("n1", 1)
    body = """
        hello(caps=["c%d" % i for i in range(5000)])
        for probe in range(100):
            tick("p%d" % probe, {"": {"x": 1}})
        for batch in range(10):
            tick("p1", {"d%d" % (batch * 1000 + i): {"x": 1} for i in range(1000)})
        tick("p2", {"": {"m%d" % i: i for i in range(5000)}}, rows=[{"x": 1}] * 9000)
        tick("p3", {"odd": {"huge": 10 ** 400, "inf": float("inf"), "fine": 2 ** 64 - 1}})
        end(); until_eof()
    """
    record = await one_pass(sshd.inventory(sshd.node("n1", python=agents.script(body))))
    samples = record.samples("n1")
    assert len({s.probe for s in samples}) <= 33
    assert len({(s.probe, s.device) for s in samples}) < 300
    assert max(len(s.values) for s in samples) <= 256
    assert max(len(s.rows) for s in samples) <= 2000
    assert [s.values for s in samples if s.device == "odd"] == [{"fine": 2**64 - 1}]
    assert any("more devices" in status.text for status in record.noise())


async def test_hostname_that_is_not_utf8(sshd: Lab, agents: Agents) -> None:
    sshd.serve("n1", 1)
    body = r"""
        put(marker + b' {"k":"hello","host":"n\xff\xe91","mono":1.0,"caps":[]}\n')
        put(marker + b' {"k":"s","p":"host","t":1.5,"d":{"":{"hostname":"n\udc801","load1":1}}}\n')
        end(); until_eof()
    """
    record = await one_pass(sshd.inventory(sshd.node("n1", python=agents.script(body))))
    assert record.last("n1").state is NodeState.ENDED
    hello, host = record.samples("n1", "hello")[0], record.samples("n1", "host")[0]
    assert str(hello.values["host"]).startswith("n\ufffd")
    assert host.values["load1"] == 1
    assert str(host.values["hostname"]).isprintable()


async def test_no_python_at_all(sshd: Lab) -> None:
    """The real command line on a node that has sh and nothing else."""
    only_sh = sshd.folder / "only-sh"
    only_sh.mkdir()
    (only_sh / "sh").symlink_to("/bin/sh")
    hide = sshd.script(
        "hide-python",
        "#!/bin/sh\n"
        "command=$(printf %s \"$SSH_ORIGINAL_COMMAND\" | sed 's:/usr/:/nowhere/:g')\n"
        f'PATH={only_sh} exec /bin/sh -c "$command"\n',
    )
    sshd.serve("n1", 1, extra=f"ForceCommand {hide}")
    status = (await one_pass(sshd.inventory(sshd.node("n1")))).last("n1")
    assert (status.state, status.reason) == (NodeState.NO_PYTHON, "no_python")
    assert "python:" in status.hint


async def test_forced_command_that_exits(sshd: Lab) -> None:
    sshd.serve("n1", 1, extra="ForceCommand echo only backups here; exit 3")
    status = (await one_pass(sshd.inventory(sshd.node("n1")))).last("n1")
    assert status.reason == "no_agent"
    assert "status 3" in status.text
    assert "only backups here" in status.text


async def test_noisy_login_shell(sshd: Lab, agents: Agents) -> None:
    sshd.serve("n1", 1)
    noise = (
        "echo WELCOME; echo to; printf 'the \\033[1mcluster\\033[0m, no line feed'; echo err >&2\n"
    )
    (sshd.home() / ".bashrc").write_text(noise)
    record = await one_pass(sshd.inventory(sshd.node("n1", python=agents.script(OK))))
    assert record.last("n1").state is NodeState.ENDED
    assert not record.noise(), "noise before the hello is nobody's trouble"


@pytest.mark.parametrize("shell", ["fish", "tcsh", "dash", "zsh"])
async def test_login_shells(sshd: Lab, agents: Agents, lab: Gate, shell: str) -> None:
    lab.root("account with another login shell")
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"{shell} is not installed")
    user = sshd.add_user(path)
    sshd.serve("n1", 1)
    node = sshd.node("n1", python=agents.script(OK), user=user)
    record = await one_pass(sshd.inventory(node))
    assert record.last("n1").state is NodeState.ENDED, record.last("n1")


async def test_nologin_shell(sshd: Lab, agents: Agents, lab: Gate) -> None:
    lab.root("account without login")
    user = sshd.add_user(shutil.which("nologin", path="/usr/sbin:/sbin") or "/usr/sbin/nologin")
    sshd.serve("n1", 1)
    status = (await one_pass(sshd.inventory(sshd.node("n1", user=user)))).last("n1")
    assert (status.state, status.reason) == (NodeState.AUTH_FAILED, "no_shell")


async def test_burst_against_max_startups(sshd: Lab, agents: Agents) -> None:
    """Twenty names on one server that takes two logins at a time: retried with jitter, or named."""
    server = sshd.serve("n1", 1, extra="MaxStartups 2:100:2")
    script = agents.script(OK)
    nodes = [sshd.node("n1", python=script) for _ in range(20)]
    nodes = [
        Node(**{f: getattr(n, f) for f in n.__struct_fields__} | {"name": f"a{i}"})
        for i, n in enumerate(nodes)
    ]
    record = await one_pass(sshd.inventory(*nodes), timeout_s=90.0)
    states = [record.last(node.name) for node in nodes]
    assert "MaxStartups" in server.log
    failed = [status for status in states if status.state is not NodeState.ENDED]
    assert {status.reason for status in failed} <= {"max_startups", "lost"}
    assert all("MaxStartups" in status.text + status.hint for status in failed)
    assert len(failed) < len(nodes)


async def test_cancel_leaves_no_agent(sshd: Lab, agents: Agents) -> None:
    sshd.serve("n1", 1)
    body = "hello(); tick(); until_eof()"
    async with Watch(sshd.inventory(sshd.node("n1", python=agents.script(body)))) as watch:
        await watch.record.up("n1")
        pid = int(watch.record.samples("n1", "hello")[0].values["pid"])
        assert alive(pid)
    wait_for(lambda: not alive(pid), what="end of the agent")


async def test_cancel_in_every_phase_of_the_login(
    sshd: Lab, faulty: Faulty, agents: Agents
) -> None:
    """Whatever moment the cancel hits, it returns at once and nothing stays open."""
    server = sshd.serve("n1", 1)
    port = await faulty.start("banner")
    nodes = [
        sshd.node("n1", python=agents.script("until_eof()")),
        Node(name="b", address="127.0.0.1", port=port),
    ]
    for delay_s in (0.0, 0.02, 0.05, 0.1, 0.3):
        async with Watch(sshd.inventory(*nodes)):
            await asyncio.sleep(delay_s)
    wait_for(lambda: not children(server.process.pid), what="end of all sessions on the server")


CLIENT = """
import asyncio, sys, msgspec
from inventory.node import Inventory
from probes.bundle import AgentConfig
from probes.session import Session
from probes.transport import connections
inventory = msgspec.json.decode(sys.stdin.buffer.read(), type=Inventory)
def sink(event):
    if getattr(event, "probe", "") == "hello":
        print(event.values["pid"], flush=True)
async def main():
    transport = connections(inventory)
    await Session(inventory.nodes[0], transport, AgentConfig(), sink).run()
asyncio.run(main())
"""


def test_kill_9_of_the_client_leaves_no_agent(sshd: Lab, agents: Agents) -> None:
    sshd.serve("n1", 1)
    inventory = sshd.inventory(sshd.node("n1", python=agents.script("hello(); until_eof()")))
    root = Path(__file__).parents[2]
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert client.stdin is not None
    assert client.stdout is not None
    client.stdin.write(msgspec.json.encode(inventory))
    client.stdin.close()
    pid = int(client.stdout.readline())
    assert alive(pid)
    client.kill()
    client.wait()
    client.stdout.close()
    wait_for(lambda: not alive(pid), what="end of the agent")


async def test_send_reaches_the_agent(sshd: Lab, agents: Agents) -> None:
    sshd.serve("n1", 1)
    body = """
        hello()
        line = sys.stdin.buffer.readline()
        frame(k="job", id=json.loads(line)["id"], state="started")
        until_eof()
    """
    async with Watch(sshd.inventory(sshd.node("n1", python=agents.script(body)))) as watch:
        session = watch.sessions["n1"]
        assert session.send({"op": "run", "id": "early"}) is False
        await watch.record.up("n1")
        assert session.send({"op": "run", "id": "j1", "what": "nccl", "args": {}}) is True
        await watch.record.until(lambda: watch.record.samples("n1", "job"))
    assert watch.record.samples("n1", "job")[0].device == "j1"
    assert session.send({"op": "run"}) is False


async def test_bastion_time_and_wall_skew(sshd: Lab, agents: Agents) -> None:
    sshd.serve("n1", 1)
    body = "hello(wall=time.time() + 3600); tick(); end(); until_eof()"
    record = await one_pass(sshd.inventory(sshd.node("n1", python=agents.script(body))))
    hello, host = record.samples("n1", "hello")[0], record.samples("n1", "host")[0]
    assert 3500 < float(hello.values["wall_skew_s"]) < 3601
    assert abs(host.at - time.time()) < 60, "dated by the bastion's clock, not the node's"
