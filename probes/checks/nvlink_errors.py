"""NVLink errors: what grows between two answers, and bit error rates. Totals say nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from probes.checks.rule import Look, Rule
from probes.derive import Rates
from probes.event import Action, Finding, Severity
from probes.reading import number, whole

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
FAILED = Rule(
    id="nvlink.recovery_failed",
    title="An NVLink could not be recovered",
    severity=Severity.CRITICAL,
    reads="failed recoveries of every NVLink (NVLink 5)",
    cause="the link lost its signal and did not train again: cable, connector, GPU or switch port",
    action=Action.DRAIN,
    next_step="drain; reset the GPU; look at the other end; reseat or exchange the cable cartridge",
    source="nvml.h NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS [nvml]",
    others="DCGM: any link recovery event is an error",
    example="link 4: +1 failed recovery in 30 s",
    limits=("nvlink.error_increment",),
)
PACKETS = Rule(
    id="nvlink.packets",
    title="Packets are damaged or lost on NVLinks",
    severity=Severity.WARN,
    reads="malformed packets, buffer overruns, receive and integrity errors, discards of every "
    "NVLink (NVLink 5)",
    cause="marginal signal, or a switch port that drops",
    action=Action.WATCH,
    next_step="watch the rate; look at the other end of the link; reset the GPU if it goes on",
    source="nvml.h NVLink 5 counters [nvml]; any growth: our estimate",
    others="DCGM watches recovery events and bit error rates instead",
    example="link 4: malformed +3, overruns +12 in 30 s",
    limits=("nvlink.error_increment", "nvlink.discards_per_s"),
)
BER = Rule(
    id="nvlink.ber",
    title="An NVLink's bit error rate is too high",
    severity=Severity.WARN,
    reads="effective bit error rate and symbol error rate of the worst NVLink (NVLink 5)",
    cause="marginal signal: cable cartridge, connector, or a port that wears out",
    action=Action.WATCH,
    next_step="compare with the other links (nvidia-smi nvlink -e); reset the GPU to retrain; "
    "reseat the tray at the next drain",
    source="nvml.h NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_BER [nvml]",
    others="CCH effective BER > 1e-6; DCGM any error after correction",
    example="link 7: effective BER 3e-09",
    limits=("nvlink.ber",),
)
RULES = (FAILED, ERRORS, PACKETS, BER)

ERROR_SUFFIXES = ("_replays", "_recoveries", "_crc", "_crc_data", "_ecc")
PACKET_SUFFIXES = ("_malformed", "_overruns", "_receive_errors", "_integrity")
"""Remote errors are another end's; symbol errors are what FEC is for, judged as a rate."""
NAMES = 6

_Counts: TypeAlias = dict[str, float]
"""Counter -> rise."""


def check(look: Look) -> Iterator[Finding]:
    """Each GPU by itself."""
    for device, sample in look.facts.devices("nvlink"):
        rates = look.facts.rates.get(("nvlink", device))
        risen = _risen(rates) if rates is not None else {}
        if rates is not None and risen:
            yield from _failed(look, device, rates, risen)
            yield from _errors(look, device, rates, risen)
            yield from _packets(look, device, rates, risen)
        for name, words in (("effective_ber", "effective BER"), ("symbol_ber", "symbol BER")):
            rate = number(sample.values.get(name))
            limit = look.rules.limit("nvlink.ber")
            if rate is not None and rate > limit.value:
                label = look.facts.gpu_label(device)
                text = f"link {whole(sample.values.get(name + '_link'))}: {words} {rate:.1g}"
                yield BER.finding(
                    look, f"{label}: NVLink {text}", (text,), device=device, label=label,
                    value=rate, limit=limit,
                )  # fmt: skip


def _risen(rates: Rates) -> _Counts:
    """Counters that rose; one that was reset says only "at least so many, some time ago".

    Gone through once: of 2,000 counters of a node hardly one ever moves.
    """
    return {
        name: delta for name, delta in rates.deltas.items() if delta > 0 and name not in rates.reset
    }


def _of(risen: _Counts, suffixes: tuple[str, ...]) -> _Counts:
    return {name: delta for name, delta in risen.items() if name.endswith(suffixes)}


def _told(grown: dict[str, float]) -> str:
    return ", ".join(
        f"{name.replace('_', ' ')} +{delta:.0f}" for name, delta in sorted(grown.items())[:NAMES]
    )


def _failed(look: Look, device: str, rates: Rates, risen: _Counts) -> Iterator[Finding]:
    grown = _of(risen, ("_recoveries_failed",))
    if grown:
        label, text = look.facts.gpu_label(device), _told(grown)
        yield FAILED.finding(
            look, f"{label}: NVLink recoveries failed: {text}",
            (f"{text} in {rates.elapsed_s:.0f} s",), device=device, label=label,
            value=sum(grown.values()), limit=look.rules.limit("nvlink.error_increment"),
        )  # fmt: skip


def _packets(look: Look, device: str, rates: Rates, risen: _Counts) -> Iterator[Finding]:
    grown = _of(risen, PACKET_SUFFIXES)
    most = look.rules.limit("nvlink.discards_per_s").value * rates.elapsed_s
    grown |= {name: n for name, n in _of(risen, ("_discards",)).items() if n > most}
    if grown:
        label, text = look.facts.gpu_label(device), _told(grown)
        yield PACKETS.finding(
            look, f"{label}: NVLink packets damaged or lost: {text}",
            (f"{text} in {rates.elapsed_s:.0f} s",), device=device, label=label,
            value=sum(grown.values()), limit=look.rules.limit("nvlink.error_increment"),
        )  # fmt: skip


def _errors(look: Look, device: str, rates: Rates, risen: _Counts) -> Iterator[Finding]:
    grown = _of(risen, ERROR_SUFFIXES)
    if not grown:
        return
    label = look.facts.gpu_label(device)
    text = _told(grown)
    crc = max((delta for name, delta in grown.items() if "_crc" in name), default=0.0)
    limit = look.rules.limit("nvlink.crc_per_s")
    grave = crc / rates.elapsed_s > limit.value
    yield ERRORS.finding(
        look, f"{label}: NVLink errors grow: {text}", (f"{text} in {rates.elapsed_s:.0f} s",),
        device=device, label=label, value=sum(grown.values()),
        limit=limit if grave else look.rules.limit("nvlink.error_increment"),
        severity=Severity.CRITICAL if grave else Severity.WARN,
        action=Action.DRAIN if grave else None,
    )  # fmt: skip
