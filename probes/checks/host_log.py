"""Kernel lines about the host: machine checks, lockups, stalls, panics, oopses, hot CPUs.

None of them is a fault of a GPU, though jobs die or hang by them. A line older than xid.old_h, or
of an earlier boot, is history.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from probes.checks import kernel_events
from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Severity
from probes.kernel_lines import KernelEvent

UNCORRECTED = Rule(
    id="host.hardware_error",
    title="The host's hardware reports an error that it could not correct",
    severity=Severity.CRITICAL,
    reads="machine check, EDAC UE and firmware error lines",
    cause="host memory, CPU or a PCIe device",
    action=Action.DRAIN,
    next_step="drain; read the BMC's event log and EDAC for the DIMM or device; replace it",
    source="Linux MCE and EDAC [lx]: bank status bit 61, UE, or severity recoverable or fatal",
    others="gpud, EKS: kernel log lines",
    example="EDAC MC1: 1 UE memory read error on CPU_SrcID#1_MC#0_Chan#0_DIMM#0",
    hard=True,
)
CORRECTED = Rule(
    id="host.corrected_errors",
    title="The host's hardware corrects errors",
    severity=Severity.WARN,
    reads="machine check, EDAC CE and firmware error lines of a day; few of them are info",
    cause="a DIMM or a link wears out; nothing is lost so far",
    action=Action.WATCH,
    next_step="read EDAC and the BMC's event log for the DIMM; exchange it at the next service",
    source="Linux MCE and EDAC [lx]; the limit is our estimate, not measured",
    others="gpud, EKS: kernel log lines",
    example="EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0",
    limits=("host.corrected_errors",),
)
LOCKUP = Rule(
    id="host.lockup",
    title="A CPU was stuck in the kernel",
    severity=Severity.WARN,
    reads="soft lockup lines",
    cause="a driver that loops or waits, an overloaded host, or firmware that stops all CPUs",
    action=Action.WATCH,
    next_step="look at what the named program does; drain and save the kernel log if it repeats",
    source="Linux soft lockup detector [lx]",
    others="gpud, PRI, EKS",
    example="watchdog: BUG: soft lockup - CPU#12 stuck for 22s! [python3:3301]",
)
HARD_LOCKUP = Rule(
    id="host.hard_lockup",
    title="A CPU stopped answering interrupts",
    severity=Severity.CRITICAL,
    reads="hard LOCKUP lines",
    cause="firmware that holds the CPU, a hardware fault, or a kernel bug with interrupts off",
    action=Action.DRAIN,
    next_step="drain; save the kernel log and the BMC's event log; reboot; update firmware, and "
    "replace the board if it returns",
    source="Linux hard lockup detector [lx]",
    others="PRI, EKS: kernel log lines",
    example="watchdog: Watchdog detected hard LOCKUP on cpu 12",
)
RCU = Rule(
    id="host.rcu_stall",
    title="A CPU held the kernel up (RCU stall)",
    severity=Severity.WARN,
    reads="'detected stalls on CPUs' and 'self-detected stall' lines",
    cause="a driver that loops, a host that stops its guest, or firmware that stops all CPUs",
    action=Action.WATCH,
    next_step="look at the call trace below the line; in a VM ask the host; drain if it repeats",
    source="Linux RCU stall detector [lx]",
    others="-",
    example="rcu: INFO: rcu_sched self-detected stall on CPU",
)
PANIC = Rule(
    id="host.panic",
    title="The kernel panicked",
    severity=Severity.CRITICAL,
    reads="'Kernel panic - not syncing' lines",
    cause="the text behind it says what; often a machine check or a bug of a driver",
    action=Action.DRAIN,
    next_step="keep the crash dump or the console's log; drain until the cause is known",
    source="Linux panic() [lx]",
    others="EKS: kernel log lines",
    example="Kernel panic - not syncing: Fatal machine check",
)
BUG = Rule(
    id="host.kernel_bug",
    title="The kernel hit a bug of its own and went on",
    severity=Severity.WARN,
    reads="'BUG:', 'kernel BUG at', Oops and 'general protection fault' lines",
    cause="a bug of the kernel or a driver; rarely bad memory. Locks may be held for ever since",
    action=Action.REBOOT,
    next_step="save the call trace; drain and reboot when the jobs are done; report it",
    source="Linux oops messages [lx]; node-problem-detector's kernel monitor calls it KernelOops",
    others="gpud, EKS",
    example="BUG: unable to handle page fault for address: ffffc90000000000",
)
CPU_HOT = Rule(
    id="host.cpu_hot",
    title="CPUs slow down because they are hot",
    severity=Severity.WARN,
    reads="'temperature above threshold, cpu clock throttled' lines; over once it says normal",
    cause="cooling: fans, airflow, inlet air, dust or paste",
    action=Action.WATCH,
    next_step="check fans and inlet temperature in the BMC; the node is slow meanwhile",
    source="Linux thermal interrupt handler [lx]",
    others="-",
    example="CPU12: Package temperature above threshold, cpu clock throttled (total events = 42)",
)
RULES = (UNCORRECTED, CORRECTED, HARD_LOCKUP, PANIC, LOCKUP, RCU, BUG, CPU_HOT)

SAME_ERROR_S = 1.0
"""Lines of one machine check follow each other within this time (our estimate)."""


def check(look: Look) -> Iterator[Finding]:
    """Each kind by itself."""
    if not look.facts.kernel:
        return
    kinds = kernel_events.by_kind(look)
    yield from _machine(look, kinds.get("mce", []))
    yield from _hard_lockups(look, kinds.get("hard_lockup", []))
    yield from _said(look, PANIC, "the kernel panicked", kinds.get("panic", []))
    yield from _lockups(look, kinds.get("lockup", []))
    yield from _said(look, RCU, "RCU stall: a CPU held the kernel up", kinds.get("rcu_stall", []))
    yield from _said(look, BUG, "the kernel hit a bug", kinds.get("bug", []))
    yield from _hot(look, kinds.get("cpu_hot", []))


def _of(look: Look, rule: Rule, say: str, same: list[KernelEvent]) -> Finding:
    finding = rule.finding(look, say + kernel_events.ago(look, same[-1]), kernel_events.texts(same))
    return kernel_events.aged(look, structs.replace(finding, count=len(same)), same[-1])


def _said(look: Look, rule: Rule, say: str, same: list[KernelEvent]) -> Iterator[Finding]:
    """One finding of a kind, with the kernel's own words; lines close together are one event."""
    if same:
        said = next((f": {e.facts['said']}" for e in same if "said" in e.facts), "")
        number = len(_together(same))
        more = f", {number} times" if number > 1 else ""
        yield structs.replace(_of(look, rule, f"{say}{said}{more}", same), count=number)


