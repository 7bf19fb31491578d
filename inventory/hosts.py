"""The inventory file: YAML, every error with file, line and what to write instead.

The smallest one is `hosts: gpu[001-064]`. Everything there is:

    cluster: alpha                      # shown in titles and documents
    scheduler: slurm                    # slurm, kubernetes[:CONTEXT], hook, none; for all hosts
    hook:                               # the site's own commands: see inventory/hook.py
      state: [/usr/local/sbin/pool, state, "{nodes}"]
      drain: [/usr/local/sbin/pool, out, "{node}", "{reason}"]
      resume: [/usr/local/sbin/pool, in, "{node}"]
    ssh:
      config: ~/.ssh/cluster_config     # instead of the user's and the system's
      known_hosts: [/etc/ssh/known]     # instead of the user's and the system's
      host_keys: strict                 # or accept-new
    defaults:                           # any key of a group but hosts
      user: ops
      become: sudo -n                   # or a list: [sudo, -n]
    groups:
      h100:
        hosts: gpu[001-032]!gpu007      # text, or a list of texts and mappings
        port: 2222
        jump: ops@bastion:22            # several: a list, or joined by commas
        identity: ~/.ssh/cluster
        python: /opt/python/bin/python3
        role: train                     # peers are compared inside a role; default: group's name
        root: /                         # where /sys, /proc and /dev are; /host in a container
        labels: {rack: r1}
        hardware: h100-sxm              # key into hardware.yaml; default: looked up by PCI id
        gpus: 8                         # expected per host
        torch_python: /opt/torch/bin/python
        nccl_tests: /opt/nccl-tests/build/all_reduce_perf
        test_env: {NCCL_IB_HCA: mlx5}   # of active tests
        test_command: apptainer exec --nv /images/torch.sif     # before them; or a list
        test_image: nvcr.io/nvidia/pytorch:24.10-py3            # Kubernetes, Slurm with pyxis
      lab:
        hosts:                          # a mapping gives hosts keys of their own
          lab1: {address: 127.0.0.2, port: 2201, scheduler_name: n1}
          lab[2-4]: {address: "10.0.0.[2-4]"}
          lab5:
    hosts: [login1, login2]             # hosts outside groups: group "default", role "compute"
    local: true                         # this machine too, without ssh

Host keys win over group keys, those over defaults. Paths in `ssh` are relative to the file.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

from inventory import marked
from inventory.errors import UsageError
from inventory.expressions import MAX_HOSTS, expand, fold, is_host_name, natural_key
from inventory.host_settings import (
    HOOKS,
    HOST_SETTINGS,
    SETTINGS,
    Read,
    Settings,
    choice,
    hook,
    scheduler,
)
from inventory.marked import Problems
from inventory.nearest import nearest
from inventory.node import Hook, Inventory, Node
from inventory.paths import expanded, is_file

HOST_KEY_POLICIES = ("strict", "accept-new")
PER_HOST = ("address", "scheduler_name")
"""Keys that differ from host to host; an expression gives each host its own."""
MERGED = ("labels", "test_env")
"""Mappings of which a host, its group and the defaults each give a part."""
_TOP_KEYS = ("cluster", "hosts", "groups", "defaults", "scheduler", "hook", "ssh", "local")


class _Place(Struct, frozen=True):
    """Where a host was first named."""

    group: str
    line: int


class _Host(Struct, frozen=True):
    """One host as written: its name, where, and its own settings."""

    name: str
    at: yaml.Node
    own: Settings


def load(path: Path) -> Inventory:
    """Read an inventory file. Raises UsageError naming file and line of all that is wrong."""
    problems = Problems(path)
    root = marked.compose(path, problems)
    if root is None or marked.kind(root) == "nothing":
        raise UsageError("empty inventory", where=f"{path}:1", instead="write hosts: gpu[001-064]")
    reader = _File(path, problems)
    inventory = reader.read(root)
    problems.finish()
    if not inventory.nodes:
        raise UsageError(
            "no hosts in it", where=problems.where(root), instead="write hosts: gpu[001-064]"
        )
    return inventory


def local_node(**settings: Any) -> Node:
    """This machine as a node without ssh, under its short host name."""
    name = socket.gethostname().split(".")[0]
    return Node(name=name if is_host_name(name) else "localhost", transport="local", **settings)


class _File:
    """One inventory file while it is read."""

    def __init__(self, path: Path, problems: Problems) -> None:
        self.path = path
        self.problems = problems
        self.places: dict[str, _Place] = {}
        self.nodes: list[Node] = []

    def read(self, root: yaml.Node) -> Inventory:
        """The whole file. What is wrong with it is in `problems` afterwards."""
        top = self.section(root, "the inventory", _TOP_KEYS, _top_hint)
        defaults: Settings = {}
        if "scheduler" in top:
            defaults["scheduler"] = scheduler(top["scheduler"], "scheduler", self.problems)
        if "defaults" in top:
            defaults |= self.settings(top["defaults"], "defaults", SETTINGS)
        for name, group in self.groups(top):
            self.group(name, group, defaults)
        if "hosts" in top:
            self.add("default", top["hosts"], {"role": "compute", **defaults})
        if "local" in top and marked.truth(top["local"], "local", self.problems):
            self.add_local(top["local"], defaults)
        return Inventory(
            nodes=tuple(sorted(self.nodes, key=lambda node: natural_key(node.name))),
            cluster=self.cluster(top),
            hook=self.hook(top, root),
            source=str(self.path),
            **self.ssh(top),
        )

    def section(
        self,
        node: yaml.Node,
        what: str,
        keys: tuple[str, ...],
        hint: Callable[[str], str] | None = None,
    ) -> dict[str, yaml.Node]:
        """The known keys of a mapping; an unknown one is a problem that names the nearest."""
        found = {}
        for key, value in marked.items(node, what, self.problems):
            if key.value in keys:
                found[key.value] = value
                continue
            instead = (hint(key.value) if hint else "") or nearest(key.value, keys)
            self.problems.add(key, f"unknown key {key.value!r} in {what}", instead)
        return found

    def settings(self, node: yaml.Node, what: str, readers: Mapping[str, Read]) -> Settings:
        """Settings of a host, a group or the defaults, as keywords of Node."""
        return self.values(self.section(node, what, tuple(readers)), readers)

    def values(self, found: dict[str, yaml.Node], readers: Mapping[str, Read]) -> Settings:
        """What the readers make of each key; what they refuse is left out."""
        read = {key: readers[key](node, key, self.problems) for key, node in found.items()}
        return {key: value for key, value in read.items() if value is not None}

    def cluster(self, top: dict[str, yaml.Node]) -> str:
        """The cluster's name, or ""."""
        if "cluster" not in top:
            return ""
        return marked.text(top["cluster"], "cluster", self.problems) or ""

    def hook(self, top: dict[str, yaml.Node], root: yaml.Node) -> Hook | None:
        """The site's commands; nodes with `scheduler: hook` cannot do without."""
        if "hook" in top:
            found = self.section(top["hook"], "hook", tuple(HOOKS))
            return hook(found, top["hook"], self.problems)
        if any(node.scheduler == "hook" for node in self.nodes):
            self.problems.add(root, "scheduler: hook, but no hook:", "write the commands there")
        return None

    def groups(self, top: dict[str, yaml.Node]) -> Iterator[tuple[str, yaml.Node]]:
        """Names and bodies of the groups."""
        if "groups" not in top:
            return
        for key, value in marked.items(top["groups"], "groups", self.problems):
            if key.value == "default":
                self.problems.add(
                    key, "a group cannot be called default", "write its hosts under hosts:"
                )
            yield key.value, value

    def group(self, name: str, node: yaml.Node, defaults: Settings) -> None:
        """One group; a bare expression instead of a mapping is its hosts."""
        if isinstance(node, yaml.ScalarNode) and marked.kind(node) != "nothing":
            self.add(name, node, {"role": name, **defaults})
            return
        what = f"group {name}"
        found = self.section(node, what, ("hosts", *SETTINGS))
        own = self.values({k: v for k, v in found.items() if k != "hosts"}, SETTINGS)
        if "hosts" in found:
            self.add(name, found["hosts"], _merge({"role": name, **defaults}, own))
        elif isinstance(node, yaml.MappingNode):
            self.problems.add(node, f"{what} has no hosts", "write hosts: gpu[001-064]")

    def add(self, group: str, node: yaml.Node, settings: Settings) -> None:
        """Hosts of a group become nodes; a host named before is a problem naming both places."""
        again: dict[tuple[int, _Place], list[str]] = {}
        for host in self.hosts(node, f"hosts of group {group}"):
            line = marked.line_of(host.at)
            if len(self.nodes) >= MAX_HOSTS:
                self.problems.add(line, f"more than {MAX_HOSTS:,} hosts in all")
                break
            if before := self.places.get(host.name):
                again.setdefault((line, before), []).append(host.name)
                continue
            self.places[host.name] = _Place(group, line)
            self.nodes.append(Node(name=host.name, group=group, **_merge(settings, host.own)))
        for (line, before), names in again.items():
            what = f"{fold(names)} in group {group} again; "
            what += f"first in group {before.group} on line {before.line}"
            self.problems.add(line, what, "a host belongs to one group, once")

    def add_local(self, at: yaml.Node, defaults: Settings) -> None:
        """This machine, unless it is named among the hosts already."""
        node = local_node(**{"role": "compute", **defaults})
        if before := self.places.get(node.name):
            what = f"local: this machine is {node.name}, which line {before.line} reaches by ssh"
            self.problems.add(at, what, "keep one of the two")
            return
        self.nodes.append(node)

    def hosts(self, node: yaml.Node, what: str) -> Iterator[_Host]:
        """Hosts of a text, a list of texts and mappings, or a mapping with keys per host."""
        if isinstance(node, yaml.MappingNode):
            for key, value in marked.items(node, what, self.problems):
                yield from self.expanded(key, value)
            return
        for entry in marked.words(node, what, self.problems):
            if isinstance(entry, yaml.MappingNode):
                yield from self.hosts(entry, what)
            else:
                yield from self.expanded(entry, None)

    def expanded(self, key: yaml.Node, value: yaml.Node | None) -> Iterator[_Host]:
        """The hosts of one expression, each with its share of the keys that follow it."""
        expression = marked.text(key, "a host", self.problems)
        if expression is None:
            return
        try:
            names = expand(expression, where=self.problems.where(key))
        except UsageError as error:
            self.problems.keep(key, error)
            return
        own: Settings = {}
        if value is not None and marked.kind(value) != "nothing":
            own = self.settings(value, f"host {expression}", HOST_SETTINGS)
        each = {name: self.one_each(own.pop(name, ""), names, key) for name in PER_HOST}
        for i, name in enumerate(names):
            given = {key: values[i] for key, values in each.items() if values[i]}
            yield _Host(name, key, {**own, **given})

    def one_each(self, expression: str, names: list[str], at: yaml.Node) -> list[str]:
        """One address (or name in the scheduler) for each host, in the order written."""
        values = [expression]
        if "[" in expression:
            try:
                values = expand(expression, where=self.problems.where(at))
            except UsageError as error:
                self.problems.keep(at, error)
                return [""] * len(names)
        if expression and len(values) != len(names):
            what = f"{len(values)} of {expression!r} for {len(names)} hosts"
            self.problems.add(at, what, "give each host its own, e.g. n[1-4]: 10.0.0.[1-4]")
        return values * len(names) if len(values) == 1 else (values + [""] * len(names))

    def ssh(self, top: dict[str, yaml.Node]) -> Settings:
        """Settings of the ssh client, as keywords of Inventory."""
        if "ssh" not in top:
            return {}
        found = self.section(top["ssh"], "ssh", ("config", "known_hosts", "host_keys"))
        settings: Settings = {}
        if "config" in found and (path := self.file(found["config"], "ssh.config")):
            settings["ssh_config"] = path
        if "known_hosts" in found:
            entries = marked.words(found["known_hosts"], "ssh.known_hosts", self.problems)
            files = [self.file(entry, "ssh.known_hosts") for entry in entries]
            settings["known_hosts"] = tuple(file for file in files if file)
        if "host_keys" in found:
            node = found["host_keys"]
            policy = choice(node, "ssh.host_keys", HOST_KEY_POLICIES, self.problems)
            settings["host_keys"] = policy or HOST_KEY_POLICIES[0]
        return settings

    def file(self, node: yaml.Node, what: str) -> str | None:
        """An existing file; a relative path starts at the inventory's folder."""
        written = marked.text(node, what, self.problems)
        if written is None:
            return None
        path = self.path.absolute().parent / expanded(written)
        if not is_file(path):
            self.problems.add(node, f"{what}: no file {path}")
        return str(path)


def _merge(base: Settings, own: Settings) -> Settings:
    merged = {**base, **own}
    for key in MERGED:
        merged[key] = {**base.get(key, {}), **own.get(key, {})}
    if merged.get("scheduler") == "none":
        merged["scheduler"] = None
    return merged


def _top_hint(key: str) -> str:
    if key in SETTINGS:
        return f"write it under defaults: or in a group ({key} is a key of those)"
    return ""
