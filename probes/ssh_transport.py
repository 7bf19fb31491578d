"""SshTransport: one connection and one command per node.

Costs per node are those of the handshake alone: keys and agent are read once, known_hosts is parsed
once, settings are OpenSSH's own and mostly shared, jump hosts are opened once. Handshakes are
bounded, sessions are not: 256 nodes with a command of 2 s took 5.7 s, with the bound around the
whole session 11.0 s (measured).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import getpass
import os
import random
import resource
import socket
import weakref
from collections.abc import Sequence
from typing import Any, cast

from inventory.node import Inventory, Node
from probes.ssh import COMMON, Client, algorithms, asyncssh, connect, open_command
from probes.ssh_config import SshConfig, SshSettings, expand
from probes.ssh_failures import Burst, explain
from probes.ssh_hops import Hop, Shared, Turns, read_hop
from probes.ssh_keys import Keys
from probes.ssh_trust import Expect, HostTrust
from probes.transport import Channel, Failure, LocalTransport, Receiver

CONNECT_S = 10.0
"""From the first packet to the end of the login; DNS and TCP included."""
CHANNEL_S = 8.0
PATIENT = 0.5
"""Share of a longer time that was asked for (--timeout). sshd may look names up for 20 s:
resolv.conf(5) has 5 s a try and two tries for each of its servers."""

EARLY_TRIES = 3
"""A server that hangs up before its banner is asked again after a jittered moment (MaxStartups)."""


_FAMILIES = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}


class SshTransport:
    """Transport over SSH; nodes with transport "local" are run here without it."""

    def __init__(self, inventory: Inventory, fanout: int = 64) -> None:
        """`fanout`: handshakes at a time. Reads ssh_config and known_hosts now."""
        self.config = SshConfig(inventory)
        self._trust = HostTrust(inventory)
        self._turns = Turns(fanout)
        self._fanout = fanout
        self._local = LocalTransport()
        self._keys = Keys()
        self._jumps: dict[tuple[str, ...], Shared[asyncssh.SSHClientConnection]] = {}
        self._open: weakref.WeakSet[asyncssh.SSHClientConnection] = weakref.WeakSet()
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
        settings = await self._settings(Hop(node.target, node.user, node.port))
        hops = node.jump or settings.proxyjump
        conn = await self._reach(node, settings, hops, receiver, _part(CONNECT_S, timeout_s))
        self._open.add(conn)
        try:
            return await open_command(conn, command, receiver, _part(CHANNEL_S, timeout_s))
        except BaseException:
            conn.abort()
            raise

    async def close(self) -> None:
        """See Transport.close."""
        await self._local.close()
        for conn in list(self._open):
            conn.abort()
        for jump in list(self._jumps.values()):
            opened = await jump.end()
            if opened is not None:
                opened.abort()
        self._keys.close()
        self.config.save()

    async def _reach(
        self,
        node: Node,
        settings: SshSettings,
        hops: tuple[str, ...],
        receiver: Receiver,
        timeout_s: float,
    ) -> asyncssh.SSHClientConnection:
        """Log in on a node; once more when the shared jump host turns out to be dead."""
        me = Hop(node.target, node.user, node.port)
        tunnel = await self._tunnel(hops, timeout_s)
        async with self._turns.turn():
            receiver.connecting()
            try:
                return await self._login(me, settings, node.identity, tunnel, timeout_s)
            except Failure:
                if tunnel is None or not await _dead(tunnel):
                    raise
        tunnel = await self._tunnel(hops, timeout_s)
        async with self._turns.turn():
            return await self._login(me, settings, node.identity, tunnel, timeout_s)

    async def _settings(self, hop: Hop) -> SshSettings:
        settings = await self.config.settings(hop.host, hop.user, hop.port)
        return _read_by_asyncssh(hop, settings.fallback) if settings.fallback else settings

    async def _tunnel(
        self, hops: tuple[str, ...], timeout_s: float
    ) -> asyncssh.SSHClientConnection | None:
        """The connection through these jump hosts, opened once for everybody."""
        if not hops:
            return None
        if hops not in self._jumps:
            self._jumps[hops] = Shared(
                lambda: self._open_jump(hops, timeout_s), lambda c: not c.is_closed()
            )
        return await self._jumps[hops].get()

    async def _open_jump(
        self, hops: tuple[str, ...], timeout_s: float
    ) -> asyncssh.SSHClientConnection:
        *before, last = hops
        hop = read_hop(last)
        settings = await self._settings(hop)
        try:
            first = tuple(before) or settings.proxyjump
            if len(hops) + len(first) > 16 or last in first:
                raise Failure(
                    "ssh_config", "jump hosts lead in a circle", "see ProxyJump", fixed=True
                )
            tunnel = await self._tunnel(first, timeout_s)
            async with self._turns.turn():
                return await self._login(hop, settings, None, tunnel, timeout_s)
        except Failure as failure:
            raise Failure(
                failure.reason,
                f"jump host {hop.host}: {failure.what}",
                failure.hint,
                state=failure.state,
                fixed=failure.fixed,
            ) from failure

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
        tries = _Tries(expect)
        try:
            async with asyncio.timeout(timeout_s):
                keys = await self._keys.load(hop.host, settings, identity, user, port)
                options = self._options(hop, settings, user, port, keys, tunnel)
                return await tries.connect(options)
        except (OSError, asyncssh.Error, ValueError) as error:
            told = tries.early if isinstance(error, TimeoutError) and tries.early else error
            raise self._explain(told, tries.client, settings.hostname, user, port) from error

    def _explain(
        self, error: Exception, client: Client, host: str, user: str, port: int
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
        keys: Sequence[asyncssh.SSHKeyPair],
        tunnel: asyncssh.SSHClientConnection | None,
    ) -> dict[str, Any]:
        """What differs between hosts; the rest is COMMON."""
        mine: dict[str, Any] = {
            **COMMON,
            "host": settings.hostname,
            "tunnel": tunnel or (),
            "config": None,
            "username": user,
            "port": port,
            "client_keys": keys,
            "host_key_alias": settings.hostkeyalias or None,
            **algorithms(settings),
        }
        if settings.proxycommand and tunnel is None and not settings.proxyjump:
            command = expand(settings.proxycommand, hop.host, settings, user, port)
            mine["proxy_command"] = ("/bin/sh", "-c", f"exec {command}")
        if settings.addressfamily in _FAMILIES:
            mine["family"] = _FAMILIES[settings.addressfamily]
        if settings.bindaddress:
            mine["local_addr"] = (settings.bindaddress, 0)
        return mine


class _Tries:
    """The attempts of one login: early hang-ups are asked again, host keys get a closer look."""

    def __init__(self, expect: Expect) -> None:
        self.expect = expect
        self.client = Client(expect)
        self.early: Exception | None = None
        self._looks = 0
        self._hang_ups = 0

    async def connect(self, options: dict[str, Any]) -> asyncssh.SSHClientConnection:
        """Try until it works or trying again makes no sense; the caller sets the time."""
        while True:
            self.client = Client(self.expect)
            try:
                return await connect(self.client, options)
            except asyncssh.HostKeyNotVerifiable:
                self._looks += 1
                # OpenSSH takes at most these two: without certificate, then the types on file.
                if self._looks > 2 or not self.expect.look_closer(self.client.shown or ""):
                    raise
            except (ConnectionError, asyncssh.ConnectionLost) as error:
                self._hang_ups += 1
                if not self.client.look().hung_up_early or self._hang_ups >= EARLY_TRIES:
                    raise
                self.early = error
            await asyncio.sleep(random.uniform(0.1, 0.5) * self._hang_ups)


async def _dead(conn: asyncssh.SSHClientConnection) -> bool:
    """Whether a connection that just failed us is closing: asyncssh says so a moment later."""
    try:
        async with asyncio.timeout(0.1):
            await conn.wait_closed()
    except TimeoutError:
        return False
    return True


DEFAULT_KEYS = tuple(f"~/.ssh/id_{kind}" for kind in ("rsa", "ecdsa", "ecdsa_sk", "ed25519"))


def _read_by_asyncssh(hop: Hop, files: Sequence[str]) -> SshSettings:
    """The settings as asyncssh's own reader understands the files; it knows fewer keywords."""
    options = asyncssh.SSHClientConnectionOptions(
        config=list(files),
        host=hop.host,
        port=hop.port or (),
        username=hop.user or (),
        client_keys=None,
    )
    named = options.known_hosts if isinstance(options.known_hosts, list) else []
    jump = options.tunnel if isinstance(options.tunnel, str) else ""
    keys = cast("list[str]", options.config.get("IdentityFile", list(DEFAULT_KEYS)))
    certificates = cast("list[str]", options.config.get("CertificateFile", []))
    return SshSettings(
        hostname=options.host,
        user=options.username,
        port=options.port,
        identityfile=tuple(os.path.expanduser(path) for path in keys),
        certificatefile=tuple(os.path.expanduser(path) for path in certificates),
        identityagent=str(options.config.get("IdentityAgent", "")),
        identitiesonly=bool(options.config.get("IdentitiesOnly")),
        proxyjump=tuple(filter(None, jump.split(","))),
        hostkeyalias=options.host_key_alias or "",
        userknownhostsfile=tuple(map(str, named)) or (os.path.expanduser("~/.ssh/known_hosts"),),
        globalknownhostsfile=("/etc/ssh/ssh_known_hosts",),
    )


def _part(usual_s: float, timeout_s: float) -> float:
    """What one step may take of the whole: the usual, or half of a time that is longer."""
    return min(timeout_s, max(usual_s, PATIENT * timeout_s))


def raise_open_files() -> None:
    """Lift the soft limit of open files to the hard one: a connection is one file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
