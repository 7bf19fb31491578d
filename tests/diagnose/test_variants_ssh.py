"""More of what ssh says, and more ssh_configs."""

from __future__ import annotations

import pytest

from tests.diagnose.support import facts, findings
from tests.diagnose.variants import Variant, check, table

KEY_FILE = """\
@         WARNING: UNPROTECTED PRIVATE KEY FILE!          @
Permissions 0644 for '/home/anna/.ssh/id_ed25519' are too open.
This private key will be ignored.
Load key "/home/anna/.ssh/id_ed25519": bad permissions
anna@gpu-a07: Permission denied (publickey).
"""
AGENT = """\
sign_and_send_pubkey: signing failed for ED25519 "/home/anna/.ssh/id" from agent: agent refused \
operation
anna@gpu-a07: Permission denied (publickey).
"""
REVOKED = """\
@       WARNING: REVOKED HOST KEY DETECTED!               @
The ED25519 host key for gpu-a07 is marked as revoked.
This could mean that a stolen key is being used to impersonate this host.
Host key verification failed.
"""
OTHER_PORT = """\
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
The fingerprint for the ECDSA key sent by the remote host is
SHA256:BBBB.
Offending RSA key in /home/anna/.ssh/known_hosts:7
Host key for [gpu-a07]:2222 has changed and you have requested strict checking.
Host key verification failed.
"""
EXPIRED = "WARNING: Your password has expired.\nPassword change required but no TTY available.\n"
JUMP = """\
channel 0: open failed: connect failed: No route to host
stdio forwarding failed
Connection closed by UNKNOWN port 65535
"""
OPTION = """\
/home/anna/.ssh/config: line 12: Bad configuration option: proxyjumpp
/home/anna/.ssh/config: terminating, 1 bad configuration options
"""


@table(
    Variant("key-file", KEY_FILE, "unknown", "no", ("Local problem", "not at fault"), ("gpu-a07",)),
    Variant("agent", AGENT, "unknown", "no", ("Local problem", "agent"), ("gpu-a07",)),
    Variant("revoked", REVOKED, "unknown", "no", ("gpu-a07", "revoked"), ("login worked",)),
    Variant("changed-on-a-port", OTHER_PORT, "unknown", "no", ("gpu-a07 not probed",)),
    Variant("expired", EXPIRED, "unknown", "no", ("expired",), ("WARNING",)),
    Variant("behind-the-jump-host", JUMP, "unknown", "no", ("jump host has no route",)),
    Variant("bad-option", OPTION, "unknown", "no", ("Local problem",)),
    Variant("passphrase", "Enter passphrase for key '/home/anna/.ssh/id': \n", "unknown", "no",
            ("passphrase",)),
    Variant("too-many-logins", "Too many logins for 'anna'.\nConnection to gpu-a07 closed.\n",
            "unknown", "no", ("gpu-a07", "maxlogins")),
    Variant("no-process", "bash: fork: retry: Resource temporarily unavailable\n", "unknown", "no",
            ("could not start a shell",)),
    Variant("dead-disk", "bash: /usr/bin/python3: Input/output error\n", "unknown", "no",
            ("I/O errors",)),
    Variant("stale-socket", "Control socket connect(/run/user/1000/x): Connection refused\n",
            "unknown", "no", ("Local problem",), ("refuses connections",)),
    Variant("who-was-refused", "anna@g7: Permission denied (publickey,password).\n", "unknown",
            "no", ("g7: permission denied for user anna", "publickey,password"), ("?",)),
)  # fmt: skip
def test_the_transport(variant: Variant) -> None:
    check(variant)


LOOP = "Host a\n    ProxyJump b\nHost b\n    ProxyJump ops@a:22\n"
HIDDEN = "Host *\n    ProxyJump bastion\nHost bastion\n    User jump\n"


@table(
    Variant("circle", LOOP, "warn", "no", ("a to b to a",)),
    Variant("own-jump-host", HIDDEN, "ok", "no", ("bastion",)),
    Variant("chain", "Host a\n    ProxyJump b\nHost b\n    User ops\n", "ok", "no", ("jump b",)),
    Variant("open-quote", 'Host a\n    IdentityFile "~/.ssh/id\n', "warn", "no", ("quotes",)),
    Variant("quoted-blank", 'Host a\n    IdentityFile "~/.ssh/my id"\n', "ok", "no",
            ("key ~/.ssh/my id",)),
    Variant("no-value", "Host gpu-a01\n    User\n", "warn", "no", ("user without a value",)),
    Variant("negation", "Host gpu-* !gpu-a03\n    User ops\nHost gpu-a03\n    User root\n", "ok",
            "no", ("gpu-a03: root",)),
)  # fmt: skip
def test_the_configuration(variant: Variant) -> None:
    check(variant)


@pytest.mark.parametrize("text", [KEY_FILE, AGENT, OPTION])
def test_no_node_is_blamed_for_trouble_of_this_side(text: str) -> None:
    told = check(Variant("", text, "unknown", "no"))
    assert [finding.node for finding in findings(told)] == [""]


def test_a_circle_is_told_as_a_fact() -> None:
    assert facts(check(Variant("", LOOP, "warn", "no")))["jump_loops"] == [["a", "b"]]
