"""The host's own health: memory errors, CPUs and their speed, the kernel's taint, boots."""

from __future__ import annotations

from collections.abc import Iterator

from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Severity
from probes.reading import number, whole

GOVERNOR = Rule(
    id="host.governor",
    title="The CPUs do not run at full speed by choice",
    severity=Severity.INFO,
    reads="cpufreq governor and driver of nodes with GPUs",
    cause="a governor other than performance; with intel_pstate and amd-pstate the hardware "
    "chooses by itself and little is lost",
    action=Action.FIX_CONFIG,
    next_step="cpupower frequency-set -g performance, and make it stay (tuned)",
    source="GCM fails a node whose governor is not performance",
    others="GCM error; OCI and PRI record it",
    example="powersave on 112 of 112, driver acpi-cpufreq",
)
CPU_SLOW = Rule(
    id="host.cpu_slow",
    title="The CPUs run far below their speed although they are busy",
    severity=Severity.WARN,
    reads="median CPU frequency against the highest, at more than half load",
    cause="heat, a failed power supply (BD PROCHOT), a power cap of the BMC, or a low ceiling",
    action=Action.DRAIN,
    next_step="read the BMC's event log (PSU, PROCHOT) and scaling_max_freq; compare a peer",
    source="GCM wants 1,498 MHz; the ratio is our estimate, not measured",
    others="GCM 1498 MHz",
    example="800 MHz of 3800 MHz at 93 % load",
    limits=("host.cpu_slow", "host.cpu_busy_percent"),
)
CPU_HOT = Rule(
    id="host.cpu_throttle",
    title="The CPUs are slowed down by heat",
    severity=Severity.WARN,
    reads="rise of package_throttle_total_time_ms",
    cause="fans, air flow, or a heat sink",
    action=Action.WATCH,
    next_step="compare inlet temperature and fans with a peer (ipmitool sensor)",
    source="Linux thermal_throttle [lx]; the share is our estimate, not measured",
    others="PRI, CVS: kernel log",
    example="packages throttled 31 % of the time",
    limits=("host.cpu_throttle_share",),
)
CPUS = Rule(
    id="host.cpus_offline",
    title="CPUs are offline",
    severity=Severity.WARN,
    reads="cpu/present against cpu/online",
    cause="switched off by hand, or by the kernel after machine checks",
    action=Action.FIX_CONFIG,
    next_step="look for machine checks in the kernel log; then chcpu -e",
    source="our rule: what the machine has should be in use, SMT siblings aside",
    others="PRI, NHC: by count",
    example="4 of 224 CPUs offline: 17,18,129,130",
)
UNCORRECTED = Rule(
    id="host.edac_ue",
    title="Host memory has errors that could not be corrected",
    severity=Severity.CRITICAL,
    reads="ue_count of each memory controller (EDAC)",
    cause="a DIMM fails; whatever used that memory was killed or is wrong",
    action=Action.DRAIN,
    next_step="drain; replace the DIMM that the label names",
    source="Linux EDAC [lx]: uncorrectable errors",
    others="gpud, EKS, CVS: kernel log lines; no tool we read has these counters",
    example="mc1: 2 uncorrectable errors, CPU_SrcID#1_MC#0_Chan#0_DIMM#0",
    hard=True,
)
CORRECTED = Rule(
    id="host.edac_ce",
    title="Host memory corrects errors at a high rate",
    severity=Severity.WARN,
    reads="rise of ce_count of each memory controller (EDAC)",
    cause="a DIMM wears out or sits badly",
    action=Action.WATCH,
    next_step="exchange the DIMM that the label names at the next service",
    source="Linux EDAC [lx]; the rate is our estimate, not measured",
    others="NHC: mcelog rates per DIMM, set by the site",
    example="mc0: 88 corrected errors/min, CPU_SrcID#0_MC#0_Chan#1_DIMM#0",
    limits=("host.edac_ce_per_min",),
)
TAINT = Rule(
    id="host.tainted",
    title="The kernel has seen trouble since it booted",
    severity=Severity.WARN,
    reads="taint bits M (machine check), B (bad page), D (oops) and L (soft lockup)",
    cause="hardware (M, B) or a kernel or driver bug (D, L)",
    action=Action.REBOOT,
    next_step="save the kernel log; reboot when the node is idle; with M or B look for the part",
    source="Linux tainted-kernels.rst [lx]",
    others="-",
    example="taint 4112: M (machine check), O",
)
REBOOTS = Rule(
    id="host.reboot_loop",
    title="The node boots again and again",
    severity=Severity.WARN,
    reads="boot records of /var/log/wtmp",
    cause="a hardware fault, a watchdog, or automation that reboots",
    action=Action.DRAIN,
    next_step="drain; read the BMC's event log and the last kernel log of each boot "
    "(journalctl --list-boots)",
    source="OCI: more than 3 boots a day",
    others="OCI 3 a day: terminate; GCM uptime below 600 s",
    example="6 boots within 24 h",
    limits=("host.boots_day",),
)
BOOTED = Rule(
    id="host.booted",
    title="The node booted a short while ago",
    severity=Severity.INFO,
    reads="uptime",
    cause="a planned reboot, or a crash",
    action=Action.NONE,
    next_step="if nobody planned it, read the end of the last kernel log",
    source="GCM: below 600 s",
    others="GCM 600 s: warning",
    example="up for 140 s",
    limits=("host.uptime_s",),
)
RULES = (UNCORRECTED, CORRECTED, CPU_SLOW, CPU_HOT, CPUS, GOVERNOR, TAINT, REBOOTS, BOOTED)

