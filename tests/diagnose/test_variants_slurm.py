"""More of Slurm: cut reasons, JSON, a record behind a grep, what srun prints."""

from __future__ import annotations

from tests.diagnose.support import facts, findings
from tests.diagnose.variants import Variant, check, table

REASONS = """\
REASON               USER      TIMESTAMP           NODELIST
Not responding       slurm     2026-03-01T10:00:00 gpu-a03
gres/gpu count repor slurm     2026-03-01T11:00:00 gpu-a10
Node unexpectedly re slurm     2026-03-01T11:00:00 gpu-a12
ops: PSU swap        anna      2026-03-01T11:00:00 gpu-a11
"""
GREP = """\
[anna@login1 ~]$ scontrol show node gpu-a04 | egrep 'State|Reason'
   State=DOWN+DRAIN ThreadsPerCore=2 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Reason=Xid 79 - RMA 12345 [anna@2026-02-11T10:00:00]
"""
JSON = (
    '{"nodes":[{"name":"gpu-a01","state":["IDLE","DRAIN"],"reason":"xid 79",'
    '"reason_set_by_user":"ops1","gres":"gpu:h100:8"},{"name":"gpu-a02","state":["ALLOCATED"],'
    '"reason":"","gres":"gpu:h100:8"},{"name":"gpu-a03","state":["DOWN","NOT_RESPONDING"],'
    '"reason":"Not responding","reason_set_by_user":"slurm"}]}'
)
LOST = """\
srun: error: Node failure on gpu-a07
srun: Job step aborted: Waiting up to 32 seconds for job step to finish.
slurmstepd: error: *** STEP 4711.0 ON gpu-a01 CANCELLED AT 2026-03-03T04:05:06 DUE TO NODE \
FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***
"""
QUEUE = """\
             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)
              4711       gpu    train     anna  R 1-02:03:04      2 gpu-a[01-02]
              4714       gpu    train      bob PD       0:00      4 (ReqNodeNotAvail, \
UnavailableNodes:gpu-a[03,07])
"""


def node(name: str, state: str, reason: str = "", **more: str) -> str:
    """A record on one line."""
    fields = "".join(f" {key}={value}" for key, value in more.items())
    return f"NodeName={name} Gres=gpu:h100:8 State={state}{fields} Reason={reason}\n"


SLURM = "[slurm@2026-03-03T04:05:06]"


@table(
    Variant("cut-reasons", REASONS, "warn", "no: already drained",
            ("gpu-a10: registered with fewer GPUs", "gpu-a12: it rebooted", "gpu-a11"),),
    Variant("behind-a-grep", GREP, "info", "no", ("gpu-a04", "by anna", "RMA 12345"), ("login1",)),
    Variant("json", JSON, "warn", "no", ("gpu-a03", "gpu-a01")),
    Variant("node-failure", LOST, "warn", "no", ("gpu-a07",), ("scontrol", "gpu-a01")),
    Variant("queue", QUEUE, "ok", "no", ("1 running", "1 pending", "gpu-a[03,07]")),
    Variant("capacity", node("c1", "DOWN+CLOUD+POWERED_DOWN", "(Code:InsufficientInstanceCapacity)"
            "Failure when resuming nodes [root@2026-03-03T04:05:06]"), "warn", "no",
            ("c1: could not be started",)),
    Variant("reboot-timed-out", node("g2", "DOWN+REBOOT_ISSUED", f"reboot timed out {SLURM}"),
            "warn", "no", ("is down",), ("is rebooting",)),
    Variant("less-memory", node("g1", "IDLE+DRAIN", "Low RealMemory (reported:1800000 < 100.00% of "
            f"configured:2000000) {SLURM}"), "warn", "no: already drained", ("g1",)),
    Variant("epilog-with-jobs", node("g1", "MIXED+DRAIN", f"Epilog error {SLURM}"), "warn",
            "no: already drained", ("until its jobs end",)),
    Variant("well", node("g1", "ALLOCATED") + node("g2", "IDLE+PLANNED"), "ok", "no", ("2 nodes",)),
)  # fmt: skip
def test_the_verdict(variant: Variant) -> None:
    check(variant)


def test_a_rebooting_node_that_is_down_gets_one_finding() -> None:
    text = node("g2", "DOWN+REBOOT_ISSUED", f"reboot timed out {SLURM}")
    assert [f.rule for f in findings(check(Variant("", text, "warn", "no")))] == ["slurm.down"]


def test_the_lost_node_is_a_fact() -> None:
    assert facts(check(Variant("", LOST, "warn", "no")))["node_failure"] == ["gpu-a07"]
