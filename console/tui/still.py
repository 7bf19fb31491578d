"""What the screen shows: the Fleet, or how it was when the operator paused."""

from __future__ import annotations

from msgspec import structs

from console.fleet import Fleet

SLICE = 40
"""Nodes forgotten at once: some 3 ms where all of their readings were replaced meanwhile."""


class Still(Fleet):
    """Reads like its Fleet, or like that one was at a moment. Events go to the Fleet itself."""

    __slots__ = ("_live", "_over", "held")

    def __init__(self, live: Fleet) -> None:
        """It follows."""
        self._live = live
        self._over: list[object] = []
        """Facts of nodes that nobody looks at any more."""
        self.held = False
        self.__dict__ = vars(live)

    def follow(self) -> None:
        """Both are of one state again: what happens to the Fleet is seen here."""
        self._live.take_back()
        self._over += [(facts, self.rings.of_node(name)) for name, facts in self.nodes.items()]
        self.held = False
        self.__dict__ = vars(self._live)

    def forget(self) -> bool:
        """Free some of what was held; False when nothing is left. At once it would take 0.3 s."""
        del self._over[-SLICE:]
        return bool(self._over)

    def hold(self, at: float) -> None:
        """Stay as it is now, which is `at`, also where nobody has looked yet."""
        self.held = True
        self.__dict__ = {**self._live.lend(), "clock": lambda: at}

    def acknowledge(self, node: str, rule: str, device: str) -> None:
        """See Fleet. What the operator does themselves is also seen in what stands still."""
        self._live.acknowledge(node, rule, device)
        if self.held:
            self.findings[node] = [
                structs.replace(f, acknowledged=True) if (f.rule, f.device) == (rule, device) else f
                for f in self.findings[node]
            ]
