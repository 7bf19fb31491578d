"""How far each rank of a running job is, as NCCL itself tells it: its RAS port, asked now and then.

Every process with NCCL from 2.24 on offers the port on localhost, unless told otherwise. Asked are
only places that a process on a GPU says it listens at (28028, or its NCCL_RAS_ADDR) and where its
owner does listen; other sockets of a job are never touched.

One answer is about the whole job, and costs every process of it a message. So not every node asks:
the host of the lowest rank and three more keep asking, evenly spread over the job, the others look
again every half hour. Each finds its place in the answer, and nobody has to tell it.
"""

import threading
import time

from probes.node.context import Stuck
from probes.node.listeners import ADDRESSES_MOST, addresses, listening
from probes.node.owners import allowed, identity
from probes.node.ras_read import Reader
from probes.node.ras_rows import hosts, rows
from probes.node.ras_talk import Unanswered, ask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Dict, List, Set

    from probes.node.context import Context
    from probes.node.listeners import Listener

    Values = Dict[str, object]
    Emit = Callable[[Dict[str, Values], List[Values]], None]

NAME = "ras"
INTERVAL = "stream"
COUNTERS = False
METRICS = {
    "processes": ("", "gauge", "processes on the GPUs"),
    "covered": ("", "gauge", "of them, ranks of a communicator in the last answer"),
    "off": ("", "gauge", "of them, with NCCL_RAS_ENABLE=0"),
    "hidden": ("", "gauge", "of them, whose environment may not be read"),
    "answered": ("", "gauge", "of a port: whether it told its status in the last look"),
    "why": ("", "info", "of a port: why it did not; of the node: why there is none"),
    "format": ("", "info", "json or text; text gives no counts while all ranks agree"),
    "nccl": ("", "info", "version of NCCL"),
    "took_s": ("s", "gauge", "how long NCCL collected: so far apart are two ranks' counts"),
    "timeouts": ("", "gauge", "processes or links that did not answer NCCL in time"),
    "cut": ("", "gauge", "True: the answer was longer or slower than we wait for"),
    "every_s": ("s", "gauge", "how often this node asks that port"),
    "job": ("", "info", "job of the processes that offer the port"),
    "port": ("", "info", "port that told of a communicator"),
    "kind": ("", "info", "of a row: comm, rank, missing, or address: one of the node's own"),
    "comm": ("", "info", "hash of the communicator"),
    "size": ("", "gauge", "ranks of the communicator"),
    "seen": ("", "gauge", "of them, in the answer"),
    "missing": ("", "gauge", "of them, without an answer"),
    "own": ("", "gauge", "of them, on this node"),
    "hosts": ("", "gauge", "hosts they are on"),
    "basis": ("", "info", "operations that the counts are of: all, or the one that differs"),
    "low": ("", "gauge", "fewest collectives that a rank has launched"),
    "mid": ("", "gauge", "median of the ranks"),
    "high": ("", "gauge", "most"),
    "behind": ("", "gauge", "ranks below the median"),
    "starting": ("", "gauge", "ranks that still initialise"),
    "ending": ("", "gauge", "ranks that finalise, destroy or abort"),
    "failed": ("", "gauge", "ranks with an error"),
    "rank": ("", "info", "rank in the communicator"),
    "host": ("", "info", "address of its host"),
    "pid": ("", "info", "its process; on this node as the node knows it"),
    "gpu": ("", "info", "its GPU's NVML index"),
    "here": ("", "info", "True: on this node"),
    "count": ("", "gauge", "collectives it has launched"),
    "ops": ("", "info", "the same by operation"),
    "init": ("", "gauge", "ncclResult_t of its initialisation when not 0"),
    "error": ("", "gauge", "its asynchronous error when not 0"),
    "silent": ("", "gauge", "of a missing rank: NCCL did not reach it"),
    "dead": ("", "gauge", "of a missing rank: NCCL has given it up"),
}

