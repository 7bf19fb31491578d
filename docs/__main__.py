"""Write the manual page, the cheat sheet and the README's table of keys. Pictures have a script of
their own, as they need the demo: `python -m docs.screenshots`."""

from __future__ import annotations

from docs import HERE, README, cheatsheet, manual

(HERE / manual.NAME).write_text(manual.page(), encoding="utf-8")
(HERE / cheatsheet.NAME).write_text(cheatsheet.sheet(), encoding="utf-8")
before, heading, rest = README.read_text(encoding="utf-8").partition("## Keys\n")
_, after, tail = rest.partition("\nThe filter after")
README.write_text(f"{before}{heading}\n{cheatsheet.keys()}\n{after}{tail}", encoding="utf-8")
