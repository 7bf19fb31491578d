"""Output of nccl-tests (all_reduce_perf and its siblings), any version, as facts. Pure.

Tolerates launcher tags ("[1,0]<stdout>:"), debug lines between the rows, the four-column tables
before 2.13, "N/A" in #wrong, values wider than their column, per-iteration columns and timestamps.
The format: source and history of NVIDIA/nccl-tests up to 2.19.6.
"""

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    Row = dict[str, object]

TAG = re.compile(r"^\s*\[[0-9]+,[0-9]+\]<std(?:out|err|diag)>:?|^\s*[\w.-]+:\s+(?=[#\d])")
"""What mpirun --tag-output puts before each line, and srun --label."""

VERSION = re.compile(r"^# nccl-tests version (\S+)")
LIBRARY = re.compile(r"nccl-library=(\d+)")
DEVICE = re.compile(
    r"^#\s+Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+(\d+)\s+on\s+(\S+)\s+device\s+(\d+)\s+"
    r"\[([0-9a-fA-F:.x]+)\]\s*(.*)"
)
BOUNDS = re.compile(r"^# Out of bounds values\s*:\s*(\d+)\s*(OK|FAILED)?")
AVERAGE = re.compile(r"^# Avg bus bandwidth\s*:\s*([0-9.eE+-]+|nan)\s*(OK|FAILED)?", re.IGNORECASE)
TEST = re.compile(r"^# Collective test (starting|concluded): (\S+)")
STAMP = re.compile(r"\s(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\s*$")
TRANSPORT = re.compile(r"NCCL INFO Channel .* via (NET/\S+)")
ERRORS = (
    re.compile(r"(?<!\S)(\S+): Test (?:NCCL|CUDA) failure .*"),
    re.compile(r"(?<!\S)(\S+): Test timeout.*"),
    re.compile(r"\.\. (\S+) pid \d+: Test failure .*"),
)
SIGNAL = re.compile(
    r"process rank (\d+) with PID \d+ on node (\S+) exited on\s+signal (\d+)", re.DOTALL
)
CAUGHT = re.compile(r"\[([\w.-]+):\d+:\d+:\d+\] Caught signal (\d+)")
FRAME = re.compile(r"^\s*\d+\s+0x[0-9a-f]+\s+(\w+)\(\)")
PLUMBING = frozenset(("__sigaction", "raise", "abort", "killpg", "gsignal"))
"""Frames of a backtrace that belong to the signal itself."""

PLACEMENT_COLUMNS = ("time_us", "algbw_gb_s", "busbw_gb_s", "wrong")
ITERATION_COLUMNS = ("i_min_us", "i_max_us", "i_p99_us", "i_cv_percent")


