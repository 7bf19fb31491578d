"""Trees of /sys/class/infiniband as dumps have them, and the ports in them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct, field

from console.diagnose.ib_ports import PORTS, Port, layer_of, lid_of
from console.diagnose.perfquery import stamp
from console.diagnose.text import Text

EFA = "1d0f"
EFA_COUNTERS = ("retrans_timeout_events", "unresponsive_remote_events")
_PORT_FILE = re.compile(r"([\w.-]{1,64})/ports/(\d{1,3})/(.{1,200})$")
_GREP = re.compile(r"\S*/infiniband/([\w./,:-]{3,260}?):(.{0,400})$")
_HEADED = re.compile(r"==> \S*/infiniband/([\w./,-]{3,260}) <==$")
FILES = 100_000


class Tree(Struct):
    """One node's files below /sys/class/infiniband, and what its dump knows besides."""

    files: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    vendors: dict[str, str] = field(default_factory=dict)
    physfn: dict[str, str] = field(default_factory=dict)
    pods: list[str] = field(default_factory=list)
    node: str = ""
    at: float | None = None
    """When it was read, where the dump says so; only differences are used."""


def printed(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Files of `grep . FILES` and `head FILES`."""
    open_ = ""
    for line in lines:
        headed = _HEADED.match(line.strip())
        if headed is not None:
            open_ = headed[1]
            continue
        grep = _GREP.match(line.strip())
        if grep is not None:
            open_ = ""
            yield grep[1], grep[2].strip()
        elif open_ and line.strip():
            yield open_, line.strip()
            open_ = ""


def trees(text: Text) -> list[Tree]:
    """JSON dumps, else what grep printed."""
    whole = text.whole()
    found = [
        tree for document in text.documents()
        if isinstance(document, dict) and isinstance(document.get("files"), dict)
        for tree in _in_time(document, text.host)
    ]  # fmt: skip
    if found:
        return found
    files = dict(printed([line[:1000] for line in whole.split("\n")[:FILES]]))
    return [Tree(files=files, node=text.host)] if files else []


def _in_time(document: dict[str, Any], host: str) -> Iterator[Tree]:
    """A dump, after an older one that it may carry as `previous`."""
    now = _tree(document, host)
    older = document.get("previous")
    if isinstance(older, dict):
        files = older.get("files") if isinstance(older.get("files"), dict) else older
        before = _tree({**document, **older, "files": files}, host)
        apart = document.get("interval_s", document.get("elapsed_s"))
        if isinstance(apart, int | float) and not isinstance(apart, bool) and 0 < apart < 1e9:
            before.at, now.at = 0.0, float(apart)
        elif "at" not in older and "time" not in older:
            before.at = None
        yield before
    yield now


def _tree(document: dict[str, Any], host: str) -> Tree:
    return Tree(
        files=_texts(document.get("files")), errors=_texts(document.get("read_errors")),
        vendors=_texts(document.get("vendor_ids")), physfn=_texts(document.get("physfn")),
        pods=[str(name) for name in document.get("in_use_by_pod") or ()][:PORTS]
        if isinstance(document.get("in_use_by_pod"), list) else [],
        node=str(document.get("node") or document.get("host") or host)[:120],
        at=_moment(document.get("at") or document.get("time")),
    )  # fmt: skip


def _moment(raw: Any) -> float | None:
    if isinstance(raw, int | float) and not isinstance(raw, bool):
        return float(raw) if abs(raw) < 1e12 else None
    return stamp(raw[:80]) if isinstance(raw, str) else None


def _texts(raw: Any) -> dict[str, str]:
    if not isinstance(raw, dict):
        return {}
    return {str(k)[:300]: str(v)[:400] for k, v in list(raw.items())[:FILES]}


def ports_of(tree: Tree) -> list[Port]:
    """Every port as the live probe sees it."""
    found: dict[str, Port] = {}
    for path, text in tree.files.items():
        match = _PORT_FILE.match(path)
        if match is None:
            continue
        key = f"{match[1]}/{match[2]}"
        if key not in found and len(found) >= PORTS:
            continue
        port = found.setdefault(key, Port(device=match[1], port=int(match[2])))
        _file(port, match[3], text)
    for port in found.values():
        _device(tree, port)
    _device_counters(tree, found)
    return list(found.values())


def _file(port: Port, name: str, text: str) -> None:
    """One file of a port."""
    line = f"{port.name} {name}: {text}"
    if name == "state":
        port.state = text
        port.lines.append(line)
    elif name == "phys_state":
        port.physical = re.sub(r"^\d+:\s*", "", text)
        port.lines.append(line)
    elif name == "rate":
        port.rate = text
    elif name == "link_layer":
        port.layer = layer_of(text)
    elif name == "lid":
        port.lid = lid_of(text)
    elif name == "sm_lid":
        port.sm_lid = lid_of(text)
    elif name.startswith(("counters/", "hw_counters/")):
        _counter(port, name, text)


def _counter(port: Port, name: str, text: str) -> None:
    """A number, or text in its place: "N/A (no PMA)" is neither zero nor an error."""
    kind, _, counter = name.partition("/")
    if text.isdigit() and len(text) <= 20 and counter != "lifespan":
        port.counters[counter] = int(text)
        numbers = port.extra.setdefault("_numbers", {})
        numbers[kind] = numbers.get(kind, 0) + 1
    elif counter != "lifespan":
        port.extra["_no_number"] = port.extra.get("_no_number", 0) + 1


def _device(tree: Tree, port: Port) -> None:
    """What belongs to the whole adapter."""
    name = port.device
    port.hca = tree.files.get(f"{name}/hca_type", "")
    port.firmware = tree.files.get(f"{name}/fw_ver", "")
    port.image = tree.files.get(f"{name}/sys_image_guid", "")
    port.guid = tree.files.get(f"{name}/node_guid", "")
    vendor = tree.vendors.get(name, "").lower().removeprefix("0x")
    if not vendor and any(counter in port.counters for counter in EFA_COUNTERS):
        vendor = EFA
    if vendor:
        port.extra["vendor"] = vendor
    port.extra["is_vf"] = _is_vf(tree, name)
    if port.extra["is_vf"] and name in tree.pods:
        port.extra["vf_in_use"] = True
    port.extra["bond"] = "bond" in name


def _is_vf(tree: Tree, name: str) -> bool:
    """As the dump says, else by the kernel's names: ibp24s0v2 beside ibp24s0."""
    if tree.physfn:
        return name in tree.physfn
    parent = re.match(r"(.+?)v\d+$", name)
    return parent is not None and any(path.startswith(f"{parent[1]}/") for path in tree.files)


def _device_counters(tree: Tree, found: dict[str, Port]) -> None:
    """Counters of the whole device (hfi1); their names may hold commas."""
    for path, text in tree.files.items():
        name, _, rest = path.partition("/")
        if rest.startswith("hw_counters/") and text.isdigit() and len(text) <= 20:
            first = next((port for port in found.values() if port.device == name), None)
            if first is not None:
                counters = first.extra.setdefault("_device_counters", {})
                counters[rest.partition("/")[2]] = int(text)
