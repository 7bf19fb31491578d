"""kubectl's objects and tables: GPUs that nodes offer, pods that hold them, what blocks a drain."""

from __future__ import annotations

import json
import re
from typing import Any

from console import units
from console.diagnose import kube_pods, kube_tables, kube_workloads
from console.diagnose.kube_objects import (
    at,
    dicts,
    from_yaml,
    gpus,
    kind,
    name,
    objects,
    quantity,
    text,
)
from console.diagnose.kube_pods import Usage
from console.diagnose.kube_rules import (
    ADMISSION,
    API,
    BARE,
    CORDONED,
    GPUS,
    NODE_RULES,
    NOT_READY,
    OVER,
    PRESSURE,
)
from console.diagnose.kube_tables import NodeRow
from console.diagnose.report import NO, Report
from console.diagnose.text import Text
from probes.event import Severity

KIND = "kubernetes"
TITLE = "kubectl get nodes, pods, pdb (-o json, yaml, wide), describe node"
STREAMS = False
RULES = NODE_RULES

_JSON = re.compile(
    r'"kind"\s*:\s*"(?:List|Node|NodeList|Pod|PodList|PodDisruptionBudget\w*|Event\w*)"'
)
_BUDGETS = re.compile(r'"disruptionsAllowed"\s*:')
_YAML = re.compile(r"^kind: (?:List|Node|Pod|PodDisruptionBudget)\s*$", re.MULTILINE)
ERROR = re.compile(
    r"^(?:error: You must be logged in|Error from server|Unable to connect to the server|"
    r"The connection to the server|error: (?:context|the server|no configuration)|"
    r'error: \w+ "[^"]+" is forbidden|E\d{4} .*memcache\.go).*',
    re.MULTILINE,
)
_GPU_TAINT = re.compile(r"^(?:nvidia\.com/gpu|amd\.com/gpu|sku|gpu)[=:]")


def sniff(head: str) -> int:
    """By kinds of objects and heads of tables."""
    start = head.lstrip("\ufeff \n\r\t")[:1]
    if start in ("{", "[") and (_JSON.search(head) or _BUDGETS.search(head)):
        return 94
    if kube_tables.NODES.search(head) or kube_tables.PODS.search(head):
        return 92
    if _YAML.search(head) and "metadata:" in head:
        return 90
    if kube_tables.DESCRIBED.search(head):
        return 85
    if kube_tables.EVENTS.search(head) or kube_tables.BUDGETS.search(head):
        return 91
    if kube_tables.UNHEALTHY.search(head) or kube_tables.RUNTIME.search(head):
        return 88
    if kube_tables.SCHEDULING.search(head) or kube_tables.ALLOCATE.search(head):
        return 70
    return 66 if ERROR.search(head) else 0


def read(source: Text) -> Report:
    """Objects where there are some, tables otherwise; both may stand in one text."""
    lines = [line for _, line in source]
    values = source.documents()
    if not values and any(_YAML.match(line) for line in lines[:2000]):
        values = from_yaml("\n".join(lines))
    found = objects(values)
    report = Report(kind=KIND)
    nodes = _nodes(found, values)
    tables = kube_tables.read(lines if not found else [])
    nodes.update(tables.nodes)
    for row in nodes.values():
        _node(row, report)
    pods = [one for one in found if kind(one) == "Pod"]
    _held(pods, nodes, report)
    for pod in pods:
        kube_workloads.judge(kube_workloads.row_of(pod), report)
    for one in tables.pods:
        kube_workloads.judge(one, report)
    kube_workloads.scheduling(tables.scheduling + kube_workloads.messages(pods), report)
    kube_workloads.budgets(found, report)
    kube_workloads.budget_rows(tables.budgets, report)
    kube_workloads.plugin(lines if not found else [], report)
    for line in tables.allocate + [text(p, "status", "message") for p in pods]:
        if kube_tables.ALLOCATE.search(line):
            report.add(ADMISSION, line[:200], line)
    _errors(lines, report)
    if found and _cut(source.whole()):
        report.unknown.append("the end of the list: the document is cut short")
    _close(report, nodes, len(pods) + len(tables.pods))
    return report