EVERY_S = 12.0
"""Between two questions to one port (science: two polls 10 s apart)."""
REST_S = 1800.0
"""The same for nodes that leave the asking to others: hosts of a job come and go."""
ASKING = 4
"""Nodes of a job that keep asking, whatever its size."""
WORK = 50.0
"""A look may cost one second of CPU in so many."""
LOOK_S = 4.0
"""All ports together; below the agent's deadline."""
PORT, ADDRESS = 28028, "127.0.0.1"
"""NCCL_RAS_CLIENT_PORT on localhost, NCCL's default."""
OF_ANSWER = ("job", "took_s", "cut")
"""Values of a port that its communicators' rows repeat: rows travel without them."""
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Who listens on all addresses is asked on loopback."""
PROCESSES, PORTS = 64, 8
NONE = (
    "no process on a GPU offers a RAS port here: no NCCL, NCCL before 2.24, or another job or user "
    "has the port; set NCCL_RAS_ADDR=localhost:PORT for each job"
)
OFF = "RAS is switched off in the job (NCCL_RAS_ENABLE=0)"


class Port:
    """A place where processes of a job offer their status."""

    def __init__(self, family: "int", address: "str", port: "int", network: "str") -> "None":
        self.place = (family, address, port)
        self.network = network
        """Path of its network namespace, "" for our own."""
        self.pids: "List[str]" = []

    @property
    def name(self) -> "str":
        """ "127.0.0.1:28028", "[::1]:28028", and behind it the process of another network."""
        text = "[%s]:%d" if ":" in self.place[1] else "%s:%d"
        where = text % self.place[1:]
        return "%s@%s" % (where, self.pids[0]) if self.network else where


class State:
    """What is remembered of a port between looks."""

    def __init__(self) -> "None":
        self.due = 0.0
        self.every_s = EVERY_S
        self.values: "Values" = {}


def collect(ctx: "Context") -> "tuple[Dict[str, Values], List[Values]]":
    """All ports once, for a pass."""
    return look(ctx, of_all=True)


def look(ctx: "Context", of_all: "bool" = False) -> "tuple[Dict[str, Values], List[Values]]":
    """Ask the ports whose turn it is. Devices are all ports, rows are of those asked just now."""
    from probes.node.nvml_library import Failed

    try:
        pids = on_gpus(ctx)
    except Failed as failure:
        return {"": {"why": "NVML: %s fails with %s" % (failure.call, failure.rc)}}, []
    ports, known, values = _offers(ctx, pids)
    devices: "Dict[str, Values]" = {"": values}
    found: "List[Values]" = [{"kind": "address", "host": one} for one in known]
    began = ctx.mono()
    covered: "Set[str]" = set()
    states = ctx.memory(NAME)
    for name in set(states) - {port.name for port in ports}:
        del states[name]
    own, inner, asked = set(known), _inner(ctx, pids), False
    for port in ports:
        state = states.setdefault(port.name, State())
        assert isinstance(state, State)
        if of_all or ctx.mono() >= state.due:
            told = _look(ctx, port, state, own, inner, lambda: began + LOOK_S - ctx.mono())
            found.extend(told)
            asked = asked or bool(told)
            covered.update(str(row["pid"]) for row in told if row.get("here"))
        devices[port.name] = dict(state.values)
    if asked:
        values["covered"] = len(covered & set(pids))
    return devices, found


def follow(ctx: "Context", emit: "Emit") -> "None":
    """Look again and again; a look that cannot be made now is left out."""
    pause = threading.Event()
    while True:
        ctx.tick(threading.get_ident())  # what was read before dates no answer of this look
        try:
            emit(*look(ctx))
        except Stuck:
            pass
        pause.wait(EVERY_S)


def on_gpus(ctx: "Context") -> "List[str]":
    """Process ids on the GPUs, as NVML lists them; a GPU that fails is left out."""
    from probes.node.nvml_library import Failed
    from probes.node.processes import running

    pids: "Dict[str, None]" = {}
    for gpu in [] if ctx.nvml is None else ctx.nvml.gpus():
        try:
            if gpu.handle is not None:
                pids.update(dict.fromkeys(str(int(one.pid)) for one in running(ctx, gpu)))
        except (Failed, Stuck):
            continue
    return list(pids)[:PROCESSES]


def _offers(ctx: "Context", pids: "List[str]") -> "tuple[List[Port], List[str], Values]":
    """The ports that these processes offer, the node's addresses, what is to be said of it."""
    ports: "Dict[str, Port]" = {}
    off = hidden = 0
    ours = ctx.readlink("proc/self/ns/net")
    known: "Dict[str, None]" = {}
    networks: "Dict[str, List[Listener]]" = {}
    for pid in pids:
        raw = ctx.read_bytes("proc", pid, "environ")
        names = allowed(raw or b"")
        hidden += raw is None
        link = ctx.readlink("proc", pid, "ns", "net")
        if (link or pid) not in networks:
            networks[link or pid] = listening(ctx, pid)
            known.update(dict.fromkeys(addresses(ctx, pid)))
        if names.get("NCCL_RAS_ENABLE") == "0":
            off += 1
            continue
        path = "" if link in (None, ours) else ctx.path("proc", pid, "ns", "net")
        told = names.get("NCCL_RAS_ADDR", "")
        found = _listens(networks[link or pid], uids_of(ctx, pid), told, path)
        if found is not None:
            key = "%s %s" % (found.place, link if path else "")
            ports.setdefault(key, found).pids.append(pid)
    values: "Values" = {"processes": len(pids)}
    values.update((name, n) for name, n in (("off", off), ("hidden", hidden)) if n)
    if pids and not ports:
        values["why"] = OFF if off == len(pids) else NONE
    return list(ports.values())[:PORTS], list(known)[:ADDRESSES_MOST], values


