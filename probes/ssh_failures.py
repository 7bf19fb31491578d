"""Exceptions of a login -> Failure, by what had been seen until then.

asyncssh's classes are told apart by name, so that this module can be read and tested without it.
"""

from __future__ import annotations

import errno
import socket
import time
from collections import deque

from msgspec import Struct, field

from probes.event import NodeState
from probes.reasons import auth, host_key, needs_interactive, read_text
from probes.sanitise import clean
from probes.transport import Failure

BURST_S = 10.0
BURST_COUNT = 3
"""Logins to one address that were hung up on within BURST_S: then it is MaxStartups (10:30:100)."""


class Seen(Struct, kw_only=True):
    """How far a login got and what the server let us see."""

    endpoint: str = ""
    user: str = ""
    connected: bool = False
    version: str = ""
    junk_lines: int = 0
    """Lines before an SSH version: OpenSSH's MaxStartups says one, a web server many."""
    login: bool = False
    established: bool = False
    signed: bool = False
    """The server asked for a signature: it would take that key."""
    offers: set[str] = field(default_factory=set)
    banner: str = ""
    burst: bool = False

    @property
    def hung_up_early(self) -> bool:
        """Connected, and dropped before any SSH version: not the login's fault."""
        return self.connected and not self.version and self.junk_lines <= 1


class Burst:
    """Early hang-ups of one address."""

    def __init__(self) -> None:
        """None so far."""
        self._times: deque[float] = deque(maxlen=BURST_COUNT)

    def note(self) -> bool:
        """Count one; whether they come in a burst."""
        now = time.monotonic()
        self._times.append(now)
        return len(self._times) == BURST_COUNT and now - self._times[0] < BURST_S


def explain(error: BaseException, seen: Seen) -> Failure:
    """The Failure for an exception of connect, login or session start."""
    known = read_text(seen.banner) if seen.banner else None
    if known is not None:
        return known
    if isinstance(error, Failure):
        return error
    names = {kind.__name__ for kind in type(error).__mro__}
    said = clean(str(error), 200)
    if seen.established:
        return _after_login(error, names, said)
    if "PermissionDenied" in names:
        return _denied(seen)
    if "HostKeyNotVerifiable" in names:
        return host_key(
            f"its host certificate does not convince: {said}",
            "check the certificate's principals and dates, or put the plain key on file",
            changed=False,
        )
    if "TimeoutError" in names:
        return _timeout(seen)
    if "ChannelOpenError" in names:
        return _behind_jump(error, said)
    if "KeyExchangeFailed" in names:
        return _no_common(said)
    if isinstance(error, OSError):
        return _network(error, seen, said)
    return _dropped(names, said, seen)


def _after_login(error: BaseException, names: set[str], said: str) -> Failure:
    if "TimeoutError" in names:
        text = "logged in, but the server opens no session"
        return Failure("timeout", text, "the node may be stuck in I/O", state=NodeState.HUNG)
    if "ChannelOpenError" in names:
        return Failure(
            "no_session",
            f"logged in, but a session was refused: {said}",
            "see MaxSessions and ForceCommand in its sshd_config",
            state=NodeState.AUTH_FAILED,
        )
    if "keepalive" in said:
        return Failure("lost", "connection lost: no answer to keepalive", "network or node is down")
    return Failure("lost", f"connection lost: {said}", "it is opened again")


def _denied(seen: Seen) -> Failure:
    methods = ",".join(["publickey", *sorted(seen.offers)])
    if "keyboard-interactive" in seen.offers or (seen.signed and seen.offers):
        return needs_interactive(methods, key_accepted=seen.signed)
    return auth(seen.user, methods)


def _timeout(seen: Seen) -> Failure:
    if not seen.connected:
        return Failure(
            "timeout", f"no answer from {seen.endpoint}", "node down, firewall, or wrong address"
        )
    if not seen.version:
        return Failure(
            "silent",
            f"{seen.endpoint} accepts connections but never speaks SSH",
            "sshd or the whole node hangs; look at its console",
        )
    where = "login" if seen.login else "key exchange"
    return Failure(
        "timeout",
        f"{seen.endpoint}: {where} did not finish in time",
        "node overloaded, or PAM and the account's directory service hang",
    )


def _behind_jump(error: BaseException, said: str) -> Failure:
    # RFC 4254 5.1: 1 is "administratively prohibited"; OpenSSH sends 2 with the errno's text.
    if getattr(error, "code", 0) == 1:
        return Failure(
            "jump_refuses",
            f"the jump host does not forward there: {said}",
            "see AllowTcpForwarding and PermitOpen in its sshd_config",
            fixed=True,
        )
    low = said.lower()
    reason = "refused" if "refused" in low else "no_route" if "route" in low else "timeout"
    reason = "dns" if "not known" in low or "resolution" in low else reason
    return Failure(reason, f"the jump host cannot reach it: {said}", "is the node up?")


def _no_common(said: str) -> Failure:
    if "host key" in said.lower():
        return host_key(
            f"it offers no host key type we can check: {said}",
            "its host keys were replaced, or HostKeyAlgorithms is too narrow",
            changed=False,
        )
    return Failure(
        "protocol", f"no common algorithm: {said}", "see Ciphers, MACs, KexAlgorithms", fixed=True
    )


def _network(error: OSError, seen: Seen, said: str) -> Failure:
    if isinstance(error, socket.gaierror):
        return Failure("dns", f"name not resolved: {said}", "check the name, or set `address:`")
    if isinstance(error, ConnectionRefusedError) or (
        "Connect call failed" in said and _all(said, 111)
    ):
        return Failure("refused", f"{seen.endpoint} refuses connections", "is sshd running there?")
    if error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN):
        return Failure(
            "no_route", f"{seen.endpoint}: {error.strerror}", "node down or network gone"
        )
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return Failure("local", "too many open files here", "raise ulimit -n, or lower the fan-out")
    if isinstance(error, ConnectionError):
        return _dropped(set(), said, seen)
    if error.errno == errno.ETIMEDOUT:
        return _timeout(Seen(endpoint=seen.endpoint))
    return Failure("network", f"{seen.endpoint}: {said}", "see doctor")


def _all(said: str, number: int) -> bool:
    return said.count("[Errno") == said.count(f"[Errno {number}]")


def _dropped(names: set[str], said: str, seen: Seen) -> Failure:
    if seen.version:
        where = "during the login" if seen.login else "during the key exchange"
        known = read_text(said)
        return known or Failure(
            "lost", f"{seen.endpoint} hung up {where}: {said}", "the node's sshd log says why"
        )
    if seen.junk_lines > 1 or "ProtocolError" in names or "ProtocolNotSupported" in names:
        return Failure("protocol", f"{seen.endpoint} does not speak SSH", "wrong port?", fixed=True)
    if seen.burst:
        return Failure(
            "max_startups",
            f"{seen.endpoint} drops logins that come in a burst (sshd's MaxStartups)",
            "raise MaxStartups there, or lower --fanout",
        )
    return Failure(
        "lost",
        f"{seen.endpoint} hangs up before any SSH",
        "not an SSH port, a firewall or hosts.deny, or sshd's MaxStartups",
    )
