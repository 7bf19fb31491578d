"""States of RDMA ports: ibstat, ibstatus, ibv_devinfo, ibdev2netdev, rdma link, bare lists. Pure.

A tool may die half way through (ibpanic, or ibwarn in newer releases): blocks before that are good.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct, field

from console.diagnose.ib_ports import PORTS, Port, layer_of, lid_of

_CA = re.compile(r"CA:?\s+'([\w.-]{1,64})'\s*$")
_PORT = re.compile(r"\s*Port (\d{1,3}):\s*$")
_PAIR = re.compile(r"\s*([A-Za-z][\w ./-]{0,40}?)\s*:\s*(\S.*?)\s*$")
_STATUS = re.compile(r"Infiniband device '([\w.-]{1,64})' port (\d{1,3}) status:\s*$")
_DEVINFO = re.compile(r"hca_id:\s*([\w.-]{1,64})\s*$")
_DEVPORT = re.compile(r"\s*port:\s*(\d{1,3})\s*$")
_NETDEV = re.compile(
    r"(?:\S+ )?([A-Za-z][\w.-]{1,63}) (?:.{0,200} )?port (\d{1,3}) (?:\((\w+)\s*\) )?==> "
    r"(\S{1,40}) \((\w+)\)\s*$"
)
_RDMA = re.compile(r"(?:link |\d+/\d+: )([\w.-]{1,64})/(\d{1,3}):? (.*\bstate \w+.*)$")
_BARE = re.compile(
    r"([A-Za-z][\w.-]{1,63})(?:/(\d{1,3}))?\s+(?:\d: ?)?(ACTIVE|DOWN|INIT|ARMED)\s+(?:\d: ?)?(\w+)"
    r"(?:\s+(InfiniBand|Ethernet|IB|Unknown|Unspecified))?\s*$"
)
_STAT_FAILED = re.compile(
    r"(?:stat of IB device|can't (?:open|get)|ca_name) '?([A-Za-z][\w.-]{1,63})'? failed"
)
_PANIC = re.compile(r"\b(ibpanic|ibwarn|iberror)\b: ?\[\d+\] (.{0,300})$")
_DEVICE_NAME = re.compile(
    r"(?:mlx|ib|roce|rdma|bnxt|hfi|irdma|efa|cxgb|qedr|erdma|siw|rxe|rocep)\S*$"
)

ABSENT = (
    (re.compile(r"\b(?:ibstat|ibstatus|ibv_devinfo|ibdev2netdev|perfquery|iblinkinfo|"
                r"ibqueryerrors|rdma|mlxlink)\b[^\n]{0,20}(?:command )?not found"), "tool_missing"),
    (re.compile(r"can'?t list IB device names"), "no_devices"),
    (re.compile(r"No IB devices found|Fatal error:\s+No devices|no (?:RDMA|IB) devices"),
     "no_devices"),
    (re.compile(r"can'?t (?:init UMAD library|open UMAD)|umad_init(?: failed|:)"),
     "umad_missing"),
    (re.compile(r"Failed to get IB devices list: Function not implemented"), "uverbs_missing"),
    (re.compile(r"Permission denied|must be root|Operation not permitted"), "no_permission"),
    (re.compile(r"Failed to open .{0,60} port|Can'?t find a local IB port|no UMAD agent"),
     "no_port"),
    (re.compile(r"Query SA failed|sa call \w+ failed|iberror: failed: query"), "manager_silent"),
    (re.compile(r"mad_rpc: _do_madrpc failed"), "manager_silent"),
)  # fmt: skip
"""What stands in place of a list, and its name in facts."""


LINE_CHARS = 500


class Seen(Struct):
    """What one node's tools said."""

    ports: dict[str, Port] = field(default_factory=dict)
    vanished: list[str] = field(default_factory=list)
    absent: str = ""
    """Why there is no list at all; "" when there is one."""
    complete: bool = True
    died: bool = False
    """ibpanic ended the tool: its exit status is 255."""
    lines: list[str] = field(default_factory=list)
    """The sentences of trouble."""
    netdevs: bool = False

    def port(self, device: str, number: int) -> Port:
        """Known or new."""
        key = f"{device}/{number}"
        if key not in self.ports and len(self.ports) >= PORTS:
            return Port(device=device, port=number)
        return self.ports.setdefault(key, Port(device=device, port=number))


class _Block(Struct):
    """What the lines at hand belong to."""

    kind: str = ""
    device: str = ""
    port: Port | None = None
    card: dict[str, str] = field(default_factory=dict)


def parse(lines: Iterable[str]) -> Seen:
    """Every list in these lines; the same port in two of them is one."""
    seen, block = Seen(), _Block()
    for line in lines:
        if not line.strip() or len(line) > LINE_CHARS:
            continue
        if _trouble(seen, line):
            continue
        if not _opens(seen, block, line) and not _single(seen, line):
            _detail(block, line)
    return seen


