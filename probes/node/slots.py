"""Physical slots: what the firmware calls the place of a card, as it is printed on the chassis."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict

    from probes.node.context import Context

SLOTS = "sys/bus/pci/slots"
SLOTS_MOST = 256
NAME_CHARS = 32


def slots(ctx: "Context") -> "Dict[str, str]":
    """Address without its function ("0000:1b:00") -> slot; {} where the firmware names none."""
    found = {}
    for name in ctx.listdir(SLOTS)[:SLOTS_MOST]:
        address = ctx.read(SLOTS, name, "address")
        if address:
            found[address.strip().lower()] = name[:NAME_CHARS]
    return found
