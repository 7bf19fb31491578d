"""GPUs that may be compared, and what is usual among them; counted when it is first asked. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from probes.loaded import Gpu
from probes.spread import Spread, spread

Read = Callable[[Gpu], float | None]


class Group:
    """Loaded GPUs alike. With `nodes`, the readings are the medians of these."""

    __slots__ = ("_kept", "gpus", "nodes", "where")

    def __init__(self, gpus: Sequence[Gpu], where: str, nodes: Sequence[Group] = ()) -> None:
        """`where`: "on its node", "of job 48211"."""
        self.gpus, self.where, self.nodes = gpus, where, nodes
        self._kept: dict[Read, Spread | None] = {}

    @property
    def n(self) -> int:
        """Members: GPUs, or nodes."""
        return len(self.nodes) or len(self.gpus)

    @property
    def unit(self) -> str:
        """What its members are."""
        return "nodes" if self.nodes else "GPUs"

    def of(self, read: Read) -> Spread | None:
        """What is usual; None when nobody has such a reading."""
        if read not in self._kept:
            self._kept[read] = spread(self._values(read))
        return self._kept[read]

    def _values(self, read: Read) -> list[float]:
        if not self.nodes:
            return [value for gpu in self.gpus if (value := read(gpu)) is not None]
        usual = [node.of(read) for node in self.nodes]
        return [one.median for one in usual if one is not None]

    def alike(self, read: Read, ratio: float) -> bool:
        """No reading below this share of the highest, so none can stand out."""
        values = self._values(read)
        return not values or min(values) >= ratio * max(values)


def power(gpu: Gpu) -> float | None:
    """Watts."""
    return gpu.power_w


def util(gpu: Gpu) -> float | None:
    """Percent; only to tell who is loaded alike, never to rank."""
    return gpu.util_percent
