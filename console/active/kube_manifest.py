"""The Kubernetes objects of one run: plain Jobs, or an MPIJob where several nodes need MPI. Pure.

Several nodes under torch are one Job each, pinned to its node and meeting at the first node's
address (host network), so no operator has to be installed. nccl-tests on several nodes is an MPIJob
of the MPI operator (kubeflow.org/v2beta1). Our own cordon is tolerated, somebody else's taint not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from console.active.ask import START_S, Asked
from console.active.printed import flags
from console.active.results import Group
from inventory.node import Node

KEPT_S = 300
"""How long an ended Job stays should nobody delete it: the console may have been killed."""
PULL_S = 600
"""For pulling the image: a PyTorch image is 10 GB."""
DEFAULT_GPUS = 8
HOSTNAME = "kubernetes.io/hostname"
OWNER = {"app.kubernetes.io/managed-by": "gpuconsole"}
Object = dict[str, Any]


def wants_torch(node: Node, asked: Asked, nodes: int) -> bool:
    """Torch where it is there and asked for, or where nccl-tests would need the MPI operator."""
    if asked.engine == "auto":
        return bool(node.torch_python) and (nodes > 1 or not node.nccl_tests)
    return asked.engine == "torch"


def manifest(
    group: Group,
    nodes: Sequence[Node],
    asked: Asked,
    gpus: Mapping[str, int],
    name: str,
    port: int,
) -> Object:
    """A List of all objects of this run; `name` begins their names."""
    first = nodes[0]
    each = 1 if group.rail is not None else min(_gpus(node, gpus) for node in nodes)
    if wants_torch(first, asked, len(nodes)):
        items = [
            _job(
                node,
                asked,
                f"{name}-{rank}",
                _torch(nodes, rank, asked, each, port, name),
                gpus,
                group,
            )
            for rank, node in enumerate(nodes)
        ]
    elif len(nodes) == 1:
        argv = [*first.test_command, first.nccl_tests or "all_reduce_perf"]
        argv += flags(asked.min_bytes, asked.max_bytes, each)
        items = [_job(first, asked, f"{name}-0", argv, gpus, group)]
    else:
        items = [_mpi_job(nodes, asked, name, each, gpus, group)]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def _gpus(node: Node, gpus: Mapping[str, int]) -> int:
    return gpus.get(node.name) or DEFAULT_GPUS


def _torch(
    nodes: Sequence[Node], rank: int, asked: Asked, each: int, port: int, name: str
) -> list[str]:
    """What the node's agent would start."""
    from probes.node import nccl_command

    args: dict[str, object] = {"torch_python": nodes[rank].torch_python, "gpus": each}
    if len(nodes) > 1:
        args |= {"nnodes": len(nodes), "node_rank": rank, "master_port": port, "join_s": PULL_S}
        args |= {"master_addr": nodes[0].target, "peers": [node.name for node in nodes]}
        args["token"] = name
    for key, value in (("min_bytes", asked.min_bytes), ("max_bytes", asked.max_bytes)):
        if value is not None:
            args[key] = value
    unused: Any = None
    made = nccl_command.plan(args, each).run(unused, asked.run_s + PULL_S)
    return [*nodes[rank].test_command, *made.argv]


def _job(
    node: Node,
    asked: Asked,
    name: str,
    argv: Sequence[str],
    gpus: Mapping[str, int],
    group: Group,
) -> Object:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": OWNER},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": int(asked.run_s + START_S + PULL_S),
            "ttlSecondsAfterFinished": KEPT_S,
            "template": {
                "metadata": {"labels": OWNER},
                "spec": {
                    **_pod(node, argv, gpus, group),
                    "nodeSelector": {HOSTNAME: node.scheduled_as},
                },
            },
        },
    }


def environment(node: Node, group: Group) -> dict[str, str]:
    """What an agent would set (few threads, fixed GPU order), the group's own, and the rail."""
    from probes.node import order

    # /dev/shm is a volume of the pod, whatever this machine has.
    env = {**order.quiet(), "TMPDIR": "/dev/shm", **node.test_env}
    if group.rail is not None:
        env["CUDA_VISIBLE_DEVICES"] = str(group.rail)
    return env


def _named(env: Mapping[str, str]) -> list[Object]:
    return [{"name": key, "value": value} for key, value in env.items()]


def _pod(node: Node, argv: Sequence[str], gpus: Mapping[str, int], group: Group) -> Object:
    """What all pods with GPUs share: the host's network and memory, its GPUs, the environment."""
    return {
        "restartPolicy": "Never",
        "hostNetwork": True,
        "hostIPC": True,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "tolerations": [
            {
                "key": "node.kubernetes.io/unschedulable",
                "operator": "Exists",
                "effect": "NoSchedule",
            },
            {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        ],
        "containers": [
            {
                "name": "test",
                "image": node.test_image,
                "command": list(argv),
                "env": _named(environment(node, group)),
                "resources": {"limits": {"nvidia.com/gpu": str(_gpus(node, gpus))}},
                "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
                "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
            }
        ],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
    }


def _mpi_job(
    nodes: Sequence[Node],
    asked: Asked,
    name: str,
    each: int,
    gpus: Mapping[str, int],
    group: Group,
) -> Object:
    first, count = nodes[0], len(nodes)
    settings = environment(first, group)
    # sshd in the workers gives ranks nothing of its pod's environment.
    env = [word for key in settings for word in ("-x", key)]
    mpirun = ["mpirun", "--allow-run-as-root", "-np", str(count * each), *env]
    mpirun += [*first.test_command, first.nccl_tests or "all_reduce_perf"]
    mpirun += flags(asked.min_bytes, asked.max_bytes, 1)
    workers = _pod(first, ["/usr/sbin/sshd", "-De"], gpus, group)
    workers["affinity"] = _one_each(nodes)
    launcher = {
        "restartPolicy": "Never",
        "containers": [
            {
                "name": "launcher",
                "image": first.test_image,
                "command": mpirun,
                "env": _named(settings),
            }
        ],
    }
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": f"{name}-0", "labels": OWNER},
        "spec": {
            "slotsPerWorker": each,
            "runPolicy": {
                "backoffLimit": 0,
                "cleanPodPolicy": "All",
                "activeDeadlineSeconds": int(asked.run_s + START_S + PULL_S),
                "ttlSecondsAfterFinished": KEPT_S,
            },
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": {"spec": launcher}},
                "Worker": {
                    "replicas": count,
                    "template": {"metadata": {"labels": OWNER}, "spec": workers},
                },
            },
        },
    }


def _one_each(nodes: Sequence[Node]) -> Object:
    """Exactly these nodes, one worker on each."""
    names = [node.scheduled_as for node in nodes]
    wanted = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": names}]}
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [wanted]}
        },
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": OWNER}, "topologyKey": HOSTNAME}
            ]
        },
    }