def _together(events: list[KernelEvent]) -> list[list[KernelEvent]]:
    """Lines of one event each."""
    found: list[list[KernelEvent]] = []
    for event in events:
        last = found[-1][-1] if found else None
        if last is not None and last.boot == event.boot and event.at - last.at <= SAME_ERROR_S:
            found[-1].append(event)
        else:
            found.append([event])
    return found


def _machine(look: Look, events: list[KernelEvent]) -> Iterator[Finding]:
    """Lines close together are one error; without a class it counts as corrected."""
    timed = all(event.mono is not None or event.wall is not None for event in events)
    errors = _together(events) if timed else [[event] for event in events]
    bad = [e for e in errors if any(line.facts.get("corrected") is False for line in e)]
    good = [e for e in errors if e not in bad]
    if bad:
        lines = [line for error in bad for line in error]
        say = f"uncorrected hardware error of the host{_part(lines)}"
        yield _of(look, UNCORRECTED, say, lines)
    recent = [e for e in good if not kernel_events.old(look, e[-1])] or good[-1:]
    if recent:
        yield _few_or_many(look, recent)


def _part(lines: list[KernelEvent]) -> str:
    """The DIMM, device or kind of part that the lines name."""
    names = [str(line.facts[key]) for line in lines for key in ("dimm",) if key in line.facts]
    names += [line.pci for line in lines if line.pci]
    names += [str(line.facts["section"]) for line in lines if "section" in line.facts]
    return f" ({', '.join(dict.fromkeys(names[:4]))})" if names else ""


def _few_or_many(look: Look, errors: list[list[KernelEvent]]) -> Finding:
    lines = [line for error in errors for line in error]
    stated = [int(line.facts["number"]) for line in lines if "number" in line.facts]
    number = sum(stated) if stated else len(errors)
    limit = look.rules.limit("host.corrected_errors")
    say = f"{number} corrected hardware error{'s' * (number != 1)} of the host{_part(lines)}"
    finding = _of(look, CORRECTED, say, lines)
    grave = number > limit.value and finding.severity is Severity.WARN
    return structs.replace(
        finding, count=number, value=number, limit=limit.value, unit=limit.unit,
        severity=Severity.WARN if grave else Severity.INFO,
    )  # fmt: skip


def _hard_lockups(look: Look, same: list[KernelEvent]) -> Iterator[Finding]:
    if same:
        cpus = sorted({int(event.facts["cpu"]) for event in same})
        shown = ", ".join(map(str, cpus[:8]))
        say = f"CPU {shown} stopped answering interrupts (hard lockup)"
        yield _of(look, HARD_LOCKUP, say, same)


def _lockups(look: Look, same: list[KernelEvent]) -> Iterator[Finding]:
    if not same:
        return
    worst = max(same, key=lambda event: int(event.facts.get("seconds", 0)))
    comm = f" in {worst.facts['comm']}" if "comm" in worst.facts else ""
    say = f"CPU {worst.facts.get('cpu')} was stuck for {worst.facts.get('seconds')} s{comm}"
    yield _of(look, LOCKUP, say + kernel_events.times(same), same)


def _hot(look: Look, same: list[KernelEvent]) -> Iterator[Finding]:
    """Over when every CPU that was throttled said normal afterwards."""
    state = {event.facts.get("cpu"): event for event in same}
    still = [cpu for cpu, event in state.items() if event.facts.get("what") == "throttled"]
    hot = [event for event in same if event.facts.get("what") == "throttled"]
    if not hot:
        return
    events = max((int(event.facts.get("number", 0)) for event in hot), default=0)
    number = f", up to {events} events a CPU" if events else ""
    if still:
        who = f"{len(still)} CPUs throttle" if len(still) > 1 else f"CPU {still[0]} throttles"
        yield _of(look, CPU_HOT, f"{who} for heat{number}", same)
        return
    lasted = kernel_events.lasting(max(0.0, same[-1].at - hot[0].at))
    say = f"CPUs throttled for heat and are normal again after {lasted}{number}"
    yield structs.replace(_of(look, CPU_HOT, say, same), severity=Severity.INFO)
