"""Rules about NCCL's own log; they exist on paper only, as the console reads no job's log."""

from __future__ import annotations

from probes.event import Action, Severity
from probes.rule import Rule

SOCKET = Rule(
    id="nccl_log.socket",
    title="NCCL uses TCP sockets between nodes",
    severity=Severity.WARN,
    reads="'Using network' and channel lines of an NCCL_DEBUG=INFO log",
    cause="no InfiniBand device in the container, NCCL_IB_DISABLE, or a plugin that did not load",
    action=Action.FIX_CONFIG,
    next_step="ls /sys/class/infiniband and ibstat where the job runs; unset NCCL_IB_DISABLE; give "
    "the container /dev/infiniband",
    source="NCCL log lines [nccl]",
    others="-",
    example="NCCL INFO Using network Socket",
)
NO_GDR = Rule(
    id="nccl_log.no_gdr",
    title="NCCL moves data through host memory on its way to the network",
    severity=Severity.WARN,
    reads="channel lines 'via NET/IB' without GDRDMA, 'GPU Direct RDMA Disabled'",
    cause="nvidia_peermem (or dma-buf) is missing, or GPU and adapter are too far apart",
    action=Action.FIX_CONFIG,
    next_step="lsmod | grep nvidia_peermem; nvidia-smi topo -m; see NCCL_NET_GDR_LEVEL",
    source="NCCL log lines [nccl]; effect: NVIDIA/nccl issue 1412, 33 to 93 GB/s",
    others="imbue, gpud, SCK, GCM check the module",
    example="NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0",
)
SHM = Rule(
    id="nccl_log.shm",
    title="GPUs of one node talk through host memory",
    severity=Severity.WARN,
    reads="channel lines 'via SHM' beside peer-to-peer ones, or between NVLink GPUs",
    cause="peer access is off between them: ACS or IOMMU, NCCL_P2P_DISABLE, a lost NVLink, a "
    "container that sees one GPU a process",
    action=Action.FIX_CONFIG,
    next_step="nvidia-smi topo -m and nvlink -s; unset NCCL_P2P_DISABLE; check ACS",
    source="NCCL log lines [nccl]; cost of ACS: NVIDIA/nccl-tests issue 112",
    others="SCK checks ACS",
    example="NCCL INFO Channel 00 : 3[3] -> 4[4] via SHM/direct/direct",
)
HCA_MIX = Rule(
    id="nccl_log.hca",
    title="NCCL uses other network adapters than it should",
    severity=Severity.WARN,
    reads="'NET/IB : Using' lines, compared between hosts and link layers",
    cause="NCCL_IB_HCA is not set and a storage or management port takes part, or a port is down",
    action=Action.FIX_CONFIG,
    next_step="set NCCL_IB_HCA to the compute ports; check the missing port with ibstat",
    source="NCCL log lines [nccl]; roles as in [nvsent]",
    others="-",
    example="NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_bond_0:1/RoCE; OOB eth0",
)
COMPLETION = Rule(
    id="nccl_log.completion",
    title="An InfiniBand transfer of a job failed",
    severity=Severity.WARN,
    reads="'Got completion ... status' warnings",
    cause="the path or the port lost packets for seconds, or the peer's process died first",
    action=Action.WATCH,
    next_step="look at link_downed, symbol_error and retry counters of the named port and of the "
    "peer's; find out which process ended first",
    source="NCCL net_ib warnings; status numbers of ibv_wc_status [nccl]",
    others="NVS: rnr and transport retries are fatal",
    example="NET/IB : Got completion from peer 192.0.2.12<40000> with status=12 ... hca mlx5_3",
)
ASYNC = Rule(
    id="nccl_log.port_event",
    title="An adapter reported a port event during the job",
    severity=Severity.WARN,
    reads="'Got async event' warnings",
    cause="the link went down or changed: cable, optics, switch port",
    action=Action.WATCH,
    next_step="check link_downed and the kernel log of that port; exchange the cable if it repeats",
    source="NCCL net_ib async events [nccl]; field case: NVIDIA/nccl issue 905",
    others="-",
    example="NET/IB : mlx5_3:1 Got async event : port error",
)
CATASTROPHIC = Rule(
    id="nccl_log.device_fatal",
    title="A network adapter reported a fatal error",
    severity=Severity.CRITICAL,
    reads="'local catastrophic error' events",
    cause="the adapter's firmware or hardware stopped",
    action=Action.DRAIN,
    next_step="drain; kernel log for mlx5 health lines; reset or replace the adapter",
    source="NCCL net_ib async events [nccl]",
    others="-",
    example="NET/IB : mlx5_3:1 Got async event : local catastrophic error",
    hard=True,
)
VERSIONS = Rule(
    id="nccl_log.versions",
    title="Ranks use different NCCL versions",
    severity=Severity.WARN,
    reads="'NCCL version' lines of all ranks",
    cause="images or LD_LIBRARY_PATH differ between nodes",
    action=Action.FIX_CONFIG,
    next_step="use the same image and library path on all nodes",
    source="NCCL refuses or misbehaves when versions differ [nccl]",
    others="-",
    example="NCCL version 2.22.3+cuda12.5 and 2.19.4+cuda12.2",
)
INIT_OPEN = Rule(
    id="nccl_log.init",
    title="Ranks began to initialise and never finished",
    severity=Severity.WARN,
    reads="'Init START' and 'Init COMPLETE' lines",
    cause="a peer that never came, a wrong interface, a firewall, or a log that is cut",
    action=Action.WATCH,
    next_step="see which rank printed nothing; check NCCL_SOCKET_IFNAME and the firewall",
    source="NCCL init lines [nccl]",
    others="-",
    example="Init START of 16 ranks, Init COMPLETE of 15",
)
SLOW_INIT = Rule(
    id="nccl_log.slow_init",
    title="Initialising NCCL took long",
    severity=Severity.INFO,
    reads="'Init timings' lines",
    cause="slow name service, slow file system, many ranks, or GPUs without persistence mode",
    action=Action.WATCH,
    next_step="look at the parts of the timing line: bootstrap, allgathers, topo, connections",
    source="NCCL init timings [nccl]; the limit is our estimate, not measured",
    others="-",
    example="Init timings - ncclCommInitRank: rank 0 nranks 16 total 93.49",
    limits=("nccl.init_s",),
)
RULES = (
    SOCKET, NO_GDR, SHM, HCA_MIX, COMPLETION, ASYNC, CATASTROPHIC, VERSIONS, INIT_OPEN, SLOW_INIT,
)  # fmt: skip
