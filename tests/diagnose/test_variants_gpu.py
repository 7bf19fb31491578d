"""More of nvidia-smi, NVLink and NVML: lost cards by name, cut pastes, containers, the fabric."""

from __future__ import annotations

import json
from typing import Any

from tests.diagnose.gpu_text import BUSES, WIDE, links, log, row
from tests.diagnose.gpu_text import table as smi_table
from tests.diagnose.support import facts, findings
from tests.diagnose.variants import Variant, check, table

DMON = """\
# gpu   pwr  gtemp  mtemp     sm    mem    enc    dec    jpg    ofa   mclk   pclk
# Idx     W      C      C      %      %      %      %      %      %    MHz    MHz
    0   680     62     70    {u}     45      0      0      0      0   2619   1755
    1   679     61     71    {u}     45      0      0      0      0   2619   1755
    2   300     61     71    {u}     45      0      0      0      0   2619    765
    3   681     61     71    {u}     45      0      0      0      0   2619   1755
"""
LOST = smi_table(map(row, range(7))).replace(
    "|   3  NVIDIA H100 80GB HBM3", "|   3  GPU is lost" + 10 * " "
)
NVML = "Failed to initialize NVML: Unknown Error\n"
FABRIC = """\
$ nvidia-smi -q -i 3 | grep -A12 Fabric
    Fabric
        State                             : Completed
        Status                            : Success
        CliqueId                          : 0
        ClusterUUID                       : 00000000-0000-0000-0000-000000000000
        Health
            Bandwidth                     : {bandwidth}
            Route Recovery in progress    : False
            Route Unhealthy               : {unhealthy}
            Access Timeout Recovery       : False
            Incorrect Configuration       : None
"""
DCGM = """\
+---------------------------+----------------------------------------------------------+
| Health Monitor Report                                                                |
+===========================+==========================================================+
| Overall Health            | Failure                                                  |
| GPU                                                                                  |
| -> 3                      | Failure                                                  |
|    -> Errors                                                                         |
|       -> NVLink system    | Failure                                                  |
|                           | GPU 3's NvLink link 5 is currently down                  |
+---------------------------+----------------------------------------------------------+
"""
THREE = "".join(map(links, range(3)))
ZERO = "".join(
    f"GPU {gpu}: NVIDIA A100-SXM4-40GB (UUID: GPU-aaaaaaaa-0000-4000-8000-0000000001{gpu:02})\n"
    + "".join(f"\t Link {link}: Replay Errors: 0\n\t Link {link}: CRC Errors: 0\n"
              for link in range(12))
    for gpu in range(2)
)  # fmt: skip


@table(
    Variant("name-says-lost", LOST, "critical", "now", ("GPU 3 (61:00.0)", "lost"), ("product",)),
    Variant("slow-beside-busy", DMON.format(u=100), "warn", "no", ("GPU 2", "56 % below"),
            ("GPU 1 runs",)),
    Variant("slow-and-idle", DMON.format(u="  0"), "ok", "no", ("4 GPUs",)),
    Variant("container", f"$ docker exec -it train nvidia-smi\n{NVML}", "warn", "no",
            ("container lost its GPUs",)),
    Variant("pod", f"$ kubectl exec train-0 -- nvidia-smi\n{NVML}", "warn", "no", ("container",)),
    Variant("host", f"[root@g1 ~]# nvidia-smi\n{NVML}", "critical", "now", ("NVML",)),
    Variant("fabric-degraded", FABRIC.format(bandwidth="Degraded", unhealthy="False"), "warn",
            "after running jobs", ("bandwidth degraded",)),
    Variant("fabric-unhealthy", FABRIC.format(bandwidth="Full", unhealthy="True"), "critical",
            "now", ("route unhealthy",)),
    Variant("fabric-well", FABRIC.format(bandwidth="N/A", unhealthy="False"), "ok", "no"),
    Variant("fabric-waits", log({}, {"fabric": "In Progress"}, {}, {}), "critical", "now",
            (f"GPU {BUSES[1]}:00.0 waits for the NVLink fabric",)),
    Variant("dcgm-health", DCGM, "critical", "now", ("GPU 3", "NVLink system", "link 5"),
            ("DCGM's 3 ",)),
    Variant("only-n-a", "index, ecc.mode.current, ecc.errors.uncorrected.volatile.total\n"
            "0, [N/A], [N/A]\n1, [N/A], [N/A]\n", "unknown", "no", (), ("nothing wrong",)),
    Variant("two-well", log({}, {}), "ok", "no", ("2 GPUs",)),
    Variant("several-nodes", "### g1\nNo devices were found\n### g2\n" + smi_table(), "critical",
            "now", ("g1:", "1 node without trouble"), ("g2",)),
    Variant("table-without-heading", smi_table().removeprefix(WIDE), "ok", "no", ("8 GPUs",)),
)  # fmt: skip
def test_nvidia_smi(variant: Variant) -> None:
    check(variant)


