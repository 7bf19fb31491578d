"""The command line under real login shells, and what the payload holds."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from inventory.errors import UsageError
from inventory.node import Node
from probes import bundle
from tests.conftest import Lab
from tests.payload.rig import AgentProcess, config, kind, probe

SHELLS = ("sh", "bash", "dash", "csh", "tcsh", "fish")
NODE_MODULES = sorted((Path(bundle.__file__).parent / "node").glob("*.py"))
ECHO = probe("import os, sys\ndef collect(ctx):\n    return {'': {'exe': sys.executable}}, []\n")


@pytest.fixture(params=SHELLS)
def login_shell(request: pytest.FixtureRequest, lab: Lab, tmp_path: Path) -> str:
    """Each shell a user may have, by its real path."""
    path = shutil.which(request.param)
    lab.require("login shells", path is not None, f"{request.param} is not installed")
    return str(path)


@pytest.fixture
def python_with_an_odd_name(tmp_path: Path) -> Path:
    """A link to this interpreter whose path needs every kind of quoting."""
    folder = tmp_path / 'it\'s a $HOME `x` \\ \\\\ "dir" (1) & {a,b} ~ * ; # ^ | < > = é'
    folder.mkdir()
    script = folder / "py'thon"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    script.chmod(0o755)
    return script


def quiet_environment(home: Path) -> dict[str, str]:
    """A home of its own, so that nobody's start-up files count."""
    return {"PATH": os.environ["PATH"], "HOME": str(home), "LC_ALL": "C.UTF-8"}


def test_every_login_shell_runs_the_agent(login_shell: str, tmp_path: Path) -> None:
    settings = config(mode="pass", extra={"testing": ECHO})
    node = Node(name="n", python=sys.executable)
    environment = quiet_environment(tmp_path)
    with AgentProcess(settings, shell=login_shell, node=node, env=environment) as agent:
        said = agent.collect(lambda found: any(map(kind("end"), found)))
        assert agent.finish() == 0
    assert said[0]["k"] == "hello"
    assert agent.noise == []


def test_every_login_shell_ends_the_agent_at_eof(login_shell: str, tmp_path: Path) -> None:
    settings = config("host")
    environment = quiet_environment(tmp_path)
    with AgentProcess(settings, shell=login_shell, env=environment) as agent:
        hello = agent.wait_for(kind("hello"))
        assert hello["pid"] == agent.process.pid  # exec all the way: no shell is left behind
        agent.close()
        assert agent.finish() == 0


def test_odd_paths_and_prefixes_survive_every_login_shell(
    login_shell: str, tmp_path: Path, python_with_an_odd_name: Path
) -> None:
    words = (
        "env",
        "GPU_TEST=a b'c\\d$e\"f`g*",
        "GPU_BACK=\\ \\\\ \\' \\n !x !!",
        "sh",
        "-c",
        'exec "$@"',
        "it's",
    )
    node = Node(name="n", python=str(python_with_an_odd_name), become=words)
    told = probe("import os\ndef collect(ctx):\n    return {'': dict(os.environ)}, []\n")
    settings = config(mode="pass", extra={"testing": told})
    environment = quiet_environment(tmp_path)
    with AgentProcess(settings, shell=login_shell, node=node, env=environment) as agent:
        said = agent.wait_for(kind("s", p="testing"))["d"][""]
        assert agent.finish() == 0
    assert said["GPU_TEST"] == "a b'c\\d$e\"f`g*"
    assert said["GPU_BACK"] == "\\ \\\\ \\' \\n !x !!"


def test_noise_before_the_agent_is_noise(tmp_path: Path) -> None:
    (tmp_path / ".bashrc").write_text('echo WELCOME; echo \'{"k":"hello"}\'\n')
    environment = quiet_environment(tmp_path) | {"BASH_ENV": str(tmp_path / ".bashrc")}
    settings = config(mode="pass", extra={"testing": ECHO})
    with AgentProcess(settings, shell="bash", env=environment) as agent:
        assert agent.wait_for(kind("end"))
    assert b"WELCOME\n" in agent.noise
    assert b'{"k":"hello"}\n' in agent.noise


