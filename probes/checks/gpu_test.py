"""Figures of the active GPU test: against the product's mark and against the node's other GPUs.

Below both is critical, below one of them a warning. A GPU that gave no figure is unknown, never ok.
Figures of a CPU are never judged.
"""

from __future__ import annotations

from collections.abc import Iterator

from probes.checks.gpu_test_pairs import PEER, slow_pairs
from probes.checks.gpu_tested import Tested, tested
from probes.checks.rule import Look, Rule
from probes.checks.thermal import HW_SLOWDOWN, HW_THERMAL, POWER_BRAKE, SW_THERMAL
from probes.event import Action, Finding, Severity
from probes.facts import NodeFacts
from probes.reading import number, whole
from probes.rules import Limit, Product, Rules

LANES = 16

_TWICE = "test again; compare power, clock and temperature with its siblings; drain if it stays"
GEMM = Rule(
    id="gpu_test.gemm",
    title="A GPU computes more slowly than it should",
    severity=Severity.WARN,
    reads="bf16 and fp8 GEMM of the GPU test",
    cause="it runs at a lower clock, or something else uses it",
    action=Action.WATCH,
    next_step=_TWICE,
    source="GEMM rates that healthy cards reach [mle]; the shares are our estimate, not measured",
    others="imbue, OCI, SOP, SB (5 % under baseline), PRI",
    example="GEMM bf16 598 TFLOPS, the other GPUs 734, a healthy H100-SXM5-80 795 at best",
    limits=("gpu_test.gemm_peers", "gpu_test.gemm_floor"),
)
MEMORY = Rule(
    id="gpu_test.memory",
    title="The memory of a GPU is slower than it should be",
    severity=Severity.WARN,
    reads="memory copy of the GPU test",
    cause="a lower memory clock, a hot memory, or rows and channels out of use",
    action=Action.WATCH,
    next_step="look at memory clock, memory temperature and remapped rows of this GPU; test again",
    source="DCGM's marks by product [dcgm]; the share of the peers is our estimate, not measured",
    others="DCGM, PRI (2000 GB/s on MI300X)",
    example="HBM copy 1710 GB/s, the other GPUs 2790, floor of an H100-SXM5-80 1905",
    limits=("gpu_test.memory_peers",),
)
HOST = Rule(
    id="gpu_test.host_copy",
    title="Copies between a GPU and the host are slow",
    severity=Severity.WARN,
    reads="copies from and to pinned memory, one GPU at a time, on its own CPUs",
    cause="the PCIe link trained low, lost lanes, or memory of the other socket",
    action=Action.WATCH,
    next_step="see the link's generation and width under load; reseat the card or riser; IOMMU and "
    "ACS settings",
    source="pass marks per PCIe generation in use at Azure [az]",
    others="AzHC 21-23 (A100), 48-52 (H100), 55 (H200) GB/s; APL 4 GB/s; SB",
    example="h2d 24.9 GB/s of 48 at Gen5 x16, link at Gen4",
    limits=(
        "gpu_test.copy_gen3_gb_s", "gpu_test.copy_gen4_gb_s", "gpu_test.copy_gen5_gb_s",
    ),
)  # fmt: skip
FAILED = Rule(
    id="gpu_test.failed",
    title="A GPU gave no figure in the GPU test",
    severity=Severity.UNKNOWN,
    reads="what CUDA, torch or the test's process said",
    cause="the GPU is lost, hangs, has no memory left, or CUDA and driver do not fit",
    action=Action.WATCH,
    next_step="look at the findings about this GPU and at the kernel log; test again",
    source="our rule: what could not be measured is unknown",
    others="-",
    example="GPU4: start: its process ended with status 1",
)
RULES = (GEMM, MEMORY, HOST, PEER, FAILED)


def check(look: Look) -> Iterator[Finding]:
    """The last test of this node, GPU by GPU, then the pairs."""
    test = tested(look)
    if test is None:
        return
    for device in test.gpus:
        yield from _failed(test, device)
        yield from _gemm(test, device)
        yield from _memory(test, device)
        yield from _host(test, device)
    yield from slow_pairs(test)


def _failed(test: Tested, device: str) -> Iterator[Finding]:
    error = test.gpus[device].get("error")
    if error is not None:
        yield FAILED.finding(
            test.look, f"no figure in the GPU test: {error}", (str(error),),
            device=device, label=test.look.facts.gpu_label(device),
        )  # fmt: skip


def _gemm(test: Tested, device: str) -> Iterator[Finding]:
    """One finding, of the worse figure: both tell of the same clock."""
    product = test.product(device)
    rules, told_of = test.look.rules, list[Finding]()
    for metric, name in (("gemm_bf16_tflops", "GEMM bf16"), ("gemm_fp8_tflops", "GEMM fp8")):
        usual: float | None = None if product is None else getattr(product, metric)
        share = rules.limit("gpu_test.gemm_floor")
        told = (
            f"a healthy {product.name} {usual:g} at its best shape" if product and usual else "",
        )
        found = _slow(
            test, GEMM, device, metric, f"{name} {{:.0f}} TFLOPS",
            rules.limit("gpu_test.gemm_peers"), usual * share.value if usual else None, told,
        )  # fmt: skip
        if found is not None:
            told_of.append(found)
    if told_of:
        yield max(told_of, key=lambda f: f.severity.rank)