def _cut(whole: str) -> bool:
    """Whether the document that the text begins with has no end."""
    start = whole.lstrip("\ufeff \n\r\t")
    if start[:1] not in ("{", "["):
        return False
    try:
        json.JSONDecoder(strict=False).raw_decode(start)
    except (ValueError, RecursionError):
        return True
    return False


def _nodes(found: list[dict[str, Any]], values: list[Any]) -> dict[str, NodeRow]:
    nodes = {name(one): _node_row(one) for one in found if kind(one) == "Node" and name(one)}
    for value in values:
        told = value.get("node") if isinstance(value, dict) else None
        if isinstance(told, dict) and isinstance(told.get("name"), str):
            nodes[told["name"]] = NodeRow(
                name=told["name"], capacity=quantity(told.get("capacity")), resource=True,
                allocatable=quantity(told.get("allocatable")),
            )  # fmt: skip
    return nodes


def _node_row(node: dict[str, Any]) -> NodeRow:
    labels = at(node, "metadata", "labels")
    labels = labels if isinstance(labels, dict) else {}
    conditions = dicts(node, "status", "conditions")
    ready = next((c for c in conditions if c.get("type") == "Ready"), {})
    row = NodeRow(
        name=name(node), ready=text(ready, "status"),
        cordoned=at(node, "spec", "unschedulable") is True,
        capacity=gpus(at(node, "status", "capacity")),
        allocatable=gpus(at(node, "status", "allocatable")),
        resource=at(node, "status", "capacity") is not None,
        label_gpus=quantity(labels.get("nvidia.com/gpu.count")),
        line=f"Ready {text(ready, 'status')} {text(ready, 'reason')}: {text(ready, 'message')}",
    )  # fmt: skip
    row.plugin = text(labels, "nvidia.com/gpu.deploy.device-plugin")
    if row.label_gpus is None and labels.get("nvidia.com/gpu.present") == "true":
        row.label_gpus = 1
    for taint in dicts(node, "spec", "taints"):
        row.taints.append(f"{text(taint, 'key')}={text(taint, 'value')}:{text(taint, 'effect')}")
    for one in conditions:
        if one.get("type") != "Ready" and one.get("status") == "True":
            told = f"{text(one, 'reason')}: {text(one, 'message')}"
            row.conditions.append((text(one, "type"), told))
    return row


def _node(row: NodeRow, report: Report) -> None:
    counts = report.facts.setdefault("gpus", {})
    if row.resource:
        known = row.capacity is not None or row.allocatable is not None
        counts[row.name] = [row.capacity or 0, row.allocatable or 0] if known else None
    if row.ready and row.ready != "True":
        word = "does not report (Unknown)" if row.ready == "Unknown" else "is not ready"
        report.add(NOT_READY, word, row.line, node=row.name)
    for type_, told in row.conditions:
        if type_ == "NetworkUnavailable" or not told.startswith("KubeletHasNo"):
            report.add(PRESSURE, f"reports {type_}: {told}"[:300], f"{type_} True {told}",
                       node=row.name)  # fmt: skip
    _offers(row, report)
    strange = [t for t in row.taints if not _GPU_TAINT.match(t) and "PreferNo" not in t]
    if row.cordoned or any("unschedulable" in taint for taint in strange):
        report.facts.setdefault("cordoned", []).append(row.name)
        report.add(CORDONED, "is cordoned", row.line or "unschedulable", node=row.name)
    other = [t for t in strange if "node.kubernetes.io/" not in t and "control-plane" not in t]
    if other:
        report.add(CORDONED, f"repels pods: taint {', '.join(other[:4])}", *other[:4],
                   node=row.name)  # fmt: skip


