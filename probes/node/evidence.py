"""Job "evidence": what a repair shop asks for, gathered before a node is taken out of work.

Kernel log of this boot and the last one, the driver's own report, link and port counters, services
and versions, as files. Read only, each command bounded in time and size; after one nvidia-smi that
does not come back no second one is started. Secrets are taken out here, on the node: no environment
and no command line of a process is read, and what looks like a password, token or key is struck.
"""

import os

from probes.node.process_tree import kill_tree
from probes.node.secrets import struck
from probes.node.tool import Patience

TYPE_CHECKING = False
if TYPE_CHECKING:
    from probes.node.context import Context
    from probes.node.jobs import Job

FILE_BYTES = 4 << 20
"""Most of one command or file; a whole `nvidia-smi -q` of 16 GPUs is 300 KB."""

ALL_BYTES = 24 << 20
"""Most of one node."""

COMMAND_S = 8.0
"""nvidia-smi without persistence mode initialises 8 GPUs in about 4 s; our estimate."""

DRIVER = "nvidia-smi"

KERNEL_COMMANDS = (
    ("dmesg.txt", ("dmesg",)),
    ("nvidia-smi-q.txt", (DRIVER, "-q")),
    ("nvidia-smi.txt", (DRIVER,)),
    ("nvlink-status.txt", (DRIVER, "nvlink", "-s")),
    ("nvlink-errors.txt", (DRIVER, "nvlink", "-e")),
    ("topo.txt", (DRIVER, "topo", "-m")),
)
"""They ask the kernel and the driver, so they are right from inside a container too."""

UNIT_FACTS = (
    "Id,LoadState,ActiveState,SubState,Result,NRestarts,ExecMainStatus,ActiveEnterTimestamp,"
    "InactiveEnterTimestamp"
)
"""`systemctl status` and the description of a transient unit would show command lines."""

HOST_COMMANDS = (
    ("kernel-this-boot.txt", ("journalctl", "-k", "-b", "0", "-n", "5000", "--no-pager")),
    ("kernel-last-boot.txt", ("journalctl", "-k", "-b", "-1", "-n", "5000", "--no-pager")),
    ("lspci.txt", ("lspci", "-nn", "-vv")),
    ("ibstat.txt", ("ibstat",)),
    ("rdma-link.txt", ("rdma", "link")),
    (
        "failed-units.txt",
        ("systemctl", "show", "--state=failed", "--no-pager", "-p", UNIT_FACTS, "*"),
    ),
    (
        "fabric-manager.txt",
        ("systemctl", "show", "nvidia-fabricmanager", "--no-pager", "-p", UNIT_FACTS),
    ),
    (
        "fabric-manager-log.txt",
        ("journalctl", "-u", "nvidia-fabricmanager", "-n", "500", "--no-pager"),
    ),
    ("processes.txt", ("ps", "-axo", "pid,ppid,user,stat,etime,wchan:32,comm")),
)
"""Only where the agent sees the host itself. No option prints an environment or a command line."""

FILES = (
    "proc/cmdline", "proc/loadavg", "proc/meminfo", "proc/self/mountinfo", "proc/uptime",
    "proc/driver/nvidia/version", "proc/pressure/io", "proc/pressure/memory", "proc/mdstat",
    "etc/os-release", "sys/class/dmi/id/product_name", "sys/class/dmi/id/bios_version",
    "sys/class/dmi/id/board_name",
)  # fmt: skip

LOG = "var/log/fabricmanager.log"
LOG_BYTES = 1 << 18


