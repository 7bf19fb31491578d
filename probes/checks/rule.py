"""Rule, Look and Check as the checks import them; declared in probes.rule, which needs no check."""

from __future__ import annotations

from probes.rule import Check, Look, Rule

__all__ = ["Check", "Look", "Rule"]
