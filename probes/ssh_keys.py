"""Private keys, certificates and the agent: read once for all nodes."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence

from probes.ssh import asyncssh
from probes.ssh_config import SshSettings, expand
from probes.transport import Failure


class Keys:
    """Private keys and the agent, read once for all nodes."""

    def __init__(self) -> None:
        self._loaded: dict[tuple[object, ...], asyncio.Task[list[asyncssh.SSHKeyPair]]] = {}
        self._agents: list[asyncssh.SSHAgentClient] = []

    async def load(
        self, host: str, settings: SshSettings, identity: str | None, user: str, port: int
    ) -> Sequence[asyncssh.SSHKeyPair]:
        """Key pairs to try, in order."""
        files = [_absolute(identity)] if identity else []
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
        if named and not _there(files[:1]):
            raise Failure(
                "auth", f"identity file {files[0]} cannot be read", "correct the inventory",
                fixed=True,
            )  # fmt: skip
        here = _there(certs)
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
        """Let go of the agent."""
        for task in self._loaded.values():
            task.cancel()
        for agent in self._agents:
            agent.close()


def _absolute(path: str) -> str:
    return os.path.expanduser(path)


def _there(paths: Sequence[str]) -> list[str]:
    return [path for path in paths if os.path.isfile(path)]


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
