"""Memory errors as EDAC counts them, by controller and by DIMM.

Of DIMMs only those with errors leave the node: a board has 32 of them and more.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from probes.node.context import Context

    Values = dict[str, object]

BASE = "sys/devices/system/edac/mc"
CONTROLLERS = 32
DIMMS = 32
"""Devices with errors at most."""


def edac(ctx: "Context") -> "dict[str, Values]":
    """ "mc0" -> its counts; "mc0/dimm3" -> those of a DIMM with errors. {} without a driver."""
    found: "dict[str, Values]" = {}
    names = [name for name in ctx.listdir(BASE) if name[:2] == "mc" and name[2:].isdigit()]
    for name in sorted(names, key=lambda one: int(one[2:]))[:CONTROLLERS]:
        counts = _counts(ctx, name, "ce_count", "ue_count")
        if counts:
            found[name] = counts
    dimms = [
        "%s/%s" % (name, dimm)
        for name in found
        for dimm in ctx.listdir(BASE, name)
        if dimm.startswith(("dimm", "rank"))
    ]
    for dimm in dimms:
        counts = _counts(ctx, dimm, "dimm_ce_count", "dimm_ue_count")
        if any(counts.values()) and len(found) < CONTROLLERS + DIMMS:
            label = (ctx.read(BASE, dimm, "dimm_label") or "").strip()
            if label:
                counts["label"] = label[:64]
            found[dimm] = counts
    return found


def _counts(ctx: "Context", place: "str", corrected: "str", uncorrected: "str") -> "Values":
    found: "Values" = {}
    for metric, name in (("ce", corrected), ("ue", uncorrected)):
        number = ctx.read_int(BASE, place, name)
        if number is not None:
            found[metric] = number
    return found
