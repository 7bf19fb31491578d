"""More Xids: which text decides, which GPU waits, which lines are consequences."""

from __future__ import annotations

from tests.diagnose.support import findings
from tests.diagnose.variants import Variant, check, table


def xid(code: int, text: str, pci: str = "0000:1b:00", at: float = 5.0, who: str = "") -> str:
    """One line of dmesg."""
    who = who or "pid='<unknown>', name=<unknown>"
    return f"[{at:.1f}] NVRM: Xid (PCI:{pci}): {code}, {who}, {text}\n"


JOB = "pid=100, name=train"
DBE = "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer"
FULL = "Row Remapper Error: (0x1) - All reserved rows for bank are remapped"
RESERVED = "Row Remapper Error: (0x1) - Attempting to remap a reserved row"
PENDING = (
    "Row Remapper: (0x1) - Attempting to remap a row that is already pending remapping. "
    "Remapping will occur when the GPU is reset"
)
REMAPPED = "Row Remapper: New row (0x1) marked for remapping, reset gpu to activate."
CONTAINED = "Contained: CE User Channel (0x9). RST: No, D-RST: No"
SM = "Graphics SM Warp Exception on (GPC 0, TPC 1, SM 0): Out Of Range Address"
BUSES = ("1b", "43", "52", "61")


@table(
    Variant("48-with-64", xid(48, DBE, who=JOB) + xid(64, FULL, who=JOB), "critical", "now",
            ("no spare rows are left",)),
    Variant("64-reserved-row", xid(64, RESERVED), "critical", "now", ("failed",), ("spare rows",)),
    Variant("64-pending", xid(64, PENDING), "warn", "after running jobs", ("already pending",),
            ("spare",)),
    Variant("48-63-94", xid(48, DBE, who=JOB) + xid(63, REMAPPED, who=JOB)
            + xid(94, CONTAINED, who=JOB), "warn", "after running jobs", ("Xid 94 with 48, 63",)),
    Variant("74-names-its-link", xid(74, "NVLink: fatal error detected on link 7(0x0, 0x0, 0x10000,"
            " 0x0, 0x0, 0x0, 0x0)"), "critical", "now", ("NVLink error on link 7",)),
    Variant("149-asks-for-a-reset", xid(149, "NETIR_LINK_EVT  Fatal   XC0 i0 Link 07 (0x004505c6 "
            "0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)")
            + xid(154, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"),
            "critical", "now", ("on link 7", "GPU Reset Required")),
    Variant("154-to-none", xid(154, "GPU recovery action changed from 0x1 (GPU Reset Required) to "
            "0x0 (None)"), "info", "no"),
    Variant("13-of-one-job", "".join(
        xid(13, SM, f"0000:{bus}:00", 5.0 + n, JOB) for n, bus in enumerate(BUSES)
    ), "info", "no", ("train",)),
    Variant("13-same-place-different-jobs", "".join(
        xid(13, SM, at=5.0 + 90_000 * n, who=f"pid={n}, name=job{n}") for n in range(1, 4)
    ), "warn", "after running jobs", ("3 programs",)),
    Variant("mig-94", xid(94, CONTAINED, "0000:61:00 GPU-I:02 GPU-CI:00", who=JOB), "warn",
            "after running jobs", ("GI 2",)),
    Variant("not-in-the-catalogue", xid(999, "something new"), "warn", "", ("999",)),
)  # fmt: skip
def test_the_verdict(variant: Variant) -> None:
    check(variant)


def test_the_advice_names_the_gpu_that_cannot_wait_and_the_one_that_can() -> None:
    text = xid(95, "Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No", "0000:9d:00")
    text += xid(94, CONTAINED, "0000:52:00")
    told = check(Variant("", text, "critical", "now for GPU 0000:9d:00"))
    assert "GPU 0000:52:00: after running jobs" in told.drain


def test_applications_are_named_beside_the_fault_with_their_hosts() -> None:
    text = "g1: " + xid(79, "GPU has fallen off the bus.") + "g2: " + xid(43, "Ch 8", who=JOB)
    check(Variant("", text, "critical", "now: g1", ("g1: GPU", "g2: GPU", "Xid 43 by train")))


def test_an_unknown_xid_has_a_next_step_that_helps() -> None:
    (one,) = findings(check(Variant("", xid(999, "something new"), "warn", "")))
    assert "NVIDIA" in one.next_step
