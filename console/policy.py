"""Who may do what, and what cron may do: /etc/gpuconsole/policy.yaml, which only root can write.

    roles:                       # without roles everybody may do what the scheduler lets them
      oncall: {groups: [sre], may: [drain, resume, test]}
      lab:    {users: [lin], may: [drain], nodes: "lab[1-4]"}
    automatic:                   # without it --drain-on does nothing
      max_nodes: 2               # within an hour, drains of people included
      max_share: 0.05            # of the healthy pool
      rules: [gpu.lost, xid.79]  # default: every finding with hardware evidence

Where the site has no such file, the user's own in the configuration folder counts for `automatic`.
"""

from __future__ import annotations

import fnmatch
import grp
import os
import pwd
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import platformdirs
import yaml
from msgspec import Struct

from console.audit import Who, who
from console.said import said
from inventory import marked
from inventory.errors import UsageError
from inventory.expressions import expand
from inventory.marked import Problems
from inventory.nearest import nearest
from inventory.paths import is_written

SITE_FILE = Path("/etc/gpuconsole/policy.yaml")
VERBS = ("drain", "resume", "test")
_ROLE_KEYS = ("users", "groups", "may", "nodes")
_AUTOMATIC_KEYS = ("max_nodes", "max_share", "rules")
MOST_NODES = 1000


class Role(Struct, frozen=True, kw_only=True):
    """Some people and what they may do to some nodes."""

    name: str
    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    may: frozenset[str] = frozenset()
    nodes: frozenset[str] | None = None
    """None means all."""

    def covers(self, verb: str, node: str) -> bool:
        """Whether it allows this."""
        return verb in self.may and (self.nodes is None or node in self.nodes)


class Automatic(Struct, frozen=True, kw_only=True):
    """Hard caps of what nobody confirms."""

    max_nodes: int
    max_share: float
    rules: tuple[str, ...] = ("*",)

    def wants(self, rule: str) -> bool:
        """Whether a finding of this rule may lead to a drain."""
        return any(fnmatch.fnmatchcase(rule, pattern) for pattern in self.rules)


class Policy(Struct, frozen=True, kw_only=True):
    """What the file says; without a file everybody may, and nothing is automatic."""

    path: str = ""
    roles: tuple[Role, ...] | None = None
    automatic: Automatic | None = None

    def refusal(self, verb: str, node: str, by: Who) -> str:
        """Why this person may not do this to this node; "" when they may."""
        if self.roles is None:
            return ""
        person = by.person
        groups = _groups(person)
        theirs = [r for r in self.roles if person in r.users or groups & r.groups]
        if any(role.covers(verb, node) for role in theirs):
            return ""
        return said(
            "{person} may not {verb} {node} ({path})",
            person=person,
            verb=verb,
            node=node,
            path=self.path,
        )


def load() -> Policy:
    """The site's file, else the user's own without its roles. UsageError for a wrong one."""
    # A file that is there and cannot be read (a link to nowhere, a closed folder) is no permission.
    if is_written(SITE_FILE):
        return read(SITE_FILE, owners={0})
    own = Path(platformdirs.user_config_dir("gpuconsole")) / "policy.yaml"
    if not is_written(own):
        return Policy()
    found = read(own, owners={0, os.getuid()})
    return Policy(path=found.path, automatic=found.automatic)


def read(path: Path, owners: Iterable[int]) -> Policy:
    """A policy file. UsageError for wrong content, or when others could have written it."""
    problems = Problems(path)
    with _trusted(path, frozenset(owners)) as file:
        root = marked.compose(path, problems, file)
    roles: tuple[Role, ...] | None = None
    automatic: Automatic | None = None
    top = {} if root is None else _section(root, "the policy", ("roles", "automatic"), problems)
    if "roles" in top:
        entries = marked.items(top["roles"], "roles", problems)
        roles = tuple(_role(key.value, value, problems) for key, value in entries)
    if "automatic" in top:
        automatic = _automatic(top["automatic"], problems)
    problems.finish()
    return Policy(path=str(path), roles=roles, automatic=automatic)


