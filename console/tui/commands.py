"""Every command, declared once: key, footer, palette entry, `:` word and help text.

Commands that act on nodes have upper-case keys, always confirm, and do not exist in read-only mode.
A screen offers a command by having `action_<id>`; nothing else registers it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct
from textual.binding import Binding, BindingType

from console.tui.views import VIEW_IDS, VIEWS
from console.tui.words import t


class Command(Struct, frozen=True, kw_only=True):
    """One thing the operator can do."""

    id: str
    """Also the action's name and the word after `:`."""
    keys: tuple[str, ...]
    """Textual key names; the first one is shown."""
    shown: str
    """The key as people write it."""
    label: str
    """One or two words for the footer."""
    help: str
    """One sentence for the help screen and the palette."""
    screens: tuple[str, ...]
    acts: bool = False
    """Changes something outside the console: confirmed, and absent in read-only mode."""
    asks: bool = False
    """Goes to a node itself, so that a replay does not offer it."""
    footer: int = 0
    """Importance in the footer, 1 first; 0 keeps it out."""
    group: str = "Look"
    palette: bool = True
    action: str = ""
    """Textual's name of the action where it is not the id."""

    @property
    def does(self) -> str:
        """What `run_action` takes."""
        return self.action or self.id


EVERY = (*VIEW_IDS, "node", "campaign")
"""Names of the screens."""
MOVES: Mapping[str, tuple[str, ...]] = {
    "up": ("up", "k"),
    "down": ("down", "j"),
    "page_up": ("pageup", "ctrl+b"),
    "page_down": ("pagedown", "ctrl+f"),
    "first": ("home", "g"),
    "last": ("end", "G"),
}
"""Ids and keys of what moves the cursor or the sheet, in every view."""
TABLES = tuple(name for name in VIEW_IDS if name != "tests")
"""Views whose rows are about nodes: filter, marks, prompt."""
NODES = (*TABLES, "node")
TABBED = (*VIEW_IDS, "campaign")
"""Where tab goes to the next view; in a node it goes to the next section."""
SHEETS = ("node", "kernel")
"""Screens of text that is searched."""
ALL = (*EVERY, "kernel")
REPLAY = ("replay",)
"""No screen but a mode: these keys are the app's while it plays a recording."""
_GO: tuple[Command, ...] = tuple(
    Command(
        id=view.id,
        keys=(view.key,),
        shown=view.key,
        label=view.label,
        help=view.question,
        screens=ALL,
        group="Views",
        action=f"view('{view.id}')",
    )
    for view in VIEWS
)

