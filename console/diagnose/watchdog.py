"""PyTorch's NCCL watchdog: which rank waited in which collective, and who never came. Pure."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from msgspec import Struct, field

from console.diagnose.report import Report
from probes.event import Action, Severity
from probes.rule import Rule

HANG = Rule(
    id="nccl_log.hang",
    title="A collective of a job timed out",
    severity=Severity.WARN,
    reads="watchdog lines of PyTorch's ProcessGroupNCCL",
    cause="one rank came late or never: a hung driver or file system, a crash, or a program whose "
    "ranks disagree about the next collective",
    action=Action.WATCH,
    next_step="look first at the rank that is silent or behind: its node, driver and last output; "
    "TORCH_NCCL_DUMP_ON_TIMEOUT=1 and the Flight Recorder name it next time",
    source="PyTorch ProcessGroupNCCL messages [pt]",
    others="-",
    example="[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4711, "
    "OpType=ALLREDUCE, ... Timeout(ms)=600000) ran for 600123 milliseconds before timing out.",
)
DESYNC = Rule(
    id="nccl_log.desync",
    title="Ranks were in different collectives",
    severity=Severity.WARN,
    reads="sequence numbers and operations of PyTorch's watchdog lines",
    cause="the program: ranks took different branches, or their data loaders ended at different "
    "steps",
    action=Action.RESTART_APP,
    next_step="not a fault of a node: compare what the ranks did before that collective",
    source="PyTorch ProcessGroupNCCL messages [pt]",
    others="-",
    example="seq 4711: ALLREDUCE on ranks 0-6, ALLGATHER on rank 7",
)
RULES = (HANG, DESYNC)

MOST = 16_384
_RANK = re.compile(r"\[(?:PG (?:ID )?(?P<pg>\S+)[^\]]*)?[Rr]ank ?(?P<rank>\d+)\]")
_WORK = re.compile(r"WorkNCCL\(SeqNum=(\d+), OpType=(\w+)(?:.*?Timeout\(ms\)=(\d+))?")
_RAN = re.compile(r"ran for (\d+) milliseconds before timing out")
_STATE = re.compile(
    r"last enqueued (?:NCCL )?work: (-?\d+), last completed (?:NCCL )?work: (-?\d+)"
)
_HEARTBEAT = re.compile(
    r"[Hh]eartbeat monitor timed out|watchdog.*stuck|process group watchdog got stuck"
)


class Wait(Struct):
    """One rank's last words."""

    seq: int | None = None
    op: str = ""
    timeout_ms: int | None = None
    ran_ms: int | None = None
    enqueued: int | None = None
    completed: int | None = None
    line: str = ""


class Watchdog(Struct):
    """Every rank that spoke."""

    waits: dict[int, Wait] = field(default_factory=dict)
    stuck: dict[int, str] = field(default_factory=dict)
    """Ranks whose own watchdog or heartbeat got stuck -> line."""

    @property
    def any(self) -> bool:
        """Whether anything timed out."""
        return bool(self.waits or self.stuck)

    def feed(self, line: str) -> bool:
        """Read one line; whether it was about a timeout."""
        if "ank" not in line:
            return False
        named = list(_RANK.finditer(line))
        if not named or len(self.waits) >= MOST:
            return False
        rank = int(named[-1]["rank"][:9])
        if _HEARTBEAT.search(line):
            self.stuck.setdefault(rank, line)
            return True
        work, state = _WORK.search(line), _STATE.search(line)
        if work is None and state is None:
            return False
        wait = self.waits.setdefault(rank, Wait())
        if work is not None and wait.seq is None:
            wait.seq, wait.op, wait.line = int(work[1][:18]), work[2], line
            wait.timeout_ms = int(work[3][:12]) if work[3] else None
        if ran := _RAN.search(line):
            wait.ran_ms = int(ran[1][:12])
        if state is not None:
            wait.enqueued, wait.completed = int(state[1][:18]), int(state[2][:18])
            wait.line = wait.line or line
        return True

    def facts(self) -> dict[str, Any]:
        """By rank, and who is suspected."""
        if not self.any:
            return {}
        ranks = {
            str(rank): {k: v for k in ("seq", "op", "timeout_ms", "ran_ms", "enqueued", "completed")
                        if (v := getattr(wait, k)) not in (None, "")}
            for rank, wait in sorted(self.waits.items())
        }  # fmt: skip
        return {"timeouts": ranks, "stuck_ranks": sorted(self.stuck)}

    def suspects(self, nranks: int | None) -> tuple[list[int], str]:
        """Ranks to look at first, and why: silent ones, then those with the least done."""
        if nranks and 1 < nranks <= MOST:
            silent = sorted(set(range(nranks)) - set(self.waits) - set(self.stuck))
            if silent and len(silent) * 2 < nranks:
                return silent, "said nothing while the others waited"
        behind = self._behind()
        if behind:
            return behind, "has done less than the others"
        top = max(self.waits, default=None)
        if top is not None and nranks is None:
            silent = sorted(set(range(top + 1)) - set(self.waits) - set(self.stuck))
            if silent and len(silent) * 2 < top + 1:
                return silent, "said nothing while the others waited"
        return sorted(self.stuck), "has a stuck watchdog" if self.stuck else ""

    def _behind(self) -> list[int]:
        for name in ("enqueued", "completed", "seq"):
            done = {r: getattr(w, name) for r, w in self.waits.items()}
            known = {r: n for r, n in done.items() if n is not None}
            if len(known) < 2 or len(set(known.values())) < 2:
                continue
            usual = Counter(known.values()).most_common(1)[0][0]
            behind = sorted(rank for rank, number in known.items() if number < usual)
            if behind and len(behind) * 2 < len(known):
                return behind
        return []

    def judge(self, report: Report, nranks: int | None) -> None:
        """Findings."""
        if not self.any:
            return
        lines = [w.line for w in self.waits.values() if w.line][:4] + list(self.stuck.values())[:2]
        ops: dict[int, dict[str, list[int]]] = {}
        for rank, wait in sorted(self.waits.items()):
            if wait.seq is not None:
                ops.setdefault(wait.seq, {}).setdefault(wait.op, []).append(rank)
        suspects, why = self.suspects(nranks)
        report.facts["suspect_ranks"] = suspects
        for seq, by_op in ops.items():
            if len(by_op) > 1:
                told = ", ".join(f"{op} on {_ranks(r)}" for op, r in by_op.items())
                report.add(DESYNC, f"collective {seq} is not the same on all ranks: {told}", *lines)
                return
        last: int | None = max(ops, key=lambda n: sum(map(len, ops[n].values())), default=None)
        by_op = {} if last is None else ops[last]
        op = next(iter(by_op), "collective")
        who = f"; look first at {_ranks(suspects)}, which {why}" if suspects else ""
        at = f" (sequence {last})" if last is not None else ""
        report.add(HANG, f"{op}{at} timed out on {_ranks(sorted(self.waits))}{who}", *lines,
                   value=len(self.waits))  # fmt: skip
        if not suspects:
            report.unknown.append("which rank held the others up: a log with all ranks would tell")


def _ranks(ranks: list[int]) -> str:
    """As "rank 3" or "ranks 0-6,8"."""
    parts: list[str] = []
    for rank in ranks:
        low, _, high = parts[-1].partition("-") if parts else ("", "", "")
        if parts and rank == int(high or low) + 1:
            parts[-1] = f"{low}-{rank}"
        else:
            parts.append(str(rank))
    shown = ",".join(parts[:12]) + (",..." if len(parts) > 12 else "")
    return f"rank{'s' if len(ranks) != 1 else ''} {shown}"
