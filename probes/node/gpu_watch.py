"""How the GPUs run while an active test loads them, from NVML."""

import statistics
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from probes.node.context import Context
    from probes.node.nvml_reader import Reader

WATCH_S = 0.2
"""Between two readings."""


class Watch:
    """Reads NVML while a phase runs, in a thread of its own: the child's output never waits."""

    def __init__(self, ctx: "Context") -> "None":
        self._ctx = ctx
        self._what = ""
        self._stop = threading.Event()
        self._thread: "threading.Thread | None" = None
        self._seen: "dict[str, list[dict[str, Any]]]" = {}

    def start(self, what: "str") -> "None":
        """Begin reading, for phases of which something is kept."""
        self.stop()
        if self._ctx.nvml is None or what not in ("gemm_bf16", "h2d", "d2h"):
            return
        self._what, self._seen = what, {}
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name="gpu_test watch")
        self._thread.daemon = True
        self._thread.start()

    def _run(self) -> "None":
        from probes.node.nvml_reader import each_gpu

        while not self._stop.wait(WATCH_S):
            try:
                answers = each_gpu(self._ctx, _link if self._what != "gemm_bf16" else _load)
            except Exception:  # a driver that hangs or fails: the figures stand without it
                return
            for device, values in answers.items():
                self._seen.setdefault(device, []).append(values)

    def stop(self) -> "dict[str, dict[str, object]]":
        """End reading; what is kept of each GPU."""
        if self._thread is None:
            return {}
        self._stop.set()
        self._thread.join(WATCH_S * 5)
        self._thread = None
        kept = _busiest if self._what != "gemm_bf16" else _medians
        return {device: kept(list(seen)) for device, seen in self._seen.items() if seen}


def _load(reader: "Reader") -> "None":
    """What a GPU does under the GEMM."""
    from probes.node import nvml

    nvml.read_load(reader)
    reader.put(energy_mj=reader.ask("nvmlDeviceGetTotalEnergyConsumption"))


def _link(reader: "Reader") -> "None":
    reader.put(
        pcie_gen=reader.ask("nvmlDeviceGetCurrPcieLinkGeneration"),
        pcie_width=reader.ask("nvmlDeviceGetCurrPcieLinkWidth"),
    )


def _medians(seen: "list[dict[str, Any]]") -> "dict[str, object]":
    """Medians of the second half, when clocks and power have settled; reasons of most readings."""
    found: "dict[str, object]" = {"index": seen[-1]["index"]}
    late = seen[len(seen) // 2 :]
    for name in ("power_w", "sm_clock_mhz", "temp_c"):
        values = [one[name] for one in late if name in one]
        if values:
            found[name] = round(float(statistics.median(values)), 1)
    masks = [int(one["reasons"]) for one in late if "reasons" in one]
    if masks:
        bits = [1 << bit for bit in range(16)]
        found["reasons"] = sum(b for b in bits if 2 * sum(bool(m & b) for m in masks) > len(masks))
    energy = [one["energy_mj"] for one in seen if "energy_mj" in one]
    if len(energy) > 1 and energy[-1] >= energy[0]:
        found["energy_j"] = round((energy[-1] - energy[0]) / 1000.0, 1)
    return found


def _busiest(seen: "list[dict[str, Any]]") -> "dict[str, object]":
    """The highest generation and width: an idle link trains down between two GPUs' turns."""
    found: "dict[str, object]" = {"index": seen[-1]["index"]}
    for name in ("pcie_gen", "pcie_width"):
        values = [int(one[name]) for one in seen if name in one]
        if values:
            found[name] = max(values)
    return found
