"""What NCCL, CUDA, launchers and PyTorch print when a run fails, with cause and next step."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from probes.event import Action, Severity
from probes.rule import Rule

LAUNCHER_TAG = re.compile(
    r"^\s*(?:\[\d+,\d+\]<std(?:out|err|diag)>:?\s?|\d+:\s?(?=\S|\s)|\[\d+\]\s(?=\S))"
)
"""mpirun --tag-output, srun --label, mpiexec.hydra -l."""
STAMP = re.compile(
    r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*(?:Z|[+-]\d\d:?\d\d)\s(?:std(?:out|err) [FP] )?"
)
"""kubectl logs --timestamps, and the container runtime's own files."""


def untagged(line: str) -> str:
    """The line without what a launcher or a log reader put in front."""
    if line[:1] not in _TAGGED:
        return line
    return LAUNCHER_TAG.sub("", STAMP.sub("", line), count=1)


_TAGGED = frozenset("[0123456789 ")


FAILED = Rule(
    id="nccl_log.failed",
    title="A collective run ended with an error",
    severity=Severity.UNKNOWN,
    reads="error lines of NCCL, CUDA and nccl-tests",
    cause="see the finding",
    action=Action.WATCH,
    next_step="read the first NCCL WARN line above the failure: it names the call that failed",
    source="NCCL result texts [nccl]; nccl-tests error lines [nct]",
    others="-",
    example="gpu-a01: Test NCCL failure common.cu:1005 'unhandled system error'",
)
HARDWARE = Rule(
    id="nccl_log.hardware",
    title="A run failed by an error that only hardware gives",
    severity=Severity.CRITICAL,
    reads="CUDA error texts in a run's output",
    cause="GPU memory or NVLink reported an error that could not be corrected, or a GPU is gone",
    action=Action.DRAIN,
    next_step="drain the node; kernel log for the Xid, nvidia-smi -q for ECC and remaps",
    source="CUDA error texts: cudaErrorECCUncorrectable, cudaErrorNvlinkUncorrectable [nccl]",
    others="-",
    example="Test CUDA failure common.cu:594 'uncorrectable ECC error encountered'",
    hard=True,
)
FABRIC = Rule(
    id="nccl_log.fabric",
    title="CUDA says that the NVSwitch fabric is not initialised",
    severity=Severity.CRITICAL,
    reads="CUDA error 802 and NVLS bind failures in a run's output",
    cause="nvidia-fabricmanager does not run or does not match the driver: no CUDA program starts",
    action=Action.DRAIN,
    next_step="systemctl status nvidia-fabricmanager; its version must be the driver's; restart "
    "it; keep the node drained until a CUDA program starts",
    source="CUDA error 802 cudaErrorSystemNotReady; NVSwitch needs the fabric manager [nccl]",
    others="GCM, gpud, OCI, CCH, SCK: fabric manager inactive is an error",
    example="Test CUDA failure common.cu:892 'system not yet initialized'",
)
CONFIG = Rule(
    id="nccl_log.config",
    title="A run failed by the machine's or the job's settings",
    severity=Severity.WARN,
    reads="error lines of NCCL, CUDA and launchers",
    cause="see the finding",
    action=Action.FIX_CONFIG,
    next_step="correct the setting and run again",
    source="NCCL result texts and warnings [nccl]",
    others="-",
    example="Error while creating shared memory segment /dev/shm/nccl-Ab3dE6 (size 9637888)",
)
CRASHED = Rule(
    id="nccl_log.crashed",
    title="A process of the run died by a signal",
    severity=Severity.UNKNOWN,
    reads="the launcher's last words and backtraces",
    cause="mismatched NCCL, network plugin or UCX versions, or libraries of several installations",
    action=Action.RESTART_APP,
    next_step="run without external plugin (NCCL_NET_PLUGIN=none); compare library versions with "
    "nodes where it works; hardware is not judged by this",
    source="launcher messages of Open MPI, PRRTE, Slurm; field case: NVIDIA/nccl issue 1419",
    others="-",
    example="process rank 12 with PID 21012 on node gpu-a02 exited on signal 11",
)
RULES = (FAILED, HARDWARE, FABRIC, CONFIG, CRASHED)


class Known(Struct, frozen=True):
    """One text with its meaning."""

    pattern: re.Pattern[str]
    rule: Rule
    say: str
    cause: str = ""
    next_step: str = ""


def _known(pattern: str, rule: Rule, say: str, cause: str = "", next_step: str = "") -> Known:
    return Known(re.compile(pattern, re.IGNORECASE), rule, say, cause, next_step)


