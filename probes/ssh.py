"""SshTransport: one connection and one command per node, over asyncssh. Its only importer here.

Costs per node are those of the handshake alone: keys and agent are read once, known_hosts is parsed
once, settings are OpenSSH's own and mostly shared, jump hosts are opened once. Handshakes are bounded,
sessions are not (perf.md 0.3). Agent, X11 and passwords are never forwarded, asked for or sent.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import copy
import ctypes.util
import getpass
import os
import random
import resource
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from inventory.node import Inventory, Node
from probes.ssh_config import SshConfig, SshSettings, expand
from probes.ssh_failures import Burst, Seen, explain
from probes.ssh_hops import Hop, Shared, Turns, read_hop
from probes.ssh_trust import Expect, HostTrust
from probes.transport import (
    TERM_S,
    Channel,
    Exit,
    Failure,
    LocalTransport,
    Receiver,
    Tail,
    connections,
)


@contextlib.contextmanager
def _no_library_search() -> Iterator[None]:
    """`import asyncssh` looks for liboqs and nettle by running gcc, ld and ldconfig: 20 ms, children."""
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

__all__ = ["SshTransport", "connections"]

CONNECT_S = 10.0
"""From the first packet to the end of the login; DNS and TCP included (style.md 3)."""
CHANNEL_S = 8.0
KEEPALIVE_S = 5.0
KEEPALIVE_COUNT = 3
WINDOW_BYTES = 256 << 10
"""Receive window: 1,000 nodes may have 256 MiB in flight instead of asyncssh's 2 GiB."""

EARLY_TRIES = 3
"""A server that hangs up before its banner is asked again, after a jittered moment (MaxStartups)."""

CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr", "aes256-ctr",
           "chacha20-poly1305@openssh.com")  # fmt: skip
"""AES-GCM first: chacha20, asyncssh's first choice, costs 31 % more CPU when streaming (perf.md 2)."""

_PLAIN = [alg.decode() for alg in get_default_public_key_algs()]
_CERTIFICATES = [alg.decode() for alg in get_default_certificate_algs()]


class _Client(asyncssh.SSHClient):
    """Watches one login: what the server showed, wanted and said."""

    def __init__(self, expect: Expect) -> None:
        self.expect = expect
        self.seen = Seen()
        self.refusal: Failure | None = None
        self.shown: str | None = None
        """The key type that was refused; "" for a certificate."""
        self._conn: asyncssh.SSHClientConnection | None = None

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
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
        self.refusal = self.expect.check(key.public_data)
        self.shown = None if self.refusal is None else key.algorithm.decode("ascii", "replace")
        return self.refusal is None

    def validate_host_ca_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        return self.expect.is_authority(key.public_data)

    def begin_auth(self, username: str) -> None:
        self.seen.login = True

    def auth_banner_received(self, msg: str, lang: str) -> None:
        self.seen.banner = (self.seen.banner + msg)[-4096:]

    def public_key_auth_requested(self) -> None:
        self.seen.keys_used_up = True

    def password_auth_requested(self) -> None:
        """Only noted: no password is ever asked for or sent."""
        self.seen.offers.add("password")

    def kbdint_auth_requested(self) -> None:
        """Only noted: the server would prompt."""
        self.seen.offers.add("keyboard-interactive")


