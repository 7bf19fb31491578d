"""Run by test_terminal and benchmarks in a pty of their own: the console over synthetic Events.

argv: a descriptor for reports, the number of nodes. Reports are lines: `beat N` about twenty times
a second while the event loop is alive, `gone` when collecting was cancelled, `left CODE` at the
end.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Collection

from console.tui.app import ConsoleApp
from tests.tui import synthetic


class Beating(synthetic.LocalEngine):
    """Changes every node at every beat, so that the screen always has something to say."""

    report = -1

    def ssh_command(self, name: str) -> list[str]:
        """A program that has the terminal as long as there is one."""
        return ["cat"]

    async def run(self, names: Collection[str] | None = None) -> None:
        """Feed until cancelled."""
        beat = 0
        try:
            while True:
                beat += 1
                self.at += 1.0
                hot = 62 + beat % 30
                for name in self.fleet.nodes:
                    events = synthetic.fast(name, self.at, beat)
                    self.feed_all(synthetic.changed(events, "gpu", synthetic.pci(0), temp_c=hot))
                os.write(self.report, b"beat %d\n" % beat)
                await asyncio.sleep(0.05)
        finally:
            os.write(self.report, b"gone\n")


def main() -> None:
    """Run the console until it leaves."""
    inventory = synthetic.inventory(int(sys.argv[2]))
    engine = Beating(inventory, None)
    engine.report = int(sys.argv[1])
    app = ConsoleApp(engine, clock=lambda: engine.at, tick_s=0.05)
    asyncio.run(app.run_async())
    os.write(engine.report, b"left %d\n" % (app.return_code or 0))


if __name__ == "__main__":
    main()
