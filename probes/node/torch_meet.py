"""How the launchers of a torch test on several nodes meet, and what they tell each other.

Node rank 0 listens at master_addr:master_port; the others connect and stay connected, so that who
dies is missed at once, whatever its ranks hang in. One JSON object a line: {"node", "ranks",
"token"} comes, {"port", "first", "world"} goes back when all are there; {"done": 1} and
{"bad": [weight, text]} either way. No message is longer than a line of LINE_BYTES.
"""

import errno
import fcntl
import json
import select
import socket
import struct
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

KILLED, GONE, NEVER, SYMPTOM = 4, 3, 3, 1
"""How well a reason explains the end: a killed rank explains the errors of its peers."""
ANSWER_S = 5.0
"""How long another node waits for the first one's word on what went wrong."""
LINE_BYTES = 4096
TEXT_CHARS = 500
RETRY_S = 0.1
SIOCGIFADDR = 0x8915


class Over(Exception):
    """The test cannot go on: (how well the reason explains it, the reason)."""


class Peer:
    """One control connection and what came over it."""

    def __init__(self, connection: "socket.socket") -> "None":
        self.socket = connection
        self.node = -1
        self.ranks = 0
        self.done = False
        self.closed = False
        self._partial = b""

    def read(self) -> "list[dict[str, Any]]":
        """The whole messages that have come; `closed` is set at the end."""
        try:
            data = self.socket.recv(LINE_BYTES)
        except OSError:
            data = b""
        self.closed = not data or len(self._partial) > LINE_BYTES
        lines = (self._partial + data).split(b"\n")
        self._partial = lines.pop()
        found = []
        for line in lines:
            try:
                told = json.loads(line.decode("utf-8", "replace"))
            except (ValueError, RecursionError):
                continue
            if isinstance(told, dict):
                found.append(told)
        return found

    def send(self, **message: "Any") -> "None":
        """A message; a peer that has gone is noticed when reading."""
        try:
            self.socket.sendall(json.dumps(message).encode("ascii") + b"\n")
        except OSError:
            pass


class Meeting:
    """The other nodes as this one sees them."""

    def __init__(self, ask: "argparse.Namespace") -> "None":
        self.ask = ask
        self.leads = ask.node_rank == 0
        self.names = ask.names.split(",") if ask.names else []
        self.peers: "list[Peer]" = []
        """Of node rank 0 all others, of the others node rank 0."""
        self.first, self.world, self.port = 0, ask.nproc, 0
        self.reasons: "list[tuple[int, str]]" = []
        self.verdict = ""
        """Node rank 0's word on why it is over."""

    def name(self, node: "int") -> "str":
        """ "gpu012", or "node rank 3" where no names were given."""
        return self.names[node] if node < len(self.names) else "node rank %d" % node

    def meet(self) -> "None":
        """Be here together with all nodes. Raises Over."""
        if self.ask.nnodes == 1:
            self.port = free_port()
        elif self.leads:
            self._gather()
        else:
            self._join()

    def _gather(self) -> "None":
        listener = listen(self.ask.master_addr, self.ask.master_port)
        end = time.monotonic() + self.ask.join_s
        strangers: "list[Peer]" = []
        while len(self.peers) < self.ask.nnodes - 1:
            left = end - time.monotonic()
            if left <= 0:
                raise Over(NEVER, self._absent())
            sources = [listener] + [peer.socket for peer in strangers]
            ready = select.select(sources, [], [], left)[0]
            if listener in ready:
                strangers.append(Peer(listener.accept()[0]))
            for peer in [one for one in strangers if one.socket in ready]:
                if self._hello(peer) or peer.closed:
                    strangers.remove(peer)
        listener.close()
        self._start_all()

    def _hello(self, peer: "Peer") -> "bool":
        """Whether it said who it is; a stranger gets no answer."""
        for told in peer.read():
            node, ranks = told.get("node"), told.get("ranks")
            taken = [one.node for one in self.peers]
            if not isinstance(node, int) or not isinstance(ranks, int) or node in taken:
                continue
            if 0 < node < self.ask.nnodes and told.get("token") == self.ask.token:
                peer.node, peer.ranks = node, ranks
                self.peers.append(peer)
                return True
        return False

    def _absent(self) -> "str":
        here = [peer.node for peer in self.peers]
        absent = [self.name(node) for node in range(1, self.ask.nnodes) if node not in here]
        shown = ", ".join(absent[:8]) + (" and %d more" % (len(absent) - 8) if absent[8:] else "")
        return "%s never came within %g s" % (shown, self.ask.join_s)

    def _start_all(self) -> "None":
        self.peers.sort(key=lambda peer: peer.node)
        self.world += sum(peer.ranks for peer in self.peers)
        self.port = free_port()
        first = self.ask.nproc
        for peer in self.peers:
            peer.send(port=self.port, first=first, world=self.world)
            first += peer.ranks

    def _join(self) -> "None":
        end = time.monotonic() + self.ask.join_s
        where = "%s at %s:%d" % (self.name(0), self.ask.master_addr, self.ask.master_port)
        peer = Peer(connected(self.ask.master_addr, self.ask.master_port, end, where))
        peer.node, self.peers = 0, [peer]
        peer.send(node=self.ask.node_rank, ranks=self.ask.nproc, token=self.ask.token)
        # Its own limit may have begun later than ours: its word on who is absent comes first.
        while select.select([peer.socket], [], [], max(0, end + ANSWER_S - time.monotonic()))[0]:
            for told in peer.read():
                self._heard(peer, told)
                if "port" in told:
                    self.port, self.first = int(told["port"]), int(told["first"])
                    self.world = int(told["world"])
                    return
            if self.verdict or peer.closed:
                raise Over(GONE, self.verdict or "%s went away before the start" % where)
        raise Over(NEVER, "%s did not start within %g s" % (where, self.ask.join_s))

    def hear(self, wait_s: "float") -> "None":
        """Take in what other nodes say within a time, and who went away."""
        sources = {peer.socket: peer for peer in self.peers if not peer.closed}
        if not sources:
            time.sleep(wait_s)
            return
        for ready in select.select(list(sources), [], [], wait_s)[0]:
            peer = sources[ready]
            for told in peer.read():
                self._heard(peer, told)
            if peer.closed and not peer.done and not self.verdict:
                self.reasons.append((GONE, "%s went away" % self.name(peer.node)))

    def _heard(self, peer: "Peer", told: "dict[str, Any]") -> "None":
        bad = told.get("bad")
        peer.done = peer.done or "done" in told
        if isinstance(bad, list) and len(bad) == 2 and isinstance(bad[0], int):
            if self.leads:
                self.reasons.append((bad[0], str(bad[1])[:TEXT_CHARS]))
            else:
                self.verdict = str(bad[1])[:TEXT_CHARS]

    def tell(self, **message: "Any") -> "None":
        """The same to all."""
        for peer in self.peers:
            peer.send(**message)

    @property
    def alone(self) -> "bool":
        """Whether there were others and all have left."""
        return bool(self.peers) and all(peer.closed for peer in self.peers)


