"""The rules of the peer comparison: what they mean, what to do, who says so."""

from __future__ import annotations

from probes.event import Action, Severity
from probes.rule import Rule

_READS = (
    "SM and memory clock of loaded GPUs against like GPUs, the card's maximum and their own past; "
    "power, heat, clocks event reasons, GPM activity and byte rates beside them"
)
_LIMITS = (
    "straggler.z_warn", "straggler.r_warn", "straggler.r75_warn", "straggler.z_crit",
    "straggler.r_crit", "straggler.r75_crit", "straggler.floor_live", "straggler.quantum_mhz",
    "straggler.catalogue", "straggler.catalogue_crit", "straggler.own_ratio", "straggler.own_least",
    "straggler.half", "straggler.at_power_limit", "straggler.equal_load",
    "straggler.min_util_percent", "straggler.fresh_s", "straggler.group_weak",
    "straggler.group_full", "straggler.enter_passes", "straggler.enter_s",
    "straggler.leave_passes", "straggler.drain_apart_s", "straggler.keep_idle_s",
)  # fmt: skip

GPU = Rule(
    id="straggler.gpu",
    title="A GPU is slower than its peers",
    severity=Severity.WARN,
    reads=_READS,
    cause="something holds this GPU back: cooling, power delivery or the card itself",
    action=Action.WATCH,
    next_step="drain after the job and test the GPU alone; the whole job waits for it until then",
    source="our rule: suspected is one comparison alone; likely are two of three, or one and "
    "hardware evidence; certain are two, hardware evidence and 8 alike; gates: our simulation",
    others="Guard (MLSys'26): clocks, temperature, power against peers of the job; 12 % false",
    example="SM clock 1200 MHz, median of 8 GPUs 1935 MHz, P75 1950 MHz, reasons 0x48",
    limits=_LIMITS,
)
NODE = Rule(
    id="straggler.node",
    title="All GPUs of a node are slow",
    severity=Severity.WARN,
    reads=_READS + " of other nodes of the job",
    cause="power or cooling of the whole node, not one card",
    action=Action.WATCH,
    next_step="check PSUs, inlet air and the BMC's event log; do not exchange GPUs",
    source="our rule: node against nodes of its job, and against the catalogue",
    others="NVS: power brake in 3 polls in a row",
    example="median SM clock 435 of 1980 MHz on 8 of 8 GPUs, reasons 0x88",
    limits=_LIMITS,
)
SUSPECT = Rule(
    id="straggler.suspect",
    title="One comparison alone finds a GPU or node slow",
    severity=Severity.INFO,
    reads=_READS,
    cause="may be silicon, cooling, or the job's own imbalance: one comparison is no proof",
    action=Action.WATCH,
    next_step="test it alone after the job; nothing to do now",
    source="our rule: one comparison without hardware evidence is no verdict",
    others="Guard (MLSys'26): several signals together, sustained",
    example="SM clock 1560 MHz, median of 8 GPUs 1755 MHz; catalogue does not agree",
    limits=_LIMITS,
)
POWER_LIMIT = Rule(
    id="straggler.power_limit",
    title="A GPU's power limit is below its siblings'",
    severity=Severity.WARN,
    reads="enforced power limit of the GPUs of one node and product; SM clock under load",
    cause="a left-over setting, or power delivery or firmware limits this card",
    action=Action.FIX_CONFIG,
    next_step="restore the default limit (nvidia-smi -q -d POWER); if it returns, check the board",
    source="our rule: GPUs of one node and product have one power limit",
    others="-",
    example="power limit 150 W, 3 siblings 300 W; SM clock 832 MHz, theirs 1365 MHz",
    limits=("power.below_default", "straggler.r_warn"),
)
JOB_WAITS = Rule(
    id="straggler.job_waits",
    title="The job waits, not the node",
    severity=Severity.INFO,
    reads="utilisation, power, SM clock and GPM activity of all GPUs of one job; pressure of "
    "their hosts",
    cause="a kernel that only waits counts as 100 % utilisation: another rank, the network or data "
    "loading holds the job up, or it does not compute much",
    action=Action.NONE,
    next_step="ask the job's owner; look for the rank that the others wait for",
    source="our estimate; NVML's utilisation is the time any kernel ran [nvml]",
    others="Greyhound (ATC'25): utilisation of all ranks falls together",
    example="8 of 8 waiting in a collective: full utilisation, 198 of 700 W, tensor 1 %, DRAM 2 %",
    limits=("straggler.waits_util_percent", "straggler.waits_power", "straggler.waits_clock",
            "straggler.idle_power", "straggler.waits_gpm_power", "straggler.waits_active_percent",
            "straggler.host_pressure_percent", "host.steal_percent", "host.io_pressure_percent",
            "straggler.enter_passes", "straggler.enter_s"),
)  # fmt: skip
RULES = (GPU, NODE, SUSPECT, POWER_LIMIT, JOB_WAITS)
