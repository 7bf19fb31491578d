"""ssh's own words, ssh_config on paper, and host lists."""

# ruff: noqa: E501 - pasted output is as wide as its program prints it

from __future__ import annotations

import pytest

from probes.event import Action, Severity
from tests.diagnose.support import about, case, demand, facts, findings, only, ticket, words

HARDWARE = (Action.DRAIN, Action.REPLACE, Action.REBOOT, Action.RESET_GPU)

# ------------------------------------------------------------------------------- transport


@pytest.mark.parametrize(
    "name",
    ["ssh-transport-controlpath-too-long", "ssh-transport-host-key-changed",
     "ssh-transport-two-factor-prompts"],
)  # fmt: skip
def test_facts_of_one_host(name: str) -> None:
    found, wanted = only(case(name)).facts, demand(name)["facts"]
    assert {key: found[key] for key in wanted} == wanted


def test_hosts_apart() -> None:
    name = "ssh-transport-pam-slurm-adopt"
    assert only(case(name)).facts["by_host"] == demand(name)["facts"]
    assert "gpu-a[01,03]" in only(case(name)).say


@pytest.mark.parametrize(
    ("line", "error", "host"),
    [
        ("ssh: connect to host gpu-a01 port 22: Connection refused", "refused", "gpu-a01"),
        ("ssh: connect to host gpu-a01 port 22: Connection timed out", "timeout", "gpu-a01"),
        ("ssh: connect to host gpu-a01 port 22: Operation timed out", "timeout", "gpu-a01"),
        ("ssh: connect to host gpu-a01 port 22: No route to host", "no_route", "gpu-a01"),
        ("ssh: connect to host gpu-a01 port 22: Network is unreachable", "no_route", "gpu-a01"),
        ("ssh: Could not resolve hostname gpu-a01: Name or service not known", "dns", "gpu-a01"),
        ("ssh: Could not resolve hostname gpu-a01: Temporary failure in name resolution", "dns",
         "gpu-a01"),
        ("kex_exchange_identification: Connection closed by remote host\n"
         "Connection closed by 192.0.2.11 port 22", "max_startups", "192.0.2.11"),
        ("Connection timed out during banner exchange\n"
         "Connection to 192.0.2.11 port 22 timed out", "silent", ""),
        ("ops@gpu-a01: Permission denied (publickey).", "auth", "gpu-a01"),
        ("ops@gpu-a01: Permission denied (publickey,gssapi-keyex,gssapi-with-mic,password).", "auth",
         "gpu-a01"),
        ("Received disconnect from 192.0.2.11 port 22:2: Too many authentication failures\n"
         "Disconnected from 192.0.2.11 port 22", "too_many_keys", "192.0.2.11"),
        ("No ED25519 host key is known for gpu-a01 and you have requested strict checking.\n"
         "Host key verification failed.", "host_key_unknown", "gpu-a01"),
        ("Unable to negotiate with 192.0.2.11 port 22: no matching host key type found. Their offer: "
         "ssh-rsa,ssh-dss", "protocol", "192.0.2.11"),
        ("This account is currently not available.", "no_shell", ""),
        ('"System is booting up. Unprivileged users are not permitted to log in yet."\n'
         "Connection closed by 192.0.2.11 port 22", "no_shell", "192.0.2.11"),
        ("channel 0: open failed: administratively prohibited: open failed\n"
         "stdio forwarding failed\nConnection closed by UNKNOWN port 65535", "jump_refuses", ""),
        ("mux_client_request_session: session request failed: Session open refused by peer",
         "no_session", ""),
        ("Timeout, server gpu-a01 not responding.", "lost", "gpu-a01"),
        ("client_loop: send disconnect: Broken pipe", "lost", ""),
        ("Could not chdir to home directory /home/u: Stale file handle\n"
         "Connection to gpu-a01 closed by remote host.", "home", "gpu-a01"),
    ],
)  # fmt: skip
def test_every_wording_of_openssh(line: str, error: str, host: str) -> None:
    diagnosis = ticket(line + "\n")
    part = only(diagnosis)
    assert part.kind == "ssh-transport"
    assert part.facts["error"] == error
    assert part.facts.get("host", "") == host or not host
    assert diagnosis.verdict is Severity.UNKNOWN
    assert diagnosis.drain == "no"
    assert not [f for f in findings(diagnosis) if f.action in HARDWARE]
    assert all(f.next_step and f.evidence for f in findings(diagnosis))


