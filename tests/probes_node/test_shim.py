"""The python3 of a simulated node behaves as the interpreter it stands for."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.probes_node.rig import SHIM, Machine, binding

ASK = "import ctypes; print(bool(ctypes.CDLL('libnvidia-ml.so.1').nvmlInitWithFlags(0)))"


def run(machine: Machine, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """The shim with these words."""
    command = [machine.python, str(SHIM), str(machine.directory), *words]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


def test_code_and_its_arguments(each_machine: Machine) -> None:
    found = run(each_machine, "-c", "import sys; print(sys.argv); sys.exit(7)", "a", "-b")
    assert (found.stdout, found.returncode) == ("['-c', 'a', '-b']\n", 7)


def test_a_module(each_machine: Machine) -> None:
    found = run(each_machine, "-m", "json.tool", text='{"a": 1}')
    assert found.stdout.split() == ["{", '"a":', "1", "}"]


@pytest.mark.parametrize("words", [(), ("-",)])
def test_code_on_standard_input(each_machine: Machine, words: tuple[str, ...]) -> None:
    assert run(each_machine, *words, text=ASK).stdout == "False\n"


def test_a_file(each_machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("value = 5\n")
    script = tmp_path / "script.py"
    script.write_text(f"import sys, beside\nprint(sys.argv[1:], beside.value)\n{ASK}\n")
    assert run(each_machine, str(script), "x").stdout == "['x'] 5\nFalse\n"


def test_options_reach_the_interpreter(each_machine: Machine) -> None:
    code = "import sys; f = sys.flags; print(f.isolated, f.no_site, f.dont_write_bytecode)"
    assert run(each_machine, "-I", "-S", "-B", "-c", code).stdout == "1 1 1\n"
    assert run(each_machine, "-c", code).stdout.startswith("0 0 ")


def test_standard_input_belongs_to_the_program(each_machine: Machine) -> None:
    """The loader reads its payload from there: not one byte may be missing."""
    code = "import sys; print(len(sys.stdin.buffer.read()))"
    assert run(each_machine, "-I", "-S", "-u", "-c", code, text="x" * 100_000).stdout == "100000\n"


def test_other_libraries_are_the_real_ones(each_machine: Machine) -> None:
    code = "import ctypes; print(ctypes.CDLL(None).getpid() > 0, ctypes.CDLL.__name__)"
    assert run(each_machine, "-c", code).stdout == "True CDLL\n"


def test_a_missing_library_is_the_linkers_error(each_machine: Machine) -> None:
    each_machine.state["library"] = False
    each_machine.write()
    found = run(each_machine, "-c", ASK)
    assert "OSError: libnvidia-ml.so.1: cannot open shared object file" in found.stderr


def test_a_symbol_may_be_fetched_as_item(each_machine: Machine) -> None:
    code = "import ctypes; l = ctypes.CDLL('libnvidia-ml.so.1'); print(l['nvmlShutdown']())"
    assert run(each_machine, "-c", code).stdout == "1\n"  # not initialised


def test_tracebacks_are_not_the_shims(each_machine: Machine) -> None:
    found = run(each_machine, "-c", "1 / 0")
    assert "ZeroDivisionError" in found.stderr
    assert found.returncode == 1


def test_the_binding_is_the_real_one() -> None:
    assert Path(binding()).name == "pynvml.py"
