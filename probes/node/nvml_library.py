"""NVML on the node: one library object for all probes, one failure per GPU, no CUDA context.

The real `pynvml` is loaded at the first use and initialised so that a node without (working) GPUs
is no error. Handles are keyed by PCI address, because indices slide down when a card vanishes. What
a GPU does not support is asked once per session. Return codes: nvml.h, API 13.
"""

from probes.node.context import Stuck
from probes.node.nvml_places import load
from probes.node.pci import nvidia_gpus, short_address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable, Dict, List, Optional, Set, Tuple, Union

    from probes.node.context import Context

    Number = Union[int, float]
    Field = Tuple[int, int]

NOT_SUPPORTED = 3
NO_PERMISSION = 4
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
ARGUMENT_VERSION_MISMATCH = 25
UNINITIALIZED = 1
TIMEOUT = 10

UNSUPPORTED = frozenset((NOT_SUPPORTED, FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH))
"""A feature this product or driver does not have: absent, not an error, not asked again."""

SOFT = UNSUPPORTED | frozenset((NO_PERMISSION, 6, 21))
"""No permission, not found, no data: an absent value, no fault of the GPU."""

FIELD_SOFT = SOFT | frozenset((2,))
"""An old driver calls a field it does not know an invalid argument."""

FINAL = frozenset((GPU_IS_LOST, TIMEOUT))
"""After these nothing more is asked of the GPU in this tick: each call may wait seconds for it."""

SEVERITY = {GPU_IS_LOST: 2, RESET_REQUIRED: 1}
"""Which return code names the trouble when several calls fail differently; else the first."""

RENEW_S = 30.0
"""How often handles are looked up again, and a failed initialisation is tried again."""

INITS_MOST = 32
"""More probes than an agent has cannot have initialised NVML at the same moment."""

C_NAMES = {
    "nvmlDeviceGetCount": "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex": "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetPciInfo": "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetComputeRunningProcesses": "nvmlDeviceGetComputeRunningProcesses_v3",
}
"""Binding's name -> the C symbol behind it, as reports name calls."""

IMPORT = "import pynvml"
"""The "call" that failed when the payload carries no binding although the node has the library."""

VALUE_TYPES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""nvmlValueType_t -> member of the value union."""


class Failed(Exception):
    """An NVML call returned something else than success."""

    def __init__(self, rc: "int", call: "str") -> "None":
        """`rc` is the nvmlReturn_t, `call` the C name."""
        Exception.__init__(self, "%s returned %d" % (call, rc))
        self.rc = rc
        self.call = call


class Gpu:
    """One index of NVML's list: its address, its handle, or why there is none."""

    __slots__ = ("failure", "handle", "index", "info", "pci")

    def __init__(self, index: "int") -> "None":
        """Nothing known yet but the index."""
        self.index = index
        self.pci = ""
        self.handle: "Any" = None
        self.info: "Any" = None
        self.failure: "Optional[Failed]" = None

    @property
    def key(self) -> "str":
        """The device name in samples: PCI address, or "index:3" when it cannot be known."""
        return self.pci or "index:%d" % self.index


