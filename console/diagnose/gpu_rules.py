"""Judgements of GPU reports that exist on paper only; all others are the console's own checks."""

from __future__ import annotations

from probes.event import Action, Severity
from probes.rule import Rule

READING = Rule(
    id="paper.gpu_reading",
    title="A GPU shows an error in place of a reading",
    severity=Severity.WARN,
    reads="cells of nvidia-smi: ERR!, Unknown Error",
    cause="firmware or hardware of the card; its other numbers may be frozen",
    action=Action.WATCH,
    next_step="nvidia-smi -q -i GPU: GPU Recovery Action says what the driver wants; look for Xids",
    source="field cases: utkuozdemir/nvidia_gpu_exporter issue 393, scitix/sichek issue 121; "
    "critical from 3 such cells on: our estimate",
    others="-",
    example="|ERR!   68C    P2             99W /  130W |",
)
HISTORY = Rule(
    id="paper.ecc_history",
    title="Uncorrected memory errors in the past, repaired since",
    severity=Severity.INFO,
    reads="aggregate ECC counters of nvidia-smi, with volatile ones at zero",
    cause="the card had bad rows once and remapped them",
    action=Action.NONE,
    next_step="none; the counters of a card's life never go back",
    source="field case: leptonai/gpud issue 108: aggregate counters alone are no fault",
    others="OCI, AzHC: any SRAM error of the card's life; SCK: more than 4",
    example="aggregate DRAM uncorrectable 3, volatile 0, remapping failure No",
)
DRAIN_RESET = Rule(
    id="paper.drain_and_reset",
    title="The driver recommends to drain and reset a GPU",
    severity=Severity.WARN,
    reads="Drain and Reset Recommended of nvidia-smi -q",
    cause="the card works on with reduced capacity after an error",
    action=Action.RESET_GPU,
    next_step="drain, then reset the GPU (nvidia-smi -r -i GPU)",
    source="nvidia-smi -q, GPU Reset Status; the driver's word beats any table",
    others="DCGM, NVS",
    example="Drain and Reset Recommended : Yes",
)
REPAIR = Rule(
    id="paper.repair_pending",
    title="A repair of the GPU waits for a reset",
    severity=Severity.WARN,
    reads="Channel and TPC Repair Pending of nvidia-smi -q",
    cause="the driver found a part that it will replace by a spare one",
    action=Action.RESET_GPU,
    next_step="reset the GPU when its work is done",
    source="nvidia-smi -q of R570 and newer drivers",
    others="-",
    example="Channel Repair Pending : Yes",
)
FABRIC_HEALTH = Rule(
    id="paper.fabric_health",
    title="A GPU's place in the NVLink fabric is not healthy",
    severity=Severity.WARN,
    reads="Fabric / Health of nvidia-smi -q",
    cause="links or routes of this GPU in the fabric are degraded or misconfigured",
    action=Action.DRAIN,
    next_step="nvlink -s and -e of this GPU; Fabric Manager's log; drain after the job",
    source="fabric health summary of nvml.h [nvml]: 1 healthy, 2 unhealthy, 3 limited capacity",
    others="OCI, gpud, SCK: not completed is an error",
    example="Summary : Unhealthy",
)
MEMORY_HELD = Rule(
    id="paper.memory_held",
    title="GPU memory is in use and no process is listed for it",
    severity=Severity.INFO,
    reads="memory and process list of one nvidia-smi table",
    cause="a dying process holds it, or the table was made in a container, which sees no host "
    "process",
    action=Action.WATCH,
    next_step="on the host: fuser -v /dev/nvidia*; ps for processes in state D or Z",
    source="field case: microsoft/pai issue 3375; from 5 % of the memory on: our estimate",
    others="-",
    example="71000MiB / 81559MiB, no running processes found",
)
NONE = Rule(
    id="paper.no_gpu",
    title="The driver has no usable GPU",
    severity=Severity.CRITICAL,
    reads="nvidia-smi: No devices were found",
    cause="all cards failed to initialise, fell off the bus or were taken away from a container",
    action=Action.DRAIN,
    next_step="lspci -d 10de: and the kernel log (RmInitAdapter, Xid) tell which; drain",
    source="message of nvidia-smi; the driver loads only where it found a GPU",
    others="GCM, gpud, AzHC: GPU count",
    example="No devices were found",
)
CONTAINER = Rule(
    id="paper.container_devices",
    title="A container lost its GPUs",
    severity=Severity.WARN,
    reads="'Failed to initialize NVML: Unknown Error' of a command inside a container",
    cause="systemd reloaded its units and took the device files out of the container's cgroup",
    action=Action.FIX_CONFIG,
    next_step="nvidia-smi on the host itself; if that is well, start the container anew and use "
    "cgroup driver systemd with CDI, or --device for each /dev/nvidia*",
    source="field case: NVIDIA/nvidia-container-toolkit issue 48",
    others="-",
    example="$ docker exec train nvidia-smi: Failed to initialize NVML: Unknown Error",
)
NO_TOOL = Rule(
    id="paper.no_nvidia_smi",
    title="nvidia-smi is not there, so nothing was measured",
    severity=Severity.UNKNOWN,
    reads="the shell's message",
    cause="the driver's tools are not installed, or not in the path of this shell",
    action=Action.NONE,
    next_step="lspci -d 10de: tells whether the node has GPUs; cat /proc/driver/nvidia/version",
    source="our rule: a missing tool is neither health nor a fault",
    others="-",
    example="bash: nvidia-smi: command not found",
)
RULES = (
    READING, HISTORY, DRAIN_RESET, REPAIR, FABRIC_HEALTH, MEMORY_HELD, NONE, CONTAINER, NO_TOOL,
)  # fmt: skip
BROKEN_CELLS = 3
"""Errors in place of readings from which a card is dying."""
HELD_SHARE = 0.05
"""Share of its memory that a driver alone does not use."""