# fmt: off
COMMANDS: tuple[Command, ...] = (
    *_GO,
    Command(id="next_view", keys=("tab",), shown="tab", label="views", screens=TABBED,
            group="Views", footer=2, help="Go to the next of the ten views."),
    Command(id="previous_view", keys=("shift+tab",), shown="shift-tab", label="view before",
            screens=TABBED, group="Views", help="Go to the previous of the ten views."),
    Command(id="next_section", keys=("tab",), shown="tab", label="section", screens=("node",),
            footer=4, help="Go to the next section: findings, history, ports, and more."),
    Command(id="previous_section", keys=("shift+tab",), shown="shift-tab", label="section before",
            screens=("node",), help="Go to the section before."),
    Command(id="fold", keys=("z",), shown="z", label="fold", screens=("node",), footer=14,
            help="Fold the section you are in, or open it; raw facts begin folded."),
    Command(id="metric", keys=("m",), shown="m", label="metric", footer=10,
            screens=("node", "gpus"),
            help="Show another metric in the plots of a node or on the map of GPUs; :metric temp."),
    Command(id="pane", keys=("o",), shown="o", label="pane", screens=("fabric",), footer=10,
            help="Fold the panel of the node's links and ports: small, large, gone."),
    Command(id="span", keys=("t",), shown="t", label="time", screens=("node",), footer=10,
            help="Plot another time: the last 2 minutes, hour, 24 hours, 7 days."),
    Command(id="find", keys=("slash",), shown="/", label="find", screens=SHEETS, footer=5,
            group="Find", help="Find text, here in every section; n and N go to the next place."),
    Command(id="follow", keys=("f",), shown="f", label="follow", screens=("kernel",), footer=3,
            help="Stay at the newest line, or let go of it."),
    Command(id="open", keys=("enter",), shown="enter", label="open", screens=VIEW_IDS,
            footer=2, help="Show everything about the node, or the test, under the cursor."),
    Command(id="back", keys=("escape",), shown="esc", label="back", footer=3,
            help="Back to the view before.", screens=(*SHEETS, "tests", "campaign")),
    Command(id="go_back", keys=("left_square_bracket",), shown="[", label="before", screens=EVERY,
            group="Views", help="Back to where you were before, as in a browser."),
    Command(id="go_forward", keys=("right_square_bracket",), shown="]", label="after",
            screens=EVERY,
            group="Views", help="Forward again."),
    Command(id="show_all", keys=("escape",), shown="esc", label="show all", screens=TABLES,
            group="Find", help="Remove the filter; without one, back to the fleet."),
    Command(id="next_fault", keys=("n",), shown="n", label="fault",
            screens=(*NODES, "kernel"), footer=5,
            help="Go to the next node that is not ok (in a node: the next finding)."),
    Command(id="previous_fault", keys=("N",), shown="N", label="previous fault",
            screens=(*NODES, "kernel"),
            help="Go to the previous node that is not ok (in a node: the previous finding)."),
    Command(id="filter", keys=("slash",), shown="/", label="filter", screens=TABLES, footer=4,
            group="Find", help="Show only matching nodes, e.g. state:crit node:gpu0* temp>85."),
    Command(id="faults", keys=("ctrl+z",), shown="ctrl-z", label="faults only", screens=TABLES,
            group="Find", footer=20,
            help="Show only nodes that are not ok, or all again; other terms of the filter stay."),
    Command(id="sort", keys=("S",), shown="S", label="sort",
            screens=("fleet", "jobs", "drained"), footer=12, group="Find",
            help="Choose the order of the rows; choosing it again reverses it."),
    Command(id="wide", keys=("w",), shown="w", label="wide", screens=("fleet",), footer=14,
            help="Numbers before words: more columns, a shorter finding."),
    Command(id="stream", keys=("o",), shown="o", label="news", screens=("fleet",), footer=15,
            help="Fold the panel of newest problems: small, large, gone."),
    Command(id="pause", keys=("p",), shown="p", label="pause", footer=11, screens=ALL,
            help="Freeze what is shown; collecting goes on."),
    Command(id="refresh", keys=("ctrl+r",), shown="ctrl-r", label="read now", screens=EVERY,
            help="Ask the schedulers now and paint the whole screen again; GPUs are read anyway."),
    Command(id="mark", keys=("space",), shown="space", label="mark", screens=TABLES, footer=6,
            group="Mark", help="Mark or unmark the node under the cursor and go down."),
    Command(id="mark_range", keys=("ctrl+@", "ctrl+space"), shown="ctrl-space", label="range",
            screens=TABLES, group="Mark", help="Mark from the last marked node to the cursor."),
    Command(id="mark_invert", keys=("asterisk",), shown="*", label="invert", screens=TABLES,
            group="Mark", help="Mark every shown node that is not marked, and unmark the others."),
    Command(id="mark_clear", keys=("ctrl+backslash",), shown="ctrl-\\", label="unmark",
            screens=TABLES, group="Mark", help="Remove every mark, also of nodes not shown."),
    Command(id="acknowledge", keys=("a",), shown="a", label="ack",
            screens=NODES, footer=10, group="Act",
            help="Acknowledge the top finding (in a node: the selected one)."),
    Command(id="explain", keys=("x",), shown="x", label="explain", screens=NODES, footer=12,
            help="What the rule of the top finding means, reads and proposes; :explain RULE."),
    Command(id="drain", keys=("D",), shown="D", label="drain", acts=True, footer=3, group="Act",
            screens=(*NODES, "campaign"),
            help="Take the marked nodes, or this one, out of work; the plan comes first."),
    Command(id="resume", keys=("U",), shown="U", label="resume",
            screens=NODES, acts=True, footer=8, group="Act",
            help="Give the marked nodes, or this one, back to work; the plan comes first."),
    Command(id="test", keys=("T",), shown="T", label="test",
            screens=NODES, acts=True, footer=13, group="Act",
            help="Test the marked nodes, or this one: GPUs, nodes, pairs, rails, all; asks first."),
    Command(id="stop", keys=("X",), shown="X", label="stop", acts=True, footer=5, group="Act",
            screens=("tests", "campaign"),
            help="Stop the test that runs; what it measured is kept."),
    Command(id="evidence", keys=("e",), shown="e", label="evidence",
            screens=NODES, asks=True, footer=19, group="Act",
            help="Gather an evidence bundle of the marked nodes, or this one; drains do it first."),
    Command(id="ssh", keys=("s",), shown="s", label="ssh", screens=NODES, asks=True, footer=9,
            group="Act",
            help="Log in to the node; the console keeps collecting and comes back after exit."),
    Command(id="kernel_log", keys=("l",), shown="l", label="kernel log", screens=NODES, footer=9,
            help="Show the node's whole kernel log, and follow it."),
    Command(id="copy", keys=("y",), shown="y", label="copy", footer=16, group="Act",
            screens=EVERY,
            help="Copy the marked nodes, or this one, as a host list (OSC 52); :copy json."),
    Command(id="copy_as", keys=("c",), shown="c", label="copy as", screens=EVERY, group="Act",
            help="Choose how to copy: host list, JSON, or markdown ready for a ticket."),
    Command(id="screenshot", keys=("ctrl+s",), shown="ctrl-s", label="screenshot",
            screens=ALL,
            help="Write this screen as SVG and text; :screenshot svg|text [PATH]."),
    Command(id="command", keys=("colon",), shown=":", label="command",
            screens=EVERY, footer=17, group="Find",
            help="Type a command, e.g. :drain bad link, :sort temp, :mark state:crit."),
    Command(id="palette", keys=("ctrl+p",), shown="ctrl-p", label="palette", group="Find",
            screens=EVERY, help="Search all commands by their words.", palette=False),
    Command(id="help", keys=("question_mark", "f1"), shown="?", label="help", footer=1,
            screens=ALL, group="Find", help="Keys, filter fields and what the signs mean."),
    Command(id="tour", keys=("ctrl+t",), shown="ctrl-t", label="tour", screens=EVERY,
            group="Find", action="app.tour",
            help="In the demo: a guided tour of two minutes; within it, the next step."),
    Command(id="theme", keys=(), shown=":theme", label="theme", screens=EVERY,
            help="Change the colours; :theme auto|dark|light|high-contrast|colour-blind."),
    Command(id="record", keys=(), shown=":record", label="record", screens=EVERY, group="Record",
            help="Write a recording for `gpuconsole replay`: :record FILE[.gz], :record stop."),
    Command(id="replay_back", keys=("comma",), shown=",", label="second back", screens=REPLAY,
            group="Replay", action="app.replay_step(-1)", help="One second back, and stop there."),
    Command(id="replay_on", keys=("full_stop",), shown=".", label="second on", screens=REPLAY,
            group="Replay", action="app.replay_step(1)", help="One second on, and stop there."),
    Command(id="replay_back_10", keys=("less_than_sign",), shown="<", label="10 s back",
            screens=REPLAY, group="Replay", action="app.replay_seek('-10')",
            help="10 seconds back."),
    Command(id="replay_on_10", keys=("greater_than_sign",), shown=">", label="10 s on",
            screens=REPLAY, group="Replay", action="app.replay_seek('+10')",
            help="10 seconds on."),
    Command(id="replay_back_60", keys=("left_parenthesis",), shown="(", label="minute back",
            screens=REPLAY, group="Replay", action="app.replay_seek('-60')",
            help="One minute back."),
    Command(id="replay_on_60", keys=("right_parenthesis",), shown=")", label="minute on",
            screens=REPLAY, group="Replay", action="app.replay_seek('+60')",
            help="One minute on."),
    Command(id="faster", keys=("plus", "equals_sign"), shown="+", label="faster", screens=REPLAY,
            group="Replay", action="app.replay_faster(1)", help="Play faster, up to x128."),
    Command(id="slower", keys=("minus",), shown="-", label="slower", screens=REPLAY,
            group="Replay", action="app.replay_faster(-1)", help="Play slower, down to x0.1."),
    Command(id="seek", keys=(), shown=":seek", label="seek", screens=REPLAY, group="Replay",
            palette=False, help=":seek 03:12 from the start, +5m, -30s, 50%, @14:03, end."),
    Command(id="speed", keys=(), shown=":speed", label="speed", screens=REPLAY, group="Replay",
            palette=False, help=":speed 8 plays eight recorded seconds a second."),
    Command(id="quit", keys=("q",), shown="q", label="quit", footer=18, group="Act",
            screens=ALL, help="Leave the console; agents on the nodes end within a second."),
)
# fmt: on
"""In the order of the help screen's groups."""

