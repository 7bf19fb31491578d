"""What an order for an active test may ask for, and whether this node may run one."""

import os
import re

from probes.node import processes
from probes.node.context import Stuck
from probes.node.jobs import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

    from probes.node.context import Context

    Args = dict[str, object]

TIMEOUT_S = 120.0
TIMEOUT_MOST_S = 7200.0
NO_DRIVER = frozenset((9, 12))
"""NVML: driver not loaded, library not found."""

ENVIRONMENT = re.compile(
    r"(?:(?:NCCL|UCX|OMPI|GLOO|FI|SHARP|HCOLL|TORCH_NCCL)_[A-Z0-9_]{1,80}"
    r"|CUDA_VISIBLE_DEVICES|NVIDIA_VISIBLE_DEVICES|MELLANOX_VISIBLE_DEVICES|LD_LIBRARY_PATH)"
)
"""Names an order may set: what steers communication and where its libraries lie."""
ENVIRONMENT_MOST = 64
VALUE_CHARS = 2048


def gpu_count(ctx: "Context") -> "int | None":
    """GPUs NVML lists; 0 without a driver, None when it cannot be told."""
    if ctx.nvml is None:
        return 0
    from probes.node.nvml_library import Failed

    try:
        return len(ctx.nvml.gpus(True))
    except Failed as failure:
        return 0 if failure.rc in NO_DRIVER else None
    except Stuck:
        return None


def check_idle(ctx: "Context", gpus: "int | None") -> "None":
    """Raise Refused when a GPU has compute processes, or when nobody can tell."""
    if gpus is None:
        raise Refused("NVML does not answer, so it cannot be told whether the GPUs are busy")
    if gpus == 0 or ctx.nvml is None:
        return
    from probes.node.nvml_library import Failed

    for gpu in ctx.nvml.gpus():
        try:
            busy = processes.running(ctx, gpu) if gpu.handle is not None else []
        except (Failed, Stuck) as error:
            raise Refused("cannot tell whether %s is busy: %s" % (gpu.key, error)) from error
        if busy:
            pids = ", ".join(str(one.pid) for one in busy[:4])
            raise Refused("GPU %s is busy (pid %s); drain first or use force" % (gpu.key, pids))


def environment(args: "Args") -> "dict[str, str]":
    """What the order sets in the test's environment. Raises Refused for any other name."""
    asked = args.get("env") or {}
    if not isinstance(asked, dict) or len(asked) > ENVIRONMENT_MOST:
        raise Refused("env must be at most %d names with values" % ENVIRONMENT_MOST)
    for name, value in asked.items():
        if ENVIRONMENT.fullmatch(str(name)) is None:
            raise Refused("env may not set %.60r; NCCL_*, UCX_*, OMPI_*, GLOO_* and such" % name)
        if not isinstance(value, str) or len(value) > VALUE_CHARS or not value.isprintable():
            raise Refused("env: %s must be one line of text" % name)
    return dict(asked)


def quiet() -> "dict[str, str]":
    """The environment of every torch child: GPUs in NVML's order, and nothing goes to the disk."""
    env = {
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "LC_ALL": "C",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    if os.access("/dev/shm", os.W_OK):
        env["TMPDIR"] = "/dev/shm"
    return env


def words(args: "Args", name: "str") -> "list[str]":
    """An argument that is a list of words, [] when it is not given. Raises Refused."""
    value = args.get(name) or []
    if not isinstance(value, (list, tuple)) or not all(isinstance(one, str) for one in value):
        raise Refused("%s must be a list of words, not %.60r" % (name, value))
    return list(value)


def whole(args: "Args", name: "str", default: "int", most: "int") -> "int":
    """An argument as a whole number from 0 to `most`. Raises Refused."""
    value = args.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise Refused("%s must be a whole number up to %d, not %.60r" % (name, most, value))
    return value


def number(args: "Args", name: "str", default: "float", most: "float") -> "float":
    """An argument as a number above 0 and up to `most`. Raises Refused."""
    value = args.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= most:
        raise Refused("%s must be above 0 and at most %g, not %.60r" % (name, most, value))
    return float(value)


def program(*modules: "ModuleType") -> "str":
    """The last module as the source of a program in which the others can be imported.

    A child of another interpreter runs it with -c: nothing is written to the node's disk.
    """
    lines = ["import sys, types"]
    for module in modules[:-1]:
        name = module.__name__
        lines.append("sys.modules[%r] = types.ModuleType(%r)" % (name, name))
        compiled = "compile(%r, %r, 'exec')" % (_source(module), name)
        lines.append("exec(%s, sys.modules[%r].__dict__)" % (compiled, name))
    return "\n".join(lines + [_source(modules[-1])])


def _source(module: "ModuleType") -> "str":
    """From wherever this payload's modules come."""
    loader = module.__spec__.loader  # type: ignore[union-attr]
    text = loader.get_source(module.__name__)  # type: ignore[union-attr]
    assert isinstance(text, str)
    return text
