"""kubectl's tables and descriptions: what people paste when they do not ask for JSON."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct, field

from console.diagnose.kube_objects import GPU, quantity

ROWS = 50_000
NODES = re.compile(r"^[ \t]*NAME +STATUS +ROLES +AGE +VERSION", re.MULTILINE)
PODS = re.compile(r"^[ \t]*(?:NAMESPACE +)?NAME +READY +STATUS +RESTARTS +AGE", re.MULTILINE)
DESCRIBED = re.compile(r"^Name: +\S+\s*$(?s:.{0,20000}?)^(?:Taints|Conditions|Allocatable|Node): *",
                       re.MULTILINE)  # fmt: skip
SCHEDULING = re.compile(r"(\d+/\d+ nodes are available: .*)")
EVENTS = re.compile(r"^[ \t]*(?:NAMESPACE +)?LAST SEEN +TYPE +REASON +OBJECT", re.MULTILINE)
BUDGETS = re.compile(r"^[ \t]*(?:NAMESPACE +)?NAME +MIN AVAILABLE +MAX UNAVAILABLE", re.MULTILINE)
RUNTIME = re.compile(r"(nvidia-container-cli: .{1,160}|could not select device driver .{1,120})")
UNHEALTHY = re.compile(
    r"XidCriticalError: Xid=(?P<xid>\d{1,4}) on Device=(?P<gpu>[\w-]{4,60})"
    r"|'(?P<resource>(?:nvidia|amd)\.com/\S{1,40})' device marked unhealthy: "
    r"(?P<marked>[\w-]{4,60})"
)
"""Lines of the device plugin's log."""
ALLOCATE = re.compile(r"Allocate failed.*?(?:nvidia|amd)\.com/\S+.*", re.IGNORECASE)


class NodeRow(Struct):
    """A node as a table or a description tells it."""

    name: str
    ready: str = ""
    """True, False, Unknown, or "" when it is not told."""
    cordoned: bool = False
    capacity: int | None = None
    allocatable: int | None = None
    resource: bool = False
    """Whether capacity was told at all."""
    label_gpus: int | None = None
    taints: list[str] = field(default_factory=list)
    conditions: list[tuple[str, str]] = field(default_factory=list)
    """(condition, reason and message) of those that tell of a problem."""
    line: str = ""
    plugin: str = ""
    """What the label of the GPU operator says about the device plugin: "false" is on purpose."""


class PodRow(Struct):
    """A pod as a table tells it."""

    name: str
    namespace: str
    ready: str
    status: str
    restarts: int
    node: str
    line: str


class Tables(Struct):
    """All of one text."""

    nodes: dict[str, NodeRow] = field(default_factory=dict)
    pods: list[PodRow] = field(default_factory=list)
    scheduling: list[str] = field(default_factory=list)
    allocate: list[str] = field(default_factory=list)
    budgets: list[dict[str, str]] = field(default_factory=list)
    """Rows of `kubectl get pdb` by the names of their columns."""


def read(lines: list[str]) -> Tables:
    """Tables by the names of their columns, descriptions by their words."""
    found = Tables()
    columns: list[str] = []
    described = _Description(found)
    for line in lines[:ROWS]:
        if scheduling := SCHEDULING.search(line):
            _keep(found.scheduling, scheduling[1])
        if allocate := ALLOCATE.search(line):
            _keep(found.allocate, allocate[0])
        if NODES.match(line) or PODS.match(line) or BUDGETS.match(line):
            columns = _TWO_WORDS.sub(r"\1_\2", line).split()
            described.close()
        elif not line.strip():
            columns = []
        elif columns:
            _row(line, columns, found)
        else:
            described.feed(line)
    return found


_TWO_WORDS = re.compile(r"\b(NOMINATED|READINESS|MIN|MAX) (NODE|GATES|AVAILABLE|UNAVAILABLE)\b")
"""Names of columns that hold a blank."""


def _keep(kept: list[str], text: str) -> None:
    if len(kept) < 100 and text not in kept:
        kept.append(text)


