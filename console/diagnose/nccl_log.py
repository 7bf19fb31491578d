"""NCCL's log, line by line, as counts and first lines: bounded, however long it is. Pure."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from msgspec import Struct, field

from console.diagnose import nccl_trouble, watchdog

KEPT = 4096
"""Most hosts, devices or ranks remembered by name; 16 k ranks print alike."""
LINE_CHARS = 4096
"""NCCL's own lines end at 1024; patterns need not look at more."""
WARNINGS = 20

LINE = re.compile(
    r"(?:^|[\s\]])(?P<host>[\w.-]+):(?P<pid>\d+):(?P<tid>\d+)\s+(?:\[(?P<gpu>-?\d+)\]\s+)?"
    r"(?:[\w./+-]+:\d+\s+)?NCCL (?P<level>INFO|WARN|ERROR|VERSION|TRACE)\s?(?P<text>.*)"
)
_VERSION = re.compile(r"NCCL version (\d+\.\d+\.\d+)")
_NETWORK = re.compile(r"Using network (\S+)")
_HCAS = re.compile(r"\[\d+\]([\w.-]+:\d+)/(\w+)")
_GDR = re.compile(r"GPU Direct RDMA (Enabled|Disabled) for .*?HCA \d+(?: '(\S+?)')?")
_VIA = re.compile(r"Channel .*?: (\d+)\[\w+\] -> (\d+)\[\w+\].* via (\S+)")
_COMPLETION = re.compile(
    r"Got completion (?:from peer (?P<peer>\S+))?.*?(?:status=?\w*\(?|with error )"
    r"(?P<status>\d+)\)?"
    r".*?(?:vendor.err\w*[ =](?P<vendor>\d+)|$)(?:.*?hca (?P<hca>[\w.-]+))?"
)
_ASYNC = re.compile(
    r"NET/IB : (?:(?P<hca>[\w.-]+?)(?::\d+)? )?Got async (?:error )?event ?: ?(?P<what>.*)"
)
_INIT = re.compile(
    r"ncclCommInitRank\w* comm \S+ rank (\d+) nranks (\d+).*?(Init START|Init COMPLETE)"
)
_TIMING = re.compile(r"Init timings.*?rank (\d+) nranks (\d+) total (\d+\.?\d*)")


