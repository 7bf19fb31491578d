"""GPUs as the peer comparison sees them: fresh readings, under load, with whom to compare. Pure.

Like with like means: product, board, power limit, MIG and ECC mode, driver branch, role and
job; where the job is unknown, what runs there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from probes.event import NodeState, Sample, Scalar
from probes.facts import NodeFacts
from probes.reading import MOST
from probes.rules import Rules

ANSWERING = frozenset({NodeState.UP, NodeState.HUNG, NodeState.DEGRADED, NodeState.ENDED})

IDLE_BIT = 0x1
SETTING_BITS = 0x2 | 0x10 | 0x100
"""Applications clocks, sync boost, display clock: somebody set it so (nvml.h)."""
POWER_CAP_BIT = 0x4
HW_SLOWDOWN_BIT = 0x8
SW_THERMAL_BIT = 0x20
HW_THERMAL_BIT = 0x40
BRAKE_BIT = 0x80

HARD = (
    (HW_THERMAL_BIT, "thermal_hw_ns", "HW thermal slowdown"),
    (BRAKE_BIT, "power_brake_ns", "HW power brake"),
)
"""Reason bit, its time counter, its name: hardware evidence that a GPU is held back."""
SOFT = (
    (SW_THERMAL_BIT, "SW thermal slowdown"),
    (HW_SLOWDOWN_BIT, "HW slowdown"),
    (SETTING_BITS, "clock setting"),
    (POWER_CAP_BIT, "SW power cap"),
)

WATTS_APART = 5.0
"""Power limits closer than this are the same: the power sensor's step (our estimate)."""

Key: TypeAlias = tuple[Scalar | None, ...]
MIG = 3
"""Where the MIG mode stands in a product's key."""
_NUMBERS = (int, float)
COMMON = 7
"""Parts of a key that do not depend on the job."""
NS = 1e9


class Work(NamedTuple):
    """What a GPU works on."""

    job: str | None
    """The scheduler's id; GPUs of one job are compared across nodes."""
    name: str | None
    """Compared within the node only where there is no job; None is compared with nothing."""


UNKNOWN_WORK = Work(None, "")
"""Nothing is known of any process: one pool within the node."""


class Gpu(NamedTuple):
    """One GPU now. None is "not readable"."""

    facts: NodeFacts
    device: str
    key: Key
    """Like with like: only GPUs of the same key are compared."""
    product: Key
    """Name, board and modes without power limit and job."""
    job: str | None
    """Job id; None when it is not known what runs there."""
    loaded: bool
    util_percent: float | None
    clock_mhz: float | None
    clock_max_mhz: float | None
    power_w: float | None
    limit_w: float | None
    temp_c: float | None
    mem_clock_mhz: float | None
    mem_clock_max_mhz: float | None
    reasons: int | None
    hard: str
    """Name of the hardware's reason to hold it back; "" without one."""

    @property
    def label(self) -> str:
        """GPU3."""
        return self.facts.gpu_label(self.device)

    @property
    def node(self) -> str:
        """Its node's name."""
        return self.facts.node.name


class _Conditions(NamedTuple):
    """What does not change from second to second."""

    products: dict[str, Key]
    """GPU -> role, product, board, modes, driver branch."""
    works: dict[str, Work]
    """GPU -> its work; "" -> that of the others."""


def read(facts: NodeFacts, rules: Rules) -> Iterator[Gpu]:
    """The node's GPUs with fresh answers, by device; none for a node that does not answer."""
    if facts.state not in ANSWERING:
        return
    if not facts.latest:
        return
    oldest = max(s.at for s in facts.latest.values()) - rules.limit("straggler.fresh_s").value
    conditions = facts.kept("loaded", _READ, _conditions)
    rest = conditions.works.get("", UNKNOWN_WORK)
    least = rules.limit("straggler.min_util_percent").value
    share = rules.limit("thermal.hw_share_warn").value
    for device, sample in facts.devices("gpu"):
        if device and sample.at >= oldest:
            work = conditions.works.get(device, rest)
            yield _gpu(facts, device, sample, _of(conditions, facts, device), work, least, share)


