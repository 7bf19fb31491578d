"""A RAS port of NCCL on a real socket of loopback, in good and bad manners; and its texts.

The protocol is that of src/ras/client_support.cc: a line of commands each answered by a line, then
the status, then the end of the connection.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from console.demo import sysfs

HOSTS = ("10.7.0.1", "10.7.0.2", "10.7.0.3", "10.7.0.4")
COMM = "27a079b828ff1a75"


def rank(index: int, count: int, **changes: Any) -> dict[str, Any]:
    """One rank as JSON has it: eight a host, process 4000 and following on each."""
    host = changes.pop("host", HOSTS[index // 8 % len(HOSTS)])
    status = {"init_state": 0, "async_error": 0, "finalize_called": False,
              "destroy_flag": False, "abort_flag": False}  # fmt: skip
    counts = {"Broadcast": 2, "Reduce": 0, "AllGather": 0, "ReduceScatter": 0, "AllReduce": count}
    told = {"rank": index, "host": host, "pid": 4000 + index % 8, "cuda_dev": index % 8,
            "nvml_dev": index % 8, "status": status, "collective_counts": counts}  # fmt: skip
    status.update({k: changes.pop(k) for k in list(changes) if k in status})
    return {**told, **changes}


def missing(index: int, *, dead: bool = False, **changes: Any) -> dict[str, Any]:
    """A rank that did not answer, as JSON has it."""
    told = rank(index, 0, **changes)
    del told["collective_counts"]
    return {**told, "status": {"unresponsive": True, "considered_dead": dead}}


def comm(
    ranks: Sequence[Mapping[str, Any]], lost: Sequence[Mapping[str, Any]] = (), name: str = COMM
) -> dict[str, Any]:
    """One communicator as JSON has it."""
    return {
        "hash": f"0x{name.lstrip('0')}", "secondary_hash": "0xb7e7187447156001:0xb8242ed28a71381e",
        "size": len(ranks) + len(lost), "ranks_count": len(ranks),
        "missing_ranks_count": len(lost), "ranks": list(ranks), "missing_ranks": list(lost),
    }  # fmt: skip


def status(*comms: Mapping[str, Any], took_s: float = 0.001, timeouts: int = 0) -> bytes:
    """The whole answer of NCCL 2.29."""
    document = {
        "nccl_version": "2.29.1", "cuda_runtime_version": 13000, "cuda_driver_version": 13000,
        "timestamp": "2025-12-19 13:06:53", "communicators_count": len(comms),
        "communicators": list(comms),
        "ras": {"collection_time_sec": took_s, "timeouts_count": timeouts},
    }  # fmt: skip
    return json.dumps(document, indent=2).encode() + b"\n"


class RasPort:
    """Listens on loopback until the context ends; `answer` may be changed meanwhile."""

    def __init__(
        self, answer: bytes = b"", manners: str = "json", address: str = "127.0.0.1"
    ) -> None:
        """`manners`: json, text (before 2.28.7), silent, trickle, ssh, closes, mute, endless."""
        self.answer, self.manners, self.address = answer, manners, address
        self.commands: list[str] = []
        self.connections = 0
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listener = socket.socket(family)
        self._listener.bind((address, 0))
        self._listener.listen(16)
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for link in self._open:
            link.close()
        for thread in self._threads:
            thread.join(30)

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                link, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(link)
            thread = threading.Thread(target=self._serve, args=(link,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, link: socket.socket) -> None:
        try:
            getattr(self, f"_{self.manners}", self._json)(link)
        except OSError:
            pass
        finally:
            if self.manners != "silent":
                link.close()

    def _silent(self, link: socket.socket) -> None:
        self._over.wait(60)
        link.close()

    def _mute(self, link: socket.socket) -> None:
        """Shakes hands and never tells its status."""
        self._talk(link)
        self._over.wait(60)

    def _closes(self, link: socket.socket) -> None:
        link.recv(64)

    def _ssh(self, link: socket.socket) -> None:
        link.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
        while part := link.recv(256):
            self.commands.append(part.decode())

    def _trickle(self, link: socket.socket) -> None:
        self._talk(link)
        for at in range(len(self.answer)):
            link.sendall(self.answer[at : at + 1])
            if self._over.wait(0.01):
                return

    def _endless(self, link: socket.socket) -> None:
        self._talk(link)
        link.sendall(b'{"communicators":[')
        while not self._over.is_set():
            link.sendall(self.answer)

    def _json(self, link: socket.socket) -> None:
        self._talk(link)
        link.sendall(self.answer)

    def _talk(self, link: socket.socket) -> None:
        """Answer commands line by line until the status is asked for."""
        with link.makefile("rb") as lines:
            for raw in lines:
                command = raw.decode().strip()
                self.commands.append(command)
                if command.upper() == "VERBOSE STATUS":
                    return
                old = self.manners == "text" and command.upper().startswith("SET FORMAT")
                reply = "OK" if not old else f"ERROR: Unknown command {command}"
                if command.upper().startswith("CLIENT PROTOCOL"):
                    reply = "SERVER PROTOCOL 2"
                link.sendall(reply.encode() + b"\n")


def on_node(
    root: Path,
    port: int,
    pids: Sequence[int],
    *,
    address: str = "127.0.0.1",
    uid: int = 1000,
    own: Sequence[str] = HOSTS[:1],
) -> None:
    """What a node's /proc says: these processes share a network in which the port listens."""
    family = "tcp6" if ":" in address else "tcp"
    packed = socket.inet_pton(socket.AF_INET6 if family == "tcp6" else socket.AF_INET, address)
    digits = "".join(packed[at : at + 4][::-1].hex().upper() for at in range(0, len(packed), 4))
    line = (
        f"   0: {digits}:{port:04X} {'0' * len(digits)}:0000 0A 00000000:00000000 00:00000000 "
        f"00000000 {uid:>5}        0 20811 1 0000000000000000 100 0 0 10 0\n"
    )
    addresses = "".join(f"           |-- {one}\n              /32 host LOCAL\n" for one in own)
    for pid in pids:
        for name in ("tcp", "tcp6"):
            head = "  sl  local_address rem_address   st tx_queue rx_queue\n"
            sysfs.write(root, f"proc/{pid}/net/{name}", head + (line if name == family else ""))
        sysfs.write(root, f"proc/{pid}/net/fib_trie", f"Local:\n{addresses}")
