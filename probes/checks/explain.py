"""`gpuconsole explain`: what a rule, an Xid, a return code or a product means, from its data."""

from __future__ import annotations

import fnmatch
import itertools
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias, TypeVar

from inventory.errors import UsageError
from inventory.nearest import nearest
from probes.checks import nvml_codes
from probes.checks.rule import Rule
from probes.event import Action
from probes.expectations import Counts
from probes.rules import Limit, Product, Rules, XidMeaning
from probes.sources import cited, sources

WIDTH = 100
"""Longest line, in columns."""
LABEL = 14
"""Columns of the label in front of each text."""
CODE_DIGITS = 10
"""Of an NVML return code: more do not fit its 32 bit."""
KINDS = ("xid", "sxid", "nvml", "hardware", "limit", "drift")

Page: TypeAlias = Sequence[tuple[str, str]]
"""Label and text of each paragraph; the first is the title, without a label."""

_T = TypeVar("_T")

_XID_KINDS = {
    "hw": "hardware", "fabric": "NVLink fabric", "app": "the job's software", "drv": "driver",
    "meta": "about other Xids", "follow-up": "result of another Xid",
}  # fmt: skip


def explain(
    topic: str, registry: Sequence[Rule], rules: Rules, pages: Mapping[str, Page] | None = None
) -> str:
    """Text of lines up to 100 columns.

    `topic`: "" lists all rules, "ib" those of a domain; a rule id or a glob as ib.*; xid:79,
    sxid:20034, nvml:15, hardware:NAME, limit:NAME, each with nothing behind the colon for a list;
    "sources" lists the works that sources name; a key of `pages` gives that page. A finding's own
    rule id (xid.79) works too. Below it stands a legend of the tags and tools it names. UsageError
    names the nearest topic when there is no such one.
    """
    wanted = topic.strip()
    if wanted.lower() == "sources":
        return "\n".join(_sources())
    more = pages or {}
    own = more.get(wanted.lower())
    page = list(_texts_of(own)) if own else _page(wanted, registry, rules, tuple(more))
    legend = "\n".join(_legend("\n".join(page)))
    return "\n".join([*page, "", legend] if legend else page)


def _page(wanted: str, registry: Sequence[Rule], rules: Rules, more: Sequence[str]) -> list[str]:
    if not wanted:
        return list(_index(registry, more))
    hits = [rule for rule in registry if fnmatch.fnmatchcase(rule.id, wanted.lower())]
    if hits:
        return "\n\n".join("\n".join(_rule(rule, rules)) for rule in hits).splitlines()
    kind, colon, name = _split(wanted)
    if colon and kind in KINDS:
        return list(_entry(kind, name.strip(), rules))
    if wanted.lower() in rules.limits:
        return list(_limit(rules.limits[wanted.lower()]))
    members = [rule for rule in registry if rule.id.startswith(f"{wanted.lower()}.")]
    if members:
        return list(_domain(wanted.lower(), members))
    topics = [rule.id for rule in registry]
    topics += [*rules.limits, *(f"{kind}:" for kind in KINDS), "sources", *more]
    raise UsageError(
        f"nothing is called {wanted[:80]!r}", where="explain",
        instead=_hint(wanted, topics, "`gpuconsole explain` lists all rules"),
    )  # fmt: skip


def _sources() -> Iterator[str]:
    """Every source with what was read of it."""
    wide = max(len(source.name) for source in sources())
    for source in sources():
        yield from _wrapped(f"{source.name:<{wide}}  ", f"{source.title}; read: {source.read}")


def _legend(page: str) -> Iterator[str]:
    """One line for each tag and tool that the page names."""
    named = cited(page)
    wide = max((len(source.name) for source in named), default=0)
    for source in named:
        yield from _wrapped(f"{source.name:<{wide}}  = ", source.title)


def _split(wanted: str) -> tuple[str, str, str]:
    """Kind, colon and name; the rule id of a finding, "xid.79", is read as "xid:79"."""
    kind, colon, name = wanted.partition(":")
    head, dot, code = wanted.partition(".")
    if not colon and dot and head.lower() in ("xid", "sxid") and code.isdigit():
        return head.lower(), ":", code
    return kind.strip().lower(), colon, name


def _hint(wanted: str, valid: Sequence[str], otherwise: str) -> str:
    close = nearest(wanted, valid)
    return close if close.startswith("did you mean") else otherwise


def _texts_of(page: Page) -> Iterator[str]:
    title, *texts = page
    yield from _wrapped("", title[1])
    yield from _texts(*texts)


