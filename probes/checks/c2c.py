"""C2C links between a GPU and its Grace CPU: down, slow, or repairing errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Severity
from probes.reading import number, whole

DOWN = Rule(
    id="c2c.down",
    title="C2C links between GPU and CPU are down",
    severity=Severity.CRITICAL,
    reads="state of every C2C link of each GPU of a Grace part",
    cause="a link of the superchip failed to train",
    action=Action.DRAIN,
    next_step="drain; reset the GPU or power-cycle the tray; replace the superchip if it returns",
    source="nvml.h NVML_FI_DEV_C2C_LINK_GET_STATUS [nvml]; our rule: all links of a part are up",
    others="-",
    example="GPU1: C2C link 3 down, 9 of 10 up",
    hard=True,
)
SLOW = Rule(
    id="c2c.slow",
    title="A C2C link runs below its siblings",
    severity=Severity.WARN,
    reads="speed of the slowest active C2C link of each GPU against most GPUs of the node",
    cause="the link trained at a lower rate",
    action=Action.RESET_GPU,
    next_step="reset the GPU to retrain; replace the superchip if it returns",
    source="nvml.h NVML_FI_DEV_C2C_LINK_GET_MAX_BW [nvml]; siblings as measure: our estimate",
    others="-",
    example="GPU1: slowest C2C link at 22.36 GB/s, siblings at 44.71 GB/s",
    limits=("nvlink.speed_below_siblings",),
)
ERRORS = Rule(
    id="c2c.errors",
    title="C2C links correct errors",
    severity=Severity.INFO,
    reads="rise of CRC errors and replays of the C2C links of each GPU",
    cause="marginal signal between GPU and CPU; the links repair it",
    action=Action.WATCH,
    next_step="watch the rate; reset the GPU to retrain when it is free",
    source="Xid catalogue [xid]: corrected C2C errors (121) are harmless, a reset retrains",
    others="-",
    example="c2c_crc +12, c2c_replays +3 in 30 s",
)
RULES = (DOWN, SLOW, ERRORS)


def check(look: Look) -> Iterator[Finding]:
    """Each GPU by itself; speeds against most GPUs of the node."""
    speeds = {
        device: speed for device, sample in look.facts.devices("fabric")
        if (speed := number(sample.values.get("c2c_mbps_min"))) is not None
    }  # fmt: skip
    usual = Counter(speeds.values()).most_common(1)[0][0] if speeds else 0.0
    for device, sample in look.facts.devices("fabric"):
        label = look.facts.gpu_label(device)
        links, up = (whole(sample.values.get(name)) for name in ("c2c_links", "c2c_up"))
        if links is not None and up is not None and up < links:
            down = str(sample.values.get("c2c_down") or "?")
            yield DOWN.finding(
                look, f"{label}: C2C link {', '.join(down.split())} down, {up} of {links} up",
                (f"C2C {up} of {links} links up, down: {down}",),
                device=device, label=label, value=up,
            )  # fmt: skip
        yield from _c2c_slow(look, device, label, speeds.get(device), usual)
        yield from _c2c_errors(look, device, label)


def _c2c_slow(
    look: Look, device: str, label: str, speed: float | None, usual: float
) -> Iterator[Finding]:
    limit = look.rules.limit("nvlink.speed_below_siblings")
    if speed is not None and speed < limit.value * usual:
        text = f"slowest C2C link at {speed / 1000:.2f} GB/s, siblings at {usual / 1000:.2f} GB/s"
        yield SLOW.finding(
            look, f"{label}: {text}", (text,), device=device, label=label,
            value=speed / usual, limit=limit,
        )  # fmt: skip


def _c2c_errors(look: Look, device: str, label: str) -> Iterator[Finding]:
    rates = look.facts.rates.get(("fabric", device))
    grown = {
        name: delta for name, delta in (rates.deltas if rates else {}).items()
        if delta > 0 and name.startswith("c2c_") and rates and name not in rates.reset
    }  # fmt: skip
    if rates is not None and grown:
        text = ", ".join(f"{name} +{delta:.0f}" for name, delta in sorted(grown.items()))
        yield ERRORS.finding(
            look, f"{label}: C2C links correct errors: {text}",
            (f"{text} in {rates.elapsed_s:.0f} s",),
            device=device, label=label, value=sum(grown.values()),
        )  # fmt: skip
