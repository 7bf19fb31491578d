"""Every command, declared once: key, footer, palette entry, `:` word and help text.

Commands that act on nodes have upper-case keys, always confirm, and do not exist in read-only mode.
A screen offers a command by having `action_<id>`; nothing else registers it.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from textual.binding import Binding, BindingType

from console.tui.views import VIEW_IDS, VIEWS


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
TABLES = tuple(name for name in VIEW_IDS if name != "tests")
"""Views whose rows are about nodes: filter, marks, prompt."""
NODES = (*TABLES, "node")
_GO: tuple[Command, ...] = tuple(
    Command(
        id=view.id,
        keys=(view.key,),
        shown=view.key,
        label=view.label,
        help=view.question,
        screens=EVERY,
        group="Views",
        footer=21,
        action=f"view('{view.id}')",
    )
    for view in VIEWS
)

# fmt: off
COMMANDS: tuple[Command, ...] = (
    *_GO,
    Command(id="open", keys=("enter",), shown="enter", label="open", screens=VIEW_IDS,
            footer=2, help="Show everything about the node, or the test, under the cursor."),
    Command(id="back", keys=("escape",), shown="esc", label="back", footer=3,
            help="Back to the view before.", screens=("node", "tests", "campaign")),
    Command(id="go_back", keys=("left_square_bracket",), shown="[", label="before", screens=EVERY,
            group="Views", help="Back to where you were before, as in a browser."),
    Command(id="go_forward", keys=("right_square_bracket",), shown="]", label="after",
            screens=EVERY,
            group="Views", help="Forward again."),
    Command(id="show_all", keys=("escape",), shown="esc", label="show all", screens=TABLES,
            group="Find", help="Remove the filter; without one, back to the fleet."),
    Command(id="next_fault", keys=("n",), shown="n", label="fault", screens=NODES, footer=5,
            help="Go to the next node that is not ok (in a node: the next finding)."),
    Command(id="previous_fault", keys=("N",), shown="N", label="previous fault", screens=NODES,
            help="Go to the previous node that is not ok (in a node: the previous finding)."),
    Command(id="filter", keys=("slash",), shown="/", label="filter", screens=TABLES, footer=4,
            group="Find", help="Show only matching nodes, e.g. state:crit node:gpu0* temp>85."),
    Command(id="sort", keys=("S",), shown="S", label="sort", screens=("fleet",), footer=12,
            group="Find", help="Choose the order of the nodes; choosing it again reverses it."),
    Command(id="wide", keys=("w",), shown="w", label="wide", screens=("fleet",), footer=14,
            help="Numbers before words: more columns, a shorter finding."),
    Command(id="stream", keys=("o",), shown="o", label="news", screens=("fleet",), footer=15,
            help="Fold the panel of newest problems: small, large, gone."),
    Command(id="pause", keys=("p",), shown="p", label="pause", footer=11, screens=EVERY,
            help="Freeze what is shown; collecting goes on."),
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
            screens=NODES, footer=19, group="Act",
            help="Gather an evidence bundle of the marked nodes, or this one; drains do it first."),
    Command(id="ssh", keys=("s",), shown="s", label="ssh", screens=NODES, footer=9, group="Act",
            help="Log in to the node; the console keeps collecting and comes back after exit."),
    Command(id="copy", keys=("y",), shown="y", label="copy", footer=16, group="Act",
            screens=EVERY,
            help="Copy the marked nodes, or this one, as a folded host list (OSC 52)."),
    Command(id="command", keys=("colon",), shown=":", label="command",
            screens=TABLES, footer=17, group="Find",
            help="Type a command, e.g. :drain bad link, :sort temp, :mark state:crit."),
    Command(id="palette", keys=("ctrl+p",), shown="ctrl-p", label="palette", group="Find",
            screens=EVERY, help="Search all commands by their words.", palette=False),
    Command(id="help", keys=("question_mark", "f1"), shown="?", label="help", footer=1,
            screens=EVERY, group="Find", help="Keys, filter fields and what the signs mean."),
    Command(id="quit", keys=("q",), shown="q", label="quit", footer=18, group="Act",
            screens=EVERY, help="Leave the console; agents on the nodes end within a second."),
)
# fmt: on
"""In the order of the help screen's groups."""

BY_ID = {command.id: command for command in COMMANDS}


def offered(screen: str, *, read_only: bool) -> list[Command]:
    """The commands of a screen, without those that act when nothing may be changed."""
    return [c for c in COMMANDS if screen in c.screens and not (read_only and c.acts)]


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
        if screen in command.screens
    ]


def allowed(action: str, *, read_only: bool) -> bool:
    """What `check_action` answers: False hides the command."""
    command = BY_ID.get(action)
    return command is None or not (read_only and command.acts)


def footer(screen: str, *, read_only: bool) -> Iterator[tuple[str, str, str]]:
    """(id, key, label) in order of importance."""
    shown = [c for c in offered(screen, read_only=read_only) if c.footer]
    for command in sorted(shown, key=lambda c: c.footer):
        yield command.id, command.shown, command.label
