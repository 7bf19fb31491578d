"""Rules about a pasted run of nccl-tests. Wrong data and a node's floor are the console's own."""

from __future__ import annotations

from probes.event import Action, Severity
from probes.rule import Rule

SINGLE = Rule(
    id="nccl_tests.single_rank",
    title="Only one rank took part in the test",
    severity=Severity.UNKNOWN,
    reads="the list of ranks above the table",
    cause="-g 1 and no MPI, or an nccl-tests build without MPI: every process is its own rank 0",
    action=Action.NONE,
    next_step="run with -g 8, or through MPI with a build made with MPI=1",
    source="busbw of one rank is 0 by definition [nct]; field case: NVIDIA/nccl-tests issue 249",
    others="-",
    example="#  Rank  0 Group  0 Pid  21000 on    gpu-a01 device  0 [0000:1b:00] NVIDIA H100",
)
INCOMPLETE = Rule(
    id="nccl_tests.incomplete",
    title="The test did not come to its end",
    severity=Severity.UNKNOWN,
    reads="whether the footer was printed",
    cause="a hang, a crash, a time limit, or a paste that was cut",
    action=Action.WATCH,
    next_step="run it again with -T 60; when it stops at the same size, look at the driver, the "
    "kernel log and the links of each node",
    source="nccl-tests prints 'Avg bus bandwidth' last [nct]",
    others="-",
    example="header and three rows, then nothing",
)
ITERATION = Rule(
    id="nccl_tests.iteration",
    title="One iteration took much longer than the others",
    severity=Severity.WARN,
    reads="the per-iteration columns i_min, i_max and i_cv",
    cause="a stall in one iteration: link recovery, a noisy neighbour, power or heat",
    action=Action.WATCH,
    next_step="repeat; compare with NVLink recovery and ECC counters and clocks of that second "
    "(timestamps help)",
    source="per-iteration report since 2.19 [nct]; the limit is our estimate, not measured",
    others="-",
    example="i_min 4100.90 us, i_max 41277.0 us, i_cv 128.80 %",
    limits=("nccl.iteration_spread",),
)
DIP = Rule(
    id="nccl_tests.dip",
    title="The bandwidth falls at a large size",
    severity=Severity.WARN,
    reads="busbw of each size against smaller ones",
    cause="a stall while that size ran, congestion, or a change of algorithm",
    action=Action.WATCH,
    next_step="run that size again with more iterations and -I 1; it repeats: set NCCL_ALGO or "
    "NCCL_PROTO to see whether the choice causes it",
    source="our estimate, not measured: bandwidth grows with the size and then stays",
    others="-",
    example="436.9 GB/s at 512 MiB, 293.1 GB/s at 1 GiB",
    limits=("nccl.dip_share",),
)
AVERAGE = Rule(
    id="nccl_tests.average",
    title="The run failed its own minimum bandwidth",
    severity=Severity.WARN,
    reads="FAILED behind 'Avg bus bandwidth'",
    cause="slow links, or a minimum that does not fit: the average holds small sizes too",
    action=Action.WATCH,
    next_step="compare the largest size with the product's figure; give a minimum for a run of "
    "large sizes only",
    source="nccl-tests passes at 90 % of NCCL_TESTS_MIN_BW [nct]",
    others="-",
    example="# Avg bus bandwidth    : 171.94 FAILED",
)
MULTI_NODE = Rule(
    id="nccl_tests.multi_node",
    title="Several nodes reach less than any RDMA fabric of 8 adapters",
    severity=Severity.WARN,
    reads="busbw at 1 GiB and more of whole nodes",
    cause="TCP sockets instead of RDMA, one adapter instead of eight, or a slow node",
    action=Action.WATCH,
    next_step="NCCL_DEBUG=INFO: which network and adapters; then pairs to find the slow node",
    source="lowest two-node pass mark in use for 8 x H100, A3: CHS",
    others="CHS",
    example="busbw 11 GB/s over 2 nodes of 8 H100",
    limits=("nccl.multinode_gb_s",),
)
PEER = Rule(
    id="nccl_tests.peer",
    title="A node is slower than the others in the same test",
    severity=Severity.WARN,
    reads="busbw at the largest size of runs on single nodes, against their median",
    cause="an NVLink, a slow GPU, a power or thermal limit of that node",
    action=Action.DRAIN,
    next_step="drain after running jobs; look at nvlink, clocks and ECC of that node; test again",
    source="90 % of the median, as nccl-tests itself passes at 90 % [nct]",
    others="CHS, SB compare with a baseline",
    example="gpu-a07: 402 GB/s, 84 % of the median 478 of 8 nodes",
    limits=("nccl.floor_share",),
)
PAIR = Rule(
    id="nccl_tests.pair",
    title="All pairs with one node are slow",
    severity=Severity.WARN,
    reads="a table of pairs, each against the median of the measured ones",
    cause="one slow adapter, rail or PCIe link of that node",
    action=Action.DRAIN,
    next_step="check its port rates, PCIe width and GPUDirect; keep it out of gang jobs",
    source="90 % of the median of the measured pairs, as nccl-tests passes at 90 % [nct]",
    others="CHS, GCM, SB: pairs",
    example="gpu-a03: 4 of 4 pairs at 49 GB/s, median 87",
    limits=("nccl.floor_share",),
)
PATH = Rule(
    id="nccl_tests.path",
    title="One pair of nodes is slow, both are well with others",
    severity=Severity.WARN,
    reads="a table of pairs",
    cause="a path between them: a cable, a switch port or congestion, not a node",
    action=Action.WATCH,
    next_step="repeat the pair; check switch counters on the way; do not drain the nodes",
    source="field practice: node bad with two partners or more, else path: CHS",
    others="CHS",
    example="gpu-a01 to gpu-a07 at 40 GB/s, median 87",
    limits=("nccl.floor_share",),
)
NOT_MEASURED = Rule(
    id="nccl_tests.pair_missing",
    title="Pairs were not measured",
    severity=Severity.INFO,
    reads="pairs without a figure",
    cause="a time-out or a failed start; a missing figure accuses neither node by itself",
    action=Action.NONE,
    next_step="repeat these pairs",
    source="our rule: what was not measured is not slow",
    others="-",
    example="gpu-a02,gpu-a05,,,timeout",
)
RULES = (
    SINGLE, INCOMPLETE, ITERATION, DIP, AVERAGE, MULTI_NODE, PEER, PAIR, PATH, NOT_MEASURED,
)  # fmt: skip
