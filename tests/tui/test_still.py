"""What stands still: every answer of the Fleet at a moment, whatever the Fleet learns then."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from console.fleet import Fleet
from console.output import as_json, document
from console.rings import PLOTTED
from console.tui.still import Still
from inventory.scheduler import Allocation, Job
from probes.event import Event, NodeState, NodeStatus, Sample, Scalar
from tests.tui import synthetic
from tests.tui.synthetic import NOW, pci

NAMES = [node.name for node in synthetic.inventory(3).nodes]


def told(fleet: Fleet, now: float) -> dict[str, Any]:
    """Everything a screen reads, down to the readings."""
    nodes = fleet.nodes.items()
    return {
        "document": as_json(document(fleet, 0.0, now), indent=False),
        "counts": fleet.counts(),
        "stream": list(fleet.stream),
        "log": list(fleet.log),
        "age": fleet.oldest_age(),
        "history": [
            (list(fleet.history(name, pci(gpu), metric)), fleet.history_times(name, pci(gpu)))
            for name, _ in nodes for gpu in range(8) for metric in PLOTTED
        ],
        "facts": [
            (dict(f.latest), dict(f.gone), dict(f.hung), dict(f.troubles), list(f.noise),
             f.allocation, f.ended_jobs, f.boot_id, f.status, f.state, dict(f.uuids))
            for _, f in nodes
        ],
        "rates": [{k: (r.elapsed_s, dict(r.deltas)) for k, r in f.rates.items()} for _, f in nodes],
        "hours": [
            {k: [h.grown("link_downed", at) for at in (now - NOW + 1000, now - NOW + 1060)]
             for k, h in f.hours.items()} for _, f in nodes
        ],
        "kernel": [list(f.kernel) for _, f in nodes],
        "steps": {key: list(steps) for key, steps in fleet.jobs.told.steps.items()},
        "ranks": {key: (list(h.views), h.still_since) for key, h in fleet.jobs.polls.comms.items()},
    }  # fmt: skip


def events(name: str, at: float, kind: int) -> list[Event]:
    """One thing that happens to a node."""
    clock = at - NOW + 1000
    match kind:
        case 0:
            return synthetic.fast(name, at, int(at) % 5)
        case 1:
            return synthetic.slow(name, at)
        case 2:
            return [synthetic.unreachable(name, at)]
        case 3:
            return [synthetic.xid(name, at, pci(int(at) % 8), 79, "GPU has fallen off the bus.")]
        case 4:
            jobs = (Job(id=str(int(at)), user="u"),) if int(at) % 2 else ()
            return [Allocation(node=name, at=at, scheduler="m", state="drained", raw="D",
                               reason=f"at {at}", reason_by="root", jobs=jobs)]  # fmt: skip
        case 5:
            status = NodeStatus(node=name, at=at, state=NodeState.HUNG, probe="gpu", text=f"{at}")
            noise = NodeStatus(node=name, at=at, state=NodeState.UP, reason="garbage", text=f"{at}")
            return [status, noise]
        case 6:
            down: dict[str, Scalar] = {"link_downed": int(at - NOW) + 1, "state": 4}
            return [Sample(node=name, probe="infiniband", device="mlx5_0/1", at=at, clock=clock,
                           values=down)]  # fmt: skip
        case 7:
            gone = Sample(node=name, probe="gpu", device=pci(1), at=at, clock=clock,
                          values={"gone": True})  # fmt: skip
            hello = Sample(node=name, probe="hello", at=at, clock=clock,
                           values={"boot_id": f"{at}"})  # fmt: skip
            return [gone, hello]
        case _:
            step: dict[str, Scalar] = {
                "job": "7",
                "rank": "0",
                "step": int(at - NOW),
                "t_total": at - NOW,
            }
            comm: dict[str, Scalar] = {"kind": "comm", "comm": "0xa", "job": "7",
                    "size": 8, "seen": 8,
                    "basis": "all", "low": int(at - NOW), "mid": int(at - NOW)}  # fmt: skip
            return [Sample(node=name, probe="steps", at=at, clock=clock, rows=[step]),
                    Sample(node=name, probe="ras", at=at, clock=clock, rows=[comm])]  # fmt: skip


HAPPENINGS = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 8)), max_size=12)


@given(HAPPENINGS, HAPPENINGS, HAPPENINGS)
def test_what_is_held_stays_and_what_follows_is_the_fleet(
    before: list[tuple[str, int]], during: list[tuple[str, int]], after: list[tuple[str, int]]
) -> None:
    """Twice over, and a Fleet that was never held learns the same."""
    now = [NOW]
    live, other = (Fleet(synthetic.inventory(3), clock=lambda: now[0]) for _ in range(2))
    still = Still(live)

    def happen(several: list[tuple[str, int]]) -> None:
        for name, kind in several:
            now[0] += 2.0
            for event in events(name, now[0], kind):
                live.apply(event)
                other.apply(event)
            for fleet in (live, other):
                fleet.tick(now[0])

    happen(before)
    for several in (during, after):
        shown = told(still, now[0])
        held_at = now[0]
        still.hold(held_at)
        happen(several)
        now[0] += 60.0
        assert told(still, held_at) == shown
        still.follow()
        assert told(still, now[0]) == told(live, now[0]) == told(other, now[0])
    while still.forget():
        assert told(still, now[0]) == told(live, now[0])


def test_what_was_acknowledged_is_seen_in_both() -> None:
    """The finding of the moment that is shown, also where it stands no more."""
    fleet = Fleet(synthetic.inventory(3), clock=lambda: NOW)
    still = Still(fleet)
    for name in NAMES:
        for event in (*synthetic.slow(name, NOW), *synthetic.fast(name, NOW)):
            fleet.apply(event)
    fleet.apply(synthetic.xid("gpu001", NOW, pci(1), 79, "GPU has fallen off the bus."))
    fleet.tick(NOW)
    first = fleet.findings["gpu001"][0]
    still.hold(NOW)
    still.acknowledge("gpu001", first.rule, first.device)
    fleet.tick(NOW)
    assert still.findings["gpu001"][0].acknowledged
    assert fleet.findings["gpu001"][0].acknowledged
    assert not first.acknowledged
