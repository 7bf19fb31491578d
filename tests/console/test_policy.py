"""The policy file: who may do what, whose file counts, and wrong files named with their line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from console import policy
from console.audit import Who
from inventory.errors import UsageError

GOOD = """\
roles:
  oncall: {users: [mara], groups: [root], may: [drain, resume, test]}
  lab:
    users: [lin]
    may: [drain]
    nodes: ["lab[1-4]", gpu007]
automatic:
  max_nodes: 2
  max_share: 0.05
  rules: [gpu.lost, "xid.*"]
"""
US = {os.getuid()}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(GOOD)
    path.chmod(0o644)
    return path


@pytest.mark.parametrize(
    ("who", "verb", "node", "may"),
    [
        (Who(user="mara"), "drain", "gpu001", True),
        (Who(user="mara"), "resume", "gpu001", True),
        (Who(user="root"), "test", "gpu001", True),
        (Who(user="root", sudo_user="lin"), "drain", "gpu001", False),
        (Who(user="lin"), "drain", "lab3", True),
        (Who(user="lin"), "drain", "gpu007", True),
        (Who(user="lin"), "drain", "gpu008", False),
        (Who(user="lin"), "resume", "lab3", False),
        (Who(user="nobody-we-know"), "drain", "lab3", False),
        (Who(user="lin", sudo_user="mara"), "drain", "gpu001", False),
    ],
)
def test_roles(path: Path, who: Who, verb: str, node: str, may: bool) -> None:
    found = policy.read(path, US)
    why = found.refusal(verb, node, who)
    assert (why == "") is may
    if not may:
        assert verb in why
        assert node in why
        assert str(path) in why


def test_without_roles_everybody_may(path: Path) -> None:
    path.write_text("automatic: {max_nodes: 1, max_share: 0.1}\n")
    assert policy.read(path, US).refusal("drain", "gpu1", Who(user="lin")) == ""
    path.write_text("roles: {}\n")
    assert policy.read(path, US).refusal("drain", "gpu1", Who(user="lin")) != ""


def test_caps_and_rules(path: Path) -> None:
    limits = policy.read(path, US).automatic
    assert limits is not None
    assert (limits.max_nodes, limits.max_share) == (2, 0.05)
    assert [limits.wants(rule) for rule in ("gpu.lost", "xid.79", "ib.down")] == [True, True, False]


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_a_file_that_others_can_write_is_refused(path: Path, mode: int) -> None:
    path.chmod(mode)
    with pytest.raises(UsageError, match="could have written it"):
        policy.read(path, US)


def test_a_file_of_somebody_else_is_refused(path: Path) -> None:
    with pytest.raises(UsageError, match="could have written it"):
        policy.read(path, {os.getuid() + 1})


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("roles:", "rolls:", 1, "unknown key 'rolls'.*roles"),
        ("[drain]", "[drane]", 5, "may 'drane'.*drain"),
        ("    may: [drain]\n", "", 4, "role lab may nothing"),
        ("    users: [lin]\n", "", 4, "role lab has nobody"),
        ("lab[1-4]", "lab[1-", 6, "bracket"),
        ("max_share: 0.05", "max_share: 5", 9, "max_share is '5'"),
        ("  max_nodes: 2\n", "", 8, "automatic has no max_nodes"),
        ("max_nodes: 2", "max_nodes: many", 8, "max_nodes is 'many'"),
        ('rules: [gpu.lost, "xid.*"]', "rules: []", 10, "rules is empty"),
        ("max_share: 0.05", "max_share: nan", 9, "max_share is 'nan'"),
        ("automatic:\n", "automatic:\n  \x07\n", 8, "control character"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(
    path: Path, old: str, new: str, line: int, says: str
) -> None:
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(UsageError, match=says) as error:
        policy.read(path, US)
    assert f"{path}:{line}" in str(error.value)


def test_a_user_cannot_give_themselves_roles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Roles restrict, so they only mean something in the file that root alone can write."""
    monkeypatch.setattr(policy, "SITE_FILE", tmp_path / "none.yaml")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    own = tmp_path / "gpuconsole" / "policy.yaml"
    own.parent.mkdir()
    own.write_text(GOOD)
    own.chmod(0o600)
    found = policy.load()
    assert found.roles is None
    assert found.automatic is not None


def link_to_nowhere(path: Path) -> None:
    path.symlink_to(path.with_name("gone"))


def link_to_itself(path: Path) -> None:
    path.symlink_to(path)


def pipe(path: Path) -> None:
    os.mkfifo(path, 0o600)


def folder(path: Path) -> None:
    path.mkdir(0o700)


def link_to_what_all_can_write(path: Path) -> None:
    target = path.with_name("shared.yaml")
    target.write_text(GOOD)
    target.chmod(0o666)
    path.symlink_to(target)


@pytest.mark.parametrize(
    "made", [link_to_nowhere, link_to_itself, pipe, folder, link_to_what_all_can_write]
)
def test_a_site_file_that_cannot_be_trusted_is_no_permission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: object
) -> None:
    """Otherwise everybody may as soon as the file server is away."""
    assert callable(made)
    path = tmp_path / "policy.yaml"
    made(path)
    monkeypatch.setattr(policy, "SITE_FILE", path)
    with pytest.raises(UsageError, match=r"policy\.yaml"):
        policy.load()


def test_a_file_that_is_exchanged_after_its_check_does_not_count(path: Path) -> None:
    """What was judged is what is read: the name may lead elsewhere by then."""
    with policy._trusted(path, frozenset(US)) as file:
        other = path.with_name("other")
        other.write_text("roles: {}\n")
        other.replace(path)
        assert file.read().decode() == GOOD