class Library:
    """The shared NVML object. Safe from several threads: state is replaced, never changed."""

    def __init__(self, ctx: "Context") -> "None":
        """Cheap: nothing is loaded before the first call."""
        self.ctx = ctx
        self.found: "Optional[bool]" = None
        """Whether libnvidia-ml.so.1 could be loaded; None before the first try."""
        self.unsupported: "Dict[str, set[Any]]" = {}
        self.constants: "Dict[Tuple[Any, ...], Any]" = {}
        self._pynvml: "Any" = None
        self._ready = False
        self._init_failure: "Optional[Failed]" = None
        self._retry_at = 0.0
        self._gpus: "Optional[List[Gpu]]" = None
        self._renew_at = 0.0
        self._addresses: "Dict[int, str]" = {}
        self._booked: "Dict[int, str]" = {}
        """Under which device a look-up is booked: must not change while an earlier one hangs."""
        self.before_shut: "Dict[str, Callable[[], None]]" = {}
        """By probe, called before NVML ends: who holds memory of the library gives it back."""
        self._slowest: "Dict[str, Tuple[float, str]]" = {}

    # ------------------------------------------------------------------ calls

    @property
    def pynvml(self) -> "Any":
        """NVIDIA's binding; raises Failed(12) without library or binding, Stuck while it loads."""
        if self._pynvml is None:
            with self.ctx.busy(IMPORT):  # a second on a loaded node; once for all probes
                if self._pynvml is None:
                    self._pynvml = _binding(self.ctx)
        return self._pynvml

    def call(self, name: "str", *args: "Any", device: "str" = "") -> "Any":
        """Call a function of the binding on a device; raises Failed or Stuck, nothing else."""
        self.start()
        return self._call(name, args, device)

    def _call(self, name: "str", args: "Tuple[Any, ...]", device: "str") -> "Any":
        shown = C_NAMES.get(name, name)
        function = getattr(self.pynvml, name, None)
        if function is None:
            raise Failed(FUNCTION_NOT_FOUND, shown)
        with self.ctx.busy(shown, device):
            spent_s = self.ctx.timer()
            try:
                return _translated(self.pynvml, function, args, shown)
            finally:
                self._timed(device, spent_s(), shown)

    def _timed(self, device: "str", seconds: "float", shown: "str") -> "None":
        before = self._slowest.get(device)
        if before is None or seconds > before[0]:
            self._slowest[device] = (seconds, shown)

    def take_slowest(self, device: "str") -> "Optional[Tuple[float, str]]":
        """The longest call on a device since the last time this was asked: seconds and C name."""
        return self._slowest.pop(device, None)

    def unbooked(self, name: "str", *args: "Any") -> "Any":
        """A call while NVML is closed to all others (`before_shut`). Raises Failed."""
        return _translated(self.pynvml, getattr(self.pynvml, name), args, name)

    def start(self) -> "None":
        """Initialise NVML once; raises Failed. After a failure the next try is RENEW_S later."""
        if self._ready:
            return
        if self._init_failure is not None and self.ctx.mono() < self._retry_at:
            raise self._init_failure
        try:
            self._init()
            self.found = True
            self._ready = True
            self._init_failure = None
        except Failed as failure:
            self.found = failure.rc != LIBRARY_NOT_FOUND or failure.call == IMPORT
            self._retry_at = self.ctx.mono() + RENEW_S
            self._init_failure = failure
            raise

    def _init(self) -> "None":
        """Attach no GPU: initialisation then works with one dead card, or with none."""
        no_gpus = getattr(self.pynvml, "NVML_INIT_FLAG_NO_GPUS", 1)
        self._call("nvmlInitWithFlags", (no_gpus,), "")

    def shut(self) -> "None":
        """End NVML, however often it was initialised. Raises Failed.

        For Context.close_nvml only: no call may be in flight.
        """
        for release in self.before_shut.values() if self._ready else ():
            release()
        self._gpus, self._ready, self._init_failure = None, False, None
        self.unsupported, self.constants = {}, {}
        for _ in range(INITS_MOST if self._pynvml is not None else 0):
            try:
                _translated(self._pynvml, self._pynvml.nvmlShutdown, (), "nvmlShutdown")
            except Failed as failure:
                if failure.rc == UNINITIALIZED:
                    return
                raise

    # ------------------------------------------------------------------ devices

    def gpus(self, fresh: "bool" = False) -> "List[Gpu]":
        """All GPUs NVML counts, those without a handle included. Raises Failed or Stuck.

        The list is renewed every RENEW_S, or now when `fresh`.
        """
        if fresh or self._gpus is None or self.ctx.mono() >= self._renew_at:
            try:
                self._gpus = self._enumerate()
            except Failed as failure:
                self._ready = self._ready and failure.rc != UNINITIALIZED
                raise
            self._renew_at = self.ctx.mono() + RENEW_S
        return self._gpus

    def listed(self) -> "Set[str]":
        """The devices of the latest list, without asking for a new one."""
        return {gpu.key for gpu in self._gpus or ()}

    def _enumerate(self) -> "List[Gpu]":
        gpus = [self._look_up(index) for index in range(self.call("nvmlDeviceGetCount"))]
        taken = {gpu.pci for gpu in gpus if gpu.pci}
        for gpu in gpus:
            known = self._addresses.get(gpu.index, "")
            if not gpu.pci and known not in taken:
                gpu.pci = known
                taken.add(known)
        _eliminate(gpus, nvidia_gpus(self.ctx))
        self._addresses.update((gpu.index, gpu.pci) for gpu in gpus if gpu.pci)
        return gpus

    def _look_up(self, index: "int") -> "Gpu":
        gpu = Gpu(index)
        device = self._booked.setdefault(index, self._addresses.get(index, gpu.key))
        try:
            gpu.handle = self.call("nvmlDeviceGetHandleByIndex", index, device=device)
            gpu.info = self.call("nvmlDeviceGetPciInfo", gpu.handle, device=device)
            gpu.pci = self._booked[index] = pci_key(gpu.info)
        except Failed as failure:
            if gpu.handle is None or failure.rc not in SOFT:
                gpu.failure = failure
        except Stuck:
            return self._before(gpu)
        return gpu

    def _before(self, gpu: "Gpu") -> "Gpu":
        """What an earlier list said about a GPU that is stuck now: its handle may serve again."""
        earlier = [one for one in self._gpus or () if one.index == gpu.index and one.handle]
        gpu.handle = None
        return earlier[0] if earlier and earlier[0].pci == self._booked[gpu.index] else gpu


