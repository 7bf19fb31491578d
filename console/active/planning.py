"""What a campaign would do to which nodes, from what is known now; and the campaign itself."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from console.active import safety, store
from console.active.ask import ENGINES, LAUNCHES, SCHEMES, START_S, Asked, CampaignPlan
from console.active.launch import launcher
from console.active.orders import TOGETHER
from console.active.results import Group, Level
from console.active.rounds import rounds
from console.active.schemes import FEW
from console.said import said
from inventory.errors import UsageError
from inventory.expressions import natural_key

if TYPE_CHECKING:
    from console.active.campaign import Campaigner
    from console.engine import Engine

ROUNDS_AUTO = 5
"""Random pairs, suspects with known-good nodes twice, and one more for a tie."""
ROUNDS_SEARCH = 16
"""Of pairs and runs again, beside the rails or sizes: two dead nodes and a slow one took 12."""


async def plan(engine: Engine, asked: Asked, kept: store.Kept | None = None) -> CampaignPlan:
    """Read the schedulers, then plan. Starts nothing.

    `kept` is a campaign to go on with. Raises UsageError in read-only mode and for what cannot be.
    """
    engine.check_may_write("test")
    _check(engine, asked)
    await engine.read_schedulers()
    reserved = await _reserved(engine, asked)
    claim = safety.claim_of(asked, reserved, engine.fleet.errors)
    name = kept.campaign.id if kept else store.free_id(engine.state / "tests", _id(asked))
    by = launcher(engine, asked, f"{safety.OURS}{name}")
    forbidden = engine.forbidden("test")
    answers: dict[str, safety.Answer] = {}
    for node in sorted(asked.nodes, key=natural_key):
        why = forbidden(node) or by.lacking(engine.fleet.nodes[node].node, asked)
        facts = engine.fleet.nodes[node]
        answers[node] = safety.Answer(refused=why) if why else safety.judge(facts, claim)
    refused = {node: answer.refused for node, answer in answers.items() if answer.refused}
    if kept is not None:
        if told := next((why for node in asked.nodes if (why := forbidden(node))), ""):
            raise UsageError(told)
        # The rounds follow from the same nodes as before; who is busy now is found at its turn.
        refused = kept.campaign.refused
    return _planned(engine, asked, name, answers, dict(refused), reserved)


def _planned(
    engine: Engine,
    asked: Asked,
    name: str,
    answers: dict[str, safety.Answer],
    refused: dict[str, str],
    reserved: Sequence[str],
) -> CampaignPlan:
    """The nodes' answers as a plan: first round, its parts, the most that it may take."""
    caps = safety.pools(engine.inventory.nodes)
    pool = pool_of(engine)
    willing = [node for node in answers if node not in refused]
    counted = tuple(node for node in willing if answers[node].counted)
    if asked.level in TOGETHER and len(willing) < 2:
        refused |= dict.fromkeys(willing, f"{asked.level} needs two nodes that may be tested")
        willing, counted = [], ()
    if asked.level in (Level.RAILS, Level.CLUSTER):
        whole = [Group(nodes=tuple(willing))] if willing else []
        if not safety.batches(whole, counted, pool, caps)[0]:
            refused |= dict.fromkeys(counted, _too_many(asked.level))
            willing, counted = [], ()
    first = tuple(rounds(engine, asked, willing).next_round([])) if willing else ()
    parts = safety.batches(first, counted, pool, caps)[0]
    most = rounds_at_most(asked, len(willing), engine) if willing else 0
    limit_s = max(1, len(parts)) * most * (asked.run_s + START_S)
    return CampaignPlan(
        id=name, asked=asked, willing=tuple(willing), refused=refused,
        disturbs={n: a.disturbs for n, a in answers.items() if n in willing and a.disturbs},
        counted=counted, reserved=tuple(reserved), first=first, batches=len(parts),
        rounds_at_most=most, rounds_likely=rounds_likely(asked, len(willing), most),
        at_most_s=min(limit_s, asked.total_s or limit_s),
        notes=tuple(_notes(engine, asked, willing, counted, len(parts))),
    )  # fmt: skip