@pytest.mark.parametrize(
    "line",
    [
        "/home/u/.ssh/config: line 7: Bad configuration option: usekeychain\n"
        "/home/u/.ssh/config: terminating, 1 bad configuration options",
        "Bad owner or permissions on /home/u/.ssh/config",
        "@         WARNING: UNPROTECTED PRIVATE KEY FILE!          @\n"
        "Permissions 0644 for '/home/u/.ssh/id' are too open.\nLoad key \"/home/u/.ssh/id\": bad permissions",
        'Load key "/home/u/.ssh/id": error in libcrypto',
        "sign_and_send_pubkey: signing failed for ED25519 \"k\" from agent: agent refused operation",
        "/home/u/.ssh/config line 3: Too many recursive configuration includes",
    ],
)  # fmt: skip
def test_trouble_of_this_side_is_not_the_nodes(line: str) -> None:
    diagnosis = ticket(line + "\n", "ssh-transport")
    (one,) = findings(diagnosis)
    assert (one.rule, one.node) == ("ssh.local", "")
    assert "not at fault" in diagnosis.say


def test_pdsh_and_ansible_name_their_hosts() -> None:
    text = (
        "gpu-a01: ssh: connect to host gpu-a01 port 22: No route to host\n"
        "pdsh@login1: gpu-a01: ssh exited with exit code 255\n"
        "gpu-a02: ops@gpu-a02: Permission denied (publickey).\n"
    )
    assert facts(ticket(text))["by_host"] == {"gpu-a01": "no_route", "gpu-a02": "auth"}
    text = (
        'gpu-a03 | UNREACHABLE! => {"msg": "Failed to connect to the host via ssh: ssh: connect to '
        'host gpu-a03 port 22: Connection refused"}\ngpu-a04 | SUCCESS => {"ping": "pong"}\n'
    )
    assert facts(ticket(text))["by_host"] == {"gpu-a03": "refused", "gpu-a04": "ok"}


def test_errors_of_several_hosts_without_headings() -> None:
    text = "".join(f"ssh: connect to host n{i} port 22: Connection timed out\n" for i in range(40))
    text += "ssh: Could not resolve hostname n99: Name or service not known\n"
    diagnosis = ticket(text)
    assert facts(diagnosis)["counts"] == {"timeout": 40, "dns": 1}
    assert "n[0-39]" in diagnosis.say


def test_banners_alone_are_nothing() -> None:
    text = "Warning: Permanently added 'n1' (ED25519) to the list of known hosts.\nAuthorized uses only.\n"
    assert ticket(text).inputs[0].kind == ""


def test_a_code_that_was_typed_is_not_repeated() -> None:
    text = "user1@login1: Permission denied (keyboard-interactive).\n(user1@login1) Verification code: 123456\n"
    assert "123456" not in words(ticket(text))
    assert not any("123456" in line for f in findings(ticket(text)) for line in f.evidence)


# ------------------------------------------------------------------------------- ssh_config


@pytest.mark.parametrize("name", ["ssh-config-include-leak", "ssh-config-nested-include-glob"])
def test_facts_of_configs(name: str) -> None:
    found, wanted = only(case(name)).facts, demand(name)["facts"]
    assert {key: found[key] for key in wanted} == wanted


