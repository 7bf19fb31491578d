"""A Node is a host we may reach; host expressions are how people name many of them."""

from __future__ import annotations

from msgspec import Struct, field


class Node(Struct, frozen=True, kw_only=True):
    """One host of the inventory with everything needed to reach and judge it."""

    name: str
    """The name shown, sorted and drained by: what the operator wrote."""
    address: str = ""
    """Where to connect; empty means `name`, as ssh would resolve it."""
    port: int | None = None
    user: str | None = None
    jump: tuple[str, ...] = ()
    """Jump hosts in order, each `[user@]host[:port]`; () leaves it to ssh_config."""
    identity: str | None = None
    """Private key file; None leaves it to ssh_config, the agent and the default keys."""
    python: str | None = None
    """Interpreter on the node; None means look for one."""
    become: tuple[str, ...] = ()
    """Prefix argv that gives root on the node, e.g. ("sudo", "-n")."""
    root: str = "/"
    """Where the node's /sys, /proc, /dev and /run are: another path when the agent runs in a
    container that has the host mounted."""
    transport: str = "ssh"
    """"ssh" or "local"."""
    group: str = "default"
    role: str = "compute"
    """Peers are compared inside one role only."""
    labels: dict[str, str] = field(default_factory=dict)
    hardware: str | None = None
    """Key into hardware.yaml; None means look it up by PCI id."""
    gpus: int | None = None
    """How many GPUs the site expects; None means majority of the role, then catalogue."""
    scheduler: str | None = None
    """"slurm", "kubernetes[:CONTEXT]", "hook" or None: who takes this node out of work."""
    scheduler_name: str = ""
    """The node's name there; empty means `name`."""
    torch_python: str | None = None
    nccl_tests: str | None = None
    """Path of the site's all_reduce_perf on the node."""
    test_env: dict[str, str] = field(default_factory=dict)
    """Environment of active tests: NCCL_IB_HCA and its like; see host_settings.TEST_ENV."""
    test_command: tuple[str, ...] = ()
    """Prefix argv of active tests, e.g. ("apptainer", "exec", "--nv", "/images/torch.sif")."""
    test_image: str | None = None
    """Container image of active tests in Kubernetes, and under pyxis in Slurm."""

    @property
    def target(self) -> str:
        """The host to connect to."""
        return self.address or self.name

    @property
    def scheduled_as(self) -> str:
        """The node's name in its scheduler."""
        return self.scheduler_name or self.name


class Hook(Struct, frozen=True, kw_only=True):
    """argv templates of a site's own drain commands; see inventory.hook."""

    state: tuple[str, ...]
    drain: tuple[str, ...]
    resume: tuple[str, ...]


class Inventory(Struct, frozen=True, kw_only=True):
    """All nodes, in natural order, and the settings that are not per node."""

    nodes: tuple[Node, ...]
    cluster: str = ""
    source: str = ""
    """Where it came from, for messages: a path, "slurm:", "-w"."""
    ssh_config: str | None = None
    """ssh_config file to use instead of the user's and the system's."""
    known_hosts: tuple[str, ...] = ()
    """known_hosts files to use instead of the user's and the system's."""
    hook: Hook | None = None
    """The commands behind `scheduler: hook`."""
    host_keys: str = "strict"
    """"strict" or "accept-new"; there is no off."""
