"""nvml.json: what the simulated driver would say, read anew whenever the file changes.

Top level (all optional): driver, nvml, cuda (13000 = 13.0), init_rc, library (false: there is no
libnvidia-ml.so.1), missing [C names an old driver lacks], rc and hang {C name: value} for calls
without a GPU, gpus [entry]. An entry needs only "pci"; DEFAULTS gives the rest, a healthy idle-free
H100. `null` makes the calls behind a key NOT_SUPPORTED. "rc" {C name or "*": nvmlReturn_t} and
"hang" {C name or "*": seconds} apply to this GPU; "drift" {key: per second since the file's mtime}
moves numbers: a plain key, "fields.270", or "link.7.replays". "fields" {"270": n, "161.7": n,
"94": "!3"} are field values by id, by id and scope, or as a return code. "step" is a job's rhythm
(rhythm.py); "speed" is how many seconds its counters grow in one. More keys: links.py.
"""

import json
import os
import threading
import time

from . import identity
from .rhythm import SENSOR_S, tail_share

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

    Raw = Dict[str, Any]

FILE = "nvml.json"

PCI_BUSES = (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)
"""Where an eight-GPU HGX H100 board usually has its cards."""

DEFAULTS = {
    "name": "NVIDIA H100 80GB HBM3",
    "vbios": "96.00.89.00.01",
    "device_id": "233010de",
    "subsystem_id": "16c110de",
    "util": 97,
    "activity": 1.0,
    "mem_util": 40,
    "mem_total_mib": 81559,
    "mem_used_mib": 70000,
    "mem_reserved_mib": 500,
    "temp": 55,
    "temp_max": 87,
    "mem_temp": 62,
    "power_w": 620,
    "power_limit_w": 700,
    "sm_mhz": 1980,
    "sm_max_mhz": 1980,
    "mem_mhz": 2619,
    "mem_max_mhz": 2619,
    "reasons": 0,
    "pstate": 0,
    "mig": 0,
    "persistence": 1,
    "ecc": 1,
    "ecc_vol_ue": 0,
    "ecc_vol_ce": 0,
    "ecc_agg_ue": 0,
    "ecc_agg_ce": 0,
    "remap": [0, 0, 0, 0],
    "pcie": [5, 5, 16, 16],
    "pcie_replays": 0,
    "links": 18,
    "link_mbps": 26562,
    "link": {},
    "fabric": [3, 0],
    "recovery": 0,
    "fields": {},
    "drift": {},
    "procs": [],
    "rc": {},
    "hang": {},
    "step": None,
    "speed": 1.0,
}
"""One healthy, busy H100 SXM5. Temperatures as in public dumps of a 700 W Hopper."""
DEFAULTS.update(identity.DEFAULTS)

LINK = {"up": 1, "mbps": None, "crc": 0, "replays": 0, "recoveries": 0}
"""One healthy link; mbps None takes link_mbps."""

HANG_STEP_S = 0.05
"""How soon a hung call notices that the file no longer says so."""


def healthy(gpus: "int" = 8) -> "Raw":
    """A whole nvml.json of a node in good health with `gpus` H100 (at most 8)."""
    return {
        "driver": "580.95.05",
        "nvml": "13.580.95.05",
        "cuda": 13000,
        "gpus": [
            {
                "pci": "0000:%02x:00.0" % PCI_BUSES[index],
                "uuid": "GPU-aaaaaaaa-0000-4000-8000-%012x" % index,
                "serial": "16509230000%02d" % index,
                "minor": index,
            }
            for index in range(gpus)
        ],
    }


def write(directory: "Any", state: "Raw") -> "None":
    """Write DIR/nvml.json in one step, so that no reader sees half of it."""
    path = os.path.join(str(directory), FILE)
    part = "%s.%d" % (path, os.getpid())
    with open(part, "w") as out:
        json.dump(state, out)
    os.replace(part, path)


