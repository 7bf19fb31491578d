"""Probe "nvlink": state, speed and error counts of every NVLink.

Speeds are the signalling rate NVML reports (26,562 MB/s a link on Hopper), about 6 % above the data
sheet. Links 1-4 count replays, recoveries and CRC errors; link 5 (Blackwell) counts other things,
which appear under their own names, and reports bit error rates, of which the worst link is told.
"""

from probes.node.nvlink_fields import (
    COUNTS,
    EFFECTIVE_BER,
    FEW,
    LINK_COUNT,
    LINKS_MAX,
    MANY_LINKS,
    OLD_COUNTERS,
    PER_LINK,
    SPEED,
    SPEED_COMMON,
    SYMBOL_BER,
    error_rate,
    states_of,
)
from probes.node.nvml_library import FIELD_SOFT
from probes.node.nvml_reader import each_gpu, field_id, scoped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

    from probes.node.context import Context
    from probes.node.nvml_reader import Field, Number, Reader

__all__ = ["COUNTERS", "INTERVAL", "LINKS_MAX", "METRICS", "NAME", "collect"]

NAME = "nvlink"
INTERVAL = "slow"
COUNTERS = True
METRICS = {
    "index": ("", "info", "NVML's index"),
    "links": ("", "info", "links of the card, up or not"),
    "links_lost": ("", "info", "numbers of links that were active since this agent began"),
    "linkN_up": ("", "gauge", "whether link N is active"),
    "linkN_mbps": (
        "MB/s",
        "gauge",
        "signalling rate of link N, one way; active links only",
    ),
    "linkN_replays": ("", "counter", "packets sent again on link N"),
    "linkN_recoveries": ("", "counter", "retrainings of link N"),
    "linkN_crc": ("", "counter", "CRC errors of link N"),
    "linkN_crc_data": ("", "counter", "CRC errors in the data of link N (NVLink 1-3)"),
    "linkN_ecc": ("", "counter", "ECC errors of link N (NVLink 3)"),
    "linkN_recoveries_ok": ("", "counter", "successful recoveries of link N (NVLink 5)"),
    "linkN_recoveries_failed": ("", "counter", "failed recoveries of link N (NVLink 5)"),
    "linkN_symbol_errors": ("", "counter", "symbol errors of link N (NVLink 5)"),
    "linkN_effective_errors": ("", "counter", "errors left after FEC on link N (NVLink 5)"),
    "linkN_receive_errors": ("", "counter", "bad packets received on link N (NVLink 5)"),
    "linkN_remote_errors": ("", "counter", "packets the other end marked bad (NVLink 5)"),
    "linkN_malformed": ("", "counter", "malformed packets on link N (NVLink 5)"),
    "linkN_overruns": ("", "counter", "packets lost to a full buffer on link N (NVLink 5)"),
    "linkN_integrity": ("", "counter", "local integrity errors of link N (NVLink 5)"),
    "linkN_discards": ("", "counter", "packets not sent on link N (NVLink 5)"),
    "effective_ber": ("", "gauge", "bit error rate after FEC of the worst link (NVLink 5)"),
    "effective_ber_link": ("", "gauge", "which link that is"),
    "symbol_ber": ("", "gauge", "symbol error rate of the worst link (NVLink 5)"),
    "symbol_ber_link": ("", "gauge", "which link that is"),
    "nvml_rc": ("", "gauge", "return code of the call that failed; absent when none did"),
    "nvml_call": ("", "info", "the call that failed"),
}

RATES = (("effective_ber", EFFECTIVE_BER), ("symbol_ber", SYMBOL_BER))


def collect(ctx: "Context") -> "Tuple[Dict[str, Dict[str, Any]], List[Dict[str, Any]]]":
    """One tick over all GPUs. A card without NVLink has links 0; unknown has no `links`."""
    seen: "Dict[str, Any]" = ctx.memory(NAME)
    return each_gpu(ctx, lambda reader: _read(reader, seen)), []


def _read(reader: "Reader", seen: "Dict[str, Any]") -> "None":
    states = _states(reader)
    if states is None:
        return
    once: "set[int]" = seen.setdefault(reader.gpu.key, set())
    once.update(link for link, up in enumerate(states) if up)
    lost = [str(link) for link, up in enumerate(states) if up is False and link in once]
    reader.put(links=len(states), links_lost=" ".join(lost) or None)
    for link, up in enumerate(states):
        if up is not None:
            reader.put(**{"link%d_up" % link: up})
    if states:
        reader.mode_is("links", tuple(states))  # a link that comes up answers more
        _speeds_and_counts(reader, states)


def _states(reader: "Reader") -> "Optional[List[Optional[bool]]]":
    """Per link: up, down, or None where its state cannot be read. None when NVML does not say."""
    field = (field_id(reader.pynvml, *LINK_COUNT), 0)
    return states_of(reader, reader.fields([field]).get(field))


def _speeds_and_counts(reader: "Reader", states: "List[Optional[bool]]") -> "None":
    """One call for all links and fields; then old calls for what it left open."""
    counts = [entry for entry in COUNTS if len(states) <= MANY_LINKS or entry[0] in FEW]
    ids = [(suffix, field_id(reader.pynvml, name, number)) for suffix, name, number in counts]
    speed = field_id(reader.pynvml, *SPEED)
    common = (field_id(reader.pynvml, *SPEED_COMMON), 0)
    bers = [(name, field_id(reader.pynvml, *field)) for name, field in RATES]
    wanted = [speed] + [number for _, number in ids] + [number for _, number in bers]
    own = [(first + link, 0) for first, link in _per_link(len(states))]
    found = reader.fields(scoped(wanted, len(states)) + own + [common])
    for link, up in enumerate(states):
        if up:
            mbps = found.get((speed, link)) or found.get(common) or None
            reader.put(**{"link%d_mbps" % link: mbps})
        _counts(reader, link, ids, found)
    for name, number in bers:
        rates = {link: found.get((number, link)) for link, up in enumerate(states) if up}
        _worst(reader, name, rates)


def _per_link(links: "int") -> "List[Tuple[int, int]]":
    """Fields that have a number for every link instead of a scope: (number of link 0, link)."""
    found = []
    for _, ranges in PER_LINK:
        for first_link, last_link, first_id in ranges:
            last = min(last_link, links - 1)
            found += [(first_id - first_link, link) for link in range(first_link, last + 1)]
    return found


def _counts(
    reader: "Reader",
    link: "int",
    ids: "List[Tuple[str, int]]",
    found: "Dict[Field, Number]",
) -> "None":
    values: "Dict[str, Number]" = {}
    for suffix, number in ids:
        if (number, link) in found:
            values.setdefault(suffix, found[number, link])
    for suffix, ranges in PER_LINK:
        for first_link, last_link, first_id in ranges:
            field = (first_id - first_link + link, 0)
            if first_link <= link <= last_link and field in found:
                values[suffix] = found[field]
    if not values:
        for suffix, counter in OLD_COUNTERS.items():
            count = reader.ask("nvmlDeviceGetNvLinkErrorCounter", link, counter, soft=FIELD_SOFT)
            if count is not None:
                values[suffix] = count
    reader.put(**{"link%d_%s" % (link, suffix): value for suffix, value in values.items()})


def _worst(reader: "Reader", name: "str", raw: "Dict[int, Optional[Number]]") -> "None":
    rates = {link: error_rate(int(value)) for link, value in raw.items() if value is not None}
    if rates:
        link = max(rates, key=lambda one: (rates[one], -one))
        reader.put(**{name: rates[link], name + "_link": link})
