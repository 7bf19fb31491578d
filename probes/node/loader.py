"""Second stage on the node: modules from memory, compiled when they are imported.

The first stage is the command line (probes/bundle.py): it reads one length line and that many
bytes from stdin, decompresses them and executes them: this file. It then reads three more such
blocks: the config (JSON), our own modules (JSON: name -> [path, source]) and pynvml's source.
pynvml stays compressed until something imports it: 324 KB of source cost 60 ms to compile, which a
node without an NVIDIA library need not pay. Nothing touches the node's disk.
"""

import gc
import json
import os
import sys
import zlib
from importlib.machinery import ModuleSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, ModuleType
    from typing import Any, BinaryIO

BLOCK_BYTES = 16 << 20
"""No block of a payload is near this; more means that stdin is not ours."""


class Modules:
    """Finder and loader of the payload's modules, under their real names and paths.

    The abstract classes of importlib.abc bring nothing but 25 modules more (10 ms of CPU).

    `sources` maps a module's name to (path, source, is_package); `packed` maps it to (path,
    compressed source) for modules that are too large to unpack before they are wanted.
    """

    def __init__(
        self,
        sources: "dict[str, tuple[str, str]]",
        packed: "dict[str, tuple[str, bytes]]",
    ) -> "None":
        self._sources = sources
        self._packed = packed

    def find_spec(
        self, fullname: "str", path: "object" = None, target: "object" = None
    ) -> "ModuleSpec | None":
        """The spec of a module of the payload; None leaves it to the standard library."""
        if fullname not in self._sources and fullname not in self._packed:
            return None
        origin = (self._sources.get(fullname) or self._packed[fullname])[0]
        loader: "Any" = self
        spec = ModuleSpec(fullname, loader, origin=origin, is_package=self.is_package(fullname))
        spec.has_location = True
        return spec

    def is_package(self, fullname: "str") -> "bool":
        """Whether the module is a package's __init__."""
        path = self._sources.get(fullname, ("",))[0]
        return os.path.basename(path) == "__init__.py"

    def get_source(self, fullname: "str") -> "str":
        """The source; linecache asks for it, so tracebacks carry source lines."""
        if fullname in self._sources:
            return self._sources[fullname][1]
        if fullname in self._packed:
            return zlib.decompress(self._packed[fullname][1]).decode("utf-8")
        raise ImportError("not in the payload: %s" % fullname)

    def get_filename(self, fullname: "str") -> "str":
        """The path that tracebacks show."""
        return (self._sources.get(fullname) or self._packed[fullname])[0]

    def get_code(self, fullname: "str") -> "CodeType":
        """Compiled on demand, never cached on disk."""
        return compile(
            self.get_source(fullname), self.get_filename(fullname), "exec", dont_inherit=True
        )

    def create_module(self, spec: "ModuleSpec") -> "None":
        """As usual; Python 3.6 wants to be told."""

    def exec_module(self, module: "ModuleType") -> "None":
        """Run it; after a large one hand back what the compiler needed: 10 MB for pynvml."""
        exec(self.get_code(module.__name__), module.__dict__)
        if module.__name__ in self._packed:
            trim()


def trim() -> "None":
    """Return free memory to the system where the C library can (glibc)."""
    import ctypes

    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        pass


def read_block(stream: "BinaryIO") -> "bytes":
    """One block: a decimal length, a line feed, that many bytes. Raises EOFError when cut short."""
    size = int(stream.readline(20) or b"-1")
    if not 0 <= size <= BLOCK_BYTES:
        raise EOFError("the payload ended early")
    block = stream.read(size)
    if len(block) != size:
        raise EOFError("the payload ended early")
    return block


def start(stream: "BinaryIO") -> "None":
    """Read the rest of the payload, install the finder, run the agent. Does not return."""
    if sys.stdout is None:  # else frames would go to whatever is opened as descriptor 1
        sys.exit("gpuconsole: stdout is closed")
    if sys.stderr is None:  # takes descriptor 2, the lowest that is free
        sys.stderr = open(os.devnull, "w")
    config = json.loads(zlib.decompress(read_block(stream)).decode("utf-8"))
    sources = json.loads(zlib.decompress(read_block(stream)).decode("utf-8"))
    packed = read_block(stream)
    pynvml = {"pynvml": ("pynvml.py", packed)} if packed else {}
    sys.meta_path.insert(0, Modules(sources, pynvml))
    from probes.node import agent

    agent.main(config, stream)


if __name__ == "__main__":
    start(sys.stdin.buffer)
