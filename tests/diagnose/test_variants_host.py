"""More of hosts and host lists: numeric lspci, failed services, the BMC's log, plain lists."""

from __future__ import annotations

from tests.diagnose.support import facts
from tests.diagnose.variants import Variant, check, table

NUMERIC = (
    "1b:00.0 0302: 10de:2330 (rev a1)\n43:00.0 0302: 10de:2330 (rev {rev})\n"
    "07:00.0 0680: 10de:22a3 (rev a1)\n"
)
FAILED = """\
  UNIT                        LOAD   ACTIVE SUB    DESCRIPTION
● {unit} loaded failed failed some service
"""
MANAGER = """\
× nvidia-fabricmanager.service - NVIDIA fabric manager service
     Loaded: loaded (/lib/systemd/system/nvidia-fabricmanager.service; enabled)
     Active: failed (Result: exit-code) since Tue 2026-03-03 04:05:06 UTC; 3h ago

Mar 03 04:05:06 g1 nv-fabricmanager[2210]: fabric manager NVIDIA GPU driver interface version \
535.183.01 don't match with driver version 535.161.08. Please update with matching package.
"""
SEL = """\
   1 | 03/03/2026 | 04:05:06 | Power Supply #0x51 | Failure detected | Asserted
   2 | 03/03/2026 | 04:05:07 | Power Unit #0x77 | Redundancy Lost | Asserted
"""


@table(
    Variant("numeric-dead", NUMERIC.format(rev="ff"), "critical", "now", ("43:00.0", "1 of 2")),
    Variant("numeric-well", NUMERIC.format(rev="a1"), "ok", "no"),
    Variant("slurmd", FAILED.format(unit="slurmd.service"), "warn", "no", ("slurmd has failed",)),
    Variant("fabric-manager", MANAGER, "critical", "now", ("535.183.01", "535.161.08")),
    Variant("bmc-log", SEL, "warn", "no", ("2 grave events", "Redundancy Lost")),
)  # fmt: skip
def test_hosts(variant: Variant) -> None:
    check(variant)


def test_a_switch_is_no_gpu_in_numbers_either() -> None:
    told = facts(check(Variant("", NUMERIC.format(rev="ff"), "critical", "now")))
    assert (told["lspci_gpus"], told["nvswitch"], told["rev_ff"]) == (2, 1, ["43:00.0"])


@table(
    Variant("one-a-line", "gpu-a01\ngpu-a02\ngpu-a03\n", "ok", "no", ("1, 1 and 1 hosts",)),
    Variant("mpi", "gpu-a01 slots=8\ngpu-a02 slots=8 max_slots=8\n", "ok", "no",
            ("1 and 1 hosts",)),
    Variant("comments", "# mine\ngpu-a01  # first\n\ngpu-a[02-03]\n", "ok", "no", ("1 and 2",)),
    Variant("broken-between", "gpu-a[01-03]\ngpu-b[01-\ngpu-c1\n", "warn", "no",
            ("2:6 unclosed bracket", "3 and 1 hosts")),
    Variant("padded-at-one-end", "node[01-100]\nnode[1-010]\n", "warn", "no", ("2 entries",)),
    Variant("steps", "node[1-10/3]\n", "ok", "no", ("4 hosts",)),
)  # fmt: skip
def test_inventories(variant: Variant) -> None:
    check(variant)


def test_a_list_of_adapters_is_no_list_of_hosts() -> None:
    check(Variant("", "mlx5_0\nmlx5_1\n", "unknown", "no", (), ("expanded",)))