KNOWN = (
    _known(r"uncorrectable ECC error", HARDWARE, "a GPU met an uncorrectable ECC error"),
    _known(r"uncorrectable NVLink error", HARDWARE, "an NVLink met an uncorrectable error"),
    _known(r"GPU is lost|device is lost|fallen off the bus", HARDWARE, "a GPU is lost"),
    _known(r"system not yet initialized|cudaErrorSystemNotReady", FABRIC,
           "CUDA refuses to start: the system is not yet initialised (fabric manager)"),
    _known(r"error while loading shared libraries: lib(?:nccl|cudart|cuda|mpi|ucp|open-)[\w.-]*",
           FAILED, "the test did not start: a library is missing",
           "LD_LIBRARY_PATH, or another NCCL, CUDA or MPI than the test was built with",
           "ldd the binary on that node; compare with a node where it works"),
    _known(r"not enough slots available in the system", FAILED,
           "the launcher did not start the test: not enough slots",
           "fewer slots in the hostfile or allocation than ranks asked for",
           "correct the hostfile (slots=8) or -np; hardware is not judged by this"),
    _known(r"Failed to bind NVLink SHARP|NVLS.*(?:bind|multicast).*fail", CONFIG,
           "NVLink SHARP memory could not be bound",
           "the fabric's multicast state is left over or the fabric manager is unwell",
           "NCCL_NVLS_ENABLE=0 to go on; reset GPUs and restart the fabric manager when idle"),
    _known(r"(?:creating|extend|truncate|attach\w*).{0,40}shared memory|/dev/shm.*No space|"
           r"No space left on device.*nccl", CONFIG,
           "/dev/shm is too small for NCCL", "a container's default of 64 MiB, or full",
           "give the container more (--shm-size=8g, or an emptyDir with medium Memory)"),
    _known(r"ibv_reg_mr\w* failed|ibv_create_(?:cq|qp)\w* failed.*memory|RLIMIT_MEMLOCK|"
           r"failed to register.*memory", CONFIG,
           "InfiniBand memory could not be registered",
           "locked memory is limited (ulimit -l), or nvidia_peermem is not loaded",
           "set memlock unlimited for the job; lsmod | grep nvidia_peermem"),
    _known(r"Duplicate GPU detected", CONFIG, "two ranks were given the same GPU",
           "wrong CUDA_VISIBLE_DEVICES or local rank", "one GPU per local rank"),
    _known(r"driver version is insufficient", CONFIG, "the driver is too old for this CUDA",
           "CUDA runtime newer than the driver", "install a newer driver or an older runtime"),
    _known(r"no kernel image is available", CONFIG, "built for another GPU architecture",
           "the binary lacks this GPU's architecture", "rebuild with this GPU's sm number"),
    _known(r"busy or unavailable", CONFIG, "a GPU is in exclusive use by somebody else",
           "another process, or compute mode exclusive", "nvidia-smi: who holds it"),
    _known(r"out of memory", CONFIG, "a GPU has no memory left for this run",
           "another process holds it, or sizes too large", "nvidia-smi; smaller -e, or free it"),
    _known(r"Mismatched NCCL version|incompatible NCCL version", CONFIG,
           "ranks load different NCCL versions", "images or LD_LIBRARY_PATH differ between nodes",
           "use the same NCCL on all nodes"),
    _known(r"error while loading shared libraries|symbol lookup error|cannot open shared object",
           CONFIG, "a library is missing or does not fit", "LD_LIBRARY_PATH or image differ",
           "ldd the binary on that node"),
    _known(r"oom.?kill|Out Of Memory", CONFIG, "the launcher killed a process for host memory",
           "the job's memory limit", "raise --mem, or use fewer ranks"),
    _known(r"DUE TO TIME LIMIT", CONFIG, "the scheduler ended the job at its time limit",
           "a hang, or a limit too short", "see which rank printed last"),
    _known(r"remote process exited or there was a network error|ncclRemoteError", FAILED,
           "another rank died or the network failed",
           "this rank is a follower: another failed first",
           "look for the first failure by time, on another rank"),
    _known(r"Connection (?:refused|timed out)|No route to host|Connection closed by remote peer",
           FAILED, "ranks cannot reach each other",
           "firewall, wrong interface (NCCL_SOCKET_IFNAME), or the peer died first",
           "check the named address from this host; compare interfaces of all nodes"),
    _known(r"unhandled cuda error|ncclUnhandledCudaError", FAILED, "a CUDA call failed inside NCCL",
           "a GPU error (Xid), a broken driver, or memory", "kernel log of that node: Xid lines"),
    _known(r"unspecified launch failure|illegal memory access|misaligned address", FAILED,
           "a kernel crashed on a GPU", "the program, or a GPU that repeats it",
           "kernel log of that node: Xid 13 or 31; same GPU under other jobs: hardware"),
    _known(r"unhandled system error|ncclSystemError", FAILED, "a system call failed inside NCCL",
           "network interface, InfiniBand device, shared memory or a limit"),
    _known(r"invalid usage|invalid argument|ncclInvalid\w+", FAILED, "NCCL was called wrongly",
           "different sizes or versions on the ranks, or too many GPUs asked for"),
    _known(r"internal error|ncclInternalError", FAILED, "an internal error of NCCL",
           "NCCL or its plugin, or a broken topology file"),
    _known(r"Test timeout", FAILED, "the run hung until nccl-tests' own time limit",
           "one rank never arrived: a hung driver, a dead link, or a late process",
           "look for the rank without output; driver and kernel log of its node"),
    _known(r"Test (?:NCCL|CUDA) failure|Test failure", FAILED, "nccl-tests reports a failure"),
)  # fmt: skip
"""First match wins: hardware before settings before texts that only follow."""

