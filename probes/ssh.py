"""The SSH library, and one login and one command over it. The only importer of asyncssh here.

Agent, X11 and passwords are never forwarded, asked for or sent; host keys are judged by Expect.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import ctypes.util
from collections.abc import Callable, Iterator
from typing import Any

from probes.ssh_config import SshSettings
from probes.ssh_failures import Seen, explain
from probes.ssh_trust import Expect
from probes.transport import TERM_S, Channel, Exit, Failure, Receiver, Tail, connections


@contextlib.contextmanager
def _no_library_search() -> Iterator[None]:
    """`import asyncssh` looks for liboqs and nettle with gcc, ld and ldconfig: 20 ms, children."""
    original = ctypes.util.find_library
    ctypes.util.find_library = lambda name: None
    try:
        yield
    finally:
        ctypes.util.find_library = original


with _no_library_search():
    import asyncssh
    from asyncssh.encryption import get_encryption_algs
    from asyncssh.kex import get_kex_algs
    from asyncssh.mac import get_mac_algs
    from asyncssh.public_key import get_default_certificate_algs, get_default_public_key_algs

__all__ = [
    "COMMON", "Client", "algorithms", "asyncssh", "connect", "connections", "open_command",
]  # fmt: skip

KEEPALIVE_S = 5.0
KEEPALIVE_COUNT = 3
WINDOW_BYTES = 256 << 10
"""Receive window: 1,000 nodes may have 256 MiB in flight instead of asyncssh's 2 GiB."""

CIPHERS = (
    "aes128-gcm@openssh.com",
    "aes256-gcm@openssh.com",
    "aes128-ctr",
    "aes256-ctr",
    "chacha20-poly1305@openssh.com",
)
"""AES-GCM first: chacha20, asyncssh's own choice, costs 31 % more CPU streaming (measured)."""

_PLAIN = [alg.decode() for alg in get_default_public_key_algs()]
_CERTIFICATES = [alg.decode() for alg in get_default_certificate_algs()]


class Client(asyncssh.SSHClient):
    """Watches one login: what the server showed, wanted and said."""

    def __init__(self, expect: Expect) -> None:
        self.expect = expect
        self.seen = Seen()
        self.refusal: Failure | None = None
        self.shown: str | None = None
        """The key type that was refused; "" for a certificate."""
        self._conn: asyncssh.SSHClientConnection | None = None

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        """There is a byte stream to the server."""
        self._conn = conn
        self.seen.connected = True

    def look(self) -> Seen:
        """How far it got; asyncssh keeps the server's version once there is one."""
        if self._conn is not None:
            self.seen.version = str(self._conn.get_extra_info("server_version") or "")
            self.seen.junk_lines = getattr(self._conn, "_banner_lines", 0)
        return self.seen

    def validate_host_public_key(
        self, host: str, addr: str, port: int, key: asyncssh.SSHKey
    ) -> bool:
        """Leave it to known_hosts; remember a refusal in words."""
        self.refusal = self.expect.check(key.public_data)
        self.shown = None if self.refusal is None else key.algorithm.decode("ascii", "replace")
        return self.refusal is None

    def validate_host_ca_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        """Whether an @cert-authority line names this key for the host."""
        return self.expect.is_authority(key.public_data)

    def begin_auth(self, username: str) -> None:
        """The key exchange is over."""
        self.seen.login = True

    def auth_banner_received(self, msg: str, lang: str) -> None:
        """Keep it: PAM modules say here why they refuse."""
        self.seen.banner = (self.seen.banner + msg)[-4096:]

    def password_auth_requested(self) -> None:
        """Only noted: no password is ever asked for or sent."""
        self.seen.offers.add("password")

    def kbdint_auth_requested(self) -> None:
        """Only noted: the server would prompt."""
        self.seen.offers.add("keyboard-interactive")


