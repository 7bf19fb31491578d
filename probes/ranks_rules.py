"""The rules about ranks and steps of a job: what they mean, what to do, who says so."""

from __future__ import annotations

from probes.event import Action, Severity
from probes.rule import Rule

_READS = "collectives launched by each rank, from NCCL's RAS port in several looks"

HANG = Rule(
    id="job.hang",
    title="A job stands still",
    severity=Severity.CRITICAL,
    reads=_READS + "; process states, power and utilisation of the job's GPUs, traffic",
    cause="one rank died, waits for storage or data, or left the program's path; all others wait "
    "for it inside a collective",
    action=Action.RESTART_APP,
    next_step="py-spy dump --nonblocking --pid PID for the suspects and one other rank; then end "
    "the job; drain only what has findings of its own",
    source="counts per rank: RAS chapter of NCCL's guide [nccl]; times: our estimate and [srv]",
    others="ByteRobust: 10 min of zero RDMA traffic; PyTorch's watchdog: 10 min",
    example="job 48211 stands for 140 s: rank 17 (gpu003 GPU1, pid 48212) launched 6649 of 6650",
    limits=(
        "ranks.still_s", "ranks.hang_s", "ranks.looks", "ranks.fresh_s", "ranks.quiet_gb_s",
        "ranks.spinning_share",
    ),
)  # fmt: skip
LATE_RANK = Rule(
    id="job.late_rank",
    title="A job waits for the same rank all the time",
    severity=Severity.WARN,
    reads=_READS,
    cause="the program of this rank launches its collectives later than all others: data loading, "
    "storage, a busy or throttled CPU, or extra work of this rank. A slow GPU alone does not show "
    "here: its program is ahead of it",
    action=Action.WATCH,
    next_step="py-spy dump --nonblocking --pid PID twice; look at this node's CPU, memory and "
    "storage findings; after the job gpuconsole test NODE --level gpu",
    source="counts per rank: RAS chapter of NCCL's guide [nccl]; gate: our bound on chance",
    others="Holmes (NSDI'25): the late rank is the one whose collectives are the shortest",
    example="rank 11 (gpu010 GPU3, pid 48214) behind in 8 of 8 looks, now 1 of 48177 collectives",
    limits=("ranks.looks", "ranks.chance", "ranks.fresh_s", "ranks.spinning_share"),
)
SLOW_STEP = Rule(
    id="job.slow_step",
    title="A job's steps have become slower",
    severity=Severity.INFO,
    reads="step times that the job tells itself: a line a rank, in the file "
    "/dev/shm/gpuconsole.step.JOB.RANK (replaced after each step) or as UDP datagram to "
    "239.255.71.28:28029 on loopback; job=ID rank=N step=N t_total=S t_data=S t_fwd=S t_bwd=S "
    "t_comm=S tokens=N, or the same as JSON; step is needed, the rest is optional",
    cause="the part that grew says where: data loading, communication, or the compute of one rank",
    action=Action.WATCH,
    next_step="look at the findings of the node that is named; ask the job's owner what changed",
    source="our rule: median of the last steps against those before",
    others="NVRx scores ranks by their own timings",
    example="median step 1.31 s, was 1.12 s; 0.18 s of it is compute on rank 17",
    limits=("steps.slower", "steps.much_slower", "steps.window"),
)
RULES = (HANG, LATE_RANK, SLOW_STEP)
