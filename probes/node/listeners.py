"""Who listens where, and which addresses are the node's own: /proc/<pid>/net, without a socket.

A process's own directory is read, so that a container's network is seen as the container sees it.
"""

import re
import socket
import sys
from collections import namedtuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from probes.node.context import Context

Listener = namedtuple("Listener", "family address port uid")
"""A TCP socket that listens; `address` as text, `uid` its owner's number as text."""

LISTEN = "0A"
"""State of a listening socket (include/net/tcp_states.h); the kernel lists these first."""
LISTENERS_MOST = 1024
ADDRESSES_MOST = 32
LOCAL = re.compile(r"\|-- (\d[\d.]{6,14})\n\s+/32 host LOCAL")
"""An address of the machine in fib_trie."""
GLOBAL_SCOPES = ("00", "80")
"""IPv6 scopes global and compatible; link and host scope name no node (net/ipv6.h)."""


def listening(ctx: "Context", pid: "str") -> "list[Listener]":
    """TCP listeners in the network of a process; [] when that may not be read."""
    found: "list[Listener]" = []
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in (ctx.read("proc", pid, "net", name) or "").splitlines()[1:]:
            words = line.split()
            if len(words) > 9 and words[3] == LISTEN and len(found) < LISTENERS_MOST:
                place = _place(words[1], family)
                if place is not None:
                    found.append(Listener(family, place[0], place[1], words[7]))
    return found


def _place(text: "str", family: "int") -> "tuple[str, int] | None":
    """ "0100007F:6D7C" -> ("127.0.0.1", 28028): 32-bit words in the machine's own order."""
    digits, _, port = text.partition(":")
    try:
        raw = bytes.fromhex(digits)
        if sys.byteorder == "little":
            raw = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
        return socket.inet_ntop(family, raw), int(port, 16)
    except ValueError:
        return None


def addresses(ctx: "Context", pid: "str") -> "list[str]":
    """Addresses of the machine (or container) that a process runs on; loopback left out."""
    trie = ctx.read("proc", pid, "net", "fib_trie") or ""
    found = [one for one in LOCAL.findall(trie) if not one.startswith("127.")]
    for line in (ctx.read("proc", pid, "net", "if_inet6") or "").splitlines():
        words = line.split()
        if len(words) > 3 and words[3] in GLOBAL_SCOPES:
            try:
                found.append(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(words[0])))
            except ValueError:
                continue
    return list(dict.fromkeys(found))[:ADDRESSES_MOST]
