"""The host's set-up and slow counters: frequency, NUMA, hugepages, memory errors, limits, boots.

What the kernel does not show is missing: a virtual machine has no governor, most ARM machines no
EDAC, a container no wtmp. Facts of the kernel's set-up are in kernel_setup.
"""

import os

from probes.node import kernel_setup
from probes.node.edac import edac
from probes.node.host import scan
from probes.node.wtmp import boots

TYPE_CHECKING = False
if TYPE_CHECKING:
    from probes.node.context import Context

    Values = dict[str, object]

NAME = "host_slow"
INTERVAL = "slow"
COUNTERS = True  # rates of throttling, swapping and memory errors
METRICS = {
    "governor": ("", "info", "cpufreq governor of most CPUs"),
    "governors": ("", "info", "all governors in use, with the number of policies"),
    "cpufreq_driver": ("", "info", "who sets the frequency; intel_pstate scales by itself"),
    "cpu_mhz": ("MHz", "gauge", "median frequency of the CPUs"),
    "cpu_mhz_max": ("MHz", "info", "highest frequency they can have"),
    "cpu_mhz_limit": ("MHz", "gauge", "lowest ceiling that was set (scaling_max_freq)"),
    "cpu_throttles": ("", "counter", "times a CPU package was slowed down by heat"),
    "cpu_throttle_ms": ("ms", "counter", "time packages were slowed down by heat, all together"),
    "cpus_present": ("", "info", "CPUs the board has"),
    "cpus_offline": ("", "gauge", "of them not online"),
    "cpus_offline_list": ("", "info", "which"),
    "smt": ("", "info", "on, off, forceoff or notsupported"),
    "numa_nodes": ("", "info", "NUMA nodes with CPUs"),
    "free_order8": ("", "gauge", "free blocks of 1 MiB (order 8) or more"),
    "hugepages_total": ("", "info", "hugepages of the default size"),
    "hugepages_free": ("", "gauge", "of them free"),
    "hugepage_bytes": ("B", "info", "their size"),
    "mem_total_bytes": ("B", "info", "of a NUMA node"),
    "mem_free_bytes": ("B", "gauge", "of a NUMA node"),
    "cpus": ("", "info", "CPUs of a NUMA node, as a list"),
    "ce": ("", "counter", "memory errors corrected, by memory controller or DIMM"),
    "ue": ("", "counter", "memory errors not corrected"),
    "label": ("", "info", "DIMM as the board calls it"),
    "daemon": ("", "info", "whose limits these are: slurmd or the like, which jobs inherit from"),
    "daemon_pid": ("", "info", "its process"),
    "memlock_bytes": ("B", "info", "memory that may be locked (hard limit), -1: unlimited"),
    "nofile": ("", "info", "open files per process (hard limit), -1: unlimited"),
    "nproc": ("", "info", "processes per user (hard limit), -1: unlimited"),
    "shm_total_bytes": ("B", "info", "size of /dev/shm"),
    "shm_used_bytes": ("B", "gauge", "used of it"),
    "swap_in_pages": ("pages", "counter", "pages read back from swap"),
    "swap_out_pages": ("pages", "counter", "pages written to swap"),
    "entropy": ("bits", "gauge", "random pool; 256 is full since Linux 5.18"),
    "boots_day": ("", "gauge", "boots within the last 24 h, from wtmp"),
}  # fmt: skip
METRICS.update(kernel_setup.METRICS)

DAEMONS = ("slurmd", "pbs_mom", "sbatchd", "sge_execd", "containerd", "kubelet")
"""Jobs inherit the limits of these, in this order of preference."""

CPU = "sys/devices/system/cpu"
NODES = "sys/devices/system/node"
POLICIES = 1024
SAMPLED = 16
"""Policies whose frequency is read: before Linux 5.18 each such read waits 10 ms."""
NUMA_NODES = 16
"""Devices of this probe: eight sockets and some memory-only nodes. GB200 has more, without CPUs."""
RANGE_CPUS = 8192
"""CONFIG_NR_CPUS of the largest distribution kernels."""