class _Session(asyncssh.SSHClientSession[bytes]):
    """Bytes of one command to its Receiver."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._stderr = Tail()
        self._rc: int | None = None
        self._signal = ""
        self.over = asyncio.Event()
        self.started = False

    def data_received(self, data: bytes, datatype: int | None) -> None:
        if datatype is None:
            self._receiver.data(data)
        else:
            self._stderr.add(data)

    def exit_status_received(self, status: int) -> None:
        self._rc = status

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:
        self._signal = signal

    def connection_lost(self, exc: Exception | None) -> None:
        lost = None
        if exc is not None or (self._rc is None and not self._signal):
            lost = explain(exc or asyncssh.ConnectionLost("closed"), Seen(established=True))
        self.over.set()
        if self.started:
            self._receiver.closed(
                Exit(rc=self._rc, signal=self._signal, lost=lost, stderr=self._stderr.kept)
            )


class _SshChannel:
    """Channel over one asyncssh channel that has its connection to itself."""

    def __init__(
        self,
        conn: asyncssh.SSHClientConnection,
        chan: asyncssh.SSHClientChannel[bytes],
        session: _Session,
    ) -> None:
        self._conn = conn
        self._chan = chan
        self._session = session

    def write(self, data: bytes) -> None:
        if not self._session.over.is_set():
            with contextlib.suppress(OSError):
                self._chan.write(data)

    def eof(self) -> None:
        if not self._session.over.is_set():
            with contextlib.suppress(OSError):
                self._chan.write_eof()

    def pause(self) -> None:
        if not self._session.over.is_set():
            self._chan.pause_reading()

    def resume(self) -> None:
        if not self._session.over.is_set():
            self._chan.resume_reading()

    async def stop(self, grace_s: float = TERM_S) -> None:
        self.eof()
        self.resume()
        try:
            async with asyncio.timeout(grace_s):
                await self._session.over.wait()
        except TimeoutError:
            self._conn.abort()
        else:
            self._conn.close()


class SshTransport:
    """Transport over SSH; nodes with transport "local" are run here without it."""

    def __init__(self, inventory: Inventory, fanout: int = 64) -> None:
        """`fanout`: handshakes at a time. Reads ssh_config and known_hosts now."""
        self.config = SshConfig(inventory)
        self._trust = HostTrust(inventory)
        self._turns = Turns(fanout)
        self._fanout = fanout
        self._local = LocalTransport()
        self._keys = _Keys()
        self._jumps: dict[tuple[str, ...], Shared[asyncssh.SSHClientConnection]] = {}
        self._open: set[asyncssh.SSHClientConnection] = set()
        self._bursts: dict[tuple[str, int], Burst] = {}
        self._ready = False
        raise_open_files()

    def _prepare(self) -> None:
        """asyncssh resolves names and builds options in threads: as many as handshakes."""
        if not self._ready:
            self._ready = True
            pool = concurrent.futures.ThreadPoolExecutor(max(32, self._fanout), "ssh")
            asyncio.get_running_loop().set_default_executor(pool)

    async def start(
        self, node: Node, command: str, receiver: Receiver, timeout_s: float = 15.0
    ) -> Channel:
        """See Transport.start."""
        if node.transport == "local":
            return await self._local.start(node, command, receiver, timeout_s)
        self._prepare()
        settings = await self.config.of(node)
        hops = node.jump or self._hops(node.target, settings)
        tunnel = await self._tunnel(hops)
        me = Hop(node.target, node.user, node.port)
        async with self._turns.turn():
            receiver.connecting()
            login_s = min(CONNECT_S, timeout_s)
            conn = await self._login(me, settings, node.identity, tunnel, login_s)
        self._open.add(conn)
        try:
            return await self._exec(conn, command, receiver, min(CHANNEL_S, timeout_s))
        except BaseException:
            conn.abort()
            raise

    async def close(self) -> None:
        """See Transport.close."""
        await self._local.close()
        for conn in self._open:
            conn.abort()
        for jump in list(self._jumps.values()):
            opened = await jump.end()
            if opened is not None:
                opened.abort()
        self._keys.close()
        self.config.save()

    async def _exec(
        self,
        conn: asyncssh.SSHClientConnection,
        command: str,
        receiver: Receiver,
        timeout_s: float,
    ) -> Channel:
        session = _Session(receiver)
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
        return _SshChannel(conn, chan, session)

    def _hops(self, host: str, settings: SshSettings) -> tuple[str, ...]:
        if settings.fallback:
            return tuple(filter(None, _fallback_jump(host, settings).split(",")))
        return settings.proxyjump

    async def _tunnel(self, hops: tuple[str, ...]) -> asyncssh.SSHClientConnection | None:
        """The connection through these jump hosts, opened once for everybody."""
        if not hops:
            return None
        if hops not in self._jumps:
            self._jumps[hops] = Shared(lambda: self._open_jump(hops), lambda c: not c.is_closed())
        return await self._jumps[hops].get()

    async def _open_jump(self, hops: tuple[str, ...]) -> asyncssh.SSHClientConnection:
        *before, last = hops
        hop = read_hop(last)
        settings = await self.config.settings(hop.host, hop.user, hop.port)
        try:
            first = tuple(before) or self._hops(hop.host, settings)
            if len(hops) + len(first) > 16 or last in first:
                raise Failure("ssh_config", "jump hosts lead in a circle", "see ProxyJump", fixed=True)
            tunnel = await self._tunnel(first)
            async with self._turns.turn():
                return await self._login(hop, settings, None, tunnel, CONNECT_S)
        except Failure as failure:
            raise Failure(
                failure.reason, f"jump host {hop.host}: {failure.what}", failure.hint,
                state=failure.state, fixed=failure.fixed,
            ) from failure  # fmt: skip

    async def _login(
        self,
        hop: Hop,
        settings: SshSettings,
        identity: str | None,
        tunnel: asyncssh.SSHClientConnection | None,
        timeout_s: float,
    ) -> asyncssh.SSHClientConnection:
        """Connect and log in within `timeout_s`, with the second looks OpenSSH takes too."""
        user = hop.user or settings.user or getpass.getuser()
        port = hop.port or settings.port
        expect = self._trust.expect(hop.host, settings, user, port)
        client = _Client(expect)
        try:
            async with asyncio.timeout(timeout_s):
                keys = await self._keys.load(hop.host, settings, identity, user, port)
                options = self._options(hop, settings, user, port, keys, tunnel)
                looks = early = 0
                while True:
                    client = _Client(expect)
                    try:
                        return await _connect(client, options)
                    except asyncssh.HostKeyNotVerifiable:
                        looks += 1
                        shown = client.shown or ""
                        if looks > 2 or not expect.look_closer(shown):
                            raise
                    except (ConnectionError, asyncssh.ConnectionLost):
                        early += 1
                        if not client.look().hung_up_early or early >= EARLY_TRIES:
                            raise
                        await asyncio.sleep(random.uniform(0.1, 0.5) * early)
        except (OSError, asyncssh.Error, ValueError) as error:
            raise self._explain(error, client, settings.hostname, user, port) from error

    def _explain(
        self, error: Exception, client: _Client, host: str, user: str, port: int
    ) -> Failure:
        seen = client.look()
        seen.user, seen.endpoint = user, f"{host} port {port}"
        if client.refusal is not None:
            return client.refusal
        if seen.hung_up_early and isinstance(error, ConnectionError | asyncssh.ConnectionLost):
            burst = self._bursts.setdefault((host, port), Burst())
            seen.burst = burst.note()
        return explain(error, seen)

    def _options(
        self,
        hop: Hop,
        settings: SshSettings,
        user: str,
        port: int,
        keys: Sequence[asyncssh.SSHKeyPair] | None,
        tunnel: asyncssh.SSHClientConnection | None,
    ) -> dict[str, Any]:
        """What differs between hosts; the rest is _COMMON."""
        mine: dict[str, Any] = {
            **_COMMON, "host": settings.hostname, "tunnel": tunnel or (), "config": None,
        }  # fmt: skip
        if settings.fallback:
            mine |= {"config": list(settings.fallback), "username": hop.user or (),
                     "port": hop.port or (), "agent_path": ()}  # fmt: skip
            return mine
        mine |= {
            "username": user,
            "port": port,
            "client_keys": [copy.copy(key) for key in keys or ()] or None,
            "host_key_alias": settings.hostkeyalias or None,
            **_algorithms(settings),
        }
        if settings.proxycommand and tunnel is None and not settings.proxyjump:
            command = expand(settings.proxycommand, hop.host, settings, user, port)
            mine["proxy_command"] = ("/bin/sh", "-c", f"exec {command}")
        if settings.bindaddress:
            mine["local_addr"] = (settings.bindaddress, 0)
        return mine


_COMMON: dict[str, Any] = {
    "agent_path": None,  # identities come from one shared agent client, see _Keys
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


async def _connect(client: _Client, options: dict[str, Any]) -> asyncssh.SSHClientConnection:
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
            "known_hosts": ([], [], revoked),
            "server_host_key_algs": expect.algorithms(plain, certificates),
        }
    )


def _algorithms(settings: SshSettings) -> dict[str, list[str]]:
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
                    "ssh_config", f"none of the {keyword} in ssh_config is known to asyncssh: {text}",
                    "allow one more there", fixed=True,
                )  # fmt: skip
            chosen[option] = kept
    return chosen


def _fallback_jump(host: str, settings: SshSettings) -> str:
    """ProxyJump as asyncssh's own reader understands the files."""
    options = asyncssh.SSHClientConnectionOptions(config=list(settings.fallback), host=host)
    jump = options.tunnel
    return jump if isinstance(jump, str) else ""


