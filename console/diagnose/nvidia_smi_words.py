"""Sentences of nvidia-smi that stand in place of a report, or below one: what they mean."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from console.diagnose import cells

_PCI = r"((?:[0-9A-Fa-f]{3,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])"
_HANDLE = re.compile(
    rf"(?i:Unable to determine the device handle for gpu)\s?(?:(\d{{1,4}}):\s+)?{_PCI}?:?\s*(.*)$"
)
_INFOROM = re.compile(rf"infoROM is corrupted at gpu\s+{_PCI}", re.IGNORECASE)
_LISTED = re.compile(
    r"GPU (\d{1,4}): (\S.{0,120}?) \(UUID: (GPU-[0-9A-Fa-f-]{8,40}|[\w-]{1,60})\)\s*$"
)
_MIG = re.compile(r"\s+MIG (\S+)\s+Device\s+(\d+): \(UUID: (MIG-\S+)\)")


class Trouble(NamedTuple):
    """A sentence about the driver as a whole."""

    code: int | None
    """NVML's return code that it stands for; None where no code says it."""
    name: str
    """In facts."""
    say: str
    line: str


class Broken(NamedTuple):
    """A sentence about one GPU."""

    gpu: int | None
    """Its index."""
    pci: str
    code: int
    reason: str
    line: str


class Listed(NamedTuple):
    """One line of `nvidia-smi -L`."""

    gpu: int
    """Its index."""
    name: str
    uuid: str


_TROUBLES = (
    ("driver/library version mismatch", 18, "version_mismatch",
     "driver and library have different versions: upgraded under the running module"),
    ("couldn't communicate with the nvidia driver", 9, "driver_not_loaded",
     "the NVIDIA driver is not loaded or does not answer"),
    ("couldn't find libnvidia-ml", 12, "library_missing",
     "libnvidia-ml.so is not installed here"),
    ("nvml: driver not loaded", 9, "driver_not_loaded", "the NVIDIA driver is not loaded"),
    ("gpu access blocked by the operating system", 17, "blocked",
     "the operating system blocks the GPUs (cgroup, or a container without devices)"),
    ("nvml: insufficient permissions", 4, "no_permission",
     "no right to talk to the driver (device files, cgroup)"),
    ("nvml: gpu is lost", 15, "gpu_lost", "a GPU is lost, and nvidia-smi gives up with it"),
    ("nvml: timeout", 10, "timeout", "the driver did not answer in time"),
    ("nvml: unknown error", 999, "nvml_unknown_error",
     "NVML does not start (unknown error): in a container its devices were taken away, on the "
     "host a GPU or the driver is broken"),
    ("failed to initialize nvml", 999, "nvml_error", "NVML does not start"),
    ("no devices were found", None, "no_devices",
     "the driver runs and has no usable GPU"),
)  # fmt: skip
_MISSING = re.compile(r"nvidia-smi: (?:command )?not found|nvidia-smi['’]?: No such file")


def trouble(lines: Iterable[str]) -> Trouble | None:
    """The first sentence about the driver as a whole."""
    for line in lines:
        low = line.lower()
        for words, code, name, say in _TROUBLES:
            if words in low:
                return Trouble(code, name, say, line.strip())
        if _MISSING.search(line):
            return Trouble(None, "tool_missing", "nvidia-smi is not installed here", line.strip())
    return None


def broken(lines: Iterable[str]) -> list[Broken]:
    """Sentences about single GPUs."""
    found: list[Broken] = []
    for line in lines:
        if len(found) >= 512:
            break
        handle = _HANDLE.search(line)
        if handle is not None:
            reason = handle[3].strip()
            index = None if handle[1] is None else int(handle[1])
            low = reason.lower()
            code = cells.broken(reason) or (15 if "reboot the system" in low else 999)
            found.append(Broken(index, handle[2] or "", code, reason, line.strip()))
        elif (rom := _INFOROM.search(line)) is not None:
            found.append(Broken(None, rom[1], 14, "infoROM is corrupted", line.strip()))
    return found


def listed(lines: Iterable[str]) -> list[Listed]:
    """GPUs that `nvidia-smi -L`, and the headings of `nvidia-smi nvlink`, name."""
    found: list[Listed] = []
    for line in lines:
        match = _LISTED.match(line.strip())
        if match is not None and len(found) < 512:
            found.append(Listed(int(match[1]), match[2], match[3]))
    return found


def mig_listed(lines: Iterable[str]) -> int:
    """How many MIG devices `nvidia-smi -L` names."""
    return sum(1 for line in lines if _MIG.match(line))
