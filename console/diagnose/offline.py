"""The console's own checks over what a text tells: Samples in, Findings out.

Nothing that only says "this was not read" fires here: a text holds what somebody chose to paste.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any

from inventory.node import Node
from probes.checks import judge, place
from probes.event import Finding, Row, Sample
from probes.expect import Peers, peers
from probes.facts import NodeFacts
from probes.rules import Rules, load_rules

LIMITS: ContextVar[Rules | None] = ContextVar("LIMITS", default=None)
"""The rules of this run, with the site's overlay; the packaged ones where none was named."""
_ABOUT_US = ("node.", "internal.", "kernel_log.unreadable")
"""Rules about the conversation with a node, which there is none of."""


def limits() -> Rules:
    """The limits that apply."""
    return LIMITS.get() or load_rules()


class Offline:
    """One node as a text describes it."""

    def __init__(self, node: str = "", **known: Any) -> None:
        """`node` is the name the text gives it; `known` are fields of Node (gpus, hardware)."""
        self.facts = NodeFacts(Node(name=node, **known))
        self.now = time.time()

    def put(
        self, probe: str, device: str = "", *, rows: list[Row] | None = None, **values: Any
    ) -> None:
        """One answer of a probe, as the agent would have sent it."""
        self.facts.apply(
            Sample(
                node=self.facts.node.name, probe=probe, device=device, at=self.now, clock=0.0,
                values=values, rows=rows or [],
            )
        )  # fmt: skip

    def kernel(self, lines: Iterable[str]) -> None:
        """Lines of the kernel log with whatever prefix; the last few hundred are kept."""
        rows: list[Row] = [{"text": line} for line in lines]
        self.put("kernel_log", "", rows=rows, source="text", readable=True)

    def judge(self, others: Iterable[Offline] = ()) -> list[Finding]:
        """What the console would show of it now; `others` are nodes to compare with."""
        nodes = [self.facts, *(other.facts for other in others)]
        role = peers(nodes).get(self.facts.node.role, Peers(role=self.facts.node.role))
        found = judge(self.facts, role, limits(), self.now)
        kept = [f for f in found if not f.rule.startswith(_ABOUT_US)]
        kept.sort(key=lambda f: (-f.severity.rank, place(f.rule), f.device))
        return kept
