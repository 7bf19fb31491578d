"""The node's clock and its names: kept in step, read from good hardware, resolved in time."""

from __future__ import annotations

from collections.abc import Iterator

from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Severity
from probes.reading import number

SKEW = Rule(
    id="host.clock",
    title="The node's clock differs from the bastion's",
    severity=Severity.WARN,
    reads="wall clock of the agent's hello against ours",
    cause="no time synchronisation",
    action=Action.RESTART_SERVICE,
    next_step="check chrony or ntp on the node (or here); munge and Slurm fail when clocks differ",
    source="PRI warns at a spread of 30 s in the fleet; munge refuses skewed clocks",
    others="PRI 30 s, EKS",
    example="wall clock 73 s behind",
    limits=("host.wall_skew_s",),
)
SYNC = Rule(
    id="time.sync",
    title="The node's clock is not synchronised",
    severity=Severity.WARN,
    reads="adjtimex(2), or whether systemd-timesyncd has ever reached a server",
    cause="the time daemon does not reach its servers",
    action=Action.RESTART_SERVICE,
    next_step="chronyc sources (ntpq -p, timedatectl timesync-status): are the servers reachable?",
    source="EKS and PRI: the clock should be synchronised",
    others="EKS, PRI: error",
    example="chrony runs, the kernel's clock is not synchronised, error up to 16 s",
)
DAEMON = Rule(
    id="time.daemon",
    title="No time daemon runs on the node",
    severity=Severity.WARN,
    reads="processes: chronyd, ntpd, systemd-timesyncd, PTP; and adjtimex(2)",
    cause="none installed or it has failed; the clock drifts by seconds a day",
    action=Action.RESTART_SERVICE,
    next_step="start chrony (systemctl status chronyd); munge fails when clocks differ",
    source="PRI: no daemon is an error",
    others="PRI error; EKS",
    example="no chronyd, ntpd, systemd-timesyncd or ptp4l among 812 processes",
)
OFFSET = Rule(
    id="time.offset",
    title="The clock is far from its own server's",
    severity=Severity.WARN,
    reads="chronyc tracking, ntpq rv",
    cause="a clock that runs wrong faster than the daemon may slew it, or a step it refused",
    action=Action.RESTART_SERVICE,
    next_step="chronyc makestep when the node is idle; if it comes back, the board's clock is bad",
    source="our estimate, not measured",
    others="EKS, PRI",
    example="chrony: 4.2 s off 192.0.2.1",
    limits=("time.offset_s",),
)
SOURCE = Rule(
    id="time.source",
    title="The kernel reads the time from slow hardware",
    severity=Severity.WARN,
    reads="clocksource of a machine that is not virtual",
    cause="the kernel found the TSC unstable, or was told not to use it",
    action=Action.REBOOT,
    next_step="look for 'Marking clocksource tsc unstable' in the kernel log; firmware update, or "
    "tsc=reliable when the vendor says so",
    source="GCM checks the clocksource; each reading costs a microsecond instead of 20 ns [lx]",
    others="GCM",
    example="hpet; available: hpet acpi_pm",
)
DNS_SLOW = Rule(
    id="dns.slow",
    title="Names resolve slowly",
    severity=Severity.WARN,
    reads="time of getaddrinfo for the node's own name, of user names, and of each server's answer",
    cause="a name server or directory (LDAP, sssd) that does not answer, or is far or overloaded",
    action=Action.FIX_CONFIG,
    next_step="look at /etc/resolv.conf and the servers; put the node's own name into /etc/hosts",
    source="our estimate, not measured",
    others="-",
    example="the node's own name resolves after 5.01 s",
    limits=("dns.slow_s",),
)
DNS_SERVER = Rule(
    id="dns.server",
    title="A name server does not answer",
    severity=Severity.WARN,
    reads="a question to each server of resolv.conf, 2 s",
    cause="server down, or no way to it; each look-up waits for the first server's time-out",
    action=Action.FIX_CONFIG,
    next_step="take it out of resolv.conf, or bring it back; compare a peer",
    source="our rule: the first server of the list must answer when another one does",
    others="-",
    example="192.0.2.53 (first of 2) does not answer",
)
RULES = (SKEW, SYNC, DAEMON, OFFSET, SOURCE, DNS_SLOW, DNS_SERVER)

SLOW_SOURCES = ("hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit")
SETTLING_S = 900.0
"""After a boot; daemons need minutes to trust their servers (our estimate)."""
NAME_CALLS = {"resolver": "look-ups of host names", "name service": "look-ups of users"}
"""Devices that the probes book such calls on."""
GUEST_DAEMONS = ("vmtools", "virtualbox")
"""They set the clock now and then, and tell the kernel nothing."""


