"""Kernel logs cut, mixed and broken: no crash, no made-up device, no order that matters."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from re import _constants, _parser  # type: ignore[attr-defined]
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from console.diagnose import kernel_log, kernel_records, kernel_stream
from console.diagnose.report import Report
from console.diagnose.text import of
from probes import (
    kernel_driver,
    kernel_host,
    kernel_lines,
    kernel_net,
    kernel_nvlink,
    kernel_pcie,
    kernel_prefix,
    kernel_ring,
    kernel_storage,
    kernel_xid,
)
from tests.diagnose.support import of_kind, path

MODULES = (
    kernel_driver, kernel_host, kernel_lines, kernel_net, kernel_nvlink, kernel_pcie,
    kernel_prefix, kernel_ring, kernel_storage, kernel_xid, kernel_records, kernel_stream,
)  # fmt: skip
FEW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])

EVENTS = (
    "NVRM: Xid (PCI:0000:43:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "NVRM: Xid (PCI:0000:44:00): 74, pid=1, name=a, NVLink: fatal error detected on link 3(0x10, "
    "0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
    "NVRM: Xid (PCI:0000:52:00 GPU-I:05 GPU-CI:00): 94, pid=3901, name=python, Contained: SM. "
    "RST: No",
    "NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x0)",
    "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up",
    "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN",
    "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link ACTIVE",
    "nvidia 0000:41:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
    "nfs: server 192.0.2.40 not responding, still trying",
    "nfs: server 192.0.2.40 OK",
    "Memory cgroup out of memory: Killed process 4711 (python3) total-vm:8kB, anon-rss:4kB",
    "EDAC MC1: 1 UE memory read error on CPU_SrcID#1_MC#0_Chan#0_DIMM#0",
    "watchdog: Watchdog detected hard LOCKUP on cpu 12",
)  # fmt: skip
BOOT = 1_772_501_603.0


def read(text: str) -> Report:
    return kernel_log.read(of(text))


def verdicts(report: Report) -> set[tuple[str, str, str]]:
    """What was found, without times and counts."""
    return {(f.rule, f.device, str(f.severity)) for f in report.findings}


def dmesg(at: float, text: str) -> str:
    return f"[{at:12.6f}] {text}"


def iso(at: float, text: str) -> str:
    when = datetime.fromtimestamp(BOOT + at, UTC).isoformat(timespec="microseconds")
    return f"{when} h kernel: {text}"


occurrences = st.lists(
    st.tuples(st.integers(10, 80_000), st.sampled_from(EVENTS)), min_size=1, max_size=12,
    unique_by=lambda pair: pair[0],
)  # fmt: skip


@FEW
@given(occurrences, st.randoms(use_true_random=False))
def test_two_readers_in_any_mix_say_what_one_says(
    events: list[tuple[int, str]], order: Any
) -> None:
    """Each reader's own lines are in order; how the two are shuffled together is not told."""
    events = sorted(events)
    first = [dmesg(at, text) for at, text in events]
    second = [iso(at, text) for at, text in events]
    alone = read("\n".join(first))
    mixed: list[str] = []
    left, right = list(first), list(second)
    while left or right:
        side = left if left and (not right or order.random() < 0.5) else right
        mixed.append(side.pop(0))
    together = read("\n".join(mixed))
    assert verdicts(together) == verdicts(alone)
    assert together.facts["events"] == alone.facts["events"]
    assert together.drain == alone.drain


@FEW
@given(occurrences, st.integers(0, 3000))
def test_a_log_cut_anywhere_invents_no_device(events: list[tuple[int, str]], cut: int) -> None:
    text = "\n".join(dmesg(at, line) for at, line in sorted(events))[:cut]
    for finding in read(text).findings:
        where = re.search(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}", finding.device)
        if where:
            assert where[0] in text.lower()


@FEW
@given(st.text(max_size=400))
def test_any_text_is_read_without_a_word_about_devices(text: str) -> None:
    report = read(text)
    assert all(finding.device in text.lower() for finding in report.findings if finding.device)


@FEW
@given(st.sampled_from(EVENTS), st.data())
def test_a_line_with_any_damage_is_an_event_or_none(line: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(line)))
    damage = data.draw(st.text(max_size=12))
    broken = line[:at] + damage + line[at + data.draw(st.integers(0, 6)) :]
    event = kernel_lines.parse(broken)
    if event is not None and event.pci is not None:
        bus = event.pci.split(":")[1]
        assert bus in broken.lower()


@pytest.mark.parametrize("name", of_kind("kernel-log", "xid"))
def test_a_case_cut_at_any_byte_is_read(name: str) -> None:
    raw = path(name).read_bytes()
    for cut in range(0, len(raw), 29):
        report = read(raw[:cut].decode("utf-8", "replace"))
        assert len(report.findings) <= raw[:cut].count(b"\n") + 1


# ------------------------------------------------------------------ bounded work

_REPEATS = (_constants.MAX_REPEAT, _constants.MIN_REPEAT)
UNBOUNDED = 400
"""A repeat that may take more than this is as good as endless."""


def patterns(module: ModuleType) -> list[re.Pattern[str]]:
    """All compiled patterns of a module, also those inside its tables."""
    found: list[re.Pattern[str]] = []
    waiting: list[Any] = [
        value for name, value in vars(module).items() if not name.startswith("__")
    ]
    while waiting:
        value = waiting.pop()
        if isinstance(value, re.Pattern):
            found.append(value)
        elif isinstance(value, dict):
            waiting += list(value.values())
        elif isinstance(value, tuple | list):
            waiting += list(value)
    return found


def nested(parsed: Any, *, inside: bool = False) -> bool:
    """Whether a large repeat stands inside another: such a pattern can take exponential time."""
    for op, argument in parsed:
        if op in _REPEATS:
            _, high, body = argument
            large = high == _constants.MAXREPEAT or high > UNBOUNDED
            if (large and inside) or nested(body, inside=inside or large):
                return True
        elif op is _constants.SUBPATTERN:
            if nested(argument[3], inside=inside):
                return True
        elif op is _constants.BRANCH:
            if any(nested(branch, inside=inside) for branch in argument[1]):
                return True
        elif op in (_constants.ASSERT, _constants.ASSERT_NOT) and nested(
            argument[1], inside=inside
        ):
            return True
    return False


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_no_pattern_repeats_inside_a_repeat(module: ModuleType) -> None:
    bad = [p.pattern for p in patterns(module) if nested(_parser.parse(p.pattern, p.flags))]
    assert bad == []


def test_the_search_for_nested_repeats_finds_one() -> None:
    assert nested(_parser.parse(r"(a+)+b"))
    assert not nested(_parser.parse(r"a+b{1,4}(?:c|d*)"))
    assert len(patterns(kernel_host)) > 10


def test_every_line_is_parsed_a_bounded_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work grows with the lines, not with their square: counted, not timed."""
    counts: list[int] = []
    real = kernel_stream._parsed.__wrapped__

    def counting(text: str, program: str) -> Any:
        counts[-1] += 1
        return real(text, program)

    monkeypatch.setattr(kernel_stream, "_parsed", counting)
    for size in (200, 400):
        counts.append(0)
        read("\n".join(dmesg(n, EVENTS[n % len(EVENTS)]) for n in range(1, size + 1)))
    assert counts == [200, 400]
