"""Who stands behind a figure: the tags and short names that sources use, with full titles. Pure."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import msgspec
import yaml
from msgspec import Struct

DATA = Path(__file__).parent / "data" / "sources.yaml"


class Source(Struct, frozen=True, kw_only=True):
    """One work that figures or meanings were taken from."""

    name: str
    """As texts write it: "[nvml]" for a tag, "GCM" for a tool."""
    title: str
    read: str
    """What of it was read, and of which date."""


class _Entry(Struct, forbid_unknown_fields=True):
    title: str
    read: str


class _File(Struct, forbid_unknown_fields=True):
    tags: dict[str, _Entry]
    tools: dict[str, _Entry]


@functools.cache
def sources() -> tuple[Source, ...]:
    """All of sources.yaml, tags first; msgspec.ValidationError when the packaged file is broken."""
    loaded = yaml.safe_load(DATA.read_text(encoding="utf-8"))
    known = msgspec.convert(loaded, _File)
    named = {f"[{tag}]": entry for tag, entry in known.tags.items()} | known.tools
    return tuple(Source(name=name, title=e.title, read=e.read) for name, e in named.items())


def cited(text: str) -> list[Source]:
    """The sources that a text names, in the order of sources.yaml."""
    return [source for source in sources() if _pattern(source.name).search(text)]


@functools.cache
def _pattern(name: str) -> re.Pattern[str]:
    """A tag as it stands; a tool's name as a whole word: NVS is not in NVSentinel."""
    if name.startswith("["):
        return re.compile(re.escape(name))
    return re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])")
