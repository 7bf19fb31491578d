"""The guided tour: one sentence at a time, and what shows that the operator did it. Pure.

A step is over when the screen's state says so, however the operator got there. `Scene` is that
state; `Progress` is where the tour is.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from console.tui.views import VIEW_IDS
from console.tui.words import t

VIEWS_TO_SEE = 3
"""In the step about views; all ten would not be two minutes."""
CONFIRM, HELP, NODE = "confirm", "help", "node"


class Scene(Struct, frozen=True, kw_only=True):
    """What the tour looks at."""

    screen: str = "fleet"
    """A view's id, "node", "confirm", "help" or anything else."""
    sick: bool = False
    """Some node is critical."""
    cursor: str | None = None
    moved: bool = False
    """The cursor is where the operator put it."""
    on_critical: bool = False
    """The cursor is on a critical node."""
    walking: bool = False
    """A finding of the open node was selected."""
    marked: int = 0
    plan: str = ""
    """The verb of the plan on the screen."""
    ours: frozenset[str] = frozenset()
    """Nodes that carry a drain of ours."""
    filter: str = ""
    typing: bool = False


Key = Callable[[str], str]
"""Command id -> the key as the operator has it."""


class Step(Struct, frozen=True):
    """One sentence, and when it has been followed."""

    id: str
    say: Callable[[Key], str]
    done: Callable[[Scene, Progress], bool]
    where: tuple[str, ...] = ()
    """Screens on which it can be done; () everywhere."""
    astray: Callable[[Key], str] = lambda key: ""
    """How to get there."""


class Progress(Struct, frozen=True):
    """Which step, and what was so when it began."""

    at: int
    start: Scene
    seen: frozenset[str] = frozenset()
    """Screens since then, of those that were there for a moment."""

    @property
    def over(self) -> bool:
        """Whether all steps were taken."""
        return self.at >= len(STEPS)

    def follow(self, now: Scene) -> Progress:
        """The next step, once this one was followed."""
        seen = replace(self, seen=self.seen | {now.screen})
        if self.over or not STEPS[self.at].done(now, seen):
            return seen
        return self.skip(now)

    def skip(self, now: Scene) -> Progress:
        """The next step, followed or not."""
        return Progress(min(self.at + 1, len(STEPS)), now)

    def text(self, now: Scene, key: Key) -> str:
        """The sentence for now."""
        step = STEPS[self.at]
        if step.where and now.screen not in step.where:
            return step.astray(key)
        return step.say(key)


def begin(now: Scene) -> Progress:
    """At the first step."""
    return Progress(0, now)


_ROWS = tuple(view for view in VIEW_IDS if view not in ("tests", "log"))
"""Views whose cursor is on nodes."""


def _to_fleet(key: Key) -> str:
    return t("Go on in the fleet: {fleet} shows it.", fleet=key("fleet"))


def _to_node(key: Key) -> str:
    return t("Open the node first: {open}.", open=key("open"))


def _plan_drain(key: Key) -> str:
    return t(
        "{drain} plans a drain of what is marked. Upper-case keys act on nodes; they ask first.",
        drain=key("drain"),
    )


def _plan_resume(key: Key) -> str:
    return t(
        "Put the cursor on your node. {resume} plans to give it back, and asks first too.",
        resume=key("resume"),
    )


def _looked_around(now: Scene, tour: Progress) -> bool:
    return len(tour.seen & set(VIEW_IDS) - {tour.start.screen}) >= VIEWS_TO_SEE


STEPS: tuple[Step, ...] = (
    Step(
        "wait",
        lambda key: t("Sixteen simulated nodes are answering, worst first. One moment ..."),
        lambda now, tour: now.sick,
    ),
    Step(
        "find",
        lambda key: t(
            "{next} and {previous} go to the next and previous node that is not ok. Try both; "
            "end on one that is crit.",
            next=key("next_fault"),
            previous=key("previous_fault"),
        ),
        lambda now, tour: now.moved and now.on_critical,
        _ROWS,
        _to_fleet,
    ),
    Step(
        "open",
        lambda key: t(
            "The line above the keys says why, in short. {open} shows all about the node.",
            open=key("open"),
        ),
        lambda now, tour: now.screen == NODE,
        _ROWS,
        _to_fleet,
    ),
    Step(
        "why",
        lambda key: t(
            "The worst finding first: evidence, likely cause, next step. {next_fault} walks on.",
            next_fault=key("next_fault"),
        ),
        lambda now, tour: now.walking,
        (NODE,),
        _to_node,
    ),
    Step(
        "back",
        lambda key: t("{back} goes back to where you came from.", back=key("back")),
        lambda now, tour: now.screen in VIEW_IDS,
    ),
    Step(
        "mark",
        lambda key: t(
            "{mark} marks the node under the cursor; the first line counts them.", mark=key("mark")
        ),
        lambda now, tour: now.marked > 0,
        _ROWS,
        _to_fleet,
    ),
    Step("plan", _plan_drain, lambda now, tour: now.plan == "drain", (*_ROWS, NODE), _to_fleet),
    Step(
        "drain",
        lambda key: t("Nothing has happened yet. Read the plan and the reason; y drains."),
        lambda now, tour: bool(now.ours),
        (CONFIRM,),
        _plan_drain,
    ),
    Step(
        "outcome",
        lambda key: t("This is what the scheduler reports now. esc goes back."),
        lambda now, tour: now.screen != CONFIRM,
    ),
    Step(
        "drained",
        lambda key: t(
            "{drained} shows what is out of work: whose decision, since when, why.",
            drained=key("drained"),
        ),
        lambda now, tour: now.screen == "drained",
    ),
    Step("return", _plan_resume, lambda now, tour: now.plan == "resume", (*_ROWS, NODE), _to_fleet),
    Step(
        "resume",
        lambda key: t("Still sick, so the plan leaves it out. I takes it in, then y resumes."),
        lambda now, tour: not now.ours,
        (CONFIRM,),
        _plan_resume,
    ),
    Step(
        "resumed",
        lambda key: t("Given back; both acts are in the audit log. esc goes back."),
        lambda now, tour: now.screen != CONFIRM,
    ),
    Step(
        "filter",
        lambda key: t(
            "{filter} filters in any view: type state:crit and press enter.", filter=key("filter")
        ),
        lambda now, tour: bool(now.filter) and not now.typing,
        _ROWS,
        _to_fleet,
    ),
    Step(
        "unfilter",
        lambda key: t("{show_all} removes the filter.", show_all=key("show_all")),
        lambda now, tour: not now.filter,
    ),
    Step(
        "views",
        lambda key: t(
            "{fleet} to {log} are ten views of the same nodes, a question each. Look at three.",
            fleet=key("fleet"),
            log=key("log"),
        ),
        _looked_around,
    ),
    Step(
        "help",
        lambda key: t("{help} lists the keys of the view you are in.", help=key("help")),
        lambda now, tour: now.screen == HELP,
    ),
    Step(
        "end",
        lambda key: t(
            "That was the tour. esc closes the help, {quit} leaves, {tour} begins again.",
            quit=key("quit"),
            tour=key("tour"),
        ),
        lambda now, tour: now.screen != HELP,
    ),
)
