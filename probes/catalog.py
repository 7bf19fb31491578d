"""PROBES: the one registration of what an agent can ask."""

from __future__ import annotations

from importlib import import_module

from msgspec import Struct

_MODULES = (
    "nvml",
    "gpm",
    "ecc",
    "pcie",
    "nvlink",
    "nvlink_ends",
    "fabric",
    "infiniband",
    "ethtool",
    "topology",
    "inventory",
    "kernel_log",
    "host",
    "host_slow",
    "tasks",
    "timesync",
    "dns",
    "storage",
    "disks",
    "nvme",
    "processes",
    "services",
    "modules",
    "versions",
    "containers",
    "usage",
    "ras",
    "steps",
)
"""Modules of probes/node that hold a probe."""


class Probe(Struct, frozen=True, kw_only=True):
    """What is known about a probe without running it."""

    name: str
    module: str
    interval: str
    """fast, slow, rare or stream."""
    counters: bool
    """Sampled twice in one pass, because only differences say something."""
    metrics: dict[str, tuple[str, str, str]]
    """Metric -> unit, kind (gauge, counter, info), meaning."""


def _probe(module: str) -> Probe:
    found = import_module(f"probes.node.{module}")
    return Probe(
        name=found.NAME,
        module=found.__name__,
        interval=found.INTERVAL,
        counters=found.COUNTERS,
        metrics=found.METRICS,
    )


PROBES: dict[str, Probe] = {probe.name: probe for probe in map(_probe, _MODULES)}
"""Probe name -> probe, in the order of the agent's hello."""

MODULES: dict[str, str] = {name: probe.module for name, probe in PROBES.items()}
"""Probe name -> module: what the agent needs of it."""