def listen(addr: "str", port: "int") -> "socket.socket":
    """A listening socket at the address the others know; on all where it is not this host's own.

    Debian's hosts file gives a host's own name a loopback address, which nobody else reaches.
    Raises Over when the port is taken.
    """
    family, _, _, _, found = socket.getaddrinfo(addr, port, 0, socket.SOCK_STREAM)[0]
    looped = found[0] == "::1" or str(found[0]).startswith("127.")
    meant = addr in ("localhost", "::1") or addr.startswith("127.")
    for place in ("",) if looped and not meant else (addr, ""):
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((place, port))
            listener.listen(128)
            return listener
        except OSError as error:
            listener.close()
            if error.errno == errno.EADDRINUSE:
                raise Over(
                    NEVER, "port %d of %s: address already in use; choose another" % (port, addr)
                ) from error
            if not place or error.errno != errno.EADDRNOTAVAIL:
                raise
    raise AssertionError(addr)


def connected(addr: "str", port: "int", end: "float", where: "str") -> "socket.socket":
    """A connection to node rank 0, tried until `end`. Raises Over."""
    while True:
        try:
            left = end - time.monotonic()
            return socket.create_connection((addr, port), max(0.1, min(5.0, left)))
        except OSError as error:
            if time.monotonic() >= end:
                why = error.strerror or str(error)
                raise Over(NEVER, "no answer from %s: %s" % (where, why)) from error
            time.sleep(RETRY_S)


def free_port() -> "int":
    """A port that nothing listens on now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def interface_of(address: "str") -> "str":
    """The interface that has this address, "" when none is found: gloo is to use no other."""
    if ":" in address:
        return _interface6(address.partition("%")[0])
    wanted = socket.inet_aton(address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(asked.fileno(), SIOCGIFADDR, request)
            except OSError:
                continue
            if answer[20:24] == wanted:
                return name
    return ""


def _interface6(address: "str") -> "str":
    digits = socket.inet_pton(socket.AF_INET6, address).hex()
    try:
        with open("/proc/net/if_inet6") as table:
            return next((line.split()[-1] for line in table if line.startswith(digits)), "")
    except OSError:
        return ""