BY_ID = {command.id: command for command in COMMANDS}
ACTIONS = frozenset(command.does.partition("(")[0] for command in COMMANDS)
"""Names of their actions, as Textual asks for them."""


def move_keys(move: str) -> str:
    """Keys of a move, as Binding takes them."""
    return ",".join(MOVES[move])


Keys = Mapping[str, tuple[str, ...]]
"""Command id -> keys that the operator gave it (see keymap.py)."""
NONE: Keys = {}


def offered(
    screen: str, *, read_only: bool, keys: Keys = NONE, replay: bool = False
) -> list[Command]:
    """The commands of a screen, without those that act when nothing may be changed, and in a
    replay without those that ask a node."""
    here = [c for c in COMMANDS if screen in c.screens]
    here = [c for c in here if not ((read_only and c.acts) or (replay and c.asks))]
    return [_remapped(c, keys[c.id]) if c.id in keys else c for c in here]


def _remapped(command: Command, keys: tuple[str, ...]) -> Command:
    from console.tui.keymap import shown

    return msgspec.structs.replace(command, keys=keys, shown=shown(keys[0]))


def bindings(screen: str) -> list[BindingType]:
    """Textual bindings of a screen. Read-only mode hides acting ones through `check_action`."""
    return [
        Binding(
            ",".join(command.keys),
            command.does,
            command.label,
            id=command.id,
            tooltip=command.help,
            show=bool(command.footer),
            # Handled in the order of typing: a key passed down to a widget is handled later than
            # the next one, and fast typing after `/` would run commands instead of filtering.
            priority=True,
        )
        for command in COMMANDS
        if screen in command.screens and command.keys
    ]