class Log(Struct):
    """What has been read so far."""

    lines: int = 0
    versions: dict[str, list[str]] = field(default_factory=dict)
    """NCCL version -> hosts."""
    networks: dict[str, set[str]] = field(default_factory=dict)
    """Host -> networks it uses."""
    hcas: dict[str, list[str]] = field(default_factory=dict)
    """Host -> "mlx5_0:1/IB" in order."""
    gdr: dict[str, set[str]] = field(default_factory=dict)
    """enabled or disabled -> hosts."""
    paths: Counter[str] = field(default_factory=Counter)
    """Transport of channels -> how many."""
    shm: dict[tuple[str, str], str] = field(default_factory=dict)
    """Rank pair over shared memory -> line."""
    completions: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    warnings: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)
    """What a finding rests on -> its first line."""
    started: set[int] = field(default_factory=set)
    complete: set[int] = field(default_factory=set)
    nranks: int | None = None
    init_s: float = 0.0
    failures: dict[str, list[Any]] = field(default_factory=dict)
    """Say of a known failure -> [its meaning, hosts, first lines, count]."""
    watch: watchdog.Watchdog = field(default_factory=watchdog.Watchdog)
    hosts: set[str] = field(default_factory=set)

    def feed(self, raw: str) -> bool:
        """Read one line; whether it is one of NCCL's or its watchdog's."""
        line = nccl_trouble.untagged(raw[:LINE_CHARS])
        match = LINE.search(line) if "NCCL " in line else None
        if match is None:
            return self._other(line)
        host, text = match["host"], match["text"]
        self.lines += 1
        if len(self.hosts) < KEPT:
            self.hosts.add(host)
        if match["level"] != "INFO":
            self.warnings[text[:200]] += 1 if len(self.warnings) < KEPT else 0
            self._failure(line, host)
        if " via " in text:
            self._channel(text, line)
        elif "nit" in text:
            self._init(text)
        else:
            self._network(host, text, line)
            self._trouble(host, text, line)
            self._version(line, host)
        return True

    def _other(self, line: str) -> bool:
        """A line that is not NCCL's own: of the watchdog, of the program, or noise."""
        if self.watch.feed(line):
            return True
        self._failure(line, "")
        return self._version(line, "")

    def _version(self, line: str, host: str) -> bool:
        version = _VERSION.search(line) if "NCCL version" in line else None
        if version is not None:
            _note(self.versions.setdefault(version[1], []), host)
        return version is not None

    def _network(self, host: str, text: str, line: str) -> None:
        if network := _NETWORK.search(text):
            self.networks.setdefault(host, set()).add(network[1])
            self.first.setdefault(f"network {network[1]}", line)
        if "NET/IB : Using" in text and len(self.hcas) < KEPT:
            for device, layer in _HCAS.findall(text)[:64]:
                _note(self.hcas.setdefault(host, []), f"{device}/{layer}")
            self.first.setdefault("hcas", line)
        if "NET/IB : No device found" in text:
            self.networks.setdefault(host, set()).add("no IB device")
            self.first.setdefault("no device", line)
        if gdr := _GDR.search(text):
            self.gdr.setdefault(gdr[1].lower(), set()).add(host)
            self.first.setdefault(f"gdr {gdr[1].lower()}", line)

    def _channel(self, text: str, line: str) -> None:
        via = _VIA.search(text)
        if via is None:
            return
        path = via[3].rstrip(",")
        if len(self.paths) < KEPT or path in self.paths:
            self.paths[path] += 1
        self.first.setdefault(f"path {path.split('/')[0]}", line)
        self.first.setdefault(f"via {path}", line)
        if path.startswith("SHM") and len(self.shm) < KEPT:
            self.shm.setdefault((via[1], via[2]), line)

    def _trouble(self, host: str, text: str, line: str) -> None:
        completion = _COMPLETION.search(text) if "Got completion" in text else None
        event = _ASYNC.search(text) if "Got async" in text else None
        if completion is not None and len(self.completions) < WARNINGS:
            told = {k: v for k, v in completion.groupdict().items() if v is not None}
            numbers = {k: int(v[:9]) for k, v in told.items() if k in ("status", "vendor")}
            self.completions.append({**told, **numbers, "host": host, "line": line})
        if event is not None and len(self.events) < WARNINGS:
            what = event["what"].strip()
            one = {"host": host, "hca": event["hca"] or "", "event": what, "line": line}
            self.events.append(one)

    def _failure(self, line: str, host: str) -> None:
        known = nccl_trouble.meaning(line)
        if known is None:
            return
        if not host:
            named = re.match(r"\s*(?:([\w.-]+): Test |\.\. ([\w.-]+) pid )", line)
            host = next(filter(None, named.groups()), "") if named else ""
        _, hosts, lines, count = self.failures.setdefault(known.say, [known, [], [], 0])
        _note(hosts, host)
        if len(lines) < 4:
            lines.append(line)
        self.failures[known.say][3] = count + 1

    def _init(self, text: str) -> None:
        if match := _INIT.search(text):
            ranks = self.started if match[3].endswith("START") else self.complete
            if len(ranks) < 1 << 17:
                ranks.add(int(match[1][:9]))
            self.nranks = max(self.nranks or 0, int(match[2][:9]))
        if timing := _TIMING.search(text):
            self.init_s = max(self.init_s, float(timing[3][:12]))
            self.nranks = max(self.nranks or 0, int(timing[2][:9]))


def _note(names: list[str], name: str) -> None:
    if name and name not in names and len(names) < 256:
        names.append(name)