def _row(line: str, columns: list[str], found: Tables) -> None:
    # "12 (3m ago)" is one column: RESTARTS.
    cells = re.sub(r"(\d+) \(([^)]*)\)", r"\1", line).split()
    if len(cells) < 4:
        return
    told = dict(zip(columns, cells, strict=False))
    if "ALLOWED" in told:
        found.budgets.append(told)
        return
    if "ROLES" in told:
        words = told.get("STATUS", "").split(",")
        ready = {"Ready": "True", "NotReady": "False"}.get(words[0], "Unknown")
        cordoned = "SchedulingDisabled" in words
        found.nodes[told["NAME"]] = NodeRow(
            name=told["NAME"], ready=ready, cordoned=cordoned, line=line.strip()
        )
    elif "READY" in told:
        restarts = told.get("RESTARTS", "")
        found.pods.append(PodRow(
            name=told["NAME"], namespace=told.get("NAMESPACE", ""), ready=told["READY"],
            status=told.get("STATUS", ""),
            restarts=int(restarts[:9]) if restarts.isdecimal() else 0,
            node=told.get("NODE", ""), line=line.strip(),
        ))  # fmt: skip


_CONDITION = re.compile(r"^\s+(?P<type>[A-Z]\w+)\s+(?P<status>True|False|Unknown)\s+(?P<rest>.*)$")
_RESOURCE = re.compile(r"^\s+(?P<name>\S+):\s+(?P<value>\d+)\s*$")
_STAMPS = re.compile(r"(?:\w{3}, )?\d{2} \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}\s*")


class _Description:
    """`kubectl describe node`, line by line."""

    def __init__(self, found: Tables) -> None:
        self.found = found
        self.node: NodeRow | None = None
        self.part = ""

    def close(self) -> None:
        """What follows is something else."""
        self.node = None

    def feed(self, line: str) -> None:
        """One line."""
        if match := re.match(r"^Name:\s+(\S+)\s*$", line):
            self.node = NodeRow(name=match[1], line=line.strip())
            self.part = "head"
            return
        if self.node is None:
            return
        if match := re.match(r"^(\w[\w ]*):\s*(.*)$", line):
            self.part = match[1]
            self._head(match[1], match[2])
        elif self.part == "Conditions":
            self._condition(line)
        elif self.part in ("Capacity", "Allocatable"):
            self._resource(line)
        elif self.part == "Labels":
            self._label(line)
        elif self.part == "Taints" and ":No" in line:
            self.node.taints.append(line.strip())

    def _head(self, name: str, value: str) -> None:
        assert self.node is not None
        if name in ("Roles", "Taints", "Unschedulable", "Capacity"):
            # Pods have a Name: too; only nodes have these.
            self.found.nodes[self.node.name] = self.node
        if name == "Taints" and ":No" in value:
            self.node.taints.append(value.strip())
        if name == "Unschedulable":
            self.node.cordoned = value.strip() == "true"
        if name == "Labels":
            self._label(value)

    def _label(self, line: str) -> None:
        assert self.node is not None
        if match := re.search(r"nvidia\.com/gpu\.count=(\d{1,4})", line):
            self.node.label_gpus = int(match[1])

    def _condition(self, line: str) -> None:
        assert self.node is not None
        match = _CONDITION.match(line)
        if match is None:
            return
        words = _STAMPS.sub("", match["rest"]).strip()
        if match["type"] == "Ready":
            self.node.ready = match["status"]
            self.node.line = f"Ready {match['status']} {words}"
        elif match["status"] == "True":
            self.node.conditions.append((match["type"], words))

    def _resource(self, line: str) -> None:
        assert self.node is not None
        self.node.resource = True
        match = _RESOURCE.match(line)
        if match is None or not GPU.match(match["name"]):
            return
        number = quantity(match["value"])
        if self.part == "Capacity":
            self.node.capacity = (self.node.capacity or 0) + (number or 0)
        else:
            self.node.allocatable = (self.node.allocatable or 0) + (number or 0)


def as_facts(pod: PodRow) -> dict[str, Any]:
    """A pod's row."""
    told = {"status": pod.status, "ready": pod.ready, "restarts": pod.restarts, "node": pod.node}
    return {name: value for name, value in told.items() if value not in ("", 0)}
