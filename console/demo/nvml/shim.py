"""`PYTHON shim.py DIR ARGUMENTS...` is `PYTHON ARGUMENTS...` on a node whose NVML is simulated.

ctypes.CDLL("libnvidia-ml.so.1") answers with the library object over DIR/nvml.json, and ethtool's
ioctl with DIR/ethtool.json; nothing else of the interpreter changes. Interpreter options (-I -S -u
...) need a second start, unless the caller has given the same ones already and says so:
`PYTHON -I -S -u shim.py --direct DIR -I -S -u -c CODE`.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Tuple

SONAME = "libnvidia-ml.so.1"
PACKAGE = "_simulated_nvml"
DIRECT = "--direct"
WITH_VALUE = ("-W", "-X")
"""Interpreter options that take the next word."""


def main(words: "List[str]") -> "None":
    """Split the words into options and what to run; start over with the options if need be."""
    direct = words[:1] == [DIRECT]
    directory = words[1] if direct else words[0]
    options, program = split(words[2:] if direct else words[1:])
    if options and not direct:
        again = [os.path.abspath(__file__), DIRECT, directory]
        os.execv(sys.executable, [sys.executable, *options, *again, *options, *program])
    patch(directory)
    run(program)


def split(words: "List[str]") -> "Tuple[List[str], List[str]]":
    """(interpreter options, [-c CODE | -m MODULE | FILE | -] and its arguments)."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-", "-c", "-m"):
        at += 2 if words[at] in WITH_VALUE else 1
    return words[:at], words[at:]


def patch(directory: "str") -> "None":
    """Put the simulated library and interfaces where ctypes and fcntl would find the real ones."""
    import ctypes
    import fcntl
    import importlib

    real: "Any" = ctypes.CDLL
    library = _library_class()
    interfaces: "Any" = importlib.import_module(PACKAGE + ".interfaces")
    fcntl.ioctl = interfaces.ioctl(directory, fcntl.ioctl)

    class CDLL(real):  # type: ignore[misc]
        """The real class, except for one name."""

        def __new__(cls, name: "Any" = None, *args: "Any", **kwargs: "Any") -> "Any":
            if isinstance(name, str) and os.path.basename(name) == SONAME:
                return library(directory)
            return real.__new__(cls)

    CDLL.__qualname__ = "CDLL"
    CDLL.__module__ = "ctypes"
    ctypes.CDLL = CDLL  # type: ignore[misc]


def _library_class() -> "Any":
    """Library, imported by path: the interpreter's own search path stays as it is."""
    import importlib
    import importlib.util

    here = os.path.dirname(os.path.abspath(__file__))
    spec: "Any" = importlib.util.spec_from_file_location(
        PACKAGE, os.path.join(here, "__init__.py"), submodule_search_locations=[here]
    )
    package = importlib.util.module_from_spec(spec)
    sys.modules[PACKAGE] = package
    spec.loader.exec_module(package)
    return importlib.import_module(PACKAGE + ".library").Library


def run(program: "List[str]") -> "None":
    """Do what the interpreter does with -c, -m, a file or its standard input."""
    import runpy
    import types

    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [place for place in sys.path if os.path.abspath(place or ".") != here]
    what = program[0] if program else "-"
    if what in ("-c", "-"):
        code = program[1] if what == "-c" else sys.stdin.read()
        sys.argv = [what, *program[2 if what == "-c" else 1 :]]
        main_module = types.ModuleType("__main__")
        sys.modules["__main__"] = main_module
        exec(compile(code, "<string>" if what == "-c" else "<stdin>", "exec"), main_module.__dict__)
    elif what == "-m":
        sys.argv = program[1:]
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = program
        sys.path.insert(0, os.path.dirname(os.path.abspath(what)))
        runpy.run_path(what, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