def test_first_value_wins_and_negation_and_match() -> None:
    text = """Host gpu-* !gpu-x1
    User first
    Port 2200
Host gpu-x1
    User special
Match host gpu-a1
    ProxyJump bastion
Match all
    User last
    IdentityFile ~/.ssh/a
    IdentityFile ~/.ssh/b
Host gpu-a1 gpu-x1
    HostName 192.0.2.1
"""
    found = only(ticket(text)).facts
    assert found["gpu-a1"] == {
        "user": "first", "port": 2200, "hostname": "192.0.2.1",
        "identityfile": ["~/.ssh/a", "~/.ssh/b"], "proxyjump": "bastion",
    }  # fmt: skip
    assert found["gpu-x1"]["user"] == "special"
    assert "port" not in found["gpu-x1"]


def test_match_exec_is_never_run_and_said_to_be_open(tmp_path: object) -> None:
    marker = f"{tmp_path}/ran"
    text = f'Host n1\n    User a\nMatch exec "touch {marker}"\n    User b\nHost n2\n    Port 22\n'
    part = only(ticket(text))
    assert any("touch" in sentence for sentence in part.unknown)
    from pathlib import Path

    assert not Path(marker).exists()


@pytest.mark.parametrize(
    ("line", "what"),
    [("    Prot 22", "bad configuration option prot"), ("    Port x", "bad port x"),
     ("    UseKeychain yes", "bad configuration option usekeychain"), ("    User", "user without")],
)  # fmt: skip
def test_lines_that_openssh_refuses(line: str, what: str) -> None:
    part = only(ticket(f"Host n1\n    User a\n    HostName n1.x\n{line}\n"))
    assert part.verdict is Severity.WARN
    assert part.facts["openssh_would_run"] is False
    assert what in part.facts["problems"][0]


def test_checks_that_are_off_are_named() -> None:
    text = "Host *\n    StrictHostKeyChecking no\n    UserKnownHostsFile /dev/null\nHost n1\n    User a\n"
    assert about(ticket(text), "ssh.config_unsafe").severity is Severity.INFO


# -------------------------------------------------------------------------------- host lists


def test_broken_lists_are_refused_with_their_column() -> None:
    name = "inventory-malformed-must-be-rejected"
    found, wanted = only(case(name)).facts, demand(name)["facts"]
    assert {key: found[key] for key in wanted} == wanted
    assert [one["column"] for one in found["rejected"][:3]] == [5, 7, 6]
    assert [one["line"] for one in found["rejected"]] == list(range(1, 13))


def test_good_lists_are_expanded_in_order() -> None:
    name = "inventory-mixed-hostlist"
    found, wanted = only(case(name)).facts, demand(name)["facts"]
    assert {key: found[key] for key in wanted} == wanted
    assert "6, 4, 3, 3 and 4 hosts" in only(case(name)).say


def test_one_broken_line_does_not_stop_the_others() -> None:
    found = only(ticket("gpu[1-2],n9\ngpu[1-\ngpu[7-8]\n")).facts
    assert found["1"] == ["gpu1", "gpu2", "n9"]
    assert found["3"] == ["gpu7", "gpu8"]
    assert found["rejected"][0]["line"] == 2
    assert found["all_rejected"] is False


def test_inventory_files() -> None:
    good = only(ticket("groups:\n  h100:\n    hosts: gpu[001-004]\n    gpus: 8\n"))
    assert (good.kind, good.verdict, good.facts["count"]) == ("inventory", Severity.OK, 4)
    bad = only(ticket("groups:\n  h100:\n    hots: gpu[001-004]\n"))
    assert bad.verdict is Severity.WARN
    assert "hosts" in bad.findings[0].say
    assert "stdin:3" in bad.findings[0].say


def test_lists_with_blanks_and_from_the_environment() -> None:
    assert only(ticket("gpu[1-2] login1\n")).facts["1"] == ["gpu1", "gpu2", "login1"]
    found = only(ticket("SLURM_JOB_NODELIST=gpu[001-002]\n"))
    assert (found.kind, found.facts["1"]) == ("inventory", ["gpu001", "gpu002"])