def campaigner(engine: Engine, plan: CampaignPlan, kept: store.Kept | None = None) -> Campaigner:
    """The campaign of a confirmed plan, ready to run."""
    from console.active.campaign import Campaigner

    return Campaigner(engine, plan, kept=kept)


async def _reserved(engine: Engine, asked: Asked) -> list[str]:
    """Nodes of the reservation that was named. UsageError when it is not ours to use now."""
    if not asked.reservation:
        return []
    from console.active.reservation import nodes_of

    return await nodes_of(engine, asked.reservation)


def pool_of(engine: Engine) -> Callable[[str], str]:
    """Node -> the pool it belongs to: its group in the inventory."""
    return lambda name: engine.fleet.nodes[name].node.group


def _check(engine: Engine, asked: Asked) -> None:
    for value, valid, option in (
        (asked.scheme, SCHEMES, "--scheme"),
        (asked.engine, ENGINES, "--engine"),
        (asked.launch, LAUNCHES, "--launch"),
    ):
        if value not in valid:
            raise UsageError(f"no {value!r}", where=option, instead=", ".join(valid))
    if not asked.nodes:
        raise UsageError("no node is named")
    if asked.scheme != "auto" and asked.level is not Level.PAIRS:
        raise UsageError("is for --level pairs", where="--scheme")
    if asked.launch != "ssh" and asked.level is Level.GPU:
        raise UsageError(
            "the gpu level runs through the agents only", where="--launch", instead="leave it out"
        )
    if asked.min_bytes and asked.max_bytes and asked.min_bytes > asked.max_bytes:
        raise UsageError("the smallest size is above the largest", where="--size")
    from console.launch import chosen

    chosen(engine.inventory.nodes, list(asked.nodes))


def _id(asked: Asked) -> str:
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{asked.level}"


def _too_many(level: Level) -> str:
    return (
        f"in service, and {level} takes more than {safety.CAP:.0%} of its pool at once: drain or "
        "reserve it first, or add --i-own-these-nodes"
    )


def rounds_at_most(asked: Asked, nodes: int, engine: Engine) -> int:
    """An upper bound of the rounds, for the time limit; what is run depends on what is found."""
    match asked.level:
        case Level.GPU | Level.NODE:
            return 1
        case Level.RAILS:
            return (
                max(8, *(engine.fleet.nodes[n].node.gpus or 0 for n in asked.nodes)) + ROUNDS_SEARCH
            )
        case Level.CLUSTER:
            return math.ceil(math.log2(max(2, nodes))) + ROUNDS_SEARCH
    shift = math.ceil(math.log2(max(2, nodes)))
    return {"full": nodes, "shift": shift}.get(asked.scheme, 1) + ROUNDS_AUTO


def rounds_likely(asked: Asked, nodes: int, most: int) -> int:
    """Rounds of a cluster without trouble: suspects cost one or two more."""
    if asked.level is not Level.PAIRS:
        return max(1, most - ROUNDS_SEARCH) if asked.level in TOGETHER else most
    few = nodes <= FEW
    return {"full": nodes - 1, "shift": most - ROUNDS_AUTO}.get(asked.scheme, nodes if few else 2)


def _notes(
    engine: Engine, asked: Asked, willing: Sequence[str], counted: Sequence[str], parts: int
) -> list[str]:
    notes: list[str] = []
    if parts > 1:
        notes.append(
            said(
                "a round runs in {n} batches: at most {share} of a pool at once",
                n=parts,
                share=f"{safety.CAP:.0%}",
            )
        )
    if asked.force and willing:
        caps, use = safety.pools(engine.inventory.nodes), dict[str, int]()
        for name in willing:
            group = engine.fleet.nodes[name].node.group
            use[group] = use.get(group, 0) + 1
        for group, count in use.items():
            if count > max(caps[group], 1):
                notes.append(
                    said(
                        "{n} nodes of {group} at once, above {share} of it",
                        n=count,
                        group=group,
                        share=f"{safety.CAP:.0%}",
                    )
                )
    return notes
