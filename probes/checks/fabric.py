"""NVLink fabric: registration of the GPUs and its health, and the NVSwitches of the board.

Who registers the GPUs differs: on an HGX node a fabric manager that runs there, in a GB200 or GB300
rack one on the switch trays. What to do about a GPU that waits differs with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from probes.checks.fabric_health import BAD, SUMMARIES, parts
from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Scalar, Severity
from probes.expect import product_id
from probes.reading import number, whole

REGISTRATION = Rule(
    id="nvlink.fabric",
    title="GPUs wait for the NVLink fabric",
    severity=Severity.CRITICAL,
    reads="fabric state of each GPU (2 in progress, 3 completed), uptime of the node",
    cause="Fabric Manager failed, is absent, or its version differs from the driver",
    action=Action.RESTART_SERVICE,
    next_step="check nvidia-fabricmanager and its version against the driver; restart it; then "
    "reboot",
    source="nvml.h fabric state [nvml]; CUDA start-up fails with error 802 until it completes",
    others="OCI, gpud, SCK: not completed is an error",
    example="fabric state 2 (in progress) on 8 of 8 GPUs for 1860 s",
    limits=("fabric.boot_s",),
)
HEALTH = Rule(
    id="fabric.health",
    title="The NVLink fabric of a GPU is not in full health",
    severity=Severity.WARN,
    reads="health mask and summary of each GPU's fabric registration",
    cause="a link, switch or route of the NVLink domain is at fault",
    action=Action.DRAIN,
    next_step="drain this node; look at the fabric manager's log and at the switch trays",
    source="nvml.h NVML_GPU_FABRIC_HEALTH_MASK [nvml]; severities are our rule",
    others="DCGM: any part that is not well is an incident",
    example="health mask 0x19a: route unhealthy",
)
SPLIT = Rule(
    id="fabric.split",
    title="GPUs of one node are in different NVLink domains",
    severity=Severity.WARN,
    reads="cluster UUID of each GPU's fabric registration",
    cause="a GPU registered with another fabric, or with an old one before a repair",
    action=Action.RESET_GPU,
    next_step="reset the odd GPUs, or restart the fabric manager; compare the cabling of the rack",
    source="nvml.h clusterUuid [nvml]; our rule: one node, one domain",
    others="OCI, gpud, SCK read it",
    example="3 GPUs in 00112233-..., GPU2 in 99887766-...",
)
SWITCH = Rule(
    id="fabric.nvswitch",
    title="An NVSwitch does not answer on the PCI bus",
    severity=Severity.CRITICAL,
    reads="configuration space of each NVSwitch (PCI class 0680 of NVIDIA)",
    cause="the switch lost power or died; all GPUs of the board lose links through it",
    action=Action.DRAIN,
    next_step="drain; look for SXid lines; power-cycle the node; replace the baseboard if it stays",
    source="our rule: a device that answers configuration reads with all ones is off the bus, as "
    "lspci shows it (rev ff)",
    others="gpud, NVS, DCGM, SCK see NVSwitch faults through SXids or their own watches",
    example="NVSwitch 0000:08:00.0 answers with all ones, 4 are listed",
    hard=True,
)
RULES = (REGISTRATION, HEALTH, SPLIT, SWITCH)

WAITING = {1: "not started", 2: "in progress"}
COMPLETED = 3
NAMES = 8
"""GPUs or lines named in one finding."""

_Values = dict[str, Scalar]


def check(look: Look) -> Iterator[Finding]:
    """Registration of the node's GPUs together, everything else for each by itself."""
    known = registrations(look)
    yield from _waiting(look, known)
    yield from _failed(look, known)
    yield from _health(look, known)
    yield from _split(look, known)
    yield from _switches(look)


def registrations(look: Look) -> dict[str, _Values]:
    """GPU -> its registration; from dumps that have it beside the links, from there."""
    found = {
        device: sample.values
        for probe in ("nvlink", "fabric")
        for device, sample in look.facts.devices(probe)
        if device and "fabric_state" in sample.values
    }
    return dict(sorted(found.items()))


def _rack(look: Look, known: dict[str, _Values]) -> bool:
    """Whether the fabric manager is not on this node: Grace superchips of a rack."""
    products = (look.rules.product(product_id(look.facts, d) or None) for d in known)
    return any(product is not None and product.form == "superchip" for product in products)


