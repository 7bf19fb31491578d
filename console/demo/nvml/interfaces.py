"""ethtool.json: drivers and statistics of a simulated node's network interfaces.

{"ens1f0np0": {"driver": "mlx5_core", "fw": "28.39", "bus": "0000:29:00.0", "stats": {name: n}}}
What a driver answers to SIOCETHTOOL of linux/ethtool.h is written where the caller's struct ifreq
points, as the kernel does. An interface that is not in the file does not exist, so those of the
machine that runs the simulation are never seen.
"""

import ctypes
import errno
import json
import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

FILE = "ethtool.json"
SIOCETHTOOL = 0x8946
GDRVINFO, GSTRINGS, GSTATS, GSSET_INFO = 0x03, 0x1B, 0x1D, 0x37


def ioctl(directory: "str", real: "Callable[..., Any]") -> "Callable[..., Any]":
    """fcntl.ioctl of a node whose interfaces are those of DIR/ethtool.json."""

    def answer(handle: "Any", request: "int", arg: "Any" = 0, mutate: "bool" = True) -> "Any":
        if request != SIOCETHTOOL:
            return real(handle, request, arg, mutate)
        raw_name, address = struct.unpack_from("16sP", arg)
        reply = _reply(directory, raw_name.rstrip(b"\0").decode(), ctypes.string_at(address, 16))
        ctypes.memmove(address, reply, len(reply))
        return arg

    return answer


def _reply(directory: "str", name: "str", asked: "bytes") -> "bytes":
    """What the kernel would write over the command."""
    try:
        with open(os.path.join(directory, FILE)) as file:
            entry = json.load(file)[name]
    except (FileNotFoundError, KeyError):
        raise OSError(errno.ENODEV, "No such device") from None
    stats = entry.get("stats", {})
    command = struct.unpack_from("=I", asked)[0]
    if command == GDRVINFO:
        texts = [entry.get(key, "").encode() for key in ("driver", "version", "fw", "bus")]
        return struct.pack("=I32s32s32s32s", command, *texts)
    if command == GSSET_INFO:
        return struct.pack("=IIQI", command, 0, 2 if stats else 0, len(stats))
    if command == GSTRINGS:
        names = b"".join(text.encode()[:31].ljust(32, b"\0") for text in stats)
        return struct.pack("=III", command, 1, len(stats)) + names
    if command == GSTATS:
        return struct.pack("=II%dQ" % len(stats), command, len(stats), *stats.values())
    raise OSError(errno.EOPNOTSUPP, "Operation not supported")
