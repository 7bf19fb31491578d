"""Logging in on real OpenSSH servers: addresses, certificates, jump hosts, keys, refusals."""

from __future__ import annotations

import pytest

from probes.bundle import AgentConfig
from probes.event import NodeState
from probes.session import Session
from tests.ssh.agents import Agents
from tests.ssh.lab import Lab, background, output, wait_for
from tests.ssh.record import Record, Watch, one_pass, transport_of

OK = "hello(); tick(); end(); until_eof()"


async def test_several_addresses_answer(sshd: Lab, agents: Agents) -> None:
    nodes = []
    for index in range(1, 5):
        sshd.serve(f"n{index}", index)
        nodes.append(sshd.node(f"n{index}", python=agents.script(OK)))
    record = await one_pass(sshd.inventory(*nodes))
    for node in nodes:
        assert record.last(node.name).state is NodeState.ENDED
        assert record.samples(node.name, "host")[0].values == {"load1": 1.0}
        assert sshd.servers[node.name].logins == 1


async def test_host_certificate(sshd: Lab, agents: Agents) -> None:
    sshd.serve("n1", 1, certificate="n1")
    trusted = sshd.known_hosts(sshd.ca_line(), name="ca")
    node = sshd.node("n1", python=agents.script(OK))
    config = sshd.ssh_config("Host 127.*\n  HostKeyAlias n1")
    record = await one_pass(sshd.inventory(node, config=config, known_hosts=(str(trusted),)))
    assert record.last("n1").state is NodeState.ENDED


async def test_host_certificate_for_another_name_is_refused(sshd: Lab, agents: Agents) -> None:
    sshd.serve("n1", 1, certificate="somebody-else")
    trusted = sshd.known_hosts(sshd.ca_line(), name="ca")
    node = sshd.node("n1", python=agents.script(OK))
    record = await one_pass(sshd.inventory(node, known_hosts=(str(trusted),)))
    status = record.last("n1")
    assert (status.state, status.reason) == (NodeState.AUTH_FAILED, "host_key_unknown")
    assert "principal" in status.text


async def test_certificate_of_unknown_authority_falls_back_to_the_plain_key(
    sshd: Lab, agents: Agents
) -> None:
    server = sshd.serve("n1", 1, certificate="n1")
    plain = f"[{server.address}]:{server.port} {server.public_key}"
    other = "@cert-authority * " + " ".join((sshd.folder / "id.pub").read_text().split()[:2])
    files = (str(sshd.known_hosts(other, plain, name="both")),)
    node = sshd.node("n1", python=agents.script(OK))
    record = await one_pass(sshd.inventory(node, known_hosts=files))
    assert record.last("n1").state is NodeState.ENDED


async def test_key_type_on_file_is_asked_for(sshd: Lab, agents: Agents) -> None:
    """A server with two host keys shows the one that known_hosts holds, hashed or not."""
    rsa = sshd.keygen(sshd.folder / "host-rsa", "rsa")
    server = sshd.serve("n1", 1, extra=f"HostKey {rsa}")
    public = " ".join((sshd.folder / "host-rsa.pub").read_text().split()[:2])
    path = sshd.known_hosts(f"[{server.address}]:{server.port} {public}", name="rsa")
    node = sshd.node("n1", python=agents.script(OK))
    assert (await one_pass(sshd.inventory(node, known_hosts=(str(path),)))).last(
        "n1"
    ).state == "ended"
    # The commonest hashed type is another one: only the second look finds the line.
    more = [f"other{i} {server.public_key}" for i in range(3)]
    path.write_text("\n".join([path.read_text().strip(), *more]) + "\n")
    sshd.run("ssh-keygen", "-q", "-H", "-f", str(path))
    assert (await one_pass(sshd.inventory(node, known_hosts=(str(path),)))).last(
        "n1"
    ).state == "ended"


async def test_jump_host_is_logged_in_once(sshd: Lab, agents: Agents) -> None:
    sshd.serve("jump", 99)
    nodes = []
    for index in range(1, 6):
        sshd.serve(f"n{index}", index)
        jump = f"{sshd.user}@{sshd.servers['jump'].address}:{sshd.port}"
        nodes.append(sshd.node(f"n{index}", python=agents.script(OK), jump=(jump,)))
    record = await one_pass(sshd.inventory(*nodes))
    assert [record.last(node.name).state for node in nodes] == [NodeState.ENDED] * 5
    assert sshd.servers["jump"].logins == 1
    assert all(sshd.servers[node.name].logins == 1 for node in nodes)


async def test_jump_host_of_ssh_config(sshd: Lab, agents: Agents) -> None:
    jump, node = sshd.serve("jump", 99), sshd.serve("n1", 1)
    config = sshd.ssh_config(
        f"Host bastion\n  HostName {jump.address}\n  Port {jump.port}\n  User {sshd.user}\n"
        f"Host {node.address}\n  ProxyJump bastion\n"
    )
    entry = sshd.node("n1", python=agents.script(OK))
    record = await one_pass(sshd.inventory(entry, config=config))
    assert record.last("n1").state is NodeState.ENDED
    assert jump.logins == 1


async def test_jump_host_is_opened_again_after_it_died(sshd: Lab, agents: Agents) -> None:
    sshd.serve("jump", 99)
    sshd.serve("n1", 1)
    jump = f"{sshd.user}@{sshd.servers['jump'].address}:{sshd.port}"
    node = sshd.node("n1", python=agents.script(OK), jump=(jump,))
    inventory = sshd.inventory(node)
    async with transport_of(inventory) as transport:
        for logins in (1, 2):
            record = Record()
            await Session(node, transport, AgentConfig(mode="pass"), record).run()
            assert record.last("n1").state is NodeState.ENDED
            assert sshd.servers["jump"].logins == logins
            sshd.restart("jump")


