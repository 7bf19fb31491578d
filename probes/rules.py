"""Limits, Xid meanings and hardware facts: data with a source each, overlaid by the site's file.

The packaged figures are `probes/data/{thresholds,hardware,xid,sxid,drift}.yaml`. A site's overlay
is one file with the same top-level names; what it sets wins and says so in its `source`. It may
also say what nodes of a role and GPUs of a product have (`roles`, `products`: expectations.py).
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

import msgspec
import yaml
from msgspec import Struct

from inventory.marked import Problems, compose, items
from inventory.nearest import nearest
from probes import expectations
from probes.event import Action, Severity
from probes.expectations import Counts, Expectations
from probes.rules_file import MAX_CODE, SECTIONS, Entry, codes, section, shown, unknown

DATA = Path(__file__).parent / "data"

Form: TypeAlias = Literal["sxm", "pcie", "superchip"]
XidKind: TypeAlias = Literal["hw", "fabric", "app", "drv", "meta", "follow-up"]


class Limit(Struct, frozen=True, kw_only=True):
    """One figure a check compares with."""

    name: str
    """Dotted, domain first: "ib.symbol_error_per_s"."""
    value: float
    unit: str
    """Of `value`; "ratio" and "share" run from 0 to 1."""
    source: str
    """Who says so; the overlay's file and line when the site set it."""
    help: str = ""
    """What is compared with it, in one sentence."""


class Product(Struct, frozen=True, kw_only=True):
    """One GPU product as its maker describes it."""

    name: str
    """Key in hardware.yaml: "H100-SXM5-80"."""
    pci_ids: tuple[str, ...]
    """PCI device ids, four lower-case hex digits."""
    nvml_names: tuple[str, ...] = ()
    """Names as NVML reports them, for a GPU whose PCI id is new."""
    form: Form
    mem_gb: float
    """Memory on the label, GB; what NVML reports is lower."""
    mem_bw_gb_s: float
    """Peak memory bandwidth."""
    tdp_w: float
    """Default power limit."""
    bf16_tflops: float | None = None
    """Dense peak; None where the product has no bf16."""
    fp16_tflops: float | None = None
    fp8_tflops: float | None = None
    nvlink_gen: int = 0
    nvlink_links: int = 0
    """0 for a card without NVLink."""
    nvlink_gb_s: float = 0.0
    """Payload per link per direction."""
    nvlink_mbps: int | None = None
    """Signalling rate per link as NVML reports it, MB/s; None when it was not read."""
    nvlink_bridge: bool = False
    """Links exist only where a bridge joins cards: none up is not a fault."""
    pcie_gen: int | None = None
    """None where the GPU hangs on C2C and PCIe says little."""
    pcie_width: int | None = None
    allreduce_floor_gb_s: float | None = None
    """busbw that a healthy node of 8 reaches at large sizes; None without a figure."""
    gemm_bf16_tflops: float | None = None
    """Reached by healthy cards at their best shape; None without a figure, as all that follow."""
    gemm_fp8_tflops: float | None = None
    mem_copy_floor_gb_s: float | None = None
    """Pass mark of a memory test, read and written bytes."""
    allreduce_nvls_gb_s: float | None = None
    """busbw usual in a healthy node of 8, with NVLS."""
    allreduce_ring_gb_s: float | None = None
    """The same as a ring."""
    p2p_floor_gb_s: float | None = None
    """Pass mark of a copy from one GPU to another, one way."""
    temp_slowdown_c: float | None = None
    """Core temperature where clocks drop; None means read the margin from the device."""
    mem_temp_max_c: float | None = None
    verified: bool
    """False when any figure is a vendor's sheet that was not read."""
    source: str


class XidMeaning(Struct, frozen=True, kw_only=True):
    """What an Xid (GPU) or SXid (NVSwitch) code says and asks for."""

    code: int
    name: str
    kind: XidKind
    severity: Severity
    action: Action
    cause: str
    next_step: str
    source: str
    hard: bool
    """Hardware evidence: the finding latches."""
    others: str = ""
    """What other tools do with it."""
    example: str = ""
    """One line as it looks in the field; CODE stands for the number."""


class Rules(Struct, frozen=True, kw_only=True):
    """Everything the checks look up."""

    limits: dict[str, Limit]
    products: dict[str, Product]
    xids: dict[int, XidMeaning]
    sxids: dict[int, XidMeaning]
    drift: dict[str, Counts] = {}
    """Fact -> what it counts when a node differs from its role."""
    roles: dict[str, Expectations] = {}
    """Role -> what the site says its nodes have."""
    expected: dict[str, Expectations] = {}
    """Product -> what the site says its GPUs have."""
    overlay: str = ""
    """Path of the site's file; "" when there is none."""

    def limit(self, name: str) -> Limit:
        """The limit of that name. KeyError is a programming error: tests look all of them up."""
        return self.limits[name]

    def product(self, pci_device_id: str | None, name: str | None = None) -> Product | None:
        """By PCI device id ("2330"), then by key or NVML name; None when the catalogue lacks it."""
        wanted = (pci_device_id or "").lower().removeprefix("0x")
        for product in self.products.values():
            if wanted and wanted in product.pci_ids:
                return product
        said = (name or "").lower()
        for product in self.products.values():
            known = (product.name, *product.nvml_names)
            if said and said in (entry.lower() for entry in known):
                return product
        return None


_T = TypeVar("_T", Limit, Product, XidMeaning, Counts)


EXPECTATIONS = ("roles", "products")
"""Sections of an overlay that have no packaged counterpart."""