def _trouble(seen: Seen, line: str) -> bool:
    """Sentences of a tool that fails, wholly or for one device."""
    vanished = _STAT_FAILED.search(line)
    panic = _PANIC.search(line)
    if vanished is not None and (panic is not None or "failed" in line):
        if vanished[1] not in seen.vanished and len(seen.vanished) < PORTS:
            seen.vanished.append(vanished[1])
        seen.complete = False
        seen.died = seen.died or (panic is not None and panic[1] == "ibpanic")
        seen.lines.append(line.strip())
        return True
    for pattern, name in ABSENT:
        if pattern.search(line):
            seen.absent = seen.absent or name
            seen.lines.append(line.strip())
            return True
    if panic is not None:
        seen.complete = False
        seen.died = seen.died or panic[1] == "ibpanic"
        seen.lines.append(line.strip())
        return True
    return False


def _opens(seen: Seen, block: _Block, line: str) -> bool:
    """Headings of devices and ports."""
    for kind, pattern in (("ibstat", _CA), ("devinfo", _DEVINFO)):
        match = pattern.match(line.strip())
        if match is not None:
            block.kind, block.device, block.port, block.card = kind, match[1], None, {}
            return True
    status = _STATUS.match(line.strip())
    if status is not None:
        block.kind, block.device, block.card = "ibstatus", status[1], {}
        block.port = seen.port(status[1], int(status[2]))
        return True
    match = _PORT.match(line) if block.kind == "ibstat" else (
        _DEVPORT.match(line) if block.kind == "devinfo" else None
    )  # fmt: skip
    if match is None or not block.device:
        return False
    block.port = seen.port(block.device, int(match[1]))
    for name, text in block.card.items():
        _put(block.port, name, text)
    return True


def _single(seen: Seen, line: str) -> bool:
    """Formats of one line a port."""
    text = line.strip()
    found = _NETDEV.match(text)
    if found is not None:
        port = seen.port(found[1], int(found[2]))
        port.netdev, port.netdev_up, seen.netdevs = found[4], found[5].lower() == "up", True
        if found[3]:
            port.state = found[3]
        port.lines.append(text)
        return True
    rdma = _RDMA.match(text)
    if rdma is not None:
        words = rdma[3].split()
        told = dict(zip(words[::2], words[1::2], strict=False))
        port = seen.port(rdma[1], int(rdma[2]))
        port.state = told.get("state", "")
        port.physical = told.get("physical_state", "").title().replace("_", "")
        port.netdev = told.get("netdev", port.netdev)
        port.lid = lid_of(told.get("lid", "")) if "lid" in told else port.lid
        port.sm_lid = lid_of(told.get("sm_lid", "")) if "sm_lid" in told else port.sm_lid
        port.lines.append(text)
        return True
    bare = _BARE.match(text)
    if bare is None or not _DEVICE_NAME.match(bare[1]):
        return False
    port = seen.port(bare[1], int(bare[2] or 1))
    port.state, port.physical = bare[3], bare[4]
    port.layer = layer_of(bare[5]) if bare[5] else port.layer
    port.lines.append(text)
    return True


def _detail(block: _Block, line: str) -> None:
    """A key and its value inside a device or a port."""
    pair = _PAIR.match(line)
    if pair is None or not block.device:
        return
    name, text = pair[1].strip().lower(), pair[2]
    if block.port is None:
        if len(block.card) < 64:
            block.card[name] = text
    else:
        _put(block.port, name, text)
        if name in ("state", "physical state", "phys state", "phys_state"):
            block.port.lines.append(line.strip())


_TEXTS = {
    "state": "state", "physical state": "physical", "phys state": "physical",
    "phys_state": "physical", "rate": "rate", "ca type": "hca", "firmware version": "firmware",
    "fw_ver": "firmware", "port guid": "guid", "node guid": "guid", "node_guid": "guid",
    "system image guid": "image", "sys_image_guid": "image",
}  # fmt: skip


def _put(port: Port, name: str, text: str) -> None:
    if name in _TEXTS:
        value = text
        if name in ("physical state", "phys state", "phys_state"):
            value = re.sub(r"^\d+:\s*|\s*\(\d+\)$", "", text).title().replace("_", "")
            value = {"Linkup": "LinkUp"}.get(value, value)
        setattr(port, _TEXTS[name], value[:120])
    elif name in ("link layer", "link_layer"):
        port.layer = layer_of(text)
    elif name in ("base lid", "port_lid"):
        port.lid = lid_of(text)
    elif name in ("sm lid", "sm_lid"):
        port.sm_lid = lid_of(text)


def looks(head: str) -> bool:
    """Whether a text holds any of these."""
    seen = parse(head.split("\n", 600)[:600])
    return bool(seen.ports or seen.vanished or seen.absent)