async def test_host_key_of_the_jump_host_is_checked(sshd: Lab, agents: Agents) -> None:
    jump = sshd.serve("jump", 99)
    node = sshd.serve("n1", 1)
    only_node = f"[{node.address}]:{node.port} {node.public_key}"
    files = (str(sshd.known_hosts(only_node, name="partial")),)
    entry = sshd.node("n1", python=agents.script(OK), jump=(f"{jump.address}:{jump.port}",))
    status = (await one_pass(sshd.inventory(entry, known_hosts=files))).last("n1")
    assert status.reason == "host_key_unknown"
    assert f"jump host {jump.address}" in status.text
    assert node.logins == jump.logins == 0


async def test_jump_host_that_does_not_forward(sshd: Lab, agents: Agents) -> None:
    jump = sshd.serve("jump", 99, extra="AllowTcpForwarding no")
    sshd.serve("n1", 1)
    via = (f"{sshd.user}@{jump.address}:{jump.port}",)
    entry = sshd.node("n1", python=agents.script(OK), jump=via)
    status = (await one_pass(sshd.inventory(entry))).last("n1")
    assert status.reason == "jump_refuses"


# The relay ends when its socket does, maybe a moment after the loop that started it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_proxy_command(sshd: Lab, agents: Agents) -> None:
    server = sshd.serve("n1", 1)
    relay = sshd.script(
        "relay",
        "#!/usr/bin/python3 -S\n"
        "import os, select, socket, sys\n"
        "s = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
        "while True:\n"
        "    for r in select.select([0, s], [], [])[0]:\n"
        "        data = os.read(0, 65536) if r == 0 else s.recv(65536)\n"
        "        if not data: sys.exit()\n"
        "        s.sendall(data) if r == 0 else os.write(1, data)\n",
    )
    config = sshd.ssh_config(f"Host {server.address}\n  ProxyCommand {relay} %h %p")
    entry = sshd.node("n1", python=agents.script(OK))
    record = await one_pass(sshd.inventory(entry, config=config))
    assert record.last("n1").state is NodeState.ENDED, record.last("n1")


async def test_unknown_user_is_auth_failed_and_not_repeated(sshd: Lab, agents: Agents) -> None:
    sshd.serve("n1", 1)
    node = sshd.node("n1", python=agents.script(OK), user="nobody-here")
    async with Watch(sshd.inventory(node)) as watch:
        await watch.record.until(
            lambda: (
                watch.record.statuses("n1")[-1:]
                and watch.record.last("n1").state is NodeState.AUTH_FAILED
            )
        )
        status = watch.record.last("n1")
    assert status.reason == "auth"
    assert "nobody-here" in status.text
    assert (status.retry_at or 0.0) - status.at > 500


async def test_missing_identity_is_named(sshd: Lab, agents: Agents) -> None:
    sshd.serve("n1", 1)
    node = sshd.node("n1", python=agents.script(OK), identity="/nowhere/key")
    status = (await one_pass(sshd.inventory(node))).last("n1")
    assert (status.state, status.reason) == (NodeState.AUTH_FAILED, "auth")
    assert "/nowhere/key" in status.text


async def test_agent_keys_are_used_and_read_once(
    sshd: Lab, agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket_path = sshd.folder / "agent.sock"
    agent = background("ssh-agent", "-D", "-a", str(socket_path))
    try:
        wait_for(socket_path.exists, what="ssh-agent")
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket_path))
        output("ssh-add", "-q", str(sshd.folder / "id"))
        config = sshd.folder / "agent_config"
        config.write_text("IdentityFile /nonexistent\n")
        nodes = []
        for index in (1, 2):
            sshd.serve(f"n{index}", index)
            nodes.append(sshd.node(f"n{index}", python=agents.script(OK)))
        record = await one_pass(sshd.inventory(*nodes, config=config))
        assert [record.last(n.name).state for n in nodes] == [NodeState.ENDED] * 2
    finally:
        agent.kill()
        agent.wait()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Access denied by pam_slurm_adopt: you have no active jobs on this node", "no_job_policy"),
        ("Access denied: user user7 (uid=60007) has no active jobs on this node.", "no_job_policy"),
    ],
)
async def test_policy_told_in_a_banner(sshd: Lab, agents: Agents, text: str, reason: str) -> None:
    banner = sshd.folder / "banner"
    banner.write_text(text + "\n")
    sshd.serve("n1", 1, extra=f"Banner {banner}\nDenyUsers {sshd.user}")
    status = (await one_pass(sshd.inventory(sshd.node("n1", python=agents.script(OK))))).last("n1")
    assert (status.state, status.reason) == (NodeState.AUTH_FAILED, reason)


async def test_second_factor_is_named_and_never_prompted(sshd: Lab, agents: Agents) -> None:
    extra = "AuthenticationMethods publickey,password\nPasswordAuthentication yes"
    sshd.serve("n1", 1, extra=extra)
    status = (await one_pass(sshd.inventory(sshd.node("n1", python=agents.script(OK))))).last("n1")
    assert status.state is NodeState.AUTH_FAILED
    assert status.reason == "needs_interactive_auth"
    assert "key accepted" in status.text
    assert "Failed password" not in sshd.servers["n1"].log
