"""Facts of the kernel's set-up: command line, taint, clock source, IOMMU, cgroups, hugepages.

They are what an operator compares between nodes; few of them are right or wrong by themselves.
"""

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from probes.node.context import Context

    Values = dict[str, object]

METRICS = {
    "cmdline": ("", "info", "kernel command line, without values of unknown names"),
    "tainted": ("", "info", "taint bits of the kernel"),
    "taints": ("", "info", "their letters, as oops messages print them"),
    "transparent_hugepages": ("", "info", "always, madvise or never"),
    "numa_balancing": ("", "info", "whether the kernel moves pages between NUMA nodes"),
    "cgroup_version": ("", "info", "1, 2, or 1.5 for both"),
    "clocksource": ("", "info", "what the kernel reads the time from"),
    "clocksources": ("", "info", "what it could read it from"),
    "iommu": ("", "info", "what translates DMA addresses: off, or the default domain type"),
    "iommu_groups": ("", "info", "groups of devices; 0: no translation"),
    "acs_override": ("", "info", "pcie_acs_override of the command line"),
    "ats": ("", "info", "off when pci=noats is on the command line"),
    "virtual": ("", "info", "whether this is a virtual machine"),
    "machine_vendor": ("", "info", "maker of the machine, from DMI"),
    "machine_product": ("", "info", "its product name"),
}  # fmt: skip

SHOWN = frozenset({
    "ro", "rw", "quiet", "nokaslr", "noapic", "nosmt", "nopti", "nohz_full", "isolcpus",
    "mitigations", "iommu", "intel_iommu", "amd_iommu", "iommu.passthrough", "iommu.strict",
    "arm-smmu.disable_bypass", "pci", "pcie_aspm", "pcie_acs_override", "pcie_port_pm",
    "hugepages", "hugepagesz", "default_hugepagesz", "transparent_hugepage", "numa_balancing",
    "numa", "clocksource", "tsc", "idle", "processor.max_cstate", "intel_idle.max_cstate",
    "intel_pstate", "amd_pstate", "cpufreq.default_governor", "cgroup_no_v1",
    "systemd.unified_cgroup_hierarchy", "nomodeset", "modprobe.blacklist", "crashkernel", "panic",
    "nmi_watchdog", "nowatchdog", "selinux", "apparmor", "init_on_alloc", "mem", "maxcpus",
    "console", "root", "rootfstype", "default_governor", "preempt", "psi", "swapaccount", "audit",
})  # fmt: skip
"""Names whose values leave the node. Others may hold secrets: only their names do."""

TAINTS = "PFSRMBUDAWCIOELKXTNJ"
"""Letter of each bit (Documentation/admin-guide/tainted-kernels.rst)."""

VIRTUAL_NAMES = (
    "kvm", "qemu", "vmware", "virtual machine", "virtualbox", "hvm domu", "google compute engine",
    "openstack", "bochs", "xen", "parallels", "firecracker", "rhev",
)  # fmt: skip

LINE_CHARS = 300
_WORD = re.compile(r'(?:"[^"]*(?:"|$)|[^\s"])+')


def facts(ctx: "Context") -> "Values":
    """All of them that can be read."""
    values: "Values" = {}
    words = split(ctx.read("proc/cmdline") or "")
    if words:
        values["cmdline"] = shown(words)[:LINE_CHARS]
    values.update(_taint(ctx))
    values.update(_memory(ctx))
    values.update(_cgroup(ctx))
    for metric, name in (("clocksource", "current"), ("clocksources", "available")):
        place = "sys/devices/system/clocksource/clocksource0/%s_clocksource" % name
        text = (ctx.read(place) or "").strip()
        if text:
            values[metric] = text[:100]
    values.update(_iommu(ctx, words))
    values.update(_machine(ctx))
    return values


def split(cmdline: "str") -> "list[str]":
    """Words as the kernel parts them: a space inside double quotes parts nothing."""
    return _WORD.findall(cmdline)


def shown(words: "list[str]") -> "str":
    """The command line with only the known names' values."""
    kept = []
    for word in words:
        name, equals, _ = word.partition("=")
        kept.append(word if name in SHOWN or not equals else name + "=...")
    return " ".join(kept)


def _taint(ctx: "Context") -> "Values":
    bits = ctx.read_int("proc/sys/kernel/tainted")
    if bits is None or bits < 0:
        return {}
    letters = "".join(letter for place, letter in enumerate(TAINTS) if bits >> place & 1)
    return {"tainted": bits, "taints": letters}


def _memory(ctx: "Context") -> "Values":
    found: "Values" = {}
    setting = ctx.read("sys/kernel/mm/transparent_hugepage/enabled") or ""
    if "[" in setting:
        found["transparent_hugepages"] = setting.partition("[")[2].partition("]")[0][:16]
    balancing = ctx.read_int("proc/sys/kernel/numa_balancing")
    if balancing is not None:
        found["numa_balancing"] = balancing != 0
    return found


def _cgroup(ctx: "Context") -> "Values":
    base = "sys/fs/cgroup"
    if ctx.read(base, "cgroup.controllers") is not None:
        return {"cgroup_version": "2"}
    names = ctx.listdir(base)
    if not names:
        return {}
    return {"cgroup_version": "1.5" if "unified" in names else "1"}


def _iommu(ctx: "Context", words: "list[str]") -> "Values":
    found: "Values" = {}
    groups = ctx.listdir("sys/kernel/iommu_groups")
    if groups:
        kind = (ctx.read("sys/kernel/iommu_groups", groups[0], "type") or "").strip()
        found["iommu"] = kind[:16] or "on"
        found["iommu_groups"] = len(groups)
    elif words:
        found["iommu"], found["iommu_groups"] = "off", 0
    for word in words:
        name, _, value = word.partition("=")
        if name == "pcie_acs_override":
            found["acs_override"] = value[:64]
        if name == "pci" and "noats" in value.split(","):
            found["ats"] = "off"
    return found


def _machine(ctx: "Context") -> "Values":
    """Read once: /proc/cpuinfo asks every CPU for its frequency."""
    memory = ctx.memory("kernel_setup")
    known = memory.get("machine")
    if isinstance(known, dict):
        return dict(known)
    found: "Values" = {}
    base = "sys/class/dmi/id"
    for metric, name in (("machine_vendor", "sys_vendor"), ("machine_product", "product_name")):
        text = (ctx.read(base, name) or "").strip()
        if text:
            found[metric] = text[:64]
    info = ctx.read("proc/cpuinfo") or ""
    said = " ".join(str(word) for word in found.values()).lower()
    guest = (
        " hypervisor" in info
        or ctx.read("sys/hypervisor/type") is not None
        or any(name in said for name in VIRTUAL_NAMES)
        or (said.startswith("amazon ec2") and ".metal" not in said)
    )
    if info or said:
        found["virtual"] = guest
    memory["machine"] = found
    return dict(found)
