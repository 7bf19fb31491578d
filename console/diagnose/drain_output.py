"""Output of `kubectl drain` and our own: what is gone, what blocks it, whether it ended."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct, field

from console.diagnose import drain_steps
from console.diagnose.kube_rules import BLOCKED, DRAIN_RULES, DRAIN_TIMEOUT, REFUSED
from console.diagnose.report import Report
from console.diagnose.text import Text

KIND = "drain"
TITLE = "output of kubectl drain, gpuconsole drain and resume"
STREAMS = True
RULES = (*DRAIN_RULES, drain_steps.LEFT)

PODS = 20_000
_SNIFF = re.compile(
    r"^(?:node/\S+ (?:already )?(?:cordoned|drained|uncordoned)|evicting pod \S+/|pod/\S+ evicted|"
    r"error when (?:evicting|waiting)|error: unable to drain node|"
    r"There are pending nodes to be drained|"
    r"(?:Warning|WARNING): ignoring DaemonSet-managed)",
    re.MULTILINE,
)
_NODE = re.compile(r"^node/(\S+) (already cordoned|cordoned|drained|uncordoned|evicted)")
_IGNORED = re.compile(r"ignoring DaemonSet-managed [Pp]ods: (.*?)(?:;|$)")
_EVICTING = re.compile(r"^evicting pod (?:(\S+)/)?(\S+)")
_GONE = re.compile(r"^pod/(\S+) (?:evicted|deleted)")
_ERROR = re.compile(
    r'error when evicting (?:pods?/)?"?(?P<pod>[^"\s]+)"?(?: -n "?(?P<ns>[^"\s]+)"?)?'
    r"[^:]*: (?P<why>.*)"
)
_BUDGET = re.compile(r"[Dd]isruption budget (\S+) needs (\d+)")
_CANNOT = re.compile(
    r"cannot delete ([^:]*?)(?:\(use (\S+) to override\))?: "
    r"([^\],]+(?:, (?!cannot delete)[^\],]+)*)"
)
_TIMEOUT = re.compile(r"global timeout reached|timed out waiting|drain did not complete within")
_LEFT = re.compile(r"error when waiting for pod[s]? \"?(?P<pod>[^\"\s]+)\"?")


class Drain(Struct):
    """What the lines told."""

    nodes: dict[str, str] = field(default_factory=dict)
    """Node -> last word about it."""
    ignored: list[str] = field(default_factory=list)
    namespaces: dict[str, str] = field(default_factory=dict)
    """Pod -> namespace."""
    gone: dict[str, None] = field(default_factory=dict)
    blocked: dict[str, dict[str, Any]] = field(default_factory=dict)
    lines: dict[str, str] = field(default_factory=dict)
    refused: list[tuple[str, str, str, str]] = field(default_factory=list)
    """(what, option, pods, line)."""
    timeout: str = ""
    left: list[str] = field(default_factory=list)

    def feed(self, line: str) -> None:
        """One line."""
        if match := _NODE.match(line):
            self.nodes[match[1]] = match[2].removeprefix("already ")
        if match := _IGNORED.search(line):
            self.ignored += [p.strip() for p in match[1].split(",") if p.strip()][:PODS]
        if (match := _EVICTING.match(line)) and len(self.namespaces) < PODS:
            self.namespaces[match[2]] = match[1] or ""
        if match := _GONE.match(line):
            self.gone[match[1]] = None
        self._failed(line)

    def _failed(self, line: str) -> None:
        if (match := _ERROR.search(line[:4096])) and len(self.blocked) < PODS:
            namespace = match["ns"] or self.namespaces.get(match["pod"], "")
            one = self.blocked.setdefault(match["pod"], {"tries": 0, "why": match["why"]})
            one["tries"] += 1
            one["namespace"] = namespace
            self.lines[match["pod"]] = line.strip()
            if budget := _BUDGET.search(match["why"]):
                one["pdb"], one["needs"] = budget[1], int(budget[2][:9])
        if "cannot delete" in line and len(self.refused) < 50:
            for match in _CANNOT.finditer(line):
                told = (match[1].strip(), match[2] or "", match[3].strip())
                if all(told != known[:3] for known in self.refused):
                    self.refused.append((*told, line.strip()))
        if _TIMEOUT.search(line) and not self.timeout:
            self.timeout = line.strip()
        match = _LEFT.search(line)
        if match and len(self.left) < 100 and match["pod"] not in self.left:
            self.left.append(match["pod"])

    def full(self, pod: str) -> str:
        """namespace/name."""
        namespace = self.namespaces.get(pod) or self.blocked.get(pod, {}).get("namespace", "")
        return f"{namespace}/{pod}" if namespace else pod


def sniff(head: str) -> int:
    """By kubectl's words."""
    hits = len(_SNIFF.findall(head)) + len(drain_steps.SNIFF.findall(head))
    return 0 if not hits else min(97, 85 + 4 * hits)


