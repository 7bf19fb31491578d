"""Where nodes come from: -i, narrowed by -w, -x and -g.

-i is FILE, slurm:[PARTITION][@CLUSTER], k8s:[CONTEXT], ssh:[CONFIG] or local:.
Without `-i` and `-w` the first of ~/.config/gpuconsole/inventory.yaml (platformdirs) and
/etc/gpuconsole/inventory.yaml is read. Without `-i` but with `-w`, and neither file there, the
named hosts are the inventory.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

import platformdirs
from msgspec.structs import replace

from inventory.errors import UsageError
from inventory.expressions import expand, fold, natural_key
from inventory.nearest import nearest
from inventory.node import Inventory, Node
from inventory.paths import expanded, is_folder, is_written
from inventory.run import Run

SITE_FILE = Path("/etc/gpuconsole/inventory.yaml")
"""The site's inventory, read when the user has none."""


class Source(Protocol):
    """Something that knows nodes."""

    async def inventory(self, selector: str = "") -> Inventory:
        """Its nodes in natural order; `selector` is what stands behind the colon of `-i NAME:`."""
        ...


class _Here(Source):
    """`local:`, this machine without ssh."""

    async def inventory(self, selector: str = "") -> Inventory:
        """This machine, under its short host name."""
        from inventory.hosts import local_node

        _nothing_behind("local:", selector)
        return Inventory(nodes=(local_node(),), source="local:")


class _SshConfig(Source):
    """`ssh:`, the Host lines of an ssh_config."""

    async def inventory(self, selector: str = "") -> Inventory:
        """Hosts of the user's ssh_config, or of the file behind the colon."""
        return _listed_by_ssh(selector)


def _slurm(run: Run) -> Source:
    from inventory.slurm import Slurm

    return Slurm(run)


def _kubernetes(run: Run) -> Source:
    from inventory.kubernetes import Kubernetes

    return Kubernetes(run)


SOURCES: dict[str, Callable[[Run], Source]] = {
    "slurm": _slurm,
    "ssh": lambda run: _SshConfig(),
    "local": lambda run: _Here(),
    "k8s": _kubernetes,
}
"""What may stand before the colon of `-i NAME:`."""


def _listed_by_ssh(selector: str) -> Inventory:
    from inventory.ssh_hosts import USER_CONFIG, config_hosts

    path = expanded(selector or USER_CONFIG)
    names = config_hosts(path)
    if not names:
        raise UsageError(
            f"no Host line without wildcards in {path}",
            where=f"ssh:{selector}".rstrip(":"),
            instead="name hosts with -w",
        )
    return _ad_hoc(names, f"ssh:{selector}", selector)


async def resolve(
    spec: str | None,
    *,
    hosts: str | None = None,
    exclude: str | None = None,
    group: str | None = None,
    run: Run,
) -> Inventory:
    """The inventory that -i (`spec`), -w (`hosts`), -x and -g ask for: at least one node.

    Raises UsageError for anything written wrong, SchedulerError when Slurm cannot be asked.
    """
    wanted = None if hosts is None else expand(hosts, where="-w")
    inventory = await _whole(spec, wanted, run)
    nodes = inventory.nodes
    if wanted is not None:
        _check_known(wanted, nodes, "-w", inventory.source)
        named = frozenset(wanted)
        nodes = tuple(node for node in nodes if node.name in named)
    if group is not None:
        nodes = _in_groups(nodes, group)
    if exclude is not None:
        left_out = expand(exclude, where="-x")
        _check_known(left_out, inventory.nodes, "-x", inventory.source)
        nodes = tuple(node for node in nodes if node.name not in frozenset(left_out))
    if not nodes:
        raise UsageError("no node is left", where=inventory.source, instead="see -w, -g and -x")
    return replace(inventory, nodes=nodes)


async def _whole(spec: str | None, wanted: list[str] | None, run: Run) -> Inventory:
    """The inventory before -w, -g and -x choose from it."""
    if spec is None:
        path = default_file()
        if path is not None:
            return _load(path)
        if wanted is None:
            raise _nothing_found()
        return _ad_hoc(wanted, "-w")
    name, colon, selector = spec.partition(":")
    if not colon or name not in SOURCES:
        return _load(_file_of(spec))
    if name == "ssh" and wanted is not None:
        # ssh reaches any host, also those its config does not list.
        return _ad_hoc(wanted, spec, selector)
    return await SOURCES[name](run).inventory(selector)


