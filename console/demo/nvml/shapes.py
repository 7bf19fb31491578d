"""Kinds of simulated NVML calls: how an answer gets into the caller's memory."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict

    from .state import Gpu

    Raw = Dict[str, Any]
    Call = Callable[..., int]

SUCCESS = 0
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
INSUFFICIENT_SIZE = 7
ARGUMENT_VERSION_MISMATCH = 25


def out(argument: "Any") -> "Any":
    """The object behind byref(), a pointer or an array."""
    if hasattr(argument, "_obj"):
        return argument._obj
    return argument.contents if hasattr(argument, "contents") else argument


def number(key: "str", scale: "int" = 1) -> "Call":
    """A call with one output: a key of the entry, times `scale`."""

    def call(gpu: "Gpu", *args: "Any") -> "int":
        value = gpu.get(key)
        if value is None:
            return NOT_SUPPORTED
        out(args[-1]).value = int(value * scale)
        return SUCCESS

    return call


def item(key: "str", position: "int") -> "Call":
    """A call with one output: an item of a list."""

    def call(gpu: "Gpu", *args: "Any") -> "int":
        value = gpu.get(key)
        if value is None:
            return NOT_SUPPORTED
        out(args[-1]).value = int(value[position])
        return SUCCESS

    return call


def text(read: "Callable[[Any], Any]") -> "Call":
    """A string into (buffer, length)."""

    def call(source: "Any", buffer: "Any", length: "Any") -> "int":
        value = read(source)
        if value is None:
            return NOT_SUPPORTED
        raw = str(value).encode()
        if len(raw) >= int(getattr(length, "value", length)):
            return INSUFFICIENT_SIZE
        out(buffer).value = raw
        return SUCCESS

    return call


def whole_gpu_only(call: "Call") -> "Call":
    """Not supported on the parent device in MIG mode."""

    def guarded(gpu: "Gpu", *args: "Any") -> "int":
        return NOT_SUPPORTED if gpu.get("mig") else call(gpu, *args)

    return guarded
