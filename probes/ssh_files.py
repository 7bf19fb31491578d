"""Reading ssh_config files only to know what an answer can depend on. OpenSSH gives the answer.

`scan` walks files and Includes as ssh_config(5) describes and notes every keyword with its place.
It decides nothing about values: it says which Host lines there are, whether anything else could
make two hosts differ, which keywords we do not honour, and where a file includes itself.
"""

from __future__ import annotations

import fnmatch
import glob
import hashlib
import os
import re
import shlex
from collections.abc import Sequence

from msgspec import Struct, field

DEPTH_MAX = 16
"""OpenSSH's own limit of nested Includes (READCONF_MAX_DEPTH in readconf.c)."""

_HONOURED_WORDS = """
host match include hostname user port identityfile certificatefile identityagent identitiesonly
proxyjump proxycommand hostkeyalias userknownhostsfile globalknownhostsfile
hashknownhosts ciphers macs kexalgorithms hostkeyalgorithms
addressfamily bindaddress tag canonicalizehostname
canonicaldomains canonicalizefallbacklocal canonicalizemaxdots canonicalizepermittedcnames
ignoreunknown
"""
HONOURED = frozenset(_HONOURED_WORDS.split())
"""Keywords whose effect on our connections is OpenSSH's: ssh -G resolves them, or we apply them."""

_MOOT_WORDS = """
addkeystoagent batchmode checkhostip clearallforwardings compression compressionlevel
connectionattempts connecttimeout controlmaster controlpath controlpersist dynamicforward
enableescapecommandline escapechar exitonforwardfailure fingerprinthash forkafterauthentication
forwardagent forwardx11 forwardx11timeout forwardx11trusted gatewayports ipqos localcommand
localforward loglevel logverbose numberofpasswordprompts passwordauthentication
kbdinteractiveauthentication challengeresponseauthentication permitlocalcommand permitremoteopen
preferredauthentications remotecommand remoteforward requesttty sendenv serveralivecountmax
serveraliveinterval sessiontype setenv stdinnull streamlocalbindmask streamlocalbindunlink
syslogfacility tcpkeepalive tunnel tunneldevice updatehostkeys visualhostkey xauthlocation
obscurekeystroketiming
"""
MOOT = frozenset(_MOOT_WORDS.split())
"""Keywords about terminals, forwarding, prompts and timing that we set ourselves on purpose."""

EXPANDED_BY_US = MOOT | {"identityfile", "certificatefile", "proxycommand", "host", "match"}
"""ssh -G prints %-tokens of these as written; in any other value they may make hosts differ."""


class Place(Struct, frozen=True):
    """A keyword in a file."""

    keyword: str
    file: str
    line: int

    def __str__(self) -> str:
        """file:line, as errors name it."""
        return f"{self.file}:{self.line}"


class Scan(Struct, kw_only=True):
    """What the configuration files hold, as far as it matters to us."""

    digest: str = ""
    """Changes when any byte of any file read changes, or another file joins."""
    hosts: list[tuple[str, ...]] = field(default_factory=list)
    """The patterns of each Host line, in order."""
    opaque: bool = False
    """Something other than Host patterns may make two hosts differ: ask for each host."""
    volatile: bool = False
    """The answer may change although no file does (Match exec, networks, environment)."""
    ignored: list[Place] = field(default_factory=list)
    loops: list[Place] = field(default_factory=list)
    """Include lines that lead back into a file being read."""


def scan(files: Sequence[tuple[str, str]]) -> Scan:
    """Read (file, folder for relative Includes) pairs; missing files count as empty."""
    found = Scan()
    digest = hashlib.sha256()
    for path, base in files:
        _read(path, base, found, digest, ())
    found.digest = digest.hexdigest()
    return found


def _read(
    path: str, base: str, found: Scan, digest: hashlib._Hash, inside: tuple[str, ...]
) -> None:
    try:
        with open(path, "rb") as file:
            raw = file.read(1 << 20)
    except OSError:
        raw = b""
    digest.update(f"{path}\0{len(raw)}\0".encode())
    digest.update(raw)
    for number, line in enumerate(raw.decode("utf-8", "replace").splitlines(), 1):
        keyword, values = split(line)
        if keyword:
            place = Place(keyword, path, number)
            _note(place, values, found)
            if keyword == "include":
                _include(place, values, base, found, digest, (*inside, path))


def _include(
    place: Place,
    values: list[str],
    base: str,
    found: Scan,
    digest: hashlib._Hash,
    inside: tuple[str, ...],
) -> None:
    for value in values:
        pattern = os.path.join(base, os.path.expanduser(value))
        for path in sorted(glob.glob(pattern)):
            if path in inside:
                found.loops.append(place)
            elif len(inside) < DEPTH_MAX:
                _read(path, base, found, digest, inside)


def _note(place: Place, values: list[str], found: Scan) -> None:
    keyword = place.keyword
    if keyword == "host":
        found.hosts.append(tuple(values))
    elif keyword == "match":
        words = " ".join(values).lower()
        if words != "all":
            found.opaque = True
        if re.search(r"exec|localnetwork|localuser|canonical|final", words):
            found.volatile = True
    elif keyword == "canonicalizehostname" and values[:1] != ["no"]:
        found.opaque = found.volatile = True
    elif keyword not in HONOURED and keyword not in MOOT:
        found.ignored.append(place)
    if keyword not in EXPANDED_BY_US and any("%" in value for value in values):
        found.opaque = True
    if any("${" in value for value in values):
        found.volatile = True


def split(line: str) -> tuple[str, list[str]]:
    """Keyword in lower case and its arguments; ("", []) for blanks and comments."""
    line = line.strip()
    if not line or line.startswith("#"):
        return "", []
    found = re.match(r'"?([A-Za-z0-9]+)"?(?:\s*=\s*|\s+)?(.*)', line, re.DOTALL)
    if found is None:
        return "", []
    try:
        values = shlex.split(found.group(2), comments=True)
    except ValueError:
        values = found.group(2).split()
    return found.group(1).lower(), values


def matches(patterns: Sequence[str], host: str) -> bool:
    """Whether a Host line applies, by the rules of PATTERNS in ssh_config(5)."""
    hit = False
    for pattern in patterns:
        if pattern.startswith("!"):
            if _wild(pattern[1:], host):
                return False
        elif _wild(pattern, host):
            hit = True
    return hit


def _wild(pattern: str, text: str) -> bool:
    """`*` and `?` only: square brackets are plain characters in ssh_config(5)."""
    return fnmatch.fnmatchcase(text, pattern.replace("[", "[[]"))
