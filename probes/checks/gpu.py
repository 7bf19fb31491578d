"""Are all GPUs there, and does the driver answer for each of them?"""

from __future__ import annotations

from collections.abc import Iterator

from probes.checks.nvml_codes import NVML_CODES, Code
from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Sample, Severity
from probes.reading import whole

LOST = 15
RESET_REQUIRED = 16
CORRUPTED_INFOROM = 14
NO_DRIVER = (9, 12)
MISMATCH = 18
QUIET = (3, 6, 10, 13, 19, 21, 25, 27)
"""Return codes that are not faults (nvml.h): unsupported, no sample yet, retry next pass."""
MANY = 3
"""Peers of which most can be wrong about nothing: two nodes have no majority."""
PROBES = ("gpu", "ecc", "pcie", "nvlink", "inventory")

COUNT = Rule(
    id="gpu.count",
    title="Fewer GPUs than this node should have",
    severity=Severity.CRITICAL,
    reads="NVML device count, GPUs on the PCI bus, the inventory's `gpus`, the majority of the "
    "role",
    cause="a card fell off the bus, failed to initialise or was hidden by the driver",
    action=Action.DRAIN,
    next_step="drain, save the kernel log, compare lspci, then power-cycle; reseat or RMA if it "
    "stays away",
    source="NVML device count against the PCI bus, the inventory and the peers [nvml]",
    others="GCM, gpud, AzHC, OCI, EKS, NVHV: any difference is an error",
    example="NVML counts 7, the PCI bus has 8: 0000:52:00.0 is missing",
    hard=True,
    clears="reset",
)
LOST_RULE = Rule(
    id="gpu.lost",
    title="GPU is lost: it fell off the bus",
    severity=Severity.CRITICAL,
    reads="return codes of the NVML calls of each GPU",
    cause="power, PCIe seating or retimer, overheating, or a dying GPU; expect Xid 79 or 119",
    action=Action.DRAIN,
    next_step="drain, save the kernel log, power-cycle the node; reseat or RMA if it returns",
    source="nvml.h NVML_ERROR_GPU_IS_LOST (15) [nvml]",
    others="GCM, OCI, gpud, DCGM, SCK, AzHC: any is an error",
    example="nvmlDeviceGetHandleByIndex_v2 returned 15 (GPU is lost)",
    hard=True,
    clears="reset",
)
RESET = Rule(
    id="gpu.reset_required",
    title="GPU asks for a reset",
    severity=Severity.CRITICAL,
    reads="return codes of the NVML calls of each GPU",
    cause="the driver stopped using this GPU after an error",
    action=Action.RESET_GPU,
    next_step="drain, then nvidia-smi -r -i GPU, or reboot",
    source="nvml.h NVML_ERROR_RESET_REQUIRED (16) [nvml]",
    others="GCM: error",
    example="nvmlDeviceGetPowerUsage returned 16 (GPU requires reset)",
    hard=True,
    clears="reset",
)
NVML_ERROR = Rule(
    id="gpu.nvml_error",
    title="NVML call failed for one GPU",
    severity=Severity.WARN,
    reads="return codes of the NVML calls of each GPU",
    cause="a half-dead GPU, or missing rights",
    action=Action.WATCH,
    next_step="look for an Xid of this GPU; `gpuconsole explain nvml:CODE`",
    source="nvml.h nvmlReturn_t [nvml]",
    others="GCM: warn",
    example="nvmlDeviceGetTemperature returned 999 (unknown error)",
)
DRIVER = Rule(
    id="driver.unusable",
    title="The NVIDIA driver or library does not work",
    severity=Severity.CRITICAL,
    reads="nvmlInit, nvmlDeviceGetCount, GPUs on the PCI bus",
    cause="driver not loaded, library missing, or upgraded under the running module",
    action=Action.REBOOT,
    next_step="reboot the node, or reload the module; check for an unattended upgrade",
    source="nvml.h return codes 9, 12, 18 [nvml]; lyulyul/shine-cluster issue 30: unattended "
    "upgrade",
    others="most: warn to error",
    example="nvmlInit returned 18 (driver/library version mismatch)",
)
DRIVER_HUNG = Rule(
    id="driver.hung",
    title="A driver call does not return",
    severity=Severity.CRITICAL,
    reads="how long each NVML call of the agent takes",
    cause="GPU firmware or driver dead-locked; expect Xid 119, 120 or 79",
    action=Action.DRAIN,
    next_step="drain; save the kernel log; reboot (a stuck process cannot be killed)",
    source="our deadline of 5 s, not measured; after Xid 119 or 120 nvidia-smi itself hangs [xid]",
    others="PRI: vendor call > 5 s fails the node; NVS #1576",
    example="hung in nvmlDeviceGetUtilizationRates for 25 s",
)
GONE = Rule(
    id="gpu.gone",
    title="GPU vanished while we watched",
    severity=Severity.CRITICAL,
    reads="devices of each NVML answer against the answer before",
    cause="the driver stopped listing it; indices of later GPUs moved down",
    action=Action.DRAIN,
    next_step="drain and power-cycle; older notes that name an index now mean another card",
    source="field case: the driver drops a lost GPU and renumbers the others",
    others="-",
    example="0000:52:00.0 was GPU2 until 14:02:11",
    hard=True,
    clears="reset",
)
BUS_DEAD = Rule(
    id="gpu.config_space",
    title="GPU is on the bus list but does not answer there",
    severity=Severity.CRITICAL,
    reads="PCI configuration space (vendor reads ffff, lspci shows rev ff)",
    cause="the card lost power or its link; the kernel keeps the old entry",
    action=Action.DRAIN,
    next_step="drain and power-cycle; a warm reboot rarely helps",
    source="lspci shows revision ff for a card that does not answer; GCM and OCI look for it",
    others="GCM, OCI, SCK: error",
    example="0000:52:00.0 config space reads ff",
    hard=True,
    clears="reset",
)
RULES = (COUNT, LOST_RULE, RESET, NVML_ERROR, DRIVER, DRIVER_HUNG, GONE, BUS_DEAD)