def collect(ctx: "Context") -> "tuple[dict[str, Values], list[Values]]":
    """Device "" is the host; then "numa0", and "mc0", "mc0/dimm1" of EDAC."""
    values: "Values" = {}
    for part in (_frequency, _throttle, _cpus, _swapping, _blocks, _hugepages, _limits, _shm):
        values.update(part(ctx))
    values.update(kernel_setup.facts(ctx))
    entropy = ctx.read_int("proc/sys/kernel/random/entropy_avail")
    if entropy is not None:
        values["entropy"] = entropy
    day = boots(ctx)
    if day is not None:
        values["boots_day"] = day
    devices = {"": values}
    devices.update(_numa(ctx))
    values["numa_nodes"] = sum(1 for d, v in devices.items() if d and v.get("cpus"))
    if not values["numa_nodes"]:
        del values["numa_nodes"]
    devices.update(edac(ctx))
    return devices, []


def _frequency(ctx: "Context") -> "Values":
    base = CPU + "/cpufreq"
    policies = [name for name in ctx.listdir(base) if name.startswith("policy")][:POLICIES]
    governors: "dict[str, int]" = {}
    now: "list[int]" = []
    most: "list[int]" = []
    limits: "list[int]" = []
    step = len(policies) // SAMPLED + 1
    for number, policy in enumerate(policies):
        word = (ctx.read(base, policy, "scaling_governor") or "").strip()[:32]
        if word:
            governors[word] = governors.get(word, 0) + 1
        wanted = [("cpuinfo_max_freq", most), ("scaling_max_freq", limits)]
        if number % step == 0:
            wanted.append(("scaling_cur_freq", now))
        for name, into in wanted:
            khz = ctx.read_int(base, policy, name)
            if khz:
                into.append(khz // 1000)
    found: "Values" = {}
    if governors:
        order = sorted(governors, key=lambda name: (-governors[name], name))
        found["governor"] = order[0]
        found["governors"] = ", ".join("%s %d" % (name, governors[name]) for name in order)
        driver = (ctx.read(base, policies[0], "scaling_driver") or "").strip()
        if driver:
            found["cpufreq_driver"] = driver
    if now:
        found["cpu_mhz"] = sorted(now)[len(now) // 2]
    if most:
        found["cpu_mhz_max"] = max(most)
    if limits:
        found["cpu_mhz_limit"] = min(limits)
    return found


def _throttle(ctx: "Context") -> "Values":
    """Each CPU repeats its package's counters: one of each package counts."""
    packages: "dict[str, tuple[int, int | None]]" = {}
    for name in ctx.listdir(CPU):
        if not name[3:].isdigit():
            continue
        count = ctx.read_int(CPU, name, "thermal_throttle/package_throttle_count")
        if count is None:
            return {}
        package = ctx.read(CPU, name, "topology/physical_package_id") or ""
        if package not in packages:
            spent = ctx.read_int(CPU, name, "thermal_throttle/package_throttle_total_time_ms")
            packages[package] = (count, spent)
    found: "Values" = {}
    if packages:
        found["cpu_throttles"] = sum(count for count, _ in packages.values())
        times = [spent for _, spent in packages.values() if spent is not None]
        if times:
            found["cpu_throttle_ms"] = sum(times)
    return found


def _cpus(ctx: "Context") -> "Values":
    """Offline siblings are by design where SMT is switched off; the reader gets both."""
    present = cpu_range(ctx.read(CPU, "present") or "")
    online = cpu_range(ctx.read(CPU, "online") or "")
    found: "Values" = {}
    if present and online:
        off = sorted(present - online)
        found["cpus_present"], found["cpus_offline"] = len(present), len(off)
        if off:
            found["cpus_offline_list"] = ",".join(map(str, off))[:200]
    smt = (ctx.read(CPU, "smt/control") or "").strip()
    if smt:
        found["smt"] = smt[:16]
    return found


def cpu_range(text: "str") -> "set[int]":
    """CPUs of a list as sysfs writes it: "0-3,8"."""
    found: "set[int]" = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (not last or last.isdigit()) and int(last or first) < RANGE_CPUS:
            found.update(range(int(first), int(last or first) + 1))
    return found


def _blocks(ctx: "Context") -> "Values":
    """Memory in blocks of order 8 and above, in ordinary zones."""
    total, seen = 0, False
    for line in (ctx.read("proc/buddyinfo") or "").splitlines():
        head, _, rest = line.partition("zone")
        fields = rest.split()
        if head.startswith("Node") and fields[:1] == ["Normal"]:
            seen = True
            total += sum(
                int(number) << order
                for order, number in enumerate(word for word in fields[9:] if word.isdigit())
            )
    return {"free_order8": total} if seen else {}


def _hugepages(ctx: "Context") -> "Values":
    names = {"HugePages_Total": "hugepages_total", "HugePages_Free": "hugepages_free"}
    found: "Values" = {}
    for line in (ctx.read("proc/meminfo") or "").splitlines():
        key, _, rest = line.partition(":")
        number = rest.split()[:1]
        if not number or not number[0].isdigit():
            continue
        if key in names:
            found[names[key]] = int(number[0])
        elif key == "Hugepagesize":
            found["hugepage_bytes"] = int(number[0]) * 1024
    return found


def _swapping(ctx: "Context") -> "Values":
    names = {"pswpin": "swap_in_pages", "pswpout": "swap_out_pages"}
    found: "Values" = {}
    for line in (ctx.read("proc/vmstat") or "").splitlines():
        key, _, number = line.partition(" ")
        if key in names and number.isdigit():
            found[names[key]] = int(number)
    return found


def _limits(ctx: "Context") -> "Values":
    """Hard limits of the daemon that jobs inherit them from."""
    daemons = {}
    for task in scan(ctx):
        if task.comm in DAEMONS and task.comm not in daemons:
            daemons[task.comm] = task.pid
    name = next((name for name in DAEMONS if name in daemons), "")
    if not name:
        return {}
    found: "Values" = {"daemon": name, "daemon_pid": int(daemons[name])}
    names = {
        "Max locked memory": "memlock_bytes", "Max open files": "nofile", "Max processes": "nproc",
    }  # fmt: skip
    for line in (ctx.read("proc", daemons[name], "limits") or "").splitlines():
        metric = names.get(line[:26].strip())
        words = line[26:].split()
        if metric and len(words) > 1:
            if words[1] == "unlimited":
                found[metric] = -1
            elif words[1].isdigit():
                found[metric] = int(words[1])
    return found


def _shm(ctx: "Context") -> "Values":
    """Of tmpfs, which answers without any device; nothing where it is no file system of its own."""
    place = ctx.path("dev/shm")
    try:
        if os.lstat(place).st_dev == os.lstat(ctx.path("dev")).st_dev:
            return {}
        stat = os.statvfs(place)
    except OSError:
        return {}
    total = stat.f_blocks * stat.f_frsize
    return {"shm_total_bytes": total, "shm_used_bytes": total - stat.f_bfree * stat.f_frsize}


def _numa(ctx: "Context") -> "dict[str, Values]":
    found: "dict[str, Values]" = {}
    names = [name for name in ctx.listdir(NODES) if name[:4] == "node" and name[4:].isdigit()]
    for name in sorted(names, key=lambda one: int(one[4:]))[:NUMA_NODES]:
        values: "Values" = {}
        for line in (ctx.read(NODES, name, "meminfo") or "").splitlines():
            words = line.split()
            if len(words) > 3 and words[3].isdigit():
                metric, scale = _NUMA.get(words[2].rstrip(":"), ("", 0))
                if metric:
                    values[metric] = int(words[3]) * scale
        cpus = (ctx.read(NODES, name, "cpulist") or "").strip()
        if cpus:
            values["cpus"] = cpus[:200]
        if values:
            found["numa" + name[4:]] = values
    return found


_NUMA = {
    "MemTotal": ("mem_total_bytes", 1024), "MemFree": ("mem_free_bytes", 1024),
    "HugePages_Total": ("hugepages_total", 1), "HugePages_Free": ("hugepages_free", 1),
}  # fmt: skip
