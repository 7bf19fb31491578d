"""Communicators and ranks as NCCL's RAS port tells of them, and what both formats share."""

import re
from collections import namedtuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

RANKS_MOST = 32768
"""Ranks of all communicators kept: about 8 MB. 4,096 GPUs with five communicators a rank fit."""
COMMS_MOST = 8192
OPS_MOST = 16
WORD_CHARS = 24
HOST_CHARS = 46
"""INET6_ADDRSTRLEN."""
NUMBER_MOST = 1 << 63

DONE, UNDER_WAY = 0, 7
"""ncclSuccess and ncclInProgress (nccl.h): of init_state and async_error, neither is an error."""

Rank = namedtuple("Rank", "rank host pid gpu count ops init error ending")
"""`count` collectives launched in all, None where the answer does not say; `ops` as text."""
Missing = namedtuple("Missing", "rank host pid gpu silent dead")
"""A rank without an answer. `silent`: not reached; `dead`: given up by NCCL after 60 s."""


class Comm:
    """One communicator of the answer."""

    __slots__ = ("basis", "counts", "lost", "missing", "name", "ranks", "size")

    def __init__(self, name: "str", size: "int") -> "None":
        self.name = name
        """Its hash, 16 hexadecimal digits."""
        self.size = size
        self.basis = "all"
        """Operations the counts are of: all; in text the one that differs, or "text" for none."""
        self.ranks: "list[Rank]" = []
        self.missing: "list[Missing]" = []
        self.lost = 0
        """Ranks without an answer, also those that are not listed one by one."""
        self.counts: "dict[int, int]" = {}
        """Count -> how many ranks have launched so many, of ranks that are not listed."""


def whole(value: "object") -> "Optional[int]":
    """A whole number that is not negative, within 63 bit; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < NUMBER_MOST else None


def number_of(text: "Optional[str]") -> "Optional[int]":
    """A number of at most 19 digits; None for anything else."""
    return int(text) if text and len(text) < 20 and text.isdigit() else None


def name_of(digits: "str") -> "str":
    """A hash as both formats mean it: 0x27a0 and 00000000000027a0 are one."""
    text = digits[2:] if digits[:2].lower() == "0x" else digits
    return text.lower().rjust(16, "0") if 0 < len(text) <= 16 else ""


def host_of(value: "object") -> "str":
    """An address as the port prints it; "" for what is none."""
    text = str(value)[:HOST_CHARS]
    return text if re.match(r"[0-9a-fA-F.:]+$", text) else ""


def word(text: "str") -> "str":
    """The text without what is no part of a name or version."""
    return re.sub(r"[^0-9A-Za-z.+_-]", "", text)


def is_number(value: "object") -> "bool":
    """Whether it is a number from 0 to below 1e9; True and False are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e9
