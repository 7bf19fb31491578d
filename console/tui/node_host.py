"""The host on the node screen: a line for each subject, the ones with trouble first. Pure.

What is well takes one line; what is not names itself. A subject that was never read says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from console import units
from console.tui.node_age import age_mark, faded
from console.tui.node_cells import Values
from console.tui.text import Cell, Line, labelled, plain
from console.tui.words import N_, t, tn
from probes.event import Row
from probes.facts import NodeFacts
from probes.reading import number

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
    return [*lines, *_agent(facts, width)] or [(Cell(t("not read yet"), "dim"),)]


def _values(facts: NodeFacts, probe: str) -> Values | None:
    sample = facts.get(probe)
    return None if sample is None else sample.values


def _load(facts: NodeFacts) -> Iterator[Told]:
    values = _values(facts, "host")
    if values is None:
        return
    cores = values.get("cpu_count", units.ABSENT)
    available = units.size(number(values.get("mem_available_bytes")))
    load = values.get("load1", units.ABSENT)
    parts = [t("load {load} on {n} cores", load=load, n=cores)]
    if (busy := number(values.get("cpu_percent"))) is not None:
        parts.append(t("{share}% busy", share=f"{busy:.0f}"))
    total = units.size(number(values.get("mem_total_bytes")))
    parts.append(t("memory {free} of {all} free", free=available, all=total))
    if swap := number(values.get("swap_used_bytes")):
        parts.append(t("{size} swapped", size=units.size(swap)))
    if (uptime := number(values.get("uptime_s"))) is not None:
        parts.append(t("up {time}", time=units.age(uptime)))
    yield Told(t("load"), ", ".join(parts), "host")


# ---------------------------------------------------------------------- tasks


def _tasks(facts: NodeFacts) -> Iterator[Told]:
    sample = facts.get("tasks")
    if sample is None:
        stuck = number(facts.value("host", "", "dstate_count"))
        if stuck:
            told = t("{n} in uninterruptible sleep", n=f"{stuck:.0f}")
            yield Told(t("tasks"), told, "host", wrong=True)
        return
    if not sample.values:
        return
    sleepers = [row for row in sample.rows if row.get("kind") == "sleeper"]
    for row in sleepers[:SLEEPERS_SHOWN]:
        yield Told(t("D state"), _sleeper(row), "tasks", wrong=True)
    if len(sleepers) > SLEEPERS_SHOWN:
        more = t("and {n} more", n=len(sleepers) - SLEEPERS_SHOWN)
        yield Told(t("D state"), more, "tasks", wrong=True)
    processes, waiting, zombies = (
        units.count(number(sample.values.get(metric)))
        for metric in ("processes", "uninterruptible", "zombies")
    )
    parts = [t("{n} processes", n=processes)]
    parts.append(t("none in D state") if waiting == "0" else t("{n} in D state", n=waiting))
    parts.append(t("no zombies") if zombies == "0" else t("{n} zombies", n=zombies))
    yield Told(t("tasks"), ", ".join(parts), "tasks")


def _sleeper(row: Row) -> str:
    """`python3 48211 mara job 48211, 421s in rpc_wait_bit_killable, cwd /data`."""
    job = t(" job {job}", job=row["job"]) if row.get("job") else ""
    owner = t("kernel") if row.get("kernel") is True else row.get("user", units.ABSENT)
    text = f"{row.get('comm', '?')} {row.get('pid', '?')} {owner}{job}"
    text += f", {units.age(number(row.get('since_s')))}"
    text += t(" in {place}", place=row["wchan"]) if "wchan" in row else ""
    text += t(" (NVIDIA driver)") if row.get("driver") is True else ""
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
        again = (
            tn(", restarted once since boot", ", restarted {n} times since boot", round(restarts))
            if restarts
            else ""
        )
        if row.get("running") is True:
            running += 1
            if again:
                yield Told(t("service"), t("{name} runs", name=name) + again, "services")
        else:
            # A service that is switched off stays so by somebody's choice.
            off = row.get("enabled") in ("disabled", "masked", "")
            told = f"{name} {_down(row)}{again}"
            yield Told(t("service"), told, "services", wrong=not off)
    if "fabricmanager_log" in sample.values:
        yield Told(t("its log"), str(sample.values["fabricmanager_log"]), "services")
    if sample.values.get("systemctl_timeout") is True:
        yield Told(t("service"), t("systemd does not answer"), "services", wrong=True)
    told = tn("1 service runs", "{n} services run", running)
    yield Told(t("service"), told, "services")


def _down(row: Row) -> str:
    state = str(row.get("state") or t("does not run"))
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
    parts = [t("no time daemon") if daemon == "none" else t("{name} runs", name=daemon)]
    if isinstance(synchronised, bool):
        parts.append(t("synchronised") if synchronised else t("NOT synchronised"))
    if (offset := number(values.get("offset_s"))) is not None:
        off = f"{abs(offset) * 1e3:.1f}"
        parts.append(t("{n} ms ahead", n=off) if offset > 0 else t("{n} ms behind", n=off))
    if "source" in values:
        stratum = values.get("stratum", units.ABSENT)
        parts.append(t("server {name} stratum {n}", name=values["source"], n=stratum))
    skew = number(facts.value("hello", "", "wall_skew_s"))
    if skew is not None:
        parts.append(t("{n} s from our clock", n=f"{abs(skew):.1f}"))
    wrong = synchronised is False or (daemon == "none" and synchronised is not True)
    yield Told(t("clock"), ", ".join(parts), "timesync", wrong)


def _names(facts: NodeFacts) -> Iterator[Told]:
    """Name servers that do not answer first; the others are counted."""
    own = _values(facts, "dns")
    servers = [(d, s.values) for d, s in facts.devices("dns") if d.startswith("ns ")]
    silent = [device[3:] for device, values in servers if values.get("answers") is False]
    for name in silent:
        yield Told("DNS", t("{name} does not answer", name=name), "dns", wrong=True)
    parts = []
    if servers:
        answer = len(servers) - len(silent)
        parts.append(t("{n} of {all} name servers answer", n=answer, all=len(servers)))
    if own and (took := number(own.get("own_name_s"))) is not None:
        ms = f"{took * 1e3:.0f}"
        found = own.get("own_name_found") is not False
        told = t("own name in {n} ms", n=ms) if found else t("own name not found, {n} ms", n=ms)
        parts.append(told)
    yield Told("DNS", ", ".join(parts), "dns")


# ---------------------------------------------------------------------- what it is


def _dimms(facts: NodeFacts) -> Iterator[Told]:
    """Memory errors since the counters began, by DIMM or controller, where there are any."""
    for device, sample in facts.devices("host_slow"):
        bad, corrected = number(sample.values.get("ue")), number(sample.values.get("ce"))
        if device and (bad or corrected):
            label = sample.values.get("label", device)
            text = t(
                "{label}: {n} corrected, {bad} not",
                label=label, n=units.count(corrected), bad=units.count(bad),
            )  # fmt: skip
            yield Told(t("memory"), text, "host_slow", wrong=bool(bad))


def _limits(facts: NodeFacts) -> Iterator[Told]:
    """What jobs inherit."""
    values = _values(facts, "host_slow") or {}
    parts = []
    if "daemon" in values:
        lock = number(values.get("memlock_bytes"))
        who, size = values["daemon"], units.size(lock)
        free = lock == UNLIMITED
        parts.append(
            t("{daemon}'s jobs may lock memory without limit", daemon=who)
            if free
            else t("{daemon}'s jobs may lock {size} of memory", daemon=who, size=size)
        )
    if "governor" in values:
        parts.append(t("governor {name}", name=values["governor"]))
    if (shared := number(values.get("shm_total_bytes"))) is not None:
        parts.append(f"/dev/shm {units.size(shared)}")
    yield Told(t("limits"), ", ".join(parts), "host_slow")


_VERSIONS = (
    ("driver", N_("driver")), ("driver_kind", ""), ("cuda_toolkit", "CUDA"), ("nccl", "NCCL"),
    ("fabricmanager", N_("fabric manager")), ("imex", "IMEX"), ("dcgm", "DCGM"), ("ofed", "OFED"),
    ("toolkit", N_("container toolkit")), ("slurm", "Slurm"), ("kernel", N_("kernel")), ("os", ""),
    ("bios", "BIOS"), ("system", ""),
)  # fmt: skip
"""Metric of the probe versions -> how it is introduced."""


def _versions(facts: NodeFacts) -> Iterator[Told]:
    values = _values(facts, "versions") or {}
    parts = [f"{t(word)} {values[name]}".strip() for name, word in _VERSIONS if values.get(name)]
    hello = _values(facts, "hello") or {}
    system = " ".join(str(hello[k]) for k in ("os", "kernel") if k in hello)
    driver = facts.value("inventory", "", "driver_version")
    if parts:
        yield Told(t("version"), ", ".join(parts), "versions")
    else:
        yield Told(t("system"), system, "hello")
        yield Told(t("driver"), str(driver or ""), "inventory")


def _agent(facts: NodeFacts, width: int) -> Iterator[Line]:
    agent = _values(facts, "agent")
    if agent is not None:
        cpu, rss = number(agent.get("cpu_percent")), number(agent.get("rss_bytes"))
        share = units.ABSENT if cpu is None else f"{cpu:.1f}%"
        told = t("{share} of a core, {size}", share=share, size=units.size(rss))
        yield from labelled(t("agent"), told, width, "dim")
    hello = _values(facts, "hello") or {}
    for key in sorted(hello):
        if key.startswith("missing."):
            yield from labelled(t("absent"), plain(f"{key[8:]}: {hello[key]}"), width, "dim")
    for noise in list(facts.noise)[-3:]:
        yield from labelled(t("noise"), plain(noise), width, "dim")