def allowed(action: str, *, read_only: bool) -> bool:
    """What `check_action` answers: False hides the command."""
    command = BY_ID.get(action)
    return command is None or not (read_only and command.acts)


FIRST: Mapping[str, Sequence[str]] = {
    "findings": ("help", "next_view", "open", "explain", "acknowledge", "filter"),
    "gpus": ("help", "next_view", "open", "next_fault", "filter", "mark"),
    "fabric": ("help", "next_view", "open", "next_fault", "filter", "mark"),
    "jobs": ("help", "next_view", "open", "filter", "next_fault", "copy"),
    "tests": ("help", "next_view", "open", "stop", "copy", "command"),
    "drained": ("help", "next_view", "open", "resume", "filter", "mark"),
    "drift": ("help", "next_view", "open", "filter", "mark", "copy"),
    "log": ("help", "next_view", "open", "filter", "pause"),
    "node": ("back", "help", "next_section", "next_fault", "drain", "find", "explain", "ssh"),
    "kernel": ("back", "help", "follow", "next_fault", "find"),
    "campaign": ("back", "help", "stop", "drain", "copy"),
}
"""What a view's key line begins with; the rest follows by Command.footer."""


def footer(
    screen: str, *, read_only: bool, keys: Keys = NONE, replay: bool = False
) -> Iterator[tuple[str, str, str]]:
    """(id, key, label), the most useful first."""
    first = {command: at for at, command in enumerate(FIRST.get(screen, ()))}
    here = offered(screen, read_only=read_only, keys=keys, replay=replay)
    shown = [c for c in here if c.footer]
    for command in sorted(shown, key=lambda c: (first.get(c.id, len(first)), c.footer)):
        views = command.id == "next_view" and not keys.keys() & set(VIEW_IDS)
        yield command.id, "1-0" if views else command.shown, t(command.label)