def _trusted(path: Path, owners: frozenset[int]) -> BinaryIO:
    """The file, opened before it is judged: what is judged is what is read."""
    try:
        # A pipe would keep us waiting for its writer.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise UsageError(f"cannot read it: {error.strerror}", where=str(path)) from None
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        os.close(fd)
        raise UsageError("cannot read it: not a file", where=str(path))
    if status.st_uid not in owners or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        os.close(fd)
        raise UsageError(
            "others than its owner could have written it", where=str(path),
            instead=f"chown root {path}; chmod 644 {path}",
        )  # fmt: skip
    return open(fd, "rb")


def _section(
    node: yaml.Node, what: str, keys: tuple[str, ...], problems: Problems
) -> dict[str, yaml.Node]:
    found = {}
    for key, value in marked.items(node, what, problems):
        if key.value in keys:
            found[key.value] = value
        else:
            problems.add(key, f"unknown key {key.value!r} in {what}", nearest(key.value, keys))
    return found


def _role(name: str, node: yaml.Node, problems: Problems) -> Role:
    found = _section(node, f"role {name}", _ROLE_KEYS, problems)
    may = _texts(found.get("may"), "may", problems)
    for verb in may - set(VERBS):
        problems.add(found["may"], f"role {name} may {verb!r}", nearest(verb, VERBS))
    if not may:
        problems.add(node, f"role {name} may nothing", f"write may: [{', '.join(VERBS)}]")
    if "users" not in found and "groups" not in found:
        problems.add(node, f"role {name} has nobody in it", "write users: or groups:")
    nodes: frozenset[str] | None = None
    if "nodes" in found:
        nodes = frozenset(_expanded(found["nodes"], problems))
    return Role(
        name=name, may=may, nodes=nodes,
        users=_texts(found.get("users"), "users", problems),
        groups=_texts(found.get("groups"), "groups", problems),
    )  # fmt: skip


def _expanded(node: yaml.Node, problems: Problems) -> Iterable[str]:
    for text in _texts(node, "nodes", problems):
        try:
            yield from expand(text, where=problems.where(node))
        except UsageError as error:
            problems.keep(node, error)


def _texts(node: yaml.Node | None, what: str, problems: Problems) -> frozenset[str]:
    if node is None:
        return frozenset()
    read_ = [marked.text(entry, what, problems) for entry in marked.words(node, what, problems)]
    return frozenset(text for text in read_ if text is not None)


def _automatic(node: yaml.Node, problems: Problems) -> Automatic | None:
    found = _section(node, "automatic", _AUTOMATIC_KEYS, problems)
    for key in ("max_nodes", "max_share"):
        if key not in found:
            problems.add(node, f"automatic has no {key}", "automatic drains need both caps")
    if not {"max_nodes", "max_share"} <= found.keys():
        return None
    most = marked.number(found["max_nodes"], "max_nodes", 1, MOST_NODES, problems)
    share = _share(found["max_share"], problems)
    rules = tuple(sorted(_texts(found.get("rules"), "rules", problems)))
    if "rules" in found and not rules:
        problems.add(found["rules"], "rules is empty", "name some, or leave it out for all")
    if most is None or share is None:
        return None
    return Automatic(max_nodes=most, max_share=share, rules=rules or ("*",))


def _share(node: yaml.Node, problems: Problems) -> float | None:
    text = marked.text(node, "max_share", problems) or ""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if 0.0 < value <= 0.5:
        return value
    problems.add(node, f"max_share is {text!r}", "a share above 0, at most 0.5, e.g. 0.05")
    return None


def _groups(person: str) -> frozenset[str]:
    try:
        gids = os.getgrouplist(person, pwd.getpwnam(person).pw_gid)
    except KeyError:
        return frozenset()
    names = set()
    for gid in gids:
        try:
            names.add(grp.getgrgid(gid).gr_name)
        except KeyError:
            continue
    return frozenset(names)


def operator() -> Who:
    """The person whose rights count."""
    return who()
