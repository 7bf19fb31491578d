"""Which host keys we accept, and how a refusal reads. Strict or accept-new; there is no off."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from inventory.node import Inventory
from probes.known_hosts import KnownHosts, Trust, Verdict, fingerprint, kind
from probes.reasons import host_key
from probes.ssh_config import SshSettings, expand
from probes.transport import Failure

_SIGNATURES = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}
"""A key type may be used with several signature algorithms; the others are their own."""


class HostTrust:
    """The known_hosts files of all nodes, each read once, and the policy."""

    def __init__(self, inventory: Inventory) -> None:
        """`inventory.known_hosts` replaces the files that ssh_config names."""
        self._own = inventory.known_hosts
        self._accept_new = inventory.host_keys == "accept-new"
        self._files: dict[tuple[str, ...], KnownHosts] = {}

    def expect(self, host: str, settings: SshSettings, user: str, port: int) -> Expect:
        """What host `host` (as typed) may show."""
        files = self._own or tuple(
            expand(path, host, settings, user, port)
            for path in (*settings.userknownhostsfile, *settings.globalknownhostsfile)
        )
        known = self._files.get(files)
        if known is None:
            known = self._files[files] = KnownHosts(files)
        else:
            known.refresh()
        if settings.hostkeyalias:
            return Expect(
                known, settings.hostkeyalias, 22, self._accept_new, settings.hashknownhosts
            )
        return Expect(known, settings.hostname, port, self._accept_new, settings.hashknownhosts)


class Expect:
    """One host's side of known_hosts."""

    def __init__(
        self, known: KnownHosts, host: str, port: int, accept_new: bool, hashed: bool
    ) -> None:
        """`host` and `port` as known_hosts names them: the alias counts as port 22."""
        self.known = known
        self.host = host
        self.port = port
        self.plain_only = False
        """Ignore certificates: OpenSSH's second try when a certificate does not convince."""
        self._accept_new = accept_new
        self._hashed = hashed
        self._types: list[str] | None = None

    def algorithms(self, plain: Sequence[str], certificates: Sequence[str]) -> list[str]:
        """Host key algorithms to offer, best first: those that can lead to a key on file.

        `plain` and `certificates`: what we can do, in order of preference.
        """
        types = self.known.key_types(self.host, self.port) if self._types is None else self._types
        first = [alg for name in types for alg in _SIGNATURES.get(name, (name,)) if alg in plain]
        with_certs = [] if self.plain_only else list(certificates)
        if not self.known.authorities(self.host, self.port):
            with_certs = []
        return list(dict.fromkeys([*with_certs, *first, *plain]))

    def look_closer(self, shown: str) -> bool:
        """After a refusal: whether another try could show a key that is on file.

        `shown`: the key type that was refused, "" for a certificate.
        """
        types = self.known.hashed_types(self.host, self.port)
        if not shown:
            self.plain_only = True
            return bool(types)
        again = bool(types) and shown not in types and types != self._types
        self._types = types
        return again

    def is_authority(self, key: bytes) -> bool:
        """Whether this key may sign certificates for the host."""
        text = base64.b64encode(key).decode()
        return any(line.key == text for line in self.known.authorities(self.host, self.port))

    def revoked(self) -> list[tuple[str, str]]:
        """(algorithm, key in base64) of @revoked lines for the host."""
        return [(line.algorithm, line.key) for line in self.known.revoked(self.host, self.port)]

    def check(self, key: bytes) -> Failure | None:
        """Judge the key the host shows; None means go on. May append it (accept-new)."""
        text = base64.b64encode(key).decode()
        verdict = self.known.check(self.host, self.port, text)
        if verdict.trust is Trust.KNOWN:
            return None
        algorithm = key[4 : 4 + int.from_bytes(key[:4], "big")].decode("ascii", "replace")
        if verdict.trust is Trust.UNKNOWN and self._accept_new:
            self.known.accept(self.host, self.port, algorithm, text, hashed=self._hashed)
            return None
        return self._refusal(verdict, algorithm, text)

    def _refusal(self, verdict: Verdict, algorithm: str, text: str) -> Failure:
        shown = f"{kind(algorithm)} {fingerprint(text)}"
        line = verdict.line
        if verdict.trust is Trust.REVOKED and line is not None:
            return host_key(
                f"its host key {shown} is marked revoked ({line.where})",
                "do not log in there; ask whoever revoked the key",
                changed=True,
            )
        if line is not None:
            return host_key(
                f"host key of {self.host} differs from the one on file: it shows {shown},"
                f" on file is {kind(line.algorithm)} {_fingerprint(line.key)} ({line.where})",
                "compare the fingerprint with whoever reinstalled the node, over another channel;"
                " then remove the old line by hand",
                changed=True,
            )
        return host_key(
            f"host key of {self.host} is not in known_hosts: it shows {shown}",
            "compare the fingerprint, then log in once with ssh; or host_keys: accept-new in the"
            " inventory",
            changed=False,
        )


def _fingerprint(key: str) -> str:
    try:
        return fingerprint(key)
    except ValueError:
        return "(unreadable)"