_READ = ("", "inventory", "ecc", "processes", "allocation ")
"""What `_conditions` depends on."""


def _of(conditions: _Conditions, facts: NodeFacts, device: str) -> Key:
    """Also of a GPU that came after the conditions were read."""
    found = conditions.products.get(device)
    if found is None:
        branch = _text(facts, "", "driver_version").partition(".")[0]
        found = conditions.products[device] = _product(facts, device, branch)
    return found


def _conditions(facts: NodeFacts) -> _Conditions:
    return _Conditions({}, _works(facts))


def _product(facts: NodeFacts, device: str, branch: str) -> Key:
    return (
        facts.node.role,
        _text(facts, device, "pci_device_id") or _text(facts, device, "name"),
        _text(facts, device, "pci_subsystem_id"),
        facts.value("inventory", device, "mig_mode"),
        facts.value("ecc", device, "ecc_mode"),
        branch,
    )


def _gpu(
    facts: NodeFacts, device: str, sample: Sample, product: Key, work: Work, least: float,
    share: float,
) -> Gpu:  # fmt: skip
    values = sample.values
    util, limit = number(values, "util_percent"), number(values, "power_limit_w")
    step = None if limit is None else round(limit / WATTS_APART)
    raw = values.get("reasons")
    reasons = raw if isinstance(raw, int) and not isinstance(raw, bool) else None
    clock = number(values, "sm_clock_mhz")
    alike = (facts.node.name, device) if work.name is None else (work.name,)
    busy = util is not None and util >= least and product[MIG] is not True
    return Gpu(
        facts=facts, device=device, key=(*product, step, *alike), product=product, job=work.job,
        loaded=busy and clock is not None and not (reasons or 0) & IDLE_BIT,
        util_percent=util, clock_mhz=clock, clock_max_mhz=number(values, "sm_clock_max_mhz"),
        power_w=number(values, "power_w"), limit_w=limit, temp_c=number(values, "temp_c"),
        mem_clock_mhz=number(values, "mem_clock_mhz"),
        mem_clock_max_mhz=number(values, "mem_clock_max_mhz"), reasons=reasons,
        hard=_hard(facts, device, reasons, share),
    )  # fmt: skip


def number(values: dict[str, Scalar], name: str) -> float | None:
    """A finite, non-negative reading."""
    value = values.get(name)
    if type(value) not in _NUMBERS:
        return None
    return value if 0 <= value < MOST else None  # type: ignore[operator, return-value]


def _text(facts: NodeFacts, device: str, name: str) -> str:
    value = facts.value("inventory", device, name)
    return "" if value is None else str(value)


def _hard(facts: NodeFacts, device: str, reasons: int | None, share: float) -> str:
    """By the bit now, or by the time spent so since the answer before."""
    rates = facts.rates.get(("gpu", device))
    for bit, counter, name in HARD:
        if reasons is not None and reasons & bit:
            return name
        if rates is not None and rates.deltas.get(counter, 0.0) > share * rates.elapsed_s * NS:
            return name
    return ""


def _works(facts: NodeFacts) -> dict[str, Work]:
    """GPU -> its work, from its processes; "" -> that of GPUs without a known process.

    With several jobs on the node, or none and processes on other GPUs, a GPU without a known
    process is compared with none.
    """
    jobs: dict[str, set[str]] = {}
    commands: dict[str, set[str]] = {}
    sample = facts.get("processes")
    for row in sample.rows if sample is not None else ():
        device, job = str(row.get("gpu", "")), row.get("job")
        if job:
            jobs.setdefault(device, set()).add(str(job))
        commands.setdefault(device, set()).add(f"{row.get('user')} {row.get('command')}")
    works = {device: Work(None, "; ".join(sorted(names))) for device, names in commands.items()}
    for device, ids in jobs.items():
        job = "+".join(sorted(ids))
        works[device] = Work(job, job)
    allocated = facts.allocation.jobs if facts.allocation is not None else ()
    if len(allocated) == 1:
        works[""] = Work(allocated[0].id, allocated[0].id)
    elif allocated or works:
        works[""] = Work(None, None)  # another job's, or no job's: the driver scrubbing memory
    return works