def _offers(row: NodeRow, report: Report) -> None:
    capacity, offered = row.capacity, row.allocatable
    if not row.resource:
        return
    told = f"capacity {capacity}, allocatable {offered}, label {row.label_gpus}"
    if capacity is None and offered is None:
        if row.label_gpus:
            off = row.plugin in ("false", "paused-for-mig-change")
            report.add(GPUS, f"has labels of {row.label_gpus} GPUs but no GPU resource "
                       "at all", told, node=row.name, next_step=_PLUGIN,
                       cause="the device plugin does not run or did not register",
                       severity=Severity.INFO if off else None)  # fmt: skip
        return
    should = max(capacity or 0, row.label_gpus or 0)
    offered = offered or 0
    if offered < should:
        number = "none of its" if offered == 0 else f"{offered} of"
        cause = ("the device plugin lost all devices" if offered == 0
                 else f"{should - offered} GPU marked unhealthy (Xid); the plugin does not take it "
                 "back by itself")  # fmt: skip
        report.add(GPUS, f"offers {number} {should} GPUs", told, node=row.name,
                   value=offered, cause=cause)  # fmt: skip


_PLUGIN = "kubectl get pods -A -o wide | grep device-plugin: is one on that node; nvidia-smi there"


def _held(pods: list[dict[str, Any]], nodes: dict[str, NodeRow], report: Report) -> None:
    by_node = kube_pods.usage(pods)
    bound = {node: used for node, used in by_node.items() if node}
    facts = {}
    for node, used in bound.items():
        row = nodes.get(node)
        offered = row.allocatable if row else None
        facts[node] = used.facts(offered)
        _judge_held(node, used, row, report)
    if len(facts) == 1:
        report.facts |= next(iter(facts.values()))
    elif facts:
        report.facts["by_node"] = facts
    if bound and not any(row.allocatable is not None for row in nodes.values()):
        report.unknown.append("how many GPUs are free: kubectl get nodes -o json tells allocatable")


def _judge_held(node: str, used: Usage, row: NodeRow | None, report: Report) -> None:
    offered = row.allocatable if row else None
    if offered is not None and used.held > offered:
        capacity = row.capacity if row else None
        unhealthy = capacity is not None and offered < capacity
        why = f" ({capacity - offered} GPU turned unhealthy under running pods)" if (
            unhealthy and capacity is not None) else ""  # fmt: skip
        told = ", ".join(f"{pod} {count}" for pod, count in list(used.requested.items())[:12])
        report.add(OVER, f"has {used.held} GPUs requested by bound pods while {offered} are "
                   f"allocatable{why}: 0 free", told, node=node, value=used.held)  # fmt: skip
    for pod in used.needs_confirmation[:20]:
        report.add(BARE, f"would lose pod {pod} by a drain: {used.why[pod]}", used.why[pod],
                   node=node)  # fmt: skip


def _errors(lines: list[str], report: Report) -> None:
    for line in lines[:5000]:
        if ERROR.match(line):
            report.add(API, line.strip()[:300], line.strip())
            return


def _close(report: Report, nodes: dict[str, NodeRow], pods: int) -> None:
    """The sentence, the advice, and what only the node itself can tell."""
    if not report.facts.get("gpus"):
        report.facts.pop("gpus", None)
    if any(f.rule == GPUS.id for f in report.findings):
        report.drain = ("unknown: NVML on the node; all GPUs fine: restart the device plugin pod, "
                        "else drain")  # fmt: skip
    if any(f.rule == OVER.id for f in report.findings):
        report.drain = NO
    serious = [f for f in report.findings if f.severity.rank > Severity.INFO.rank]
    told = serious or report.findings
    if told:
        shown = [f"{f.node} {f.say}" if f.node else f.say
                 for f in told[:6]]  # fmt: skip
        bare = [f.say for f in report.findings if f.rule == BARE.id and serious][:2]
        report.say = "; ".join(dict.fromkeys([*shown, *bare]))
    elif nodes or pods:
        fine = f"{units.counted(len(nodes), 'node')} and {units.counted(pods, 'pod')}"
        report.say = f"{fine}, nothing out of order"
    else:
        report.measured = report.facts != {}
        report.say = "no node and no pod in it" if not report.facts else "nothing out of order"
    if nodes:
        report.unknown.append("the state of the GPUs themselves: Kubernetes counts them only")
