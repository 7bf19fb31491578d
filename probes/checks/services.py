"""Daemons that must run, by evidence or by peers; restart loops; fabric manager against driver.

There is no fixed list of expected services: NVSwitches on the bus ask for a fabric manager, Slurm
in the inventory for slurmd, and what most peers run is missed where it does not run.
"""

from __future__ import annotations

from collections.abc import Iterator

from probes.checks.rule import Look, Rule
from probes.checks.service_rules import (
    FABRIC,
    FABRIC_VERSION,
    FAILED,
    PEERS,
    RESTARTS,
    SILENT,
    SLURM,
)
from probes.drift_facts import SERVICE_NAMES, flags
from probes.event import Finding, Row, Scalar, Severity
from probes.reading import number, whole

RULES: tuple[Rule, ...] = (FABRIC, SLURM, FABRIC_VERSION, FAILED, RESTARTS, PEERS, SILENT)

DELIBERATE = frozenset({"drained", "draining", "maintenance", "reserved", "off"})
"""States of a scheduler in which somebody may have stopped its daemon on purpose; down is none: it
is what Slurm makes of a dead slurmd."""
DOWN = frozenset({"failed", "inactive", "deactivating"})
OTHERS = 2
"""Fewest other nodes whose habit says something."""
COMPLETED = 3


def check(look: Look) -> Iterator[Finding]:
    """What evidence demands, then what systemd complains about, then what peers have."""
    sample = look.facts.get("services")
    if sample is None or "manager" not in sample.values:
        return
    rows = {str(row.get("service")): row for row in sample.rows}
    told: set[str] = set()
    for finding in (*_fabric(look, rows), *_slurm(look, rows), *_states(look, rows)):
        if finding.device not in told:
            yield finding
        told.add(finding.device)
    yield from _restarts(look, rows)
    yield from _version(look)
    yield from _peers(look, rows, told)
    if sample.values.get("systemctl_timeout") is True:
        limit_s = number(sample.values.get("systemctl_limit_s"))
        waited = "in time" if limit_s is None else f"in {limit_s:g} s"
        yield SILENT.finding(
            look, "systemd does not answer", (f"systemctl show did not answer {waited}",)
        )


def _booting(look: Look) -> bool:
    uptime_s = number(look.facts.value("host", "", "uptime_s"))
    return uptime_s is not None and uptime_s < look.rules.limit("service.boot_grace_s").value


def _state(row: Row | None) -> str:
    """In words, for evidence."""
    if row is None:
        return "neither a unit nor a process of it is there"
    unit, state = row.get("unit") or row.get("service"), row.get("state") or "not running"
    result = f" ({row['result']})" if row.get("result") else ""
    return f"{unit} is {state}{result}, {row.get('enabled') or 'not enabled by systemd'}"


def _absent(look: Look, rows: dict[str, Row], service: str) -> bool:
    """Whether a service certainly does not run: a unit says so, or all processes can be seen."""
    row = rows.get(service)
    if row is not None:
        down = row.get("state") in DOWN or row.get("sub") == "auto-restart"
        return row.get("running") is not True and down
    return look.facts.value("services", "", "sees_processes") is True


# ---------------------------------------------------------------------- demanded by evidence


def nvswitches(look: Look) -> int:
    """NVSwitches that this node's fabric manager has to set up; 0 on racks with switch trays."""
    on_bus = whole(look.facts.value("versions", "", "nvswitches"))
    if on_bus is None:
        on_bus = whole(look.facts.value("fabric", "", "nvswitches"))
    ports = {
        str(sample.values.get("pci", device))
        for device, sample in look.facts.devices("infiniband")
        if sample.values.get("nvswitch") is True
    }
    return (on_bus or 0) + len(ports)


def _fabric(look: Look, rows: dict[str, Row]) -> Iterator[Finding]:
    switches = nvswitches(look)
    gpus = [device for device, _ in look.facts.devices("inventory") if device]
    if not switches or not gpus or _booting(look) or not _absent(look, rows, "fabricmanager"):
        return
    registered = [gpu for gpu in gpus if _fabric_state(look, gpu) == COMPLETED]
    rest = "; every GPU is registered still" if len(registered) == len(gpus) else ""
    row = rows.get("fabricmanager")
    installed = row is not None or look.facts.value("versions", "", "fabricmanager") is not None
    calm = bool(rest) or not installed
    log = look.facts.value("services", "", "fabricmanager_log")
    yield FABRIC.finding(
        look, f"fabric manager does not run, though the node has {switches} NVSwitches{rest}",
        (_state(row), f"{switches} NVSwitches, {len(gpus)} GPUs, {len(registered)} registered",
         *([f"fabricmanager.log: {log}"] if log else [])),
        device="fabricmanager", label="fabric manager",
        severity=Severity.WARN if calm else None,
        cause="" if installed else "it is not installed where we can see it, or runs elsewhere",
    )  # fmt: skip