def check(look: Look) -> Iterator[Finding]:
    """Driver first: without it nothing else of NVML means anything."""
    yield from _hung(look)
    node = look.facts.get("inventory")
    if node is not None:
        yield from _driver(look, node)
        yield from _count(look, node)
        yield from _bus(look, node)
    yield from _codes(look)
    yield from _gone(look)


def _hung(look: Look) -> Iterator[Finding]:
    calls = [s for (p, _), s in look.facts.hung.items() if p in PROBES or p == "processes"]
    if not calls:
        return
    devices = {status.device for status in calls if status.device}
    label = ", ".join(look.facts.gpu_label(device) for device in sorted(devices))
    longest = max((status.since_s or 0.0) for status in calls)
    yield DRIVER_HUNG.finding(
        look,
        f"driver hangs{' on ' + label if label else ''} since {longest:.0f} s",
        tuple(f"{status.probe}: {status.text}" for status in calls[:5]),
        device=next(iter(devices)) if len(devices) == 1 else "",
        label=label,
        value=round(longest, 1),
    )


def _driver(look: Look, node: Sample) -> Iterator[Finding]:
    on_bus = whole(node.values.get("pci_gpu_count")) or 0
    expected = look.facts.node.gpus or look.peers.gpu_count or on_bus
    code = whole(node.values.get("nvml_rc"))
    if node.values.get("nvml_library") is False:
        if expected:
            yield DRIVER.finding(
                look, f"no NVIDIA library, though {expected} GPUs are expected",
                (f"libnvidia-ml.so.1 not found; {on_bus} NVIDIA GPUs on the PCI bus",),
                next_step="install the driver, or check the image this node booted",
            )  # fmt: skip
        return
    if code is None or not expected:
        return
    known = NVML_CODES.get(code)
    say = f"NVML does not start: {known.say if known else f'code {code}'}"
    call = node.values.get("nvml_call", "nvmlInit")
    yield DRIVER.finding(look, say, (f"{call} returned {code} ({known.name if known else '?'})",))


def _count(look: Look, node: Sample) -> Iterator[Finding]:
    found = whole(node.values.get("gpu_count"))
    if found is None:
        return
    expected, origin = _expected(look, node)
    if expected is None or found >= expected:
        return
    missing = _missing(look, node)
    where = f"; missing {', '.join(missing)}" if missing else ""
    yield COUNT.finding(
        look,
        f"{found} of {expected} GPUs present{where}",
        (f"NVML counts {found}; PCI bus has {node.values.get('pci_gpu_count', '?')}; {origin}",),
        value=found,
        source=f"{origin}; {COUNT.source}",
    )


