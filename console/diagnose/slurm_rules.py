"""Rules about what Slurm prints, and the reasons that Slurm itself writes on a node."""

from __future__ import annotations

import re

from probes.event import Action, Severity
from probes.rule import Rule

LOST = Rule(
    id="slurm.not_responding",
    title="Slurm has lost contact with a node",
    severity=Severity.WARN,
    reads="NOT_RESPONDING or the star behind a state; not for nodes that are off by design",
    cause="node down, network, or slurmd gone",
    action=Action.WATCH,
    next_step="ping and ssh it; look at its console and at systemctl status slurmd",
    source="man scontrol, man sinfo: node state codes; our rule",
    others="GCM, SOP, NHC read the state",
    example="State=DOWN+DRAIN+NOT_RESPONDING",
)
DOWN = Rule(
    id="slurm.down",
    title="A node is down for Slurm",
    severity=Severity.WARN,
    reads="base state DOWN",
    cause="it rebooted unasked, stopped answering, or somebody set it down",
    action=Action.WATCH,
    next_step="read the reason; check the host, then resume when its cause is gone",
    source="man scontrol: node state codes; our rule",
    others="GCM: down is an error",
    example="State=DOWN Reason=Node unexpectedly rebooted",
)
FAILING = Rule(
    id="slurm.failing",
    title="A node is marked as failing",
    severity=Severity.WARN,
    reads="state FAIL or FAILING",
    cause="a person or a program expects it to fail",
    action=Action.WATCH,
    next_step="read the reason and check what it names",
    source="man scontrol: node state codes; our rule",
    others="-",
    example="fail* bad nic",
)
DRAINED = Rule(
    id="slurm.drained",
    title="A node is out of work by somebody's decision",
    severity=Severity.INFO,
    reads="the DRAIN flag with a reason that is not one of Slurm's own",
    cause="a person or site automation drained it",
    action=Action.NONE,
    next_step="ask the one named; add to the reason, never replace it, do not resume it for them",
    source="our rule: a drain belongs to whom its reason names",
    others="NHC, NVS keep ownership of a drain",
    example="State=MIXED+DRAIN Reason=bad DIMM, waiting for part [ops2@2026-03-01T10:00:00]",
)
AUTOMATIC = Rule(
    id="slurm.auto_drain",
    title="Slurm drained a node by itself",
    severity=Severity.WARN,
    reads="Reason= texts that slurmctld and slurmd write",
    cause="see the finding",
    action=Action.WATCH,
    next_step="find the cause before anybody resumes it",
    source="reasons that Slurm writes; field case: awslabs/awsome-distributed-ai issue 185",
    others="-",
    example="Reason=Kill task failed [root@2026-03-03T04:05:06]",
)
REGISTRATION = Rule(
    id="slurm.registration",
    title="A node registered with less than configured",
    severity=Severity.WARN,
    reads="INVALID_REG, 'count reported lower than configured', 'Low RealMemory'",
    cause="a GPU is missing, a DIMM is out, or slurm.conf does not fit the node",
    action=Action.WATCH,
    next_step="nvidia-smi -L and lspci on the node against its gres.conf",
    source="man sinfo: INVAL; reasons in Slurm's sources; our rule",
    others="-",
    example="gres/gpu count reported lower than configured (7 < 8)",
)
RESUME = Rule(
    id="slurm.resume_timeout",
    title="A cloud node did not come up in time",
    severity=Severity.WARN,
    reads="'ResumeTimeout reached'",
    cause="no capacity at the provider, a broken image, or slurmd that does not start",
    action=Action.WATCH,
    next_step="read the resume program's log and the provider's console for this node",
    source="man slurm.conf: ResumeTimeout; our rule",
    others="-",
    example="State=DOWN+CLOUD+POWERED_DOWN Reason=ResumeTimeout reached",
)
REBOOT = Rule(
    id="slurm.reboot",
    title="A node is rebooting by Slurm's order",
    severity=Severity.INFO,
    reads="REBOOT_ISSUED",
    cause="scontrol reboot",
    action=Action.NONE,
    next_step="wait; it returns by itself or goes down after ResumeTimeout",
    source="man scontrol: reboot; our rule",
    others="-",
    example="boot^|reboot^|fw",
)
CONTROLLER = Rule(
    id="slurm.controller",
    title="Slurm's command could not answer",
    severity=Severity.UNKNOWN,
    reads="error lines of scontrol, sinfo and squeue",
    cause="slurmctld or munge",
    action=Action.WATCH,
    next_step="check: scontrol ping; munge -n | unmunge",
    source="messages of Slurm 22.05 to today; our rule",
    others="-",
    example="slurm_load_node error: Unable to contact slurm controller (connect failure)",
)
RULES = (
    LOST, DOWN, FAILING, DRAINED, AUTOMATIC, REGISTRATION, RESUME, REBOOT, CONTROLLER,
)  # fmt: skip


