"""What can be wrong with the daemons of a node; probes.checks.services finds it."""

from __future__ import annotations

from probes.checks.rule import Rule
from probes.event import Action, Severity

FABRIC = Rule(
    id="service.fabricmanager",
    title="Fabric manager does not run on a node with NVSwitches",
    severity=Severity.CRITICAL,
    reads="unit or process of the fabric manager, end of its log; NVSwitches on the PCI bus; GPUs; "
    "fabric state",
    cause="it failed at start (version other than the driver's, a dead NVSwitch) or was stopped",
    action=Action.RESTART_SERVICE,
    next_step="look into /var/log/fabricmanager.log, compare its version with the driver's, "
    "restart it; new CUDA processes fail with error 802 until it has set the fabric up",
    source="NVS issue 889: down for 20 days while all GPUs looked healthy; critical unless every "
    "GPU is registered: our rule",
    others="GCM, gpud, OCI, CCH, SCK: inactive is an error",
    example="nvidia-fabricmanager.service is failed (exit-code); 4 NVSwitches, 8 GPUs",
    limits=("service.boot_grace_s",),
)
FABRIC_VERSION = Rule(
    id="service.fabricmanager_version",
    title="Fabric manager and driver have different versions",
    severity=Severity.WARN,
    reads="package databases as files; version of the loaded driver; NVSwitches on the PCI bus",
    cause="one of them was upgraded alone",
    action=Action.FIX_CONFIG,
    next_step="install the fabric manager of the driver's version; hold both packages together; it "
    "refuses to start with another driver",
    source="the fabric manager compares both at start and gives up (NVIDIA/gpu-operator issue 544)",
    others="SCK: mismatch is an error",
    example="fabric manager 580.82.07, driver 580.95.05",
)
SLURM = Rule(
    id="service.slurm",
    title="Slurm's daemon does not run",
    severity=Severity.CRITICAL,
    reads="units or processes of slurmd and munge, where the inventory says that Slurm schedules",
    cause="stopped, failed at start, or its configuration does not fit the controller's",
    action=Action.RESTART_SERVICE,
    next_step="journalctl -u slurmd (or munge) on the node; check clock and slurm.conf; start it",
    source="GCM, CCH and SCK: inactive is an error; taken out of work on purpose is not: our rule",
    others="GCM, CCH, SCK",
    example="slurmd.service is failed (exit-code)",
    limits=("service.boot_grace_s",),
)
FAILED = Rule(
    id="service.failed",
    title="A service has failed",
    severity=Severity.WARN,
    reads="systemd's ActiveState and Result of the services that GPU nodes depend on",
    cause="it crashed, was killed, or cannot start",
    action=Action.RESTART_SERVICE,
    next_step="systemctl status UNIT and journalctl -u UNIT on the node",
    source="GCM, CCH and SCK demand that such services are active",
    others="GCM, CCH, SCK",
    example="nvidia-dcgm.service is failed (signal)",
)
RESTARTS = Rule(
    id="service.restarts",
    title="A service restarts again and again",
    severity=Severity.WARN,
    reads="systemd's NRestarts between two answers, and its SubState auto-restart",
    cause="it ends right after its start: configuration, version, or missing hardware",
    action=Action.RESTART_SERVICE,
    next_step="journalctl -u UNIT shows why it ends; stop it until that is mended",
    source="our rule: is-active says active in the moment after each restart",
    others="-",
    example="nvidia-imex.service restarted 4 times in 30 s, 61 in all",
    limits=("service.restarts_step", "service.restarts_total"),
)
PEERS = Rule(
    id="service.missing",
    title="A service that its peers run does not run here",
    severity=Severity.WARN,
    reads="units or processes of known services on this node and on the other nodes of its role",
    cause="stopped, failed, disabled, or not installed on this node",
    action=Action.RESTART_SERVICE,
    next_step="systemctl status UNIT; compare packages and enabled units with a peer",
    source="our rule: no fixed list, most of the role decide",
    others="GCM, CCH, SCK: fixed lists (munge, slurmd, dcgm, persistenced)",
    example="dcgm does not run; it runs on 15 of 15 other nodes of the role",
    limits=("service.peers_share", "service.boot_grace_s"),
)
SILENT = Rule(
    id="service.systemd_silent",
    title="systemd does not answer",
    severity=Severity.INFO,
    reads="how long `systemctl show` takes",
    cause="a stuck system bus, a very busy node, or PID 1 in trouble",
    action=Action.WATCH,
    next_step="systemctl list-jobs on the node; if that hangs too, plan a reboot",
    source="our estimate, not measured: no answer in 4 s, where 0.03 s are usual",
    others="-",
    example="systemctl show did not answer in 4 s",
)
