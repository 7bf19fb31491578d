"""More of InfiniBand: half cables, split ports, interfaces alone, today's warnings of ibstat."""

from __future__ import annotations

from tests.diagnose.ib_text import DOWN, WAITS, ca, ibstat, perfquery, prefixed
from tests.diagnose.support import facts
from tests.diagnose.variants import Variant, check, table


def status(number: int, rate: str, state: str = "4: ACTIVE", physical: str = "5: LinkUp") -> str:
    """One block of ibstatus."""
    return (
        f"Infiniband device 'mlx5_{number}' port 1 status:\n\tdefault gid:\t fe80::{number}\n"
        f"\tbase lid:\t 0x8{number}\n\tsm lid:\t\t 0x1\n\tstate:\t\t {state}\n"
        f"\tphys state:\t {physical}\n\trate:\t\t {rate}\n\tlink_layer:\t InfiniBand\n\n"
    )


FOUR, HALF = "200 Gb/sec (4X HDR)", "100 Gb/sec (2X HDR)"
WARNED = ca("mlx5_0") + "ibwarn: [30303] main: stat of IB device 'mlx5_1' failed\n" + ca("mlx5_2")
UP = "mlx5_0 port 1 ==> ibp12s0 (Up)\nmlx5_1 port 1 ==> ibp18s0 (Up)\n"
BARE = f"{UP}mlx5_2 port 1 ==> ibp64s0 (Down)\n"


@table(
    Variant("half-cable", status(0, FOUR) + status(1, HALF), "warn", "no",
            ("mlx5_1 has 2 lanes",), ("mlx5_0 has",)),
    Variant("all-split", status(0, HALF) + status(1, HALF), "ok", "no", ("2 compute ports",)),
    Variant("other-speed", status(0, FOUR) + status(1, "100 Gb/sec (4X EDR)"), "ok", "no"),
    Variant("vanished-as-a-warning", WARNED, "critical", "after running jobs",
            ("mlx5_1 has vanished", "2 InfiniBand ports are ACTIVE")),
    Variant("interfaces-alone", BARE, "ok", "no", ("2 interfaces up", "mlx5_2 (ibp64s0)"),
            ("no link", "3 ports down")),
    Variant("one-of-eight-waits", ibstat(8, [3], **WAITS), "critical", "after running jobs",
            ("mlx5_3 waits for the subnet manager",)),
    Variant("behind-clush", "".join(
        prefixed(f"gpu-a0{n}", ibstat(8, [1] if n == 2 else [], **DOWN)) for n in range(1, 4)
    ), "critical", "after running jobs", ("gpu-a02: mlx5_1", "2 nodes without trouble")),
    Variant("roce", ibstat(4, range(4), lid="0", manager="0", layer="Ethernet", rate="100"), "ok",
            "no", ("4 Ethernet ports up",)),
    Variant("counters", perfquery(0, 0), "ok", "no", ("in 1 reading",)),
)  # fmt: skip
def test_the_verdict(variant: Variant) -> None:
    check(variant)


def test_a_warning_of_ibstat_leaves_the_list_incomplete() -> None:
    told = facts(check(Variant("", WARNED, "critical", "after")))
    assert (told["vanished"], told["complete"]) == (["mlx5_1"], False)


def test_whose_link_the_interfaces_do_not_tell() -> None:
    told = check(Variant("", BARE, "ok", "no"))
    assert any("mlx5_2 has a link" in text for part in told.inputs for text in part.unknown)