class Gpu:
    """One entry of the file at one moment."""

    def __init__(self, entry: "Raw", index: "int", age_s: "float") -> "None":
        """`age_s` is how long ago the file was written."""
        self.entry = entry
        self.index = index
        self.age_s = age_s

    @property
    def pci(self) -> "str":
        """The address as written: "0000:1b:00.0"."""
        return str(self.entry["pci"])

    def get(self, key: "str") -> "Any":
        """A value with its drift and rhythm; None stands for "not supported"."""
        return self.mean(key, SENSOR_S)

    def mean(self, key: "str", span_s: "float") -> "Any":
        """The same over the last `span_s` story seconds."""
        value = self.entry[key] if key in self.entry else DEFAULTS.get(key)
        return self._stepped(self.moved(value, key), key, span_s)

    def _stepped(self, value: "Any", key: "str", span_s: "float") -> "Any":
        step = self.entry.get("step")
        if not step or value is None or key not in step["low"]:
            return value
        every_s = float(step["every_s"])
        now = step["at"] + self.age_s * self.entry.get("speed", 1.0) / every_s
        return value * (1.0 - (1.0 - step["low"][key]) * tail_share(now, span_s / every_s))

    def minor(self) -> "int":
        """N of /dev/nvidiaN; by default the index."""
        return int(self.entry.get("minor", self.index))

    def uuid(self) -> "str":
        """By default made of the index."""
        return str(self.entry.get("uuid", "GPU-aaaaaaaa-0000-4000-8000-%012x" % self.index))

    def serial(self) -> "str":
        """By default made of the index."""
        return str(self.entry.get("serial", "16509230000%02d" % self.index))

    def link(self, number: "int", key: "str") -> "Any":
        """A link's up, mbps, crc, replays or recoveries."""
        own = self.get("link").get(str(number), {})
        value = own.get(key, LINK[key])
        if key == "mbps" and value is None:
            value = self.get("link_mbps") if self.link(number, "up") else 0
        return self.moved(value, "link.%d.%s" % (number, key))

    def field(self, number: "int", scope: "int") -> "Any":
        """What "fields" says about a field: a number, "!rc", or None when it says nothing."""
        fields = self.get("fields")
        for key in ("%d.%d" % (number, scope), str(number)):
            if key in fields:
                return self.moved(fields[key], "fields." + key)
        return None

    def moved(self, value: "Any", key: "str") -> "Any":
        """A value with what "drift" says about this key."""
        per_s = self.get("drift").get(key, 0) if key != "drift" else 0
        if not per_s or isinstance(value, (str, list, dict, bool)) or value is None:
            return value
        return value + per_s * self.age_s


class State:
    """The file, cached until its mtime or size changes. Safe from several threads."""

    def __init__(self, directory: "str") -> "None":
        """`directory` holds nvml.json; while it is missing or broken, the last good text holds."""
        self.path = os.path.join(directory, FILE)
        self._lock = threading.Lock()
        self._stamp: "Optional[Tuple[int, int]]" = None
        self._raw: "Raw" = {}
        self._numbers: "Dict[str, int]" = {}

    def raw(self) -> "Raw":
        """The decoded file."""
        with self._lock:
            self._reload()
            return self._raw

    def gpus(self) -> "List[Gpu]":
        """Every GPU the driver lists, in its order."""
        raw = self.raw()
        age_s = time.time() - self._written()
        return [Gpu(entry, index, age_s) for index, entry in enumerate(raw.get("gpus", []))]

    def number(self, pci: "str") -> "int":
        """A handle's number: the same for the same card, whatever its index; never 0."""
        with self._lock:
            return self._numbers.setdefault(pci, len(self._numbers) + 1)

    def by_number(self, number: "int") -> "Optional[Gpu]":
        """The GPU behind a handle, or None when it is not listed any more."""
        for index, entry in enumerate(self.raw().get("gpus", [])):
            if self._numbers.get(entry["pci"]) == number:
                return Gpu(entry, index, time.time() - self._written())
        return None

    def _written(self) -> "float":
        return self._stamp[0] / 1e9 if self._stamp else time.time()

    def _reload(self) -> "None":
        try:
            found = os.stat(self.path)
            stamp = (found.st_mtime_ns, found.st_size)
            if stamp == self._stamp:
                return
            with open(self.path) as text:
                self._raw = json.load(text)
            self._stamp = stamp
        except (OSError, ValueError):
            return