def _fabric_state(look: Look, gpu: str) -> Scalar | None:
    state = look.facts.value("fabric", gpu, "fabric_state")
    return look.facts.value("nvlink", gpu, "fabric_state") if state is None else state


def _slurm(look: Look, rows: dict[str, Row]) -> Iterator[Finding]:
    scheduler = look.facts.node.scheduler or ""
    if scheduler.partition("@")[0] != "slurm" or _booting(look):
        return
    allocation = look.facts.allocation
    meant = allocation is not None and allocation.state in DELIBERATE
    for service in ("slurmd", "munge"):
        row = rows.get(service)
        if service == "munge" and (row is None or row.get("enabled") == "disabled"):
            continue  # auth/slurm needs none
        if _absent(look, rows, service):
            severity = Severity.INFO if meant else Severity.WARN if row is None else None
            yield SLURM.finding(
                look, f"{service} does not run", (_state(row),), device=service, label=service,
                severity=severity,
            )  # fmt: skip


# ---------------------------------------------------------------------- systemd's complaints


def _states(look: Look, rows: dict[str, Row]) -> Iterator[Finding]:
    for service, row in rows.items():
        enabled = row.get("enabled") in ("enabled", "enabled-runtime", "static")
        failed = row.get("state") == "failed" and row.get("running") is not True
        idle = service == "kubelet" and row.get("enabled") == "enabled"
        idle = idle and row.get("state") == "inactive" and not _booting(look)
        if failed or idle:
            needed = enabled and _of_use(look, service)
            word = "has failed" if failed else "is enabled and does not run"
            yield FAILED.finding(
                look, f"{service} {word}", (_state(row),), device=service, label=service,
                severity=None if needed else Severity.INFO,
            )  # fmt: skip


def _of_use(look: Look, service: str) -> bool:
    """NVIDIA's fabric daemons fail where there is nothing for them to do, and that is no fault."""
    if service == "fabricmanager":
        return nvswitches(look) > 0
    if service == "imex":
        racks = any(s.values.get("fabric_cluster") for _, s in look.facts.devices("fabric"))
        return racks and not nvswitches(look)
    return service not in ("nvsm", "opensm")


def _restarts(look: Look, rows: dict[str, Row]) -> Iterator[Finding]:
    step = look.facts.rates.get(("services", ""))
    sample = look.facts.get("services")
    for service, row in rows.items():
        name = f"restarts_{service}"
        total = number(sample.values.get(name)) if sample is not None else None
        fresh = step.deltas.get(name, 0.0) if step is not None and name not in step.reset else 0.0
        at_once = look.rules.limit("service.restarts_step")
        in_all = look.rules.limit("service.restarts_total")
        loop = fresh >= at_once.value or (fresh >= 1 and (total or 0) >= in_all.value)
        waiting = row.get("sub") == "auto-restart"
        if not loop and not waiting:
            continue
        lasting = f" in {step.elapsed_s:.0f} s" if step is not None and fresh else ""
        times = "once" if fresh == 1 else f"{fresh:.0f} times"
        said = f"restarted {times}{lasting}" if fresh else "waits to be restarted"
        say = f"{service} {said}" + (f", {total:.0f} in all" if total else "")
        yield RESTARTS.finding(
            look, say, (f"{row.get('unit', service)}: {say}", _state(row)), device=service,
            label=service, value=total, limit=at_once if loop else None,
            severity=None if _of_use(look, service) else Severity.INFO,
        )  # fmt: skip


def _version(look: Look) -> Iterator[Finding]:
    installed = look.facts.value("versions", "", "fabricmanager")
    driver = look.facts.value("versions", "", "driver")  # of the module: what it compares with
    driver = driver or look.facts.value("inventory", "", "driver_version")
    if not installed or not driver or installed == driver:
        return
    yield FABRIC_VERSION.finding(
        look, f"fabric manager {installed} does not fit driver {driver}",
        (f"fabric manager {installed} (package), driver {driver}",), value=str(installed),
        severity=None if nvswitches(look) else Severity.INFO,
    )  # fmt: skip


# ---------------------------------------------------------------------- peers


def _peers(look: Look, rows: dict[str, Row], told: set[str]) -> Iterator[Finding]:
    here = flags(look.facts)
    limit = look.rules.limit("service.peers_share")
    for service in SERVICE_NAMES:
        flag = f"service.{service}"
        if here.get(flag) is not False or service in told:
            continue
        share, others = look.peers.drift.others(flag, mine=False)
        common = others >= OTHERS and share >= limit.value and not _booting(look)
        if not common or not _absent(look, rows, service):
            continue
        row = rows.get(service)
        on_demand = service == "docker" and row is not None and row.get("enabled") != "enabled"
        useful = _of_use(look, service) and not on_demand  # docker.socket starts it when needed
        running = round(share * others)
        say = f"{service} does not run; it runs on {running} of {others} other nodes of the role"
        yield PEERS.finding(
            look, say, (_state(row), say), device=service, label=service, limit=limit,
            value=round(share, 3), severity=None if useful else Severity.INFO,
        )  # fmt: skip
