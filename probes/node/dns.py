"""How long names take: the node's own name through its resolver, and each name server by itself.

A resolver without an answer holds up every login, mount and job start. The look-up
may hang for half a minute, so it is booked as a device: it costs this probe nothing else.
"""

import os
import select
import socket
import struct

from probes.node.context import Stuck
from probes.node.tool import here

TYPE_CHECKING = False
if TYPE_CHECKING:
    from probes.node.context import Context

    Values = dict[str, object]

NAME = "dns"
INTERVAL = "rare"
COUNTERS = False
METRICS = {
    "own_name_s": ("s", "gauge", "time to resolve the node's own name (getaddrinfo)"),
    "own_name_found": ("", "gauge", "whether it has an address"),
    "servers": ("", "info", "name servers in resolv.conf"),
    "answer_s": ("s", "gauge", "time until this name server answered, whatever it said"),
    "answers": ("", "gauge", "whether it answered within 2 s"),
    "order": ("", "info", "its place in resolv.conf, from 0"),
}

SERVERS = 3
"""MAXNS of resolv.h: the resolver uses no more."""

ANSWER_S = 2.0
PORT = 53
TYPE_A, CLASS_IN = 1, 1
NOT_RECURSIVE = 0x0000
"""Without the RD bit a server answers from what it knows, if only with a refusal: whether it lives
must not depend on servers elsewhere that an isolated cluster cannot reach."""
LABEL_BYTES = 63


def collect(ctx: "Context") -> "tuple[dict[str, Values], list[Values]]":
    """Device "" for the node's own name, "ns ADDRESS" for each server."""
    devices: "dict[str, Values]" = {"": {}}
    name = (ctx.read("proc/sys/kernel/hostname") or "").strip()
    servers, by_tcp = nameservers(ctx.read("etc/resolv.conf") or "")
    if servers:
        devices[""]["servers"] = len(servers)
    if name and here(ctx):
        devices[""].update(_own_name(ctx, name))
    if name and not by_tcp:
        devices.update(_servers(ctx, name, servers))
    return devices, []


def nameservers(text: "str") -> "tuple[list[str], bool]":
    """Addresses in resolv.conf, and whether it asks for TCP (we then ask none)."""
    servers: "list[str]" = []
    by_tcp = False
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["nameserver"] and len(words) > 1 and len(servers) < SERVERS:
            servers.append(words[1][:64])
        elif words[:1] == ["options"]:
            by_tcp = by_tcp or "use-vc" in words
    return servers, by_tcp


def _own_name(ctx: "Context", name: "str") -> "Values":
    spent_s = ctx.timer()
    try:
        with ctx.busy("getaddrinfo", "resolver"):
            try:
                socket.getaddrinfo(name, None)
                found = True
            except (OSError, UnicodeError):
                found = False
    except Stuck:
        return {}
    return {"own_name_s": round(spent_s(), 4), "own_name_found": found}


def _servers(ctx: "Context", name: "str", servers: "list[str]") -> "dict[str, Values]":
    """All of them at once: together they take no longer than the slowest."""
    open_ones: "dict[int, tuple[socket.socket, str]]" = {}
    found: "dict[str, Values]" = {}
    ident = os.urandom(2)
    question = query(ident, name)
    spent_s = ctx.timer()
    for order, server in enumerate(servers):
        device = "ns " + server
        if device in found:
            continue
        found[device] = {"order": order}
        link = _send(server, question)
        if link is not None:
            open_ones[link.fileno()] = (link, device)
    while open_ones and spent_s() < ANSWER_S:
        ready = _ready(list(open_ones), max(0.0, ANSWER_S - spent_s()))
        for number in ready:
            link, device = open_ones[number]
            said = _answered(link, ident)
            if said:
                found[device].update(answers=True, answer_s=round(spent_s(), 4))
            if said is not False:
                link.close()
                del open_ones[number]
    for link, _ in open_ones.values():
        link.close()
    for values in found.values():
        values.setdefault("answers", False)
    return found


def query(ident: "bytes", name: "str") -> "bytes":
    """A question for the address of `name`, as RFC 1035 writes it."""
    labels = [label.encode("ascii", "replace")[:LABEL_BYTES] for label in name.split(".") if label]
    packed = b"".join(struct.pack("B", len(label)) + label for label in labels[:8])
    head = ident + struct.pack(">5H", NOT_RECURSIVE, 1, 0, 0, 0)
    return head + packed + b"\0" + struct.pack(">2H", TYPE_A, CLASS_IN)


def _send(server: "str", question: "bytes") -> "socket.socket | None":
    """The socket on which the answer will come; None when there is no way to the server."""
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    try:
        link = socket.socket(family, socket.SOCK_DGRAM)
    except OSError:
        return None
    try:
        link.setblocking(False)
        link.connect((server.partition("%")[0], PORT))
        link.send(question)
    except (OSError, UnicodeError):
        link.close()
        return None
    return link


def _ready(numbers: "list[int]", wait_s: "float") -> "list[int]":
    """Which sockets have something to read; poll, as select ends at 1,024 open files."""
    poll = select.poll()
    for number in numbers:
        poll.register(number, select.POLLIN)
    return [number for number, _ in poll.poll(int(wait_s * 1000))]


def _answered(link: "socket.socket", ident: "bytes") -> "bool | None":
    """True for the answer, False for something else, None when nothing will come (refused)."""
    try:
        raw = link.recv(4096)
    except OSError:
        return None
    return len(raw) >= 12 and raw[:2] == ident and bool(raw[2] & 0x80)
