"""Names and texts of a simulated node's /sys and /proc, as Linux with mlx5 shows them.

The 21 counter names equal the list in Linux' ABI document (sysfs-class-infiniband); hw_counters and
AER lines are those of mlx5 and the PCI core.
"""

from __future__ import annotations

COUNTERS = (
    "VL15_dropped", "excessive_buffer_overrun_errors", "link_downed", "link_error_recovery",
    "local_link_integrity_errors", "multicast_rcv_packets", "multicast_xmit_packets",
    "port_rcv_constraint_errors", "port_rcv_data", "port_rcv_errors", "port_rcv_packets",
    "port_rcv_remote_physical_errors", "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors", "port_xmit_data", "port_xmit_discards", "port_xmit_packets",
    "port_xmit_wait", "symbol_error", "unicast_rcv_packets", "unicast_xmit_packets",
)  # fmt: skip
"""ports/1/counters"""

HW_COUNTERS = (
    "duplicate_request", "implied_nak_seq_err", "lifespan", "local_ack_timeout_err", "np_cnp_sent",
    "np_ecn_marked_roce_packets", "out_of_buffer", "out_of_sequence", "packet_seq_err",
    "req_cqe_error", "req_cqe_flush_error", "req_remote_access_errors",
    "req_remote_invalid_request", "resp_cqe_error", "resp_cqe_flush_error",
    "resp_local_length_error", "resp_remote_access_errors", "rnr_nak_retry_err", "roce_adp_retrans",
    "roce_adp_retrans_to", "roce_slow_restart", "roce_slow_restart_cnps", "roce_slow_restart_trans",
    "rp_cnp_handled", "rp_cnp_ignored", "rx_atomic_requests", "rx_icrc_encapsulated",
    "rx_read_requests", "rx_write_requests",
)  # fmt: skip
"""ports/1/hw_counters"""

EFA_COUNTERS = (
    "alloc_pd_err", "alloc_ucontext_err", "cmds_err", "completed_cmds", "create_ah_err",
    "create_cq_err", "create_qp_err", "impaired_remote_conn_events", "keep_alive_rcvd", "lifespan",
    "mmap_err", "no_completion_cmds", "rdma_read_bytes", "rdma_read_resp_bytes", "rdma_read_wr_err",
    "rdma_read_wrs", "rdma_write_bytes", "rdma_write_recv_bytes", "rdma_write_wr_err",
    "rdma_write_wrs", "recv_bytes", "recv_wrs", "reg_mr_err", "retrans_bytes", "retrans_pkts",
    "retrans_timeout_events", "rx_bytes", "rx_drops", "rx_pkts", "send_bytes", "send_wrs",
    "submitted_cmds", "tx_bytes", "tx_pkts", "unresponsive_remote_events",
)  # fmt: skip
"""ports/1/hw_counters of EFA"""

HFI1_COUNTERS = (
    "RcvOverflow", "RxHdrOvfl_0,U", "Pio,Wait", "DmaWait", "RcLinkLost", "TxFlits", "RxFlits",
)  # fmt: skip
"""hw_counters of an Omni-Path device; some names have commas"""

_FATAL = "Undefined DLP SDES TLP FCP CmpltTO CmpltAbrt UnxCmplt"
AER = {
    "aer_dev_correctable": (
        "TOTAL_ERR_COR",
        "RxErr BadTLP BadDLLP Rollover Timeout NonFatalErr CorrIntErr HeaderOF",
    ),
    "aer_dev_nonfatal": ("TOTAL_ERR_NONFATAL", _FATAL),
    "aer_dev_fatal": ("TOTAL_ERR_FATAL", _FATAL),
}
"""File -> its last line's name, the other lines' names."""

UP = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)"}
"""A healthy NDR port."""

DOWN = {"state": "1: DOWN", "phys_state": "2: Polling", "rate": "10 Gb/sec (4X SDR)"}
"""What a port shows when its cable is out."""


def routes(interface: str) -> str:
    """proc/net/route with a default route through `interface`, its subnet, and IPoIB."""
    return (
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
        f"{interface}\t00000000\t0100050A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
        f"{interface}\t0000050A\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n"
        "ib0\t00000A0A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
    )