def _waiting(look: Look, known: dict[str, _Values]) -> Iterator[Finding]:
    waiting = [d for d, values in known.items() if whole(values.get("fabric_state")) in WAITING]
    if not waiting:
        return
    state = whole(known[waiting[0]].get("fabric_state")) or 0
    word = WAITING[state]
    lasting = max((number(known[d].get("fabric_waiting_s")) or 0.0 for d in waiting), default=0.0)
    text = f" for {lasting:.0f} s" if lasting > 0 else ""
    limit = look.rules.limit("fabric.boot_s")
    uptime_s = number(look.facts.value("host", "", "uptime_s"))
    booting = uptime_s is not None and uptime_s < limit.value
    rack = _rack(look, known)
    yield REGISTRATION.finding(
        look,
        f"{len(waiting)} GPU{'s wait' if len(waiting) > 1 else ' waits'} for the NVLink fabric "
        f"(state {word}{text}); CUDA fails with error 802",
        (f"fabric state {state} ({word}) on {len(waiting)} of {len(known)} GPUs{text}"
         + (f", node up for {uptime_s:.0f} s" if booting and uptime_s is not None else ""),),
        value=lasting or None,
        severity=Severity.INFO if booting else None,
        action=Action.WATCH if booting else None,
        cause="the rack's fabric manager on the switch trays has not registered it" if rack else "",
        next_step=RACK_STEP if rack else "",
    )  # fmt: skip


RACK_STEP = (
    "no fabric manager runs on this node: check NMX and the switch trays, then the IMEX domain; "
    "reset the GPU when they are well"
)


def _failed(look: Look, known: dict[str, _Values]) -> Iterator[Finding]:
    failed = [
        device for device, values in known.items()
        if whole(values.get("fabric_state")) == COMPLETED and whole(values.get("fabric_status"))
    ]  # fmt: skip
    if failed:
        code = known[failed[0]]["fabric_status"]
        yield REGISTRATION.finding(
            look, f"{len(failed)} GPU{'s' * (len(failed) > 1)} failed to join the NVLink fabric "
            f"(status {code})",
            (f"fabric state 3, status {code} on {len(failed)} of {len(known)} GPUs",),
            next_step=RACK_STEP if _rack(look, known) else "",
        )  # fmt: skip


def _health(look: Look, known: dict[str, _Values]) -> Iterator[Finding]:
    for device, values in known.items():
        mask, summary = whole(values.get("fabric_health")), whole(values.get("fabric_summary"))
        bad = [part for part in parts(mask or 0) if part.severity.rank > Severity.OK.rank]
        grades = [part.severity for part in bad] + ([BAD[summary]] if summary in BAD else [])
        if not grades:
            continue
        worst = max(grades, key=lambda severity: severity.rank)
        first = max(bad, key=lambda part: part.severity.rank, default=None)
        label = look.facts.gpu_label(device)
        word = SUMMARIES.get(summary or 0, str(summary))
        said = ", ".join(part.say for part in bad) or f"summary {word}"
        shown = f"health mask {mask:#x}" if mask is not None else "no health mask"
        yield HEALTH.finding(
            look, f"{label}: NVLink fabric: {said}",
            (f"{shown}: {said}", f"summary {word}"),
            device=device, label=label, value=mask, severity=worst,
            cause=first.cause if first else "",
            action=first.action if first else None,
            next_step=first.next_step if first else "",
        )  # fmt: skip


def _split(look: Look, known: dict[str, _Values]) -> Iterator[Finding]:
    clusters = {d: str(v["fabric_cluster"]) for d, v in known.items() if v.get("fabric_cluster")}
    counts = Counter(clusters.values())
    if len(counts) < 2:
        return
    usual, most = counts.most_common(1)[0]
    odd = {look.facts.gpu_label(d): c for d, c in clusters.items() if c != usual}
    names = ", ".join(list(odd)[:NAMES])
    yield SPLIT.finding(
        look, f"{names} in another NVLink domain than {most} GPUs of this node",
        (f"{most} GPUs in {usual}", *(f"{label} in {c}" for label, c in list(odd.items())[:7])),
        value=len(odd),
    )  # fmt: skip


def _switches(look: Look) -> Iterator[Finding]:
    dead = str(look.facts.value("fabric", "", "nvswitches_dead") or "").split()
    listed = whole(look.facts.value("fabric", "", "nvswitches"))
    for address in dead[:NAMES]:
        yield SWITCH.finding(
            look, f"NVSwitch {address} does not answer",
            (f"NVSwitch {address} answers with all ones, {listed} are listed",),
            device=address, label=f"NVSwitch {address}",
        )  # fmt: skip
