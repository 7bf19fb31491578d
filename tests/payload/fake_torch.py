# mypy: ignore-errors
"""As much of torch as the GPU test uses, with FAKE_GPUS GPUs and without any arithmetic.

A test copies it to a folder of its own as torch.py.

FAKE_TROUBLE: "1:die 2:oom 3:hang" - what happens in the process of a GPU that makes its first
tensor. Time passes in events only as much as is claimed.
"""

import os
import time

__version__ = "2.9.9+fake"
uint8 = bfloat16 = float32 = float8_e4m3fn = object()
COUNT = int(os.environ.get("FAKE_GPUS", "0"))
TROUBLE = dict(word.split(":") for word in os.environ.get("FAKE_TROUBLE", "").split())


class version:  # noqa: N801 - torch's own names
    cuda = None


class Device:
    def __init__(self, kind, index=0):
        self.type, self.index = kind, index


def device(kind, index=0):
    return Device(kind, index)


class Tensor:
    def to(self, dtype):
        return self

    def t(self):
        return self

    def copy_(self, other, non_blocking=False):
        time.sleep(1e-4)
        return self


def made(*shape, device=None, **how):
    index = getattr(device, "index", None)
    trouble = TROUBLE.get(str(index))
    if trouble == "die":
        os._exit(7)
    if trouble == "hang":
        time.sleep(3600)
    if trouble == "oom" and shape != (1,):
        raise RuntimeError("CUDA out of memory. Tried to allocate 128.00 MiB")
    return Tensor()


randn = zeros = ones = made


def empty_like(other):
    return Tensor()


def mm(a, b, out=None):
    time.sleep(1e-4)
    return out


def _scaled_mm(a, b, **how):
    raise RuntimeError("torch._scaled_mm is only supported on newer devices")


class cuda:  # noqa: N801
    class Event:
        def __init__(self, enable_timing=False):
            self.at = 0.0

        def record(self):
            self.at = time.perf_counter()

        def synchronize(self):
            pass

        def elapsed_time(self, other):
            return (other.at - self.at) * 1e3

    is_available = staticmethod(lambda: COUNT > 0)
    device_count = staticmethod(lambda: COUNT)
    set_device = synchronize = staticmethod(lambda which=None: None)
    empty_cache = staticmethod(lambda: None)
    mem_get_info = staticmethod(lambda which: (80 << 30, 80 << 30))
    get_device_name = staticmethod(lambda which: "NVIDIA Fake")
    get_device_capability = staticmethod(lambda which: (9, 0))
    can_device_access_peer = staticmethod(lambda a, b: b != 4)