def _index(registry: Sequence[Rule], more: Sequence[str]) -> Iterator[str]:
    wide = max((len(rule.id) for rule in registry), default=0)
    domains: dict[str, list[Rule]] = {}
    for rule in registry:
        domains.setdefault(rule.id.partition(".")[0], []).append(rule)
    for members in domains.values():
        yield from _titles(members, wide)
        yield ""
    yield "more: explain RULE, ib.*, '*' for all, xid:79, sxid:20034, nvml:15, hardware:NAME,"
    yield "      limit:NAME, drift:, or sources, the works that figures and meanings are taken from"
    if more:
        yield f"      and {', '.join(more)}"


def _titles(members: Sequence[Rule], wide: int) -> Iterator[str]:
    for rule in members:
        yield from _wrapped(f"{rule.id:<{wide}}  {rule.severity:<8}  ", rule.title)


def _domain(name: str, members: Sequence[Rule]) -> Iterator[str]:
    """Rules whose ids begin alike, for "gpu" or "ib"."""
    yield from _titles(members, max(len(rule.id) for rule in members))
    yield ""
    yield f"`gpuconsole explain '{name}.*'` has them in full"


def _rule(rule: Rule, rules: Rules) -> Iterator[str]:
    """What a person at night needs first; the limits, which may be fifty lines, last."""
    yield from _wrapped(f"{rule.id}  {rule.severity}  ", rule.title)
    yield from _texts(
        ("reads", rule.reads),
        ("cause", rule.cause),
        ("action", _words(rule.action)),
        ("next step", rule.next_step),
        ("example", rule.example),
        ("latches", _latches(rule)),
        ("who else", rule.others if rule.others not in ("", "-") else "nobody we read"),
        ("source", rule.source),
        *((("limit" if n == 0 else ""), _figure(rules.limit(name)))
          for n, name in enumerate(rule.limits)),
    )  # fmt: skip


def _latches(rule: Rule) -> str:
    if not rule.hard:
        return "no"
    return f"until {'reset, ' if rule.clears == 'reset' else ''}reboot or acknowledgement"


def _figure(limit: Limit) -> str:
    note = f" ({limit.help})" if limit.help else ""
    return f"{limit.name} = {limit.value:g} {limit.unit}{note}; source: {limit.source}"


def _limit(limit: Limit) -> Iterator[str]:
    yield f"{limit.name}  {limit.value:g} {limit.unit}"
    yield from _texts(("compares", limit.help), ("source", limit.source))


def _drift(counts: Counts) -> Iterator[str]:
    yield f"drift of {counts.name}  {counts.severity}"
    yield from _texts(("compares", counts.help), ("source", counts.source))


def _entry(kind: str, name: str, rules: Rules) -> Iterator[str]:
    if kind in ("xid", "sxid"):
        table = rules.xids if kind == "xid" else rules.sxids
        rows = {str(code): meaning for code, meaning in sorted(table.items())}
        title = "Xid" if kind == "xid" else "SXid"
        return _pick(kind, name, rows, lambda m: m.name, lambda m: _meaning(title, m))
    if kind == "nvml":
        codes = {str(code): code for code in nvml_codes.NVML_CODES}
        if name.isdecimal() and len(name) <= CODE_DIGITS:  # a newer driver may return any
            return _nvml(int(name))
        return _pick(kind, name, codes, lambda c: nvml_codes.NVML_CODES[c].name, _nvml)
    if kind == "drift":
        return _pick(kind, name, rules.drift, lambda m: f"{m.severity}  {m.help}", _drift)
    if kind == "limit":
        return _pick(kind, name, rules.limits, lambda m: f"{m.value:g} {m.unit}", _limit)
    return _pick(kind, name, rules.products, _short, _product)


def _pick(
    kind: str,
    name: str,
    rows: Mapping[str, _T],
    short: Callable[[_T], str],
    full: Callable[[_T], Iterator[str]],
) -> Iterator[str]:
    """One entry in full, or a list of all when no name is given."""
    found = next((row for key, row in rows.items() if key.lower() == name.lower()), None)
    if found is not None:
        return full(found)
    if name in ("", "*"):
        wide = max(map(len, rows), default=0)
        lines = (_wrapped(f"{kind}:{key:<{wide}}  ", short(row)) for key, row in rows.items())
        return itertools.chain.from_iterable(lines)
    lists_all = f"`gpuconsole explain {kind}:` lists all"
    close = lists_all if name.isdigit() else _hint(name, list(rows), lists_all)
    raise UsageError(f"no {kind} is called {name[:80]!r}", where="explain", instead=close)