_RELEVANT = re.compile(
    r"NCCL WARN|Test (?:NCCL|CUDA) failure|: Test failure|Test timeout|CUDA error|Cuda failure|"
    r"nccl\w+Error|oom.?kill|error while loading|symbol lookup|DUE TO TIME LIMIT|not enough slots|"
    r"Out Of Memory|NVLINK SHARP|libnccl|RuntimeError|DistBackendError",
    re.IGNORECASE,
)


def meaning(text: str) -> Known | None:
    """What a line that tells of a failure means; None for lines that do not."""
    if not _RELEVANT.search(text):
        return None
    return next((known for known in KNOWN if known.pattern.search(text)), None)


SIGNALS = {
    4: "illegal instruction", 6: "abort", 7: "bus error", 8: "arithmetic error", 9: "killed",
    11: "segmentation fault", 15: "terminated",
}  # fmt: skip
_NAMES = {
    "segmentation fault": 11, "bus error": 7, "aborted": 6, "killed": 9, "terminated": 15,
    "illegal instruction": 4, "floating point exception": 8,
}  # fmt: skip
_DEATHS = (
    re.compile(
        r"process rank (?P<rank>\d+) with PID \d+ on node (?P<host>[\w.-]+) exited on\s+"
        r"signal (?P<signal>\d+)"
    ),
    re.compile(r"\[(?P<host>[\w.-]+):\d+(?::\d+)*\] Caught signal (?P<signal>\d+)"),
    re.compile(r"\[(?P<host>[\w.-]+):\d+\] Signal: [\w ]+\((?P<signal>\d+)\)"),
    re.compile(
        r"srun: error: (?P<host>[\w.-]+): tasks? (?P<rank>\d+)[\d,-]*: "
        r"(?P<name>Segmentation fault|Bus error|Aborted|Killed|Terminated|Illegal instruction)"
    ),
    re.compile(r"RANK (?P<rank>\d+) PID \d+ RUNNING AT (?P<host>[\w.-]+)"),
    re.compile(r"KILLED BY SIGNAL: (?P<signal>\d+)"),
    re.compile(r"Signal (?P<signal>\d+) \(SIG\w+\) received by PID"),
)
_FRAME = re.compile(
    r"^\s*#?\d+\s+(?:0x[0-9a-f]+(?:\s+in)?\s+)?(?P<plain>\w+)\s?\(|"
    r"\[\s*\d+\]\s+\S+\((?P<open>[a-zA-Z_]\w*)\+0x"
)
_PLUMBING = re.compile(r"^(?:__sig\w*|__restore_rt|raise|abort|killpg|gsignal|clone|start_thread|"
                       r"__GI_\w*|ucs_\w*|__libc_\w*|_start)$")  # fmt: skip


class Death(Struct):
    """How a process of the run ended; fields are filled as lines tell them."""

    signal: int | None = None
    rank: int | None = None
    host: str = ""
    frame: str = ""
    lines: list[str] = []
    _before: str = ""

    def feed(self, text: str) -> None:
        """Read one line; messages that a launcher wraps are joined with the line before."""
        text, before = text.strip(), self._before
        self._before = text[-300:]
        for pattern in _DEATHS:
            match = pattern.search(text)
            wrapped = None if match else pattern.search(f"{before} {text}")
            if wrapped is not None and wrapped.end() > len(before) + 1:
                match, text = wrapped, f"{before} {text}"
            if match is not None:
                self._take(match.groupdict(), text)
        self._stack(text, f"{before} {text}")

    def _stack(self, text: str, joined: str) -> None:
        frame = _FRAME.search(text[:400]) if not self.frame else None
        if frame is not None and (self.signal or "backtrace" in joined):
            name = frame["plain"] or frame["open"] or ""
            if name and not _PLUMBING.match(name):
                self.frame = name

    def _take(self, told: dict[str, str | None], text: str) -> None:
        if told.get("signal"):
            self.signal = self.signal or int(str(told["signal"])[:4])
        if told.get("name"):
            self.signal = self.signal or _NAMES.get(str(told["name"]).lower())
        if told.get("rank") and self.rank is None:
            self.rank = int(str(told["rank"])[:9])
        self.host = self.host or (told.get("host") or "")
        if len(self.lines) < 6 and text not in self.lines:
            self.lines.append(text)

    def where(self) -> str:
        """As in "signal 11, rank 12 on gpu-a02, inside the network plugin"."""
        return ", ".join(self._words())

    def _words(self) -> Iterator[str]:
        name = SIGNALS.get(self.signal or 0, "")
        yield f"signal {self.signal}" + (f" {name}" if name and self.signal != 11 else "")
        at = f" on {self.host}" if self.host else ""
        if self.rank is not None:
            yield f"rank {self.rank}{at}"
        elif at:
            yield at.strip()
        if self.frame:
            net = re.search(r"[iI]b[A-Z_]|[nN]et|ucp|uct|ofi|sharp", self.frame)
            yield f"inside {'the network plugin' if net else self.frame}"