def _reason(
    name: str, pattern: str, say: str, cause: str, next_step: str, rule: Rule | None = None
) -> tuple[str, re.Pattern[str], str, str, Rule | None, str]:
    return name, re.compile(pattern, re.IGNORECASE), say, cause, rule, next_step


REASONS = (
    _reason("kill_task_failed", r"^Kill task failed", "Slurm could not kill a job's processes",
            "a process hangs in the kernel: a file system or a driver that does not answer",
            "on the node: ps -eo pid,stat,wchan:32,comm | grep ' D'; check its mounts and its "
            "kernel log; resume only when nothing hangs any more"),
    _reason("prolog_error", r"^Prolog (?:error|failed)", "the prolog failed",
            "a check or a set-up script before the job", "read slurmd's log and the prolog's own"),
    _reason("epilog_error", r"^Epilog error", "the epilog failed",
            "a check or a clean-up script after the job, or what it found",
            "read slurmd's log and the epilog's own; look for left-over processes"),
    _reason("launch_failed",
            r"launch failed|batch job (?:comp|launch)|Job launch failure",
            "a job could not be started", "slurmd, spool directory, or home file system",
            "read slurmd's log; df its spool directory"),
    _reason("resume_timeout", r"ResumeTimeout", "did not come up in time",
            RESUME.cause, RESUME.next_step, RESUME),
    _reason("resume_failed", r"Failure when resuming|InsufficientInstanceCapacity|ResumeProgram "
            r"fail", "could not be started", RESUME.cause, RESUME.next_step, RESUME),
    _reason("gpus_missing", r"gres/gpu.*(?:lower than configured|\(\d+ ?< ?\d+\))"
            r"|gres/gpu count repor",
            "registered with fewer GPUs than configured",
            "a GPU is off the bus or the driver cannot use it", REGISTRATION.next_step,
            REGISTRATION),
    _reason("less_memory", r"Low (?:RealMemory|TmpDisk|socket|CPUs)", "registered with less than "
            "configured", "a DIMM is out, or slurm.conf does not fit",
            "free -m and dmidecode -t memory on the node against slurm.conf", REGISTRATION),
    _reason("rebooted", r"unexpectedly re", "it rebooted unasked",
            "a crash, a power loss, or a person", "journalctl -b -1 -k and the BMC's event log"),
    _reason("not_responding", r"^Not responding", "does not answer", LOST.cause,
            LOST.next_step, LOST),
    _reason("duplicate_job", r"Duplicate jobid", "two jobs of one id",
            "an old job's process is left",
            "look for left-over slurmstepd processes on the node"),
    _reason("health_check", r"^(?:NHC|Healthcheck|HealthCheck)\b",
            "the site's health check drained it",
            "what the check names",
            "read the check's text; the console can look at the same thing"),
)  # fmt: skip
"""Name, pattern, say, cause, rule (None: drained by Slurm), next step."""
