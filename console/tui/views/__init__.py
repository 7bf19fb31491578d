"""The views: each answers one question in one glance. Pure models; screens draw them."""

from __future__ import annotations

from typing import NamedTuple


class View(NamedTuple):
    """One of the numbered views."""

    id: str
    """Its screen's name, its `:` word, and its module in console.tui.screens."""
    key: str
    label: str
    """One word for footer and title."""
    question: str
    """What it answers, for help and palette."""


VIEWS: tuple[View, ...] = (
    View("fleet", "1", "fleet", "Which nodes are sick, worst first?"),
    View("findings", "2", "findings", "What is wrong, folded by kind, and on which nodes?"),
    View("stragglers", "3", "stragglers", "Which nodes are slow, how far from their peers?"),
    View("gpus", "4", "GPUs", "Where on the heat map of all GPUs is one unlike the rest?"),
    View("fabric", "5", "fabric", "Which NVLinks, NICs and ports are down, slow or in error?"),
    View("jobs", "6", "jobs", "Which job runs where, and which of its layers is slow?"),
    View("tests", "7", "tests", "Which active tests run and ran, and what did they find?"),
    View("drained", "8", "drained", "Which nodes are out of work, by whom, since when and why?"),
    View("drift", "9", "drift", "Which nodes differ from most of their role, and in what?"),
    View("log", "0", "log", "What happened, newest first: events and our own acts?"),
)
"""In the order of their keys."""

VIEW_IDS = tuple(view.id for view in VIEWS)
