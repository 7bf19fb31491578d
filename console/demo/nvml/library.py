"""libnvidia-ml.so.1 as a Python object: what ctypes.CDLL would give, to NVIDIA's own binding.

Functions are fetched by C name (attribute or item) and called with the arguments the binding
passes: handles, ctypes scalars, buffers, and byref() of the real structures, which they fill. A
symbol that is not here, or listed in "missing", is an AttributeError, as for an old driver.
"""

import ctypes
import time

from .calls import DEVICE, IDENTITY, SYSTEM
from .gpm import Samples
from .state import HANG_STEP_S, State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional

    from .state import Gpu

    Raw = Dict[str, Any]
    Call = Callable[..., Any]

NVML_SUCCESS = 0
NVML_ERROR_UNINITIALIZED = 1
NVML_ERROR_INVALID_ARGUMENT = 2
NVML_ERROR_NOT_FOUND = 6
NVML_ERROR_GPU_IS_LOST = 15

SONAME = "libnvidia-ml.so.1"

INIT = ("nvmlInitWithFlags", "nvmlInit_v2", "nvmlInit")
SAMPLES = ("nvmlGpmSampleAlloc", "nvmlGpmSampleFree", "nvmlGpmMetricsGet")
SAMPLE = "nvmlGpmSampleGet"
"""Calls about the library's own samples, and the one that fills a sample from a GPU."""
LOOK_UPS: "Dict[str, Callable[[Gpu], Any]]" = {
    "nvmlDeviceGetHandleByIndex_v2": lambda gpu: gpu.index,
    "nvmlDeviceGetHandleByPciBusId_v2": lambda gpu: gpu.pci.lower(),
    "nvmlDeviceGetHandleByUUID": lambda gpu: gpu.uuid(),
    "nvmlDeviceGetHandleBySerial": lambda gpu: str(gpu.serial()),
}
"""Calls that find a handle -> what they look for."""

ERRORS = {
    0: "Success",
    1: "Uninitialized",
    2: "Invalid Argument",
    3: "Not Supported",
    4: "Insufficient Permissions",
    6: "Not Found",
    7: "Insufficient Size",
    9: "Driver Not Loaded",
    10: "Timeout",
    12: "NVML Shared Library Not Found",
    13: "Function Not Found",
    15: "GPU is lost",
    16: "GPU requires reset",
    18: "Driver/library version mismatch",
    25: "Argument version mismatch",
    999: "Unknown Error",
}


class Function:
    """One exported symbol. Like a ctypes function it lets restype and argtypes be set."""

    restype = ctypes.c_int
    argtypes = None
    errcheck = None

    def __init__(self, name: "str", call: "Call") -> "None":
        """`call` takes the arguments and returns an nvmlReturn_t (or bytes, for a string)."""
        self.__name__ = name
        self._call = call

    def __call__(self, *args: "Any") -> "Any":
        """Call it."""
        return self._call(*args)

    def __repr__(self) -> "str":
        """As ctypes shows its functions."""
        return "<simulated %s>" % self.__name__