def check(look: Look) -> Iterator[Finding]:
    """Clock first, then names."""
    yield from _skew(look)
    yield from _synchronised(look)
    yield from _source(look)
    yield from _names(look)


def _skew(look: Look) -> Iterator[Finding]:
    skew = number(look.facts.value("hello", "", "wall_skew_s"))
    limit = look.rules.limit("host.wall_skew_s")
    if skew is not None and abs(skew) > limit.value:
        way = "ahead of" if skew > 0 else "behind"
        yield SKEW.finding(
            look, f"clock {abs(skew):.0f} s {way} the bastion's",
            (f"wall clock {abs(skew):.1f} s {way} the bastion's",),
            value=skew, limit=limit,
        )  # fmt: skip


def _synchronised(look: Look) -> Iterator[Finding]:
    """A virtual machine or container without a daemon has its host's clock: information."""
    sample = look.facts.get("timesync")
    if sample is None:
        return
    daemon = sample.values.get("daemon")
    synchronised = sample.values.get("synchronised", sample.values.get("first_sync"))
    uptime = number(look.facts.value("host", "", "uptime_s"))
    settled = uptime is None or uptime > SETTLING_S
    own_clock = look.facts.value("host_slow", "", "virtual") is False
    if synchronised is False and daemon not in ("none", None, *GUEST_DAEMONS):
        most = number(sample.values.get("error_max_s"))
        error = "" if most is None else f", error up to {most:.3g} s"
        say = f"{daemon} runs, but the clock is not synchronised{error}"
        yield SYNC.finding(
            look, say, (say,), value=most, severity=None if settled else Severity.INFO
        )
    elif daemon == "none" and synchronised is not True:
        say = "no time daemon runs, and nothing keeps the clock in step"
        grave = own_clock and settled
        yield DAEMON.finding(look, say, (say,), severity=None if grave else Severity.INFO)
    offset, limit = number(sample.values.get("offset_s")), look.rules.limit("time.offset_s")
    if offset is not None and abs(offset) > limit.value:
        say = f"{daemon}: {abs(offset):.1f} s off {sample.values.get('source', 'its server')}"
        yield OFFSET.finding(look, say, (say,), value=offset, limit=limit)


def _source(look: Look) -> Iterator[Finding]:
    source = look.facts.value("host_slow", "", "clocksource")
    if source in SLOW_SOURCES:
        others = look.facts.value("host_slow", "", "clocksources")
        say = f"the kernel reads the time from {source}"
        guest = look.facts.value("host_slow", "", "virtual") is not False
        yield SOURCE.finding(
            look, say, (f"{source}; available: {others}",), value=str(source),
            severity=Severity.INFO if guest else None,
        )  # fmt: skip


def _names(look: Look) -> Iterator[Finding]:
    """Where no server answers but the own name is there, the site does without them."""
    limit = look.rules.limit("dns.slow_s")
    for (_, device), status in sorted(look.facts.hung.items()):
        if device in NAME_CALLS:
            say = f"{NAME_CALLS[device]} hang for {status.since_s or 0:.0f} s"
            yield DNS_SLOW.finding(
                look, say, (status.text or say,), device=device, label=device, value=status.since_s,
                limit=limit,
            )  # fmt: skip
    own_s = number(look.facts.value("dns", "", "own_name_s"))
    slow = own_s is not None and own_s > limit.value
    if slow:
        say = f"the node's own name resolves after {own_s:.2f} s"
        yield DNS_SLOW.finding(look, say, (say,), value=own_s, limit=limit)
    servers = [(d, s.values) for d, s in look.facts.devices("dns") if d.startswith("ns ")]
    answering = any(values.get("answers") is True for _, values in servers)
    needed = slow or look.facts.value("dns", "", "own_name_found") is False
    for device, values in servers:
        name, order = device[3:], number(values.get("order")) or 0
        took_s = number(values.get("answer_s"))
        if values.get("answers") is False:
            grave = (answering and order == 0) or (not answering and needed)
            say = f"name server {name} ({order + 1:.0f} of {len(servers)}) does not answer"
            yield DNS_SERVER.finding(
                look, say, (say,), device=device, label=name,
                severity=None if grave else Severity.INFO,
            )  # fmt: skip
        elif took_s is not None and took_s > limit.value:
            say = f"name server {name} answered after {took_s:.2f} s"
            yield DNS_SLOW.finding(
                look, say, (say,), device=device, label=name, value=took_s, limit=limit
            )
