"""The reason we write on a drained node, and whose a reason is. Pure.

Ours read `gpuconsole: xid 94`. When somebody else's reason had to make room (override), it is kept:
`gpuconsole: xid 94 (kept from ops2: bad DIMM, waiting for part)`. Such a drain is still the other
person's too, so resuming it needs override again.
"""

from __future__ import annotations

import re

from inventory.scheduler import KEPT, MARKER
from inventory.slurm_text import SlurmNode, clean

MAX_TEXT = 200
"""Characters of our own text; sinfo and most site tools show less."""
MAX_KEPT = 200
"""Characters kept of somebody else's reason."""

_KEPT_PART = re.compile(re.escape(KEPT) + r"(?P<who>[^:()]*): (?P<said>.*)\)$")


def reason_text(text: str, kept: str = "") -> str:
    """The reason to write: one line, marked, capped. `kept` is what kept_part() made.

    scontrol eats a double quote at either end, so double quotes become single ones; "[" would look
    like Slurm's own `[user@time]` and makes Google's cluster-toolkit cut the reason there.
    """
    plain = _plain(text.removeprefix(MARKER)).replace(KEPT, " kept from ")
    return f"{MARKER} {_capped(plain, MAX_TEXT)}{kept}"


def kept_part(node: SlurmNode) -> str:
    """The tail that keeps somebody else's reason inside ours; "" when there is none to keep."""
    if node.reason.startswith(MARKER):
        match = _KEPT_PART.search(node.reason)
        return match[0] if match else ""
    if not node.reason:
        return ""
    who = re.sub(r"[:()]", "", node.reason_by) or "unknown"
    return f"{KEPT}{who}: {_capped(_plain(node.reason), MAX_KEPT)})"


def lost_by_slurm(node: SlurmNode) -> bool:
    """Whether the reason is only slurmctld's note that a node has stopped answering.

    It says nothing that the state does not, so a drain may take its place; nobody drained there.
    """
    return node.state.base == "DOWN" and not node.state.drain and node.reason == "Not responding"


def foreign(node: SlurmNode) -> str:
    """Why this node's reason is not ours alone, as a sentence; "" when it is ours or there is none.

    A drain without any reason is somebody's too.
    """
    if node.reason.startswith(MARKER):
        match = _KEPT_PART.search(node.reason)
        return f"it was {match['who']}'s before ours: {match['said']}" if match else ""
    if node.reason:
        who = node.reason_by or "somebody"
        return f"{node.state.state} by {who}: {node.reason}"
    return "drained by somebody without a reason" if node.state.drain else ""


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", clean(text)).replace('"', "'").replace("[", "(").replace("]", ")")


def _capped(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3].rstrip() + "..."
