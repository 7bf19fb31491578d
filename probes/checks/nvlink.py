"""NVLink: links down or slow against their siblings, error rates, fabric registration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Sample, Severity
from probes.rules import Product

DOWN = Rule(
    id="nvlink.down",
    title="NVLinks are down",
    severity=Severity.CRITICAL,
    reads="state of every NVLink of each GPU",
    cause="link training failed: GPU, baseboard, NVSwitch or bridge",
    action=Action.DRAIN,
    next_step="drain, reset the GPUs or reboot; if it returns, field diagnostic of GPU and switch",
    source="our rule: what is inactive by design the siblings or hardware.yaml say",
    others="GCM, OCI, SCK, gpud, AzHC, NVHV, imbue: error",
    example="GPU3: link 11 down, 17 of 18 up; its 7 siblings have 18",
)
SLOW = Rule(
    id="nvlink.slow",
    title="An NVLink runs below its siblings",
    severity=Severity.WARN,
    reads="signalling rate of every active NVLink",
    cause="the link trained at a lower rate: signal integrity",
    action=Action.RESET_GPU,
    next_step="reset the GPU to retrain; if it returns, check baseboard or bridge",
    source="NVML's common link speed is the signalling rate [nvml]; siblings as measure: our "
    "estimate",
    others="OCI: speed by model, reboot",
    example="link 7 at 19.92 GB/s, siblings at 26.56 GB/s",
    limits=("nvlink.speed_below_siblings",),
)
ERRORS = Rule(
    id="nvlink.errors",
    title="NVLink errors grow",
    severity=Severity.WARN,
    reads="replays, recoveries and CRC errors of every NVLink",
    cause="marginal signal on the link",
    action=Action.WATCH,
    next_step="watch the rate; reset the GPU if it goes on, then field diagnostic",
    source="hardware limits of DCGM [dcgm]; as growth, not as total",
    others="DCGM fail; GCM > 0; CCH effective BER > 1e-6",
    example="link 4: +37 CRC errors, +2 recoveries in 30 s",
    limits=("nvlink.error_increment", "nvlink.crc_per_s"),
)
FABRIC = Rule(
    id="nvlink.fabric",
    title="GPUs wait for the NVLink fabric",
    severity=Severity.CRITICAL,
    reads="fabric state of each GPU (2 in progress, 3 completed)",
    cause="Fabric Manager failed, is absent, or its version differs from the driver",
    action=Action.RESTART_SERVICE,
    next_step="check nvidia-fabricmanager and its version against the driver; restart it; then "
    "reboot",
    source="nvml.h fabric state [nvml]; CUDA start-up fails with error 802 until it completes",
    others="OCI, gpud, SCK: not completed is an error",
    example="fabric state 2 (in progress) on 8 of 8 GPUs",
)
RULES = (DOWN, SLOW, ERRORS, FABRIC)


def check(look: Look) -> Iterator[Finding]:
    """Compare each GPU with its siblings in the node, then with its product."""
    samples = dict(look.facts.devices("nvlink"))
    if not samples:
        return
    states = {device: _links(sample) for device, sample in samples.items()}
    best = max((sum(links.values()) for links in states.values()), default=0)
    if best == 0:
        yield from _all_down(look, states)
    else:
        for device, links in states.items():
            yield from _down(look, device, links, best)
    for device, sample in samples.items():
        yield from _slow(look, device, sample)
        yield from _errors(look, device)
    yield from _fabric(look, samples)


def _links(sample: Sample) -> dict[int, bool]:
    """Link number -> up, for links whose state could be read."""
    found = {}
    for name, value in sample.values.items():
        if name.startswith("link") and name.endswith("_up") and isinstance(value, bool):
            found[int(name[4:-3])] = value
    return found


def _product(look: Look) -> Product | None:
    for _, sample in look.facts.devices("inventory"):
        device_id = sample.values.get("pci_device_id")
        if device_id:
            return look.rules.product(str(device_id), look.facts.node.hardware)
    return look.rules.product(None, look.facts.node.hardware)


def _all_down(look: Look, states: dict[str, dict[int, bool]]) -> Iterator[Finding]:
    """Normal for PCIe cards without a bridge; a dead fabric for SXM boards."""
    known = {device: links for device, links in states.items() if links}
    product = _product(look)
    if not known or product is None or product.form == "pcie" or not product.nvlink_links:
        return
    links = len(next(iter(known.values())))
    yield DOWN.finding(
        look, f"no NVLink is up on any of {len(known)} GPUs",
        (
            f"0 of {links} links up on each of {len(known)} GPUs; "
            f"{product.name} has {product.nvlink_links}",
        ),
        cause="Fabric Manager or NVSwitch is down, or the baseboard lost power",
        next_step="drain; check nvidia-fabricmanager and SXid lines; reboot",
        source=product.source,
    )  # fmt: skip


def _down(look: Look, device: str, links: dict[int, bool], best: int) -> Iterator[Finding]:
    up = sum(links.values())
    if not links or up >= best:
        return
    down = sorted(number for number, state in links.items() if not state)
    label = look.facts.gpu_label(device)
    names = ", ".join(map(str, down[:6])) + (" ..." if len(down) > 6 else "")
    yield DOWN.finding(
        look, f"{label}: NVLink {names} down, {up} of {best} up",
        (f"{up} links up; the best sibling has {best}",), device=device, label=label, value=up,
    )  # fmt: skip


def _slow(look: Look, device: str, sample: Sample) -> Iterator[Finding]:
    rates = {
        int(name[4:-5]): float(value)
        for name, value in sample.values.items()
        if name.startswith("link") and name.endswith("_mbps") and isinstance(value, int | float)
    }
    if len(rates) < 2:
        return
    usual = Counter(rates.values()).most_common(1)[0][0]
    limit = look.rules.limit("nvlink.speed_below_siblings")
    slow = {number: rate for number, rate in rates.items() if rate < limit.value * usual}
    if not slow:
        return
    label = look.facts.gpu_label(device)
    text = ", ".join(
        f"link {number} at {rate / 1000:.2f} GB/s" for number, rate in sorted(slow.items())
    )
    yield SLOW.finding(
        look, f"{label}: {text}, siblings at {usual / 1000:.2f} GB/s", (text,),
        device=device, label=label, value=min(slow.values()) / usual, limit=limit,
    )  # fmt: skip


def _errors(look: Look, device: str) -> Iterator[Finding]:
    rates = look.facts.rates.get(("nvlink", device))
    if rates is None:
        return
    grown = {
        name: delta
        for name, delta in rates.deltas.items()
        if name.endswith(("_replays", "_recoveries", "_crc", "_recoveries_failed")) and delta > 0
    }
    if not grown:
        return
    label = look.facts.gpu_label(device)
    text = ", ".join(
        f"{name.replace('_', ' ')} +{delta:.0f}" for name, delta in sorted(grown.items())[:6]
    )
    crc = max((delta for name, delta in grown.items() if name.endswith("_crc")), default=0.0)
    limit = look.rules.limit("nvlink.crc_per_s")
    grave = crc / rates.elapsed_s > limit.value
    yield ERRORS.finding(
        look, f"{label}: NVLink errors grow: {text}", (f"{text} in {rates.elapsed_s:.0f} s",),
        device=device, label=label, value=sum(grown.values()),
        limit=limit if grave else look.rules.limit("nvlink.error_increment"),
        severity=Severity.CRITICAL if grave else Severity.WARN,
        action=Action.DRAIN if grave else None,
    )  # fmt: skip


def _fabric(look: Look, samples: dict[str, Sample]) -> Iterator[Finding]:
    states = {d: s.values["fabric_state"] for d, s in samples.items() if "fabric_state" in s.values}
    waiting = [device for device, state in states.items() if state in (1, 2)]
    failed = [
        device for device, state in states.items()
        if state == 3 and samples[device].values.get("fabric_status", 0) != 0
    ]  # fmt: skip
    if waiting:
        number = states[waiting[0]]
        word = "not started" if number == 1 else "in progress"
        yield FABRIC.finding(
            look,
            f"{len(waiting)} GPUs wait for the NVLink fabric (state {word}); "
            "CUDA fails with error 802",
            (f"fabric state {number} ({word}) on {len(waiting)} of {len(samples)} GPUs",),
        )  # fmt: skip
    if failed:
        code = samples[failed[0]].values["fabric_status"]
        yield FABRIC.finding(
            look, f"{len(failed)} GPUs failed to join the NVLink fabric (status {code})",
            (f"fabric state 3, status {code} on {len(failed)} of {len(samples)} GPUs",),
        )  # fmt: skip
