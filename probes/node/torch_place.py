"""Where a CUDA device is: streamed with the workers that run under the site's torch."""

import os


def pci_address(index: "int") -> "str":
    """The address of a CUDA device as sysfs writes it; the driver's own word, whatever torch is."""
    import ctypes

    try:
        cuda = ctypes.CDLL("libcuda.so.1")
        text, device = ctypes.create_string_buffer(32), ctypes.c_int()
        if cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), index):
            return ""
        if cuda.cuDeviceGetPCIBusId(text, len(text), device):
            return ""
    except (OSError, AttributeError):
        return ""
    return text.value.decode("ascii", "replace").lower()


def near(address: "str") -> "None":
    """Run on the CPUs next to the GPU, so that pinned memory lies there, too."""
    try:
        with open("/sys/bus/pci/devices/%s/local_cpulist" % address) as file:
            ranges = [part.split("-") for part in file.read().strip().split(",") if part]
        cpus = {cpu for part in ranges for cpu in range(int(part[0]), int(part[-1]) + 1)}
        os.sched_setaffinity(0, cpus & os.sched_getaffinity(0) or os.sched_getaffinity(0))
    except (OSError, ValueError):
        pass