def _meaning(title: str, meaning: XidMeaning) -> Iterator[str]:
    yield from _wrapped(f"{title} {meaning.code}  {meaning.severity}  ", meaning.name)
    yield from _texts(
        ("blames", _XID_KINDS[meaning.kind]),
        ("cause", meaning.cause),
        ("action", _words(meaning.action)),
        ("next step", meaning.next_step),
        ("latches", "until reboot or acknowledgement" if meaning.hard else "no"),
        ("who else", meaning.others or "nobody we read"),
        ("example", meaning.example.replace("CODE", str(meaning.code))),
        ("source", meaning.source),
    )


def _nvml(code: int) -> Iterator[str]:
    entry = nvml_codes.code(code)
    yield f"NVML return {code}  {entry.severity}  {entry.name}"
    yield from _texts(
        ("meaning", entry.say),
        ("action", "" if entry.action is Action.NONE else _words(entry.action)),
        ("source", nvml_codes.SOURCE),
    )


def _short(product: Product) -> str:
    ids = ", ".join(product.pci_ids)
    return f"PCI id {ids}, {product.mem_gb:g} GB, {product.tdp_w:g} W, {_links(product)}"


def _links(product: Product) -> str:
    if not product.nvlink_links:
        return "no NVLink"
    bridge = " where bridged" if product.nvlink_bridge else ""
    return f"{product.nvlink_links} NVLinks x {product.nvlink_gb_s:g} GB/s{bridge}"


def _product(product: Product) -> Iterator[str]:
    yield f"{product.name}  PCI id {', '.join(product.pci_ids)}  {product.form}"
    yield from _texts(
        ("NVML name", ", ".join(product.nvml_names)),
        ("memory", f"{product.mem_gb:g} GB, {product.mem_bw_gb_s:g} GB/s"),
        ("power", f"{product.tdp_w:g} W default limit"),
        ("peak", _peak(product)),
        ("NVLink", _nvlink(product)),
        ("PCIe", f"Gen{product.pcie_gen} x{product.pcie_width}" if product.pcie_gen else ""),
        ("all-reduce", _known(product.allreduce_floor_gb_s, "GB/s busbw on 8 GPUs, large sizes")),
        ("NVLS, ring", _pair(product.allreduce_nvls_gb_s, product.allreduce_ring_gb_s)),
        ("GEMM", _pair(product.gemm_bf16_tflops, product.gemm_fp8_tflops, "TFLOPS bf16, fp8")),
        ("HBM copy", _known(product.mem_copy_floor_gb_s, "GB/s at least")),
        ("peer copy", _known(product.p2p_floor_gb_s, "GB/s at least, one way")),
        ("slowdown", _known(product.temp_slowdown_c, "C core")),
        ("memory max", _known(product.mem_temp_max_c, "C")),
        ("verified", "yes" if product.verified else "no: a figure of a sheet that was not read"),
        ("source", product.source),
    )


def _known(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value:g} {unit}"


def _pair(one: float | None, other: float | None, unit: str = "GB/s busbw usual") -> str:
    if one is None and other is None:
        return ""
    return ", ".join("-" if value is None else f"{value:g}" for value in (one, other)) + f" {unit}"


def _peak(product: Product) -> str:
    peaks = {
        "bf16": product.bf16_tflops, "fp16": product.fp16_tflops, "fp8": product.fp8_tflops,
    }  # fmt: skip
    shown = [f"{name} {value:g}" for name, value in peaks.items() if value is not None]
    return f"{', '.join(shown)} TFLOPS dense" if shown else ""


def _nvlink(product: Product) -> str:
    if not product.nvlink_links:
        return "none"
    rate = f"; NVML shows {product.nvlink_mbps} MB/s" if product.nvlink_mbps else ""
    return f"gen {product.nvlink_gen}, {_links(product)} each way{rate}"


def _words(action: str) -> str:
    return action.replace("_", " ")


def _texts(*pairs: tuple[str, str]) -> Iterator[str]:
    """Label and text of each pair that has a text."""
    for label, text in pairs:
        if text:
            yield from _wrapped(f"  {label:<{LABEL - 2}}", text)


def _wrapped(lead: str, text: str) -> list[str]:
    indent = " " * min(len(lead), WIDTH // 2)
    return textwrap.wrap(
        text, WIDTH, initial_indent=lead, subsequent_indent=indent, break_on_hyphens=False
    ) or [lead.rstrip()]