def test_no_interpreter_says_so_and_exits_127(login_shell: str, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "sh").symlink_to("/bin/sh")
    command = bundle.remote_command(Node(name="n", python="/nowhere/python3"))
    for found in ("/usr/libexec/platform-python", "/usr/bin/python3"):
        command = command.replace(found, "/nowhere/either")
    done = subprocess.run(
        [login_shell, "-c", command],
        input=b"", capture_output=True, check=False,
        env={"PATH": str(programs), "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 127
    assert done.stdout.decode().startswith(bundle.NO_PYTHON)
    assert "/nowhere/python3" in done.stdout.decode()


def test_an_interpreter_that_is_too_old_or_broken_is_passed_over(tmp_path: Path) -> None:
    for name, body in (("python3", "exit 127"), ("python3.13", "exit 1")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "python3.12").symlink_to(sys.executable)
    environment = {"PATH": f"{tmp_path}:/bin:/usr/bin", "HOME": str(tmp_path)}
    settings = config(mode="pass", extra={"testing": ECHO})
    with AgentProcess(settings, node=Node(name="n"), env=environment) as agent:
        said = agent.wait_for(kind("s", p="testing"))
    assert Path(said["d"][""]["exe"]).name == "python3.12"


def test_a_configured_interpreter_may_lie_below_the_home_of_the_login(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b" / "python").symlink_to(sys.executable)
    settings = config(mode="pass", extra={"testing": ECHO})
    node = Node(name="n", python="~/a b/python")
    with AgentProcess(settings, node=node, env=quiet_environment(tmp_path)) as agent:
        said = agent.wait_for(kind("s", p="testing"))
    assert said["d"][""]["exe"] == str(tmp_path / "a b" / "python")


@pytest.mark.parametrize("word", ["a\nb", "a\0b", "a\tb", "\x7f"])
def test_a_word_no_shell_can_take_is_refused(word: str) -> None:
    with pytest.raises(UsageError):
        bundle.remote_command(Node(name="n", become=("sudo", word)))
    with pytest.raises(UsageError):
        bundle.remote_command(Node(name="n", python=word))


def test_the_command_is_one_line() -> None:
    command = bundle.remote_command(
        Node(name="n", python="/opt/py/bin/python3", become=("sudo", "-n"))
    )
    assert command.startswith("exec sudo -n sh -c ")
    assert "\n" not in command


@pytest.mark.parametrize("path", NODE_MODULES, ids=lambda path: path.stem)
def test_the_payload_is_python_3_6(path: Path) -> None:
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 6))


@pytest.mark.parametrize("path", NODE_MODULES, ids=lambda path: path.stem)
def test_the_payload_compiles_on_each_interpreter(path: Path, node_python: str) -> None:
    code = "import sys;compile(sys.stdin.buffer.read(),'x','exec')"
    done = subprocess.run(
        [node_python, "-I", "-S", "-c", code], input=path.read_bytes(), check=False
    )
    assert done.returncode == 0


def test_the_payload_is_every_module_the_binding_and_the_config() -> None:
    settings = config("host", fast_s=3.5, root="/host")
    loader, told, modules, binding = _blocks(bundle.payload(settings))
    assert b"class Modules" in loader
    assert json.loads(told)["fast_s"] == 3.5
    assert json.loads(told)["root"] == "/host"
    assert json.loads(told)["marker"] == settings.marker
    names = {"probes", "probes.node", *(f"probes.node.{p.stem}" for p in NODE_MODULES)}
    assert names - {"probes.node.__init__"} == set(json.loads(modules))
    spec = importlib.util.find_spec("pynvml")
    assert spec is not None
    assert spec.origin is not None
    assert binding == Path(spec.origin).read_bytes()


def _blocks(payload: bytes) -> list[bytes]:
    found = []
    while payload:
        head, _, rest = payload.partition(b"\n")
        found.append(zlib.decompress(rest[: int(head)]))
        payload = rest[int(head) :]
    return found


def test_each_session_has_its_own_marker() -> None:
    first, second = bundle.AgentConfig(), bundle.AgentConfig()
    assert first.marker != second.marker
    assert len(first.marker) == 2 * bundle.MARKER_BYTES


@pytest.mark.parametrize("keep", [0, 1, 100, -1])
def test_a_payload_cut_short_ends_the_loader_with_an_error(keep: int) -> None:
    body = bundle.payload(config("host"))[:keep]
    done = subprocess.run(
        ["sh", "-c", bundle.remote_command(Node(name="n", python=sys.executable))],
        input=body, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode not in (0, 127)
    assert done.stdout == b""