@table(
    Variant("cut-in-the-last-gpu", THREE[: -len(links(2)) // 2], "ok", "no",
            ("2 GPUs with 18 of 18",), ("down",)),
    Variant("down-in-the-last-gpu", "".join(
        links(n, down=[17] if n == 2 else ()) for n in range(3)
    ), "critical", "now", ("GPU 2", "17 of 18")),
    Variant("no-errors", ZERO, "ok", "no", ("no error on 24 links of 2 GPUs",)),
    Variant("quoted", "".join(
        f"> {line}\n" for n in range(3)
        for line in links(n, down=[1, 2] if n == 1 else ()).splitlines()
    ), "critical", "now", ("GPU 1", "16 of 18")),
    Variant("half-the-links-by-design", "".join(links(n, "NVIDIA H800", 8) for n in range(8)), "ok",
            "no", ("8 of 8",)),
)  # fmt: skip
def test_nvlink(variant: Variant) -> None:
    check(variant)


def test_what_the_cut_took_away_is_unknown() -> None:
    told = check(Variant("", THREE[: -len(links(2)) // 2], "ok", "no"))
    assert any("GPU 2" in text and "cut" in text for part in told.inputs for text in part.unknown)


def card(index: int, at: int | None = None, **calls: Any) -> dict[str, Any]:
    """One device of a dump; `at` is the place it had before."""
    place = index if at is None else at
    return {
        "index": index, "nvmlDeviceGetHandleByIndex_v2": {"rc": 0},
        "nvmlDeviceGetUUID": {"rc": 0, "value": f"GPU-aaaaaaaa-0000-4000-8000-00000000000{place}"},
        "nvmlDeviceGetPciInfo_v3": {"rc": 0, "value": {"busId": f"00000000:{BUSES[place]}:00.0"}},
        "nvmlDeviceGetName": {"rc": 0, "value": "NVIDIA H100 80GB HBM3"}, **calls,
    }  # fmt: skip


def dump(*devices: dict[str, Any], **more: Any) -> str:
    """A dump in our own layout."""
    count = {"rc": 0, "value": len(devices)}
    return json.dumps({
        "layout": "nvml-dump/1", "nvmlDeviceGetCount_v2": count, "devices": devices, **more,
    })  # fmt: skip


def fabric(state: int, status: int = 0) -> dict[str, Any]:
    """What NVML says of the registration."""
    return {"nvmlDeviceGetGpuFabricInfoV": {"rc": 0, "value": {"state": state, "status": status}}}


BEFORE = [
    {"index": n, "uuid": f"GPU-aaaaaaaa-0000-4000-8000-00000000000{n}",
     "pci": f"00000000:{BUSES[n]}:00.0", "minor": n} for n in range(8)
]  # fmt: skip
SIX = dump(
    *(card(n, at) for n, at in enumerate((0, 1, 3, 4, 6, 7))), expected_gpus=8, previous=BEFORE
)


@table(
    Variant("one-waits", dump(*(card(n, **fabric(1 if n == 4 else 3)) for n in range(8))),
            "critical", "now", ("GPU 4 (9D:00.0) waits", "error 802")),
    Variant("one-failed", dump(*(card(n, **fabric(3, 999 if n == 4 else 0)) for n in range(8))),
            "critical", "now", ("GPU 4 (9D:00.0) failed", "999")),
    Variant("all-wait", dump(*(card(n, **fabric(2)) for n in range(8))), "critical", "now",
            ("8 GPUs wait",)),
    Variant("shared-mode", dump(*(card(n, **fabric(2)) for n in range(8)), fabric_mode="shared"),
            "info", "no"),
    Variant("no-driver", json.dumps({"layout": "nvml-dump/1", "nvmlInit_v2": {"rc": 9}}),
            "critical", "now", ("driver",)),
    Variant("mismatch", json.dumps({"nvmlInitWithFlags": {"rc": 18}}), "critical", "now",
            ("driver upgraded",)),
    Variant("two-gone", SIX, "critical", "after running jobs",
            ("6 of 8", "0000:52:00.0", "0000:c3:00.0", "3-4", "6-7")),
    Variant("not-supported", dump(*(card(n, nvmlDeviceGetFanSpeed={"rc": 3}) for n in range(8))),
            "ok", "no", ("8 GPUs",)),
)  # fmt: skip
def test_nvml(variant: Variant) -> None:
    check(variant)


def test_the_gpu_that_waits_is_the_finding_s_device() -> None:
    text = dump(*(card(n, **fabric(1 if n == 4 else 3)) for n in range(8)))
    (one,) = findings(check(Variant("", text, "critical", "now")))
    assert one.device == "0000:9d:00.0"
    assert facts(check(Variant("", text, "critical", "now")))["gpus_affected"] == 1
