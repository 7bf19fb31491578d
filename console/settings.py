"""Flags and defaults as one frozen struct, and where things are kept."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct
from platformdirs import user_log_path, user_state_path


class Settings(Struct, frozen=True, kw_only=True):
    """How to look, not what to look at. Defaults without a figure are our estimate."""

    timeout_s: float = 12.0
    """Per node in one pass, from the start of its handshake; our estimate, not measured."""
    fanout: int = 64
    """Handshakes at a time, never sessions.

    Measured: each takes 9 round trips and 2.9 ms of CPU, so 64 keep one core busy up to 20 ms RTT.
    """
    window_s: float = 1.0
    """Between the two counter samples of one pass."""
    fast_s: float = 2.0
    slow_s: float = 30.0
    rare_s: float = 300.0
    scheduler_s: float = 15.0
    """Between two readings of the scheduler; one batched call each."""
    read_only: bool = False
    drain_cap: float = 0.2
    """Share of the healthy pool above which the count must be typed (our estimate)."""
    rules: Path | None = None


def state_dir() -> Path:
    """Audit log and other things that must survive. Looking at a cluster does not need it."""
    return user_state_path("gpuconsole", appauthor=False)


def demo_dir() -> Path:
    """The same of the demo: its drains, bundles and tests prove nothing of a real node."""
    return state_dir() / "demo"


def log_path() -> Path:
    """The log file of the screen, which must not write to the terminal."""
    return user_log_path("gpuconsole", appauthor=False) / "gpuconsole.log"


def private(folder: Path) -> Path:
    """Make a folder that only its owner can read, if it is not there. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
