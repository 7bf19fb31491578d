"""Probe "modules": which of the kernel modules that GPU nodes depend on are loaded, and DMA-BUF.

Only the names of ALLOWED leave the node. Built-in modules count as loaded (/sys/module has them).
"""

import os
import re

from probes.node.context import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

    from probes.node.context import Context

NAME = "modules"
INTERVAL = "rare"
COUNTERS = False

ALLOWED = (
    "nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nvidia_peermem", "nv_peer_mem",
    "nvidia_fs", "gdrdrv", "nouveau", "ib_core", "ib_umad", "ib_uverbs", "ib_ipoib", "rdma_cm",
    "rdma_ucm", "mlx5_core", "mlx5_ib", "efa", "irdma", "bnxt_re", "knem", "xpmem",
)  # fmt: skip
"""What may be told: drivers of GPU, RDMA and shared memory."""

METRICS = {name: ("", "info", "module %s is loaded" % name) for name in ALLOWED}
METRICS.update({
    "open_driver": ("", "info", "the NVIDIA kernel module is the open one"),
    "dmabuf": ("", "info", "kernel and driver can share GPU memory through DMA-BUF"),
})  # fmt: skip

DMABUF_SINCE = (5, 12)
"""Linux with dynamic DMA-BUF for RDMA memory regions: what NCCL asks for."""
VERSION = "proc/driver/nvidia/version"


def collect(ctx: "Context") -> "Tuple[Dict[str, Dict[str, Any]], List[Dict[str, Any]]]":
    """One device "". Without /proc/modules nothing is told about modules."""
    values: "Dict[str, Any]" = {}
    text = ctx.read("proc/modules")
    if text is not None:
        loaded = {line.split(" ", 1)[0] for line in text.splitlines()}
        for name in ALLOWED:
            values[name] = name in loaded or os.path.isdir(ctx.path("sys/module", name))
    is_open = _open(ctx)
    if is_open is not None:
        values["open_driver"] = is_open
    dmabuf = _dmabuf(ctx, is_open)
    if dmabuf is not None:
        values["dmabuf"] = dmabuf
    return {"": values}, []


def _open(ctx: "Context") -> "Optional[bool]":
    """By the driver's own version file; None without it."""
    text = ctx.read(VERSION)
    return None if not text else "Open Kernel Module" in text.splitlines()[0]


def _dmabuf(ctx: "Context", is_open: "Optional[bool]") -> "Optional[bool]":
    """The open driver on a kernel that is new enough; None when either is not known."""
    release = (ctx.read("proc/sys/kernel/osrelease") or "").strip()
    found = re.match(r"(\d+)\.(\d+)", release)
    if found is None or is_open is None:
        return None
    config = _config(ctx, release)
    if config and b"\nCONFIG_PCI_P2PDMA=y" not in config:
        return False
    return is_open and (int(found.group(1)), int(found.group(2))) >= DMABUF_SINCE


def _config(ctx: "Context", release: "str") -> "bytes":
    """The kernel's configuration, 200 to 300 KB; b"" when unreadable. Name from our own kernel."""
    if not re.match(r"[\w.+~-]{1,64}$", release):
        return b""
    try:
        with plain(ctx.path("boot/config-" + release)) as config:
            return config.read(1 << 20)
    except OSError:
        return b""
