"""The keys a host, a group or the defaults may have, and how each value is read and checked.

A reader takes the YAML value, the key's name and the problems of the file; it answers None when the
value is wrong and has been added to the problems.
"""

from __future__ import annotations

import ipaddress
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import yaml

from inventory import marked
from inventory.expressions import is_host_name
from inventory.marked import Problems
from inventory.nearest import nearest
from inventory.node import Hook
from inventory.paths import expanded

Settings: TypeAlias = dict[str, Any]
"""Keywords of Node."""
Read: TypeAlias = Callable[[yaml.Node, str, Problems], Any]

_PARTICULAR = re.compile(r"kubernetes:\S+|slurm@[A-Za-z0-9][\w.-]*")
"""One of several contexts or clusters."""
SCHEDULERS = ("slurm", "kubernetes", "hook", "none")
MAX_GPUS = 256
"""Far above any host; the largest we know has 16."""

_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@\\-]*\$?")
_JUMP = re.compile(
    r"(?:(?P<user>[^@]+)@)?(?P<host>\[[0-9a-fA-F:.]+\]|[^:@\[\]]+)(?::(?P<port>\d+))?"
)


def choice(node: yaml.Node, what: str, valid: Sequence[str], problems: Problems) -> str | None:
    """One of a few words."""
    value = node.value if isinstance(node, yaml.ScalarNode) else None
    if value in valid:
        return str(value)
    shown = repr(value) if value else marked.kind(node)
    problems.add(node, f"unknown {what} {shown}", nearest(str(value), valid))
    return None


def scheduler(node: yaml.Node, what: str, problems: Problems) -> str | None:
    """slurm[@CLUSTER], kubernetes[:CONTEXT], hook or none (which says that nobody schedules)."""
    if isinstance(node, yaml.ScalarNode) and _PARTICULAR.fullmatch(node.value):
        return str(node.value)
    return choice(node, what, SCHEDULERS, problems)


def address(text: str) -> bool:
    """Whether this is a host name, an IPv4 or an IPv6 address (with zone)."""
    if is_host_name(text):
        return True
    try:
        ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return False
    return True


def _port(node: yaml.Node, what: str, problems: Problems) -> int | None:
    return marked.number(node, what, 1, 65535, problems)


def _gpus(node: yaml.Node, what: str, problems: Problems) -> int | None:
    return marked.number(node, what, 0, MAX_GPUS, problems)


def _user(node: yaml.Node, what: str, problems: Problems) -> str | None:
    value = marked.text(node, what, problems)
    if value is not None and not _USER.fullmatch(value):
        problems.add(node, f"{what} {value!r} is not a login name")
        return None
    return value


def _jump(node: yaml.Node, what: str, problems: Problems) -> tuple[str, ...] | None:
    hosts: list[str] = []
    for entry in marked.words(node, what, problems):
        value = marked.text(entry, what, problems) or ""
        for hop in filter(None, re.split(r"\s*,\s*", value)):
            if not _is_hop(hop):
                problems.add(entry, f"{what} {hop!r} is not a host", "write [user@]host[:port]")
                continue
            hosts.append(hop)
    return tuple(hosts) or None


def _is_hop(text: str) -> bool:
    match = _JUMP.fullmatch(text)
    if match is None or not address(match["host"]):
        return False
    user_is_good = match["user"] is None or _USER.fullmatch(match["user"]) is not None
    return user_is_good and 0 < int(match["port"] or 22) < 65536


def _path(node: yaml.Node, what: str, problems: Problems) -> str | None:
    value = marked.text(node, what, problems)
    if value is not None and value.startswith("-"):
        problems.add(node, f"{what} cannot begin with '-'", "write an absolute path")
        return None
    return value


def _root(node: yaml.Node, what: str, problems: Problems) -> str | None:
    value = _path(node, what, problems)
    if value is not None and not value.startswith("/"):
        problems.add(node, f"{what} {value!r} is not an absolute path", "e.g. /host")
        return None
    return value


def _identity(node: yaml.Node, what: str, problems: Problems) -> str | None:
    value = _path(node, what, problems)
    return None if value is None else str(expanded(value))


def _become(node: yaml.Node, what: str, problems: Problems) -> tuple[str, ...] | None:
    return _argv(node, what, problems, "write sudo -n, or a list: [sudo, -n]")


def _test_command(node: yaml.Node, what: str, problems: Problems) -> tuple[str, ...] | None:
    return _argv(node, what, problems, "write a list: [apptainer, exec, --nv, IMAGE.sif]")


