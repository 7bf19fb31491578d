"""What NCCL's own log says that explains a figure: sockets for InfiniBand, no GPUDirect and so on.

Bounded however long the log is: counts and the first line of each kind. The node judges, because
only it knows at once which ports and GPUs it has. Ids are those of the rules that read pasted logs
(`gpuconsole explain nccl_log.socket`) where there is one. Message texts: NCCL's source, 2.18 to
2.30.
"""

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from probes.node.context import Context

    Row = dict[str, object]

DEBUG = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,GRAPH,ENV"}
LINE_CHARS = 1200
"""NCCL's own lines end at 1024."""
SHOWN_CHARS = 300
NAMES_MOST = 64
HOPPER = 9

LINE = re.compile(r"NCCL (?:INFO|WARN) (.*)")
NETWORK = re.compile(r"Using network (\S+)")
VIA = re.compile(r"Channel .*?: (\d+)\[\w+\] -> (\d+)\[\w+\].* via (\S+)")
HCA = re.compile(r"\[\d+\]([\w.-]+):(\d+)/(IB|RoCE)")
SETTING = re.compile(r"(NCCL_\w+) set (?:by environment )?to (\S+)")
EVENT = re.compile(r"NET/IB : (?:([\w.-]+?)(?::\d+)? )?Got async (?:error )?event ?: ?(.*)")
QUIET = re.compile(r"client reregistration|GID table change|SM change|LID change", re.IGNORECASE)
COMPLETION = re.compile(
    r"Got completion .*?(?:status=?\w*?\(?|with error )(\d+).*?(?:hca ([\w.-]+))?$"
)
P2P_OFF = re.compile(r"P2P is disabled between (NVLINK )?connected GPUs (\d+) and (\d+)")

LIMITING = {
    "NCCL_IB_DISABLE": "no InfiniBand or RoCE",
    "NCCL_P2P_DISABLE": "no peer-to-peer between GPUs",
    "NCCL_P2P_LEVEL": "peer-to-peer only as near as it says",
    "NCCL_NET_GDR_LEVEL": "GPUDirect RDMA only as near as it says",
    "NCCL_NET_GDR_READ": "GPUDirect RDMA for reading",
    "NCCL_SHM_DISABLE": "no shared memory",
    "NCCL_NVLS_ENABLE": "NVLS on or off",
    "NCCL_ALGO": "one algorithm for all sizes",
    "NCCL_PROTO": "one protocol for all sizes",
    "NCCL_MAX_NCHANNELS": "fewer channels",
    "NCCL_MAX_CTAS": "fewer channels",
    "NCCL_PXN_DISABLE": "no way over another GPU's adapter",
    "NCCL_CROSS_NIC": "which rails a ring may use",
    "NCCL_IB_HCA": "which adapters take part",
    "NCCL_NET": "which network is used",
}
"""Settings that can make a run slower than the hardware -> what they do."""