def pci_key(info: "Any") -> "str":
    """The device key of an nvmlPciInfo_t: "0000:1b:00.0", as sysfs names it."""
    text = info.busId
    text = text.decode("ascii", "replace") if isinstance(text, bytes) else str(text)
    return short_address(text)


def _eliminate(gpus: "List[Gpu]", on_bus: "List[str]") -> "None":
    """Give GPUs without an address those that sysfs lists and no readable GPU has.

    Only when it is certain: as many left over as lost, and the whole list in bus order, as the
    driver numbers. Otherwise they stay "index:N".
    """
    lost = [gpu for gpu in gpus if not gpu.pci]
    left = sorted(set(on_bus) - {gpu.pci for gpu in gpus})
    if not lost or len(lost) != len(left):
        return
    guess = dict(zip((gpu.index for gpu in lost), left))
    order = [guess.get(gpu.index, gpu.pci) for gpu in gpus]
    if len(lost) == 1 or order == sorted(order):
        for gpu in lost:
            gpu.pci = guess[gpu.index]


def _binding(ctx: "Context") -> "ModuleType":
    """Only where the library loads: compiling the binding's source costs 60 ms and 10 MB."""
    try:
        load(ctx)
    except OSError as error:
        raise Failed(LIBRARY_NOT_FOUND, "nvmlInitWithFlags") from error
    try:
        import pynvml
    except ImportError as error:
        ctx.missing["pynvml"] = "NVIDIA's binding did not load: %s" % error
        raise Failed(LIBRARY_NOT_FOUND, IMPORT) from error
    return pynvml  # type: ignore[no-any-return, unused-ignore]


def _translated(
    pynvml: "Any", function: "Callable[..., Any]", args: "Tuple[Any, ...]", shown: "str"
) -> "Any":
    """The call's result, or Failed. Binding and library that do not fit: "version mismatch"."""
    try:
        return function(*args)
    except pynvml.NVMLError as error:
        raise Failed(int(error.value), shown) from error
    except (UnicodeDecodeError, AttributeError, TypeError, ValueError) as error:
        raise Failed(ARGUMENT_VERSION_MISMATCH, shown) from error
    except Exception as error:  # the binding's own, which is no NVMLError: an old library
        if type(error).__name__ != "NVMLLibraryMismatchError":
            raise
        raise Failed(FUNCTION_NOT_FOUND, shown) from error
