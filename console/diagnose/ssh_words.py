"""What OpenSSH's client says when it cannot get in: kind, meaning, next step. Pure.

What servers, PAM, sudo and shells say is in probes.reasons, which the live console reads too; here
is the client's own side, which the console does not see because it speaks SSH itself.
"""

from __future__ import annotations

import re

from msgspec import Struct

from probes.event import NodeState
from probes.reasons import auth, read_text
from probes.transport import Failure

LOCAL = NodeState.PENDING
"""Marks trouble of this machine: nothing is known about the node."""
_UP, _AUTH, _KEY = NodeState.UNREACHABLE, NodeState.AUTH_FAILED, NodeState.HOST_KEY_CHANGED


class Word(Struct, frozen=True):
    """One wording."""

    pattern: re.Pattern[str]
    reason: str
    state: NodeState
    what: str
    hint: str


def _word(pattern: str, reason: str, state: NodeState, what: str, hint: str) -> Word:
    return Word(re.compile(pattern, re.IGNORECASE), reason, state, what, hint)


WORDS = (
    _word(r"Too many recursive configuration includes", "ssh_config", LOCAL,
          "local problem: an Include of ssh_config leads back into itself",
          "remove that line; `gpuconsole doctor` names it"),
    _word(r"marked as revoked|REVOKED HOST KEY", "host_key_revoked", _AUTH,
          "its host key is revoked: the key may be stolen, or the list is wrong",
          "do not log in; ask whoever keeps the list of revoked keys"),
    _word(r"Enter passphrase for key", "needs_passphrase", LOCAL,
          "local problem: a key's passphrase is asked for, and nobody is there to type it",
          "ssh-add the key to an agent first"),
    _word(r"password has expired|Password change required|must change your password", "expired",
          _AUTH, "the account's password has expired there",
          "log in once by hand and change it, or use an account that may log in"),
    _word(r"Too many logins for", "login_limit", _AUTH,
          "the account has as many logins there as it may have (maxlogins)",
          "close old sessions; raise maxlogins in limits.conf for this account"),
    _word(r"Control socket connect\([^)]*\): |ControlSocket .* already exists", "control_socket",
          LOCAL, "local problem: the shared connection's socket is stale",
          "ssh -O exit HOST, or remove the socket; then connect again"),
    _word(r"Bad configuration option|bad configuration options|Bad owner or permissions on|"
          r"no argument after keyword|garbage at end of line|keyword .* extra arguments",
          "ssh_config", LOCAL, "local problem: OpenSSH refuses the configuration file",
          "correct the named line; ~/.ssh/config must belong to you alone"),
    _word(r"UNPROTECTED PRIVATE KEY|are too open|bad permissions", "key_file", LOCAL,
          "local problem: the private key's file may be read by others",
          "chmod 600 the key file"),
    _word(r"Load key .*(?:invalid format|error in libcrypto|incorrect passphrase|No such file)|"
          r"Identity file .* not accessible|no such identity", "key_file", LOCAL,
          "local problem: a private key cannot be read",
          "check IdentityFile and the key's format: ssh-keygen -y -f KEY"),
    _word(r"agent refused operation|signing failed|Could not open a connection to your "
          r"authentication agent|agent has no identities", "agent", LOCAL,
          "local problem: the SSH agent does not sign",
          "ssh-add -l; add the key again, confirm on the token, or unlock it"),
    _word(r"Too many open files|getaddrinfo.*EMFILE|socket: Too many", "local", LOCAL,
          "local problem: too many open files here", "raise ulimit -n, or lower the fan-out"),
    _word(r"Too many authentication failures", "too_many_keys", _AUTH,
          "the server hung up after too many keys were offered",
          "offer one key: IdentitiesOnly yes with IdentityFile; MaxAuthTries there is 6"),
    _word(r"No \S+ host key is known for|authenticity of host .* can't be established",
          "host_key_unknown", _AUTH, "its host key is not on file, and strict checking is on",
          "compare its fingerprint out of band, then add it: ssh-keyscan shows what it offers"),
    _word(r"no matching (?:host key type|key exchange method|cipher|MAC)[^.]*", "protocol", _AUTH,
          "client and server have no algorithm in common",
          "update the older side; HostKeyAlgorithms +ssh-rsa only for that host and for now"),
    _word(r"Certificate invalid|certificate .*expired|host certificate", "host_key_unknown", _AUTH,
          "its host certificate does not convince", "renew it; check dates and principals"),
    _word(r"open failed: connect failed: (?:No route to host|Network is unreachable)", "no_route",
          _UP, "the jump host has no route to it",
          "node down, or its network is gone: console, BMC"),
    _word(r"Could not resolve hostname|Name or service not known|Temporary failure in name resol",
          "dns", _UP, "its name does not resolve",
          "check the name, the search domain and the resolver; a cloud node that is off has none"),
    _word(r"Connection refused", "refused", _UP, "it refuses connections: up, but no sshd there",
          "is sshd running, and on that port? booting nodes refuse for a minute"),
    _word(r"No route to host|Network is unreachable|Host is down", "no_route", _UP,
          "there is no route to it", "node down, or its network is gone: ping, console, BMC"),
    _word(r"timed out during banner exchange|banner exchange.*timed out", "silent", _UP,
          "it accepts connections but never speaks SSH",
          "sshd or the whole node hangs: look at its console, load and memory"),
    _word(r"kex_exchange_identification|ssh_exchange_identification|Exceeded MaxStartups|"
          r"banner line contains invalid", "max_startups", _UP,
          "it hangs up before any SSH", "too many logins at a time (MaxStartups), hosts.deny, "
          "fail2ban or a firewall: lower the fan-out, read sshd's log"),
    _word(r"Connection timed out|Operation timed out|connect to .* timed? ?out", "timeout", _UP,
          "no answer from it", "node down, firewall, or wrong address: ping, console, BMC"),
    _word(r"administratively prohibited|stdio forwarding failed", "jump_refuses", _UP,
          "the jump host does not forward there",
          "see AllowTcpForwarding and PermitOpen in the jump host's sshd_config"),
    _word(r"Session open refused by peer|session request failed|open failed: connect failed",
          "no_session", _AUTH, "logged in, but a session was refused",
          "see MaxSessions and ForceCommand in its sshd_config"),
    _word(r"shell request failed|fork(?:: retry)?.*(?:Resource temporarily unavailable|Cannot "
          r"allocate memory)|PTY allocation request failed", "no_session", NodeState.HUNG,
          "logged in, but it could not start a shell",
          "no processes or ptys left there: pid_max, ulimit -u, devpts; look at its console"),
    _word(r"^(?:-?bash|sh|ash|zsh|python3?|sudo): .*Input/output error", "disk_error",
          NodeState.HUNG, "logged in, but its own disk gives I/O errors",
          "look at its console and kernel log: a dead system disk; drain, then replace it"),
    _word(r"Could not chdir to home directory.*(?:Stale|timed out|Input/output)|"
          r"Stale file handle", "home", NodeState.HUNG, "its home file system does not answer",
          "check NFS or Lustre on that node; log in with an account whose home is local"),
    _word(r"Timeout, server \S+ not responding|Broken pipe|client_loop: send disconnect|"
          r"Connection reset|closed by remote host", "lost", _UP, "the connection broke",
          "network, reboot, or the node hangs: ServerAliveInterval 15 shows it sooner"),
    _word(r"incorrect signature|ssh_dispatch_run_fatal|Bad packet length|Corrupted MAC", "protocol",
          _UP, "the connection carries damaged or foreign data",
          "not an SSH port, a broken middle box, or MTU trouble"),
    _word(r"^Host key verification failed", "host_key_unknown", _AUTH,
          "its host key could not be verified", "see the lines above that; ssh-keygen -F HOST"),
    _word(r"Permission denied, please try again|Permission denied\.$|Login incorrect",
          "auth", _AUTH,
          "permission denied", "check user and key: ssh -v; on the node: sshd's log"),
    _word(r"Connection closed by", "closed", _AUTH, "the server hung up during the login",
          "AllowUsers, PAM or a site policy: the node's sshd log says why"),
)  # fmt: skip
"""First match wins, what says most first."""

