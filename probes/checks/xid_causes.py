"""Which Xids are consequences of something else, and which application errors are the GPU's. Pure.

A GPU that falls off the bus takes its NVLinks along, so its neighbours complain too; a program with
a bug fails wherever it runs, a bad GPU fails whatever runs on it.
"""

from __future__ import annotations

from collections.abc import Iterable

from probes.checks.rule import Look
from probes.kernel_lines import Burst, KernelEvent
from probes.kernel_nvlink import FIFTH

OFF_BUS = 79
NVLINK = frozenset({74, 136, *FIFTH})
FOLLOWS = frozenset({45, 137})
"""What other GPUs get when a peer of their job dies."""
OF_THE_JOB = frozenset({13, 31, 43})
"""They follow too, but only in the program that lost a GPU; others have bugs of their own."""
GRAVE = frozenset({46, 48, 62, 64, OFF_BUS, 95, 109, 119, 120, 140, 143, 158})
"""Xids of one GPU that end the job on all of its peers."""


def origin(burst: Burst, groups: Iterable[Burst], gap_s: float) -> Burst | None:
    """The burst of another GPU that explains this one; None where it stands for itself."""
    code, process = burst.root.code, burst.root.process
    if code not in NVLINK and code not in FOLLOWS and code not in OF_THE_JOB:
        return None
    causes = {OFF_BUS} if code in NVLINK else GRAVE
    near = [
        other for other in groups
        if other.pci != burst.pci and other.root.boot == burst.root.boot
        and any(event.code in causes for event in other.events)
        and (code not in OF_THE_JOB or (process and process == other.root.process))
        and abs(other.root.at - burst.root.at) <= gap_s
    ]  # fmt: skip
    return min(near, key=lambda b: (abs(b.root.at - burst.root.at), b.pci), default=None)


def peer_died(burst: Burst) -> bool:
    """Whether all its lines only say that packets towards a dead port were lost."""
    return all(event.facts.get("peer_died") is True for event in burst.events)


def suspicion(look: Look, same: list[Burst], groups: list[Burst]) -> str:
    """Why application errors of one GPU point at the GPU; "" when they are the job's.

    Programs that fail in the same way on other GPUs of the node speak for themselves.
    """
    code, pci = same[0].root.code, same[0].pci
    elsewhere = {
        b.root.process for b in groups if b.pci != pci and b.root.code == code and b.root.process
    }  # fmt: skip
    here = [burst for burst in same if burst.root.process not in elsewhere]
    programs = {burst.root.process for burst in here if burst.root.process}
    enough = look.rules.limit("xid.programs_suspect").value
    if len(programs) >= enough:
        return f"{len(programs)} programs failed on this GPU and on no other"
    if place := _repeated(here):
        return f"GPC {place[0]}, TPC {place[1]} failed under different programs"
    limit = look.rules.limit("xid.bursts_suspect").value
    if len(here) >= limit and len(programs) != 1:
        return f"{len(here)} bursts on one GPU"
    return ""


def _repeated(bursts: list[Burst]) -> tuple[int, int] | None:
    """The GPC and TPC that failed under at least two programs."""
    programs: dict[tuple[int, int], set[str]] = {}
    for burst in bursts:
        for event in burst.events:
            if "tpc" in event.facts and event.process:
                place = int(event.facts["gpc"]), int(event.facts["tpc"])
                programs.setdefault(place, set()).add(event.process)
    return min((place for place, names in programs.items() if len(names) > 1), default=None)


def links(events: Iterable[KernelEvent]) -> str:
    """As " link 3" or " links 3, 14"; "" where no line names one."""
    numbers = sorted({int(e.facts["link"]) for e in events if "link" in e.facts})
    if not numbers:
        return ""
    more = ", ..." if len(numbers) > 8 else ""
    return f" link{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers[:8]))}{more}"