class Table:
    """Everything read from one run. Feed lines in order; ask `summary` at the end."""

    def __init__(self) -> "None":
        self.rows: "list[Row]" = []
        self.devices: "list[Row]" = []
        """{rank, pid, host, device, pci, name} of each rank."""
        self.version = ""
        self.library = ""
        self.test = ""
        self.transport = ""
        self.out_of_bounds: "int | None" = None
        self.average: "float | None" = None
        self.concluded = False
        """The footer was printed: the run measured all it was asked to."""
        self.errors: "list[str]" = []
        self.signal: "int | None" = None
        self.signal_rank: "int | None" = None
        self.signal_host = ""
        self.frame = ""
        self._iterations = False
        self._before = ""

    def feed(self, line: "str") -> "list[Row]":
        """Read one line; the table rows it holds: none, one, or one per placement."""
        text = TAG.sub("", line.rstrip())
        rows: "list[Row]" = []
        if text.startswith("#"):
            self._comment(text)
        elif re.match(r"\s*\d+\s+\d+\s", text):
            rows = parse_row(text, self._iterations)
            self.rows.extend(rows)
        else:
            self._trouble(text)
        self._before = text
        return rows

    def _comment(self, text: "str") -> "None":
        self._iterations = self._iterations or "per-iteration" in text.lower() or "i_min" in text
        found = DEVICE.match(text)
        if found:
            rank, pid, host, device, pci, name = found.groups()
            ids = {"rank": int(rank), "pid": int(pid), "device": int(device)}
            self.devices.append(dict(ids, host=host, pci=pci, name=name.strip()))
        self._head_and_foot(text)

    def _head_and_foot(self, text: "str") -> "None":
        version, library, test = VERSION.match(text), LIBRARY.search(text), TEST.match(text)
        bounds, average = BOUNDS.match(text), AVERAGE.match(text)
        if version:
            self.version = version.group(1)
        if library:
            self.library = library.group(1)
        if test:
            self.test = test.group(2)
        if bounds:
            self.out_of_bounds = int(bounds.group(1))
        if average:
            self.average = _number(average.group(1))
            self.concluded = True

    def _trouble(self, text: "str") -> "None":
        via, caught, frame = TRANSPORT.search(text), CAUGHT.search(text), FRAME.match(text)
        signal = SIGNAL.search(self._before + " " + text)
        if via and not self.transport:
            self.transport = via.group(1)
        if caught:
            self.signal_host, self.signal = caught.group(1), int(caught.group(2))
        if frame and not self.frame and frame.group(1) not in PLUMBING:
            self.frame = frame.group(1)
        if signal:
            self.signal_rank = int(signal.group(1))
            self.signal_host, self.signal = signal.group(2), int(signal.group(3))
        if any(form.search(text) for form in ERRORS):
            self.errors.append(text.strip())

    @property
    def ranks(self) -> "int | None":
        """How many ranks the header lists; None when it lists none."""
        return len(self.devices) or None

    @property
    def busbw_means_something(self) -> "bool":
        """False with a single rank: its bus bandwidth is 0 by definition."""
        return self.ranks != 1

    def largest(self) -> "Row | None":
        """The row to judge by: the better placement of the largest size. None without rows."""
        if not self.rows:
            return None
        return max(self.rows, key=lambda row: (row["size_bytes"], row.get("busbw_gb_s") or 0.0))

    def wrong(self) -> "int":
        """Wrong values over all rows; unchecked ones do not count."""
        return sum(_whole(row.get("wrong")) for row in self.rows)


def parse(text: "str") -> "Table":
    """The facts of a whole output."""
    table = Table()
    for line in text.splitlines():
        table.feed(line)
    return table


def parse_row(text: "str", iterations: "bool" = False) -> "list[Row]":
    """The placements of one table row: out-of-place and in-place, or one. [] when it is no row.

    `iterations` says that four per-iteration columns follow each placement's four.
    """
    stamp = STAMP.search(text)
    words = (text[: stamp.start()] if stamp else text).split()
    names = PLACEMENT_COLUMNS + (ITERATION_COLUMNS if iterations else ())
    width = len(names)
    lead = next((at for at, word in enumerate(words) if at > 2 and _float_like(word)), len(words))
    if lead < len(words) and re.match(r"-?\d+$", words[lead]) and (len(words) - lead) % width:
        lead += 1  # the root column, since 2.13
    cells = words[lead:]
    if not cells or len(cells) % width:
        return []
    head: "Row" = {"size_bytes": int(words[0]), "count": int(words[1]), "dtype": words[2]}
    if lead > 3 and not _float_like(words[3]):
        head["redop"] = words[3]
    rows = []
    for at in range(0, len(cells), width):
        row: "Row" = dict(head, in_place=at > 0)
        for name, cell in zip(names, cells[at : at + width]):
            value = _number(cell)
            if value is not None:
                row[name] = int(value) if name == "wrong" and value == int(value) else value
        if stamp:
            row["timestamp"] = stamp.group(1)
        rows.append(row)
    return rows


def _float_like(word: "str") -> "bool":
    return _number(word) is not None or word.upper() == "N/A"


def _number(word: "str") -> "float | None":
    """A finite number; None for N/A, nan and text."""
    try:
        value = float(word)
    except ValueError:
        return None
    return value if abs(value) < float("inf") else None


def _whole(value: "object") -> "int":
    return value if isinstance(value, int) else 0
