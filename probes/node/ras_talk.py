"""One conversation with an NCCL RAS port: small timeouts, a cap on bytes, no harm to strangers.

Whoever listens there is asked for its protocol first and nothing else: a service that is not
NCCL's gets one line and a hang-up. Only reading commands are ever sent.
"""

import os
import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from probes.node.ras_read import Reader

ANSWER_BYTES = 16 << 20
"""Longest answer read: 20,000 ranks of 700 B and their frame. A longer one is cut, and said to be.
"""
PIECE_BYTES = 65536
LINE_BYTES = 256
CONNECT_S = 1.0
QUIET_S = 2.5
"""Longest silence; NCCL waits 2 s for its own processes, as we ask it to."""
TIMEOUT_S = 2
CLONE_NEWNET = 0x40000000
"""linux/sched.h."""


class Unanswered(Exception):
    """Why there is no status, in words."""


def ask(
    place: "tuple[int, str, int]",
    network: "str",
    reader: "Reader",
    left_s: "Callable[[], float]",
) -> "None":
    """Feed `reader` with the status of the port at (family, address, port).

    `network` is the path of the network namespace it is in, "" for our own. `left_s` says how much
    time is left; raises Unanswered when nothing came, and returns what came of a cut answer.
    """
    family, address, port = place
    try:
        link = _socket(family, network)
    except OSError as error:
        raise Unanswered("its container's network cannot be entered: %s" % _words(error)) from error
    try:
        link.settimeout(max(0.05, min(CONNECT_S, left_s())))
        link.connect((address, port))
        _begin(link, left_s)
        _read(link, reader, left_s)
    except socket.timeout as error:
        if not reader.format:
            raise Unanswered("it accepts and does not answer in time") from error
    except OSError as error:
        if not reader.format:
            raise Unanswered(_words(error)) from error
    finally:
        link.close()


def _begin(link: "socket.socket", left_s: "Callable[[], float]") -> "None":
    hello = _say(link, "CLIENT PROTOCOL 2", left_s)
    if not hello.upper().startswith("SERVER PROTOCOL"):
        raise Unanswered("what listens there is not NCCL: %r" % hello[:40])
    _say(link, "TIMEOUT %d" % TIMEOUT_S, left_s)
    _say(link, "SET FORMAT json", left_s)  # refused before 2.28.7: the answer is text then
    link.sendall(b"VERBOSE STATUS\n")


def _say(link: "socket.socket", command: "str", left_s: "Callable[[], float]") -> "str":
    """Send one command, return the line that answers it."""
    link.sendall(command.encode("ascii") + b"\n")
    line = b""
    while not line.endswith(b"\n"):
        part = _receive(link, 1 if len(line) < LINE_BYTES else 0, left_s)
        if not part:
            raise Unanswered("it hangs up" if not line else "it sends no line: %r" % line[:40])
        line += part
    return line.decode("ascii", "replace").strip()


def _read(link: "socket.socket", reader: "Reader", left_s: "Callable[[], float]") -> "None":
    left = ANSWER_BYTES
    while left > 0 and not reader.odd:
        piece = _receive(link, min(left, PIECE_BYTES), left_s)
        if not piece:
            return
        left -= len(piece)
        reader.feed(piece)


def _receive(link: "socket.socket", most: "int", left_s: "Callable[[], float]") -> "bytes":
    """Some bytes, b"" at the end; socket.timeout when they do not come."""
    left = left_s()
    if left <= 0:
        raise socket.timeout("no time left")
    link.settimeout(min(QUIET_S, left))
    return link.recv(most) if most else b""


def _socket(family: "int", network: "str") -> "socket.socket":
    """A TCP socket of our own network or, as root, of another: a socket stays where it was made."""
    if not network:
        return socket.socket(family, socket.SOCK_STREAM)
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    here = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        there = os.open(network, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _enter(libc, there)
        finally:
            os.close(there)
        try:
            return socket.socket(family, socket.SOCK_STREAM)
        finally:
            _enter(libc, here)
    finally:
        os.close(here)


def _enter(libc: "object", handle: "int") -> "None":
    import ctypes

    if libc.setns(handle, CLONE_NEWNET) != 0:  # type: ignore[attr-defined]
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _words(error: "OSError") -> "str":
    return os.strerror(error.errno) if error.errno else str(error)