def _ad_hoc(names: list[str], source: str, ssh_config: str = "") -> Inventory:
    nodes = tuple(Node(name=name) for name in sorted(names, key=natural_key))
    config = str(expanded(ssh_config)) if ssh_config else None
    return Inventory(nodes=nodes, source=source, ssh_config=config)


def _load(path: Path) -> Inventory:
    from inventory.hosts import load

    return load(path)


def default_file() -> Path | None:
    """The first default inventory that exists; one that cannot be read is an error later."""
    return next((path for path in (user_file(), SITE_FILE) if is_written(path)), None)


def user_file() -> Path:
    """The user's own inventory."""
    return Path(platformdirs.user_config_dir("gpuconsole")) / "inventory.yaml"


def _file_of(spec: str) -> Path:
    """The file `-i` names. UsageError when there is none, with what was probably meant."""
    if not spec:
        raise UsageError("is empty", where="-i", instead="name the inventory file")
    path = expanded(spec)
    if is_written(path):
        if is_folder(path):
            raise UsageError(f"{spec} is a folder", where="-i", instead="name the inventory file")
        return path
    name = spec.partition(":")[0]
    if name in SOURCES:
        what, instead = f"no file {spec}", f"did you mean {name}:?"
    elif ":" in spec and "/" not in spec:
        what, instead = f"unknown source {name}:", nearest(name, SOURCES).replace("?", ":?")
    elif _is_expression(spec):
        what, instead = f"no file {spec}", f"hosts are named with -w: -w '{spec}'"
    else:
        what, instead = f"no file {spec}", "write one with hosts: gpu[001-064]"
    raise UsageError(what, where="-i", instead=instead)


def _is_expression(text: str) -> bool:
    try:
        return bool(expand(text)) and "." not in text
    except UsageError:
        return False


def _nothing_found() -> UsageError:
    """No inventory anywhere: what to write, and what this machine has to offer."""
    from inventory.ssh_hosts import USER_CONFIG, config_hosts

    offers = []
    if shutil.which("scontrol"):
        offers.append("-i slurm: (scontrol is here)")
    if shutil.which("kubectl"):
        offers.append("-i k8s: (kubectl is here)")
    listed = len(config_hosts(expanded(USER_CONFIG)))
    if listed:
        offers.append(f"-i ssh: ({listed} hosts in {USER_CONFIG})")
    if os.path.exists("/dev/nvidiactl"):
        offers.append("-i local: (this machine has GPUs)")
    offers.append("-w 'gpu[001-064]'")
    offers.append("--demo")
    return UsageError(
        "no inventory",
        instead=f"write `hosts: gpu[001-064]` into {user_file()}, or use {', '.join(offers)}",
    )


def _nothing_behind(source: str, selector: str) -> None:
    if selector:
        raise UsageError(f"nothing can stand behind {source}", where=f"{source}{selector}")


def _in_groups(nodes: tuple[Node, ...], wanted: str) -> tuple[Node, ...]:
    """Nodes of the named groups (several joined by commas); a Slurm partition is a group too."""
    groups_of = {node.name: {node.group, *_partitions(node)} for node in nodes}
    known = sorted(set().union(*groups_of.values()), key=natural_key)
    names = {name.strip() for name in wanted.split(",")}
    for name in sorted(names - set(known)):
        raise UsageError(f"no group {name!r}", where="-g", instead=nearest(name, known))
    return tuple(node for node in nodes if groups_of[node.name] & names)


def _partitions(node: Node) -> list[str]:
    return [name for name in node.labels.get("partitions", "").split(",") if name]


def _check_known(wanted: Iterable[str], nodes: tuple[Node, ...], option: str, source: str) -> None:
    """A name that is not in the inventory is a typing error, and dangerous in -x."""
    known = {node.name for node in nodes}
    strange = [name for name in wanted if name not in known]
    if not strange:
        return
    instead = nearest(strange[0], known) if len(strange) == 1 else ""
    if not instead.startswith("did you"):
        instead = f"it has {_short(fold(known))}"
    if option == "-w":
        instead += "; other hosts: -i ssh: -w ..."
    raise UsageError(f"{_short(fold(strange))} not in {source}", where=option, instead=instead)


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."
