"""Write the manual page and the cheat sheet. Pictures have a script of their own, as they need the
demo: `python -m docs.screenshots`."""

from __future__ import annotations

from docs import HERE, cheatsheet, manual

(HERE / manual.NAME).write_text(manual.page(), encoding="utf-8")
(HERE / cheatsheet.NAME).write_text(cheatsheet.sheet(), encoding="utf-8")
