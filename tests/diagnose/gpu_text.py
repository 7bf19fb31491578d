"""Texts of nvidia-smi in the layouts of several drivers, with made-up cards."""

from __future__ import annotations

from collections.abc import Iterable

BUSES = ("1B", "43", "52", "61", "9D", "C3", "D1", "DF")
WIDE = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 570.124.06              Driver Version: 570.124.06      CUDA Version: 12.8     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
"""
MIDDLE = """\
+---------------------------------------------------------------------------------------+
| NVIDIA-SMI 535.161.08             Driver Version: 535.161.08   CUDA Version: 12.2     |
|-----------------------------------------+----------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |         Memory-Usage | GPU-Util  Compute M. |
|                                         |                      |               MIG M. |
|=========================================+======================+======================|
"""
OLD = """\
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 440.33.01    Driver Version: 440.33.01    CUDA Version: 10.2     |
|-------------------------------+----------------------+----------------------+
| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |
|===============================+======================+======================|
|   0  Tesla V100-SXM2...  On   | 00000000:1A:00.0 Off |                    0 |
| N/A   40C    P0    58W / 300W |      0MiB / 32510MiB |      0%      Default |
+-------------------------------+----------------------+----------------------+
|   1  Tesla V100-SXM2...  On   | 00000000:1B:00.0 Off |                    {errors} |
| N/A   41C    P0   250W / 300W |  30100MiB / 32510MiB |    100%      Default |
+-------------------------------+----------------------+----------------------+
"""
NO_PROCESS = """\
+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|  No running processes found                                                             |
+-----------------------------------------------------------------------------------------+
"""


def row(
    index: int, bus: str = "", name: str = "NVIDIA H100 80GB HBM3", *, ecc: str = "0",
    state: str = " N/A   33C    P0             71W /  700W ", memory: str = "1MiB /  81559MiB",
    util: str = "0%", mig: str = "Disabled",
) -> str:  # fmt: skip
    """Three lines of one GPU between bars."""
    bus = bus or BUSES[index]
    return (
        f"| {index:3}  {name:<30}     On  |   00000000:{bus}:00.0 Off | {ecc:>20} |\n"
        f"|{state:<41}| {memory:>22} | {util:>7}      Default |\n"
        f"|                                         |                        | {mig:>20} |\n"
        "+-----------------------------------------+------------------------+--------------+\n"
    )


def table(rows: Iterable[str] = (), head: str = WIDE) -> str:
    """A table; 8 healthy GPUs where no rows are given."""
    return head + "".join(rows or map(row, range(8)))


Q_HEAD = """
==============NVSMI LOG==============

Timestamp                                 : Tue Mar  3 04:05:06 2026
Driver Version                            : 570.124.06
CUDA Version                              : 12.8

Attached GPUs                             : {attached}
"""
Q_GPU = """\
GPU 00000000:{bus}:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Persistence Mode                      : Enabled
    MIG Mode
        Current                           : Disabled
        Pending                           : Disabled
    GPU UUID                              : GPU-aaaaaaaa-0000-4000-8000-0000000000{bus}
    GPU Reset Status
        Reset Required                    : {reset}
        Drain and Reset Recommended       : No
    GPU Recovery Action                   : {recovery}
    PCI
        Bus                               : 0x{bus}
        Device Id                         : 0x233010DE
        GPU Link Info
            PCIe Generation
                Max                       : 5
                Current                   : 5
            Link Width
                Max                       : 16x
                Current                   : {width}
        Replays Since Reset               : 0
    Fan Speed                             : N/A
    Performance State                     : P0
    Clocks Event Reasons
        Idle                              : {idle}
        SW Power Cap                      : Not Active
        HW Slowdown                       : {slow}
            HW Thermal Slowdown           : {slow}
            HW Power Brake Slowdown       : Not Active
        SW Thermal Slowdown               : Not Active
    FB Memory Usage
        Total                             : 81559 MiB
        Used                              : 70000 MiB
    Utilization
        GPU                               : {util} %
        Memory                            : 40 %
    ECC Mode
        Current                           : Enabled
        Pending                           : Enabled
    ECC Errors
        Volatile
            SRAM Correctable              : 0
            SRAM Uncorrectable Parity     : 0
            SRAM Uncorrectable SEC-DED    : 0
            DRAM Correctable              : 0
            DRAM Uncorrectable            : {dram}
        Aggregate
            SRAM Correctable              : 0
            SRAM Uncorrectable Parity     : 0
            SRAM Uncorrectable SEC-DED    : 0
            DRAM Correctable              : 0
            DRAM Uncorrectable            : {dram}
            SRAM Threshold Exceeded       : {threshold}
    Remapped Rows
        Correctable Error                 : 0
        Uncorrectable Error               : 0
        Pending                           : {pending}
        Remapping Failure Occurred        : No
        Bank Remap Availability Histogram
            Max                           : 2560 bank(s)
            High                          : 0 bank(s)
            Partial                       : 0 bank(s)
            Low                           : 0 bank(s)
            None                          : 0 bank(s)
    Temperature
        GPU Current Temp                  : {temp} C
        GPU T.Limit Temp                  : {margin} C
        Memory Current Temp               : 60 C
    GPU Power Readings
        Average Power Draw                : 650.00 W
        Instantaneous Power Draw          : 640.00 W
        Current Power Limit               : 700.00 W
        Default Power Limit               : 700.00 W
    Clocks
        SM                                : {clock} MHz
        Memory                            : 2619 MHz
    Max Clocks
        SM                                : 1980 MHz
        Memory                            : 2619 MHz
    Fabric
        State                             : {fabric}
        Status                            : Success
    Processes
        Process ID                        : 4711
            Type                          : C
            Name                          : python
            Used GPU Memory               : 69990 MiB
"""
_HEALTHY = {
    "reset": "No", "recovery": "None", "width": "16x", "idle": "Not Active", "slow": "Not Active",
    "util": "98", "dram": "0", "threshold": "No", "pending": "No", "temp": "60", "margin": "27",
    "clock": "1755", "fabric": "Completed",
}  # fmt: skip


def log(*changes: dict[str, str], attached: int = 0) -> str:
    """`nvidia-smi -q` of as many GPUs as there are changes."""
    gpus = (
        Q_GPU.format(bus=BUSES[number], **{**_HEALTHY, **change})
        for number, change in enumerate(changes)
    )
    return Q_HEAD.format(attached=attached or len(changes)) + "".join(gpus)


def links(
    index: int, name: str = "NVIDIA H100 80GB HBM3", number: int = 18, down: Iterable[int] = ()
) -> str:
    """One GPU of `nvidia-smi nvlink -s`."""
    dark = set(down)
    rates = (
        f"\t Link {link}: {'<inactive>' if link in dark else '26.562 GB/s'}\n"
        for link in range(number)
    )
    uuid = f"GPU-aaaaaaaa-0000-4000-8000-0000000001{index:02}"
    return f"GPU {index}: {name} (UUID: {uuid})\n" + "".join(rates)
