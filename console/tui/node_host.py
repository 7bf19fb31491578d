"""The host on the node screen: a line for each subject, the ones with trouble first. Pure.

What is well takes one line; what is not names itself. A subject that was never read says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from console import units
from console.tui.node_age import age_mark, faded
from console.tui.node_cells import Values, number
from console.tui.text import Cell, Line, labelled, plain
from probes.event import Row
from probes.facts import NodeFacts

SLEEPERS_SHOWN = 6
"""Tasks in uninterruptible sleep; one hung file system leaves hundreds."""
UNLIMITED = -1
"""How probes/node/host_slow.py writes a limit that is none."""


class Told(NamedTuple):
    """A subject: its label, what it says, and whether that is bad news."""

    label: str
    text: str
    probe: str
    wrong: bool = False


def host(facts: NodeFacts, width: int, now: float) -> list[Line]:
    """Load, tasks, services, clock, names, versions; then what the agent says of itself."""
    told = [*_load(facts), *_tasks(facts), *_services(facts), *_clock(facts), *_names(facts)]
    told += [*_dimms(facts), *_limits(facts), *_versions(facts)]
    lines: list[Line] = []
    for one in sorted(told, key=lambda one: not one.wrong):
        text = plain(one.text) + age_mark(facts, (one.probe,), now)
        said = labelled(one.label, text, width, "warn" if one.wrong else "text")
        lines += faded(said, facts, (one.probe,), now)
    return [*lines, *_agent(facts, width)] or [(Cell("not read yet", "dim"),)]


def _values(facts: NodeFacts, probe: str) -> Values | None:
    sample = facts.get(probe)
    return None if sample is None else sample.values


def _load(facts: NodeFacts) -> Iterator[Told]:
    values = _values(facts, "host")
    if values is None:
        return
    cores = values.get("cpu_count", units.ABSENT)
    available = units.size(number(values.get("mem_available_bytes")))
    parts = [f"load {values.get('load1', units.ABSENT)} on {cores} cores"]
    if (busy := number(values.get("cpu_percent"))) is not None:
        parts.append(f"{busy:.0f}% busy")
    total = units.size(number(values.get("mem_total_bytes")))
    parts.append(f"memory {available} of {total} free")
    if swap := number(values.get("swap_used_bytes")):
        parts.append(f"{units.size(swap)} swapped")
    if (uptime := number(values.get("uptime_s"))) is not None:
        parts.append(f"up {units.age(uptime)}")
    yield Told("load", ", ".join(parts), "host")


# ---------------------------------------------------------------------- tasks


def _tasks(facts: NodeFacts) -> Iterator[Told]:
    sample = facts.get("tasks")
    if sample is None:
        stuck = number(facts.value("host", "", "dstate_count"))
        if stuck:
            yield Told("tasks", f"{stuck:.0f} in uninterruptible sleep", "host", wrong=True)
        return
    if not sample.values:
        return
    sleepers = [row for row in sample.rows if row.get("kind") == "sleeper"]
    for row in sleepers[:SLEEPERS_SHOWN]:
        yield Told("D state", _sleeper(row), "tasks", wrong=True)
    if len(sleepers) > SLEEPERS_SHOWN:
        more = f"and {len(sleepers) - SLEEPERS_SHOWN} more"
        yield Told("D state", more, "tasks", wrong=True)
    parts = [f"{units.count(number(sample.values.get('processes')))} processes"]
    parts.append(_some(sample.values, "uninterruptible", "none", "in D state"))
    parts.append(_some(sample.values, "zombies", "no", "zombies"))
    yield Told("tasks", ", ".join(parts), "tasks")


def _some(values: Values, metric: str, nothing: str, noun: str) -> str:
    count = number(values.get(metric))
    return f"{nothing} {noun}" if count == 0 else f"{units.count(count)} {noun}"


def _sleeper(row: Row) -> str:
    """`python3 48211 mara job 48211, 421s in rpc_wait_bit_killable, cwd /data`."""
    job = f" job {row['job']}" if row.get("job") else ""
    owner = "kernel" if row.get("kernel") is True else row.get("user", units.ABSENT)
    text = f"{row.get('comm', '?')} {row.get('pid', '?')} {owner}{job}"
    text += f", {units.age(number(row.get('since_s')))}"
    text += f" in {row['wchan']}" if "wchan" in row else ""
    text += " (NVIDIA driver)" if row.get("driver") is True else ""
    return text + (f", cwd {row['cwd']}" if "cwd" in row else "")


# ---------------------------------------------------------------------- services


def _services(facts: NodeFacts) -> Iterator[Told]:
    """Only what does not run or was restarted, then how many run."""
    sample = facts.get("services")
    if sample is None:
        return
    running = 0
    for row in sample.rows:
        name = str(row.get("service", "?"))
        restarts = number(sample.values.get(f"restarts_{name}"))
        again = f", restarted {restarts:.0f} times since boot" if restarts else ""
        if row.get("running") is True:
            running += 1
            if again:
                yield Told("service", f"{name} runs{again}", "services")
        else:
            # A service that is switched off stays so by somebody's choice.
            off = row.get("enabled") in ("disabled", "masked", "")
            yield Told("service", f"{name} {_down(row)}{again}", "services", wrong=not off)
    if "fabricmanager_log" in sample.values:
        yield Told("its log", str(sample.values["fabricmanager_log"]), "services")
    if sample.values.get("systemctl_timeout") is True:
        yield Told("service", "systemd does not answer", "services", wrong=True)
    noun = "service runs" if running == 1 else "services run"
    yield Told("service", f"{running} {noun}", "services")


def _down(row: Row) -> str:
    state = str(row.get("state") or "does not run")
    result = f" ({row['result']})" if row.get("result") else ""
    unit = f", {row['unit']} {row.get('enabled', '')}".rstrip() if row.get("unit") else ""
    return f"{state}{result}{unit}"


# ---------------------------------------------------------------------- clock and names


def _clock(facts: NodeFacts) -> Iterator[Told]:
    values = _values(facts, "timesync")
    if not values:
        return
    daemon, synchronised = values.get("daemon", units.ABSENT), values.get("synchronised")
    if synchronised is None:
        synchronised = values.get("first_sync")
    words = {True: "synchronised", False: "NOT synchronised"}
    parts = ["no time daemon" if daemon == "none" else f"{daemon} runs"]
    if isinstance(synchronised, bool):
        parts.append(words[synchronised])
    if (offset := number(values.get("offset_s"))) is not None:
        parts.append(f"{abs(offset) * 1e3:.1f} ms {'ahead' if offset > 0 else 'behind'}")
    if "source" in values:
        parts.append(f"server {values['source']} stratum {values.get('stratum', units.ABSENT)}")
    skew = number(facts.value("hello", "", "wall_skew_s"))
    if skew is not None:
        parts.append(f"{abs(skew):.1f} s from our clock")
    wrong = synchronised is False or (daemon == "none" and synchronised is not True)
    yield Told("clock", ", ".join(parts), "timesync", wrong)


def _names(facts: NodeFacts) -> Iterator[Told]:
    """Name servers that do not answer first; the others are counted."""
    own = _values(facts, "dns")
    servers = [(d, s.values) for d, s in facts.devices("dns") if d.startswith("ns ")]
    silent = [device[3:] for device, values in servers if values.get("answers") is False]
    for name in silent:
        yield Told("DNS", f"{name} does not answer", "dns", wrong=True)
    parts = []
    if servers:
        parts.append(f"{len(servers) - len(silent)} of {len(servers)} name servers answer")
    if own and (took := number(own.get("own_name_s"))) is not None:
        found = "" if own.get("own_name_found") is not False else " (not found)"
        parts.append(f"own name in {took * 1e3:.0f} ms{found}")
    yield Told("DNS", ", ".join(parts), "dns")


# ---------------------------------------------------------------------- what it is


def _dimms(facts: NodeFacts) -> Iterator[Told]:
    """Memory errors since the counters began, by DIMM or controller, where there are any."""
    for device, sample in facts.devices("host_slow"):
        bad, corrected = number(sample.values.get("ue")), number(sample.values.get("ce"))
        if device and (bad or corrected):
            label = sample.values.get("label", device)
            text = f"{label}: {units.count(corrected)} corrected, {units.count(bad)} not"
            yield Told("memory", text, "host_slow", wrong=bool(bad))


def _limits(facts: NodeFacts) -> Iterator[Told]:
    """What jobs inherit."""
    values = _values(facts, "host_slow") or {}
    parts = []
    if "daemon" in values:
        lock = number(values.get("memlock_bytes"))
        size = "memory without limit" if lock == UNLIMITED else f"{units.size(lock)} of memory"
        parts.append(f"{values['daemon']}'s jobs may lock {size}")
    if "governor" in values:
        parts.append(f"governor {values['governor']}")
    if (shared := number(values.get("shm_total_bytes"))) is not None:
        parts.append(f"/dev/shm {units.size(shared)}")
    yield Told("limits", ", ".join(parts), "host_slow")


_VERSIONS = (
    ("driver", "driver"), ("driver_kind", ""), ("cuda_toolkit", "CUDA"), ("nccl", "NCCL"),
    ("fabricmanager", "fabric manager"), ("imex", "IMEX"), ("dcgm", "DCGM"), ("ofed", "OFED"),
    ("toolkit", "container toolkit"), ("slurm", "Slurm"), ("kernel", "kernel"), ("os", ""),
    ("bios", "BIOS"), ("system", ""),
)  # fmt: skip
"""Metric of the probe versions -> how it is introduced."""


def _versions(facts: NodeFacts) -> Iterator[Told]:
    values = _values(facts, "versions") or {}
    parts = [f"{word} {values[name]}".strip() for name, word in _VERSIONS if values.get(name)]
    hello = _values(facts, "hello") or {}
    system = " ".join(str(hello[k]) for k in ("os", "kernel") if k in hello)
    driver = facts.value("inventory", "", "driver_version")
    if parts:
        yield Told("version", ", ".join(parts), "versions")
    else:
        yield Told("system", system, "hello")
        yield Told("driver", str(driver or ""), "inventory")


def _agent(facts: NodeFacts, width: int) -> Iterator[Line]:
    agent = _values(facts, "agent")
    if agent is not None:
        cpu, rss = number(agent.get("cpu_percent")), number(agent.get("rss_bytes"))
        share = units.ABSENT if cpu is None else f"{cpu:.1f}%"
        yield from labelled("agent", f"{share} of a core, {units.size(rss)}", width, "dim")
    hello = _values(facts, "hello") or {}
    for key in sorted(hello):
        if key.startswith("missing."):
            yield from labelled("absent", plain(f"{key[8:]}: {hello[key]}"), width, "dim")
    for noise in list(facts.noise)[-3:]:
        yield from labelled("noise", plain(noise), width, "dim")
