"""What the firmware and the driver show of GPUs outside their PCI directories: slots, device files.

Device files are empty plain files: only their being there is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def build(root: Path, gpus: Sequence[str]) -> None:
    """Slots and device files of the GPUs on these buses, in the order of the board's positions."""
    dev = root / "dev"
    dev.mkdir(parents=True, exist_ok=True)
    for name in ("nvidiactl", "nvidia-uvm", *(f"nvidia{minor}" for minor in range(len(gpus)))):
        (dev / name).touch()
    for position, bus in enumerate(gpus, 1):
        slot = root / "sys/bus/pci/slots" / f"SXM{position}"
        slot.mkdir(parents=True, exist_ok=True)
        (slot / "address").write_text(f"0000:{bus}:00\n")
