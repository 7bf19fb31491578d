"""Host names listed in an ssh_config, for `-i ssh:`. Settings of hosts are not read here."""

from __future__ import annotations

import glob
import shlex
from collections.abc import Iterator
from pathlib import Path

from inventory.errors import UsageError
from inventory.expressions import is_host_name
from inventory.paths import expanded, is_file

USER_CONFIG = "~/.ssh/config"
MAX_INCLUDES = 16
"""Nesting that OpenSSH follows (READCONF_MAX_DEPTH in readconf.c)."""


def config_hosts(path: Path) -> list[str]:
    """Names on `Host` lines that are no patterns, in the order written, without duplicates.

    Include is followed as ssh does it: relative to ~/.ssh, with wildcards. A missing user config is
    empty; any other missing file is a UsageError.
    """
    if not is_file(path) and path != expanded(USER_CONFIG):
        raise UsageError(f"no file {path}", where="ssh:")
    return list(dict.fromkeys(_hosts(path, 0)))


def _hosts(path: Path, depth: int) -> Iterator[str]:
    for keyword, words in _lines(path):
        if keyword == "host":
            yield from (word for word in words if is_host_name(word))
        elif keyword == "include" and depth < MAX_INCLUDES:
            for included in _included(words):
                yield from _hosts(included, depth + 1)


def _lines(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Keyword in lower case and its arguments; lines that cannot be split are left out."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        keyword, _, rest = line.strip().replace("=", " ", 1).partition(" ")
        if keyword.lower() not in ("host", "include"):
            continue
        try:
            yield keyword.lower(), shlex.split(rest, comments=True)
        except ValueError:
            continue


def _included(patterns: list[str]) -> Iterator[Path]:
    for pattern in patterns:
        full = expanded("~/.ssh") / expanded(pattern)
        yield from (Path(name) for name in sorted(glob.glob(str(full))))
