"""How the GPUs of a node are set up: modes, limits, firmware. Advice, seldom more.

One finding names all GPUs that it is about: a setting is made for a node, not for a card.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Sample, Severity
from probes.expect import majority
from probes.reading import number

PERSISTENCE = Rule(
    id="gpu.persistence",
    title="Persistence mode is off",
    severity=Severity.INFO,
    reads="persistence mode of each GPU",
    cause="nvidia-persistenced does not run, or was started without it",
    action=Action.FIX_CONFIG,
    next_step="systemctl enable --now nvidia-persistenced, or nvidia-smi -pm 1: without it each "
    "first call takes seconds and GPU state is lost between jobs",
    source="NVML persistence mode [nvml]; as advice only: our rule, jobs run without it",
    others="CCH, gpud: off is an error; SCK turns it on; AzHC sets it",
    example="persistence mode off on 8 of 8 GPUs",
)
PROHIBITED = Rule(
    id="gpu.compute_mode",
    title="Compute mode forbids all work",
    severity=Severity.WARN,
    reads="compute mode of each GPU",
    cause="somebody set it, perhaps to keep a GPU out of use",
    action=Action.FIX_CONFIG,
    next_step="ask who set it; nvidia-smi -c 0 allows work again",
    source="nvml.h NVML_COMPUTEMODE_PROHIBITED: no CUDA context can be made [nvml]",
    others="-",
    example="compute mode prohibited on GPU3",
)
MIG = Rule(
    id="gpu.mig",
    title="MIG mode is about to change, or differs within the node",
    severity=Severity.INFO,
    reads="current and pending MIG mode of each GPU",
    cause="a change that waits for a reset, or a node that was set up by halves",
    action=Action.FIX_CONFIG,
    next_step="compare with nvidia-smi -q -d MIG; reset the GPU to apply a pending change",
    source="NVML MIG mode [nvml]",
    others="OCI skips NVLink checks where it is on; none alarms on drift",
    example="MIG on for 3 of 8 GPUs",
)
CC = Rule(
    id="gpu.cc_not_ready",
    title="Confidential computing is on, but the GPUs take no work",
    severity=Severity.WARN,
    reads="ready state of the GPUs in confidential computing mode",
    cause="attestation after the boot was not done, or failed",
    action=Action.FIX_CONFIG,
    next_step="attest the GPUs, then nvidia-smi conf-compute -srs 1",
    source="nvml.h nvmlSystemGetConfComputeGpusReadyState [nvml]",
    others="-",
    example="cc_mode on, cc_ready false",
)
FIRMWARE = Rule(
    id="gpu.firmware_mixed",
    title="GPUs of one product have different firmware",
    severity=Severity.INFO,
    reads="VBIOS, InfoROM image and GSP firmware of the GPUs of one product and board",
    cause="a card that was exchanged, or an update that missed one",
    action=Action.FIX_CONFIG,
    next_step="bring all to one version at the next maintenance; it can explain a slower card",
    source="NVML versions [nvml]; that they should be equal: our rule",
    others="GCM: a VBIOS other than configured is an error; AzHC, imbue compare; SCK collects",
    example="GPU5 has VBIOS 96.00.74.00.1A, 7 others 96.00.89.00.01",
)
MEMORY_SIZE = Rule(
    id="gpu.memory_size",
    title="A GPU has less memory than its siblings",
    severity=Severity.WARN,
    reads="total memory of the GPUs of one product, board and mode",
    cause="the driver took defective memory out of use, or runs the card with reduced capacity "
    "(Xid 168)",
    action=Action.WATCH,
    next_step="look for Xid 168 and at row remapping; a job sized for the full card fails here",
    source="our rule: GPUs of one product have the same memory",
    others="PRI: memory against the majority of the fleet",
    example="GPU2 has 79.0 GiB, 7 siblings 79.6 GiB",
    limits=("gpu.memory_share",),
)
LOWERED = Rule(
    id="power.limit_lowered",
    title="The power limit is below the card's default",
    severity=Severity.INFO,
    reads="enforced power limit and default power limit of each GPU",
    cause="the site saves power or cooling, or a setting was left behind",
    action=Action.FIX_CONFIG,
    next_step="if nobody meant it: nvidia-smi -pl DEFAULT; full load is slower by it",
    source="NVML power limits [nvml]; that it should be the default: our rule",
    others="-",
    example="power limit 500 W, default 700 W, on 8 of 8 GPUs",
    limits=("power.under_default",),
)
APP_CLOCK = Rule(
    id="clocks.app_setting",
    title="Application clocks are set below their default",
    severity=Severity.INFO,
    reads="SM clock of applications and its default",
    cause="a user or script set them with nvidia-smi -ac and left them",
    action=Action.FIX_CONFIG,
    next_step="nvidia-smi -rac",
    source="NVML applications clocks [nvml]",
    others="GCM: a policy of 1155/1593 MHz; SCK resets clocks by itself",
    example="applications clock 1155 of 1980 MHz on GPU4",
)
RULES = (PERSISTENCE, PROHIBITED, MIG, CC, FIRMWARE, MEMORY_SIZE, LOWERED, APP_CLOCK)

FIRMWARES = {
    "vbios": "VBIOS", "inforom_image": "InfoROM image", "gsp_version": "GSP firmware",
}  # fmt: skip
SIBLINGS = 3
"""GPUs that must agree before one may differ."""

Cards = dict[str, Sample]


def check(look: Look) -> Iterator[Finding]:
    """All of it from the inventory."""
    cards = {device: sample for device, sample in look.facts.devices("inventory") if device}
    yield from _modes(look, cards)
    yield from _mig(look, cards)
    yield from _confidential(look)
    yield from _firmware(look, cards)
    yield from _memory(look, cards)
    yield from _lowered(look, cards)
    yield from _clocks(look, cards)


def _modes(look: Look, cards: Cards) -> Iterator[Finding]:
    off = [d for d, s in cards.items() if s.values.get("persistence_mode") is False]
    if off:
        text = f"persistence mode off on {_those(look, off, len(cards))}"
        yield PERSISTENCE.finding(look, text, (text,), value=len(off))
    barred = [d for d, s in cards.items() if s.values.get("compute_mode") == "prohibited"]
    if barred:
        text = f"compute mode prohibited on {_those(look, barred, len(cards))}"
        yield PROHIBITED.finding(look, f"no job can use it: {text}", (text,), value=len(barred))


def _mig(look: Look, cards: Cards) -> Iterator[Finding]:
    modes = {d: s.values["mig_mode"] for d, s in cards.items() if "mig_mode" in s.values}
    waiting = [d for d in modes if cards[d].values.get("mig_pending", modes[d]) != modes[d]]
    on = [d for d, mode in modes.items() if mode is True]
    if waiting:
        text = f"MIG mode changes at the next reset on {_those(look, waiting, len(cards))}"
        yield MIG.finding(look, text, (text,), value=len(waiting))
    elif on and len(on) < len(modes):
        text = f"MIG is on for {_those(look, on, len(modes))} only"
        yield MIG.finding(look, text, (text,), value=len(on))


def _confidential(look: Look) -> Iterator[Finding]:
    mode = look.facts.value("inventory", "", "cc_mode")
    if mode in ("on", "devtools") and look.facts.value("inventory", "", "cc_ready") is False:
        yield CC.finding(
            look, "confidential computing is on, but the GPUs are not set ready for work",
            (f"cc_mode {mode}, cc_ready false",),
        )  # fmt: skip


def _firmware(look: Look, cards: Cards) -> Iterator[Finding]:
    said: list[str] = []
    differ = {m: name for m, name in FIRMWARES.items() if len(_versions(cards, m)) > 1}
    if not differ:
        return  # nearly always, and grouping costs more than looking
    for group in _alike(cards, "pci_device_id", "pci_subsystem_id", "board_part"):
        for metric, name in differ.items():
            have = {d: str(s.values[metric]) for d, s in group.items() if metric in s.values}
            most = majority(Counter(have.values()))
            odd = [d for d, version in have.items() if version != most]
            if most is None or not odd or len(have) - len(odd) < SIBLINGS:
                continue
            for device in odd:
                label = look.facts.gpu_label(device)
                rest = len(have) - len(odd)
                said.append(f"{label} has {name} {have[device]}, {rest} others {most}")
    if said:
        more = f" (and {len(said) - 1} more)" if len(said) > 1 else ""
        yield FIRMWARE.finding(look, said[0] + more, tuple(said), value=len(said))


def _versions(cards: Cards, metric: str) -> set[object]:
    return {s.values[metric] for s in cards.values() if metric in s.values}


def _memory(look: Look, cards: Cards) -> Iterator[Finding]:
    if len({look.facts.value("gpu", device, "mem_total_bytes") for device in cards}) < 2:
        return
    limit = look.rules.limit("gpu.memory_share")
    for group in _alike(cards, "pci_device_id", "pci_subsystem_id", "mig_mode", "name"):
        sizes: dict[tuple[bool, str], dict[str, float]] = {}
        for device in group:
            size = number(look.facts.value("gpu", device, "mem_total_bytes"))
            ecc = look.facts.value("ecc", device, "ecc_mode") is not False
            if size is not None:
                sizes.setdefault((ecc, ""), {})[device] = size
        for have in sizes.values():
            yield from _smaller(look, have, limit.value)


def _smaller(look: Look, have: dict[str, float], share: float) -> Iterator[Finding]:
    most = majority(Counter(have.values()))
    if most is None or list(have.values()).count(most) < SIBLINGS:
        return
    for device, size in have.items():
        if size < share * most:
            label = look.facts.gpu_label(device)
            text = f"{size / 2**30:.1f} GiB, {len(have) - 1} siblings {most / 2**30:.1f} GiB"
            yield MEMORY_SIZE.finding(
                look, f"{label} has less memory than its siblings: {text}", (text,),
                device=device, label=label, value=round(size / 2**30, 2),
                limit=look.rules.limit("gpu.memory_share"),
            )  # fmt: skip


def _lowered(look: Look, cards: Cards) -> Iterator[Finding]:
    limit = look.rules.limit("power.under_default")
    low: dict[str, tuple[float, float]] = {}
    for device, sample in cards.items():
        top = number(look.facts.value("gpu", device, "power_limit_w"))
        default = number(sample.values.get("power_default_w"))
        if top is not None and default is not None and top < limit.value * default:
            low[device] = top, default
    if low:
        top, default = min(low.values())
        those = _those(look, list(low), len(cards))
        text = f"power limit {top:g} W, default {default:g} W, on {those}"
        yield LOWERED.finding(look, text, (text,), value=top, limit=limit)


def _clocks(look: Look, cards: Cards) -> Iterator[Finding]:
    low: dict[str, tuple[float, float]] = {}
    for device, sample in cards.items():
        names = ("sm_clock_app_mhz", "sm_clock_app_default_mhz")
        clock, default = (number(sample.values.get(name)) for name in names)
        if clock is not None and default is not None and 0 < clock < default:
            low[device] = clock, default
    if low:
        clock, default = min(low.values())
        those = _those(look, list(low), len(cards))
        text = f"applications clock {clock:g} of {default:g} MHz on {those}"
        yield APP_CLOCK.finding(look, text, (text,), value=clock)


def _alike(cards: Cards, *names: str) -> Iterator[Cards]:
    """Cards that are equal in these readings."""
    groups: dict[tuple[object, ...], Cards] = {}
    for device, sample in cards.items():
        key = tuple(sample.values.get(name) for name in names)
        groups.setdefault(key, {})[device] = sample
    return iter(groups.values())


def _those(look: Look, devices: list[str], total: int) -> str:
    """ "GPU3", "GPU1, GPU5" or "8 of 8 GPUs"."""
    if len(devices) > 2 or len(devices) == total:
        return f"{len(devices)} of {total} GPUs"
    return ", ".join(look.facts.gpu_label(device) for device in devices)