def _argv(node: yaml.Node, what: str, problems: Problems, instead: str) -> tuple[str, ...] | None:
    if isinstance(node, yaml.SequenceNode):
        read = [marked.text(entry, what, problems) for entry in node.value]
        argv = [word for word in read if word is not None]
    else:
        value = marked.text(node, what, problems)
        if value is None:
            return None
        try:
            argv = shlex.split(value)
        except ValueError as error:
            problems.add(node, f"{what}: {error}", instead)
            return None
    if not argv or argv[0].startswith("-"):
        problems.add(node, f"{what} names no program", instead)
        return None
    return tuple(argv)


def _labels(node: yaml.Node, what: str, problems: Problems) -> dict[str, str]:
    labels = {}
    for key, value in marked.items(node, what, problems):
        text = marked.text(value, f"label {key.value}", problems)
        if text is not None:
            labels[key.value] = text
    return labels


TEST_ENV = re.compile(
    r"(?:(?:NCCL|UCX|OMPI|GLOO|FI|SHARP|HCOLL|TORCH_NCCL)_[A-Z0-9_]{1,80}"
    r"|CUDA_VISIBLE_DEVICES|NVIDIA_VISIBLE_DEVICES|MELLANOX_VISIBLE_DEVICES|LD_LIBRARY_PATH)"
)
"""Names that active tests may be given; the agent holds to the same list."""
MAX_ENV = 64
MAX_ENV_CHARS = 2048


def _test_env(node: yaml.Node, what: str, problems: Problems) -> dict[str, str]:
    env = {}
    for key, value in marked.items(node, what, problems):
        if not TEST_ENV.fullmatch(key.value):
            problems.add(
                key, f"{what} cannot set {key.value!r}",
                "names that begin with NCCL_, UCX_, OMPI_, GLOO_ ..., or LD_LIBRARY_PATH",
            )  # fmt: skip
            continue
        text = marked.text(value, key.value, problems)
        if text is not None and len(text) > MAX_ENV_CHARS:
            problems.add(value, f"{key.value} is longer than {MAX_ENV_CHARS} characters")
        elif text is not None:
            env[key.value] = text
    if len(env) > MAX_ENV:
        problems.add(node, f"{what} sets more than {MAX_ENV} names")
    return env


_IMAGE = re.compile(r"[A-Za-z0-9][\w.:/@#+-]{0,500}", re.ASCII)


def _image(node: yaml.Node, what: str, problems: Problems) -> str | None:
    value = marked.text(node, what, problems)
    if value is not None and not _IMAGE.fullmatch(value):
        problems.add(node, f"{what} {value!r} is no image", "write REGISTRY/NAME:TAG")
        return None
    return value


def _address(node: yaml.Node, what: str, problems: Problems) -> str | None:
    value = marked.text(node, what, problems)
    if value is not None and not address(value) and "[" not in value:
        problems.add(node, f"{what} {value!r} is neither a host name nor an IP address")
        return None
    return value


HOOKS = {"state": ("{nodes}",), "drain": ("{node}", "{reason}"), "resume": ("{node}",)}
"""Commands of a hook -> what each must pass on."""


def hook(found: Mapping[str, yaml.Node], at: yaml.Node, problems: Problems) -> Hook | None:
    """The three commands; each has to be there and to name its nodes."""
    read: dict[str, tuple[str, ...]] = {}
    for name, places in HOOKS.items():
        if name not in found:
            problems.add(at, f"hook has no {name}", f"write {name}: [PROGRAM, '{places[0]}']")
            continue
        argv = _become(found[name], f"hook.{name}", problems)
        lacking = [place for place in places if argv and place not in " ".join(argv)]
        if lacking:
            problems.add(found[name], f"hook.{name} does not pass {lacking[0]} on")
        elif argv and name == "state" and places[0] not in argv:
            problems.add(found[name], "hook.state: {nodes} must be a word of its own")
        elif argv:
            read[name] = argv
    return Hook(**read) if len(read) == len(HOOKS) else None


SETTINGS: Mapping[str, Read] = {
    "user": _user,
    "port": _port,
    "jump": _jump,
    "identity": _identity,
    "python": _path,
    "become": _become,
    "root": _root,
    "role": marked.text,
    "labels": _labels,
    "hardware": marked.text,
    "gpus": _gpus,
    "scheduler": scheduler,
    "torch_python": _path,
    "nccl_tests": _path,
    "test_env": _test_env,
    "test_command": _test_command,
    "test_image": _image,
}
"""Keys of a group and of the defaults."""

HOST_SETTINGS: Mapping[str, Read] = {**SETTINGS, "address": _address, "scheduler_name": marked.text}
"""Keys of one host."""
