"""A node's interpreter with the simulated NVML library, real pynvml and our probes."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path
from typing import Any, Self

from console.demo.nvml import state

REPOSITORY = Path(__file__).parents[2]
SHIM = REPOSITORY / "console" / "demo" / "nvml" / "shim.py"
DATA = Path(__file__).parents[1] / "data" / "cases"

DRIVER = r"""
import ctypes, importlib, importlib.util, json, sys, threading, time
repository, binding, root, deadline_s = sys.argv[1:5]
sys.path.insert(0, repository)
spec = importlib.util.spec_from_file_location("pynvml", binding)
pynvml = importlib.util.module_from_spec(spec)
sys.modules["pynvml"] = pynvml
spec.loader.exec_module(pynvml)
from probes.node.context import Context, Stuck
ctx = Context(root, float(deadline_s))
moving = threading.Lock()
ras = {"ras": {"LOOK_S": 60.0}, "ras_talk": {"CONNECT_S": 60.0, "QUIET_S": 60.0}}

def collect(name):
    module = importlib.import_module("probes.node." + name)
    for other, values in ras.items() if name == "ras" else ():
        vars(importlib.import_module("probes.node." + other)).update(values)
    try:
        devices, rows = module.collect(ctx)
    except Stuck as error:
        return {"stuck": str(error)}
    return {"devices": devices, "rows": rows}

def advance(seconds):
    with moving:
        ahead_s = ctx.clock() - time.monotonic() + seconds
        stalled_s, due = ctx._pulse
        ctx._pulse = stalled_s, due + seconds  # no stall of ours
        ctx.clock = lambda: time.monotonic() + ahead_s

def watch():
    # As the agent's: seconds in which this process cannot run are blamed on no call.
    while True:
        with moving:
            ctx.beat(0.25)
        time.sleep(0.25)

def plain(value):
    if isinstance(value, (ctypes.Structure, ctypes.Union)):
        return {name: plain(getattr(value, name)) for name, _ in value._fields_}
    if isinstance(value, ctypes.Array):
        return [plain(one) for one in value]
    if hasattr(value, "__dict__"):
        return {name: plain(one) for name, one in vars(value).items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return value.decode() if isinstance(value, bytes) else value

def call(name, gpu, args):
    made = []
    for arg in args:
        wanted = isinstance(arg, str) and arg.startswith("new ")
        made.append(getattr(pynvml, arg[4:])() if wanted else arg)
    by_reference = [ctypes.byref(a) if isinstance(a, ctypes.Structure) else a for a in made]
    try:
        handle = [] if gpu is None else [pynvml.nvmlDeviceGetHandleByIndex(gpu)]
        result = getattr(pynvml, name)(*(handle + by_reference))
    except pynvml.NVMLError as error:
        return {"rc": error.value}
    filled = [a for a in made if isinstance(a, ctypes.Structure)]
    return plain(filled[0] if filled else result)

ctx.beat(0.25)
threading.Thread(target=watch, daemon=True).start()
for line in sys.stdin:
    order = json.loads(line)
    if order["op"] == "collect":
        answer = collect(order["probe"])
    elif order["op"] == "background":
        thread = threading.Thread(target=collect, args=(order["probe"],))
        thread.daemon = True
        thread.start()
        answer = {}
    elif order["op"] == "stuck":
        pause, wanted, held = threading.Event(), order["calls"], None
        while held != wanted:
            pause.wait(0.01)
            held = {call.device: call.call for call in list(ctx._held.values())}
        advance(ctx.deadline_s)
        answer = sorted(ctx.stuck())
    elif order["op"] == "free":
        pause = threading.Event()
        while ctx.stuck():
            pause.wait(0.01)
        answer = {}
    elif order["op"] == "advance":
        advance(order["seconds"])
        answer = {}
    elif order["op"] == "deadline":
        ctx.deadline_s = order["seconds"]
        answer = {}
    elif order["op"] == "ras":
        ras["ras"]["LOOK_S"] = order["seconds"]
        answer = {}
    elif order["op"] == "nvml":
        (ctx.open_nvml if order["open"] else ctx.close_nvml)()
        answer = {}
    elif order["op"] == "samples":
        answer = len(pynvml.nvmlLib._samples.taken)
    elif order["op"] == "python":
        answer = {"version": list(sys.version_info[:2]), "isolated": sys.flags.isolated,
                  "no_site": sys.flags.no_site, "argv": sys.argv, "name": __name__,
                  "path": sys.path}
    else:
        answer = call(order["name"], order.get("gpu"), order.get("args", []))
    print(json.dumps(answer))
    sys.stdout.flush()
"""


def binding() -> str:
    """Where NVIDIA's binding is installed."""
    spec = importlib.util.find_spec("pynvml")
    assert spec is not None
    assert spec.origin is not None
    return spec.origin


class Machine:
    """A simulated node: its directory, its nvml.json and interpreters that run on it."""

    def __init__(self, directory: Path, python: str) -> None:
        self.directory = directory
        self.root = directory / "root"
        self.root.mkdir(parents=True, exist_ok=True)
        self.python = python
        self.state: dict[str, Any] = state.healthy()
        self.write()

    def write(self) -> None:
        """Bring nvml.json in line with `state`."""
        state.write(self.directory, self.state)

    def gpu(self, index: int, **changes: Any) -> None:
        """Change one GPU."""
        self.state["gpus"][index].update(changes)
        self.write()

    def session(self, deadline_s: float = 30.0) -> Session:
        """A new agent-like process."""
        return Session(self, deadline_s)


class Session:
    """One process on the machine that collects when told to."""

    def __init__(self, machine: Machine, deadline_s: float) -> None:
        words = [machine.python, str(SHIM), str(machine.directory), "-I", "-S", "-c", DRIVER]
        words += [str(REPOSITORY), binding(), str(machine.root), str(deadline_s)]
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.communicate()

    def ask(self, **order: Any) -> Any:
        """One order, one answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        answer = self.process.stdout.readline()
        assert answer, f"the process ended: {self.process.wait(10)}"
        return json.loads(answer)

    def collect(self, probe: str) -> dict[str, dict[str, Any]]:
        """Devices of one probe's answer."""
        found: dict[str, dict[str, Any]] = self.ask(op="collect", probe=probe)["devices"]
        return found

    def rows(self, probe: str) -> list[dict[str, Any]]:
        """Rows of one probe's answer."""
        found: list[dict[str, Any]] = self.ask(op="collect", probe=probe)["rows"]
        return found

    def advance(self, seconds: float) -> None:
        """The node's clock jumps ahead."""
        self.ask(op="advance", seconds=seconds)

    def stick(self, device: str, call: str) -> None:
        """Wait until this call alone is in flight, then let it be past its deadline."""
        assert self.ask(op="stuck", calls={device: call}) == [device]

    def call(self, name: str, gpu: int | None = None, *args: Any) -> Any:
        """What the binding's function gives: a plain value, or {"rc": n}."""
        return self.ask(op="call", name=name, gpu=gpu, args=list(args))


def facts(case: str) -> Any:
    """The facts a probe must extract from a case."""
    return json.loads((DATA / "node_facts.json").read_text())[case]


def case(name: str) -> Any:
    """The input of a case."""
    return json.loads((DATA / f"{name}.json").read_text())