def _listens(
    listeners: "List[Listener]", uids: "Set[str]", told: "str", network: "str"
) -> "Port | None":
    """Where a process offers its status, if its owner listens there."""
    address, port = wanted(told)
    for one in listeners:
        fits = one.address == address or one.address in ANY or not address
        if one.port == port and fits and one.uid in uids:
            return Port(one.family, ANY.get(one.address, one.address), port, network)
    return None


def wanted(told: "str") -> "tuple[str, int]":
    """NCCL_RAS_ADDR ("localhost:7000", "[::1]:7000") as address, "" for any, and port."""
    host, _, port = told.rpartition(":")
    if not port.isdigit() or len(port) > 5:
        return "", PORT
    host = host.strip("[]")
    return ("" if host in LOCAL_NAMES or not _numeric(host) else host), int(port)


def _numeric(host: "str") -> "bool":
    return bool(host) and all(letter in "0123456789abcdefABCDEF.:" for letter in host)


def uids_of(ctx: "Context", pid: "str") -> "Set[str]":
    """Its user, real and effective, by number."""
    for line in (ctx.read("proc", pid, "status") or "").splitlines():
        if line.startswith("Uid:"):
            return set(line.split()[1:])
    return set()


def _inner(ctx: "Context", pids: "List[str]") -> "Dict[int, int]":
    """Process id in its container -> on the node; none for ids that two containers have."""
    found: "Dict[int, int]" = {}
    twice: "Set[int]" = set()
    for pid in pids:
        for line in (ctx.read("proc", pid, "status") or "").splitlines():
            words = line.split()
            if line.startswith("NSpid:") and len(words) > 2 and words[-1].isdigit():
                inner = int(words[-1])
                twice.update([inner] if inner in found else [])
                found[inner] = int(pid)
    return {inner: pid for inner, pid in found.items() if inner not in twice}


def _look(
    ctx: "Context",
    port: "Port",
    state: "State",
    own: "Set[str]",
    inner: "Dict[int, int]",
    left_s: "Callable[[], float]",
) -> "List[Values]":
    """Ask one port; its values go into `state`, its rows are returned."""
    began_cpu = time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID)
    reader, why = Reader(), ""
    try:
        ask(port.place, port.network, reader, left_s)
    except Unanswered as error:
        why = str(error)
    reader.end()
    if not why and reader.odd:
        why = "its answer is not NCCL's"
    told = [] if why else rows(reader.comms, own, inner)
    cpu_s = time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID) - began_cpu
    state.every_s = max(turn_s(hosts(reader.comms), own), round(WORK * cpu_s, 1))
    state.due = ctx.mono() + state.every_s - 0.5  # a look comes every EVERY_S, give or take
    state.values = {"answered": not why, "every_s": state.every_s}
    job = identity(ctx, port.pids[0]).get("job")
    if job:
        state.values["job"] = job
    if why:
        state.values["why"] = why
        return []
    said = (("format", reader.format), ("nccl", reader.version), ("took_s", reader.took_s))
    state.values.update((name, value) for name, value in said if value not in ("", None))
    state.values["timeouts"] = reader.timeouts
    if not reader.complete:
        state.values["cut"] = True
    shared = {name: state.values[name] for name in OF_ANSWER if name in state.values}
    return [dict(row, port=port.name, **shared) if row["kind"] == "comm" else row for row in told]


def turn_s(names: "List[str]", own: "Set[str]") -> "float":
    """How often this node asks: always for some of the job's hosts, hardly ever for the rest."""
    mine = next((at for at, name in enumerate(names) if name in own), None)
    if mine is None or len(names) <= ASKING:
        return EVERY_S
    asking = {at * len(names) // ASKING for at in range(ASKING)}
    return EVERY_S if mine in asking else REST_S
