"""What the node screen's tables share: readings as text, whose device has a finding. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from console import units
from console.tui.text import Cell, plain
from console.tui.theme import Glyphs
from probes.event import Finding, Scalar, Severity

Values = Mapping[str, Scalar]


def signs(findings: Sequence[Finding], glyphs: Glyphs) -> dict[str, Cell]:
    """Device -> the glyph of its worst finding."""
    found: dict[str, Cell] = {}
    for finding in findings:
        if finding.device and finding.severity is not Severity.OK:
            cell = Cell(glyphs.severity(finding.severity), finding.severity.value)
            found.setdefault(finding.device, cell)
    return found


def word(values: Values, metric: str) -> str:
    """A reading as plain text, a dash when it is absent."""
    return plain(str(values[metric])) if metric in values else units.ABSENT
