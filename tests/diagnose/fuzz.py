"""Real texts, broken as editors, terminals and chats break them; and who is named in a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from console.diagnose.text import tidy


@st.composite
def mutated(draw: st.DrawFn, samples: Sequence[str]) -> str:
    """One of the samples with a few cuts, swaps, doublings and strange characters."""
    text = draw(st.sampled_from(list(samples)))
    for _ in range(draw(st.integers(0, 6))):
        lines = text.split("\n")
        at = draw(st.integers(0, max(0, len(lines) - 1)))
        place = draw(st.integers(0, max(0, len(text) - 1)))
        match draw(st.integers(0, 6)):
            case 0:
                text = text[:place]
            case 1:
                text = text[place:]
            case 2:
                text = "\n".join(lines[:at] + lines[at + 1 :])
            case 3:
                text = "\n".join([*lines[:at], *lines[at : at + 1] * 2, *lines[at + 1 :]])
            case 4:
                text = text[:place] + draw(st.text(max_size=5)) + text[place:]
            case 5:
                text = "\n".join(line.strip() for line in lines)
            case _:
                text = text.replace(draw(st.sampled_from(list("0: |\t,'"))), "", 3)
    return text


def readable(text: str) -> str:
    """A text as readers get it: without control characters."""
    return "\n".join(tidy(line) for line in text.split("\n"))


def gpus_named(text: str, name: str, gpu: dict[str, Any]) -> bool:
    """Whether a GPU of the facts stands in the text: its address, its UUID or its index."""
    low = readable(text).lower()
    pci, uuid = str(gpu.get("pci") or "").lower(), str(gpu.get("uuid") or "").lower()
    known = [word for word in (pci, uuid) if word and word != "unnamed"]
    if known:
        return all(word in low for word in known)
    return uuid == "unnamed" or name in text
