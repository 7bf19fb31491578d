"""What NCCL's RAS port answers, as communicators and ranks: JSON (from 2.28.7) or text. Pure.

Both are read as they come in, in pieces, so that an answer of 16 MB never lies in memory as a
whole. What is not understood is skipped: the text differs between releases. Formats: RAS chapter of
NCCL's guide and src/ras/client_support.cc of NVIDIA/nccl, 2.24 to 2.31.
"""

from probes.node.ras_comm import RANKS_MOST
from probes.node.ras_json import Json
from probes.node.ras_text import Text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional, Union

    from probes.node.ras_comm import Comm

PIECE_CHARS = 131072
"""Text that holds no complete object or line; a rank has 700 characters."""


class Reader:
    """Feed it the answer; then `comms`, and what was said about the whole."""

    def __init__(self) -> "None":
        self.comms: "list[Comm]" = []
        self.version = ""
        self.format = ""
        self.took_s: "Optional[float]" = None
        """How long NCCL needed to ask its processes: how far apart two ranks' counts may be."""
        self.timeouts = 0
        self.complete = False
        """Whether the end of the answer was seen."""
        self.odd = False
        """No answer of NCCL's."""
        self._ranks = 0
        self._rest = ""
        self._parse: "Union[Json, Text, None]" = None

    def feed(self, piece: "bytes") -> "None":
        """The next bytes of the answer to VERBOSE STATUS."""
        self._rest += piece.decode("ascii", "replace")
        if self._parse is None:
            start = self._rest.lstrip()
            if not start:
                return
            self.format = "json" if start.startswith("{") else "text"
            self._parse = Json(self) if self.format == "json" else Text(self)
        if not self.odd:
            self._rest = self._parse.take(self._rest)
            self.odd = len(self._rest) > PIECE_CHARS

    def end(self) -> "None":
        """The connection has ended."""
        if self._parse is not None and not self.odd:
            self._rest = self._parse.take(self._rest + "\n")
            self._parse.end()
        self.odd = self.odd or not (self.comms or self.version or self.complete)

    def room(self) -> "bool":
        """Whether one more rank may be kept."""
        self._ranks += 1
        return self._ranks <= RANKS_MOST
