"""What was typed, and what was poured in: pasting into a terminal that does not bracket pastes is
typing at a speed nobody has, and must neither act on nodes nor keep the console busy. Pure.
"""

from __future__ import annotations

import re

FLOOD_CHARS = 256
"""In one read, without an escape sequence: nobody types so far ahead, while a paste comes in
pieces of up to 4,095 (the kernel's limit for a terminal)."""
FLOOD_S = 0.25
"""A flood is over when nothing came for so long."""
READ_S = 0.25
"""A plan that appeared so short before the key was not read: seeing a word and pressing a key for
it takes people longer. So a paste that comes in single keys confirms nothing either."""
_KEY_AFTER_ESCAPE = re.compile(r"\x1b?([a-z0-9:/? ])")
"""A read that is a key after an escape: capitals and brackets may begin a sequence."""
_ESCAPE = "[27u"
"""Behind the byte of an escape it makes that key whole (kitty's keyboard protocol)."""
_BEGINS, _ENDS = "\x1b[200~", "\x1b[201~"


class Typed:
    """Text of the keyboard on its way to the parser."""

    def __init__(self, escape_s: float = 0.0) -> None:
        """Nothing typed yet. `escape_s`: how long the parser surely holds an escape back, to see
        what follows; 0 where Alt means something."""
        self.deliberate = True
        """The last key came alone."""
        self.floods = 0
        """Begun so far."""
        self._at = float("-inf")
        self._escape_s = escape_s
        self._escaped_at = float("-inf")
        self._flooding = False
        self._bracketed = False
        self._tail = self._held = ""

    def take(self, text: str, now: float) -> str:
        """What of a read at time `now` goes on to the parser: all of it, or "" in a flood."""
        gap, text = now - self._at, self._apart(text, now)
        if not text.startswith("\x1b"):
            # What terminals report by themselves (focus, mouse, sizes) is no key.
            self.deliberate, self._at = len(text) == 1, now
        pasted = self._pasted(text)
        if pasted is not None or "\x1b" in text:
            self._flooding = False
            return text if pasted is None else pasted
        if self._flooding and gap < FLOOD_S:
            return ""
        self._flooding = len(text) >= FLOOD_CHARS
        self.floods += self._flooding
        return "" if self._flooding else text

    def _apart(self, text: str, now: float) -> str:
        """An escape and the next key are two keys, also when a slow line brings them as one, which
        the parser would take for Alt and that key."""
        begun, self._escaped_at = self._escaped_at, now if text == "\x1b" else float("-inf")
        key = _KEY_AFTER_ESCAPE.fullmatch(text)
        if key is None or self._bracketed:
            return text
        if text[0] == "\x1b":
            return f"\x1b{_ESCAPE}{key[1]}" if self._escape_s else text
        return _ESCAPE + text if now - begun < self._escape_s else text

    def confirms(self, shown_at: float) -> bool:
        """Whether the last key may confirm what is on the screen since `shown_at`."""
        return self.deliberate and self._at - shown_at >= READ_S

    def _pasted(self, text: str) -> str | None:
        """A read that touches a bracketed paste; None for one that does not.

        Escapes within are left out: Textual would take what follows them for keys.
        """
        kept = ""
        if not self._bracketed:
            seen = self._tail + text
            at = seen.find(_BEGINS)
            if at < 0:
                self._tail = seen[1 - len(_BEGINS) :]
                return None
            cut = at + len(_BEGINS) - len(self._tail)
            kept, text = text[:cut], text[cut:]
            self._bracketed, self._tail = True, ""
        seen, self._held = self._held + text, ""
        at = seen.find(_ENDS)
        if at < 0:
            # What may be a piece of the end waits for the rest of it.
            piece = next(n for n in range(len(_ENDS) - 1, -1, -1) if seen.endswith(_ENDS[:n]))
            cut = len(seen) - piece
            self._held = seen[cut:]
            return kept + seen[:cut].replace("\x1b", "")
        self._bracketed, rest = False, seen[at + len(_ENDS) :]
        after = self._pasted(rest)
        return kept + seen[:at].replace("\x1b", "") + _ENDS + (rest if after is None else after)
