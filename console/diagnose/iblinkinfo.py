"""iblinkinfo: links of a whole fabric, of which one end may be a host. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

_HEAD = re.compile(r"(CA|Switch|Router):\s+(?:(0x[0-9a-fA-F]{1,16})\s+)?(.{0,120}?):?\s*$")
_LINK = re.compile(
    r"\s*(?:(?P<guid>0x[0-9a-fA-F]{1,16})\s+)?(?P<lid>\d{1,6})\s+(?P<port>\d{1,3})\[[^\]]{0,10}\]\s*"
    r"==\(\s*(?:(?P<width>\d{1,2})X\s+(?P<speed>[\d.]{1,12}) Gbps)?\s*(?P<state>\w+)/\s*"
    r"(?P<physical>[\w ]+?)\)==>\s*(?P<far>[^\"]{0,60})\"(?P<remote>[^\"]{0,120})\"\s*"
    r"\((?P<note>[^\n]{0,120})\)"
)
_COULD = re.compile(r"Could be ([\w.]+(?: Gbps)?)")
_FAR = re.compile(r"(\d{1,6})\s+(\d{1,3})\[")
LINKS = 100_000
LINE_CHARS = 500


class Link(Struct):
    """One line."""

    kind: str
    """CA or Switch: whose line it is."""
    node: str
    port: int
    width: int | None
    speed: float | None
    state: str
    physical: str
    remote: str
    could: tuple[str, ...]
    """What it could be, width or speed."""
    line: str

    @property
    def active(self) -> bool:
        """Up and configured."""
        return self.state.lower() == "active"

    @property
    def gbps(self) -> float | None:
        """Width times speed."""
        return None if self.width is None or self.speed is None else self.width * self.speed

    @property
    def host(self) -> str:
        """The host's name in the node description "gpu-a01 mlx5_0"."""
        return self.node.split()[0] if self.kind == "CA" and self.node.split() else ""


def parse(lines: Iterable[str]) -> list[Link]:
    """All links, in order."""
    found: list[Link] = []
    kind = node = ""
    for line in lines:
        if len(line) > LINE_CHARS:
            continue
        match = _LINK.match(line)
        if match is not None:
            if len(found) < LINKS:
                found.append(_link(kind, node, match, line))
            continue
        head = _HEAD.match(line.strip())
        if head is not None:
            kind, node = head[1], " ".join((head[3] or head[2] or "").split())
    return found


def _link(kind: str, node: str, match: re.Match[str], line: str) -> Link:
    width, speed = match["width"], match["speed"]
    try:
        gbps = float(speed) if speed else None
    except ValueError:
        gbps = None
    return Link(
        kind or ("CA" if match["guid"] else "Switch"), node, int(match["port"]),
        int(width) if width else None, gbps, match["state"], match["physical"].strip(),
        " ".join(match["remote"].split()), tuple(_COULD.findall(match["note"])), line.strip(),
    )  # fmt: skip
