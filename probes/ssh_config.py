"""Effective SSH settings of a host: OpenSSH's own answer, `ssh -G host`, asked as rarely as can be.

Hosts that match the same Host lines share one answer unless something else in the files could tell
them apart (Match, %-tokens, canonicalisation): then each host is asked. Answers are kept in memory
and, when nothing but the files decides, on disk by the files' content. Without an `ssh` program
asyncssh's own reader takes over (see SshSettings.fallback).
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import pwd
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct, field
from platformdirs import user_cache_path

from inventory.errors import UsageError
from inventory.node import Inventory, Node
from inventory.run import Completed, LocalRun, Run
from probes.sanitise import clean
from probes.ssh_files import Place, Scan, matches, scan
from probes.transport import Failure

SYSTEM_CONFIG = "/etc/ssh/ssh_config"
ASK_S = 10.0
"""`ssh -G` takes 4 ms here; ten seconds means a hung Match exec or home directory."""

AT_ONCE = 2 * (os.cpu_count() or 1)

_PLURAL = ("identityfile", "certificatefile")
_SPACED = ("userknownhostsfile", "globalknownhostsfile")
_FILE_ERROR = re.compile(
    r"line \d+|recursive|bad configuration option|Can't open user config|Bad owner or permissions",
    re.IGNORECASE,
)
_NOISE = re.compile(r"^Pseudo-terminal will not be allocated.*$", re.MULTILINE)


class SshSettings(Struct, frozen=True, kw_only=True):
    """What OpenSSH would do for one host, as far as it concerns us. Paths with ~ expanded."""

    hostname: str
    user: str = ""
    port: int = 22
    identityfile: tuple[str, ...] = ()
    certificatefile: tuple[str, ...] = ()
    identityagent: str = ""
    """"" means SSH_AUTH_SOCK, "none" no agent."""
    identitiesonly: bool = False
    proxyjump: tuple[str, ...] = ()
    proxycommand: str = ""
    hostkeyalias: str = ""
    userknownhostsfile: tuple[str, ...] = ()
    globalknownhostsfile: tuple[str, ...] = ()
    hashknownhosts: bool = False
    addressfamily: str = "any"
    bindaddress: str = ""
    algorithms: dict[str, str] = field(default_factory=dict)
    """ciphers, macs, kexalgorithms, hostkeyalgorithms: only where they differ from the defaults."""
    fallback: tuple[str, ...] = ()
    """There is no ssh program: files for asyncssh's own reader; only hostname is set above."""


_ALGORITHMS = ("ciphers", "macs", "kexalgorithms", "hostkeyalgorithms")


