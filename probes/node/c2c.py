"""C2C links between a GPU and its Grace CPU: state, speed and errors, as part of probe "fabric".

A GPU without them has no metric of this module.
"""

from probes.node.nvml_reader import field_id, scoped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from probes.node.nvml_reader import Reader

METRICS = {
    "c2c_links": ("", "info", "C2C links of the card"),
    "c2c_up": ("links", "gauge", "C2C links that are active"),
    "c2c_down": ("", "info", "numbers of the C2C links that are not"),
    "c2c_mbps": ("MB/s", "gauge", "speed of all active C2C links together, one way"),
    "c2c_mbps_min": ("MB/s", "gauge", "speed of the slowest active C2C link"),
    "c2c_crc": ("", "counter", "CRC errors of all C2C links"),
    "c2c_replays": ("", "counter", "packets sent again on all C2C links"),
    "c2c_replays_b2b": ("", "counter", "packets sent again twice in a row on all C2C links"),
    "c2c_low_power": ("links", "gauge", "C2C links in the low power state"),
}

LINKS_MAX = 32
"""14 links are the most of any part today (GPM metrics of nvml.h)."""

COUNT = ("NVML_FI_DEV_C2C_LINK_COUNT", 170)
STATUS = ("NVML_FI_DEV_C2C_LINK_GET_STATUS", 171)
SPEED = ("NVML_FI_DEV_C2C_LINK_GET_MAX_BW", 172)
POWER = ("NVML_FI_DEV_C2C_LINK_POWER_STATE", 234)
ERRORS = {
    "c2c_crc": ("NVML_FI_DEV_C2C_LINK_ERROR_INTR", 231),
    "c2c_replays": ("NVML_FI_DEV_C2C_LINK_ERROR_REPLAY", 232),
    "c2c_replays_b2b": ("NVML_FI_DEV_C2C_LINK_ERROR_REPLAY_B2B", 233),
}


def read(reader: "Reader") -> "None":
    """Add what the C2C links of one GPU say."""
    field = (field_id(reader.pynvml, *COUNT), 0)
    links = min(int(reader.fields([field]).get(field, 0)), LINKS_MAX)
    if links <= 0:
        return
    status, speed, power = (field_id(reader.pynvml, *one) for one in (STATUS, SPEED, POWER))
    errors = {name: field_id(reader.pynvml, *one) for name, one in ERRORS.items()}
    found = reader.fields(scoped([status, speed, power] + list(errors.values()), links))
    states = {link: found[status, link] for link in range(links) if (status, link) in found}
    up = [link for link, state in states.items() if state]
    reader.put(c2c_links=links)
    if states:
        down = [str(link) for link, state in sorted(states.items()) if not state]
        reader.put(c2c_up=len(up), c2c_down=" ".join(down) or None)
    speeds = [found[speed, link] for link in up if found.get((speed, link))]
    if speeds:
        reader.put(c2c_mbps=sum(speeds), c2c_mbps_min=min(speeds))
    for name, number in errors.items():
        counts = [found[number, link] for link in range(links) if (number, link) in found]
        reader.put(**{name: sum(counts) if counts else None})
    low = [found[power, link] for link in range(links) if (power, link) in found]
    if low:
        reader.put(c2c_low_power=sum(1 for state in low if state))