def run(job: "Job", args: "dict[str, object]") -> "None":
    """Send every file as blobs, then "done". `bug_report` true adds nvidia-bug-report.sh."""
    job.state("started")
    pile = Pile(job)
    commands = KERNEL_COMMANDS + (HOST_COMMANDS if job.ctx.root == "/" else ())
    stuck = bool(job.ctx.stuck())
    for name, argv in commands:
        if job.cancelled.is_set():
            return
        if argv[0] == DRIVER and stuck:
            pile.add(name, b"", "not asked: a driver call hangs already")
            continue
        data, note, hung = command(job, list(argv), COMMAND_S)
        stuck = stuck or (hung and argv[0] == DRIVER)
        pile.add(name, data, note)
    for path in FILES:
        raw = job.ctx.read_bytes(path)
        if raw is not None:
            pile.add(path.replace("/", "_") + ".txt", raw)
    newest = tail(job.ctx.path(LOG))
    if newest is not None:
        pile.add(LOG.replace("/", "_") + ".txt", newest)
    pile.add("port-counters.txt", port_counters(job.ctx))
    if args.get("bug_report") is True and not stuck:
        bug_report(job, pile)
    job.state("done", "%d files, %d KB" % (pile.count, pile.sent // 1024))


class Pile:
    """What has been sent so far."""

    def __init__(self, job: "Job") -> "None":
        self.job = job
        self.count = 0
        self.sent = 0

    def add(self, name: "str", data: "bytes", note: "str" = "", text: "bool" = True) -> "None":
        """Send a file without its secrets; beyond ALL_BYTES only its name and the reason."""
        room = min(FILE_BYTES, ALL_BYTES - self.sent)
        if text:
            # Before it is cut: half a secret does not look like one any more.
            data = struck(data)
        if len(data) > room:
            note = (note + "; " if note else "") + "cut: %d of %d bytes" % (max(0, room), len(data))
            data = data[-room:] if text and room > 0 else b""  # half a packed file is none
        self.job.blob(name, data, note)
        self.count += 1
        self.sent += len(data)


def command(job: "Job", argv: "list[str]", limit_s: "float") -> "tuple[bytes, str, bool]":
    """(output with stderr in it, note, whether it did not come back). Never raises."""
    try:
        child = job.spawn(argv, {"LC_ALL": "C", "SYSTEMD_COLORS": "0"})
    except OSError as error:
        return b"", "not run: %s" % (error.strerror or error), False
    assert child.stdout is not None
    patience = Patience(child.pid, limit_s, job.ctx.timer())
    data, in_time, cut = _read(child.stdout.fileno(), patience)
    if not in_time:
        kill_tree(child.pid)
    # A child in an uninterruptible driver call outlives SIGKILL: it is left, never waited for.
    gone = _reaped(child, 1.0)
    child.stdout.close()
    note = "" if child.returncode == 0 else "exit status %s" % child.returncode
    if not gone:
        note = "does not end: hung in the kernel"
    elif not in_time:
        note = "stopped after %g s" % limit_s
    parts = [note] if note else []
    if cut:
        parts.append("cut: only its newest part")
    return data, "; ".join(parts), not (gone and in_time)


def _read(handle: "int", patience: "Patience") -> "tuple[bytes, bool, bool]":
    """(bytes, whether they ended in time, whether only the newest whole lines are left)."""
    data, cut = bytearray(), False
    while True:
        if not patience.readable(handle):
            return bytes(data), False, cut
        part = os.read(handle, 65536)
        if not part:
            return bytes(data), True, cut
        data += part
        if len(data) > 2 * FILE_BYTES:
            # Whole lines, see struck().
            cut = True
            del data[:-FILE_BYTES]
            del data[: data.find(b"\n") + 1]


def _reaped(child: "object", limit_s: "float") -> "bool":
    import subprocess

    try:
        child.wait(limit_s)  # type: ignore[attr-defined]
    except subprocess.TimeoutExpired:
        return False
    return True


def tail(path: "str") -> "bytes | None":
    """The newest whole lines of a log; None when it cannot be read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            size = os.fstat(handle).st_size
            data = os.pread(handle, LOG_BYTES, max(0, size - LOG_BYTES))
        finally:
            os.close(handle)
    except OSError:
        return None
    return data[data.find(b"\n") + 1 :] if size > LOG_BYTES else data


def port_counters(ctx: "Context") -> "bytes":
    """Every counter of every RDMA port: `mlx5_0/1 counters/symbol_error 0`, one a line."""
    lines = []
    for device in ctx.listdir("sys/class/infiniband")[:64]:
        for port in ctx.listdir("sys/class/infiniband", device, "ports")[:8]:
            base = ("sys/class/infiniband", device, "ports", port)
            for name in ("state", "phys_state", "rate", "lid", "sm_lid", "link_layer"):
                lines.append("%s/%s %s %s" % (device, port, name, ctx.read(*(base + (name,)))))
            for group in ("counters", "hw_counters"):
                for name in ctx.listdir(*(base + (group,)))[:128]:
                    value = ctx.read(*(base + (group, name)))
                    lines.append("%s/%s %s/%s %s" % (device, port, group, name, value))
    return "\n".join(lines).encode("utf-8")


BUG_REPORT_S = 120.0
"""nvidia-bug-report.sh in safe mode takes 20-60 s on 8 GPUs; our estimate."""


REPORT_BYTES = 64 << 20
"""Most of a report once unpacked; usual ones are 2-20 MB. Our estimate."""


def bug_report(job: "Job", pile: "Pile") -> "None":
    """NVIDIA's own collection. The one thing that needs a file on the node, in memory, removed."""
    import shutil
    import tempfile

    try:
        folder = job.folder = tempfile.mkdtemp(prefix="gpuconsole-", dir="/dev/shm")
    except OSError as error:
        pile.add("nvidia-bug-report.txt", b"", "not run: /dev/shm: %s" % error.strerror)
        return
    try:
        out = os.path.join(folder, "report")
        argv = ["nvidia-bug-report.sh", "--safe-mode", "--output-file", out]
        said, note, _ = command(job, argv, BUG_REPORT_S)
        made = [name for name in sorted(os.listdir(folder)) if name.startswith("report")]
        if not made:
            pile.add("nvidia-bug-report.txt", said, note or "it wrote no file")
        for name in made[:1]:
            raw, trouble = report(os.path.join(folder, name))
            note = "; ".join(filter(None, (note, trouble)))
            pile.add("nvidia-bug-report.gz", raw, note, text=False)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def report(path: "str") -> "tuple[bytes, str]":
    """(the report packed again without its secrets, note); a broken one as far as it goes."""
    import gzip
    import zlib

    text, note = bytearray(), ""
    try:
        with open(path, "rb") as plain:
            packed = plain.read(2) == b"\037\213"
        with gzip.open(path) if packed else open(path, "rb") as file:
            while len(text) < REPORT_BYTES:
                part = file.read(1 << 20)
                if not part:
                    break
                text += part
            else:
                note = "cut: only the first %d MB" % (REPORT_BYTES >> 20)
    except (OSError, EOFError, zlib.error) as error:
        note = "cut: it cannot be read to its end (%s)" % error
    return gzip.compress(struck(bytes(text)), 6), note