def _memory(test: Tested, device: str) -> Iterator[Finding]:
    product = test.product(device)
    floor = None if product is None else product.mem_copy_floor_gb_s
    told = (f"floor of {product.name} {floor:g} GB/s",) if product and floor else ()
    found = _slow(
        test, MEMORY, device, "hbm_copy_gb_s", "memory copy {:.0f} GB/s",
        test.look.rules.limit("gpu_test.memory_peers"), floor, told,
    )  # fmt: skip
    if found is not None:
        yield found


def _slow(
    test: Tested,
    rule: Rule,
    device: str,
    metric: str,
    form: str,
    share: Limit,
    floor: float | None,
    told: tuple[str, ...],
) -> Finding | None:
    """A figure below the peers' or the product's; below both it is the GPU for certain."""
    values = test.gpus[device]
    value, usual = number(values.get(metric)), test.peers(device, metric)
    if value is None:
        return None
    behind = usual is not None and value < share.value * usual
    below = floor is not None and value < floor
    if not (behind or below):
        return None
    say = form.format(value)
    if usual is not None:
        say += f", the node's median {usual:.0f}"
    if below:
        say += f", it should reach {floor:.0f}"
    both = behind and below
    cause, conditions = _conditions(test, device)
    product = test.product(device)
    return rule.finding(
        test.look, say, (*conditions, *filter(None, told)),
        device=device, label=test.look.facts.gpu_label(device), value=value,
        severity=Severity.CRITICAL if both else Severity.WARN,
        action=Action.DRAIN if both else Action.WATCH, cause=cause if rule is GEMM else "",
        limit=share if behind else None,
        source=share.source if behind or product is None
        else f"hardware.yaml {product.name}: {product.source}",
    )  # fmt: skip


def _conditions(test: Tested, device: str) -> tuple[str, tuple[str, ...]]:
    """(likely cause, how it ran): clock, power, temperature and reasons during the GEMM."""
    values = test.gpus[device]
    reasons = whole(values.get("reasons")) or 0
    shown = []
    for metric, unit in (("sm_clock_mhz", "MHz"), ("power_w", "W"), ("temp_c", "°C")):
        value, usual = number(values.get(metric)), test.peers(device, metric)
        if value is not None:
            median = f", median {usual:.0f}" if usual is not None else ""
            shown.append(f"{value:.0f} {unit} during the GEMM{median}")
    if reasons:
        shown.append(f"clocks event reasons {reasons:#x}")
    clock, usual_clock = number(values.get("sm_clock_mhz")), test.peers(device, "sm_clock_mhz")
    slow = clock is not None and usual_clock is not None and clock < 0.97 * usual_clock
    if reasons & (HW_THERMAL | SW_THERMAL):
        cause = "heat: the GPU lowers its clock"
    elif reasons & (POWER_BRAKE | HW_SLOWDOWN):
        cause = "the power brake: a power supply or the rack asks for less"
    elif slow:
        cause = "a lower clock than its siblings at the same load: power limit, locked clocks, heat"
    elif clock is not None and usual_clock is not None:
        cause = (
            "not the clock, which is as that of its siblings: other users of the GPU, or silicon"
        )
    else:
        cause = ""
    return cause, tuple(shown)


def host_mark(
    facts: NodeFacts, device: str, product: Product | None, rules: Rules
) -> tuple[Limit, float, str] | None:
    """(limit, GB/s, "Gen5 x16") that host copies of a GPU should reach by its slot; None without.

    Behind C2C PCIe says nothing.
    """
    gen = whole(facts.value("pcie", device, "gen_max")) or (product and product.pcie_gen)
    width = whole(facts.value("pcie", device, "width_max")) or LANES
    if gen not in (3, 4, 5) or (product is not None and product.pcie_gen is None):
        return None
    limit = rules.limit(f"gpu_test.copy_gen{gen}_gb_s")
    return limit, limit.value * min(width, LANES) / LANES, f"Gen{gen} x{width}"


def _host(test: Tested, device: str) -> Iterator[Finding]:
    values, facts = test.gpus[device], test.look.facts
    mark = host_mark(facts, device, test.product(device), test.look.rules)
    if mark is None:
        return
    limit, floor, slot = mark
    low = {
        name: value
        for name in ("h2d", "d2h")
        if (value := number(values.get(f"{name}_gb_s"))) is not None and value < floor
    }
    if not low:
        return
    now = whole(values.get("pcie_gen")), whole(values.get("pcie_width"))
    trained = (f"during the copies Gen{now[0]} x{now[1]}",) if None not in now else ()
    told = " and ".join(f"{name} {value:.1f}" for name, value in low.items())
    trained_low = now[0] and now[0] < int(slot[3])
    yield HOST.finding(
        test.look, f"{told} GB/s of {floor:.0f} at {slot}", trained,
        device=device, label=facts.gpu_label(device), value=min(low.values()), limit=limit,
        cause=f"its PCIe link ran at Gen{now[0]} only" if trained_low else "",
    )  # fmt: skip
