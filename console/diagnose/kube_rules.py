"""Rules about what kubectl prints; they exist on paper, and for Kubernetes' own objects."""

from __future__ import annotations

from probes.event import Action, Severity
from probes.rule import Rule

GPUS = Rule(
    id="k8s.gpus",
    title="A node offers fewer GPUs than it has",
    severity=Severity.WARN,
    reads="allocatable against capacity and the labels of GPU feature discovery",
    cause="the device plugin took a GPU out after a critical Xid (it does not take it back by "
    "itself), lost all of them, or does not run",
    action=Action.WATCH,
    next_step="compare with NVML on the node: all GPUs fine: restart the device plugin pod; else "
    "drain",
    source="field case: NVIDIA/k8s-device-plugin issue 1014",
    others="-",
    example="capacity nvidia.com/gpu 8, allocatable 7",
)
NOT_READY = Rule(
    id="k8s.not_ready",
    title="A node is not ready",
    severity=Severity.WARN,
    reads="condition Ready, or STATUS of kubectl get nodes",
    cause="kubelet or container runtime stopped, network, or the node is down",
    action=Action.WATCH,
    next_step="ssh to it: systemctl status kubelet containerd; journalctl -u kubelet -n 50",
    source="Kubernetes node conditions; our rule",
    others="EKS, NVS",
    example="Ready False KubeletNotReady: container runtime is down",
)
PRESSURE = Rule(
    id="k8s.condition",
    title="A node reports a problem condition",
    severity=Severity.WARN,
    reads="conditions other than Ready that are True",
    cause="see the condition's reason: memory, disk, processes, or a node problem detector",
    action=Action.WATCH,
    next_step="read reason and message; df, free and the kernel log of that node",
    source="Kubernetes node conditions and node-problem-detector [npd]; our rule",
    others="EKS, NVS write conditions",
    example="DiskPressure True KubeletHasDiskPressure",
)
CORDONED = Rule(
    id="k8s.cordoned",
    title="A node takes no new pods",
    severity=Severity.INFO,
    reads="spec.unschedulable, SchedulingDisabled, taints",
    cause="a person or automation cordoned it",
    action=Action.NONE,
    next_step="ask who did it before anybody uncordons it: kubectl describe node, annotations",
    source="Kubernetes node specification; our rule",
    others="NVS annotates who and why",
    example="Ready,SchedulingDisabled",
)
OVER = Rule(
    id="k8s.overcommitted",
    title="Pods hold more GPUs than the node can offer",
    severity=Severity.WARN,
    reads="GPU requests of pods bound to a node against allocatable",
    cause="a GPU became unhealthy after pods were placed, or a terminating pod still holds some",
    action=Action.WATCH,
    next_step="look for the unhealthy GPU; see which pod's GPU it is before anything is restarted",
    source="Kubernetes resource accounting; our rule",
    others="-",
    example="9 GPUs requested, 7 allocatable",
)
BARE = Rule(
    id="k8s.bare_pod",
    title="A pod would be lost by a drain",
    severity=Severity.INFO,
    reads="owner references and emptyDir volumes of pods",
    cause="it has no controller that would start it again, or keeps data on the node",
    action=Action.NONE,
    next_step="ask its owner before a drain with --force or --delete-emptydir-data",
    source="kubectl drain refuses such pods by itself; our rule",
    others="-",
    example="pod team-a/bare: no controller, emptyDir scratch",
)
GPU_POD = Rule(
    id="k8s.gpu_pod",
    title="A pod that serves the GPUs of a node does not run",
    severity=Severity.WARN,
    reads="status of device plugin, driver, toolkit, DCGM and validator pods",
    cause="driver or library mismatch, a lost GPU, fabric manager, or a broken image",
    action=Action.RESTART_SERVICE,
    next_step="kubectl logs --previous of that pod; nvidia-smi on its node",
    source="NVIDIA GPU operator's pods; our rule",
    others="-",
    example="nvidia-device-plugin-daemonset-x7 0/1 CrashLoopBackOff 12",
)
POD = Rule(
    id="k8s.pod",
    title="Pods fail",
    severity=Severity.INFO,
    reads="status of other pods",
    cause="most often the program or its image",
    action=Action.NONE,
    next_step="kubectl describe pod and kubectl logs --previous; tell its owner",
    source="Kubernetes pod status; our rule",
    others="-",
    example="train-0 0/1 CrashLoopBackOff",
)
RUNTIME = Rule(
    id="k8s.runtime",
    title="The container runtime cannot give a container its GPUs",
    severity=Severity.WARN,
    reads="nvidia-container-cli errors in events and of docker",
    cause="driver and library differ, the driver is not loaded, or the toolkit is not set up",
    action=Action.FIX_CONFIG,
    next_step="nvidia-smi on that node itself; then nvidia-ctk runtime configure and a restart of "
    "the container runtime",
    source="messages of the NVIDIA container toolkit; our rule",
    others="-",
    example="nvidia-container-cli: initialization error: nvml error: driver/library version "
    "mismatch",
)
ADMISSION = Rule(
    id="k8s.admission",
    title="A node refused a pod for its GPUs",
    severity=Severity.WARN,
    reads="UnexpectedAdmissionError and 'Allocate failed' messages",
    cause="fewer healthy GPUs than the scheduler believed",
    action=Action.WATCH,
    next_step="compare allocatable with NVML there; restart the device plugin if all are fine",
    source="kubelet's device manager messages; our rule",
    others="-",
    example="Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. "
    "Requested: 8, Available: 7",
)
PENDING = Rule(
    id="k8s.pending",
    title="Pods wait for GPUs",
    severity=Severity.INFO,
    reads="pending pods and FailedScheduling messages",
    cause="all GPUs are taken, or no node fits selectors and taints",
    action=Action.NONE,
    next_step="read the scheduler's counts: insufficient GPUs is a full cluster, taints and "
    "affinity are settings",
    source="Kubernetes scheduler messages; our rule",
    others="-",
    example="0/12 nodes are available: 8 Insufficient nvidia.com/gpu",
)
BUDGET = Rule(
    id="k8s.budget",
    title="A disruption budget allows no eviction",
    severity=Severity.INFO,
    reads="disruptionsAllowed of PodDisruptionBudgets",
    cause="a single replica with minAvailable 1, or replicas that are not healthy",
    action=Action.NONE,
    next_step="a drain of its node would wait: ask the owner to scale up first",
    source="Kubernetes PodDisruptionBudget status; our rule",
    others="-",
    example="infer-pdb: disruptionsAllowed 0 of 1 pod",
)
API = Rule(
    id="k8s.api",
    title="kubectl could not ask the cluster",
    severity=Severity.UNKNOWN,
    reads="error lines of kubectl",
    cause="credentials, network or the API server",
    action=Action.FIX_CONFIG,
    next_step="kubectl auth whoami; kubectl cluster-info; check the kubeconfig's context",
    source="messages of kubectl; our rule",
    others="-",
    example="error: You must be logged in to the server (Unauthorized)",
)
BLOCKED = Rule(
    id="k8s.drain_blocked",
    title="A drain waits for pods that may not be evicted",
    severity=Severity.WARN,
    reads="output of kubectl drain",
    cause="a disruption budget allows none: a single replica, or one that waits for the drain",
    action=Action.WATCH,
    next_step="ask its owner to scale up or to delete it; or set a time limit and leave the node "
    "cordoned",
    source="kubectl drain messages; field case: DataDog/datadog-operator issue 401",
    others="NVS retries with a time-out",
    example="Cannot evict pod as it would violate the pod's disruption budget.",
)
REFUSED = Rule(
    id="k8s.drain_refused",
    title="A drain did not start: kubectl needs a decision",
    severity=Severity.WARN,
    reads="output of kubectl drain",
    cause="pods without controller, with local data, or of a DaemonSet",
    action=Action.NONE,
    next_step="--ignore-daemonsets is safe; --delete-emptydir-data, --force lose data: ask first",
    source="kubectl drain messages; our rule",
    others="-",
    example="cannot delete Pods with local storage (use --delete-emptydir-data to override)",
)
DRAIN_TIMEOUT = Rule(
    id="k8s.drain_timeout",
    title="A drain ended before all pods were gone",
    severity=Severity.WARN,
    reads="output of kubectl drain",
    cause="its time limit; a pod that does not end, most often on a node that does not answer",
    action=Action.WATCH,
    next_step="see which pods are left; a NotReady node cannot end pods: repair or force by name",
    source="kubectl drain messages; our rule",
    others="-",
    example="global timeout reached: 1m0s",
)
NODE_RULES = (GPUS, NOT_READY, PRESSURE, CORDONED, OVER, BARE, GPU_POD, POD, ADMISSION, RUNTIME,
              PENDING, BUDGET, API)  # fmt: skip
DRAIN_RULES = (BLOCKED, REFUSED, DRAIN_TIMEOUT)