class _Keys:
    """Private keys and the agent, read once for all nodes."""

    def __init__(self) -> None:
        self._loaded: dict[tuple[object, ...], asyncio.Task[list[asyncssh.SSHKeyPair]]] = {}
        self._agents: list[asyncssh.SSHAgentClient] = []

    async def load(
        self, host: str, settings: SshSettings, identity: str | None, user: str, port: int
    ) -> Sequence[asyncssh.SSHKeyPair] | None:
        """Key pairs to try, in order; None leaves it to asyncssh (no ssh program)."""
        if settings.fallback:
            return None
        files = [str(Path(identity).expanduser())] if identity else []
        files += [expand(path, host, settings, user, port) for path in settings.identityfile]
        certs = [expand(path, host, settings, user, port) for path in settings.certificatefile]
        key = (*files, None, *certs, settings.identityagent, settings.identitiesonly)
        if key not in self._loaded:
            reading = self._read(files, certs, settings, bool(identity))
            self._loaded[key] = asyncio.ensure_future(reading)
        return await asyncio.shield(self._loaded[key])

    async def _read(
        self, files: list[str], certs: list[str], settings: SshSettings, named: bool
    ) -> list[asyncssh.SSHKeyPair]:
        if named and not Path(files[0]).is_file():
            raise Failure("auth", f"identity file {files[0]} cannot be read", "correct the inventory",
                          fixed=True)  # fmt: skip
        here = [path for path in certs if Path(path).is_file()]
        loop = asyncio.get_running_loop()
        own = await loop.run_in_executor(None, _read_files, files, here)
        held = await self._from_agent(files, settings)
        if not held:
            return own
        if here:
            held = list(asyncssh.load_keypairs(held, certlist=here))
        front = [pair for pair in held if pair.public_data in _public(files)]
        rest = [pair for pair in held if pair not in front]
        return [*own, *front, *rest] if named else [*front, *own, *rest]

    async def _from_agent(
        self, files: list[str], settings: SshSettings
    ) -> list[asyncssh.SSHKeyPair]:
        path = settings.identityagent or os.environ.get("SSH_AUTH_SOCK", "")
        if path in ("", "none"):
            return []
        only = _public(files) if settings.identitiesonly else None
        if only is not None and not only:
            return []
        try:
            agent = asyncssh.SSHAgentClient(path)
            self._agents.append(agent)
            return list(await agent.get_keys(only))
        except (OSError, ValueError):
            return []

    def close(self) -> None:
        for task in self._loaded.values():
            task.cancel()
        for agent in self._agents:
            agent.close()


def _read_files(files: Sequence[str], certs: Sequence[str]) -> list[asyncssh.SSHKeyPair]:
    pairs: list[asyncssh.SSHKeyPair] = []
    for path in dict.fromkeys(files):
        with contextlib.suppress(OSError, asyncssh.KeyImportError, ValueError):
            pairs += asyncssh.load_keypairs(path, certlist=list(certs), ignore_encrypted=True)
    return pairs


def _public(files: Sequence[str]) -> list[bytes]:
    """Public halves of identity files: FILE.pub, or FILE itself when it is public."""
    found: list[bytes] = []
    for path in files:
        for name in (f"{path}.pub", path):
            with contextlib.suppress(OSError, asyncssh.KeyImportError, ValueError):
                found.append(asyncssh.read_public_key(name).public_data)
                break
    return found


def raise_open_files() -> None:
    """Lift the soft limit of open files to the hard one: a connection is one file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