def _expected(look: Look, node: Sample) -> tuple[int | None, str]:
    """How many GPUs, and who says so."""
    if look.facts.node.gpus is not None:
        return look.facts.node.gpus, f"the inventory says gpus: {look.facts.node.gpus}"
    on_bus = whole(node.values.get("pci_gpu_count"))
    majority = look.peers.gpu_count if look.peers.nodes >= MANY else None
    if on_bus is not None and on_bus >= (majority or 0):
        return on_bus, f"the PCI bus has {on_bus}"
    if majority is not None:
        return (
            majority,
            f"most of {look.peers.nodes} peers in role {look.peers.role} have {majority}",
        )
    return None, ""


def _missing(look: Look, node: Sample) -> list[str]:
    """PCI addresses of GPUs that should be listed and are not."""
    listed = {device for device, _ in look.facts.devices("inventory") if device}
    unlisted = {str(row.get("pci", "?")) for row in node.rows if row.get("in_nvml") is False}
    peers = look.peers.gpu_slots - listed
    return sorted(unlisted | peers | {d for (p, d) in look.facts.gone if p == "inventory" and d})


def _bus(look: Look, node: Sample) -> Iterator[Finding]:
    for row in node.rows:
        if row.get("config_ok") is False:
            pci = str(row.get("pci", "?"))
            yield BUS_DEAD.finding(
                look, f"{_at(look, pci)} is on the bus list but dead",
                (f"{pci} config space reads ff",), device=pci, label=look.facts.gpu_label(pci),
            )  # fmt: skip


def _at(look: Look, pci: str) -> str:
    """As "GPU4 at 0000:9d:00.0"; the address once where the index is unknown."""
    label = look.facts.gpu_label(pci)
    return label if pci in label else f"{label} at {pci}"


def _codes(look: Look) -> Iterator[Finding]:
    """The worst return code of each GPU, whichever probe met it."""
    worst: dict[str, tuple[int, str]] = {}
    for probe in PROBES:
        for device, sample in look.facts.devices(probe):
            code = whole(sample.values.get("nvml_rc"))
            if not device or code is None or code in QUIET:
                continue
            if code == LOST or device not in worst:
                worst[device] = code, str(sample.values.get("nvml_call", "an NVML call"))
    for device, (code, call) in sorted(worst.items()):
        yield _code(look, device, code, call)


def _code(look: Look, device: str, code: int, call: str) -> Finding:
    known = NVML_CODES.get(code, Code("unknown", "an undocumented code"))
    label = look.facts.gpu_label(device)
    evidence = (f"{call} returned {code} ({known.name})",)
    if code == LOST:
        readable = sum(1 for _, s in look.facts.devices("gpu") if "nvml_rc" not in s.values)
        say = f"{_at(look, device)} is lost (NVML {code}); {readable} other{_s(readable)} readable"
        return LOST_RULE.finding(look, say, evidence, device=device, label=label, value=code)
    if code == RESET_REQUIRED:
        say = f"{_at(look, device)} asks for a reset"
        return RESET.finding(look, say, evidence, device=device, label=label, value=code)
    severity = Severity.CRITICAL if code == CORRUPTED_INFOROM else Severity.WARN
    action = Action.REPLACE if code == CORRUPTED_INFOROM else Action.WATCH
    return NVML_ERROR.finding(
        look, f"{label}: {known.say}", evidence, device=device, label=label, value=code,
        severity=severity, action=action,
    )  # fmt: skip


def _s(number: int) -> str:
    return " is" if number == 1 else "s are"


def _gone(look: Look) -> Iterator[Finding]:
    for (probe, device), sample in sorted(look.facts.gone.items()):
        if probe == "gpu" and device:
            index = sample.values.get("index", "?")
            yield GONE.finding(
                look, f"GPU{index} at {device} vanished; later indices moved down",
                (f"{device} was GPU{index} in its last answer",),
                device=device, label=f"GPU{index}",
            )  # fmt: skip