BY_HARDWARE = ("intel_pstate", "amd-pstate-epp", "amd_pstate_epp")
"""Drivers whose powersave means "as fast as the work needs"."""
SMT_OFF = ("off", "forceoff")
TAINTS = {"M": "machine check", "B": "bad page", "D": "oops", "L": "soft lockup"}


def check(look: Look) -> Iterator[Finding]:
    """Memory, CPUs, set-up, boots."""
    yield from _memory_errors(look)
    yield from _speed(look)
    yield from _setup(look)
    yield from _boots(look)


def _slow(look: Look, metric: str) -> float | None:
    return number(look.facts.value("host_slow", "", metric))


def _memory_errors(look: Look) -> Iterator[Finding]:
    limit = look.rules.limit("host.edac_ce_per_min")
    for device, sample in look.facts.devices("host_slow"):
        if not device.startswith("mc") or "/" in device:
            continue
        bad = whole(sample.values.get("ue")) or 0
        if bad > 0:
            names = _dimms(look, device, "ue")
            yield UNCORRECTED.finding(
                look, f"{bad} uncorrectable error{'s' * (bad > 1)} of host memory{names}",
                (f"{device}: {bad} uncorrectable{names}",), device=device, label=device, value=bad,
            )  # fmt: skip
        rates = look.facts.rates.get(("host_slow", device))
        per_s = None if rates is None or "ce" in rates.reset else rates.per_s("ce")
        if per_s is not None and 60 * per_s > limit.value:
            names = _dimms(look, device, "ce")
            yield CORRECTED.finding(
                look, f"{60 * per_s:.0f} corrected errors/min of host memory{names}",
                (f"{device}: {60 * per_s:.0f} corrected/min{names}",), device=device, label=device,
                value=round(60 * per_s, 1), limit=limit,
            )  # fmt: skip


def _dimms(look: Look, controller: str, metric: str) -> str:
    """Labels of its DIMMs with errors, ", A1, B2"."""
    found = [
        str(sample.values.get("label") or device)
        for device, sample in look.facts.devices("host_slow")
        if device.startswith(f"{controller}/") and (whole(sample.values.get(metric)) or 0) > 0
    ]
    return "".join(f", {name}" for name in found[:4])


def _speed(look: Look) -> Iterator[Finding]:
    now, most = _slow(look, "cpu_mhz"), _slow(look, "cpu_mhz_max")
    busy = number(look.facts.value("host", "", "cpu_percent"))
    limit, least = look.rules.limit("host.cpu_slow"), look.rules.limit("host.cpu_busy_percent")
    if now and most and busy is not None and busy > least.value and now < limit.value * most:
        say = f"CPUs at {now:.0f} of {most:.0f} MHz with {busy:.0f} % load"
        yield CPU_SLOW.finding(look, say, (say,), value=round(now / most, 2), limit=limit)
    rates = look.facts.rates.get(("host_slow", ""))
    ms = None if rates is None else rates.per_s("cpu_throttle_ms")
    share = look.rules.limit("host.cpu_throttle_share")
    if ms is not None and ms / 1000 > share.value:
        say = f"CPU packages slowed down by heat {min(100, ms / 10):.0f} % of the time"
        yield CPU_HOT.finding(look, say, (say,), value=round(ms / 1000, 3), limit=share)


def _setup(look: Look) -> Iterator[Finding]:
    values = look.facts.get("host_slow")
    if values is None:
        return
    facts = values.values
    off, present = whole(facts.get("cpus_offline")) or 0, whole(facts.get("cpus_present")) or 0
    siblings = facts.get("smt") in SMT_OFF or 2 * off == present
    if off and not siblings:
        say = f"{off} of {present} CPUs offline: {facts.get('cpus_offline_list')}"
        yield CPUS.finding(look, say, (say,), value=off)
    governor, driver = facts.get("governor"), str(facts.get("cpufreq_driver", ""))
    gpus = whole(look.facts.value("inventory", "", "pci_gpu_count")) or 0
    if gpus and governor not in (None, "performance"):
        say = f"CPU governor {facts.get('governors')}, driver {driver or '?'}"
        pinned = governor == "powersave" and driver not in BY_HARDWARE
        severity = Severity.WARN if pinned else Severity.INFO
        yield GOVERNOR.finding(look, say, (say,), value=str(governor), severity=severity)
    letters = [letter for letter in str(facts.get("taints", "")) if letter in TAINTS]
    if letters:
        names = ", ".join(f"{letter} ({TAINTS[letter]})" for letter in letters)
        say = f"kernel tainted: {names}"
        yield TAINT.finding(
            look, say, (f"taint {facts.get('tainted')}: {names}",), value="".join(letters),
            severity=Severity.INFO if letters == ["L"] else None,
        )  # fmt: skip


def _boots(look: Look) -> Iterator[Finding]:
    boots, limit = _slow(look, "boots_day"), look.rules.limit("host.boots_day")
    if boots is not None and boots > limit.value:
        say = f"{boots:.0f} boots within 24 h"
        yield REBOOTS.finding(look, say, (say,), value=boots, limit=limit)
    uptime, least = (
        number(look.facts.value("host", "", "uptime_s")),
        look.rules.limit("host.uptime_s"),
    )
    if uptime is not None and uptime < least.value:
        say = f"up for {uptime:.0f} s"
        yield BOOTED.finding(look, say, (say,), value=uptime, limit=least)
