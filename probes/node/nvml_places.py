"""Where libnvidia-ml.so.1 is when the dynamic linker does not find it by itself.

A driver that runs in a container (GPU operator, GKE, Talos) leaves its libraries outside the
linker's path. A library that is loaded once by its path is found by its name from then on.
"""

import ctypes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from probes.node.context import Context

NAME = "libnvidia-ml.so.1"

PLACES = (
    "run/nvidia/driver/usr/lib/x86_64-linux-gnu",
    "run/nvidia/driver/usr/lib/aarch64-linux-gnu",
    "run/nvidia/driver/usr/lib64",
    "home/kubernetes/bin/nvidia/lib64",
    "usr/local/nvidia/lib64",
    "usr/local/glibc/usr/lib",
    "usr/lib/wsl/lib",
)
"""Below the root: GPU operator (Ubuntu, Arm, RHEL), GKE, device plugin mounts, Talos, WSL."""


def load(ctx: "Context") -> "None":
    """Load the library; the linker's own OSError when it is nowhere."""
    try:
        ctypes.CDLL(NAME)
    except OSError:
        for place in PLACES:
            try:
                ctypes.CDLL(ctx.path(place, NAME))
                return
            except OSError:
                continue
        raise