class SshConfig:
    """Answers `settings(node)` for all nodes of one inventory."""

    def __init__(
        self, inventory: Inventory, *, run: Run | None = None, ssh: str | None = None
    ) -> None:
        """Reads the configuration files now; `ssh` is the program, found on PATH by default."""
        self._own = inventory.ssh_config
        self._run = run or LocalRun()
        self._ssh = shutil.which("ssh") if ssh is None else ssh
        self._home = _home()
        self._scan = scan(self._files())
        self._answers: dict[tuple[object, ...], asyncio.Task[dict[str, list[str]]]] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._disk = _Disk(self._scan, self._ssh)
        self.runs = 0
        """How often ssh was really asked."""

    def _files(self) -> list[tuple[str, str]]:
        dot_ssh = os.path.join(self._home, ".ssh")
        if self._own:
            return [(os.path.expanduser(self._own), dot_ssh)]
        return [(os.path.join(dot_ssh, "config"), dot_ssh), (SYSTEM_CONFIG, "/etc/ssh")]

    def ignored_keywords(self) -> list[Place]:
        """Keywords of the user's files that neither ssh -G nor we apply; `doctor` names them."""
        return list(self._scan.ignored)

    async def settings(
        self, host: str, user: str | None = None, port: int | None = None
    ) -> SshSettings:
        """The settings for a host as the operator would type it.

        Raises UsageError when OpenSSH refuses the files, Failure when it refuses this host.
        """
        self._refuse_loops()
        if not self._ssh:
            files = tuple(path for path, _ in self._files() if os.access(path, os.R_OK))
            return SshSettings(hostname=host, fallback=files)
        own = ("host", host, user, port)
        try:
            answer = await self._answer(host, user, port, self._class_of(host) or own)
        except Failure:
            # The host that was asked about for the whole class may be the only bad one.
            answer = await self._answer(host, user, port, own)
        defaults = await self._answer("localhost", None, None, ("defaults",))
        return self._settings(host, answer, defaults)

    async def of(self, node: Node) -> SshSettings:
        """The settings for a node of the inventory."""
        return await self.settings(node.target, node.user, node.port)

    def save(self) -> None:
        """Keep the answers on disk for the next start."""
        self._disk.save()

    def _refuse_loops(self) -> None:
        if self._scan.loops:
            place = self._scan.loops[0]
            raise UsageError(
                "this Include leads back into its own file: OpenSSH refuses the whole configuration"
                " (Too many recursive configuration includes)",
                where=str(place),
                instead="remove that line",
            )

    def _class_of(self, host: str) -> tuple[object, ...] | None:
        """What hosts with the same answer have in common; None when each may have its own."""
        if self._scan.opaque:
            return None
        return ("class", *(matches(line, host) for line in self._scan.hosts))

    async def _answer(
        self, host: str, user: str | None, port: int | None, key: tuple[object, ...]
    ) -> dict[str, list[str]]:
        task = self._answers.get(key)
        if task is None:
            task = asyncio.ensure_future(self._ask(host, user, port, key))
            self._answers[key] = task
        try:
            return await asyncio.shield(task)
        except Failure:
            self._answers.pop(key, None)
            raise

    async def _ask(
        self, host: str, user: str | None, port: int | None, key: tuple[object, ...]
    ) -> dict[str, list[str]]:
        kept = self._disk.get(key)
        if kept is not None:
            return kept
        argv = [self._ssh or "ssh", "-G"]
        if key == ("defaults",):
            argv += ["-F", os.devnull]
        elif self._own:
            argv += ["-F", self._files()[0][0]]
        argv += ["-l", user] if user and self._scan.opaque else []
        argv += ["-p", str(port)] if port and self._scan.opaque else []
        async with self._slots:
            self.runs += 1
            done = await self._run([*argv, "--", host], ASK_S)
        answer = {"asked": [host], **_parse(self._checked(done, host))}
        self._disk.put(key, answer)
        return answer

    def _checked(self, done: Completed, host: str) -> str:
        if done.rc == 0 and done.stdout:
            return done.stdout
        said = clean(_NOISE.sub("", done.stderr).strip().replace("\n", "; ")) or f"status {done.rc}"
        if _FILE_ERROR.search(said):
            where = self._own or "ssh_config"
            raise UsageError(f"OpenSSH refuses the configuration: {said}", where=where)
        raise Failure(
            "ssh_config", f"ssh -G {clean(host, 80)}: {said}", "try it by hand", fixed=True
        )

    def _settings(
        self,
        host: str,
        answer: Mapping[str, list[str]],
        defaults: Mapping[str, list[str]],
    ) -> SshSettings:
        def one(name: str) -> str:
            return answer.get(name, [""])[0]

        paths = {name: tuple(map(self._tilde, answer.get(name, []))) for name in _PLURAL}
        spaced = {name: tuple(map(self._tilde, one(name).split())) for name in _SPACED}
        jump = "" if one("proxyjump") == "none" else one("proxyjump")
        command = "" if one("proxycommand") == "none" else one("proxycommand")
        literal = one("hostname").lower() != answer["asked"][0].lower()
        return SshSettings(
            hostname=one("hostname") if literal else host,
            user=one("user"),
            port=int(one("port") or 22),
            identityfile=paths["identityfile"],
            certificatefile=paths["certificatefile"],
            identityagent=_agent(self._tilde(one("identityagent"))),
            identitiesonly=one("identitiesonly") == "yes",
            proxyjump=tuple(filter(None, jump.split(","))),
            proxycommand=command,
            hostkeyalias=one("hostkeyalias"),
            userknownhostsfile=spaced["userknownhostsfile"],
            globalknownhostsfile=spaced["globalknownhostsfile"],
            hashknownhosts=one("hashknownhosts") == "yes",
            addressfamily=one("addressfamily") or "any",
            bindaddress=one("bindaddress"),
            algorithms={
                name: one(name) for name in _ALGORITHMS if answer.get(name) != defaults.get(name)
            },
        )

    def _tilde(self, path: str) -> str:
        return self._home + path[1:] if path == "~" or path.startswith("~/") else path


