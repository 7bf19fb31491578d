"""Texts of InfiniBand tools with made-up adapters."""

from __future__ import annotations

from collections.abc import Iterable

DOWN = {"state": "Down", "physical": "Polling", "rate": "10", "lid": "65535", "manager": "0"}
WAITS = {"state": "Initializing", "physical": "LinkUp", "lid": "65535", "manager": "0"}


def ca(
    name: str, *, state: str = "Active", physical: str = "LinkUp", rate: str = "400",
    lid: str = "411", manager: str = "1", layer: str = "InfiniBand", image: str = "",
) -> str:  # fmt: skip
    """One block of ibstat."""
    guid = f"0xaaaa0000000001{sum(map(ord, name)) % 100:02}"
    return (
        f"CA '{name}'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tFirmware version: 28.41.1000\n"
        f"\tHardware version: 0\n\tNode GUID: {guid}\n\tSystem image GUID: {image or guid}\n"
        f"\tPort 1:\n\t\tState: {state}\n\t\tPhysical state: {physical}\n\t\tRate: {rate}\n"
        f"\t\tBase lid: {lid}\n\t\tLMC: 0\n\t\tSM lid: {manager}\n"
        f"\t\tCapability mask: 0xa751e848\n\t\tPort GUID: {guid}\n\t\tLink layer: {layer}\n"
    )


def ibstat(number: int, odd: Iterable[int] = (), **change: str) -> str:
    """ibstat of mlx5_0 and so on; `change` is what differs in the odd ones."""
    strange = set(odd)
    return "".join(ca(f"mlx5_{one}", **(change if one in strange else {})) for one in range(number))


def perfquery(symbols: int, downed: int, lid: int = 6) -> str:
    """One answer."""
    return (
        f"# Port counters: Lid {lid} port 1 (CapMask: 0x1200)\n"
        "PortSelect:......................1\nCounterSelect:...................0x0000\n"
        f"SymbolErrorCounter:..............{symbols}\nLinkErrorRecoveryCounter:........0\n"
        f"LinkDownedCounter:...............{downed}\nPortRcvErrors:...................0\n"
        "LocalLinkIntegrityErrors:........0\nExcessiveBufferOverrunErrors:....0\n"
        "PortXmitData:....................648\nPortRcvData:.....................648\n"
        "PortXmitWait:....................12\n"
    )


def prefixed(node: str, text: str) -> str:
    """As clush prints it."""
    return "".join(f"{node}: {line}\n" for line in text.splitlines())