class Command(asyncssh.SSHClientSession[bytes]):
    """Bytes of one command to its Receiver."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._stderr = Tail()
        self._rc: int | None = None
        self._signal = ""
        self.over = asyncio.Event()
        self.started = False

    def data_received(self, data: bytes, datatype: int | None) -> None:
        """stdout goes on, the end of stderr is kept."""
        if datatype is None:
            self._receiver.data(data)
        else:
            self._stderr.add(data)

    def exit_status_received(self, status: int) -> None:
        """How the command ended."""
        self._rc = status

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:
        """How the command was ended."""
        self._signal = signal

    def connection_lost(self, exc: Exception | None) -> None:
        """The channel is gone: tell how, once."""
        lost = None
        if exc is not None or (self._rc is None and not self._signal):
            lost = explain(exc or asyncssh.ConnectionLost("closed"), Seen(established=True))
        self.over.set()
        if self.started:
            self._receiver.closed(
                Exit(rc=self._rc, signal=self._signal, lost=lost, stderr=self._stderr.kept)
            )


class CommandChannel:
    """Channel over one asyncssh channel that has its connection to itself."""

    def __init__(
        self,
        conn: asyncssh.SSHClientConnection,
        chan: asyncssh.SSHClientChannel[bytes],
        session: Command,
    ) -> None:
        self._conn = conn
        self._chan = chan
        self._session = session

    def write(self, data: bytes) -> None:
        """See Channel."""
        if not self._session.over.is_set():
            with contextlib.suppress(OSError):
                self._chan.write(data)

    def eof(self) -> None:
        """See Channel."""
        if not self._session.over.is_set():
            with contextlib.suppress(OSError):
                self._chan.write_eof()

    def pause(self) -> None:
        """See Channel."""
        if not self._session.over.is_set():
            self._chan.pause_reading()

    def resume(self) -> None:
        """See Channel."""
        if not self._session.over.is_set():
            self._chan.resume_reading()

    async def stop(self, grace_s: float = TERM_S) -> None:
        """See Channel; the connection goes with its only command."""
        self.eof()
        self.resume()
        try:
            async with asyncio.timeout(grace_s):
                await self._session.over.wait()
        except TimeoutError:
            self._conn.abort()
        else:
            self._conn.close()


async def open_command(
    conn: asyncssh.SSHClientConnection, command: str, receiver: Receiver, timeout_s: float
) -> Channel:
    """Start the one command of this connection. Raises Failure."""
    session = Command(receiver)
    try:
        async with asyncio.timeout(timeout_s):
            chan, _ = await conn.create_session(
                lambda: session, command, encoding=None, window=WINDOW_BYTES, request_pty=False
            )
    except (OSError, asyncssh.Error) as error:
        raise explain(error, Seen(established=True)) from error
    session.started = True
    if session.over.is_set():
        session.connection_lost(None)
    return CommandChannel(conn, chan, session)


def _identities(options: dict[str, Any], seen: Seen) -> dict[str, Any]:
    """None instead of an empty list, for which asyncssh would read the default keys again."""
    return {"client_keys": [_watched(key, seen) for key in options["client_keys"]] or None}


def _watched(pair: asyncssh.SSHKeyPair, seen: Seen) -> asyncssh.SSHKeyPair:
    """A copy of a key pair, as asyncssh changes them, that notes its use.

    A signature is only asked for after the server said that it would take this key.
    """
    mine = copy.copy(pair)

    def noting(sign: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
        def noted(data: bytes) -> Any:
            seen.signed = True
            return sign(data)

        return noted

    for name in ("sign", "sign_async"):
        if hasattr(mine, name):
            setattr(mine, name, noting(getattr(mine, name)))
    return mine


COMMON: dict[str, Any] = {
    "agent_path": None,  # identities come from one shared agent client, see Keys
    "agent_forwarding": False,
    "x11_forwarding": False,
    "x509_trusted_certs": None,
    "client_host_keys": None,
    "compression_algs": ["none"],
    "encryption_algs": list(CIPHERS),
    "preferred_auth": ["publickey", "keyboard-interactive", "password"],
    "gss_host": None,
    "host_based_auth": False,
    "request_pty": False,
    "env": {},
    "send_env": [],
    "command": None,
    "connect_timeout": None,  # bounded by _login, tries and DNS included
    "login_timeout": 120,
    "keepalive_interval": KEEPALIVE_S,
    "keepalive_count_max": KEEPALIVE_COUNT,
    "utf8_decode_errors": "replace",
}


async def connect(client: Client, options: dict[str, Any]) -> asyncssh.SSHClientConnection:
    """One attempt. Host keys are judged by the client object, never by asyncssh's own files."""
    expect = client.expect
    revoked = [
        asyncssh.import_public_key(f"{algorithm} {key}")
        for algorithm, key in expect.revoked()
        if algorithm in _PLAIN or algorithm == "ssh-rsa"
    ]
    algorithms = options.get("server_host_key_algs") or [*_CERTIFICATES, *_PLAIN]
    plain = [alg for alg in algorithms if alg in _PLAIN]
    certificates = [alg for alg in algorithms if alg in _CERTIFICATES]
    return await asyncssh.connect(
        **{
            **options,
            "client_factory": lambda: client,
            **_identities(options, client.seen),
            "known_hosts": ([], [], revoked),
            "server_host_key_algs": expect.algorithms(plain, certificates),
        }
    )


def algorithms(settings: SshSettings) -> dict[str, list[str]]:
    """Algorithm lists the operator chose, as far as asyncssh knows their members."""
    able = {
        "ciphers": ("encryption_algs", get_encryption_algs),
        "kexalgorithms": ("kex_algs", get_kex_algs),
        "macs": ("mac_algs", get_mac_algs),
    }
    chosen: dict[str, list[str]] = {}
    for keyword, text in settings.algorithms.items():
        names = text.split(",")
        if keyword == "hostkeyalgorithms":
            chosen["server_host_key_algs"] = [n for n in names if n in _PLAIN + _CERTIFICATES]
        elif keyword in able:
            option, known = able[keyword]
            can = {alg.decode() for alg in known()}
            kept = [name for name in names if name in can]
            if not kept:
                raise Failure(
                    "ssh_config",
                    f"none of the {keyword} in ssh_config is known to asyncssh: {text}",
                    "allow one more there",
                    fixed=True,
                )
            chosen[option] = kept
    return chosen