NOISE = re.compile(
    r"^Warning: Permanently added|^Pseudo-terminal will not|^debug\d: |^Authorized uses"
)
_STRONG = re.compile(
    r"^(?:[\w.-]+: )?(?:ssh: (?:connect to|Could not resolve)|kex_exchange_identification|"
    r"ssh_exchange_identification|Host key verification failed|unix_listener:|Received disconnect|"
    r"Unable to negotiate with|mux_client_|client_loop:|ssh_dispatch|Bad owner or permissions|"
    r"channel \d+: open failed|Load key |sign_and_send_pubkey)|IDENTIFICATION HAS CHANGED|"
    r"pam_slurm|no active jobs on this node|Permission denied \([a-z,-]+\)|authenticity of host|"
    r"Connection (?:closed|reset) by \S+ port \d|Too many authentication failures|"
    r"Timeout, server \S+ not responding|UNPROTECTED PRIVATE KEY|gpuconsole: no python3|"
    r"Too many recursive configuration includes|account is currently not available|"
    r"timed out during banner exchange|^Could not chdir to home directory|"
    r"Connection to \S+ closed by remote host|^shell request failed|"
    r"marked as revoked|REVOKED HOST KEY|^Enter passphrase for key|password has expired|"
    r"^Password change required|^Too many logins for |^Control socket connect\(|"
    r"^ControlSocket .* already exists|^\S*bash: fork: |^\S+: line \d+: Bad configuration option|"
    r"terminating, \d+ bad configuration options|^(?:-?bash|sh): .*: Input/output error|"
    r"system is (?:booting up|going down)|ssh exited with exit code|UNREACHABLE!",
    re.MULTILINE | re.IGNORECASE,
)


def strength(head: str) -> int:
    """How sure one can be that this is what ssh said."""
    hits = len(_STRONG.findall(head))
    return 0 if not hits else min(88, 72 + 4 * hits)


_BEFORE = ("key_file", "agent", "host_key_revoked")
"""Trouble of this side that ends in a refusal by the server."""
_USER = re.compile(r"(?:^|\s)(?P<user>[\w.+-]{1,64})@\S{1,253}: Permission denied")


def _with_user(known: Failure | None, told: str) -> Failure | None:
    """The refusal with the login that the line names."""
    match = _USER.search(told)
    if known is None or known.reason != "auth" or match is None:
        return known
    offered = re.search(r"Permission denied \(([a-z,-]{1,200})\)", told)
    return auth(match["user"], offered[1] if offered else "")


def read(text: str) -> tuple[Failure, Word | None] | None:
    """The failure a client's output speaks of; the word when it is the client's own."""
    told = "\n".join(line for line in text.splitlines() if not NOISE.match(line))
    ours = next((w for w in WORDS if w.reason in _BEFORE and w.pattern.search(told)), None)
    if ours is not None:  # that the server then says no follows from it
        return Failure(ours.reason, ours.what, ours.hint, state=ours.state), ours
    known = _with_user(read_text(told), told)
    if known is not None and known.reason != "no_python":
        return known, None
    for word in WORDS:
        if word.pattern.search(told):
            return Failure(word.reason, word.what, word.hint, state=word.state), word
    return (known, None) if known is not None else None