def expand(text: str, host: str, settings: SshSettings, user: str, port: int) -> str:
    """%-tokens of IdentityFile, CertificateFile, ProxyCommand, known_hosts (ssh_config(5)).

    `host` is the name as typed. Unknown tokens stay as they are.
    """
    name = os.uname().nodename
    tokens = {
        "%": "%",
        "h": settings.hostname,
        "n": host,
        "p": str(port),
        "r": user,
        "u": pwd.getpwuid(os.getuid()).pw_name,
        "i": str(os.getuid()),
        "d": _home(),
        "l": name,
        "L": name.partition(".")[0],
        "k": settings.hostkeyalias or host,
        "j": settings.proxyjump[0] if settings.proxyjump else "",
    }
    combined = name + settings.hostname + str(port) + user + tokens["j"]
    tokens["C"] = hashlib.sha1(combined.encode(), usedforsecurity=False).hexdigest()
    return re.sub(r"%(.)", lambda found: tokens.get(found.group(1), found.group(0)), text)


_WANTED = frozenset((*SshSettings.__struct_fields__, *_ALGORITHMS))


def _parse(text: str) -> dict[str, list[str]]:
    answer: dict[str, list[str]] = {}
    for line in text.splitlines():
        keyword, _, value = line.partition(" ")
        if keyword.lower() in _WANTED:
            answer.setdefault(keyword.lower(), []).append(value)
    return answer


def _agent(value: str) -> str:
    if value in ("", "SSH_AUTH_SOCK"):
        return ""
    return os.environ.get(value[1:].strip("{}"), "none") if value.startswith("$") else value


def _home() -> str:
    """The home directory as ssh finds it: from the password file, not from $HOME."""
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return os.path.expanduser("~")


class _Disk:
    """Answers of earlier runs, in one JSON file; used only while no byte of the files changed."""

    def __init__(self, found: Scan, ssh: str | None) -> None:
        self._on = not found.volatile
        try:
            stamp = os.stat(ssh).st_mtime_ns if ssh else 0
        except OSError:
            stamp = 0
        stem = f"{found.digest}:{ssh}:{stamp}:{os.getuid()}"
        self._stem = hashlib.sha256(stem.encode()).hexdigest()
        self._path = user_cache_path("gpuconsole", appauthor=False) / "ssh-config.json"
        self._kept: dict[str, dict[str, list[str]]] | None = None
        self._dirty = False

    def _load(self) -> dict[str, dict[str, list[str]]]:
        if self._kept is None:
            try:
                raw = self._path.read_bytes()
                kind = tuple[str, dict[str, dict[str, list[str]]]]
                stem, kept = msgspec.json.decode(raw, type=kind)
                self._kept = kept if stem == self._stem else {}
            except (OSError, msgspec.MsgspecError):
                self._kept = {}
        return self._kept

    def get(self, key: tuple[object, ...]) -> dict[str, list[str]] | None:
        """The remembered answer, if any."""
        return self._load().get(repr(key)) if self._on else None

    def put(self, key: tuple[object, ...], answer: dict[str, list[str]]) -> None:
        """Remember until `save`."""
        if self._on:
            self._load()[repr(key)] = answer
            self._dirty = True

    def save(self) -> None:
        """Write what is new; a cache that cannot be written is no error."""
        if not self._dirty:
            return
        self._dirty = False
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _replace(self._path, msgspec.json.encode((self._stem, self._kept)))
        except OSError:
            self._on = False


def _replace(path: Path, data: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(data)
    os.replace(file.name, path)
