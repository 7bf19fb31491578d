"""Probe "containers": whether container engines know NVIDIA's runtime, and what CDI specs promise.

Configuration files are searched line by line for the few statements of interest: Python 3.6 has no
TOML or YAML reader. Nothing else of these files leaves the node.
"""

import os
import re

from probes.node.context import READ_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Set, Tuple

    from probes.node.context import Context

    Values = Dict[str, Any]

NAME = "containers"
INTERVAL = "rare"
COUNTERS = False
METRICS = {
    "docker_nvidia": ("", "info", "docker knows the runtime nvidia"),
    "docker_default": ("", "info", "docker's default runtime"),
    "containerd_nvidia": ("", "info", "containerd knows the runtime nvidia"),
    "containerd_default": ("", "info", "containerd's default runtime"),
    "crio_nvidia": ("", "info", "CRI-O knows the runtime nvidia"),
    "crio_default": ("", "info", "CRI-O's default runtime"),
    "docker_socket": ("", "gauge", "docker's socket is there"),
    "containerd_socket": ("", "gauge", "containerd's socket is there"),
    "crio_socket": ("", "gauge", "CRI-O's socket is there"),
    "toolkit": ("", "info", "NVIDIA's container runtime is installed"),
    "enroot": ("", "info", "enroot is installed"),
    "pyxis": ("", "info", "Slurm loads pyxis"),
    "cdi_specs": ("", "gauge", "CDI specifications for NVIDIA GPUs"),
    "cdi_gpus": ("", "gauge", "GPUs that they name"),
    "cdi_minors": ("", "info", "N of each /dev/nvidiaN that they name, by commas"),
    "cdi_driver": ("", "info", "driver version of the libraries that they name"),
    "file": ("", "info", "a CDI specification"),
}

DOCKER = "etc/docker/daemon.json"
CONTAINERD = (
    "etc/containerd/config.toml",
    "var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "var/lib/rancher/rke2/agent/etc/containerd/config.toml",
)
CONTAINERD_DROPINS = "etc/containerd/conf.d"
CRIO = ("etc/crio/crio.conf",)
CRIO_DROPINS = "etc/crio/crio.conf.d"
SOCKETS = {
    "docker_socket": ("run/docker.sock",),
    "containerd_socket": ("run/containerd/containerd.sock", "run/k3s/containerd/containerd.sock"),
    "crio_socket": ("run/crio/crio.sock",),
}
PRESENT = {
    "toolkit": (
        "usr/bin/nvidia-container-runtime", "usr/bin/nvidia-ctk",
        "usr/local/nvidia/toolkit/nvidia-container-runtime",
    ),
    "enroot": ("usr/bin/enroot", "usr/local/bin/enroot"),
    "pyxis": ("etc/slurm/plugstack.conf.d/pyxis.conf",),
}  # fmt: skip
CDI = ("etc/cdi", "run/cdi")
CDI_FILES = 16
DROPINS = 32

_RUNTIME = re.compile(r"^\s*\[.*\.runtimes\.[\"']?nvidia[\"']?\]", re.MULTILINE)
_CRIO_RUNTIME = re.compile(r"^\s*\[crio\.runtime\.runtimes\.nvidia\]", re.MULTILINE)
_DEFAULT = re.compile(r"^\s*default_runtime(?:_name)?\s*=\s*[\"']([\w.-]{1,64})[\"']", re.MULTILINE)
_DOCKER_DEFAULT = re.compile(r'"default-runtime"\s*:\s*"([\w.-]{1,64})"')
_DOCKER_RUNTIME = re.compile(r'"nvidia"\s*:\s*\{')
_KIND = re.compile(r"[\"']?kind[\"']?\s*:\s*[\"']?nvidia\.com/")
_MINOR = re.compile(r"/dev/nvidia(\d{1,3})\b")
_LIBRARY = re.compile(r"lib(?:cuda|nvidia-ml)\.so\.(\d+\.\d+(?:\.\d+)?)")


def collect(ctx: "Context") -> "Tuple[Dict[str, Values], List[Values]]":
    """Device "" holds all facts; an engine without a configuration file has no facts about it."""
    values: "Values" = {}
    _docker(ctx, values)
    _toml(ctx, values, "containerd", _files(ctx, CONTAINERD, CONTAINERD_DROPINS, ".toml"), _RUNTIME)
    _toml(ctx, values, "crio", _files(ctx, CRIO, CRIO_DROPINS, ".conf"), _CRIO_RUNTIME)
    for metrics in (SOCKETS, PRESENT):
        for metric, places in metrics.items():
            values[metric] = any(os.path.exists(ctx.path(place)) for place in places)
    return {"": values}, _cdi(ctx, values)


def _docker(ctx: "Context", values: "Values") -> "None":
    text = ctx.read(DOCKER)
    if text is None:
        return
    values["docker_nvidia"] = _DOCKER_RUNTIME.search(text) is not None
    default = _DOCKER_DEFAULT.search(text)
    values["docker_default"] = default.group(1) if default else "runc"


def _files(ctx: "Context", places: "Tuple[str, ...]", dropins: "str", ending: "str") -> "List[str]":
    """Texts of an engine's configuration, those that win last."""
    more = [
        dropins + "/" + name for name in ctx.listdir(dropins)[:DROPINS] if name.endswith(ending)
    ]
    texts = [ctx.read(place) for place in list(places) + more]
    return [text for text in texts if text is not None]


def _toml(
    ctx: "Context", values: "Values", engine: "str", texts: "List[str]", runtime: "Any"
) -> "None":
    if not texts:
        return
    values[engine + "_nvidia"] = any(runtime.search(text) for text in texts)
    defaults = [name for text in texts for name in _DEFAULT.findall(text)]
    if defaults:
        values[engine + "_default"] = defaults[-1]


def _cdi(ctx: "Context", values: "Values") -> "List[Values]":
    """A row for each specification of NVIDIA's; their sum on device ""."""
    rows: "List[Values]" = []
    minors: "Set[int]" = set()
    cut = False
    for place in CDI:
        for name in [n for n in ctx.listdir(place) if n.endswith((".yaml", ".yml", ".json"))]:
            text = ctx.read(place, name)
            if text is None or not _KIND.search(text) or len(rows) >= CDI_FILES:
                continue
            named = {int(number) for number in _MINOR.findall(text)}
            versions = sorted(set(_LIBRARY.findall(text)))
            row: "Values" = {"file": "/%s/%s" % (place, name)}
            if len(versions) == 1:
                row["cdi_driver"] = versions[0]
            rows.append(row)
            minors |= named
            cut = cut or len(text) >= READ_BYTES
    values["cdi_specs"] = len(rows)
    if rows and not cut:
        values["cdi_gpus"] = len(minors)
        values["cdi_minors"] = ",".join(str(number) for number in sorted(minors))
    drivers = {row["cdi_driver"] for row in rows if "cdi_driver" in row}
    if len(drivers) == 1:
        values["cdi_driver"] = drivers.pop()
    return rows
