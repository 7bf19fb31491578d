"""The catalogue against the source. `python -m tests.tui.catalogue` brings it up to date.

Messages are the literals in `t("...")`, `tn("...", "...")`, `N_("...")` and `said("...")` anywhere
in console/, and the labels, helps and groups of the tables of commands and views, which are
literals already.
"""

from __future__ import annotations

import ast
import gettext
import re
import sys
from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

from console.tui.commands import COMMANDS
from console.tui.views import VIEWS
from console.tui.words import CATALOGUES, DOMAIN

LITERALS = {"t": 1, "N_": 1, "tn": 2, "said": 1}
"""Function -> how many of its first arguments are messages."""
IMPORTED = re.compile(r"^from console\.(tui\.words|said) import .*\b(t|tn|N_|said)\b", re.MULTILINE)
SOURCE = Path(__file__).parents[2] / "console"
ZH = CATALOGUES / "zh" / "LC_MESSAGES" / DOMAIN
PO, MO = ZH.with_suffix(".po"), ZH.with_suffix(".mo")
HEADER = """\
# The interface of gpuconsole in Chinese (simplified). Written by python -m tests.tui.catalogue:
# change only the lines that begin with msgstr.
msgid ""
msgstr ""
"Language: zh\\n"
"Content-Type: text/plain; charset=utf-8\\n"
"Content-Transfer-Encoding: 8bit\\n"
"Plural-Forms: nplurals=1; plural=0;\\n"

"""


def messages() -> dict[str, set[str]]:
    """Message -> files it is in."""
    found: dict[str, set[str]] = {}
    for message, where in (*_called(), *_declared()):
        found.setdefault(message, set()).add(where)
    found.pop("", None)
    return found


def _called() -> Iterator[tuple[str, str]]:
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if not IMPORTED.search(text):
            continue
        where = f"console/{path.relative_to(SOURCE).as_posix()}"
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call):
                continue
            for message in node.args[: LITERALS.get(_name(node), 0)]:
                if isinstance(message, ast.Constant):
                    yield str(message.value), where
                elif isinstance(message, ast.JoinedStr | ast.BinOp | ast.IfExp):
                    raise ValueError(f"{where}:{node.lineno}: not a literal")


def _name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _declared() -> Iterable[tuple[str, str]]:
    for command in COMMANDS:
        for text in (command.label, command.help, command.group):
            yield text, "console/tui/commands.py"
    for view in VIEWS:
        for text in (view.label, view.question):
            yield text, "console/tui/views/__init__.py"


def read() -> Catalog:
    """The Chinese catalogue as it lies in the source."""
    with PO.open("rb") as file:
        return read_po(file, locale="zh", domain=DOMAIN)


def spoken(file: BinaryIO) -> dict[str, str]:
    """Message -> translation of a compiled catalogue; its header left out."""
    table: dict[str, str] = dict(gettext.GNUTranslations(file)._catalog)  # type: ignore[attr-defined]
    del table[""]
    return table


def compiled(catalogue: Catalog) -> BytesIO:
    """The .mo of a catalogue."""
    out = BytesIO()
    write_mo(out, catalogue)
    out.seek(0)
    return out


def update() -> list[str]:
    """Write both files: what is used, with the translations there are. Returns what has none."""
    before = {str(m.id): str(m.string) for m in read()} if PO.exists() else {}
    catalogue = Catalog(locale="zh", domain=DOMAIN)
    for text, where in sorted(messages().items(), key=lambda item: (min(item[1]), item[0])):
        places = [(name, 0) for name in sorted(where)]
        catalogue.add(text, before.get(text, ""), locations=places)
    body = BytesIO()
    write_po(body, catalogue, width=0, include_lineno=False, omit_header=True)
    PO.parent.mkdir(parents=True, exist_ok=True)
    PO.write_bytes(HEADER.encode() + body.getvalue())
    made = compiled(read())
    # Its header has the time in it: the file changes only where its messages do.
    if not MO.exists() or spoken(BytesIO(MO.read_bytes())) != spoken(BytesIO(made.getvalue())):
        MO.write_bytes(made.getvalue())
    return [str(m.id) for m in catalogue if m.id and not m.string]


if __name__ == "__main__":
    for text in update():
        sys.stdout.write(f"{text!r}\n")
