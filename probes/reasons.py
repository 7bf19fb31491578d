"""What a node's refusal means: texts of ssh, PAM, sudo and shells -> Failure. Pure.

The wordings are those of OpenSSH 9, pam_slurm, pam_slurm_adopt, pam_nologin, sudo and nologin(8).
"""

from __future__ import annotations

import re

from probes.event import NodeState
from probes.sanitise import clean
from probes.transport import Exit, Failure

NO_JOB = re.compile(r"pam_slurm|no active jobs on this node", re.IGNORECASE)
INTERACTIVE = re.compile(r"Permission denied \(([^)]*)\)")
SHELL_REFUSES = re.compile(r"account is currently not available", re.IGNORECASE)
NOLOGIN_FILE = re.compile(r"system is (?:booting up|going down)|/etc/nologin", re.IGNORECASE)
SUDO = re.compile(r"sudo: .*(?:password is required|not allowed|no tty|may not run)", re.IGNORECASE)
EXPIRED = re.compile(
    r"password has expired|account has expired|required to change your", re.IGNORECASE
)
CONTROL_PATH = re.compile(r"unix_listener: .*too long for Unix domain socket")
CHANGED = re.compile(r"Offending (\S+) key in (\S+):(\d+)|REMOTE HOST IDENTIFICATION HAS CHANGED")
PYTHON = re.compile(r"python[\d.]*: (?:command )?not found|gpuconsole: no python3", re.IGNORECASE)

LIMIT_BYTES = 108
"""sun_path of a Unix socket on Linux, unix(7)."""


def no_job_policy() -> Failure:
    """The site lets users on a node only while they have a job there. The node itself answers."""
    return Failure(
        "no_job_policy",
        "login only with a job there (site policy, pam_slurm): the node answers, GPUs not measured",
        "use an admin account; the scheduler's view stays shown",
        state=NodeState.AUTH_FAILED,
        fixed=True,
    )


def needs_interactive(methods: str = "", *, key_accepted: bool = False) -> Failure:
    """The server wants a second factor or a password; nothing is ever asked or repeated here."""
    offered = f" (it offers {clean(methods, 80)})" if methods else ""
    said = "key accepted, but a second factor is wanted" if key_accepted else "login needs a prompt"
    return Failure(
        "needs_interactive_auth",
        f"{said}{offered}",
        "log in once by hand to see what it asks; use a key or account that needs no prompt",
        state=NodeState.AUTH_FAILED,
        fixed=True,
    )


def auth(user: str, methods: str = "", why: str = "") -> Failure:
    """The server refused every key we have."""
    offered = f"; it offers {clean(methods, 80)}" if methods else ""
    return Failure(
        "auth",
        f"permission denied for user {clean(user, 64)}{offered}{why}",
        "check user and key: ssh -v as this user, ssh-add -l; on the node: sshd's log",
        state=NodeState.AUTH_FAILED,
        fixed=True,
    )


def host_key(text: str, hint: str, *, changed: bool) -> Failure:
    """Host key trouble: never retried in a loop, never repaired by us."""
    return Failure(
        "host_key" if changed else "host_key_unknown",
        text,
        hint,
        state=NodeState.HOST_KEY_CHANGED if changed else NodeState.AUTH_FAILED,
        fixed=True,
    )


def read_text(text: str) -> Failure | None:
    """The Failure that this output of ssh, PAM, sudo or a shell speaks of, if any."""
    if NO_JOB.search(text):
        return no_job_policy()
    if CONTROL_PATH.search(text):
        return _control_path(text)
    if CHANGED.search(text):
        return _changed(text)
    if denied := INTERACTIVE.search(text):
        return _denied(denied.group(1))
    return _refused(text)


def _refused(text: str) -> Failure | None:
    if SHELL_REFUSES.search(text):
        return _shell("the account's login shell refuses to run commands (nologin)")
    if NOLOGIN_FILE.search(text):
        return _shell("logins are closed there (/etc/nologin): booting or going down")
    if EXPIRED.search(text):
        return _shell("the account or its password has expired there")
    if SUDO.search(text):
        return Failure(
            "become",
            "sudo wants a password or does not allow this account",
            "allow the agent in sudoers without a password, or remove `become` from the group",
            state=NodeState.AUTH_FAILED,
            fixed=True,
        )
    return no_python() if PYTHON.search(text) else None


def no_python() -> Failure:
    """No interpreter on the node that can run the agent."""
    return Failure(
        "no_python",
        "no Python 3.6 or newer found there",
        "install python3, or name one with `python:` in the inventory",
        state=NodeState.NO_PYTHON,
        fixed=True,
    )


def _shell(text: str) -> Failure:
    return Failure(
        "no_shell", text, "use an account that may log in", state=NodeState.AUTH_FAILED, fixed=True
    )


def _denied(methods: str) -> Failure:
    interactive = {"keyboard-interactive"} & set(methods.split(","))
    return needs_interactive(methods) if interactive else auth("?", methods)


def _control_path(text: str) -> Failure:
    return Failure(
        "control_path_too_long",
        f"local problem, not the node's: ssh's ControlPath is longer than {LIMIT_BYTES} bytes",
        "in ssh_config use ControlPath with %C in a short directory, or ControlMaster no",
        fixed=True,
    )


def _changed(text: str) -> Failure:
    offending = re.search(r"Offending (\S+) key in (\S+):(\d+)", text)
    sent = re.search(
        r"The fingerprint for the (\S+) key sent.*?\n(SHA256:\S+?)\.?$", text, re.MULTILINE
    )
    host = re.search(r"Host key for (\S+) has changed", text)
    kind, where = "", ""
    if offending:
        kind, where = offending.group(1) + " ", f" ({offending.group(2)}:{offending.group(3)})"
    name = f" of {host.group(1)}" if host else ""
    now = f"; it now shows {sent.group(2)}" if sent else ""
    return host_key(
        clean(f"the {kind}host key{name} differs from the one on file{where}{now}"),
        "compare the fingerprint with whoever reinstalled it, then remove the old entry by hand",
        changed=True,
    )


def read_exit(how: Exit, said: str) -> Failure:
    """Why a command ended before its first frame. `said`: what it wrote to stdout, cleaned."""
    stderr = clean(how.stderr.decode("utf-8", "replace"))
    known = read_text(f"{said}\n{how.stderr.decode('utf-8', 'replace')}")
    if known is not None:
        return known
    if how.lost is not None:
        return how.lost
    if how.rc == 127:
        return no_python()
    words = stderr or said
    tail = f": {words}" if words else ", without a word"
    ended = f"killed by {how.signal}" if how.signal else f"ended with status {how.rc}"
    return Failure(
        "no_agent",
        f"the agent {ended} before it said hello{tail}"[:300],
        "run `ssh NODE python3 -V` by hand; see gpuconsole doctor",
    )
