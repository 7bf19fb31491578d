"""A real FUSE file system in one process: python3 fuse_mount.py PLACE TYPE. Stopped, it is dead.

It speaks the kernel's protocol (linux/fuse.h) on /dev/fuse and answers what statvfs and stat ask.
SIGSTOP makes every call into PLACE hang in the kernel, as a file server does that is away; SIGCONT
brings it back. It ends when its stdin does, and takes the mount with it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
import sys

INIT, GETATTR, STATFS, OPENDIR, ACCESS = 26, 3, 17, 27, 34
SILENT = (2, 36, 42)
"""FORGET, INTERRUPT, BATCH_FORGET want no answer."""
BLOCKS, BLOCK_BYTES = 1000, 4096
MNT_DETACH = 2


def attributes() -> bytes:
    """Of the root directory, valid for no time."""
    times = (0, 0, 0)
    inode = struct.pack("<6Q", 1, 4096, 8, *times)
    inode += struct.pack("<10I", 0, 0, 0, 0o040755, 2, 0, 0, 0, 4096, 0)
    return struct.pack("<QII", 0, 0, 0) + inode


def answer(opcode: int) -> tuple[int, bytes]:
    """(error, body) of a request."""
    if opcode == INIT:
        return 0, struct.pack("<IIIIHHIIHHIIIIII", 7, 31, 65536, 0, 12, 9, 65536, 1, 0, 0,
                              0, 0, 0, 0, 0, 0)  # fmt: skip
    if opcode == GETATTR:
        return 0, attributes()
    if opcode == STATFS:
        sizes = struct.pack("<5Q", BLOCKS, BLOCKS // 2, BLOCKS // 2, 500, 400)
        return 0, sizes + struct.pack("<4I24x", BLOCK_BYTES, 255, BLOCK_BYTES, 0)
    return (0, b"") if opcode == ACCESS else (errno.ENOSYS, b"")


def serve(device: int) -> None:
    """Until stdin ends or the file system is unmounted."""
    while True:
        ready, _, _ = select.select([device, 0], [], [])
        if 0 in ready:
            return
        try:
            request = os.read(device, 1 << 17)
        except OSError as error:
            if error.errno == errno.ENODEV:
                return
            continue
        _, opcode, unique = struct.unpack_from("<IIQ", request)
        if opcode in SILENT:
            continue
        error_number, body = answer(opcode)
        os.write(device, struct.pack("<IiQ", 16 + len(body), -error_number, unique) + body)


def main(place: str, kind: str) -> None:
    """Mount, say so, serve, unmount."""
    libc = ctypes.CDLL(None, use_errno=True)
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    if libc.mount(b"server:/export", place.encode(), kind.encode(), 6, options):
        sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
    os.write(1, b"ready\n")
    try:
        serve(device)
    finally:
        libc.umount2(place.encode(), MNT_DETACH)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