def read(text: Text) -> Report:
    """Line by line; a drain that waits for ever prints for ever."""
    drain, steps = Drain(), drain_steps.Steps()
    for _, line in text:
        drain.feed(line)
        steps.feed(line)
    report = Report(kind=KIND, facts=_facts(drain))
    node = next(iter(drain.nodes), "") if len(drain.nodes) == 1 else ""
    for pod, one in _still(drain).items():
        budget = f" (budget {one['pdb']} allows 0)" if one.get("pdb") else ""
        report.add(BLOCKED, f"pod {drain.full(pod)} may not be evicted{budget}, {one['tries']} "
                   "tries", drain.lines[pod], node=node, device=drain.full(pod),
                   value=one["tries"])  # fmt: skip
    for what, option, pods, line in drain.refused:
        need = f"; it would need {option}" if option else ""
        report.add(REFUSED, f"kubectl will not delete {what}: {pods[:200]}{need}", line, node=node)
    if drain.timeout:
        left = ", ".join(drain.left[:6]) or "some pods"
        report.add(DRAIN_TIMEOUT, f"it ended before {left} were gone", drain.timeout, node=node)
    report.say = _say(drain)
    steps.judge(report)
    return report


def _still(drain: Drain) -> dict[str, dict[str, Any]]:
    """Pods that were refused and did not go later."""
    return {pod: one for pod, one in drain.blocked.items() if pod not in drain.gone}


def _facts(drain: Drain) -> dict[str, Any]:
    words = drain.nodes.values()
    blocked = {}
    for pod, one in _still(drain).items():
        told = {"tries": one["tries"], "pdb": one.get("pdb", ""), "why": one["why"]}
        if one.get("pdb") or "disruption budget" in one["why"]:
            told["disruptions_allowed"] = 0
        blocked[drain.full(pod)] = {k: v for k, v in told.items() if v != ""}
    return {
        "nodes": dict(drain.nodes), "cordoned": any(w in ("cordoned", "drained") for w in words),
        "drained": bool(drain.nodes) and all(w in ("drained", "evicted") for w in words),
        "evicted": [drain.full(pod) for pod in drain.gone], "blocked": blocked,
        "ignored_daemonset_pods": len(drain.ignored),
    }  # fmt: skip


def _say(drain: Drain) -> str:
    nodes = ", ".join(list(drain.nodes)[:6]) or "the node"
    still = _still(drain)
    if still:
        told = [f"pod {drain.full(pod)} may not be evicted"
                + (f" (budget {one['pdb']} allows 0)" if one.get("pdb") else "")
                for pod, one in list(still.items())[:4]]  # fmt: skip
        ready = " Node is cordoned already." if "cordoned" in drain.nodes.values() else ""
        return f"Drain is blocked: {'; '.join(told)}.{ready}"
    if drain.refused:
        return f"Drain of {nodes} did not start: kubectl needs a decision about some pods."
    if drain.timeout:
        return f"Drain of {nodes} ended at its time limit; it is cordoned, pods are left."
    if drain.nodes and all(word in ("drained", "evicted") for word in drain.nodes.values()):
        number = len(drain.gone)
        return f"{nodes}: drained, {number} pod{'s' * (number != 1)} evicted."
    if drain.nodes and all(word == "uncordoned" for word in drain.nodes.values()):
        return f"{nodes}: takes pods again."
    left = len(drain.namespaces) - len(drain.gone)
    return f"{nodes}: cordoned, not drained yet; {max(0, left)} pods still to go."


def relate(report: Report, others: Sequence[Report]) -> None:
    """Budgets in the same ticket say which one blocks a pod."""
    budgets = {name: one for other in others for name, one in other.facts.get("budgets", {}).items()
               if other.kind == "kubernetes"}  # fmt: skip
    for pod, one in report.facts["blocked"].items():
        namespace = pod.rpartition("/")[0]
        zero = [name for name, b in budgets.items()
                if b["namespace"] == namespace and b["disruptions_allowed"] == 0]  # fmt: skip
        if len(zero) == 1 and "pdb" not in one:
            one["pdb"], one["disruptions_allowed"] = zero[0], 0
            report.say = report.say.replace(
                f"pod {pod} may not be evicted", f"pod {pod} may not be evicted (budget {zero[0]} "
                "allows 0)")  # fmt: skip
