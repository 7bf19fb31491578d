"""What was typed, and what was poured in: pasting into a terminal that does not bracket pastes is
typing at a speed nobody has, and must neither act on nodes nor keep the console busy. Pure.
"""

from __future__ import annotations

FLOOD_CHARS = 256
"""In one read, without an escape sequence: nobody types so far ahead, while a paste comes in
pieces of up to 4,095 (the kernel's limit for a terminal)."""
FLOOD_S = 0.25
"""A flood is over when nothing came for so long."""
_BEGINS, _ENDS = "\x1b[200~", "\x1b[201~"


class Typed:
    """Text of the keyboard on its way to the parser."""

    def __init__(self) -> None:
        """Nothing typed yet."""
        self.deliberate = True
        """The last key came alone: a confirmation may count."""
        self.floods = 0
        """Begun so far."""
        self._at = float("-inf")
        self._flooding = False
        self._bracketed = False
        self._tail = ""

    def take(self, text: str, now: float) -> str:
        """What of a read at time `now` goes on to the parser: all of it, or "" in a flood."""
        gap = now - self._at
        if not text.startswith("\x1b"):
            # What terminals report by themselves (focus, mouse, sizes) is no key.
            self.deliberate, self._at = len(text) == 1, now
        if self._inside(text) or "\x1b" in text:
            self._flooding = False
            return text
        if self._flooding and gap < FLOOD_S:
            return ""
        self._flooding = len(text) >= FLOOD_CHARS
        self.floods += self._flooding
        return "" if self._flooding else text

    def _inside(self, text: str) -> bool:
        """Whether the read touches a bracketed paste, which the parser knows as one."""
        seen = self._tail + text
        self._tail = seen[1 - len(_BEGINS) :]
        was = self._bracketed
        begins, ends = seen.rfind(_BEGINS), seen.rfind(_ENDS)
        if max(begins, ends) >= 0:
            self._bracketed = begins > ends
        return was or self._bracketed or ends >= 0
