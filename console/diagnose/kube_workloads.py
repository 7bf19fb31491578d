"""Pods that fail or wait, and budgets that block: what is whose trouble. Pure."""

from __future__ import annotations

import re
from typing import Any

from console.diagnose import kube_tables
from console.diagnose.kube_objects import at, dicts, kind, name, quantity, text
from console.diagnose.kube_rules import ADMISSION, BUDGET, GPU_POD, GPUS, PENDING, POD, RUNTIME
from console.diagnose.kube_tables import PodRow
from console.diagnose.report import Report
from probes.event import Severity

SERVES_GPUS = re.compile(
    r"nvidia-(?:device-plugin|driver|container-toolkit|operator-validator|cuda-validator|dcgm|mig)|"
    r"dcgm-exporter|gpu-feature-discovery|gpu-operator|fabricmanager|amdgpu-device-plugin"
)
_WELL = ("Running", "Completed", "Succeeded", "ContainerCreating", "PodInitializing", "Pending")


def row_of(pod: dict[str, Any]) -> PodRow:
    """A pod object as its table row would be."""
    statuses = dicts(pod, "status", "containerStatuses") + dicts(
        pod, "status", "initContainerStatuses"
    )
    waiting = [text(s, "state", "waiting", "reason") for s in statuses]
    ended = [text(s, "state", "terminated", "reason") for s in statuses]
    last = [text(s, "lastState", "terminated", "reason") for s in statuses]
    bad = next((r for r in waiting if r and r not in _WELL), "")
    status = bad or text(pod, "status", "reason") or text(pod, "status", "phase")
    if "OOMKilled" in ended + last and bad:
        status = f"{bad} (OOMKilled)"
    counts = [c for s in statuses if (c := quantity(s.get("restartCount"))) is not None]
    return PodRow(
        name=name(pod), namespace=text(pod, "metadata", "namespace"), ready="",
        status=status, restarts=max(counts, default=0), node=text(pod, "spec", "nodeName"),
        line=f"{name(pod)} {status} {text(pod, 'status', 'message')}".strip(),
    )  # fmt: skip


def judge(row: PodRow, report: Report) -> None:
    """A pod that does not run: one that serves GPUs is the node's trouble, others their owner's."""
    serves = SERVES_GPUS.search(row.name)
    ready, _, of = row.ready.partition("/")
    half = bool(serves) and row.status == "Running" and of.isdigit() and ready != of
    well = row.status.partition(":")[0] in (*_WELL, "Terminating", "", "Init")
    if well and not half and not row.status.startswith("Init:C"):
        return
    again = f", {row.restarts} restarts" if row.restarts else ""
    if row.status == "UnexpectedAdmissionError":
        report.add(ADMISSION, f"pod {row.name} was refused", row.line, node=_node_name(row))
    elif serves:
        said = "is not ready" if half else row.status
        report.add(GPU_POD, f"pod {row.name}: {said}{again}", row.line, node=_node_name(row))
    elif row.status in ("Failed", "Error", "Evicted") or not well:
        failing = report.facts.setdefault("failing_pods", {})
        failing[row.name] = kube_tables.as_facts(row)
        if len(failing) <= 20:
            report.add(POD, f"pod {row.name}: {row.status}{again}", row.line,
                       node=_node_name(row))  # fmt: skip


def _node_name(row: PodRow) -> str:
    return "" if row.node == "<none>" else row.node


def messages(pods: list[dict[str, Any]]) -> list[str]:
    """The scheduler's words about pods that wait."""
    return [
        text(one, "message") for pod in pods if text(pod, "status", "phase") == "Pending"
        for one in dicts(pod, "status", "conditions") if one.get("reason") == "Unschedulable"
    ]  # fmt: skip


def scheduling(told_by: list[str], report: Report) -> None:
    """Full is information, settings that no node fits are a warning."""
    for told in dict.fromkeys(filter(None, told_by)):
        short = re.search(r"Insufficient (?:nvidia|amd)\.com/\S+", told)
        taint = re.search(r"untolerated taint|didn't match|affinity", told)
        grade = Severity.INFO if short or not taint else Severity.WARN
        what = "GPUs are all taken or too few fit on one node" if short else (
            "no node fits its selectors or tolerations")  # fmt: skip
        report.add(PENDING, f"pods wait: {what}", told, severity=grade)
        report.facts.setdefault("pending", []).append(told)


def budget_rows(rows: list[dict[str, str]], report: Report) -> None:
    """Budgets as `kubectl get pdb` lists them."""
    for row in rows[:200]:
        namespace, budget = row.get("NAMESPACE", ""), row.get("NAME", "")
        allowed = quantity(row.get("ALLOWED"))
        known = {"namespace": namespace, "disruptions_allowed": allowed}
        report.facts.setdefault("budgets", {})[budget] = known
        if allowed == 0:
            full = f"{namespace}/{budget}" if namespace else budget
            report.add(BUDGET, f"budget {full} allows 0 disruptions", " ".join(row.values()))


def plugin(lines: list[str], report: Report) -> None:
    """What a runtime could not give a container, and GPUs that the device plugin took away."""
    seen: set[str] = set()
    for line in lines[:5000]:
        if runtime := kube_tables.RUNTIME.search(line):
            said = runtime[1].strip()
            if said not in seen:
                seen.add(said)
                report.add(RUNTIME, f"no GPU for a container: {said}", line.strip()[:300])
        if marked := kube_tables.UNHEALTHY.search(line):
            gpu = marked["gpu"] or marked["marked"]
            if gpu in seen:
                continue
            seen.add(gpu)
            why = f" after Xid {marked['xid']}" if marked["xid"] else ""
            report.facts.setdefault("unhealthy", []).append(gpu)
            report.add(GPUS, f"the device plugin marked {gpu} unhealthy{why}", line.strip()[:300],
                       device=gpu)  # fmt: skip


def budgets(found: list[dict[str, Any]], report: Report) -> None:
    """PodDisruptionBudgets, and those that allow nothing."""
    for one in found:
        if kind(one) != "PodDisruptionBudget":
            continue
        allowed = quantity(at(one, "status", "disruptionsAllowed"))
        expected = quantity(at(one, "status", "expectedPods"))
        namespace = text(one, "metadata", "namespace")
        budget = {"namespace": namespace, "disruptions_allowed": allowed, "expected": expected}
        report.facts.setdefault("budgets", {})[name(one)] = budget
        if allowed == 0 and expected:
            report.add(BUDGET, f"budget {namespace}/{name(one)} allows 0 disruptions",
                       f"disruptionsAllowed 0, expectedPods {expected}, currentHealthy "
                       f"{at(one, 'status', 'currentHealthy')}")  # fmt: skip