class Library:
    """The library object over DIR/nvml.json."""

    def __init__(self, directory: "str") -> "None":
        """Raises OSError, as dlopen would, when the state says that there is no library."""
        self._state = State(directory)
        self._functions: "Dict[str, Function]" = {}
        self._samples = Samples()
        self._initialised = 0
        self._name = SONAME
        if self._state.raw().get("library", True) is False:
            raise OSError("%s: cannot open shared object file: No such file or directory" % SONAME)

    def __getattr__(self, name: "str") -> "Function":
        """A symbol; AttributeError when this driver does not export it."""
        if name.startswith("__"):
            raise AttributeError(name)
        if name in self._state.raw().get("missing", []):
            raise AttributeError("%s: undefined symbol: %s" % (SONAME, name))
        if name not in self._functions:
            call = self._find(name)
            if call is None:
                raise AttributeError("%s: undefined symbol: %s" % (SONAME, name))
            self._functions[name] = Function(name, call)
        return self._functions[name]

    __getitem__ = __getattr__

    def _find(self, name: "str") -> "Optional[Call]":
        if name in INIT:
            return lambda *args: self._init(name)
        if name == "nvmlShutdown":
            return self._shutdown
        if name == "nvmlErrorString":
            return _error_string
        if name in LOOK_UPS:
            return lambda *args: self._look_up(name, *args)
        if name in SYSTEM or name in SAMPLES:
            return lambda *args: self._system(name, *args)
        if name in DEVICE or name == SAMPLE:
            return lambda *args: self._device(name, *args)
        return None

    # ------------------------------------------------------------------ calls without a GPU

    def _init(self, name: "str") -> "int":
        raw = self._state.raw()
        self._wait(lambda: self._state.raw().get("hang", {}).get(name, 0))
        rc = int(raw.get("rc", {}).get(name, raw.get("init_rc", NVML_SUCCESS)))
        if rc == NVML_SUCCESS:
            self._initialised += 1
        return rc

    def _shutdown(self) -> "int":
        if not self._initialised:
            return NVML_ERROR_UNINITIALIZED
        self._initialised -= 1
        return NVML_SUCCESS

    def _system(self, name: "str", *args: "Any") -> "int":
        if not self._initialised:
            return NVML_ERROR_UNINITIALIZED
        self._wait(lambda: self._state.raw().get("hang", {}).get(name, 0))
        raw = self._state.raw()
        rc = int(raw.get("rc", {}).get(name, NVML_SUCCESS))
        if rc or name in SYSTEM:
            return rc if rc else SYSTEM[name](raw, *args)
        if name == "nvmlGpmMetricsGet":
            return self._samples.metrics(self._state, *args)
        return (self._samples.alloc if name == SAMPLES[0] else self._samples.free)(*args)

    # ------------------------------------------------------------------ calls about a GPU

    def _look_up(self, name: "str", wanted: "Any", handle: "Any") -> "int":
        if not self._initialised:
            return NVML_ERROR_UNINITIALIZED
        wanted = _plain(wanted)
        for gpu in self._state.gpus():
            if LOOK_UPS[name](gpu) == wanted or _same_address(gpu, wanted):
                number = self._state.number(gpu.pci)
                rc = _rc(self._ready(name, number), name)
                if rc == NVML_SUCCESS:
                    ctypes.c_void_p.from_buffer(handle._obj).value = number
                return rc
        by_index = name == "nvmlDeviceGetHandleByIndex_v2"
        return NVML_ERROR_INVALID_ARGUMENT if by_index else NVML_ERROR_NOT_FOUND

    def _device(self, name: "str", handle: "Any", *args: "Any") -> "int":
        if not self._initialised:
            return NVML_ERROR_UNINITIALIZED
        number = ctypes.cast(handle, ctypes.c_void_p).value if handle else None
        if number is None:
            return NVML_ERROR_INVALID_ARGUMENT
        gpu = self._ready(name, number)
        if gpu is None:
            return NVML_ERROR_GPU_IS_LOST
        rc = _rc(gpu, name)
        call = self._samples.get if name == SAMPLE else DEVICE[name]
        return rc if rc else call(gpu, *args)

    def _ready(self, name: "str", number: "int") -> "Optional[Gpu]":
        """The GPU behind a handle, after hanging as long as the state says so."""
        gpu = self._state.by_number(number)
        if gpu is not None and _hang_s(gpu, name):
            self._wait(lambda: _hang_s(self._state.by_number(number), name))
            gpu = self._state.by_number(number)
        return gpu

    def _wait(self, seconds: "Callable[[], float]") -> "None":
        """Sleep while `seconds()` asks for more than has passed; it may change its mind."""
        began = time.monotonic()
        while time.monotonic() - began < (seconds() or 0):
            time.sleep(HANG_STEP_S)


def _hang_s(gpu: "Optional[Gpu]", name: "str") -> "float":
    """Seconds a call hangs. "*" spares what the library answers from its own memory."""
    if gpu is None:
        return 0.0
    table = gpu.get("hang")
    if name in table:
        return float(table[name])
    return 0.0 if name in IDENTITY or name in LOOK_UPS else float(table.get("*", 0))


def _rc(gpu: "Optional[Gpu]", name: "str") -> "int":
    """What the state says that a call returns; "*" is for all of a GPU's calls."""
    if gpu is None:
        return NVML_ERROR_GPU_IS_LOST
    table = gpu.get("rc")
    return int(table.get(name, table.get("*", NVML_SUCCESS)))


def _plain(wanted: "Any") -> "Any":
    """An argument as a Python number or text."""
    value = getattr(wanted, "value", wanted)
    return value.decode("ascii", "replace") if isinstance(value, bytes) else value


def _same_address(gpu: "Gpu", wanted: "Any") -> "bool":
    """Both spellings of an address: 0000:1b:00.0 and 00000000:1B:00.0."""
    return isinstance(wanted, str) and ":" in wanted and gpu.pci == _short(wanted)


def _short(text: "str") -> "str":
    domain, _, rest = text.lower().partition(":")
    return "%s:%s" % (domain[-4:], rest)


def _error_string(rc: "Any") -> "bytes":
    return ERRORS.get(int(getattr(rc, "value", rc)), "Unknown Error").encode()
