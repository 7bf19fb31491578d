"""More kernel logs: messages of several lines, hung tools, daemons' own logs, single errors."""

from __future__ import annotations

from tests.diagnose.support import facts
from tests.diagnose.variants import Variant, check, table

HUNG = """\
[ 9000.1] INFO: task {comm}:4411 blocked for more than 120 seconds.
[ 9000.1]       Tainted: P           OE      6.8.0-45-generic #45
[ 9000.1] task:{comm}      state:D stack:0     pid:4411  tgid:4411  ppid:4400   flags:0x00004006
"""
MISMATCH = """\
Mar  4 06:25:03 g12 kernel: NVRM: API mismatch: the client has the version 535.183.01, but
                            NVRM: this kernel module has the version 535.161.08.  Please
                            NVRM: make sure that this kernel module and all NVIDIA driver
                            NVRM: components have the same version.
"""
DEAD_AT_LOAD = """\
[   12.0] NVRM: The NVIDIA GPU 0000:c3:00.0
               NVRM: (PCI ID: 10de:2330) installed in this system has
               NVRM: fallen off the bus and is not responding to commands.
[   12.1] nvidia: probe of 0000:c3:00.0 failed with error -1
"""
MANAGER = """\
[Mar 03 2026 04:05:06] [ERROR] [tid 2210] detected NVSwitch fatal error 20034 on fid 0 on NVSwitch \
pci bus id 00000000:05:00.0 physical id 8 port 36
"""
CARRIER = """\
[ 9000.0] mlx5_core 0000:ab:00.0 ib5: lost carrier
[ 9490.0] mlx5_core 0000:ab:00.0 ib5: gained carrier
"""
ONE_AER = """\
[ 88.1] nvme 0000:05:00.0: PCIe Bus Error: severity=Correctable, type=Physical Layer, (Receiver ID)
[ 88.1] nvme 0000:05:00.0:   device [144d:a80a] error status/mask=00000001/0000e000
[ 88.1] nvme 0000:05:00.0:    [ 0] RxErr                  (First)
"""
OTHERS = """\
[711.0] mlx5_core 0000:ab:00.0: Port module event[error]: module 0, Cable error, High Temperature
[725.0] mlx5_core 0000:9a:00.0: Port module event: module 0, Cable unplugged
"""
LUSTRE = """\
Mar  4 06:25:03 g12 kernel: Lustre: scratch-OST0003-osc-ff: Connection to scratch-OST0003 (at \
192.0.2.51@tcp) was lost; in progress operations using this service will wait for recovery
Mar  4 06:25:03 g12 kernel: nfs: server 192.0.2.40 not responding, still trying
Mar  4 06:26:03 g12 kernel: nfs: server 192.0.2.40 OK
Mar  4 06:27:03 g12 kernel: INFO: task python3:3301 blocked for more than 120 seconds.
"""


@table(
    Variant("dead-at-load", DEAD_AT_LOAD, "critical", "now", ("0000:c3:00", "fallen off the bus")),
    Variant("mismatch-several-lines", MISMATCH, "critical", "now", ("535.183.01", "535.161.08")),
    Variant("fabric-manager-log", MANAGER, "critical", "now", ("20034", "link 36")),
    Variant("hung-nvidia-smi", HUNG.format(comm="nvidia-smi"), "critical", "now",
            ("nvidia-smi (pid 4411)", "driver"), ("NFS",)),
    Variant("hung-program", HUNG.format(comm="python3"), "warn", "no", ("python3",), ("driver",)),
    Variant("ipoib-carrier", CARRIER, "warn", "after running jobs", ("ib5", "490 s")),
    Variant("one-corrected-error", ONE_AER, "info", "no", ("0000:05:00.0",)),
    Variant("beside-the-fault", OTHERS, "warn", "after running jobs",
            ("0000:ab:00.0", "0000:9a:00.0: cable unplugged (info)")),
    Variant("lustre-lost-nfs-back", LUSTRE, "critical", "no",
            ("scratch-OST0003", "192.0.2.40", "is back"), ("GPU",)),
)  # fmt: skip
def test_the_verdict(variant: Variant) -> None:
    check(variant)


def test_a_file_server_is_the_nodes_trouble_only_when_it_is_alone() -> None:
    told = check(Variant("", LUSTRE, "critical", "no, if other nodes show it too"))
    assert facts(told)["lustre"] == {"scratch-OST0003": "lost"}
    assert facts(told)["nfs"] == {"192.0.2.40": "recovered"}
    assert facts(told)["hung_tasks"] == [{"comm": "python3", "seconds": 120, "pid": 3301}]


def test_what_grep_puts_in_front_hides_neither_host_nor_time() -> None:
    line = "Mar  3 04:05:06 gpu-a01 kernel: NVRM: Xid (PCI:0000:61:00): 79, GPU has fallen off"
    for front in ("/var/log/kern.log:", "/var/log/kern.log.1:1234:"):
        told = check(Variant("", f"{front}{line}\n", "critical", "now", ("-03-03T04:05:06Z",)))
        assert facts(told)["hosts"] == ["gpu-a01"]


def test_a_message_of_several_lines_does_not_take_in_what_follows() -> None:
    text = MISMATCH + "Mar  4 06:25:09 g12 kernel: nfs: server nfs01 not responding, still trying\n"
    told = check(Variant("", text, "critical", "now", ("535.161.08", "nfs01")))
    assert facts(told)["events"] == 2