class Clues:
    """Everything read so far."""

    def __init__(
        self,
        ports: "dict[str, tuple[str, str]]",
        several: "bool" = False,
        hopper: "bool" = False,
        ours: "frozenset[str]" = frozenset(),
    ) -> "None":
        """`ports` as of `active_ports`; `several` nodes take part; GPUs are of Hopper or newer;
        `ours` are settings the order itself made."""
        self.ports = ports
        self.several = several
        self.hopper = hopper
        self.ours = ours
        self.found: "dict[str, Row]" = {}
        self._shm: "list[str]" = []
        self._peer = False
        self._hcas: "dict[str, str]" = {}
        self._hca_line = ""

    def feed(self, line: "str") -> "None":
        """Read one line; what is not NCCL's is passed over."""
        match = LINE.search(line[:LINE_CHARS]) if "NCCL " in line else None
        if match is None:
            return
        text = match.group(1)
        if " via " in text:
            self._channel(text, line)
        elif "set " in text and self._setting(text, line):
            return
        else:
            self._network(text, line)
            self._trouble(text, line)

    def _note(self, clue: "str", text: "str", line: "str") -> "None":
        row = self.found.get(clue)
        if row is None:
            if len(self.found) < NAMES_MOST:
                shown = line.strip()[:SHOWN_CHARS]
                self.found[clue] = {"clue": clue, "text": text, "line": shown, "count": 1}
        else:
            row["count"] = int(str(row["count"])) + 1

    def _channel(self, text: "str", line: "str") -> "None":
        via = VIA.search(text)
        if via is None:
            return
        path = via.group(3)
        self._peer = self._peer or path.startswith("P2P")
        if path.startswith("SHM"):
            pair = "%s-%s" % (via.group(1), via.group(2))
            if pair not in self._shm and len(self._shm) < NAMES_MOST:
                self._shm.append(pair)
            self._note("nccl_log.shm", "", line)
        elif path.startswith("NET/IB") and "GDRDMA" not in path:
            self._note("nccl_log.no_gdr", "InfiniBand without GPUDirect RDMA", line)
        elif path.startswith("NET/Socket"):
            self._socket(line)

    def _socket(self, line: "str") -> "None":
        here = ", ".join(sorted(self.ports)[:8])
        more = "although %s are active" % here if here else "no InfiniBand port is active here"
        if self.several:
            self._note("nccl_log.socket", "TCP sockets between the nodes: %s" % more, line)

    def _setting(self, text: "str", line: "str") -> "bool":
        found = SETTING.search(text)
        if found is None:
            return False
        name, value = found.group(1), found.group(2).rstrip(".")
        if name in LIMITING and name not in self.ours:
            told = "%s=%s is set here: %s" % (name, value[:60], LIMITING[name])
            self._note("setting.%s" % name, told, line)
        return True

    def _network(self, text: "str", line: "str") -> "None":
        network = NETWORK.search(text)
        if network and network.group(1) == "Socket":
            self._socket(line)
        if "NET/IB : Using" in text:
            self._hca_line = self._hca_line or line
            for name, port, layer in HCA.findall(text)[:NAMES_MOST]:
                if len(self._hcas) < NAMES_MOST:
                    self._hcas["%s/%s" % (name, port)] = layer
        if "GPU Direct RDMA Disabled" in text and self.several:
            self._note("nccl_log.no_gdr", "InfiniBand without GPUDirect RDMA", line)
        if "Failed to initialize NET plugin" in text:
            self._note("net_plugin", "the network plugin did not load", line)
        if "NVLS multicast support is not available" in text and self.hopper:
            self._note("nvls_off", "NVLS is not available on GPUs that have it", line)

    def _trouble(self, text: "str", line: "str") -> "None":
        off, event = P2P_OFF.search(text), EVENT.search(text)
        completion = COMPLETION.search(text) if "Got completion" in text else None
        if off:
            joined = "NVLink" if off.group(1) else "PCIe"
            pair = (off.group(2), off.group(3), joined)
            told = "GPU%s and GPU%s may not reach each other over their %s" % pair
            self._note("p2p_off", told, line)
        if event and not QUIET.search(event.group(2)):
            fatal = re.search("catastrophic|fatal", event.group(2), re.IGNORECASE)
            clue = "nccl_log.device_fatal" if fatal else "nccl_log.port_event"
            where = event.group(1) or "an adapter"
            self._note(clue, "%s reported %s" % (where, event.group(2).strip()[:80]), line)
        if completion:
            where = completion.group(2) or "an adapter"
            told = "a transfer of %s failed, status %s" % (where, completion.group(1)[:4])
            self._note("nccl_log.completion", told, line)

    def rows(self) -> "list[Row]":
        """The clues: {clue, text, line, count}; a path over host memory only beside better ones."""
        self._adapters()
        shm = self.found.pop("nccl_log.shm", None)
        if shm is not None and (self._peer or self.hopper):
            pairs = ", ".join(self._shm[:6])
            shm["text"] = "ranks %s go through host memory inside the node" % pairs
            self.found["nccl_log.shm"] = shm
        return list(self.found.values())

    def _adapters(self) -> "None":
        """Adapters that take part and should not, or the other way round."""
        if not self._hcas or not self.several:
            return
        layers = set(self._hcas.values())
        if len(layers) > 1:
            text = "InfiniBand and Ethernet adapters are used together"
            self._note("nccl_log.hca", text, self._hca_line)
        used = {self.ports[name] for name in self._hcas if name in self.ports}
        idle = [name for name, kind in self.ports.items() if kind in used]
        idle = sorted(name for name in idle if name not in self._hcas)
        if idle:
            text = "%d of %d active adapters of one kind are left out: %s" % (
                len(idle), len(idle) + len(self._hcas), ", ".join(idle[:8]),
            )  # fmt: skip
            self._note("nccl_log.hca", text, self._hca_line)


def active_ports(ctx: "Context") -> "dict[str, tuple[str, str]]":
    """ "mlx5_0/1" -> (link layer, rate) of the RDMA ports that carry traffic."""
    found = {}
    for name in ctx.listdir("sys/class/infiniband")[:NAMES_MOST]:
        for port in ctx.listdir("sys/class/infiniband", name, "ports")[:4]:
            place = ("sys/class/infiniband", name, "ports", port)
            if (ctx.read(*(place + ("state",))) or "").startswith("4"):
                layer, rate = (
                    ctx.read(*(place + (what,))) or "" for what in ("link_layer", "rate")
                )
                found["%s/%s" % (name, port)] = (layer, rate)
    return found


def has_nvls(ctx: "Context") -> "bool":
    """Whether its GPUs are of Hopper or newer; False when it cannot be told."""
    from probes.node.nvml_reader import Reader, each_gpu

    def ask(reader: "Reader") -> "None":
        capability = reader.ask_once("nvmlDeviceGetCudaComputeCapability")
        reader.put(major=None if capability is None else int(capability[0]))

    try:
        answers = each_gpu(ctx, ask)
    except Exception:
        return False
    return any(int(one.get("major", 0)) >= HOPPER for one in answers.values())
