"""What Slurm's state words mean, in one vocabulary for releases 22.05 to today. Pure.

`scontrol` joins a base state and flags by "+", in any order (`MIXED+DRAIN+REBOOT_ISSUED`); `sinfo`
has one word, long or short (`draining`, `drng`); both may end in one-character suffixes, also in
the middle (`DOWN*+DRAIN`). Words and suffixes: man sinfo, "NODE STATE CODES", and man scontrol.
"""

from __future__ import annotations

from msgspec import Struct

SUFFIXES = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "!": "POWER_DOWN",
    "%": "POWERING_DOWN",
    "$": "MAINTENANCE",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
}

_BASES = {
    "IDLE": "IDLE",
    "ALLOCATED": "ALLOCATED",
    "ALLOC": "ALLOCATED",
    "MIXED": "MIXED",
    "MIX": "MIXED",
    "DOWN": "DOWN",
    "ERROR": "DOWN",
    "UNKNOWN": "UNKNOWN",
    "UNK": "UNKNOWN",
    "FUTURE": "FUTURE",
    "FUTR": "FUTURE",
}
_FLAGS = {
    "MAINT": "MAINTENANCE",
    "NO_RESPOND": "NOT_RESPONDING",
    "POWER": "POWERED_DOWN",  # spelling before 21.08
    "POWER_SAVING": "POWERED_DOWN",
    "REBOOT": "REBOOT_REQUESTED",  # spelling before 21.08
    "INVAL": "INVALID_REG",
    "BLOCK": "BLOCKED",
    "RESV": "RESERVED",
    "PLND": "PLANNED",
    "COMP": "COMPLETING",
    "POW_DN": "POWERING_DOWN",
    "POW_UP": "POWERING_UP",
}
_WORDS = {
    # A sinfo word that implies a base: word -> (base, flag).
    "DRAINED": ("IDLE", "DRAIN"),
    "DRAINING": ("ALLOCATED", "DRAIN"),
    "DRNG": ("ALLOCATED", "DRAIN"),
    "FAILING": ("ALLOCATED", "FAIL"),
    "FAILG": ("ALLOCATED", "FAIL"),
    "BOOT": ("IDLE", "REBOOT_ISSUED"),
}
_ALONE = {
    # Flags that sinfo prints as the whole state of a node without running work.
    "DRAIN": "IDLE",
    "FAIL": "IDLE",
    "MAINTENANCE": "IDLE",
    "RESERVED": "IDLE",
    "PLANNED": "IDLE",
    "COMPLETING": "ALLOCATED",
    "INVALID_REG": "IDLE",
    "BLOCKED": "IDLE",
    "REBOOT_ISSUED": "IDLE",
    "POWERED_DOWN": "IDLE",
    "POWERING_DOWN": "IDLE",
    "POWERING_UP": "IDLE",
}
_OFF = frozenset({"POWERED_DOWN", "POWERING_DOWN", "POWERING_UP"})
_BUSY = frozenset({"ALLOCATED", "MIXED"})


class SlurmState(Struct, frozen=True, kw_only=True):
    """A node's state taken apart."""

    raw: str
    """As Slurm printed it."""
    base: str
    """IDLE, ALLOCATED, MIXED, DOWN, FUTURE or UNKNOWN; UNKNOWN also for a word not known here."""
    flags: frozenset[str]
    """Flags and suffixes in today's spelling; those not known here as they are."""

    @property
    def drain(self) -> bool:
        """Taken out of work by somebody: no new jobs."""
        return "DRAIN" in self.flags

    @property
    def works(self) -> bool:
        """Jobs run there or are just ending."""
        return self.base in _BUSY or "COMPLETING" in self.flags

    @property
    def off(self) -> bool:
        """Powered down, going down or coming up by design; False when coming up has failed."""
        return bool(self.flags & _OFF) and self.base != "DOWN"

    @property
    def responding(self) -> bool:
        """False when slurmctld has lost the node's slurmd; a node off by design is not lost."""
        return "NOT_RESPONDING" not in self.flags or self.off

    @property
    def state(self) -> str:
        """The word of scheduler.STATES. Drain beats down, as sinfo shows it."""
        return _state(self)


def parse_state(text: str) -> SlurmState:
    """Take apart what scontrol (`State=`) or sinfo (%t, %T, StateComplete) printed."""
    base, flags = "", set()
    for word in text.strip().upper().split("+"):
        core = word.rstrip("".join(SUFFIXES))
        flags |= {SUFFIXES[character] for character in word[len(core) :]}
        if core in _BASES:
            base = base or _BASES[core]
        elif core in _WORDS:
            implied, flag = _WORDS[core]
            base = base or implied
            flags.add(flag)
        elif core:
            flags.add(_FLAGS.get(core, core))
    if not base:
        base = _base_of(flags, text)
    return SlurmState(raw=text.strip(), base=base, flags=frozenset(flags))


def _base_of(flags: set[str], text: str) -> str:
    if text.strip().upper().startswith("REBOOT"):
        flags.add("REBOOT_ISSUED")  # sinfo says "reboot" when the node is rebooting
        flags.discard("REBOOT_REQUESTED")
    return next((base for flag, base in _ALONE.items() if flag in flags), "UNKNOWN")


def _state(node: SlurmState) -> str:
    if node.off:
        return "off"
    if node.drain:
        return "draining" if node.works else "drained"
    if node.base in ("DOWN", "UNKNOWN", "FUTURE"):
        return "down" if node.base == "DOWN" else "unknown"
    if "FAIL" in node.flags:
        return "draining" if node.works else "down"
    if "INVALID_REG" in node.flags and not node.works:
        return "down"  # registered with less than configured: Slurm starts nothing there
    if "REBOOT_ISSUED" in node.flags:
        return "off"
    if node.works:
        return "allocated" if node.base == "ALLOCATED" or node.base == "IDLE" else "mixed"
    if "MAINTENANCE" in node.flags:
        return "maintenance"
    return "reserved" if "RESERVED" in node.flags else "idle"
