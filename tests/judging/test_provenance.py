"""What the shipped texts refer to is there for their reader."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from probes.checks import RULES
from probes.sources import cited

ROOT = Path(__file__).parents[2]
FOLDERS = ("console", "probes", "inventory", "benchmarks", "tests")
KINDS = {".py", ".yaml", ".toml", ".tcss", ".md", ".sh", ".json"}
OWN = ("our estimate", "our rule", "our deadline", "field case")
"""How a source says that nobody else stands behind it."""


def texts() -> Iterator[tuple[str, str]]:
    """Path below the repository and text of everything we wrote; collected field cases are not."""
    yield "README.md", (ROOT / "README.md").read_text(encoding="utf-8")
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            name = str(path.relative_to(ROOT))
            if path.suffix in KINDS and not name.startswith("tests/data/"):
                yield name, path.read_text(encoding="utf-8")


def test_every_document_a_text_names_is_in_the_repository() -> None:
    """One with a folder in front of it is another project's."""
    here = {path.name for path in ROOT.glob("*.md")}
    missing = {
        (name, document)
        for name, text in texts()
        for document in re.findall(r"(?<![\w/-])[\w-]+\.md\b", text)
        if document not in here
    }
    assert missing == set()


def test_no_text_points_at_a_numbered_section_of_something_else() -> None:
    section = re.compile(r"\b(?:design|section|chapter) [0-9]")
    assert [name for name, text in texts() if section.search(text)] == []


def test_every_rule_says_who_stands_behind_it() -> None:
    names = ("nvml.h", "Linux", "NVIDIA/", "Xid catalogue", "gpud", "lspci")
    for rule in RULES:
        known = cited(rule.source) or any(word in rule.source for word in (*OWN, *names))
        assert known, (rule.id, rule.source)
