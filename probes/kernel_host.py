"""Lines about the host: machine checks, lockups, oopses, killed processes, throttled CPUs. Pure."""

from __future__ import annotations

import re

from probes.kernel_xid import BDF, Found, address

_OTHERS = (
    ("lockup", re.compile(
        r"soft lockup - CPU#(?P<cpu>\d{1,6}) stuck for (?P<seconds>\d{1,9})s!?"
        r"(?: \[(?P<comm>.{1,64}?):\d{1,10}\])?")),
    ("hard_lockup", re.compile(r"hard LOCKUP on cpu (?P<cpu>\d{1,6})")),
    ("rcu_stall", re.compile(
        r"rcu\w{0,20}:? (?:INFO: )?(?:rcu_\w{1,20} )?(?:self-)?detected "
        r"(?:expedited )?stalls? on CPU")),
    ("hung_task", re.compile(
        r"task (?P<comm>.{1,64}):(?P<pid>\d{1,10}) (?:<\w{1,20}> )?blocked for more than "
        r"(?P<seconds>\d{1,9}) seconds")),
    ("panic", re.compile(r"Kernel panic - not syncing: (?P<said>.{0,160})")),
    ("bug", re.compile(
        r"(?P<said>kernel BUG at \S{1,120}|Oops(?:: |\[)[^\n]{0,60}"
        r"|BUG: (?:unable to handle|kernel NULL|Bad page|Bad rss|scheduling while)[^\n]{0,120}"
        r"|general protection fault|Unable to handle kernel [^\n]{0,80})")),
    ("segfault", re.compile(
        r"(?P<comm>[^\s\[]{1,64})\[(?P<pid>\d{1,10})\]: (?:segfault at|general protection)"
        r".{0,160}? in (?P<library>lib(?:nccl|cuda|nvidia|cudart|ibverbs|mlx5)[\w.+-]{0,60})")),
)  # fmt: skip
_KILLED = re.compile(
    r"[Oo]ut of memory: Kill(?:ed)? process (?P<pid>\d{1,10}) \((?P<comm>.{0,64}?)\)"
    r"(?:.{0,200}?anon-rss:(?P<rss_kb>\d{1,15})kB)?"
)
_OOM_KILL = re.compile(
    r"oom-kill:constraint=(?P<constraint>\w{1,40}).{0,600}?"
    r"(?:,oom_memcg=(?P<cgroup>[^,]{1,300}))?,task_memcg=(?P<task_cgroup>[^,]{1,300}),"
    r"task=(?P<comm>.{1,64}),pid=(?P<pid>\d{1,10})"
)
_THROTTLED = re.compile(
    r"CPU(?P<cpu>\d{1,6}): (?:Core|Package) temperature"
    r"(?P<what> above threshold|/speed normal)(?:.{0,60}?total events = (?P<number>\d{1,12}))?"
)
_SUPPRESSED = re.compile(r"(?P<of>[\w.:-]{1,60}): (?P<number>\d{1,12}) callbacks suppressed")
_EDAC = re.compile(
    r"EDAC \S{1,40}: (?P<number>\d{1,9}) (?P<class>CE|UE)\b(?:.{0,120}? on (?P<dimm>\S{1,80}))?"
)
_BANK = re.compile(
    r"Machine Check(?: Exception)?: [0-9a-f]{1,4} Bank (?P<bank>\d{1,3}): "
    r"(?P<status>[0-9a-f]{16})\b"
)
_MCE_CLASS = re.compile(r"(?:event severity|type): (?P<class>corrected|recoverable|fatal|info)")
_AMD_CLASS = re.compile(
    r"\[Hardware Error\]: (?P<class>Corrected|Uncorrected|Deferred)\b"
    r"|_STATUS\[[^\]]{0,60}?\|(?P<short>CE|UE|UC)\|"
)
_LOST_MEMORY = re.compile(
    r"Uncorrected hardware memory error|Memory failure: 0x[0-9a-f]{1,16}: .{0,80}?"
    r"(?:Killing|recovery action)"
)
_SECTION = re.compile(r"section_type: (?P<section>[\w /-]{1,60})")
_DEVICE = re.compile(rf"\[Hardware Error\]:\s+device_id: (?P<pci>{BDF})")
UNCORRECTED_BIT = 1 << 61
"""MCi_STATUS.UC: the hardware could not correct the error (Intel SDM volume 3, machine check)."""
_NUMBERS = frozenset({"cpu", "seconds", "pid", "number", "rss_kb"})


def mce(text: str) -> Found | None:
    """Machine checks, EDAC and firmware-first reports; `corrected` is absent where a line says not.

    One error prints several lines; the check puts them together again.
    """
    if match := _EDAC.search(text):
        corrected = match["class"] == "CE"
        return {
            "kind": "mce", "corrected": corrected, "number": int(match["number"]),
            "dimm": match["dimm"],
        }  # fmt: skip
    if _LOST_MEMORY.search(text):
        return {"kind": "mce", "corrected": False}
    if "[Hardware Error]" not in text and "Machine Check" not in text:
        return None
    return _machine(text)


def _machine(text: str) -> Found:
    found: Found = {"kind": "mce"}
    if match := _BANK.search(text):
        found["corrected"] = not int(match["status"], 16) & UNCORRECTED_BIT
        found["bank"] = int(match["bank"])
    elif match := _MCE_CLASS.search(text):
        found["corrected"] = match["class"] in ("corrected", "info")
    elif match := _AMD_CLASS.search(text):
        found["corrected"] = (match["class"] or match["short"]) in ("Corrected", "CE")
    if match := _SECTION.search(text):
        found["section"] = match["section"].strip()
    if match := _DEVICE.search(text):
        found["pci"] = address(match["pci"])
    return found


def host(text: str) -> Found | None:
    """Lockups, stalls, panics, hung tasks, killed processes, hot CPUs; None for any other line."""
    if "oom-kill:" in text or "ut of memory" in text:
        return _oom(text)
    if "temperature" in text and (match := _THROTTLED.search(text)):
        what = "throttled" if "above" in match["what"] else "normal"
        return _numbered(
            {"kind": "cpu_hot", "cpu": match["cpu"], "number": match["number"], "what": what}
        )
    if "suppressed" in text and (match := _SUPPRESSED.search(text)):
        return _numbered({"kind": "suppressed", **match.groupdict()})
    for kind, pattern in _OTHERS:
        if match := pattern.search(text):
            return _numbered({"kind": kind, **match.groupdict()})
    return None


def _oom(text: str) -> Found | None:
    if match := _OOM_KILL.search(text):
        found: Found = {"kind": "oom", **match.groupdict()}
        found["cgroup"] = found["cgroup"] or (
            found["task_cgroup"] if found["constraint"] == "CONSTRAINT_MEMCG" else None
        )
        return _numbered(found)
    if match := _KILLED.search(text):
        limited = True if "cgroup" in text[: match.start() + 1].lower() else None
        return _numbered({"kind": "oom", "cgroup_limit": limited, **match.groupdict()})
    return None


def _numbered(found: Found) -> Found:
    """Digits of number facts as numbers."""
    return {
        name: int(value) if name in _NUMBERS and isinstance(value, str) else value
        for name, value in found.items()
    }
