"""The payload: modules of probes/node and pynvml as bytes, and the command line that runs them.

Layout of the bytes on stdin: four blocks, each a decimal length, a line feed and that many bytes:
second-stage loader (zlib), config (zlib JSON), our modules (zlib JSON), pynvml (zlib source).
"""

from __future__ import annotations

import importlib.util
import json
import re
import secrets
import zlib
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct, field

from inventory.errors import UsageError
from inventory.node import Node
from probes import catalog

MARKER_BYTES = 12
"""Random bytes in a session's marker (24 hex digits): noise cannot look like a frame by chance."""

NO_PYTHON = "gpuconsole: no python3"
"""How the command's line begins when no usable interpreter exists; its exit status is 127."""

FIRST_STAGE = "import sys,zlib;r=sys.stdin.buffer;exec(zlib.decompress(r.read(int(r.readline()))))"
"""Holds no quote, dollar, backslash or exclamation mark: every shell passes it on as it is."""

USABLE = "import sys,zlib,json;sys.exit(sys.version_info<(3,6))"
"""Exit 0 when an interpreter can run the payload: version managers leave shims that only fail."""

INTERPRETERS = (
    "python3",
    *(f"python3.{minor}" for minor in range(13, 5, -1)),
    "/usr/libexec/platform-python",
    "/usr/bin/python3",
)
"""Where to look after the configured path: PATH, then RHEL 8's private interpreter."""


class AgentConfig(Struct, kw_only=True, omit_defaults=False):
    """What travels to the agent; see probes/node/__init__.py. Times in seconds."""

    marker: str = field(default_factory=lambda: secrets.token_hex(MARKER_BYTES))
    mode: str = "watch"
    window_s: float = 1.0
    fast_s: float = 2.0
    slow_s: float = 30.0
    rare_s: float = 300.0
    root: str = "/"
    deadline_s: float = 5.0
    probes: list[str] | None = None
    """Names from the catalog; None means all."""
    modules: dict[str, str] = field(default_factory=lambda: dict(catalog.MODULES))
    """Probe name -> module that holds it."""
    nice: int = 10
    extra: dict[str, str] = field(default_factory=dict)
    """More modules to ship, name -> source (a site's own probe, a test's)."""


def remote_command(node: Node) -> str:
    """One line for the node's login shell, whichever it is: find an interpreter, run the loader.

    Raises UsageError when a configured word cannot be written safely for every shell.
    """
    words = [*node.become, "sh", "-c", _script(node.python)]
    return "exec " + " ".join(_quote(word) for word in words)


def _script(python: str | None) -> str:
    """The POSIX shell script: the first interpreter that can run the payload takes over."""
    names = [*([python] if python else []), *INTERPRETERS]
    tries = " ".join(_home(name) for name in dict.fromkeys(names))
    return (
        f"for p in {tries}; do "
        f'if "$p" -I -S -c "{USABLE}" </dev/null >/dev/null 2>&1; then '
        f'exec "$p" -I -S -c "{FIRST_STAGE}"; fi; done; '
        f'echo "{NO_PYTHON} of 3.6 or newer found, tried: "{tries}; exit 127'
    )


def _home(name: str) -> str:
    """A path as a word of the script, with a leading ~/ meant as the login user's home."""
    return f'"$HOME"/{_quote(name[2:])}' if name.startswith("~/") else _quote(name)


_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
_APART = re.compile(r"['\\!]")


def _outside(found: re.Match[str]) -> str:
    return f"'\\{found.group()}'"


def _quote(word: str) -> str:
    """A word for sh, bash, dash, csh, tcsh and fish alike.

    Inside single quotes three characters differ between them: the quote itself, the backslash (in
    fish) and the exclamation mark (csh's history, even in scripts). All go outside, escaped.
    Control characters have no common form at all.
    """
    if any(ord(char) < 32 or ord(char) == 127 for char in word):
        raise UsageError(
            f"{word!r} holds a control character", instead="use a plain path or argument"
        )
    if _PLAIN.fullmatch(word) and not word.startswith("="):
        return word
    return f"'{_APART.sub(_outside, word)}'"


def payload(config: AgentConfig) -> bytes:
    """Everything the first stage reads from stdin. About 220 KB; only the config is not cached."""
    settings = msgspec.to_builtins(config)
    extra = settings.pop("extra")
    modules = _modules(tuple(sorted(extra.items())))
    blocks = (_loader(), _pack(json.dumps(settings)), modules, _pynvml())
    return b"".join(b"%d\n%b" % (len(block), block) for block in blocks)


def _pack(text: str) -> bytes:
    return zlib.compress(text.encode(), 9)


@cache
def _loader() -> bytes:
    return _pack((_node_dir() / "loader.py").read_text(encoding="utf-8"))


@cache
def _modules(extra: tuple[tuple[str, str], ...]) -> bytes:
    """All modules of probes/node under their real names, as {name: [path, source]}."""
    here = _node_dir()
    found = {"probes": [str(Path("probes", "__init__.py")), ""]}
    for path in sorted(here.glob("*.py")):
        name = "probes.node" if path.stem == "__init__" else f"probes.node.{path.stem}"
        found[name] = [f"probes/node/{path.name}", path.read_text(encoding="utf-8")]
    for name, source in extra:
        found[name] = [f"{name.replace('.', '/')}.py", source]
    return _pack(json.dumps(found))


@cache
def _pynvml() -> bytes:
    """NVIDIA's binding as installed here, or nothing when it is not: GPU probes then say so."""
    spec = importlib.util.find_spec("pynvml")
    if spec is None or spec.origin is None:
        return b""
    return _pack(Path(spec.origin).read_text(encoding="utf-8"))


def _node_dir() -> Path:
    return Path(__file__).parent / "node"