def load_rules(overlay: Path | None = None) -> Rules:
    """The packaged rules with the site's overlay on top.

    Raises UsageError with file:line and the nearest valid key for anything the overlay has that
    the rules do not know. The packaged rules alone are read once a process.
    """
    if overlay is None:
        return _packaged()
    problems = Problems(overlay)
    root = compose(overlay, problems)
    builder = _Builder(_packaged(), problems, site=True)
    if root is not None:
        for key, value in items(root, "the overlay", problems):
            if key.value in SECTIONS:
                builder.take(key.value, value)
            elif key.value not in EXPECTATIONS:
                unknown(key, "unknown section", [*SECTIONS, *EXPECTATIONS], problems)
        builder.expect(root)
    problems.finish()
    return builder.rules(str(overlay))


@functools.cache
def _packaged() -> Rules:
    empty = Rules(limits={}, products={}, xids={}, sxids={})
    for name in SECTIONS:
        path = DATA / f"{name}.yaml"
        problems = Problems(path)
        root = compose(path, problems)
        builder = _Builder(empty, problems, site=False)
        if root is not None:
            builder.take(name, root)
        problems.finish()
        empty = builder.rules()
    return empty


@functools.cache
def _required(kind: type[Struct]) -> frozenset[str]:
    """Fields without a default; msgspec resolves every annotation to tell, so once a kind."""
    return frozenset(f.name for f in msgspec.structs.fields(kind) if f.required)


class _Builder:
    """Rules as they were, with one file's entries on top."""

    def __init__(self, before: Rules, problems: Problems, *, site: bool) -> None:
        """`site`: the file is an overlay, which may leave fields out and cannot invent limits."""
        self.limits = dict(before.limits)
        self.products = dict(before.products)
        self.xids = dict(before.xids)
        self.sxids = dict(before.sxids)
        self.drift = dict(before.drift)
        self.expected: dict[str, dict[str, Expectations]] = {"roles": {}, "products": {}}
        self.problems = problems
        self.site = site

    def rules(self, overlay: str = "") -> Rules:
        """What has been built."""
        return Rules(
            limits=self.limits, products=self.products, xids=self.xids, sxids=self.sxids,
            drift=self.drift, roles=self.expected["roles"], expected=self.expected["products"],
            overlay=overlay,
        )  # fmt: skip

    def take(self, name: str, node: yaml.Node) -> None:
        """Add one section."""
        seen: set[int] = set()
        for key, entry in section(node, name, self.problems):
            if name == "thresholds":
                self._limit(key, entry)
            elif name == "hardware":
                self._product(key, entry)
            elif name == "drift":
                self._counts(key, entry)
            else:
                self._meanings(self.xids if name == "xid" else self.sxids, entry, seen)

    def expect(self, root: yaml.Node) -> None:
        """The sections of EXPECTATIONS, after all others: the file may bring its own product."""
        pairs = root.value if isinstance(root, yaml.MappingNode) else []
        for key, value in pairs:
            if key.value in EXPECTATIONS:
                found = expectations.read(value, key.value, self.products, self.problems)
                self.expected[key.value] = dict(found)

    def _counts(self, name: str, entry: Entry) -> None:
        old = self.drift.get(name)
        if self.site and old is None:
            unknown(entry.key, "no fact is called", self.drift, self.problems)
            return
        counts = self._build(
            Counts, entry, old, f"packaged: {old.source}" if old else "", name=name
        )
        if counts is not None:
            self.drift[name] = counts

    def _limit(self, name: str, entry: Entry) -> None:
        old = self.limits.get(name)
        if self.site and old is None:
            unknown(entry.key, "no limit is called", self.limits, self.problems)
            return
        unit = entry.values.get("unit")
        if old is not None and unit not in (None, old.unit):
            self.problems.add(entry.key, f"{name} is in {old.unit}, not {unit}", "convert it")
            return
        kept = f"packaged {old.value:g}: {old.source}" if old else ""
        limit = self._build(Limit, entry, old, kept, name=name)
        if limit is None:
            return
        if limit.unit in ("ratio", "share") and not 0 <= limit.value <= 1:
            self.problems.add(entry.key, f"{name} is {limit.value:g}", "a fraction from 0 to 1")
        self.limits[name] = limit

    def _product(self, name: str, entry: Entry) -> None:
        old = self.products.get(name)
        kept = f"packaged: {old.source}" if old else ""
        product = self._build(Product, entry, old, kept, name=name)
        if product is None:
            return
        for other in self.products.values():
            for shared in set(product.pci_ids) & set(other.pci_ids):
                if other.name != name:
                    self.problems.add(entry.key, f"PCI id {shared} is {other.name}'s already")
        self.products[name] = product

    def _meanings(self, table: dict[int, XidMeaning], entry: Entry, seen: set[int]) -> None:
        for code in codes(entry.key, self.problems):
            if code > MAX_CODE or code in seen:
                self.problems.add(entry.key, f"code {code} again", "keep one of them")
                continue
            seen.add(code)
            old = table.get(code)
            kept = f"packaged: {old.source}" if old else ""
            meaning = self._build(XidMeaning, entry, old, kept, code=code)
            if meaning is None:
                return
            table[code] = meaning

    def _build(
        self, kind: type[_T], entry: Entry, old: _T | None, kept: str, **fixed: object
    ) -> _T | None:
        values = msgspec.structs.asdict(old) if old is not None else {}
        values |= entry.values | fixed
        if self.site:
            stated = entry.values.get("source", "set by the site")
            place = f"{self.problems.path}:{entry.line}: {stated}"
            values["source"] = f"{place} ({kept})" if kept else place
        missing = sorted(_required(kind) - values.keys())
        if not missing:
            return kind(**values)
        name = shown(entry.key)
        close = nearest(name, self.products) if kind is Product else ""
        hint = f"; {close}" if close.startswith("did you mean") else ""
        self.problems.add(entry.key, f"{name} lacks {', '.join(missing)}", f"add them{hint}")
        return None
